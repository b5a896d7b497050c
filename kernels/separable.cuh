// The least-squares sums of a separable profile f(x, y) = u(x) v(y).
//
// Sums without the data are products of sums along the axes; only the sums with the data,
// and chi-square, visit the pixels. Amplitude and background are implicit (variable
// projection, Golub & Pereyra 1973), with Kaufman's (1975) Jacobian: the derivative of the
// profile less its projection on what the implicit parameters can take up.

#include "profiles.cuh"
#include "warp.cuh"

struct Shape {
    float x, y, sigma;
};

// A point of the search: shape, implicit amplitudes and the sum of squared residuals.
struct Point {
    Shape shape;
    float amplitude, background, chi;
};

// J'J / amplitude^2 (its upper triangle) and J'r / amplitude^2.
struct Normal {
    float xx, xy, xs, yy, ys, ss;
};
struct Gradient {
    float x, y, s;
};

struct AmplitudeBounds {
    bool bounded;
    float amplitude_min, amplitude_max, background_min, background_max;
};

// Amplitude, background and the weights with which they project.
struct Amplitudes {
    float amplitude, background, w_amplitude, w_background;
};

// A lane's own pixels, less the mean of the ROI and over its range.
typedef float Pixels[OWN_ROWS][OWN_COLUMNS];

struct DataSums {
    float f, x, y, s;
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

// Where the free minimum lies; the sum of the pixels is 0.
__device__ __forceinline__ Amplitudes free_amplitudes(float f, float ff, float fg) {
    Amplitudes a;
    a.w_background = 1.0f / PIXELS;
    a.w_amplitude = 1.0f / (ff - f * f * a.w_background);
    a.amplitude = fg * a.w_amplitude;
    a.background = -a.amplitude * f * a.w_background;
    return a;
}

// Chi-square less the data's own sum of squares; good enough to compare two edges.
__device__ __forceinline__ float misfit(float f, float ff, float fg, float a, float b) {
    return a * a * ff + b * (a * f * 2.0f + b * PIXELS) - a * fg * 2.0f;
}

// NaN stays NaN.
__device__ __forceinline__ float clamp(float value, float low, float high) {
    return value < low ? low : value > high ? high : value;
}

// The same within bounds: the exact minimum of the 2-D quadratic in a box. A free minimum
// outside the box moves to an edge, the background's or the amplitude's, whichever is
// lower. What lies at its bound projects nothing.
__device__ __forceinline__ Amplitudes bounded_amplitudes(float f, float ff, float fg,
                                                         const AmplitudeBounds& bounds) {
    Amplitudes a = free_amplitudes(f, ff, fg);
    const float a_min = bounds.amplitude_min, a_max = bounds.amplitude_max;
    const float b_min = bounds.background_min, b_max = bounds.background_max;
    if (!(a.amplitude >= a_min && a.amplitude <= a_max && a.background >= b_min &&
          a.background <= b_max)) {
        const float b1 = clamp(a.background, b_min, b_max);
        const float a1 = clamp((fg - b1 * f) / ff, a_min, a_max);
        const float a2 = clamp(a.amplitude, a_min, a_max);
        const float b2 = clamp(-a2 * f * a.w_background, b_min, b_max);
        const bool first = misfit(f, ff, fg, a1, b1) < misfit(f, ff, fg, a2, b2);
        a.amplitude = first ? a1 : a2;
        a.background = first ? b1 : b2;
    }
    if (!(a.background > b_min && a.background < b_max)) a.w_background = 0.0f;
    a.w_amplitude = 1.0f / (ff - f * f * a.w_background);
    if (!(a.amplitude > a_min && a.amplitude < a_max)) a.w_amplitude = 0.0f;
    return a;
}

// J'J and J'r, divided by amplitude^2, for steps in the profile's units. The residual is
// orthogonal to what the implicit parameters take up, so the projection drops out of J'r.
__device__ __forceinline__ void normal_equations(const AxisSums& u, const AxisSums& v,
                                                 const DataSums& g, const Amplitudes& a,
                                                 Normal& normal, Gradient& gradient) {
    const float wb = a.w_background, wa = a.w_amplitude;
    const float f = u.u * v.u;
    const float f_x = u.c * v.u, f_y = u.u * v.c, f_s = u.s * v.u + u.u * v.s;
    const float h_x = u.uc * v.uu, h_y = u.uu * v.uc, h_s = u.us * v.uu + u.uu * v.us;
    const float p_x = f_x * wb, p_y = f_y * wb, p_s = f_s * wb;
    const float c_x = h_x - f * p_x, c_y = h_y - f * p_y, c_s = h_s - f * p_s;
    const float q_x = c_x * wa, q_y = c_y * wa, q_s = c_s * wa;
    normal.xx = u.cc * v.uu - f_x * p_x - c_x * q_x;
    normal.xy = u.uc * v.uc - f_x * p_y - c_x * q_y;
    normal.xs = u.cs * v.uu + u.uc * v.us - f_x * p_s - c_x * q_s;
    normal.yy = u.uu * v.cc - f_y * p_y - c_y * q_y;
    normal.ys = u.us * v.uc + u.uu * v.cs - f_y * p_s - c_y * q_s;
    normal.ss = u.ss * v.uu + 2.0f * u.us * v.us + u.uu * v.ss - f_s * p_s - c_s * q_s;
    const float inverse = 1.0f / a.amplitude;
    gradient.x = (g.x - a.background * f_x) * inverse - h_x;
    gradient.y = (g.y - a.background * f_y) * inverse - h_y;
    gradient.s = (g.s - a.background * f_s) * inverse - h_s;
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

// All there is to know about a trial shape.
__device__ __forceinline__ Point evaluate(const Pixels& pixels, const Shape& shape,
                                          const AmplitudeBounds& bounds, Normal& normal,
                                          Gradient& gradient) {
    const float inverse = CENTER_UNIT / shape.sigma;
    const Profile nothing = {0.0f, 0.0f, 0.0f};
    Profile u[OWN_COLUMNS];
    AxisSums along_x = {}, along_y = {};
    const float left = (float(first_own_column()) - shape.x) * inverse;
#pragma unroll
    for (int i = 0; i < OWN_COLUMNS; ++i) {
        u[i] = gaussian(fmaf(float(i), inverse, left));
        if (!has_column(i)) u[i] = nothing;
        along_x.add(u[i]);
    }
    DataSums sums = {};
    float v[OWN_ROWS];
    const float top = (float(first_own_row()) - shape.y) * inverse;
#pragma unroll
    for (int k = 0; k < OWN_ROWS; ++k) {
        Profile p = gaussian(fmaf(float(k), inverse, top));
        if (!has_row(k)) p = nothing;
        along_y.add(p);
        v[k] = p.value;
        float a = 0.0f, b = 0.0f, c = 0.0f;
#pragma unroll
        for (int i = 0; i < OWN_COLUMNS; ++i) {
            a = fmaf(u[i].value, pixels[k][i], a);
            b = fmaf(u[i].center, pixels[k][i], b);
            c = fmaf(u[i].sigma, pixels[k][i], c);
        }
        sums.f = fmaf(p.value, a, sums.f);
        sums.x = fmaf(p.value, b, sums.x);
        sums.y = fmaf(p.center, a, sums.y);
        sums.s = fmaf(p.sigma, a, fmaf(p.value, c, sums.s));
    }
    along_x = join_over_columns(along_x);
    along_y = join_over_rows(along_y);
    sums = {sum_over_fit(sums.f), sum_over_fit(sums.x), sum_over_fit(sums.y),
            sum_over_fit(sums.s)};
    const float f = along_x.u * along_y.u, ff = along_x.uu * along_y.uu;
    const Amplitudes a = bounds.bounded ? bounded_amplitudes(f, ff, sums.f, bounds)
                                        : free_amplitudes(f, ff, sums.f);
    normal_equations(along_x, along_y, sums, a, normal, gradient);
    return {shape, a.amplitude, a.background, chi_square(pixels, u, v, a)};
}
