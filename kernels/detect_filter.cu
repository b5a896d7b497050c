// The detection's band-pass: a Gaussian as wide as a spot, less a wider one.
//
// Frames are mirrored at the centres of their border pixels. In frames with bad pixels, both
// Gaussians are weighted means of the good ones.

#include "detect.cuh"

static_assert(THREADS >= LEVEL_SAMPLES, "a thread per pixel of the sample");

// Finds the level of each frame: the median of some pixels, a pixel itself, so that constant
// frames become zero. Where pixels can be bad, a block looks for such in a part of a frame.
extern "C" __global__ void __launch_bounds__(THREADS) find_levels(Work work) {
    // Compilers read four of them at once: nothing else may lie beside the last.
    __shared__ PIXEL sample[(LEVEL_SAMPLES + 3) / 4 * 4];
    __shared__ PIXEL level;
    __shared__ int bad_in_warps[WARPS];
    const int frame = blockIdx.x / work.parts, part = blockIdx.x % work.parts;
    const int thread = threadIdx.x, size = work.height * work.width;
    const PIXEL* pixels = work.frames + work.first_pixel(frame);
    if (thread < LEVEL_SAMPLES)
        sample[thread] = pixels[(2 * thread + 1) * (long long)size / (2 * LEVEL_SAMPLES)];
    __syncthreads();
    if (thread < LEVEL_SAMPLES) {
        const PIXEL own = sample[thread];
        int good = 0, lower = 0;
        for (int i = 0; i < LEVEL_SAMPLES; ++i) {
            if (!is_good(float(sample[i]))) continue;
            ++good;
            lower += sample[i] < own || (sample[i] == own && i < thread);
        }
        const bool is_median = good > 0 ? is_good(float(own)) && lower == good / 2 : thread == 0;
        if (is_median) level = good > 0 ? own : (PIXEL)0;
    }
    __syncthreads();
    if (thread == 0 && part == 0) work.levels[frame] = level;
    if constexpr (MAY_BE_BAD) {
        const Pixels own = {pixels, level};
        const int length = (size - 1) / work.parts + 1;
        const long long first = (long long)part * length;
        int bad = 0;
        for (int i = thread; i < length && first + i < size; i += THREADS)
            bad += !is_good(own.difference(int(first) + i));
        bad = sum_over_block(bad, bad_in_warps);
        if (thread == 0) work.bad[blockIdx.x] = bad;
    }
}

// A run of a row that was smoothed along y by both kernels, with what lies beside it.
struct Smoothed {
    float narrow[RUN + 2 * MAX_RADIUS], wide[RUN + 2 * MAX_RADIUS];
};

// The halves of both kernels, from their centres outwards; zeros follow the narrow one.
struct Kernels {
    float narrow[MAX_RADIUS + 1], wide[MAX_RADIUS + 1];
};

// The pixel that stands for one outside of the frame, along one axis.
__device__ __forceinline__ int mirrored(int i, int size) {
    if (unsigned(i) < unsigned(size)) return i;
    if (size == 1) return 0;
    const int period = 2 * (size - 1);
    i = (i % period + period) % period;
    return min(i, period - i);
}

// What is smoothed: the pixels, or how good they are.
template <bool GOODNESS>
__device__ __forceinline__ float content(const Pixels& pixels, int place) {
    return GOODNESS ? float(is_good(pixels.difference(place))) : pixels[place];
}
template <bool GOODNESS>
__device__ __forceinline__ float sum_of_contents(const Pixels& pixels, int one, int other) {
    return GOODNESS ? content<true>(pixels, one) + content<true>(pixels, other)
                    : pixels.sum(one, other);
}

// Smooths a run with the rows around it, by a warp; a thread works on several columns at once.
#define COLUMNS 5
template <bool GOODNESS>
__device__ __forceinline__ void smooth_along_y(const Work& work, const Pixels& pixels, int y,
                                               int first, int length, const Kernels& kernels,
                                               Smoothed& run) {
    for (int i = threadIdx.x; i < length + 2 * work.radius; i += 32 * COLUMNS) {
        int x[COLUMNS];
        float narrow[COLUMNS], wide[COLUMNS];
#pragma unroll
        for (int c = 0; c < COLUMNS; ++c) {
            x[c] = mirrored(first + i + 32 * c - work.radius, work.width);
            const float here = content<GOODNESS>(pixels, y * work.width + x[c]);
            narrow[c] = here * kernels.narrow[0];
            wide[c] = here * kernels.wide[0];
        }
        for (int t = 1; t <= work.radius; ++t) {
            const float weight_n = kernels.narrow[t], weight_w = kernels.wide[t];
            const int up = mirrored(y - t, work.height) * work.width;
            const int down = mirrored(y + t, work.height) * work.width;
#pragma unroll
            for (int c = 0; c < COLUMNS; ++c) {
                const float both = sum_of_contents<GOODNESS>(pixels, up + x[c], down + x[c]);
                narrow[c] = fmaf(both, weight_n, narrow[c]);
                wide[c] = fmaf(both, weight_w, wide[c]);
            }
        }
#pragma unroll
        for (int c = 0; c < COLUMNS; ++c)
            if (i + 32 * c < length + 2 * work.radius) {
                run.narrow[i + 32 * c] = narrow[c];
                run.wide[i + 32 * c] = wide[c];
            }
    }
    __syncwarp();
}

// A thread's pixels of a run: every 32nd.
#define OWN (RUN / 32)

// Smooths a thread's pixels along x; ``run`` is where the first of them lies.
__device__ __forceinline__ void smooth_along_x(const float* run, const float* kernel, int radius,
                                               float (&smooth)[OWN]) {
#pragma unroll
    for (int k = 0; k < OWN; ++k) smooth[k] = run[32 * k] * kernel[0];
    for (int t = 1; t <= radius; ++t) {
        const float weight = kernel[t];
#pragma unroll
        for (int k = 0; k < OWN; ++k)
            smooth[k] = fmaf(run[32 * k - t] + run[32 * k + t], weight, smooth[k]);
    }
}

__device__ __forceinline__ bool has_bad_pixels(const Work& work, int frame) {
    bool any = false;
    for (int part = threadIdx.x; part < work.parts; part += 32)
        any |= work.bad[frame * work.parts + part] != 0;
    return __any_sync(ALL_LANES, any);
}

// Filters frames. A warp, a row of threads, takes a run; a block, runs below each other.
extern "C" __global__ void __launch_bounds__(THREADS) band_pass(Work work) {
    __shared__ Kernels kernels;
    __shared__ Smoothed runs[WARPS][MAY_BE_BAD ? 2 : 1];
    for (int i = threadIdx.y * 32 + threadIdx.x; i <= work.radius; i += THREADS) {
        kernels.narrow[i] = i <= work.narrow_radius ? work.weights[i] : 0.0f;
        kernels.wide[i] = work.weights[work.radius + 1 + i];
    }
    __syncthreads();

    const int across = (work.width - 1) / RUN + 1, down = (work.height - 1) / WARPS + 1;
    const int frame = blockIdx.x / (across * down), tile = blockIdx.x % (across * down);
    const int y = tile / across * WARPS + threadIdx.y, first = tile % across * RUN;
    if (y >= work.height) return;
    const int length = min(RUN, work.width - first), thread = threadIdx.x;
    const Pixels pixels = pixels_of(work, frame);
    float* result = work.filtered + work.first_pixel(frame) + y * work.width + first;

    const Smoothed& light = runs[threadIdx.y][0];
    smooth_along_y<false>(work, pixels, y, first, length, kernels, runs[threadIdx.y][0]);
    // Past the end of a short run, there are left-overs, from which nothing is made.
    float narrow[OWN], wide[OWN];
    const int own = work.radius + thread;
    smooth_along_x(light.narrow + own, kernels.narrow, work.narrow_radius, narrow);
    smooth_along_x(light.wide + own, kernels.wide, work.radius, wide);
    if (MAY_BE_BAD && has_bad_pixels(work, frame)) {
        const Smoothed& good = runs[threadIdx.y][MAY_BE_BAD];
        smooth_along_y<true>(work, pixels, y, first, length, kernels, runs[threadIdx.y][MAY_BE_BAD]);
        float good_n[OWN], good_w[OWN];
        smooth_along_x(good.narrow + own, kernels.narrow, work.narrow_radius, good_n);
        smooth_along_x(good.wide + own, kernels.wide, work.radius, good_w);
#pragma unroll
        for (int k = 0; k < OWN; ++k) {
            // Where too few pixels are good, there is no result.
            const bool enough = good_n[k] > LEAST_WEIGHT;
            narrow[k] = enough ? narrow[k] / good_n[k] : 0.0f;
            wide[k] = enough ? wide[k] / good_w[k] : 0.0f;
        }
    }
#pragma unroll
    for (int k = 0; k < OWN; ++k)
        if (thread + 32 * k < length) result[thread + 32 * k] = narrow[k] - wide[k];
}
