// Which part of which fit a thread works on, and sums over the threads of one fit.
//
// A fit is shared by LANES_X x LANES_Y neighbouring threads ("lanes") of a warp, each of
// which keeps a rectangle of its pixels. Sums over a fit are the same in all its lanes, to
// the last bit, so that these take every decision together.

#define LANES (LANES_X * LANES_Y)
#define GROUPS (32 / LANES)
#define PIXELS (ROWS * COLUMNS)

// A lane's own rows and columns. At the far edges of the ROI some may be missing.
#define OWN_ROWS ((ROWS + LANES_Y - 1) / LANES_Y)
#define OWN_COLUMNS ((COLUMNS + LANES_X - 1) / LANES_X)

#define ALL_LANES 0xffffffffu

__device__ __forceinline__ int lane_number() { return threadIdx.x % 32; }
__device__ __forceinline__ int first_own_column() {
    return LANES_X == 1 ? 0 : lane_number() % LANES_X * OWN_COLUMNS;
}
__device__ __forceinline__ int first_own_row() {
    return LANES_Y == 1 ? 0 : lane_number() / LANES_X % LANES_Y * OWN_ROWS;
}

// Whether the lane has its k-th row or i-th column: known to the compiler for most.
__device__ __forceinline__ bool has_row(int k) {
    return (LANES_Y - 1) * OWN_ROWS + k < ROWS || first_own_row() + k < ROWS;
}
__device__ __forceinline__ bool has_column(int i) {
    return (LANES_X - 1) * OWN_COLUMNS + i < COLUMNS || first_own_column() + i < COLUMNS;
}

__device__ __forceinline__ float sum_over_columns(float value) {
#pragma unroll
    for (int distance = 1; distance < LANES_X; distance *= 2)
        value += __shfl_xor_sync(ALL_LANES, value, distance);
    return value;
}
__device__ __forceinline__ float sum_over_rows(float value) {
#pragma unroll
    for (int distance = LANES_X; distance < LANES; distance *= 2)
        value += __shfl_xor_sync(ALL_LANES, value, distance);
    return value;
}
__device__ __forceinline__ float sum_over_fit(float value) {
    return sum_over_rows(sum_over_columns(value));
}
__device__ __forceinline__ float lowest_of_fit(float value) {
#pragma unroll
    for (int distance = 1; distance < LANES; distance *= 2)
        value = fminf(value, __shfl_xor_sync(ALL_LANES, value, distance));
    return value;
}
__device__ __forceinline__ float highest_of_fit(float value) {
#pragma unroll
    for (int distance = 1; distance < LANES; distance *= 2)
        value = fmaxf(value, __shfl_xor_sync(ALL_LANES, value, distance));
    return value;
}
