// A block of a large ROI's pixels, in the unit that is asked for: compiled once for each type of pixel.
#pragma once
#include "block_of_roi.h"

namespace spotfit::SPOTFIT_ISA {

// Fills a block's pixels, planes and variances, as far as a request needs them. Columns beyond the
// ROI do not count.
void load_block(const HostRois& source, long long roi, const LargeRequest& request, BlockOfRoi<LaneType>& block);

}  // namespace spotfit::SPOTFIT_ISA
