// Texture, which is as dark in places as it is bright in others: where minima of the wide band are as deep as its
// maxima are high, both are of the same kind, and these are no spots.
//
// Spots make minima around them, too, as the band is negative there: what spots nearby explain does not count. And in
// a crowd there are more maxima than such minima.
#pragma once
#include "maxima.h"

namespace spotfit::SPOTFIT_ISA {

// A dark spot speaks against maxima that are at most by this factor higher in the narrow band as it is deep: there
// texture as coarse as spots, or coarser, is lower.
constexpr float MOST_OVER_DARK = 1.0f / 0.65f;
// The variances of their noise differ by up to this factor: texture is a part of the brightness.
constexpr float MOST_UNLIKE = 2.0f;
// It says nothing among more higher maxima than this, for each dark spot that is as deep.
constexpr int MOST_HIGHER = 2;
// One alone says nothing either unless it is deeper than this, in deviations: noise makes some.
constexpr float LEAST_ALONE = 5.0f;

SPOTFIT_INLINE bool is_higher(const Maximum& spot, const Maximum& dark) {
    return spot.narrow_height > MOST_OVER_DARK * dark.narrow_height;
}
SPOTFIT_INLINE bool is_as_bright(const Maximum& spot, const Maximum& dark) {
    const float ratio = square(spot.deviation / dark.deviation);
    return ratio <= MOST_UNLIKE && 1.0f <= MOST_UNLIKE * ratio;
}

// Takes from a dark spot what spots nearby explain; whether something is left.
template <class Rows>
bool is_unexplained(const SpotChoice& c, const Rows& rows, const Maximum* maxima, Maximum& dark) {
    float depth = dark.height;
    each_close<long long>(rows, Plane{c.height}, dark, c.share_reach, [&](long long j) SPOTFIT_INLINE_LAMBDA {
        const long long y = dark.y - maxima[j].y, x = dark.x - maxima[j].x;
        if (maxima[j].band == ALONE || maxima[j].band == CROWDED) depth -= c.shares[y * y + x * x] * maxima[j].height;
    });
    if (!(double(depth) > c.dark_score * double(dark.deviation))) return false;
    dark.narrow_height *= depth / dark.height;
    dark.height = depth;
    return true;
}

// How many dark spots are close to the k-th one, it among them, and as deep as it.
struct DarkCount { long long all = 0, deeper = 0; };
SPOTFIT_INLINE DarkCount dark_beside(const SpotChoice& c, const Maximum* maxima, const unsigned long long* darks,
                                     long long count, long long k) {
    const Maximum& own = maxima[darks[k]];
    DarkCount found;
    const auto count_up = [&](const Maximum& other) SPOTFIT_INLINE_LAMBDA {
        if (Plane{c.height}.square_distance(own, other) >= square(c.dark_reach)) return;
        ++found.all;
        found.deeper += other.narrow_height >= own.narrow_height;
    };
    const auto is_near = [&](const Maximum& other) SPOTFIT_INLINE_LAMBDA {
        return other.frame == own.frame && square(double(other.y) - double(own.y)) < square(c.dark_reach);
    };
    for (long long i = k; i >= 0 && is_near(maxima[darks[i]]); --i) count_up(maxima[darks[i]]);
    for (long long i = k + 1; i < count && is_near(maxima[darks[i]]); ++i) count_up(maxima[darks[i]]);
    return found;
}

// How many maxima within a distance of a dark spot are higher than it.
template <class Rows>
long long higher_within(const SpotChoice& c, const Rows& rows, const Maximum* maxima, const Maximum& dark,
                        double reach) {
    long long higher = 0;
    each_close<long long>(rows, Plane{c.height}, dark, reach, [&](long long j) SPOTFIT_INLINE_LAMBDA {
        higher += maxima[j].band != DARK && is_higher(maxima[j], dark);
    });
    return higher;
}

// Marks maxima as dropped that are texture, and all dark spots, of which there are some. `texture` is memory for a
// mark for each, `darks` for a number.
template <class Rows>
void drop_texture(const SpotChoice& c, const Rows& rows, Maximum* maxima, long long count, unsigned char* texture,
                  unsigned long long* darks) {
    long long left = 0;
    for (long long i = 0; i < count; ++i) {
        texture[i] = maxima[i].band == DARK;
        if (texture[i] && is_unexplained(c, rows, maxima, maxima[i]))
            darks[left++] = static_cast<unsigned long long>(i);
    }
    for (long long k = 0; k < left; ++k) {
        const Maximum& dark = maxima[darks[k]];
        const DarkCount beside = dark_beside(c, maxima, darks, left, k);
        if (beside.all == 1 && !(dark.height > LEAST_ALONE * dark.deviation)) continue;
        // In crowds half of the way is enough to see that.
        const auto many_are_higher = [&](double reach) {
            return higher_within(c, rows, maxima, dark, reach) > MOST_HIGHER * beside.deeper;
        };
        if (many_are_higher(c.dark_reach / 2) || many_are_higher(c.dark_reach)) continue;
        each_close<long long>(rows, Plane{c.height}, dark, c.dark_reach, [&](long long j) SPOTFIT_INLINE_LAMBDA {
            texture[j] |= !is_higher(maxima[j], dark) && is_as_bright(maxima[j], dark);
        });
    }
    for (long long i = 0; i < count; ++i)
        if (texture[i]) maxima[i].band = DROPPED;
}

}  // namespace spotfit::SPOTFIT_ISA
