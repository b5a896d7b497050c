// The shape of a spot: its parameters x, y, widths…, and which of them are fitted.
//
// SHAPE is their number, HELD has a bit for each of them that stays at its start value. A
// round model has one width for both axes, an elliptical one a width along x and one along y.

#include "profiles.cuh"

#define HELD_AT(j) ((HELD) >> (j) & 1)
#define IS_X 0
#define IS_Y 1
#define WIDTH_X 2
#define WIDTH_Y (PROFILE == ROTATED || SHAPE == 4 ? 3 : 2)
#define ROUND (SHAPE == 3)
#define PARAMETERS (SHAPE + 2)  // with amplitude and background
#define ANGLE 4                 // of a turned Gaussian
#define SHEARED (PROFILE == ROTATED && CANONICAL == 2)  // see pointwise.cuh

#define NOT_A_NUMBER __int_as_float(0x7fffffff)
#define INFINITE __int_as_float(0x7f800000)

struct Shape {
    float p[SHAPE];
};

// How many of the shape's parameters are fitted.
__device__ __forceinline__ constexpr int fitted_of_shape() {
    int count = 0;
    for (int j = 0; j < SHAPE; ++j) count += !HELD_AT(j);
    return count;
}
// Fitted parameters, amplitude and background included.
#define FITTED (fitted_of_shape() + 2)

// NaN stays NaN.
__device__ __forceinline__ float clamp(float value, float low, float high) {
    return value < low ? low : value > high ? high : value;
}

// Where row i of the upper triangle of a symmetric N x N matrix has its column j >= i.
template <int N>
__device__ __forceinline__ constexpr int upper(int i, int j) {
    return i * N - i * (i - 1) / 2 + j - i;
}

// What a step of 1 is: a share of the width along its axis, or, of models that are no
// products, in the parameter's own unit.
#if SEPARABLE
#define STEP_UNIT(j) ((j) <= IS_Y ? CENTER_UNIT : WIDTH_UNIT)
__device__ __forceinline__ float step_unit(const float* point, int j) {
    if (j >= SHAPE) return 1.0f;
    return STEP_UNIT(j) * point[j == IS_X ? WIDTH_X : j == IS_Y ? WIDTH_Y : j];
}
#else
#define STEP_UNIT(j) 1.0f
__device__ __forceinline__ float step_unit(const float* point, int j) {
    return SHEARED && j == ANGLE ? 1.0f / (point[WIDTH_X] - point[WIDTH_Y]) : 1.0f;
}
#endif
