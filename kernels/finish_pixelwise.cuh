// From the state of a search to results in counts and pixels, with their errors, for fits that
// visit every pixel.
//
// Standard errors: with S the weighted sum over the pixels of d d' (see pixelwise.cuh), the
// covariance in units of the amplitude is S^-1 for maximum likelihood, s^2 S^-1 for least
// squares where the camera's gain is unknown, and else the sum of var z z' with z = S^-1 w d
// and the shot noise var = gain * model. What is held, or ended at a bound, is left out of S.

#include "begin.cuh"
#include "results.cuh"
#if LIKELIHOOD
#include "likelihood.cuh"
#endif

// The fit's parameters as the search left them, and what their units are in counts.
struct Finished {
    Shape shape;
    float amplitude, background, unit, level;
};

__device__ __forceinline__ Finished finished(const Kept& kept) {
    const int lane = lane_number();
    return {kept.shape(), kept.amplitude(), kept.background(), 1.0f / kept.scale[lane],
            kept.level[lane]};
}

// A turned Gaussian is the same with its axes exchanged: the first one is to be next to x,
// unless the caller has set bounds to axes or angle (CANONICAL 0: to the angle; 1: to an axis).
__device__ __forceinline__ void make_canonical(Shape& shape) {
#if PROFILE == ROTATED && CANONICAL > 0
    constexpr float turn = CANONICAL > 1 ? 0.5f * PI : PI;
    float& angle = shape.p[ANGLE];
    const float turns = ceilf(angle / turn - 0.5f);
    angle -= turns * turn;
    if (CANONICAL > 1 && fmodf(fabsf(turns), 2.0f) == 1.0f) {
        const float along = shape.p[WIDTH_X];
        shape.p[WIDTH_X] = shape.p[WIDTH_Y];
        shape.p[WIDTH_Y] = along;
    }
#endif
}

// The sum of the profile over all pixels, where the integral has no formula.
struct Whole {
    float f, d[SHAPE];
};

__device__ __forceinline__ Whole sum_of_profile(const Shape& shape) {
    Whole whole = {};
#if PROFILE == CUSTOM
    visit(shape.p, [&](int, float f, const float (&d)[SHAPE]) {
        whole.f += f;
#pragma unroll
        for (int j = 0; j < SHAPE; ++j) whole.d[j] += d[j];
    }, [] {});
    whole.f = sum_over_fit(whole.f);
#pragma unroll
    for (int j = 0; j < SHAPE; ++j) whole.d[j] = sum_over_fit(whole.d[j]);
#endif
    return whole;
}

// The photons of an amplitude of 1, and their derivatives with respect to shape (in steps'
// units, over the amplitude) and amplitude.
struct Light {
    float photons, d[PARAMETERS];
};

__device__ __forceinline__ Light light_of(const Shape& shape) {
    Light light = {};
#if PROFILE == CUSTOM
    const Whole whole = sum_of_profile(shape);
    light.photons = whole.f;
#pragma unroll
    for (int j = 0; j < SHAPE; ++j) light.d[j] = whole.d[j];
#else
    light.photons = shape.p[WIDTH_X] * shape.p[WIDTH_Y] * INTEGRAL;
    light.d[WIDTH_X] += light.photons * step_unit(shape.p, WIDTH_X) / shape.p[WIDTH_X];
    light.d[WIDTH_Y] += light.photons * step_unit(shape.p, WIDTH_Y) / shape.p[WIDTH_Y];
#endif
    light.d[IS_F] = light.photons;
    return light;
}

#if PROFILE == ROTATED

// Whether the spot is too round for its axes to have a direction.
__device__ __forceinline__ bool has_no_angle(const Sums& sums, const Shape& shape) {
    const float unit = step_unit(shape.p, ANGLE);
    return !(sums.at(ANGLE, ANGLE) > SINGULAR * unit * unit * sums.at(IS_F, IS_F));
}

#endif

__device__ __forceinline__ void fill(const Sums& sums, Matrix& matrix) {
#pragma unroll
    for (int i = 0; i < PARAMETERS; ++i)
#pragma unroll
        for (int j = i; j < PARAMETERS; ++j)
            matrix[i][j] = matrix[j][i] = sums.at(i, j);
}

// Variances of the parameters and of the photons; of the shape, in steps' units and times
// amplitude^2.
struct Variances {
    float of[PARAMETERS + 1];
};

// From the inverse matrix: of maximum likelihood, and of least squares with residuals of the
// variance `scatter`.
__device__ __forceinline__ Variances from_inverse(const Matrix& inverse, const Light& light,
                                                  float scatter) {
    Variances v;
    float photons = 0.0f;
#pragma unroll
    for (int p = 0; p < PARAMETERS; ++p) {
        v.of[p] = inverse[p][p] * scatter;
        float row = 0.0f;
#pragma unroll
        for (int q = 0; q < PARAMETERS; ++q) row = fmaf(inverse[p][q], light.d[q], row);
        photons = fmaf(light.d[p], row, photons);
    }
    v.of[PARAMETERS] = photons * scatter;
    return v;
}

// From the noise of each pixel, in the unit of the fit: what it moves the parameters by.
__device__ __forceinline__ Variances from_noise(const Room& room, const Finished& fit,
                                                const Matrix& inverse, const Light& light,
                                                float gain) {
    Variances v = {};
    float along[PARAMETERS];
#pragma unroll
    for (int p = 0; p < PARAMETERS; ++p) {
        along[p] = 0.0f;
#pragma unroll
        for (int q = 0; q < PARAMETERS; ++q) along[p] = fmaf(inverse[p][q], light.d[q], along[p]);
    }
    const float scale = 1.0f / fit.unit;
    const float peak = fmaxf(fit.amplitude, 0.0f);
    const float flat = fmaxf(fmaf(fit.level, scale, fit.background), 0.0f);
    visit(fit.shape.p, [&](int place, float f, const float (&d)[SHAPE]) {
        const float w = weight_of(room, place);
        const float noise = gain * scale * fmaf(peak, f, flat) * w * w;
        float photons = 0.0f;
#pragma unroll
        for (int p = 0; p < PARAMETERS; ++p) {
            float moved = 0.0f;
#pragma unroll
            for (int q = 0; q < PARAMETERS; ++q) {
                const float own = q < SHAPE ? d[q] : q == IS_F ? f : 1.0f;
                moved = fmaf(inverse[p][q], own, moved);
                if (p == 0) photons = fmaf(along[q], own, photons);
            }
            v.of[p] = fmaf(noise * moved, moved, v.of[p]);
        }
        v.of[PARAMETERS] = fmaf(noise * photons, photons, v.of[PARAMETERS]);
    }, [] {});
#pragma unroll
    for (int p = 0; p <= PARAMETERS; ++p) v.of[p] = sum_over_fit(v.of[p]);
    return v;
}

// Writes the standard errors; all lanes of the warp take part.
__device__ __forceinline__ void write_errors(const Room& room, const Data& data,
                                             const Finished& fit, const Ends& ends,
                                             const Light& light, const Camera& camera,
                                             const Output& out, float scatter, bool valid,
                                             bool writes, long long number) {
    float point[PARAMETERS];
#pragma unroll
    for (int j = 0; j < SHAPE; ++j) point[j] = fit.shape.p[j];
    point[IS_F] = fit.amplitude, point[IS_ONE] = fit.background;
    Sums sums;
#if LIKELIHOOD
    likelihood_sums<true>(room, point, sums);
#else
    least_squares_sums(room, data, fit.shape.p, {}, sums);
    sums.at(IS_ONE, IS_ONE) = data.weights.pixels;
#endif
    Unknown unknown = unknown_at(point, ends);
#if PROFILE == ROTATED
    if (!HELD_AT(ANGLE) && has_no_angle(sums, fit.shape)) unknown.is[ANGLE] = true;
#endif
    Matrix inverse;
    fill(sums, inverse);
    invert(inverse, unknown);
    const bool shot = !LIKELIHOOD && camera.gain_known;
    const Variances v = shot ? from_noise(room, fit, inverse, light, camera.gain)
                             : from_inverse(inverse, light, LIKELIHOOD ? 1.0f : scatter);
    if (!writes) return;
    float* column = out.values + number;
#pragma unroll
    for (int e = 0; e <= PARAMETERS; ++e) {
        float error = sqrtf(v.of[e]);
        if (e < SHAPE) error *= fabsf(step_unit(fit.shape.p, e) / fit.amplitude);
        else error *= fit.unit;
        if (e == PARAMETERS) error /= camera.gain;
#if PROFILE == ROTATED
        if (e == ANGLE) error /= DEGREE;
#endif
        if (e < SHAPE && HELD_AT(e)) error = 0.0f;
        if (e < PARAMETERS && unknown.is[e]) error = NOT_A_NUMBER;
        column[(VALUES + e) * out.length] = valid ? error : NOT_A_NUMBER;
    }
}

// Writes all there is to know about a fit that has ended.
__device__ __forceinline__ void write(const Room& room, const Data& data, const Kept& kept,
                                      const Limits& limits, const Ends& ends,
                                      const Camera& camera, const Output& out, float chi,
                                      float iterations, int stop, bool writes,
                                      long long number) {
    Finished fit = finished(kept);
    make_canonical(fit.shape);
    const bool valid = stop != STOP_INVALID;
    const float freedom = data.valid - FITTED;
    const Light light = light_of(fit.shape);
    if (writes) {
        const float amplitude =
            clamp(fit.amplitude * fit.unit, limits.amplitude_min, limits.amplitude_max);
        const float background = clamp(fmaf(fit.background, fit.unit, fit.level),
                                       limits.background_min, limits.background_max);
        const float in_counts = LIKELIHOOD ? chi : chi * fit.unit * fit.unit * data.weight;
        const float photons = amplitude * light.photons / camera.gain;
        const float values[] = {amplitude, background, photons, in_counts, in_counts / freedom};
        Shape shape = fit.shape;
#if PROFILE == ROTATED
        shape.p[ANGLE] /= DEGREE;
#endif
        write_values(out, number, valid, shape, values);
        out.iterations[number] = (unsigned short)fmaxf(iterations, 0.0f);
        out.stop[number] = (unsigned char)stop;
    }
    if (out.errors)
        write_errors(room, data, fit, ends, light, camera, out, chi / freedom, valid, writes, number);
}
