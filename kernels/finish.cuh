// From the state of a search to results in counts and pixels, with their errors.
//
// Standard errors (least squares): with J the Jacobian in (x, y, widths, amplitude,
// background) and A = J'J, the covariance is A^-1 (J' diag(var) J) A^-1 with the shot noise
// var = gain * model where the camera's gain is known, else s^2 A^-1 with
// s^2 = chi^2 / (N - parameters). All sums are products of sums along the axes: no pixel is
// visited. What is held, or ended at a bound, is left out of A.

#include "results.cuh"
#include "start.cuh"

// A number in counts, within its bounds there and, for write_errors to see, at them where the
// search left it at those in its own unit.
__device__ __forceinline__ float in_counts(float own, float own_low, float own_high, float counts,
                                           float low, float high) {
    return own <= own_low ? low : own >= own_high ? high : clamp(counts, low, high);
}

__device__ __forceinline__ void write(const Search<SHAPE>& search, const Kept& kept,
                                      const Limits& limits, const Camera& camera,
                                      const Output& out, long long fit) {
    const int lane = lane_number();
    const bool valid = search.stop != STOP_INVALID;
    const Shape shape = kept.shape();
    const float unit = 1.0f / kept.scale[lane];
    const AmplitudeBounds own = own_bounds(kept, limits);
    const float amplitude =
        in_counts(kept.amplitude(), own.amplitude_min, own.amplitude_max,
                  kept.amplitude() * unit, limits.amplitude_min, limits.amplitude_max);
    const float background =
        in_counts(kept.background(), own.background_min, own.background_max,
                  kept.background() * unit + kept.level[lane] - camera.offset,
                  limits.background_min - camera.offset, limits.background_max - camera.offset);
    const float chi = search.chi * unit * unit;
    const float area = shape.p[WIDTH_X] * shape.p[WIDTH_Y];
    const float light[] = {amplitude, background, area * amplitude * (INTEGRAL / camera.gain),
                           chi, chi * (1.0f / (PIXELS - FITTED))};
    write_values(out, fit, valid, shape, light);
    out.iterations[fit] = (unsigned short)fmaxf(search.iterations, 0.0f);
    out.stop[fit] = (unsigned char)search.stop;
    if (out.errors) {
        // The residuals' scatter over the amplitude, for the errors to be made from.
        const float scatter =
            sqrtf(search.chi * (1.0f / (PIXELS - FITTED))) / kept.amplitude();
        out.values[VALUES * out.length + fit] = valid ? fabsf(scatter) : NOT_A_NUMBER;
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

__device__ __forceinline__ Tables tables_along(int size, float center, float width) {
    Axis axis(0.0f, center, width);
    AxisSums sums = {};
    float t[6] = {};
#pragma unroll 4
    for (int i = 0; i < size; ++i) {
        const Profile p = axis.at(i);
        sums.add(p);
        const float uu = p.value * p.value, uc = p.value * p.center, us = p.value * p.width;
        t[0] = fmaf(uu, p.value, t[0]);
        t[1] = fmaf(uu, p.center, t[1]);
        t[2] = fmaf(uu, p.width, t[2]);
        t[3] = fmaf(uc, p.center, t[3]);
        t[4] = fmaf(uc, p.width, t[4]);
        t[5] = fmaf(us, p.width, t[5]);
    }
    Tables tables;
    fill(tables.plain, float(size), sums.u, sums.c, sums.s, sums.uu, sums.uc, sums.us, sums.cc,
         sums.cs, sums.ss);
    fill(tables.weighted, sums.u, sums.uu, sums.uc, sums.us, t[0], t[1], t[2], t[3], t[4], t[5]);
    return tables;
}

// Adds factor * J' diag(weight) J. The derivatives are products of 1, u, u', u° (0 to 3)
// along x and y; the width's of a round profile has two terms.
__device__ __forceinline__ void add_products(const float (&x)[4][4], const float (&y)[4][4],
                                             float factor, Matrix& matrix) {
    constexpr int TERMS = 6;
    constexpr int parameter[TERMS] = {IS_X, IS_Y, WIDTH_X, WIDTH_Y, SHAPE, SHAPE + 1};
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

// The relative variance of the photons, which are proportional to both widths and to the
// amplitude. The shape's derivatives are in the profile's units.
template <typename Covariance>
__device__ __forceinline__ float photons_variance(const float (&variance)[PARAMETERS],
                                                  Covariance covariance) {
#if ROUND
    return 4.0f * WIDTH_UNIT * WIDTH_UNIT * variance[WIDTH_X] +
           4.0f * WIDTH_UNIT * covariance(WIDTH_X, SHAPE) + variance[SHAPE];
#else
    return WIDTH_UNIT * WIDTH_UNIT * (variance[WIDTH_X] + variance[WIDTH_Y]) + variance[SHAPE] +
           2.0f * WIDTH_UNIT * (WIDTH_UNIT * covariance(WIDTH_X, WIDTH_Y) +
                                covariance(WIDTH_X, SHAPE) + covariance(WIDTH_Y, SHAPE));
#endif
}

// Which parameters of a fit, whose results are written, are at a bound.
__device__ __forceinline__ Unknown unknown_of(const Limits& limits, const Camera& camera,
                                              const Output& out, long long fit) {
    float point[PARAMETERS];
    point[IS_X] = float(out.x[fit]), point[IS_Y] = float(out.y[fit]);
#pragma unroll
    for (int j = WIDTH_X; j < PARAMETERS; ++j) point[j] = out.values[(j - 2) * out.length + fit];
    return unknown_at(point, ends_of(limits, limits.amplitude_min, limits.amplitude_max,
                                     limits.background_min - camera.offset,
                                     limits.background_max - camera.offset));
}

// Writes the errors of a fit whose other results are written; NaN where the normal matrix is
// singular, and for what is at a bound. Everything is relative to the amplitude.
__device__ __forceinline__ void write_errors(const Limits& limits, const Camera& camera,
                                             const Output& out, long long fit) {
    float* column = out.values + fit;
    float errors[PARAMETERS + 1];
#pragma unroll
    for (int e = 0; e <= PARAMETERS; ++e) errors[e] = NOT_A_NUMBER;
    if (out.stop[fit] != STOP_INVALID) {
        const float width_x = column[0], width_y = column[(WIDTH_Y - WIDTH_X) * out.length];
        const float amplitude = column[(SHAPE - 2) * out.length];
        const float background = column[(SHAPE - 1) * out.length];
        const float scatter = column[VALUES * out.length];
        const Tables x = tables_along(COLUMNS, float(out.x[fit]), width_x);
        const Tables y = tables_along(ROWS, float(out.y[fit]), width_y);
        Matrix inverse = {}, noise = {};
        add_products(x.plain, y.plain, 1.0f, inverse);
        const float size = fabsf(amplitude);
        if (camera.gain_known) {
            const float shot = camera.gain / size;
            add_products(x.weighted, y.weighted, amplitude > 0.0f ? shot : 0.0f, noise);
            add_products(x.plain, y.plain, shot * fmaxf(background / size, 0.0f), noise);
        }
        const Unknown unknown = unknown_of(limits, camera, out, fit);
        invert(inverse, unknown);
        const auto covariance = [&](int p, int q) {
            return camera.gain_known ? between(inverse, noise, p, q)
                                     : inverse[p][q] * scatter * scatter;
        };
        float variance[PARAMETERS];
#pragma unroll
        for (int p = 0; p < PARAMETERS; ++p) {
            const float width = p == IS_X || p == WIDTH_X ? width_x : width_y;
            variance[p] = covariance(p, p);
            const float error = sqrtf(variance[p]);
            errors[p] = unknown.is[p] ? NOT_A_NUMBER
                        : p < SHAPE   ? error * STEP_UNIT(p) * width
                                      : error * size;
        }
        errors[PARAMETERS] = sqrtf(photons_variance(variance, covariance)) * width_x * width_y *
                             size * (INTEGRAL / camera.gain);
    }
#pragma unroll
    for (int e = 0; e <= PARAMETERS; ++e) column[(VALUES + e) * out.length] = errors[e];
}
