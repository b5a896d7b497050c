// Pictures of localisations: what each instruction set has of them.
#pragma once
#include "../layouts/rendering.h"
#include "interface.h"

namespace spotfit {

struct RenderFunctions {
    // Draws the tiles first ... last - 1 of a part of a picture; the memory is that of a tile's sums.
    void (*render_tiles)(const CellIndex&, const PicturePart&, long long first, long long last, double* sums);
};

}  // namespace spotfit
