// The Levenberg-Marquardt search: one step of one fit at a time, judged, taken or not.
//
// It knows nothing of models and estimators. A step's N parameters are the shape's, and,
// where amplitude and background are not implicit, these two.

#include "amplitudes.cuh"
#include "pointwise.cuh"
#include "warp.cuh"

// What decides where a fit stops and what it may reach; as napari_spotfit.engine.cuda.layout
// fills it in.
struct Limits {
    float max_iterations, max_error, min_delta, min_step;
    float low[SHAPE], high[SHAPE];
    float amplitude_min, amplitude_max, background_min, background_max;
    int bounded_amplitudes;
};

#define STOP_RUNNING -1

// A fit under way: the point to be tried next, and how it goes.
template <int N>
struct Search {
    float trial[N];
    float chi, damping, decrease, iterations;
    int stop;
    // Of the step that led there: what it was to lower chi-square by, had it not been
    // stretched by so much.
    float expected, stretch;
};

// The normal matrix (its upper triangle, by rows) and the right-hand side.
template <int N>
struct Equations {
    float a[N * (N + 1) / 2], b[N];

    __device__ __forceinline__ float& at(int i, int j) { return a[upper<N>(i, j)]; }
    __device__ __forceinline__ float at(int i, int j) const { return a[upper<N>(i, j)]; }
};

// What a trial came to.
struct Outcome {
    float chi;
    float scale;     // of the equations: they are those of chi-square, divided by it
    float rounding;  // the rounding error of a residual
    float pixels;
    float accepted;  // chi-square below which the fit is good enough
    float norm;      // the sum of squares that a step's change of the model is compared to
};

// The rest of it, which is looked at now and then, is kept in shared memory, so that the
// registers are left to the pixels: the best point so far (shape, amplitude and background)
// with its equations, and the pixels' unit, (counts - level) * scale. Each lane has numbers
// of its own. There is room for the equations of MOST parameters.
struct Kept {
    float point[SHAPE + 2][32];
    float normal[MOST * (MOST + 1) / 2][32], gradient[MOST][32];
    float scale[32], level[32];

    template <int N>
    __device__ __forceinline__ void put(const float (&trial)[N], const Equations<N>& equations) {
        const int lane = lane_number();
#pragma unroll
        for (int j = 0; j < N; ++j) point[j][lane] = trial[j];
#pragma unroll
        for (int k = 0; k < N * (N + 1) / 2; ++k) normal[k][lane] = equations.a[k];
#pragma unroll
        for (int j = 0; j < N; ++j) gradient[j][lane] = equations.b[j];
    }
    template <int N>
    __device__ __forceinline__ void get(Equations<N>& equations) const {
        const int lane = lane_number();
#pragma unroll
        for (int k = 0; k < N * (N + 1) / 2; ++k) equations.a[k] = normal[k][lane];
#pragma unroll
        for (int j = 0; j < N; ++j) equations.b[j] = gradient[j][lane];
    }
    __device__ __forceinline__ void put_amplitudes(float amplitude, float background) {
        point[SHAPE][lane_number()] = amplitude;
        point[SHAPE + 1][lane_number()] = background;
    }
    __device__ __forceinline__ Shape shape() const {
        Shape shape;
#pragma unroll
        for (int j = 0; j < SHAPE; ++j) shape.p[j] = point[j][lane_number()];
        return shape;
    }
    __device__ __forceinline__ float amplitude() const { return point[SHAPE][lane_number()]; }
    __device__ __forceinline__ float background() const {
        return point[SHAPE + 1][lane_number()];
    }
};

__device__ __forceinline__ AmplitudeBounds own_bounds(const Kept& kept, const Limits& limits) {
    const float scale = kept.scale[lane_number()], level = kept.level[lane_number()];
    return {limits.bounded_amplitudes != 0, limits.amplitude_min * scale,
            limits.amplitude_max * scale, (limits.background_min - level) * scale,
            (limits.background_max - level) * scale};
}

// Bounds of all parameters, in the pixels' own unit.
struct Ends {
    float low[PARAMETERS], high[PARAMETERS];
};

__device__ __forceinline__ Ends ends_of(const Limits& limits, float amplitude_min,
                                        float amplitude_max, float background_min,
                                        float background_max) {
    Ends ends;
#pragma unroll
    for (int j = 0; j < SHAPE; ++j) ends.low[j] = limits.low[j], ends.high[j] = limits.high[j];
    ends.low[SHAPE] = amplitude_min, ends.high[SHAPE] = amplitude_max;
    ends.low[SHAPE + 1] = background_min, ends.high[SHAPE + 1] = background_max;
    return ends;
}

// The first trial is the start itself: a unit matrix and no gradient lead nowhere else.
template <int N>
__device__ __forceinline__ void begin(Search<N>& search, Kept& kept, const float (&start)[N]) {
    Equations<N> nowhere = {};
#pragma unroll
    for (int j = 0; j < N; ++j) {
        search.trial[j] = start[j];
        nowhere.at(j, j) = 1.0f;
    }
    search.chi = INFINITE;
    search.damping = INITIAL_DAMPING / DAMPING_DECREASE;
    search.decrease = INFINITE;
    search.iterations = -1.0f;
    search.stop = STOP_RUNNING;
    search.expected = 0.0f;
    search.stretch = 1.0f;
    kept.put(start, nowhere);
}

// Whether a parameter takes no part in the search.
template <int N>
__device__ __forceinline__ constexpr bool is_fixed(int j) {
    return j < SHAPE && HELD_AT(j);
}

// The curvature that damps a step along a parameter; of expressions, it is not too small.
template <int N>
__device__ __forceinline__ float damped(const Equations<N>& equations, int j,
                                        const float (&from)[N], float norm) {
    const float own = equations.at(j, j);
    if (PROFILE != CUSTOM || j >= SHAPE) return own;
    return fmaxf(own, LEAST_CURVATURE * norm / fmaxf(from[j] * from[j], 1.0f));
}

// Solves (A + damping diag A) step = b by its LDL' factors. Where the matrix may be singular
// (GUARDED), a parameter to which the others leave no curvature stays where it is. Amplitude
// and background, if they are searched, come last and go no further than to their bounds; then
// the rest of the step is the best for that.
template <int N>
__device__ __forceinline__ void damped_step(const Equations<N>& equations, float damping,
                                            const float (&from)[N], const float (&low)[N],
                                            const float (&high)[N], float norm,
                                            float (&step)[N]) {
    Equations<N> u = equations;
    float inverse[N];
#pragma unroll
    for (int k = 0; k < N; ++k) {
        if (PROFILE == CUSTOM)
            u.at(k, k) = fmaf(damping, damped(equations, k, from, norm), u.at(k, k));
        else
            u.at(k, k) *= 1.0f + damping;
    }
#pragma unroll
    for (int k = 0; k < N; ++k) {
        if (is_fixed<N>(k)) continue;
        const bool firm = !GUARDED || u.at(k, k) > SINGULAR * equations.at(k, k);
        inverse[k] = firm ? 1.0f / u.at(k, k) : 0.0f;
        float l[N];
#pragma unroll
        for (int j = k + 1; j < N; ++j) l[j] = u.at(k, j) * inverse[k];
#pragma unroll
        for (int j = k + 1; j < N; ++j) {
#pragma unroll
            for (int m = j; m < N; ++m) u.at(j, m) -= l[j] * u.at(k, m);
            u.b[j] -= l[j] * u.b[k];
        }
#pragma unroll
        for (int j = k + 1; j < N; ++j) u.at(k, j) = l[j];
    }
#pragma unroll
    for (int k = N - 1; k >= 0; --k) {
        step[k] = 0.0f;
        if (is_fixed<N>(k)) continue;
        step[k] = u.b[k] * inverse[k];
#pragma unroll
        for (int j = k + 1; j < N; ++j) step[k] -= u.at(k, j) * step[j];
        if (k >= SHAPE) step[k] = clamp(step[k], low[k] - from[k], high[k] - from[k]);
    }
}

__device__ __forceinline__ bool is_held(float value, float push, float low, float high) {
    return (value <= low && push < 0.0f) || (value >= high && push > 0.0f);
}

// Takes parameters that are at a bound and pushed outwards out of the next step.
template <int N>
__device__ __forceinline__ void hold(const float (&point)[N], const float (&low)[N],
                                     const float (&high)[N], Equations<N>& equations) {
    bool held[N];
#pragma unroll
    for (int j = 0; j < N; ++j)
        held[j] = !is_fixed<N>(j) && is_held(point[j], equations.b[j], low[j], high[j]);
#pragma unroll
    for (int i = 0; i < N; ++i)
#pragma unroll
        for (int j = i + 1; j < N; ++j)
            if (held[i] || held[j]) equations.at(i, j) = 0.0f;
#pragma unroll
    for (int j = 0; j < N; ++j)
        if (held[j]) equations.b[j] = 0.0f;
}

// Whether every parameter has moved by less than its share.
template <int N>
__device__ __forceinline__ bool is_small(const Kept& kept, const float (&to)[N], float share) {
    bool small = true;
#pragma unroll
    for (int j = 0; j < N; ++j) {
        const float from = kept.point[j][lane_number()];
        small = small && (is_fixed<N>(j) || fabsf(to[j] - from) < share * fabsf(from));
    }
    return small;
}

// Whether chi-square has changed by less than min_delta of it, for good.
//
// Steps that shrink slowly add up: from a decrease and the one before it follows what is
// still to come (a geometric series), and that must be small as well. A change below what
// rounding makes of chi-square is none, and a chi-square of rounding alone gets no better.
__device__ __forceinline__ bool is_settled(float change, bool better, float last, float chi,
                                           const Outcome& trial, float min_delta) {
    const float enough = min_delta * chi;
    const bool slow = better && change * last > enough * (last - change);
    const float floor = ROUNDING_FLOOR * trial.pixels * trial.rounding;
    return (change <= enough && !slow) ||
           change <= 2.0f * trial.rounding * (sqrtf(chi) + floor) ||
           (!better && chi <= floor * trial.rounding);
}

// Whether a step is so short that what the linear model says of it is believed: of a
// product's width, or, of any other model, in what it changes the model by.
template <int N>
__device__ __forceinline__ bool is_short(const Equations<N>& equations, const float (&step)[N],
                                         float norm) {
    bool all = true;
#pragma unroll
    for (int j = 0; j < N; ++j) {
        if (is_fixed<N>(j)) continue;
        all = all && (GUARDED ? step[j] * step[j] * equations.at(j, j) <=
                                    SKIPPED_STEP * SKIPPED_STEP * norm
                              : fabsf(step[j]) < SKIPPED_STEP / STEP_UNIT(j));
    }
    return all;
}

// What a step lowers chi-square by, were the model linear.
template <int N>
__device__ __forceinline__ float expected_of(const Equations<N>& equations,
                                             const float (&step)[N], float damping, float scale,
                                             const float (&from)[N], float norm) {
    float sum = 0.0f;
#pragma unroll
    for (int j = 0; j < N; ++j) {
        if (is_fixed<N>(j)) continue;
        const float push =
            fmaf(damping * damped(equations, j, from, norm), step[j], equations.b[j]);
        sum = j == 0 ? step[j] * push : sum + step[j] * push;
    }
    return scale * sum;
}

// Whether the next step would settle the fit, were the model linear, and is short: then it
// is not worth an evaluation.
template <int N>
__device__ __forceinline__ bool is_over(const Equations<N>& equations, const float (&step)[N],
                                        float expected, float damping, float decrease,
                                        const Outcome& trial, float min_delta) {
    const float enough = min_delta * trial.chi;
    const bool slow = expected * decrease > enough * (decrease - expected);
    const float floor = 2.0f * ROUNDING_FLOOR * trial.pixels * trial.rounding * trial.rounding;
    const bool tiny = (expected <= enough && !slow) || expected <= floor;
    return tiny && is_short(equations, step, trial.norm) && damping <= SKIPPED_DAMPING;
}

// By what the next step is to be multiplied. Fisher's matrix lacks the model's second
// derivatives, so that steps of maximum likelihood near its end are all too long or all too
// short. What the deviance fell by, over what the linear model said of a step, tells its true
// curvature along it: over the model's it is (2 stretch - change/expected)/stretch^2.
template <int N>
__device__ __forceinline__ float next_stretch(const Search<N>& search, float change,
                                              bool believed) {
    // The first step's damping, too, whatever rounding makes of it.
    if (N == SHAPE || !believed || !(search.damping < 2.0f * SKIPPED_DAMPING)) return 1.0f;
    const float curvature = (2.0f * search.stretch - change / search.expected) /
                            (search.stretch * search.stretch);
    return 1.0f / clamp(curvature, 1.0f / LONGEST_STRETCH, 1.0f / SHORTEST_STRETCH);
}

// Where a step leads, within the bounds.
template <int N>
__device__ __forceinline__ void move(const float (&from)[N], const float (&step)[N],
                                     float stretch, const float (&low)[N],
                                     const float (&high)[N], float (&to)[N]) {
#pragma unroll
    for (int j = 0; j < N; ++j) {
        const float own = N == SHAPE ? step[j] : step[j] * stretch;
        const float unit = SHEARED && j == ANGLE ? 0.0f : step_unit(from, j);
        to[j] = is_fixed<N>(j) ? from[j] : fmaf(own, unit, from[j]);
    }
#if SHEARED
    add_shear(step[ANGLE] * (N == SHAPE ? 1.0f : stretch), to[WIDTH_X], to[WIDTH_Y], to[ANGLE]);
#endif
#pragma unroll
    for (int j = 0; j < N; ++j)
        if (!is_fixed<N>(j)) to[j] = clamp(to[j], low[j], high[j]);
}

// Judges the trial, whose outcome and equations are given, and finds the next one.
template <int N>
__device__ __forceinline__ void judge(Search<N>& search, Kept& kept, const Limits& limits,
                                      const float (&low)[N], const float (&high)[N],
                                      const Outcome& trial, Equations<N>& equations) {
    const float change = fabsf(trial.chi - search.chi);
    const bool better = trial.chi < search.chi;
    const bool stepped = search.iterations >= 0.0f;
    const bool small = stepped && is_small(kept, search.trial, limits.min_step);
    const bool tiny = stepped && is_settled(change, better, search.decrease, search.chi, trial,
                                            limits.min_delta);
    search.stretch = next_stretch(search, change, better && stepped);
    search.iterations += 1.0f;
    search.damping *= better ? DAMPING_DECREASE : DAMPING_INCREASE;
    if (better) {
        hold(search.trial, low, high, equations);
        search.chi = trial.chi;
        search.decrease = change;
        kept.put(search.trial, equations);
    } else {
        kept.get(equations);
    }
    float step[N], from[N];
#pragma unroll
    for (int j = 0; j < N; ++j)
        from[j] = better ? search.trial[j] : kept.point[j][lane_number()];
    damped_step(equations, search.damping, from, low, high, trial.norm, step);
    move(from, step, search.stretch, low, high, search.trial);
    search.expected = expected_of(equations, step, search.damping, trial.scale, from, trial.norm);

    // In rising order of precedence, so that the most telling condition is kept.
    int stop = STOP_RUNNING;
    if (search.iterations >= limits.max_iterations) stop = STOP_MAX_ITERATIONS;
    if (!better && (small || search.damping > MAX_DAMPING)) stop = STOP_NO_DECREASE;
    if (better && small) stop = STOP_MIN_STEP;
    if (better && is_over(equations, step, search.expected, search.damping, change, trial,
                          limits.min_delta))
        stop = STOP_MIN_DELTA;
    if (tiny) stop = STOP_MIN_DELTA;
    if (search.chi < trial.accepted) stop = STOP_MAX_ERROR;
    // A fit whose every trial was NaN or infinite has no parameters.
    if (stop != STOP_RUNNING && !(search.chi < INFINITE)) stop = STOP_INVALID;
    search.stop = stop;
}
