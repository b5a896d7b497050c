// Joint fits: spots of one width whose light overlaps, by maximum likelihood. Pixels are scaled so that their variance
// is their mean; then J'WJ with W = 1 / mean is the Fisher information, and W (data - mean) the residual's weight. What
// works on a crowd, the machine says.
#pragma once
#include "functions.h"
// Along how many axes spots move is known when code for GPUs is compiled.
#if defined(SPOT_AXES)
#include "cuda/crowd_lanes.h"
#else
#include "cpu/crowd_lanes.h"
#endif

namespace spotfit::SPOTFIT_ISA {

// Work that is shared by those who work on a crowd. Whatever is of the crowd, and not of one of them, is written here
// alone, and read when all are done.
template <class Count, class Function> SPOTFIT_INLINE void share(Count count, Function each) {
    Team::wait();
    ROLLED
    for (Count k = Team::lane(); k < count; k += Team::LANES) each(k);
    Team::wait();
}
// Each by those who have a line of pixels.
template <class Function> SPOTFIT_INLINE void share_lines(int count, Function each) {
    Team::wait();
    ROLLED
    for (int k = Team::line(); k < count; k += Team::LINES) each(k);
    Team::wait();
}
template <class Function> SPOTFIT_INLINE void alone(Function work) {
    Team::wait();
    if (Team::lane() == 0) work();
    Team::wait();
}
template <class Number> SPOTFIT_INLINE void set(Number& one, Number value) {
    alone([&] { one = value; });
}

// Twice the logarithm of how much likelier the data are than given the mean, whose inverse is given, too. A series
// where they are near each other: single precision would lose the difference.
SPOTFIT_INLINE Pixels deviance(Pixels data, Pixels mean, Pixels inverse) {
    constexpr float SERIES[] = {1.0f, -1.0f / 3, 1.0f / 6, -1.0f / 10, 1.0f / 15};
    const Pixels off = (data - mean) * inverse, size = higher_of(absolute(data), Pixels(1e-20f));
    const Pixels far = 2.0f * ((mean - data) + data * logarithm(size * inverse));
    return select(absolute(off) < 0.1f, mean * off * off * polynomial(SERIES, off), far);
}

// What is below a place of a normal distribution of width 1, from -1 to 1, and its exponential there.
struct Below {
    Pixels share, bell;
    // At the pixels behind each, given those behind all of them.
    SPOTFIT_INLINE Below next(const Below& behind) const {
        return {next_pixels(share, behind.share), next_pixels(bell, behind.bell)};
    }
};
// The profile of unit light along one axis, and its derivative by the centre, at pixels 0 ... count - 1; zero behind.
SPOTFIT_NOT_INLINE inline void profile_line(double center, double sigma, bool is_integrated, int count, int padded,
                                            float* value, float* slope) {
    const float c = float(center), s = float(1 / sigma);
    const float root = 0.70710678118654752f * s, height = s / ROOT_TWO_PI;
    const auto put = [&](int k, Pixels e, Pixels d) SPOTFIT_INLINE_LAMBDA {
        const MaskOf<Pixels> is_there = numbers_of_pixels() < float(count - k);
        store_pixels(value + k, select(is_there, e, Pixels(0.0f)));
        store_pixels(slope + k, select(is_there, d, Pixels(0.0f)));
    };
    if (is_integrated) {
        const auto below = [&](Pixels place) SPOTFIT_INLINE_LAMBDA {
            const Pixels u = (place - c) * root, bell = exponential(-(u * u));
            return Below{error_function(u, bell), bell};
        };
        over_edges(count, padded, below, [&](int k, const Below& low, const Below& high) SPOTFIT_INLINE_LAMBDA {
            put(k, 0.5f * (high.share - low.share), (low.bell - high.bell) * height);
        });
        return;
    }
    Pixels x = numbers_of_pixels();
    ROLLED
    for (int k = 0; k < padded; k += SIDE_BY_SIDE, x += float(SIDE_BY_SIDE)) {
        const Pixels u = x - c, e = exponential(u * u * (-0.5f * s * s)) * height;
        put(k, e, e * u * (s * s));
    }
}

// The axes, the fastest first. A plane is a volume of one plane, whose spots do not move along z.
enum Axis { X, Y, Z, ALL_AXES };

// Unit light of a spot as a product of lines along each axis, and their slopes by the centre. Of a measured PSF there
// is another line along x for each y, `pitch` behind the last one, and at slope[X] are all maps of the spot.
struct Footprint {
    int first[ALL_AXES], size[ALL_AXES], pitch;
    float *value[ALL_AXES], *slope[ALL_AXES];
};

}  // namespace spotfit::SPOTFIT_ISA
