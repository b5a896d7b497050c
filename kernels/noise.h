// The noise of an image, from detail as fine as its pixels, which no spot has: near the highest
// frequency that pixels can show, a spot of sigma 1 leaves 0.2 % of its height.
#pragma once
#include "layouts/detection_settings.h"
#include "pixels.h"

namespace spotfit::SPOTFIT_ISA {

// ---- Hot and dead pixels: those that stand out as no spot's pixel can ----

// By how many standard deviations one stands out of its neighbours, when it is left out of the noise.
constexpr float HOT_IN_NOISE = 12.0f;

// What stands for a hot pixel.
template <class At> SPOTFIT_INLINE auto mean_of_neighbours(At at) {
    return (at(-1, -1) + at(-1, 0) + at(-1, 1) + at(0, -1) + at(0, 1) + at(1, -1) + at(1, 0) + at(1, 1)) * 0.125f;
}

// Whether a pixel is higher than its neighbours by so much more than a spot's middle is, compared
// with what lies around: `at(v, u)` is v rows below and u columns to the right. Around is the lowest
// mean of two places that face each other: a brighter spot beside does not raise it, and a slope does
// not lower it. None is beside a bad pixel.
template <class L, class At>
SPOTFIT_INLINE MaskOf<L> is_hot(const DetectionSettings& s, L least_step, At at) {
    L highest = -INFINITE, lowest = INFINITE, all = 0.0f;
    UNROLL
    for (int v = -1; v <= 1; ++v) {
        UNROLL
        for (int u = -1; u <= 1; ++u) {
            if (v == 0 && u == 0) continue;
            highest = higher_of(highest, L(at(v, u)));
            if (v > 0 || (v == 0 && u > 0)) continue;
            const int down = v * s.hot_distance, right = u * s.hot_distance;
            const L both = L(at(down, right)) + L(at(-down, -right));
            lowest = lower_of(lowest, both);
            all += both;
        }
    }
    const L pixel = at(0, 0), step = pixel - highest;
    return (step > least_step) & (step > L(s.hot_share) * (pixel - lowest * L(0.5f))) &
           is_good(all + mean_of_neighbours(at));
}

// ---- Blocks ----

// The cube of a pixel less the mean of its neighbours, over that of its noise.
constexpr double CUBE_BESIDE_NEIGHBOURS = 1.0 - 8.0 / (8.0 * 8.0 * 8.0);

// Side of a block, and how far the pixels reach that its detail is made of.
constexpr int BLOCK = 16, REACH = 6;
// What passes coarse detail, from the middle outwards; its squares add up to 1. With every other
// sign changed, it passes detail as fine as pixels that alternate.
constexpr float COARSE[REACH + 1] = {0.53112668f, 0.46871766f, 0.32214463f, 0.17243159f,
                                     0.07188018f, 0.02333608f, 0.00590028f};

// The part of a sum with coarse weights that is at even distances, and that at odd ones: their sum is
// coarse detail, their difference fine detail. `at(t)` is what lies t away.
template <class L> struct EvenAndOdd {
    L even, odd;

    template <class At> SPOTFIT_INLINE explicit EvenAndOdd(At at) {
        even = at(0) * L(COARSE[0]);
        odd = (at(-1) + at(1)) * L(COARSE[1]);
        UNROLL
        for (int t = 2; t <= REACH; t += 2) even = multiply_add(at(-t) + at(t), L(COARSE[t]), even);
        UNROLL
        for (int t = 3; t <= REACH; t += 2) odd = multiply_add(at(-t) + at(t), L(COARSE[t]), odd);
    }
    SPOTFIT_INLINE L coarse() const { return even + odd; }
    SPOTFIT_INLINE L fine() const { return even - odd; }
};

// How a frame is cut into blocks, away from its border where there is room.
struct Blocks {
    long long margin, rows, columns;

    SPOTFIT_INLINE explicit Blocks(const DetectionSettings& s) {
        const long long shorter = s.height < s.width ? s.height : s.width;
        margin = shorter >= BLOCK + 2 * REACH ? REACH : 0;
        rows = (s.height - 2 * margin) / BLOCK;
        columns = (s.width - 2 * margin) / BLOCK;
    }
};

// ---- The scatter of a filtered frame without its spots ----
//
// It comes from the middle of the filtered values over their noise: again and again, those beyond one
// and a half standard deviations are left out, so that the heavy tails which spots make do not count.
// Values that are exactly 0 do not count either; they belong to areas without noise, such as the
// outside of a mask.

// Values beyond c = CLIP standard deviations are left out; and the variance of a normal distribution within, over that
// of all of it: 1 - 2 c phi(c) / (2 Phi(c) - 1).
constexpr float CLIP = 1.5f;
constexpr double KEPT_VARIANCE = 0.5515244157615512;
// The estimate has settled when it shrinks by less than to this fraction.
constexpr double SETTLED = 0.999;
constexpr int MAX_CLIPS = 100;
// Near its end an iteration goes a third of the way: its change is squared. Far from it, a little
// farther than the change itself, which may be 0: the squares can be too small for single precision.
constexpr double FAR_HASTE = 0.8, LEAST_CHANGE = 1e-9;

// The rows that it is taken from: every `step`-th.
struct SampledRows {
    long long first, step, count;

    SPOTFIT_INLINE SampledRows(long long height, int row_step)
        : first(row_step / 2), step(row_step), count(first < height ? (height - 1 - first) / row_step + 1 : 0) {}
    SPOTFIT_INLINE long long row(long long i) const { return first + i * step; }
};

// Sums over what is within the clip, in units of the present deviation.
template <class L> struct ClippedSum {
    L squares = L(0.0f), inside = L(0.0f);

    SPOTFIT_INLINE void add(L value, L inverse) {
        const L scaled = absolute(value) * inverse;
        const MaskOf<L> kept = (scaled < L(CLIP)) & (value != L(0.0f));
        const L counted = select(kept, scaled, L(0.0f));
        squares = multiply_add(counted, counted, squares);
        inside += select(kept, L(1.0f), L(0.0f));
    }
};

// One step of the iteration, from sums over all of a sample. True where it goes on.
SPOTFIT_INLINE bool clip(double squares, double inside, float& deviation) {
    if (!(inside > 0.0)) return false;
    const double change = square_root(squares / (inside * KEPT_VARIANCE));
    if (change > SETTLED) return false;
    deviation *= float(higher_of(higher_of(change * change, FAR_HASTE * change), LEAST_CHANGE));
    return deviation > 0.0f;
}

}  // namespace spotfit::SPOTFIT_ISA
