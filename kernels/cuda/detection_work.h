// What detection's kernels on a GPU read and write, in their order.
#pragma once
#include "../detection.h"
#include "../layouts/gpu_detection.h"
#include "warp.h"

namespace spotfit::SPOTFIT_ISA {

constexpr int WARPS = THREADS / WARP;

SPOTFIT_INLINE int least(int a, int b) { return a < b ? a : b; }
SPOTFIT_INLINE int most(int a, int b) { return a > b ? a : b; }

// What a pixel of a frame is compared with.
struct Limits {
    PixelVariance variance;
    LeastHeight heights[BANDS];
};

// Rows that are filtered.
SPOTFIT_INLINE int rows_of(const Strip& strip) { return strip.y1 - strip.y0; }

// The kernels' argument.
struct Work : DetectionWork {
    SPOTFIT_INLINE int height() const { return int(settings.height); }
    SPOTFIT_INLINE int width() const { return int(settings.width); }
    SPOTFIT_INLINE Frame<PIXEL> frame(int i) const {
        return {frames + i * settings.height * settings.width, levels[i]};
    }
    SPOTFIT_INLINE Raw<PIXEL, int> raw(int i) const { return {frame(i), height(), width()}; }
    SPOTFIT_INLINE const unsigned* odd_words(int frame) const { return odd + (long long)frame * height() * words; }
    SPOTFIT_INLINE float* plane(int i, int frame, int y) const {
        const long long row = (long long)(i * strip.frames + frame - strip.frame) * rows_of(strip) + y - strip.y0;
        return planes + row * width();
    }
};

SPOTFIT_INLINE int own_warp(int first_block) {
    return (first_block + int(blockIdx.x)) * WARPS + int(threadIdx.x) / WARP;
}

}  // namespace spotfit::SPOTFIT_ISA
