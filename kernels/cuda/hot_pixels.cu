// Hot pixels in ROIs on a GPU, where they lie in the frames.
//
// Compile-time numbers: PIXEL (the pixels' type), THREADS (of a block). A warp looks at a ROI.
#include "../detection.h"
#include "../layouts/gpu_detection.h"
#include "warp.h"

namespace spotfit::SPOTFIT_ISA {

constexpr int WARPS = THREADS / WARP;

extern "C" __global__ void __launch_bounds__(THREADS, 4) find_hot_pixels(HotPixelWork work, int first_block) {
    // Compilers read four of them at once: nothing else may lie beside the last.
    __shared__ PIXEL samples[WARPS][(LEVEL_SAMPLES + 3) / 4 * 4];
    __shared__ PIXEL levels[WARPS];
    const int own = int(threadIdx.x) / WARP, lane = Warp::lane();
    const int number = (first_block + int(blockIdx.x)) * WARPS + own;
    if (number >= work.count) return;
    const DetectionSettings& s = work.settings;
    const long long* corner = work.corners + 3LL * number;
    const bool there = corner[0] >= 0;
    const PIXEL* pixels = work.frames + (there ? corner[0] : 0) * s.height * s.width;
    for (int i = lane; i < LEVEL_SAMPLES; i += WARP) samples[own][i] = level_sample(s, pixels, i);
    if (lane == 0) levels[own] = 0;
    Warp::wait();
    for (int i = lane; i < LEVEL_SAMPLES; i += WARP)
        if (is_level(samples[own], i)) levels[own] = samples[own][i];
    Warp::wait();
    const Raw<PIXEL, int> raw = {{pixels, levels[own]}, int(s.height), int(s.width)};
    const PixelVariance variance(s, double(levels[own]));
    const int size = work.rows * work.columns;
    bool any = false;
    for (int i = lane; i < size; i += WARP) {
        const int y = int(corner[1]) + i / work.columns, x = int(corner[2]) + i % work.columns;
        const auto beside = [&](int v, int u) { return raw(y + v, x + u); };
        const bool hot = there && may_be_hot<float>(variance, beside) && is_hot_in_fit(s, variance, raw, y, x);
        any |= hot;
        if (work.pixels != nullptr) work.pixels[(long long)number * size + i] = hot;
    }
    any = Warp::any(any);
    if (lane == 0) work.found[number] = any;
}

}  // namespace spotfit::SPOTFIT_ISA
