// The Levenberg-Marquardt search: one step of every lane's fit at a time, tried, accepted or
// rejected. It knows nothing of profiles and estimators. The N parameters of a step are the
// shape's, and, where amplitude and background are not implicit, these two.
#pragma once
#include "state.h"

namespace spotfit::SPOTFIT_ISA {

// What a trial came to.
template <class L> struct Outcome {
    L chi, amplitude, background;
    L scale;     // the equations are those of chi-square, divided by it
    L rounding;  // the rounding error of a residual
    L pixels;    // how many count
    L accepted;  // chi-square below which the fit is good enough
    L norm;      // the sum of squares that a step's change of the model is compared to
};

// The rounding error of a residual. In maximum likelihood residuals are over the model's root.
template <class Variant, class L> SPOTFIT_INLINE L rounding_error(L amplitude, L background) {
    if (Variant::LIKELIHOOD) return ROUNDING * square_root(absolute(amplitude) + absolute(background));
    return ROUNDING * (1.0f + absolute(amplitude));
}

// The first trial is the start itself: a unit matrix and no gradient lead nowhere else. It does
// not count as a step. Fits that are not usable end here.
template <class Variant, class L>
SPOTFIT_INLINE void start_search(Search<L, Variant::N>& search, State<L> state, const L (&start)[Variant::N],
                                 MaskOf<L> usable) {
    using Rows = StateRows<Variant>;
    constexpr int N = Variant::N;
    UNROLL
    for (int j = 0; j < N; ++j) search.trial[j] = state[POINT + j] = start[j];
    UNROLL
    for (int i = 0; i < N; ++i) {
        UNROLL
        for (int j = i; j < N; ++j) state[Rows::NORMAL + upper<N>(i, j)] = L(i == j ? 1.0f : 0.0f);
        state[Rows::GRADIENT + i] = L(0.0f);
    }
    state[NORM] = L(0.0f);
    search.chi = search.decrease = L(INFINITE);
    search.damping = L(INITIAL_DAMPING / DAMPING_DECREASE);
    search.expected = L(0.0f);
    search.stretch = L(1.0f);
    search.reach = L(0.0f);
    search.iterations = select(usable, L(-1.0f), L(0.0f));
    search.stop = select(usable, L(STOP_RUNNING), L(STOP_INVALID));
}

// The curvature that damps a step along a parameter; of expressions, it is not too small.
template <class Variant, class L, int N>
SPOTFIT_INLINE L damping_curvature(const Equations<L, N>& equations, int j, const L (&from)[N], L norm) {
    const L own = equations.at(j, j);
    if (!Variant::Profile::EXPRESSION || j >= Variant::SHAPE) return own;
    return higher_of(own, LEAST_CURVATURE * norm / higher_of(from[j] * from[j], L(1.0f)));
}

// Solves (A + damping diag A) step = b by its LDL' factors. Where the matrix may be singular, a
// parameter to which the others leave no curvature stays where it is. Amplitude and background,
// if they are searched, come last and go no further than to their bounds; then the rest of the
// step is the best for that.
template <class Variant, class L, int N>
SPOTFIT_INLINE void damped_step(const Equations<L, N>& equations, L damping, const L (&from)[N],
                                const Box<L, Variant::ALL>& box, L norm, L (&step)[N]) {
    Equations<L, N> u = equations;
    L inverse[N];
    UNROLL
    for (int k = 0; k < N; ++k) {
        const L curvature = damping_curvature<Variant>(equations, k, from, norm);
        u.at(k, k) =
            Variant::Profile::EXPRESSION ? multiply_add(damping, curvature, u.at(k, k)) : u.at(k, k) * (1.0f + damping);
    }
    UNROLL
    for (int k = 0; k < N; ++k) {
        L l[N];
        inverse[k] = 1.0f / u.at(k, k);
        if (!Variant::PLAIN) inverse[k] = select(u.at(k, k) > SINGULAR * equations.at(k, k), inverse[k], L(0.0f));
        UNROLL
        for (int j = k + 1; j < N; ++j) l[j] = u.at(k, j) * inverse[k];
        UNROLL
        for (int j = k + 1; j < N; ++j) {
            UNROLL
            for (int m = j; m < N; ++m) u.at(j, m) = multiply_add(-l[j], u.at(k, m), u.at(j, m));
            u.b[j] = multiply_add(-l[j], u.b[k], u.b[j]);
        }
        UNROLL
        for (int j = k + 1; j < N; ++j) u.at(k, j) = l[j];
    }
    UNROLL
    for (int k = N - 1; k >= 0; --k) {
        step[k] = u.b[k] * inverse[k];
        UNROLL
        for (int j = k + 1; j < N; ++j) step[k] = multiply_add(-u.at(k, j), step[j], step[k]);
        if (k >= Variant::SHAPE) step[k] = clamp(step[k], box.low[k] - from[k], box.high[k] - from[k]);
    }
}

// Takes parameters that are held, or at a bound and pushed outwards, out of the next step.
template <class Variant, class L, int N>
SPOTFIT_INLINE void apply_active_bounds(const L (&point)[N], const Box<L, Variant::ALL>& box,
                                        const FitSettings& settings, Equations<L, N>& equations) {
    MaskOf<L> out[N];
    UNROLL
    for (int j = 0; j < N; ++j) {
        out[j] = ((point[j] <= box.low[j]) & (equations.b[j] < 0.0f)) |
                 ((point[j] >= box.high[j]) & (equations.b[j] > 0.0f));
        if (is_held<Variant>(settings, j)) {
            out[j] = true;
            equations.at(j, j) = L(1.0f);
        }
    }
    UNROLL
    for (int i = 0; i < N; ++i) {
        UNROLL
        for (int j = i + 1; j < N; ++j) equations.at(i, j) = select(out[i] | out[j], L(0.0f), equations.at(i, j));
        equations.b[i] = select(out[i], L(0.0f), equations.b[i]);
    }
}

// Whether every parameter has moved by less than its share.
template <class Variant, class L, int N>
SPOTFIT_INLINE MaskOf<L> is_small_step(State<L> state, const L (&to)[N], const FitSettings& settings) {
    MaskOf<L> small = true;
    UNROLL
    for (int j = 0; j < N; ++j) {
        if (is_held<Variant>(settings, j)) continue;
        const L from = state[POINT + j];
        small = small & (absolute(to[j] - from) < settings.min_step * absolute(from));
    }
    return small;
}

// Whether chi-square has changed by less than min_delta of it, for good.
//
// Steps that shrink slowly add up: from a decrease and the one before it follows what is still to
// come (a geometric series), and that must be small as well. A change below what rounding makes
// of chi-square is none, and a chi-square of rounding alone gets no better. A trial that is no
// number says nothing, nor does the rounding of one that is worse.
template <class L>
SPOTFIT_INLINE MaskOf<L> is_settled(L change, MaskOf<L> better, L last, L chi, const Outcome<L>& trial,
                                    L rounding_before, float min_delta) {
    const L enough = min_delta * chi;
    const MaskOf<L> slow = better & (change * last > enough * (last - change));
    const L rounding = select(better, trial.rounding, rounding_before);
    const L floor = ROUNDING_FLOOR * trial.pixels * rounding;
    const MaskOf<L> settled = ((change <= enough) & !slow) | (change <= 2.0f * rounding * (square_root(chi) + floor)) |
                              (!better & (chi <= floor * rounding));
    return settled & (trial.chi < INFINITE);
}

// Whether a step is so short that it need not be tried.
template <class Variant, class L, int N>
SPOTFIT_INLINE MaskOf<L> is_short_step(const Equations<L, N>& equations, const L (&step)[N], L norm) {
    using P = typename Variant::Profile;
    MaskOf<L> is_short = true;
    UNROLL
    for (int j = 0; j < N; ++j) {
        const float unit = P::unit(j);
        is_short =
            is_short & (Variant::PLAIN ? absolute(step[j]) < SKIPPED_STEP / unit
                                       : step[j] * step[j] * equations.at(j, j) <= SKIPPED_STEP * SKIPPED_STEP * norm);
    }
    return is_short;
}

// Whether the fit would settle with its next step, which is then not tried.
template <class Variant, class L, int N>
SPOTFIT_INLINE MaskOf<L> is_nearly_settled(const Equations<L, N>& equations, const L (&step)[N], L expected, L change,
                                           const Outcome<L>& trial, L damping, float min_delta) {
    const L enough = min_delta * trial.chi;
    const L floor = 2.0f * ROUNDING_FLOOR * trial.pixels * trial.rounding * trial.rounding;
    const MaskOf<L> slow = expected * change > enough * (change - expected);
    return (((expected <= enough) & !slow) | (expected <= floor)) &
           is_short_step<Variant>(equations, step, trial.norm) & (damping <= SKIPPED_DAMPING);
}

// Whether an expression does not change with any of its parameters, so that a step of nothing says
// nothing.
template <class Variant, class L, int N>
SPOTFIT_INLINE MaskOf<L> is_lost(const Equations<L, N>& equations, const FitSettings& settings) {
    MaskOf<L> lost = true;
    bool searched = false;
    UNROLL
    for (int j = 0; j < Variant::SHAPE; ++j) {
        if (is_held<Variant>(settings, j)) continue;
        searched = true;
        lost = lost & !(equations.at(j, j) > 0.0f);
    }
    return searched ? lost : MaskOf<L>(false);
}

// What the linear model expects a step to lower chi-square by.
template <class Variant, class L, int N>
SPOTFIT_INLINE L expected_decrease(const Equations<L, N>& equations, const L (&step)[N], L damping, const L (&from)[N],
                                   L norm) {
    L expected = 0.0f;
    UNROLL
    for (int j = 0; j < N; ++j) {
        const L curvature = damping * damping_curvature<Variant>(equations, j, from, norm);
        expected = multiply_add(step[j], multiply_add(curvature, step[j], equations.b[j]), expected);
    }
    return expected;
}

// Adds a shear to widths and angle of a rotated profile; the axes keep their names.
template <class L> SPOTFIT_INLINE void add_shear(L shear, L& along, L& across, L& angle) {
    const L middle = 0.5f * (along + across), half = 0.5f * (along - across);
    L size = square_root(half * half + shear * shear);
    L turn = 0.5f * arctangent(shear, absolute(half));
    size = select(half < 0.0f, -size, size), turn = select(half < 0.0f, -turn, turn);
    along = middle + size, across = middle - size, angle = angle + turn;
}

// Shortens a step along z to a part of the depth, half as much whenever it turns back.
template <class Variant, class L, int N>
SPOTFIT_INLINE void limit_step(Search<L, N>& s, const FitSettings& settings, L (&step)[N]) {
    constexpr int Z = Variant::Profile::Z;
    const L far = DEPTH_OF_STEP * (settings.high[Z] - settings.low[Z]);
    L reach = select(s.reach == 0.0f, far, absolute(s.reach));
    reach = select(s.reach * step[Z] < 0.0f, 0.5f * reach, reach);
    s.reach = select(step[Z] < 0.0f, -reach, reach);
    if (Variant::LIKELIHOOD) reach = reach / s.stretch;
    step[Z] = clamp(step[Z], -reach, reach);
}

// Where a step leads to.
template <class Variant, class L, int N>
SPOTFIT_INLINE void move(const L (&from)[N], const L (&step)[N], L stretch, const Box<L, Variant::ALL>& box,
                         const FitSettings& settings, L (&to)[N]) {
    using P = typename Variant::Profile;
    bool sheared = false;
    if constexpr (P::ROTATED) sheared = settings.angle_convention == 2;
    UNROLL
    for (int j = 0; j < N; ++j) {
        const L own = Variant::LIKELIHOOD ? step[j] * stretch : step[j];
        to[j] = multiply_add(own, step_unit<Variant>(from, j), from[j]);
    }
    if constexpr (P::ROTATED) {
        if (sheared) {
            const L shear = Variant::LIKELIHOOD ? step[P::ANGLE] * stretch : step[P::ANGLE];
            to[P::ANGLE] = from[P::ANGLE];
            add_shear(shear, to[P::ALONG], to[P::ACROSS], to[P::ANGLE]);
        }
    }
    UNROLL
    for (int j = 0; j < N; ++j) to[j] = is_held<Variant>(settings, j) ? from[j] : clamp(to[j], box.low[j], box.high[j]);
}

// What a step of maximum likelihood is stretched by, from what the last one has shown.
template <class L, int N>
SPOTFIT_INLINE L next_stretch(const Search<L, N>& s, L change, MaskOf<L> believed) {
    const L curvature = (2.0f * s.stretch - change / s.expected) / (s.stretch * s.stretch);
    const L stretch = 1.0f / clamp(curvature, L(1.0f / LONGEST_STRETCH), L(1.0f / SHORTEST_STRETCH));
    return select(believed & (s.damping < 2.0f * SKIPPED_DAMPING), stretch, L(1.0f));
}

// Accepts or rejects the trial, whose outcome and equations are given, and finds the next one.
template <class Variant, class L>
SPOTFIT_INLINE void accept_or_reject(Search<L, Variant::N>& s, State<L> state, const FitSettings& settings,
                                     const Box<L, Variant::ALL>& box, Outcome<L> trial,
                                     Equations<L, Variant::N>& equations) {
    using Mask = MaskOf<L>;
    using Rows = StateRows<Variant>;
    constexpr int N = Variant::N;
    const L change = absolute(trial.chi - s.chi);
    const Mask running = s.stop < 0.0f, better = trial.chi < s.chi;
    const Mask stepped = s.iterations >= 0.0f, accepted = running & better;
    const Mask small = stepped & is_small_step<Variant>(state, s.trial, settings);
    const L rounding = rounding_error<Variant>(state[POINT + Variant::SHAPE], state[POINT + Variant::SHAPE + 1]);
    const Mask settled = stepped & is_settled(change, better, s.decrease, s.chi, trial, rounding, settings.min_delta);
    if (Variant::LIKELIHOOD) s.stretch = next_stretch(s, change, better & stepped);
    s.iterations = select(running, s.iterations + 1.0f, s.iterations);
    s.damping = s.damping * select(better, L(DAMPING_DECREASE), L(DAMPING_INCREASE));
    s.chi = select(accepted, trial.chi, s.chi);
    s.decrease = select(accepted, change, s.decrease);

    apply_active_bounds<Variant>(s.trial, box, settings, equations);
    L from[N], step[N];
    UNROLL
    for (int j = 0; j < N; ++j) {
        from[j] = s.trial[j];
        keep_or_restore(accepted, from[j], state[POINT + j]);
    }
    if (!Variant::LIKELIHOOD) {
        keep_or_restore(accepted, trial.amplitude, state[POINT + Variant::SHAPE]);
        keep_or_restore(accepted, trial.background, state[POINT + Variant::SHAPE + 1]);
    }
    UNROLL
    for (int k = 0; k < N * (N + 1) / 2; ++k) keep_or_restore(accepted, equations.a[k], state[Rows::NORMAL + k]);
    UNROLL
    for (int j = 0; j < N; ++j) keep_or_restore(accepted, equations.b[j], state[Rows::GRADIENT + j]);
    if (!Variant::PLAIN) keep_or_restore(accepted, trial.norm, state[NORM]);

    damped_step<Variant>(equations, s.damping, from, box, trial.norm, step);
    if constexpr (Variant::Profile::LATTICE) limit_step<Variant>(s, settings, step);
    s.expected = trial.scale * expected_decrease<Variant>(equations, step, s.damping, from, trial.norm);
    move<Variant>(from, step, s.stretch, box, settings, s.trial);
    const Mask nearly = accepted & is_nearly_settled<Variant>(equations, step, s.expected, change, trial, s.damping,
                                                              settings.min_delta);
    Mask still = true;  // the step is lost in rounding
    UNROLL
    for (int j = 0; j < N; ++j) still = still & (s.trial[j] == from[j]);

    // In rising order of precedence, so that the clearest condition is kept.
    L stop = s.stop;
    stop = select(s.iterations >= settings.max_iterations, L(STOP_MAX_ITERATIONS), stop);
    stop = select(still | (!better & (small | (s.damping > MAX_DAMPING))), L(STOP_NO_DECREASE), stop);
    stop = select(better & small, L(STOP_MIN_STEP), stop);
    stop = select(nearly | settled, L(STOP_MIN_DELTA), stop);
    // Where nothing stands out of the background, no place is better than another.
    stop = select((stop >= STOP_MAX_ERROR) & (state[POINT + Variant::SHAPE] == 0.0f), L(STOP_NO_DECREASE), stop);
    if constexpr (Variant::Profile::EXPRESSION)
        stop = select((stop >= STOP_MAX_ERROR) & is_lost<Variant>(equations, settings), L(STOP_NO_DECREASE), stop);
    stop = select(s.chi < trial.accepted, L(STOP_MAX_ERROR), stop);
    stop = select((stop >= 0.0f) & !(s.chi < INFINITE), L(STOP_INVALID), stop);
    s.stop = select(running, stop, s.stop);
}

}  // namespace spotfit::SPOTFIT_ISA
