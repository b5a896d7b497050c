// Joint fits: spots of one width whose light overlaps, by maximum likelihood. Pixels are scaled so that their variance
// is their mean; then J'WJ with W = 1 / mean is the Fisher information, and W (data - mean) the residual's weight.
#pragma once
#include "functions.h"

namespace spotfit::SPOTFIT_ISA {

// Pixels of a line that are summed side by side, whatever the instruction set.
constexpr int SIDE_BY_SIDE = 16;
using Pixels = Lanes<SIDE_BY_SIDE>;

SPOTFIT_INLINE Pixels load_pixels(const float* from) {
    Pixels p;
    __builtin_memcpy(&p, from, sizeof p);
    return p;
}
SPOTFIT_INLINE void store_pixels(float* to, Pixels p) { __builtin_memcpy(to, &p, sizeof p); }
// In the same order whatever the instruction set.
SPOTFIT_INLINE float sum_of(Pixels p) {
    const auto half = p.v.lo + p.v.hi;
    const auto quarter = half.lo + half.hi;
    const auto two = quarter.lo + quarter.hi;
    return two.x + two.y;
}

// The same of eight, next to each other.
inline void sums_of(const Pixels* eight, double* sums) {
    using All = decltype(Pixels::v);
    All halves[4], quarters[2];
    for (int k = 0; k < 4; ++k) {
        const All a = eight[2 * k].v, b = eight[2 * k + 1].v;
        halves[k] = __builtin_shufflevector(a, b, 0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23) +
                    __builtin_shufflevector(a, b, 8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28, 29, 30, 31);
    }
    for (int k = 0; k < 2; ++k) {
        const All a = halves[2 * k], b = halves[2 * k + 1];
        quarters[k] = __builtin_shufflevector(a, b, 0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19, 24, 25, 26, 27) +
                      __builtin_shufflevector(a, b, 4, 5, 6, 7, 12, 13, 14, 15, 20, 21, 22, 23, 28, 29, 30, 31);
    }
    const All a = quarters[0], b = quarters[1];
    const All two = __builtin_shufflevector(a, b, 0, 1, 4, 5, 8, 9, 12, 13, 16, 17, 20, 21, 24, 25, 28, 29) +
                    __builtin_shufflevector(a, b, 2, 3, 6, 7, 10, 11, 14, 15, 18, 19, 22, 23, 26, 27, 30, 31);
    for (int k = 0; k < 8; ++k) sums[k] = two[2 * k] + two[2 * k + 1];
}

// Twice the logarithm of how much likelier the data are than given the mean, whose inverse is given, too. A series
// where they are near each other: single precision would lose the difference.
SPOTFIT_INLINE Pixels deviance(Pixels data, Pixels mean, Pixels inverse) {
    constexpr float SERIES[] = {1.0f, -1.0f / 3, 1.0f / 6, -1.0f / 10, 1.0f / 15};
    const Pixels off = (data - mean) * inverse, size = higher_of(absolute(data), Pixels(1e-20f));
    const Pixels far = 2.0f * ((mean - data) + data * logarithm(size * inverse));
    return select(absolute(off) < 0.1f, mean * off * off * polynomial(SERIES, off), far);
}

// The profile of unit light along one axis, and its derivative by the centre, at pixels 0 ... count - 1; zero behind.
inline void profile_line(double center, double sigma, bool is_integrated, int count, int padded, float* value,
                         float* slope) {
    const float c = float(center), s = float(1 / sigma);
    const float root = 0.70710678118654752f * s, height = s / ROOT_TWO_PI;
    Pixels x;
    for (int k = 0; k < SIDE_BY_SIDE; ++k) x.v[k] = float(k);
    for (int k = 0; k < padded; k += SIDE_BY_SIDE, x += float(SIDE_BY_SIDE)) {
        const MaskOf<Pixels> is_there = x < float(count);
        const Pixels u = x - c;
        Pixels e, d;
        if (is_integrated) {
            const Pixels low = (u - 0.5f) * root, high = (u + 0.5f) * root;
            const Pixels at_low = exponential(-(low * low)), at_high = exponential(-(high * high));
            e = 0.5f * (error_function(high, at_high) - error_function(low, at_low));
            d = (at_low - at_high) * height;
        } else {
            e = exponential(u * u * (-0.5f * s * s)) * height;
            d = e * u * (s * s);
        }
        store_pixels(value + k, select(is_there, e, Pixels(0.0f)));
        store_pixels(slope + k, select(is_there, d, Pixels(0.0f)));
    }
}

// The axes, the fastest first. A plane is a volume of one plane, whose spots do not move along z.
enum Axis { X, Y, Z, ALL_AXES };

// Unit light of a spot as a product of lines along each axis, and their slopes by the centre.
struct Footprint {
    int first[ALL_AXES], size[ALL_AXES];
    float *value[ALL_AXES], *slope[ALL_AXES];
};

// The parameters of a spot are its place along the axes that it moves along, and its light. Sums over pixels of
// weights times products of the slopes by them, at unit light, of two spots.
template <int AXES> struct PairSums {
    static constexpr int LIGHT = AXES, PARAMETERS = AXES + 1;
    double products[PARAMETERS][PARAMETERS];
};
// The same of one spot, what the residual pulls at it, and its products with the numbers of the background.
template <int AXES> struct OwnSums : PairSums<AXES> {
    double pulls[AXES + 1];
    double ground[AXES + 1][AXES + 1];  // of each number, with each parameter
};

}  // namespace spotfit::SPOTFIT_ISA
