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
    LeastHeight heights[EXTREMA];
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

// What the kernels see of a frame with odd pixels, ...
struct Cleaned {
    Raw<PIXEL, int> raw;
    const unsigned* odd;
    int words;

    SPOTFIT_INLINE float operator()(int y, int x) const {
        const int place = y * raw.width + x;
        if (!(odd[y * words + x / WARP] >> x % WARP & 1)) return raw.frame.with_bad(place);
        if (!raw.frame.good(place)) return 0.0f;
        return mean_of_neighbours([&](int v, int u) { return raw(y + v, x + u); });
    }
};

// ... and of which of its pixels are good.
struct Goodness {
    Frame<PIXEL> frame;
    int width;

    SPOTFIT_INLINE float operator()(int y, int x) const { return float(frame.good(y * width + x)); }
};

SPOTFIT_INLINE int own_warp(int first_block) {
    return (first_block + int(blockIdx.x)) * WARPS + int(threadIdx.x) / WARP;
}

}  // namespace spotfit::SPOTFIT_ISA
