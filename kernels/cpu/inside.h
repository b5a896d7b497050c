// Which ROIs have pixels.
#pragma once
#include "../layouts/rois.h"

namespace spotfit {

// Spatial axes of the frames that ROIs lie in: no ROI of a volume has a single plane.
static inline int axes_of(const RoiShape& roi) { return roi.depth > 1 ? 3 : 2; }

// Whether all of a ROI is in a frame, given the frame's number and the first row and column: a ROI that is not has no
// pixels. Each object has a copy: instruction sets share nothing.
static inline bool is_inside(const long long* corner, long long height, long long width, int rows, int columns) {
    return corner[0] >= 0 && 0 <= corner[1] && corner[1] <= height - rows && 0 <= corner[2] &&
           corner[2] <= width - columns;
}

}  // namespace spotfit
