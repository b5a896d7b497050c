// From frames to tiles of lanes: compiled once for each type of pixel, for all variants of fits.
#pragma once
#include "instruction_set.h"
#include "interface.h"

namespace spotfit::SPOTFIT_ISA {

SPOTFIT_INLINE int lines_of(const RoiShape& roi) { return roi.depth * roi.rows; }
SPOTFIT_INLINE int pixels_of(const RoiShape& roi) { return lines_of(roi) * roi.columns; }

// Rows that a tile of pixels takes while it is loaded: the transposition writes whole blocks.
SPOTFIT_INLINE int padded(int pixels) { return (pixels + LANES - 1) / LANES * LANES; }

// Loads the pixels of ROIs, by their numbers, into the lanes of a tile, each less a number near its
// pixels, which goes to `level`. Lanes without a ROI, and ROIs outside the frames, become NaN. The
// source's planes are weights, or variances. `stage` has room for LANES * padded(pixels) numbers.
void load_pixels(const HostRois& source, bool variances, const long long* rois, int count, const RoiShape& shape,
                 float* stage, LaneType* tile, float* level);

// The same of a map of the frames' pixels, as they are.
void load_map(const HostRois& source, const PixelMap& map, const long long* rois, int count, const RoiShape& shape,
              float* stage, LaneType* tile);

}  // namespace spotfit::SPOTFIT_ISA
