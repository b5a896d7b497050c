// One step of the least-squares search of a separable model.

#include "separable.cuh"

// Tries one step, and finds the next. Every trial point is evaluated in full, normal
// equations included: most trials are accepted, so this saves a second evaluation.
__device__ __forceinline__ void iterate(const Pixels& pixels, Search<SHAPE>& search, Kept& kept,
                                        const Limits& limits) {
    Equations<SHAPE> equations;
    const Point trial = evaluate(pixels, search.trial, own_bounds(kept, limits), equations);
    if (search.stop != STOP_RUNNING) return;
    if (trial.chi < search.chi) kept.put_amplitudes(trial.amplitude, trial.background);
    const float scale = kept.scale[lane_number()];
    judge(search, kept, limits, limits.low, limits.high,
          {trial.chi, trial.amplitude * trial.amplitude,
           ROUNDING * (1.0f + fabsf(trial.amplitude)), PIXELS, limits.max_error * scale * scale,
           0.0f},
          equations);
}
