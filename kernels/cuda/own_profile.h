// An expression is generated as any other profile that is no product.
#pragma once
#include "../pixelwise.h"

namespace spotfit::SPOTFIT_ISA {

template <class Variant, class L, class Roi>
struct PixelProfile<Variant, L, Roi, false, true, false> : PixelProfile<Variant, L, Roi, false, false, false> {
    using PixelProfile<Variant, L, Roi, false, false, false>::PixelProfile;
};

}  // namespace spotfit::SPOTFIT_ISA
