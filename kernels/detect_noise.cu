// The spreads of four samples of each frame, of which detect_maxima.cu makes the noise: of
// filtered pixels, and of detail as fine as the pixels, and twice as coarse along x and y.

#include "detect.cuh"

// Copies evenly spaced rows of a filtered frame; returns how many numbers these are. Each
// warp takes some of the rows.
__device__ __forceinline__ int sample_rows(const Work& work, const float* filtered,
                                           float* sample) {
    const int first = work.row_step / 2, rows = (work.height - 1 - first) / work.row_step + 1;
    for (int row = threadIdx.x / 32; row < rows; row += WARPS)
        for (int x = threadIdx.x % 32; x < work.width; x += 32)
            sample[row * work.width + x] =
                filtered[(first + row * work.row_step) * work.width + x];
    return rows * work.width;
}

__device__ __forceinline__ float second_difference(const Pixels& pixels, int place, int step) {
    const float here = pixels[place];
    return pixels[place - step] - here - here + pixels[place + step];
}

// Takes second differences along both axes, over ``by`` pixels, in evenly spaced rows, and
// scales them to the pixels' own noise; returns how many they are.
__device__ __forceinline__ int sample_detail(const Work& work, const Pixels& pixels, int by_y,
                                             int by_x, float* sample) {
    const int first = by_y + work.row_step / 2, last = work.height - 1 - by_y;
    const int rows = last < first ? 0 : (last - first) / work.row_step + 1;
    const int columns = max(work.width - 2 * by_x, 0), down = by_y * work.width;
    for (int row = threadIdx.x / 32; row < rows; row += WARPS)
        for (int x = threadIdx.x % 32; x < columns; x += 32) {
            const int place = (first + row * work.row_step) * work.width + by_x + x;
            const float middle = second_difference(pixels, place, down);
            const float before = second_difference(pixels, place - by_x, down);
            const float after = second_difference(pixels, place + by_x, down);
            sample[row * columns + x] = (before - middle - middle + after) * (1.0f / 6);
        }
    return rows * columns;
}

__device__ __forceinline__ float highest_over_block(float value, float (&of_warps)[WARPS]) {
#pragma unroll
    for (int distance = 16; distance > 0; distance /= 2)
        value = fmaxf(value, __shfl_xor_sync(ALL_LANES, value, distance));
    if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = value;
    __syncthreads();
#pragma unroll
    for (int i = 0; i < WARPS; ++i) value = fmaxf(value, of_warps[i]);
    return value;
}

// The standard deviation about 0 of the middle of a sample. Zeros do not count.
__device__ __forceinline__ float clipped_deviation(const float* sample, int size) {
    __shared__ float squares_in_warps[2][WARPS];
    __shared__ int inside_in_warps[2][WARPS];
    float highest = 0.0f;
    for (int i = threadIdx.x; i < size; i += THREADS) highest = fmaxf(highest, fabsf(sample[i]));
    float deviation = highest_over_block(highest, squares_in_warps[1]);
    for (int iteration = 0; iteration < MAX_ITERATIONS && deviation > 0.0f; ++iteration) {
        const float inverse = 1.0f / deviation;
        float squares = 0.0f;
        int inside = 0;
#pragma unroll 8
        for (int i = threadIdx.x; i < size; i += THREADS) {
            const float value = sample[i], scaled = fabsf(value) * inverse;
            const bool kept = scaled < CLIP && value != 0.0f;
            squares = kept ? fmaf(scaled, scaled, squares) : squares;
            inside += kept;
        }
        // Two places in turn: a warp may be one iteration ahead of another.
        inside = sum_over_block(inside, inside_in_warps[iteration % 2]);
        squares = sum_over_block(squares, squares_in_warps[iteration % 2]);
        if (inside == 0) break;
        const float change = sqrtf(squares / (float(inside) * KEPT_VARIANCE));
        if (change > SETTLED) break;
        deviation *= fmaxf(fmaxf(powf(change, HASTE), FAR_HASTE * change), LEAST_CHANGE);
    }
    return deviation;
}

// Measures the spread of one sample of one frame per block.
extern "C" __global__ void __launch_bounds__(THREADS) measure_spreads(Work work) {
    const int frame = blockIdx.x / SPREADS, kind = blockIdx.x % SPREADS;
    float* sample = work.samples + blockIdx.x * (long long)work.room;
    int size;
    if (kind == 0)
        size = sample_rows(work, work.filtered + work.first_pixel(frame), sample);
    else
        size = sample_detail(work, pixels_of(work, frame), kind == 3 ? 2 : 1, kind == 2 ? 2 : 1,
                             sample);
    __syncthreads();
    const float spread = clipped_deviation(sample, size);
    if (threadIdx.x == 0) work.spreads[blockIdx.x] = spread;
}
