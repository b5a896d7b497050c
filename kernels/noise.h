// The noise of an image, from detail as fine as its pixels, which no spot has: near the highest
// frequency that pixels can show, a spot of sigma 1 leaves 0.2 % of its height.
#pragma once
#include "detection_settings.h"
#include "pixels.h"

namespace spotfit::SPOTFIT_ISA {

// ---- Lone pixels: those that stand out as no spot's pixel can, such as hot ones ----

// By how many standard deviations one stands out of its neighbours, when it is left out of the noise.
constexpr float LONE_IN_NOISE = 12.0f;

// Whether a pixel is higher than its neighbours by so much more than a spot's middle is, compared
// with what lies around: `at(v, u)` is v rows below and u columns to the right. None is beside a bad
// pixel.
template <class At>
SPOTFIT_INLINE bool is_lone(const DetectionSettings& s, float least_step, At at) {
    float highest = -INFINITE, around = 0.0f;
    for (int v = -1; v <= 1; ++v)
        for (int u = -1; u <= 1; ++u) {
            if (v == 0 && u == 0) continue;
            const float beside = at(v, u), far = at(v * s.lone_distance, u * s.lone_distance);
            if (!is_good(beside) || !is_good(far)) return false;
            highest = higher_of(highest, beside);
            around += far;
        }
    const float pixel = at(0, 0), step = pixel - highest;
    return step > least_step && step > s.lone_share * (pixel - around * 0.125f);
}

// What stands for a lone pixel.
template <class At> SPOTFIT_INLINE float mean_of_neighbours(At at) {
    return (at(-1, -1) + at(-1, 0) + at(-1, 1) + at(0, -1) + at(0, 1) + at(1, -1) + at(1, 0) + at(1, 1)) * 0.125f;
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

}  // namespace spotfit::SPOTFIT_ISA
