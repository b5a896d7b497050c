// From the state of a search to results in counts and pixels, with their errors.
//
// Standard errors (least squares): with J the Jacobian in (x, y, sigma, amplitude,
// background) and A = J'J, the covariance is A^-1 (J' diag(var) J) A^-1 with the shot noise
// var = gain * model where the camera's gain is known, else s^2 A^-1 with
// s^2 = chi^2 / (N - 5). All sums are products of sums along the axes: no pixel is visited.

#include "start.cuh"

#define PARAMETERS 5

struct Camera {
    float offset, gain;
    int gain_known;
};

// The columns of the results, each with one number per fit. The float columns lie one after
// the other: sigma, amplitude, background, photons, chi-square, reduced chi-square and, where
// errors are asked for, the errors of x, y, sigma, amplitude, background and photons.
struct Output {
    long long length;
    double *y, *x;
    float* values;
    unsigned short* iterations;
    unsigned char* stop;
    int errors;
};
#define ERRORS_COLUMN 6

__device__ __forceinline__ void write(const Search& search, const Kept& kept,
                                      const Limits& limits, const Camera& camera,
                                      const Output& out, long long fit) {
    const int lane = lane_number();
    const bool valid = search.stop != STOP_INVALID;
    const Shape shape = kept.shape();
    const float unit = 1.0f / kept.scale[lane], sigma = shape.sigma;
    // Rounding in the change of units must not carry an amplitude over its bounds.
    const float amplitude =
        clamp(kept.amplitude[lane] * unit, limits.amplitude_min, limits.amplitude_max);
    const float background =
        clamp(kept.background[lane] * unit + kept.level[lane] - camera.offset,
              limits.background_min - camera.offset, limits.background_max - camera.offset);
    const float chi = search.chi * unit * unit;
    const float values[] = {sigma, amplitude, background,
                            sigma * sigma * amplitude * (2.0f * PI / camera.gain), chi,
                            chi * (1.0f / (PIXELS - PARAMETERS))};
    out.y[fit] = valid ? shape.y : NOT_A_NUMBER;
    out.x[fit] = valid ? shape.x : NOT_A_NUMBER;
#pragma unroll
    for (int c = 0; c < ERRORS_COLUMN; ++c)
        out.values[c * out.length + fit] = valid ? values[c] : NOT_A_NUMBER;
    out.iterations[fit] = (unsigned short)fmaxf(search.iterations, 0.0f);
    out.stop[fit] = (unsigned char)search.stop;
    if (out.errors) {
        // The residuals' scatter over the amplitude, for the errors to be made from.
        const float scatter =
            sqrtf(search.chi * (1.0f / (PIXELS - PARAMETERS))) / kept.amplitude[lane];
        out.values[ERRORS_COLUMN * out.length + fit] = valid ? fabsf(scatter) : NOT_A_NUMBER;
    }
}

// Sums of products of 1, u, u', u°, plain and weighted with u, along an axis.
struct Tables {
    float plain[4][4], weighted[4][4];
};

__device__ __forceinline__ void fill(float (&table)[4][4], float size, float u, float c, float s,
                                     float uu, float uc, float us, float cc, float cs, float ss) {
    const float upper[] = {size, u, c, s, uu, uc, us, cc, cs, ss};
    int i = 0;
#pragma unroll
    for (int a = 0; a < 4; ++a)
#pragma unroll
        for (int b = a; b < 4; ++b) table[a][b] = table[b][a] = upper[i++];
}

__device__ __forceinline__ Tables tables_along(int size, float center, float sigma) {
    const float inverse = CENTER_UNIT / sigma;
    AxisSums sums = {};
    float t[6] = {};
#pragma unroll 4
    for (int i = 0; i < size; ++i) {
        const Profile p = gaussian(fmaf(float(i), inverse, -center * inverse));
        sums.add(p);
        const float uu = p.value * p.value, uc = p.value * p.center, us = p.value * p.sigma;
        t[0] = fmaf(uu, p.value, t[0]);
        t[1] = fmaf(uu, p.center, t[1]);
        t[2] = fmaf(uu, p.sigma, t[2]);
        t[3] = fmaf(uc, p.center, t[3]);
        t[4] = fmaf(uc, p.sigma, t[4]);
        t[5] = fmaf(us, p.sigma, t[5]);
    }
    Tables tables;
    fill(tables.plain, float(size), sums.u, sums.c, sums.s, sums.uu, sums.uc, sums.us, sums.cc,
         sums.cs, sums.ss);
    fill(tables.weighted, sums.u, sums.uu, sums.uc, sums.us, t[0], t[1], t[2], t[3], t[4], t[5]);
    return tables;
}

typedef float Matrix[PARAMETERS][PARAMETERS];

// Adds factor * J' diag(weight) J. The derivatives are products of 1, u, u', u° (0 to 3)
// along x and y; sigma's has two terms.
__device__ __forceinline__ void add_products(const float (&x)[4][4], const float (&y)[4][4],
                                             float factor, Matrix& matrix) {
    constexpr int TERMS = 6;
    constexpr int parameter[TERMS] = {0, 1, 2, 2, 3, 4};
    constexpr int along_x[TERMS] = {2, 1, 3, 1, 1, 0};
    constexpr int along_y[TERMS] = {1, 2, 1, 3, 1, 0};
#pragma unroll
    for (int s = 0; s < TERMS; ++s)
#pragma unroll
        for (int t = 0; t < TERMS; ++t) {
            float& sum = matrix[parameter[s]][parameter[t]];
            sum = fmaf(factor * x[along_x[s]][along_x[t]], y[along_y[s]][along_y[t]], sum);
        }
}

// Inverts a symmetric positive definite matrix; NaN where it is singular. Scaled to a unit
// diagonal first (its parameters differ in size), it needs no pivoting.
__device__ __forceinline__ void invert(Matrix& a) {
    float scale[PARAMETERS];
#pragma unroll
    for (int p = 0; p < PARAMETERS; ++p) scale[p] = 1.0f / sqrtf(a[p][p]);
#pragma unroll
    for (int p = 0; p < PARAMETERS; ++p)
#pragma unroll
        for (int q = 0; q < PARAMETERS; ++q) a[p][q] *= scale[p] * scale[q];
#pragma unroll
    for (int k = 0; k < PARAMETERS; ++k) {
        const float pivot = a[k][k] > SINGULAR ? 1.0f / a[k][k] : NOT_A_NUMBER;
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

// One element of inverse * noise * inverse.
__device__ __forceinline__ float between(const Matrix& inverse, const Matrix& noise, int p, int q) {
    float total = 0.0f;
#pragma unroll
    for (int i = 0; i < PARAMETERS; ++i) {
        float row = 0.0f;
#pragma unroll
        for (int j = 0; j < PARAMETERS; ++j) row = fmaf(noise[i][j], inverse[j][q], row);
        total = fmaf(inverse[p][i], row, total);
    }
    return total;
}

// Writes the errors of a fit whose other results are written; NaN where the normal matrix is
// singular. Everything is relative to the amplitude.
__device__ __forceinline__ void write_errors(const Camera& camera, const Output& out,
                                             long long fit) {
    float* column = out.values + fit;
    if (out.stop[fit] == STOP_INVALID) {
        for (int e = 0; e <= PARAMETERS; ++e)
            column[(ERRORS_COLUMN + e) * out.length] = NOT_A_NUMBER;
        return;
    }
    const float sigma = column[0], amplitude = column[out.length];
    const float background = column[2 * out.length];
    const float scatter = column[ERRORS_COLUMN * out.length];
    const Tables x = tables_along(COLUMNS, float(out.x[fit]), sigma);
    const Tables y = tables_along(ROWS, float(out.y[fit]), sigma);
    Matrix inverse = {}, noise = {};
    add_products(x.plain, y.plain, 1.0f, inverse);
    if (camera.gain_known) {
        const float size = fabsf(amplitude);
        const float shot = camera.gain / size;
        add_products(x.weighted, y.weighted, amplitude > 0.0f ? shot : 0.0f, noise);
        add_products(x.plain, y.plain, shot * fmaxf(background / size, 0.0f), noise);
    }
    invert(inverse);
    float covariance[PARAMETERS + 1];
#pragma unroll
    for (int e = 0; e <= PARAMETERS; ++e) {
        const int p = e < PARAMETERS ? e : 2, q = e < PARAMETERS ? e : 3;
        covariance[e] = camera.gain_known ? between(inverse, noise, p, q)
                                          : inverse[p][q] * scatter * scatter;
    }
    // The shape's derivatives are in the profile's units. Photons are proportional to
    // sigma^2 * amplitude, so that d photons is so to 2 d sigma / sigma + d amplitude / amplitude.
    const float size = fabsf(amplitude);
    const float per_sigma = SIGMA_UNIT * SIGMA_UNIT;
    const float photons =
        4.0f * per_sigma * covariance[2] + 4.0f * SIGMA_UNIT * covariance[5] + covariance[3];
    const float errors[] = {sqrtf(covariance[0]) * CENTER_UNIT * sigma,
                            sqrtf(covariance[1]) * CENTER_UNIT * sigma,
                            sqrtf(covariance[2]) * SIGMA_UNIT * sigma,
                            sqrtf(covariance[3]) * size,
                            sqrtf(covariance[4]) * size,
                            sqrtf(photons) * sigma * sigma * size * (2.0f * PI / camera.gain)};
#pragma unroll
    for (int e = 0; e <= PARAMETERS; ++e) column[(ERRORS_COLUMN + e) * out.length] = errors[e];
}
