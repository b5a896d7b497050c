// The least-squares sums of a separable profile f(x, y) = u(x) v(y).
//
// Sums without the data are products of sums along the axes; only the sums with the data,
// and chi-square, visit the pixels. Amplitude and background are implicit, with Kaufman's
// (1975) Jacobian: the derivative of the profile less its projection on what the implicit
// parameters can take up.

#include "search.cuh"

// A point of the search: implicit amplitudes and the sum of squared residuals.
struct Point {
    float amplitude, background, chi;
};

// A lane's own pixels, less the mean of the ROI and over its range.
typedef float Pixels[OWN_ROWS][OWN_COLUMNS];

// Of f g, and of its derivatives with respect to the shape.
struct DataSums {
    float f, p[SHAPE];
};

__device__ __forceinline__ AxisSums join_over_columns(AxisSums a) {
    return {sum_over_columns(a.u),  sum_over_columns(a.c),  sum_over_columns(a.s),
            sum_over_columns(a.uu), sum_over_columns(a.uc), sum_over_columns(a.us),
            sum_over_columns(a.cc), sum_over_columns(a.cs), sum_over_columns(a.ss)};
}
__device__ __forceinline__ AxisSums join_over_rows(AxisSums a) {
    return {sum_over_rows(a.u),  sum_over_rows(a.c),  sum_over_rows(a.s),
            sum_over_rows(a.uu), sum_over_rows(a.uc), sum_over_rows(a.us),
            sum_over_rows(a.cc), sum_over_rows(a.cs), sum_over_rows(a.ss)};
}

// Sums of f_j, of f f_j and of f_i f_j, the derivatives with respect to the shape.
struct ShapeSums {
    float f[SHAPE], ff[SHAPE];
    Equations<SHAPE> products;
};

__device__ __forceinline__ ShapeSums shape_sums(const AxisSums& u, const AxisSums& v) {
    ShapeSums s;
    Equations<SHAPE>& p = s.products;
    s.f[IS_X] = u.c * v.u, s.f[IS_Y] = u.u * v.c;
    s.ff[IS_X] = u.uc * v.uu, s.ff[IS_Y] = u.uu * v.uc;
    p.at(IS_X, IS_X) = u.cc * v.uu, p.at(IS_X, IS_Y) = u.uc * v.uc;
    p.at(IS_Y, IS_Y) = u.uu * v.cc;
#if ROUND
    s.f[WIDTH_X] = u.s * v.u + u.u * v.s;
    s.ff[WIDTH_X] = u.us * v.uu + u.uu * v.us;
    p.at(IS_X, WIDTH_X) = u.cs * v.uu + u.uc * v.us;
    p.at(IS_Y, WIDTH_X) = u.us * v.uc + u.uu * v.cs;
    p.at(WIDTH_X, WIDTH_X) = u.ss * v.uu + 2.0f * u.us * v.us + u.uu * v.ss;
#else
    s.f[WIDTH_X] = u.s * v.u, s.f[WIDTH_Y] = u.u * v.s;
    s.ff[WIDTH_X] = u.us * v.uu, s.ff[WIDTH_Y] = u.uu * v.us;
    p.at(IS_X, WIDTH_X) = u.cs * v.uu, p.at(IS_X, WIDTH_Y) = u.uc * v.us;
    p.at(IS_Y, WIDTH_X) = u.us * v.uc, p.at(IS_Y, WIDTH_Y) = u.uu * v.cs;
    p.at(WIDTH_X, WIDTH_X) = u.ss * v.uu, p.at(WIDTH_X, WIDTH_Y) = u.us * v.us;
    p.at(WIDTH_Y, WIDTH_Y) = u.uu * v.ss;
#endif
    return s;
}

// J'J and J'r, divided by amplitude^2, for steps in the profile's units. The residual is
// orthogonal to what the implicit parameters take up, so the projection drops out of J'r.
__device__ __forceinline__ void normal_equations(const AxisSums& u, const AxisSums& v,
                                                 const DataSums& g, const Amplitudes& a,
                                                 Equations<SHAPE>& equations) {
    const float f = u.u * v.u, inverse = 1.0f / a.amplitude;
    const ShapeSums s = shape_sums(u, v);
    float p[SHAPE], c[SHAPE], q[SHAPE];
#pragma unroll
    for (int j = 0; j < SHAPE; ++j) {
        p[j] = s.f[j] * a.w_background;
        c[j] = s.ff[j] - f * p[j];
        q[j] = c[j] * a.w_amplitude;
        equations.b[j] = (g.p[j] - a.background * s.f[j]) * inverse - s.ff[j];
    }
#pragma unroll
    for (int i = 0; i < SHAPE; ++i)
#pragma unroll
        for (int j = i; j < SHAPE; ++j)
            equations.at(i, j) = s.products.at(i, j) - s.f[i] * p[j] - c[i] * q[j];
}

// Sum of (g - background - amplitude u v)^2, from the residuals themselves: by rows, then
// over the rows, so that its rounding error stays below the smallest change that matters.
__device__ __forceinline__ float chi_square(const Pixels& pixels, const Profile (&u)[OWN_COLUMNS],
                                            const float (&v)[OWN_ROWS], const Amplitudes& a) {
    float total = 0.0f;
#pragma unroll
    for (int k = 0; k < OWN_ROWS; ++k) {
        const float av = a.amplitude * v[k];
        float row = 0.0f;
#pragma unroll
        for (int i = 0; i < OWN_COLUMNS; ++i) {
            const float residual = pixels[k][i] - fmaf(av, u[i].value, a.background);
            row = fmaf(residual, has_column(i) ? residual : 0.0f, row);
        }
        total += has_row(k) ? row : 0.0f;
    }
    return sum_over_fit(total);
}

// Adds a row's sums of u g, u' g, u° g, weighted with the profile along y.
__device__ __forceinline__ void add_row(DataSums& sums, const Profile& v, float u, float c,
                                        float s) {
    sums.f = fmaf(v.value, u, sums.f);
    sums.p[IS_X] = fmaf(v.value, c, sums.p[IS_X]);
    sums.p[IS_Y] = fmaf(v.center, u, sums.p[IS_Y]);
#if ROUND
    sums.p[WIDTH_X] = fmaf(v.width, u, fmaf(v.value, s, sums.p[WIDTH_X]));
#else
    sums.p[WIDTH_X] = fmaf(v.value, s, sums.p[WIDTH_X]);
    sums.p[WIDTH_Y] = fmaf(v.width, u, sums.p[WIDTH_Y]);
#endif
}

// All there is to know about a trial shape.
__device__ __forceinline__ Point evaluate(const Pixels& pixels, const float (&shape)[SHAPE],
                                          const AmplitudeBounds& bounds,
                                          Equations<SHAPE>& equations) {
    const Profile nothing = {0.0f, 0.0f, 0.0f};
    Profile u[OWN_COLUMNS];
    AxisSums along_x = {}, along_y = {};
    Axis x(float(first_own_column()), shape[IS_X], shape[WIDTH_X]);
#pragma unroll
    for (int i = 0; i < OWN_COLUMNS; ++i) {
        u[i] = x.at(i);
        if (!has_column(i)) u[i] = nothing;
        along_x.add(u[i]);
    }
    DataSums sums = {};
    float v[OWN_ROWS];
    Axis y(float(first_own_row()), shape[IS_Y], shape[WIDTH_Y]);
#pragma unroll
    for (int k = 0; k < OWN_ROWS; ++k) {
        Profile p = y.at(k);
        if (!has_row(k)) p = nothing;
        along_y.add(p);
        v[k] = p.value;
        float a = 0.0f, b = 0.0f, c = 0.0f;
#pragma unroll
        for (int i = 0; i < OWN_COLUMNS; ++i) {
            a = fmaf(u[i].value, pixels[k][i], a);
            b = fmaf(u[i].center, pixels[k][i], b);
            c = fmaf(u[i].width, pixels[k][i], c);
        }
        add_row(sums, p, a, b, c);
    }
    along_x = join_over_columns(along_x);
    along_y = join_over_rows(along_y);
    sums.f = sum_over_fit(sums.f);
#pragma unroll
    for (int j = 0; j < SHAPE; ++j) sums.p[j] = sum_over_fit(sums.p[j]);
    const float f = along_x.u * along_y.u, ff = along_x.uu * along_y.uu;
    const Amplitudes a = amplitudes_of({PIXELS, 1.0f / PIXELS}, f, ff, sums.f, bounds);
    normal_equations(along_x, along_y, sums, a, equations);
    return {a.amplitude, a.background, chi_square(pixels, u, v, a)};
}
