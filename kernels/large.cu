// Large ROIs, one fit at a time: the whole GPU adds up the pixels of one ROI, and the host
// searches (engine/large). A thread adds up some dozens of pixels in single precision; its
// sums are joined with those of others in double precision, always in the same order.
//
// Compile-time numbers: PROFILE, SHAPE, HELD (the model), PIXEL (the pixels' type), PLANES
// (whether pixels have weights or variances), POISSON (whether these are variances),
// LIKELIHOOD (whether sums are those of maximum likelihood), WARPS (of a block).

#include "pointwise.cuh"

#define ALL 0xffffffffu
// The sums: the matrix by rows of its upper triangle, the vector, chi-square or the deviance.
#define MATRIX (PARAMETERS * (PARAMETERS + 1) / 2)
#define SUMS (MATRIX + PARAMETERS + 1)
// Pixels of a row that a warp takes at a time, per lane.
#define RUN 2

// Where the pixels lie, from the ROI's first one on, and what a row is long in memory.
struct Roi {
    const PIXEL* pixels;
    const float* plane;
    long long pitch, plane_pitch;
    int rows, columns;
};

// A point of the search. The centre, and coordinates, count from the pixel at the origin, near
// which they are exact. A weight w counts as w (even + shot w model).
struct Trial {
    double level, scale;
    float shape[SHAPE];
    float amplitude, background, even, shot;
    int origin_x, origin_y;
};

__device__ __forceinline__ bool counts(float own) {
    return !PLANES || (POISSON ? own >= 0.0f : own > 0.0f);
}

__device__ __forceinline__ float own_of(const Roi& roi, int row, int column) {
    return PLANES ? roi.plane[row * roi.plane_pitch + column] : 1.0f;
}

__device__ __forceinline__ float in_unit(PIXEL value, const Trial& trial) {
    if (sizeof(PIXEL) == 8) return float((double(value) - trial.level) * trial.scale);
    return (float(value) - float(trial.level)) * float(trial.scale);
}

#if SEPARABLE

// From this width on, in pixels, a Gaussian averaged over a pixel is known better by its
// curvature than by the difference of two error functions.
#define WIDE 8.0f

// The profile along one axis at a distance from its centre, its derivatives per pixel.
__device__ __forceinline__ Profile along(float distance, float width) {
#if PROFILE == INTEGRATED
    if (width > WIDE) {
        const float inverse = 1.0f / width, q = distance * inverse, qq = q * q;
        const float share = inverse * inverse * (1.0f / 24.0f);
        const float g = exp2f(-0.72134752044448170f * qq);  // log2(e) / 2
        return {g * fmaf(share, qq - 1.0f, 1.0f),
                q * g * fmaf(share, qq - 3.0f, 1.0f) * inverse,
                g * fmaf(share, fmaf(qq, qq - 5.0f, 2.0f), qq) * inverse};
    }
#endif
    Axis axis(distance, 0.0f, width);
    const Profile p = axis.at(0);
    return {p.value, p.center / (CENTER_UNIT * width), p.width / (WIDTH_UNIT * width)};
}

struct Model {
    const float (&p)[SHAPE];

    __device__ __forceinline__ explicit Model(const float (&parameters)[SHAPE]) : p(parameters) {}
    __device__ __forceinline__ float at(float column, float row, float (&d)[SHAPE]) const {
        const Profile u = along(column - p[IS_X], p[WIDTH_X]);
        const Profile v = along(row - p[IS_Y], p[WIDTH_Y]);
        d[IS_X] = u.center * v.value;
        d[IS_Y] = u.value * v.center;
        d[WIDTH_X] = u.width * v.value;
        d[WIDTH_Y] = ROUND ? fmaf(u.value, v.width, d[WIDTH_X]) : u.value * v.width;
        return u.value * v.value;
    }
};

#endif

// Adds a pixel to the sums.
__device__ __forceinline__ void add(float (&sums)[SUMS], const float (&d)[PARAMETERS],
                                    float weight, float push, float misfit) {
    int k = 0;
#pragma unroll
    for (int i = 0; i < PARAMETERS; ++i) {
        const float weighted = weight * d[i];
#pragma unroll
        for (int j = i; j < PARAMETERS; ++j, ++k) sums[k] = fmaf(weighted, d[j], sums[k]);
    }
#pragma unroll
    for (int i = 0; i < PARAMETERS; ++i, ++k) sums[k] = fmaf(push, d[i], sums[k]);
    sums[k] += misfit;
}

__device__ __forceinline__ void add_pixel(const Roi& roi, const Trial& trial, const Model& model,
                                          int row, int column, float (&sums)[SUMS]) {
    const float own = own_of(roi, row, column);
    if (!counts(own)) return;
    float slopes[SHAPE], d[PARAMETERS];
    const float f = model.at(float(column - trial.origin_x), float(row - trial.origin_y), slopes);
#pragma unroll
    for (int i = 0; i < SHAPE; ++i) d[i] = slopes[i];
    d[SHAPE] = f, d[SHAPE + 1] = 1.0f;
    const float pixel = in_unit(roi.pixels[row * roi.pitch + column], trial);
    const float level = fmaf(trial.amplitude, f, trial.background);
#if LIKELIHOOD
    const float variance = PLANES ? own : 0.0f;
    const float data = fmaxf(pixel + variance, 0.0f), h = level + variance;
    const float weight = 1.0f / h, push = (data - h) * weight;
    const float deviance = h - data + (data > 0.0f ? data * log1pf(push) : 0.0f);
    add(sums, d, weight, push, h > 0.0f ? 2.0f * deviance : INFINITE);
#else
    const float weight = PLANES && !POISSON ? own : 1.0f, residual = pixel - level;
    const float push = weight * residual;
    add(sums, d, weight * fmaf(weight * trial.shot, fmaxf(level, 0.0f), trial.even), push,
        push * residual);
#endif
}

// Joins the sums of a block's threads and writes them beside those of the other blocks.
__device__ __forceinline__ void write_block(const float (&sums)[SUMS], double* blocks) {
    __shared__ double warps[WARPS][SUMS];
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int k = 0; k < SUMS; ++k) {
        double total = sums[k];
#pragma unroll
        for (int distance = 16; distance > 0; distance /= 2)
            total += __shfl_xor_sync(ALL, total, distance);
        if (lane == 0) warps[threadIdx.x / 32][k] = total;
    }
    __syncthreads();
    for (int k = threadIdx.x; k < SUMS; k += 32 * WARPS) {
        double total = 0.0;
        for (int warp = 0; warp < WARPS; ++warp) total += warps[warp][k];
        blocks[k * (long long)gridDim.x + blockIdx.x] = total;
    }
}

// Whether this block is the last one to have written its sums.
__device__ __forceinline__ bool is_last(unsigned* finished) {
    __shared__ bool last;
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) last = atomicAdd(finished, 1u) == gridDim.x - 1;
    __syncthreads();
    return last;
}

extern "C" __global__ void __launch_bounds__(32 * WARPS)
    add_pixels(const Roi roi, const Trial trial, double* blocks, unsigned* finished,
               double* result) {
    const int lane = threadIdx.x % 32, warps = gridDim.x * WARPS;
    const int runs = (roi.columns + 32 * RUN - 1) / (32 * RUN);
    const Model model(trial.shape);
    float sums[SUMS] = {};
    for (int run = blockIdx.x * WARPS + threadIdx.x / 32; run < roi.rows * runs; run += warps) {
        const int row = run / runs, begin = run % runs * (32 * RUN) + lane;
#pragma unroll
        for (int i = 0; i < RUN; ++i)
            if (begin + 32 * i < roi.columns)
                add_pixel(roi, trial, model, row, begin + 32 * i, sums);
    }
    write_block(sums, blocks);
    if (!is_last(finished)) return;
    __threadfence();
    for (int k = threadIdx.x / 32; k < SUMS; k += WARPS) {
        double total = 0.0;
        for (int block = lane; block < gridDim.x; block += 32)
            total += blocks[k * (long long)gridDim.x + block];
#pragma unroll
        for (int distance = 16; distance > 0; distance /= 2)
            total += __shfl_xor_sync(ALL, total, distance);
        if (lane == 0) result[k] = total;
    }
    if (threadIdx.x == 0) *finished = 0;
}

// The pixels from a first row and column on in square cells: how many count, the lowest, the
// highest and the mean. A warp looks through one cell.
extern "C" __global__ void __launch_bounds__(32 * WARPS)
    bin_pixels(const Roi roi, int top, int left, int cell, int rows, int columns, double* bins) {
    const int place = blockIdx.x * WARPS + threadIdx.x / 32, lane = threadIdx.x % 32;
    if (place >= rows * columns) return;
    const int first_row = top + place / columns * cell, first_column = left + place % columns * cell;
    const int height = min(cell, roi.rows - first_row);
    const int width = min(cell, roi.columns - first_column);
    int count = 0;
    double low = INFINITE, high = -low, total = 0.0;
    for (int i = lane; i < height * width; i += 32) {
        const int row = first_row + i / width, column = first_column + i % width;
        if (!counts(own_of(roi, row, column))) continue;
        const double value = double(roi.pixels[row * roi.pitch + column]);
        ++count;
        total += value;
        low = min(low, value);
        high = max(high, value);
    }
#pragma unroll
    for (int distance = 16; distance > 0; distance /= 2) {
        count += __shfl_xor_sync(ALL, count, distance);
        total += __shfl_xor_sync(ALL, total, distance);
        low = min(low, __shfl_xor_sync(ALL, low, distance));
        high = max(high, __shfl_xor_sync(ALL, high, distance));
    }
    if (lane > 0) return;
    const double values[] = {double(count), low, high, total / max(count, 1)};
#pragma unroll
    for (int k = 0; k < 4; ++k) bins[k * (long long)(rows * columns) + place] = values[k];
}
