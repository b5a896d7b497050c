// Implicit amplitudes: where the best amplitude and background lie for a given shape
// (variable projection, Golub & Pereyra 1973), from the sums of f, f^2 and f g; the sum of
// the data is 0. Weighted sums are over all weights.

#include "shape.cuh"

struct AmplitudeBounds {
    bool bounded;
    float amplitude_min, amplitude_max, background_min, background_max;
};

// Amplitude, background and the weights with which they project.
struct Amplitudes {
    float amplitude, background, w_amplitude, w_background;
};

// How many pixels there are, or what their weights sum up to.
struct Total {
    float pixels, inverse;
};

__device__ __forceinline__ Amplitudes free_amplitudes(const Total& total, float f, float ff,
                                                      float fg) {
    Amplitudes a;
    a.w_background = total.inverse;
    a.w_amplitude = 1.0f / (ff - f * f * a.w_background);
    a.amplitude = fg * a.w_amplitude;
    a.background = -a.amplitude * f * a.w_background;
    return a;
}

// Chi-square less the data's own sum of squares; good enough to compare two edges.
__device__ __forceinline__ float misfit(const Total& total, float f, float ff, float fg, float a,
                                        float b) {
    return a * a * ff + b * (a * f * 2.0f + b * total.pixels) - a * fg * 2.0f;
}

// The same within bounds: the exact minimum of the 2-D quadratic in a box. A free minimum
// outside the box moves to an edge, the background's or the amplitude's, whichever is
// lower. What lies at its bound projects nothing.
__device__ __forceinline__ Amplitudes bounded_amplitudes(const Total& total, float f, float ff,
                                                         float fg, const AmplitudeBounds& bounds) {
    Amplitudes a = free_amplitudes(total, f, ff, fg);
    const float a_min = bounds.amplitude_min, a_max = bounds.amplitude_max;
    const float b_min = bounds.background_min, b_max = bounds.background_max;
    if (!(a.amplitude >= a_min && a.amplitude <= a_max && a.background >= b_min &&
          a.background <= b_max)) {
        const float b1 = clamp(a.background, b_min, b_max);
        const float a1 = clamp((fg - b1 * f) / ff, a_min, a_max);
        const float a2 = clamp(a.amplitude, a_min, a_max);
        const float b2 = clamp(-a2 * f * a.w_background, b_min, b_max);
        const bool first = misfit(total, f, ff, fg, a1, b1) < misfit(total, f, ff, fg, a2, b2);
        a.amplitude = first ? a1 : a2;
        a.background = first ? b1 : b2;
    }
    if (!(a.background > b_min && a.background < b_max)) a.w_background = 0.0f;
    a.w_amplitude = 1.0f / (ff - f * f * a.w_background);
    if (!(a.amplitude > a_min && a.amplitude < a_max)) a.w_amplitude = 0.0f;
    return a;
}

__device__ __forceinline__ Amplitudes amplitudes_of(const Total& total, float f, float ff,
                                                    float fg, const AmplitudeBounds& bounds) {
    return bounds.bounded ? bounded_amplitudes(total, f, ff, fg, bounds)
                          : free_amplitudes(total, f, ff, fg);
}
