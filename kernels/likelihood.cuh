// Maximum likelihood of Poisson counts, by Fisher scoring (Laurence & Chromy 2010; with
// read-out noise after Huang et al. 2013).
//
// In photo-electrons, the data are e and the model is h = amplitude f + background; a pixel's
// read-out variance is added to both. What is minimised is the deviance, over the shape and
// both amplitudes together; with w = 1/h and q = e/h - 1, S is the Fisher information, which
// is never indefinite, and T the gradient. The search, whose steps need the true curvature of
// the deviance, e/h^2, takes the mean of both for w, which is also always above 0.

#include "pixelwise.cuh"

// Half the deviance of a pixel, h - e - e ln(h/e). Where h is near e, these terms cancel:
// with s = (h - e)/(h + e) it is (h - e) s - 2 e (atanh(s) - s).
__device__ __forceinline__ float half_deviance(float e, float h) {
    const float difference = h - e, s = difference / (h + e), ss = s * s;
    const float series = fmaf(fmaf(fmaf(1.0f / 9.0f, ss, 1.0f / 7.0f), ss, 0.2f), ss, 1.0f / 3.0f);
    const float near = difference * s - 2.0f * e * s * ss * series;
    const float far = difference + (e > 0.0f ? e * logf(e / h) : 0.0f);
    return ss < 0.09f ? near : far;
}

// S and T at a point, with Fisher's weights or the search's, and the deviance; not a number
// where the model is not above 0 everywhere.
template <bool fisher>
__device__ __forceinline__ float likelihood_sums(const Room& room, const float (&point)[PARAMETERS],
                                                 Sums& sums) {
    const float* pixels = room.pixels[lane_number()];
    float shape[SHAPE];
#pragma unroll
    for (int j = 0; j < SHAPE; ++j) shape[j] = point[j];
    sums = {};
    float total = 0.0f, row = 0.0f;
    visit(shape, [&](int place, float f, const float (&d)[SHAPE]) {
        const float variance = plane_of(room, place);
        const bool counted = !PLANES || variance >= 0.0f;
        const float e = pixels[place];
        const float h = fmaf(point[IS_F], f, point[IS_ONE]) + (PLANES ? variance : 0.0f);
        const float w = counted ? 1.0f / h : 0.0f;
        const float q = counted ? fmaf(e, w, -1.0f) : 0.0f;
        add<true>(sums, d, f, fisher ? w : w * fmaf(q, 0.5f, 1.0f), q);
        const float own = h > 0.0f ? half_deviance(e, h) : NOT_A_NUMBER;
        row += counted ? own : 0.0f;
    }, [&] {
        total += row;
        row = 0.0f;
    });
    join<true>(sums);
    return 2.0f * sum_over_fit(total);
}

// The equations for all parameters: the model's derivatives with respect to the shape are
// those of the profile, times the amplitude.
__device__ __forceinline__ void likelihood_equations(const Sums& sums, float amplitude,
                                                     Equations<PARAMETERS>& equations) {
    equations = sums;
#pragma unroll
    for (int i = 0; i < SHAPE; ++i) {
        if (is_fixed<SHAPE>(i)) continue;
        equations.b[i] *= amplitude;
#pragma unroll
        for (int j = i; j < PARAMETERS; ++j)
            equations.at(i, j) *= j < SHAPE ? amplitude * amplitude : amplitude;
        if (is_undetermined(sums, i)) equations.at(i, i) = equations.b[i] = 0.0f;
    }
}

// Bounds in photo-electrons. A background of nothing would make far pixels impossible.
__device__ __forceinline__ Ends likelihood_ends(const Limits& limits, float gain, float mean) {
    const float inverse = 1.0f / gain, low = limits.background_min * inverse;
    return ends_of(limits, limits.amplitude_min * inverse, limits.amplitude_max * inverse,
                   low == 0.0f ? LEAST_BACKGROUND * mean : low, limits.background_max * inverse);
}

// Turns the lane's pixels into photo-electrons, with the read-out variance; returns their mean.
__device__ __forceinline__ float to_electrons(Room& room, const Data& data, Kept& kept,
                                              float gain) {
    const float unit = 1.0f / (kept.scale[lane_number()] * gain);
    const float level = kept.level[lane_number()] / gain;
    float* pixels = room.pixels[lane_number()];
    float total = 0.0f;
    __syncwarp();  // other lanes have looked at these pixels
    over_own_pixels([&](int place, int, int) {
        const float variance = plane_of(room, place);
        if (PLANES && variance < 0.0f) return;
        const float e = fmaf(pixels[place], unit, level);
        total += fmaxf(e, 0.0f);
        pixels[place] = fmaxf(e + variance, 0.0f);
    });
    return sum_over_fit(total) / data.valid;
}

// Begins the search where least squares ended.
__device__ __forceinline__ void begin_likelihood(Kept& kept, const Ends& ends, float gain,
                                                 float mean, Search<PARAMETERS>& search) {
    const int lane = lane_number();
    const float unit = 1.0f / (kept.scale[lane] * gain);
    float start[PARAMETERS];
#pragma unroll
    for (int j = 0; j < SHAPE; ++j) start[j] = kept.point[j][lane];
    start[IS_F] = fmaxf(kept.amplitude() * unit, FIRST_AMPLITUDE * mean);
    start[IS_ONE] =
        fmaxf(fmaf(kept.background(), unit, kept.level[lane] / gain), FIRST_BACKGROUND * mean);
#pragma unroll
    for (int j = SHAPE; j < PARAMETERS; ++j) start[j] = clamp(start[j], ends.low[j], ends.high[j]);
    begin(search, kept, start);
    kept.scale[lane] = 1.0f / gain;
    kept.level[lane] = 0.0f;
}

// Tries one step of maximum likelihood, and finds the next.
__device__ __forceinline__ void iterate(const Room& room, const Data& data,
                                        Search<PARAMETERS>& search, Kept& kept,
                                        const Limits& limits, const Ends& ends) {
    Sums sums;
    Equations<PARAMETERS> equations;
    const float chi = likelihood_sums<false>(room, search.trial, sums);
    const float amplitude = search.trial[IS_F];
    likelihood_equations(sums, amplitude, equations);
    if (search.stop != STOP_RUNNING) return;
    // A residual is known to the rounding error of the model over its root.
    const float rounding = ROUNDING * sqrtf(fabsf(amplitude) + fabsf(search.trial[IS_ONE]));
    judge(search, kept, limits, ends.low, ends.high,
          {chi, 1.0f, rounding, data.valid, limits.max_error,
           amplitude * amplitude * sums.at(IS_F, IS_F)},
          equations);
}
