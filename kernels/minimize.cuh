// The Levenberg-Marquardt search: one step of one fit at a time, tried, judged, taken or not.

#include "separable.cuh"

// What decides where a fit stops and what it may reach; as napari_spotfit.backends.cuda.layout
// fills it in.
struct Limits {
    float max_iterations, max_error, min_delta, min_step;
    float sigma_min, sigma_max;
    float amplitude_min, amplitude_max, background_min, background_max;
    int bounded_amplitudes;
};

#define STOP_RUNNING -1

// A fit under way: the shape to be tried next, and how it goes.
struct Search {
    Shape trial;
    float chi, damping, decrease, iterations;
    int stop;
};

// The rest of it, which is looked at now and then, is kept in shared memory, so that the
// registers are left to the pixels: the best point so far with its normal equations, and
// the pixels' unit, (counts - level) * scale. Each lane has numbers of its own.
struct Kept {
    float sigma[32], x[32], y[32], amplitude[32], background[32];
    float xx[32], xy[32], xs[32], yy[32], ys[32], ss[32], gx[32], gy[32], gs[32];
    float scale[32], level[32];

    __device__ __forceinline__ void put(const Shape& shape, const Normal& a, const Gradient& g) {
        const int i = lane_number();
        x[i] = shape.x, y[i] = shape.y, sigma[i] = shape.sigma;
        xx[i] = a.xx, xy[i] = a.xy, xs[i] = a.xs, yy[i] = a.yy, ys[i] = a.ys, ss[i] = a.ss;
        gx[i] = g.x, gy[i] = g.y, gs[i] = g.s;
    }
    __device__ __forceinline__ void get(Normal& a, Gradient& g) const {
        const int i = lane_number();
        a = {xx[i], xy[i], xs[i], yy[i], ys[i], ss[i]};
        g = {gx[i], gy[i], gs[i]};
    }
    __device__ __forceinline__ Shape shape() const {
        const int i = lane_number();
        return {x[i], y[i], sigma[i]};
    }
};

__device__ __forceinline__ AmplitudeBounds own_bounds(const Kept& kept, const Limits& limits) {
    const float scale = kept.scale[lane_number()], level = kept.level[lane_number()];
    return {limits.bounded_amplitudes != 0, limits.amplitude_min * scale,
            limits.amplitude_max * scale, (limits.background_min - level) * scale,
            (limits.background_max - level) * scale};
}

// The first trial is the start itself.
__device__ __forceinline__ void begin(Search& search, Kept& kept, const Shape& start) {
    search.trial = start;
    search.chi = __int_as_float(0x7f800000);
    search.damping = INITIAL_DAMPING / DAMPING_DECREASE;
    search.decrease = __int_as_float(0x7f800000);
    search.iterations = -1.0f;
    search.stop = STOP_RUNNING;
    kept.put(start, {1.0f, 0.0f, 0.0f, 1.0f, 0.0f, 1.0f}, {0.0f, 0.0f, 0.0f});
}

// Solves (A + damping diag A) step = b by its LDL' factors.
__device__ __forceinline__ Gradient damped_step(const Normal& a, const Gradient& b, float damping) {
    const float raised = 1.0f + damping;
    const float i_x = 1.0f / (a.xx * raised);
    const float l_y = a.xy * i_x, l_s = a.xs * i_x;
    const float i_y = 1.0f / (a.yy * raised - l_y * a.xy);
    const float m = a.ys - l_y * a.xs;
    const float l_ys = m * i_y;
    const float i_s = 1.0f / (a.ss * raised - l_s * a.xs - l_ys * m);
    const float z_y = b.y - l_y * b.x;
    const float s = (b.s - l_s * b.x - l_ys * z_y) * i_s;
    const float y = z_y * i_y - l_ys * s;
    return {b.x * i_x - l_y * y - l_s * s, y, s};
}

__device__ __forceinline__ bool is_held(float value, float push, float low, float high) {
    return (value <= low && push < 0.0f) || (value >= high && push > 0.0f);
}

// Takes parameters that are at a bound and pushed outwards out of the next step.
__device__ __forceinline__ void hold(const Shape& shape, const Shape& low, const Shape& high,
                                     Normal& normal, Gradient& push) {
    const bool x = is_held(shape.x, push.x, low.x, high.x);
    const bool y = is_held(shape.y, push.y, low.y, high.y);
    const bool s = is_held(shape.sigma, push.s, low.sigma, high.sigma);
    if (x || y) normal.xy = 0.0f;
    if (x || s) normal.xs = 0.0f;
    if (y || s) normal.ys = 0.0f;
    if (x) push.x = 0.0f;
    if (y) push.y = 0.0f;
    if (s) push.s = 0.0f;
}

// Whether every parameter has moved by less than its share.
__device__ __forceinline__ bool is_small(const Shape& from, const Shape& to, float share) {
    return fabsf(to.x - from.x) < share * fabsf(from.x) &&
           fabsf(to.y - from.y) < share * fabsf(from.y) &&
           fabsf(to.sigma - from.sigma) < share * from.sigma;
}

// Whether chi-square has changed by less than min_delta of it, for good.
//
// Steps that shrink slowly add up: from a decrease and the one before it follows what is
// still to come (a geometric series), and that must be small as well. A change below what
// rounding makes of chi-square is none, and a chi-square of rounding alone gets no better.
__device__ __forceinline__ bool is_settled(float change, bool better, float last, float chi,
                                           float amplitude, float min_delta) {
    const float enough = min_delta * chi;
    const bool slow = better && change * last > enough * (last - change);
    const float rounding = ROUNDING * (1.0f + fabsf(amplitude));
    const float floor = ROUNDING_FLOOR * PIXELS * rounding;
    return (change <= enough && !slow) || change <= 2.0f * rounding * (sqrtf(chi) + floor) ||
           (!better && chi <= floor * rounding);
}

// Whether the next step would settle the fit, were the model linear, and is short: then it
// is not worth an evaluation.
__device__ __forceinline__ bool is_over(const Normal& a, const Gradient& b, const Gradient& step,
                                        float damping, float decrease, const Point& point,
                                        float min_delta) {
    const float expected = point.amplitude * point.amplitude *
                           (step.x * fmaf(damping * a.xx, step.x, b.x) +
                            step.y * fmaf(damping * a.yy, step.y, b.y) +
                            step.s * fmaf(damping * a.ss, step.s, b.s));
    const float enough = min_delta * point.chi;
    const bool slow = expected * decrease > enough * (decrease - expected);
    const float rounding = ROUNDING * (1.0f + fabsf(point.amplitude));
    const float floor = 2.0f * ROUNDING_FLOOR * PIXELS * rounding * rounding;
    const bool tiny = (expected <= enough && !slow) || expected <= floor;
    const bool is_short = fabsf(step.x) < SKIPPED_STEP / CENTER_UNIT &&
                          fabsf(step.y) < SKIPPED_STEP / CENTER_UNIT &&
                          fabsf(step.s) < SKIPPED_STEP / SIGMA_UNIT;
    return tiny && is_short && damping <= SKIPPED_DAMPING;
}

// Where a step leads, within the bounds.
__device__ __forceinline__ Shape moved(const Shape& from, const Gradient& step, const Shape& low,
                                       const Shape& high) {
    const float unit = CENTER_UNIT * from.sigma;
    return {clamp(fmaf(step.x, unit, from.x), low.x, high.x),
            clamp(fmaf(step.y, unit, from.y), low.y, high.y),
            clamp(fmaf(step.s, SIGMA_UNIT * from.sigma, from.sigma), low.sigma, high.sigma)};
}

// Tries one step, and finds the next. Every trial point is evaluated in full, normal
// equations included: most trials are accepted, so this saves a second evaluation.
__device__ __forceinline__ void iterate(const Pixels& pixels, Search& search, Kept& kept,
                                        const Limits& limits) {
    const int lane = lane_number();
    Normal normal;
    Gradient gradient;
    const Point trial =
        evaluate(pixels, search.trial, own_bounds(kept, limits), normal, gradient);
    if (search.stop != STOP_RUNNING) return;

    const Shape low = {-0.5f, -0.5f, limits.sigma_min};
    const Shape high = {COLUMNS - 0.5f, ROWS - 0.5f, limits.sigma_max};
    const float change = fabsf(trial.chi - search.chi);
    const bool better = trial.chi < search.chi;
    const bool stepped = search.iterations >= 0.0f;
    const bool small = stepped && is_small(kept.shape(), search.trial, limits.min_step);
    const bool tiny = stepped && is_settled(change, better, search.decrease, search.chi,
                                            trial.amplitude, limits.min_delta);
    search.iterations += 1.0f;
    search.damping *= better ? DAMPING_DECREASE : DAMPING_INCREASE;
    if (better) {
        hold(search.trial, low, high, normal, gradient);
        search.chi = trial.chi;
        search.decrease = change;
        kept.put(search.trial, normal, gradient);
        kept.amplitude[lane] = trial.amplitude;
        kept.background[lane] = trial.background;
    } else {
        kept.get(normal, gradient);
    }
    const Gradient step = damped_step(normal, gradient, search.damping);
    search.trial = moved(better ? search.trial : kept.shape(), step, low, high);

    // In rising order of precedence, so that the most telling condition is kept.
    int stop = STOP_RUNNING;
    if (search.iterations >= limits.max_iterations) stop = STOP_MAX_ITERATIONS;
    if (!better && (small || search.damping > MAX_DAMPING)) stop = STOP_NO_DECREASE;
    if (better && small) stop = STOP_MIN_STEP;
    if (better && is_over(normal, gradient, step, search.damping, change, trial,
                          limits.min_delta))
        stop = STOP_MIN_DELTA;
    if (tiny) stop = STOP_MIN_DELTA;
    const float scale = kept.scale[lane];
    if (search.chi < limits.max_error * scale * scale) stop = STOP_MAX_ERROR;
    // A fit whose every trial was NaN or infinite has no parameters.
    if (stop != STOP_RUNNING && !(search.chi < __int_as_float(0x7f800000))) stop = STOP_INVALID;
    search.stop = stop;
}
