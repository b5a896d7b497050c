// Whether a spot is a part of one far out of focus. The image of that one is a hump of light, much wider than any in a
// calibration's range, with rings or lobes in it, each of which looks like a dim spot within the range. The background
// of the fit is the hump then: the light farther out, in a ring around the spot, is less on all sides.
//
// The edge of a cell lies on some sides, and a neighbour in the ring adds light: both leave most sides as they are.
#pragma once
#include "functions.h"
#include "layouts/verdicts.h"

namespace spotfit::SPOTFIT_ISA {

// The ring's radii, in sides of the ROI; and by how much the light in it must be less than the background: as a part
// of the spot's height, and in standard errors of the background, whose variance is about so many times that of the
// mean of the ROI's pixels.
constexpr float RING_FROM = 1.6f, RING_TO = 2.1f, LEAST_FALL = 0.08f, SURE_OF_FALL = 4, BACKGROUND_VARIANCE = 4;
// Sides of the ring are eighths. Those that the image has at least half of count: so many at least, of which this share
// must be dim.
constexpr int SIDES = 8, LEAST_SIDES = 4;
constexpr float DIM_SIDES = 0.85f, EIGHTH_OF_CIRCLE = 0.3926991f;

// The flags of a spot in a hump of light, else 0; pixel(y, x) is one of its frame less its level, NaN where there is
// none.
template <class Pixel> SPOTFIT_INLINE unsigned far_light_flags(const FittedSpot& spot, RoiShape roi, Pixel pixel) {
    const int side = roi.rows < roi.columns ? roi.rows : roi.columns;
    const long long y = static_cast<long long>(to_nearest(spot.y));
    const long long x = static_cast<long long>(to_nearest(spot.x));
    const float from = square(RING_FROM * float(side)), to = square(RING_TO * float(side));
    const float error = square_root(BACKGROUND_VARIANCE * spot.dark) / float(side);
    const float fall = higher_of(LEAST_FALL * spot.height, SURE_OF_FALL * error);
    int counted = 0, dim = 0;
    for (int eighth = 0; eighth < SIDES; ++eighth) {
        float sum = 0, count = 0;
        for (int a = 1; float(a * a) < to; ++a)
            for (int b = 0; b <= a; ++b) {
                const float distance = float(a * a + b * b);
                if (distance < from || distance >= to) continue;
                const int v = eighth & 4 ? a : b, u = eighth & 4 ? b : a;
                const float value = pixel(y + (eighth & 1 ? -v : v), x + (eighth & 2 ? -u : u));
                if (is_nan(value)) continue;
                sum += value, count += 1;
            }
        if (2 * count < EIGHTH_OF_CIRCLE * (to - from)) continue;
        ++counted, dim += sum < -fall * count;
    }
    return counted >= LEAST_SIDES && float(dim) >= DIM_SIDES * float(counted) ? flag::Z_AT_LIMIT : 0;
}

}  // namespace spotfit::SPOTFIT_ISA
