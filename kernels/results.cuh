// What fits give: columns of results, and the inverse of a normal matrix for their errors.

#include "search.cuh"

struct Camera {
    float offset, gain;
    int gain_known;
};

// The columns of the results, each with one number per fit. The float columns lie one after
// the other: widths, amplitude, background, photons, chi-square, reduced chi-square and, where
// errors are asked for, the errors of x, y, widths, amplitude, background and photons.
struct Output {
    long long length;
    double *y, *x;
    float* values;
    unsigned short* iterations;
    unsigned char* stop;
    int errors;
};
#define LIGHT 5
#define VALUES (SHAPE - 2 + LIGHT)

__device__ __forceinline__ void write_values(const Output& out, long long fit, bool valid,
                                             const Shape& shape, const float (&light)[LIGHT]) {
    out.y[fit] = valid ? shape.p[IS_Y] : NOT_A_NUMBER;
    out.x[fit] = valid ? shape.p[IS_X] : NOT_A_NUMBER;
#pragma unroll
    for (int c = 0; c < VALUES; ++c) {
        const float value = c < SHAPE - 2 ? shape.p[2 + c] : light[c - (SHAPE - 2)];
        out.values[c * out.length + fit] = valid ? value : NOT_A_NUMBER;
    }
}

typedef float Matrix[PARAMETERS][PARAMETERS];

// Which parameters have no error that the data tell, besides those that are held: at a bound,
// they do not follow the data, whose errors are then those of the other parameters.
struct Unknown {
    bool is[PARAMETERS];
};

__device__ __forceinline__ Unknown unknown_at(const float (&point)[PARAMETERS],
                                              const Ends& ends) {
    Unknown unknown;
#pragma unroll
    for (int p = 0; p < PARAMETERS; ++p)
        unknown.is[p] = !is_fixed<PARAMETERS>(p) &&
                        (point[p] <= ends.low[p] || point[p] >= ends.high[p]);
    return unknown;
}

// Inverts a symmetric positive definite matrix; NaN where it is singular. Scaled to a unit
// diagonal first (its parameters differ in size), it needs no pivoting. Parameters that are
// held or unknown do not count: their rows become 0.
__device__ __forceinline__ void invert(Matrix& a, const Unknown& unknown) {
    float scale[PARAMETERS];
#pragma unroll
    for (int p = 0; p < PARAMETERS; ++p)
        scale[p] = is_fixed<PARAMETERS>(p) || unknown.is[p] ? 0.0f : 1.0f / sqrtf(a[p][p]);
#pragma unroll
    for (int p = 0; p < PARAMETERS; ++p)
#pragma unroll
        for (int q = 0; q < PARAMETERS; ++q)
            a[p][q] = is_fixed<PARAMETERS>(p) || is_fixed<PARAMETERS>(q)
                          ? 0.0f
                          : a[p][q] * (scale[p] * scale[q]);
#pragma unroll
    for (int k = 0; k < PARAMETERS; ++k) {
        if (is_fixed<PARAMETERS>(k)) continue;
        const float pivot = unknown.is[k]          ? 0.0f
                            : a[k][k] > SINGULAR ? 1.0f / a[k][k]
                                                 : NOT_A_NUMBER;
        a[k][k] = 1.0f;
#pragma unroll
        for (int j = 0; j < PARAMETERS; ++j) a[k][j] *= pivot;
#pragma unroll
        for (int i = 0; i < PARAMETERS; ++i) {
            if (i == k) continue;
            const float factor = a[i][k];
            a[i][k] = 0.0f;
#pragma unroll
            for (int j = 0; j < PARAMETERS; ++j) a[i][j] = fmaf(-factor, a[k][j], a[i][j]);
        }
    }
#pragma unroll
    for (int p = 0; p < PARAMETERS; ++p)
#pragma unroll
        for (int q = 0; q < PARAMETERS; ++q) a[p][q] *= scale[p] * scale[q];
}
