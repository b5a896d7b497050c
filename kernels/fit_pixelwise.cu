// The fit of spots whose pixels are visited one by one, one launch per batch: weights, masks,
// maximum likelihood, and models that are no products.
//
// A warp takes as many fits as it has room for and works on them until all have ended.
//
// Compile-time numbers: PROFILE, SHAPE, HELD, CANONICAL (the model), LIKELIHOOD, PLANES (the
// estimator), ROWS, COLUMNS (the ROI), LANES_Y (lanes per fit, which share its rows), PIXEL
// (the pixels' type), GATHER (whether ROIs lie in frames), WARPS (of a block), BLOCKS (that
// share a multiprocessor at least), and the constants of where a fit stops.

#define LANES_X 1
#define MOST (LIKELIHOOD ? SHAPE + 2 : SHAPE)
#define GUARDED true

#include "finish_pixelwise.cuh"

// What a warp has in shared memory.
struct Workplace {
    Room room;
    Kept kept;
};

template <int N>
__device__ __forceinline__ bool is_under_way(const Search<N>& search) {
    return __any_sync(ALL_LANES, search.stop == STOP_RUNNING);
}

extern "C" __global__ void __launch_bounds__(32 * WARPS, BLOCKS)
    fit(const Rois rois, const Planes planes, const Output out, const Limits limits,
        const First begin_with, const Camera camera, const long long total) {
    __shared__ Workplace workplaces[WARPS];
    Room& room = workplaces[threadIdx.x / 32].room;
    Kept& kept = workplaces[threadIdx.x / 32].kept;
    const long long first = (blockIdx.x * (long long)WARPS + threadIdx.x / 32) * GROUPS;
    if (first >= total) return;
    const int count = int(min(total - first, (long long)GROUPS));
    const long long own = first + lane_number() / LANES;
    const bool exists = own < total, writes = exists && lane_number() % LANES == 0;

    const Real reference = fetch(rois, planes, first, count, room);
    kept.level[lane_number()] = float(reference - Real(camera.offset));
    Search<SHAPE> search;
    const Data data = prepare(rois, own, exists, limits, begin_with, room, kept, search);
    Limits course = limits;
    if (LIKELIHOOD) course.min_delta = fmaxf(limits.min_delta, LIKELIHOOD_DELTA);
    while (is_under_way(search)) iterate(room, data, search, kept, course);
#if LIKELIHOOD
    const float mean = to_electrons(room, data, kept, camera.gain);
    const Ends ends = likelihood_ends(limits, camera.gain, mean);
    Search<PARAMETERS> likely;
    begin_likelihood(kept, ends, camera.gain, mean, likely);
    if (search.stop == STOP_INVALID || !(mean > 0.0f)) likely.stop = STOP_INVALID;
    while (is_under_way(likely)) iterate(room, data, likely, kept, limits, ends);
    write(room, data, kept, limits, ends, camera, out, likely.chi, likely.iterations, likely.stop,
          writes, own);
#else
    const AmplitudeBounds bounds = own_bounds(kept, limits);
    const Ends ends = ends_of(limits, bounds.amplitude_min, bounds.amplitude_max,
                              bounds.background_min, bounds.background_max);
    write(room, data, kept, limits, ends, camera, out, search.chi, search.iterations, search.stop,
          writes, own);
#endif
}
