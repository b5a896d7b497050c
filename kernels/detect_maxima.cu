// Maxima of the filtered frames that are high enough, in the order of frame, y and x.
//
// Two passes over segments of frames: the first marks candidates by one bit per pixel and
// counts them; the second knows from the counts where each segment's candidates belong.

#include "detect.cuh"

#define HIGHEST __int_as_float(0x7f7fffff)

// A segment of a frame, and what a candidate in it must have.
struct Segment {
    int frame, first;
    Pixels pixels;
    const float* filtered;
    float noise, limit;
};

// The noise of a frame. Detail as fine as the pixels bounds it, if it looks like the noise of
// independent pixels.
__device__ __forceinline__ float noise_of(const Work& work, int frame) {
    const float* spreads = work.spreads + frame * SPREADS;
    const float noise = spreads[0], white = TEXTURE * work.gain, bound = white * spreads[1];
    const float coarser = fmaxf(bound, white * fmaxf(spreads[2], spreads[3]));
    return bound < noise && coarser < WHITENESS * bound ? bound : noise;
}

__device__ __forceinline__ Segment own_segment(const Work& work) {
    const int segments = (work.height * work.width - 1) / SEGMENT + 1;
    const int frame = blockIdx.x / segments;
    const float noise = noise_of(work, frame);
    return {frame,
            int(blockIdx.x % segments) * SEGMENT,
            pixels_of(work, frame),
            work.filtered + work.first_pixel(frame),
            noise,
            fmaxf(work.least_height, work.least_score * noise * work.border_min)};
}

__device__ __forceinline__ float score_at(const Work& work, const Segment& segment, int place) {
    return segment.filtered[place] / (segment.noise * work.border[place]);
}

// Whether no neighbour is higher; of equal neighbours, the first is the peak.
__device__ __forceinline__ bool is_peak(const Work& work, const float* filtered, int place) {
    const int y = place / work.width, x = place % work.width;
    const float value = filtered[place];
    bool peak = true;
#pragma unroll
    for (int v = -1; v <= 1; ++v)
#pragma unroll
        for (int u = -1; u <= 1; ++u) {
            const bool inside = unsigned(y + v) < unsigned(work.height) &&
                                unsigned(x + u) < unsigned(work.width);
            const float neighbour = inside ? filtered[place + v * work.width + u] : -HIGHEST;
            const bool first = v < 0 || (v == 0 && u < 0);
            peak &= first ? neighbour < value : neighbour <= value;
        }
    return peak;
}

// Whether a pixel above the limit is a maximum, with a score that is high enough, and no
// rounding error of the pixel itself.
__device__ __forceinline__ bool is_candidate(const Work& work, const Segment& segment, int place) {
    const float value = segment.filtered[place];
    return is_peak(work, segment.filtered, place) &&
           score_at(work, segment, place) > work.least_score &&
           value > LEAST_CONTRAST * fabsf(segment.pixels[place]);
}

// Whether a pixel equals the four next to it, as in a saturated spot.
__device__ __forceinline__ bool is_flat(const Work& work, const Pixels& pixels, int y, int x) {
    const int place = y * work.width + x;
    const float value = pixels[place];
    return (y == 0 || pixels[place - work.width] == value) &&
           (x == 0 || pixels[place - 1] == value) &&
           (x == work.width - 1 || pixels[place + 1] == value) &&
           (y == work.height - 1 || pixels[place + work.width] == value);
}

// Marks the candidates of a segment per block, and counts them.
extern "C" __global__ void __launch_bounds__(THREADS) mark_maxima(Work work) {
    __shared__ int found_in_warps[WARPS];
    const Segment segment = own_segment(work);
    const int left = work.height * work.width - segment.first;
    // Few pixels are high enough; all are read before these are looked at closely.
    unsigned high = 0;
#pragma unroll
    for (int k = 0; k < SEGMENT / THREADS; ++k) {
        const int i = k * THREADS + threadIdx.x;
        if (i < left && segment.filtered[segment.first + i] > segment.limit) high |= 1u << k;
    }
    int found = 0;
#pragma unroll 1
    for (int k = 0; k < SEGMENT / THREADS; ++k) {
        const int i = k * THREADS + threadIdx.x;
        const bool here = (high >> k & 1) && is_candidate(work, segment, segment.first + i);
        const unsigned word = __ballot_sync(ALL_LANES, here);
        if (i % 32 == 0) work.marks[blockIdx.x * (long long)SEGMENT_WORDS + i / 32] = word;
        found += here;
    }
    found = sum_over_block(found, found_in_warps);
    if (threadIdx.x == 0) work.counts[blockIdx.x] = found;
    // What will be fetched without being a candidate is nothing.
    for (long long i = blockIdx.x * (long long)THREADS + threadIdx.x; i < work.fetched;
         i += gridDim.x * (long long)THREADS)
        work.candidates[i] = {};
}

// How many marks come before those of this thread, which takes one word of a segment.
__device__ __forceinline__ int count_before(const Work& work, int own) {
    __shared__ int in_warps[SEGMENT_WORDS / 32], in_segments[SEGMENT_WORDS / 32];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    int before = 0;
    for (int i = threadIdx.x; i < blockIdx.x; i += SEGMENT_WORDS) before += work.counts[i];
    before = sum_over_warp(before);
    int up_to_here = own;
    for (int distance = 1; distance < 32; distance *= 2) {
        const int others = __shfl_up_sync(ALL_LANES, up_to_here, distance);
        if (lane >= distance) up_to_here += others;
    }
    if (lane == 31) {
        in_segments[warp] = before;
        in_warps[warp] = up_to_here;
    }
    __syncthreads();
    before = up_to_here - own;
    for (int i = 0; i < SEGMENT_WORDS / 32; ++i)
        before += in_segments[i] + (i < warp ? in_warps[i] : 0);
    return before;
}

// Lists the candidates of a segment per block, a word of marks per thread.
extern "C" __global__ void __launch_bounds__(SEGMENT_WORDS) list_maxima(Work work) {
    unsigned word = work.marks[blockIdx.x * (long long)SEGMENT_WORDS + threadIdx.x];
    int number = count_before(work, __popc(word));
    if (blockIdx.x == gridDim.x - 1 && threadIdx.x == 0)
        work.candidates[0].frame = number + work.counts[blockIdx.x];
    if (word == 0) return;
    const Segment segment = own_segment(work);
    for (; word != 0; word &= word - 1) {
        const int place = segment.first + int(threadIdx.x) * 32 + __ffs(word) - 1;
        const int y = place / work.width, x = place % work.width;
        const float score = fminf(score_at(work, segment, place), HIGHEST);
        work.candidates[1 + number++] = {segment.frame, y, x,
                                         is_flat(work, segment.pixels, y, x),
                                         segment.filtered[place], score};
    }
}
