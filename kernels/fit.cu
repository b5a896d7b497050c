// The least-squares fit of spots with a separable model, one launch per batch.
//
// A warp works on a run of neighbouring fits. Fits differ in how many iterations they need:
// when most lanes of the warp have finished theirs, these write their results and take
// the next ones, while the others go on.
//
// Compile-time numbers: PROFILE, SHAPE, HELD, CANONICAL (the model), ROWS, COLUMNS (the ROI),
// LANES_X, LANES_Y (lanes per fit, along columns and rows), PIXEL (the pixels' type), GATHER
// (whether ROIs lie in frames), WARPS (of a block), BLOCKS (that share a multiprocessor at
// least), REFILL (idle lanes that make it worth to take new fits), and the constants of where
// a fit stops.

// The search is over the shape alone, and its matrix needs no guard against being singular.
#define MOST SHAPE
#define GUARDED false

#include "finish.cuh"

__device__ __forceinline__ int set_bits_below(unsigned bits, int lane) {
    return __popc(bits & ((1u << lane) - 1u));
}

// The first fit that a warp works on. Its fits are counted from there.
__device__ __forceinline__ long long first_fit(int per_warp) {
    return (blockIdx.x * (long long)WARPS + threadIdx.x / 32) * per_warp;
}

// Stages as many further fits as there are free slots; returns how far it has come. ROIs
// are looked up one call ahead, so that nobody waits for them.
__device__ __forceinline__ int stage_next(const Rois& rois, int per_warp, int staged, int next,
                                          int count, const char*& address, Stage& stage) {
    const int end = min(next + GROUPS, count);
    if (!GATHER) address = find_roi(rois, first_fit(per_warp) + staged + lane_number());
    stage_rois(rois, first_fit(per_warp), staged, end - staged, address, stage);
    const int later = end + lane_number();
    if (GATHER && lane_number() < GROUPS && later < count)
        address = find_roi(rois, first_fit(per_warp) + later);
    return end;
}

extern "C" __global__ void __launch_bounds__(32 * WARPS, BLOCKS)
    fit(const Rois rois, const Output out, const Limits limits, const Camera camera,
        const long long total, const int per_warp) {
    __shared__ Stage stages[WARPS];
    __shared__ Kept all_kept[WARPS];
    Stage& stage = stages[threadIdx.x / 32];
    Kept& kept = all_kept[threadIdx.x / 32];
    const int lane = lane_number();
    const int count = int(min(total - first_fit(per_warp), (long long)per_warp));
    // Fits up to `next` are taken, up to `staged` on the stage or on their way to it.
    int next = 0, staged = 0, mine = -1;
    const char* address = nullptr;
    if (GATHER && lane < count) address = find_roi(rois, first_fit(per_warp) + lane);

    Pixels pixels = {};
    Search<SHAPE> search = {};
    search.stop = STOP_INVALID;
    for (;;) {
        const bool done = search.stop != STOP_RUNNING;
        const unsigned idle = __ballot_sync(ALL_LANES, done);
        if (idle == ALL_LANES || (next < count && __popc(idle) >= REFILL)) {
            if (done && mine >= 0) {
                if (lane % LANES == 0)
                    write(search, kept, limits, camera, out, first_fit(per_warp) + mine);
                mine = -1;
            }
            if (next >= count) break;
            if (next == staged)
                staged = stage_next(rois, per_warp, staged, next, count, address, stage);
            wait_for_copies();
            __syncwarp();
            const int fit = next + set_bits_below(idle, lane) / LANES;
            const bool take = done && fit < staged;
            if (take) mine = fit;
            prepare(rois, stage, take ? fit % GROUPS : 0, take, limits, pixels, search, kept);
            next = min(next + __popc(idle) / LANES, staged);
            __syncwarp();
            staged = stage_next(rois, per_warp, staged, next, count, address, stage);
        }
        iterate(pixels, search, kept, limits);
    }
    if (!out.errors) return;
    __syncwarp();
    for (int i = lane; i < count; i += 32)
        write_errors(limits, camera, out, first_fit(per_warp) + i);
}
