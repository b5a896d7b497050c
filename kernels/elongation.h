// Whether a spot is longer in one direction than across it, as lines, rings and scratches are: no spot of a point.
//
// What the fit of a round spot leaves is compared with cos 2a and sin 2a around the centre, a the direction of a pixel.
// Of two pixels on either side of the centre the lower one counts: a neighbour lies on one side, a line on both. Twice
// it is looked at: in the spot itself, where its own curvature differs by direction, and in a wider window, where a dim
// line goes on. A spot is called long if that is more than noise and a part of its height, and in the wider window
// only if the spot itself is not known to be round, as it is between two neighbours.
//
// Two points that are fitted as one are as long as a short line, and neighbours on both sides are as a dim line is.
// The surroundings tell them apart: on a line, all that is fitted is long; in a crowd, few are.
#pragma once
#include "functions.h"
#include "layouts/verdicts.h"

namespace spotfit::SPOTFIT_ISA {

// Half a window's side over the PSF's sigma, of the spot itself and of the wider one, and its most pixels.
constexpr double OWN_REACH = 2.5, WIDE_REACH = 9;
constexpr int LARGEST_REACH = 24;
// Of the lower of two pixels of normal noise with variance v: by how much of sqrt(v) its mean is lower, 1/sqrt(pi), and
// its variance over v, 1 - 1/pi.
constexpr float LOWER_BY = 0.5641896f, LOWER_VARIANCE = 0.6816901f;
// Standard deviations below all others from which on a pixel is dead, or none of the image.
constexpr float DEAD = 4;
// The weights of the wider window: nearer than about this many sigma squared, a spot's own light is fitted.
constexpr float OWN_LIGHT = 2;
// The least square of the length, in units of its error, that is more than noise: of the spot itself, and of the wider
// window. The least difference of the curvatures of two directions, as a part of their mean, and the least height of a
// line over the spot's. And the difference that a round spot is surely below, by this number of errors.
constexpr float SURE_OF_SPOT = 11, SURE_OF_LINE = 6.0f, LEAST_OF_SPOT = 0.25f, LEAST_OF_LINE = 0.24f;
constexpr float ROUND_BELOW = 0.3f, ROUND_ERRORS = 2;
// The least share of the spots around one on a line that are long; and the least number of round ones in a crowd, as
// the ends of something long may look like one.
constexpr double LONG_AROUND = 2.0 / 3;
constexpr int ROUND_AROUND = 2;
// Among the flags while they are set: only what is beside the spot makes it long.
constexpr unsigned LONG_BESIDE = 1u << 30;

SPOTFIT_INLINE int window_reach(double sigma, double times) {
    const double reach = to_nearest(times * sigma);
    return reach < 2 ? 2 : reach < LARGEST_REACH ? int(reach) : LARGEST_REACH;
}

// What the fit leaves of two pixels opposite to each other, NaN where there is none or a dead one, and the mean of the
// spot's profile there.
template <class L> struct Opposite {
    L one, other, profile;

    // The pixels less the background.
    SPOTFIT_INLINE Opposite(const FittedSpot& spot, L pixel, L opposite_pixel, L f, L opposite_f)
        : one(counted(spot, pixel - f * spot.height)), other(counted(spot, opposite_pixel - opposite_f * spot.height)),
          profile((f + opposite_f) * 0.5f) {}

    SPOTFIT_INLINE MaskOf<L> has_one() const { return one == one; }
    SPOTFIT_INLINE MaskOf<L> has_other() const { return other == other; }
    // The residual and its variance: of the lower one, less what noise makes it lower by.
    SPOTFIT_INLINE void residual(const FittedSpot& spot, L& value, L& variance) const {
        const L none = 0.0f, noise = multiply_add(profile, L(spot.height * spot.slope), L(spot.dark));
        const auto both = has_one() & has_other();
        const L lower = multiply_add(square_root(noise), L(LOWER_BY), select(one < other, one, other));
        value = select(both, lower, select(has_one(), one, select(has_other(), other, none)));
        variance = select(both, noise * LOWER_VARIANCE, select(has_one() | has_other(), noise, none));
    }

  private:
    static SPOTFIT_INLINE L counted(const FittedSpot& spot, L residual) {
        return select(residual >= L(spot.lowest), residual, L(float(NOT_A_NUMBER)));
    }
};

// Where two opposite pixels are: the square of one axis less that of the other, twice their product, and the weight of
// the wider window over the distance squared.
template <class L> struct Direction { L difference, product, weight; };
template <class L> SPOTFIT_INLINE Direction<L> direction(L x, L y, float curvature_of_psf) {
    const L squared = multiply_add(x, x, y * y);
    return {x * x - y * y, x * y * 2.0f,
            L(curvature_of_psf) / multiply_add(squared, L(curvature_of_psf), L(OWN_LIGHT))};
}

// A pair of sums over pairs of pixels, by cos 2a and sin 2a, and their variance.
template <class L> struct DirectionSums {
    L difference, product, variance, square;

    SPOTFIT_INLINE void add(const FittedSpot& spot, const Opposite<L>& pair, const Direction<L>& at, L weight) {
        L value, noise;
        pair.residual(spot, value, noise);
        const L a = weight * at.difference, b = weight * at.product, squared = multiply_add(a, a, b * b);
        difference = multiply_add(a, value, difference);
        product = multiply_add(b, value, product);
        variance = multiply_add(squared, noise, variance);
        square += select(pair.has_one() | pair.has_other(), squared, L(0.0f));
    }
    // In the spot itself, and in the wider window.
    SPOTFIT_INLINE void add_own(const FittedSpot& spot, const Opposite<L>& pair, const Direction<L>& at) {
        add(spot, pair, at, pair.profile * spot.curvature);
    }
    SPOTFIT_INLINE void add_wide(const FittedSpot& spot, const Opposite<L>& pair, const Direction<L>& at) {
        add(spot, pair, at, at.weight);
    }
};

// The length of what was found; cosine and sine of twice its direction are the sums over it.
SPOTFIT_INLINE float length_of(const DirectionSums<float>& s) {
    return square_root(s.difference * s.difference + s.product * s.product);
}

// Shape of a spot: long, round, or uncertain.
enum Elongation { IS_ROUND, IS_LONG, IS_UNSURE };
SPOTFIT_INLINE Elongation own_elongation(const DirectionSums<float>& own, float height) {
    const float scale = 2 / (height * own.square);
    const float length = length_of(own) * scale, error = square_root(own.variance * 0.5f) * scale;
    if (length > LEAST_OF_SPOT && length * length > SURE_OF_SPOT * error * error) return IS_LONG;
    return length + ROUND_ERRORS * error > ROUND_BELOW ? IS_UNSURE : IS_ROUND;
}

// Whether there is more than noise in the wider window.
SPOTFIT_INLINE bool goes_on(const DirectionSums<float>& wide) {
    const float length = length_of(wide);
    return length * length > SURE_OF_LINE * 0.5f * wide.variance;
}

// The same sum of a line as high as the spot: of two opposite pixels, in the direction of what was found.
template <class L>
SPOTFIT_INLINE L line_of_pair(const FittedSpot& spot, const Opposite<L>& pair, const Direction<L>& at, L squared,
                              float cosine, float sine) {
    const L along = multiply_add(at.difference, L(cosine), at.product * sine);
    const L across = higher_of(squared - along, L(0.0f)) * 0.5f;
    const L line = exponential(across * (-0.5f * spot.curvature)) - pair.profile;
    return select(pair.has_one() | pair.has_other(), at.weight * along * line * spot.height, L(0.0f));
}

// Whether it is high enough, given the sum above over all pairs.
SPOTFIT_INLINE bool is_line(const DirectionSums<float>& wide, float of_line) {
    return length_of(wide) > LEAST_OF_LINE * of_line;
}

// The flags of a spot that is longer in one direction than across, else 0, by one thread; pixel(y, x) is one of its
// frame less its level, NaN where there is none.
template <class Pixel> SPOTFIT_INLINE unsigned long_flags(const FittedSpot& spot, double sigma, Pixel pixel) {
    const float of_psf = float(1 / (sigma * sigma));
    const long long y = static_cast<long long>(to_nearest(spot.y));
    const long long x = static_cast<long long>(to_nearest(spot.x));
    const float off_y = float(spot.y - double(y)), off_x = float(spot.x - double(x));
    const auto profile = [&](int v, int u) SPOTFIT_INLINE_LAMBDA {
        const float down = float(v) - off_y, along = float(u) - off_x;
        return exponential(-0.5f * spot.curvature * (down * down + along * along));
    };
    const auto each_pair = [&](int reach, auto use) SPOTFIT_INLINE_LAMBDA {
        for (int v = 0; v <= reach; ++v)
            for (int u = v ? -reach : 1; u <= reach; ++u) {
                const Opposite<float> pair(spot, pixel(y + v, x + u), pixel(y - v, x - u), profile(v, u),
                                           profile(-v, -u));
                use(pair, direction(float(u), float(v), of_psf), float(v * v + u * u));
            }
    };
    DirectionSums<float> own = {0.0f, 0.0f, 0.0f, 0.0f}, wide = own;
    each_pair(window_reach(sigma, OWN_REACH),
              [&](const auto& pair, const auto& at, float) { own.add_own(spot, pair, at); });
    own.variance *= spot.coarse;
    const Elongation found = own_elongation(own, spot.height);
    if (found != IS_UNSURE) return found == IS_LONG ? flag::ELONGATED : 0;
    const int reach = window_reach(sigma, WIDE_REACH);
    each_pair(reach, [&](const auto& pair, const auto& at, float) { wide.add_wide(spot, pair, at); });
    wide.variance *= spot.coarse;
    if (!goes_on(wide)) return 0;
    const float length = length_of(wide), cosine = wide.difference / length, sine = wide.product / length;
    float line = 0;
    each_pair(reach, [&](const auto& pair, const auto& at, float squared) {
        line += line_of_pair(spot, pair, at, squared, cosine, sine);
    });
    return is_line(wide, line) ? flag::ELONGATED | LONG_BESIDE : 0;
}

}  // namespace spotfit::SPOTFIT_ISA
