// What makes pixels of one value in a ROI suspect: see kernels/flat_areas.h.
#pragma once

namespace spotfit {

// What a ROI is suspected of: bits. The last one: pixels that are no numbers, as of what an image was padded with.
constexpr unsigned char FLAT_TOP = 1, FLAT_GROUND = 2, NO_NUMBERS = 4;

// A top: the largest value of the pixels' type, or several pixels of one value, no less than another. A ground: so far
// below all other pixels at least, and by a multiple of what lies between the lowest of these and their median.
struct FlatAreaRule {
    double largest, least;
    double gap, times;
    int count;
    int planes;  // of a ROI: one of several planes is suspect if all of its pixels have one value
};

}  // namespace spotfit
