// Implicit amplitudes: where the best amplitude and background lie for a given shape (variable
// projection, Golub & Pereyra 1973), from the sums of f, f^2 and f g over n pixels; the sum of
// the data is 0. Weighted sums are over all weights.
#pragma once
#include "state.h"

namespace spotfit::SPOTFIT_ISA {

// Amplitude, background and the weights with which they project.
template <class L> struct Amplitudes { L amplitude, background, w_amplitude, w_background; };

template <class L> SPOTFIT_INLINE Amplitudes<L> free_amplitudes(L n, L f, L ff, L fg) {
    Amplitudes<L> a;
    a.w_background = 1.0f / n;
    a.w_amplitude = 1.0f / (ff - f * f * a.w_background);
    a.amplitude = fg * a.w_amplitude;
    a.background = -a.amplitude * f * a.w_background;
    return a;
}

// Chi-square less the data's own sum of squares; good enough to compare two edges.
template <class L> SPOTFIT_INLINE L misfit(L n, L f, L ff, L fg, L a, L b) {
    return a * a * ff + b * (a * f * 2.0f + b * n) - a * fg * 2.0f;
}

// Within bounds: the exact minimum of the 2-D quadratic in a box. A free minimum outside the box
// moves to an edge, the background's or the amplitude's, whichever is lower. What lies at its
// bound projects nothing.
template <class L>
SPOTFIT_INLINE Amplitudes<L> bounded_amplitudes(L n, L f, L ff, L fg, const AmplitudeBounds<L>& e) {
    Amplitudes<L> a = free_amplitudes(n, f, ff, fg);
    const MaskOf<L> inside = (a.amplitude >= e.amplitude_min) & (a.amplitude <= e.amplitude_max) &
                             (a.background >= e.background_min) & (a.background <= e.background_max);
    const L b1 = clamp(a.background, e.background_min, e.background_max);
    const L a1 = clamp((fg - b1 * f) / ff, e.amplitude_min, e.amplitude_max);
    const L a2 = clamp(a.amplitude, e.amplitude_min, e.amplitude_max);
    const L b2 = clamp(-a2 * f * a.w_background, e.background_min, e.background_max);
    const MaskOf<L> first = misfit(n, f, ff, fg, a1, b1) < misfit(n, f, ff, fg, a2, b2);
    a.amplitude = select(inside, a.amplitude, select(first, a1, a2));
    a.background = select(inside, a.background, select(first, b1, b2));
    const MaskOf<L> free_b = (a.background > e.background_min) & (a.background < e.background_max);
    a.w_background = select(free_b, a.w_background, L(0.0f));
    const MaskOf<L> free_a = (a.amplitude > e.amplitude_min) & (a.amplitude < e.amplitude_max);
    a.w_amplitude = select(free_a, 1.0f / (ff - f * f * a.w_background), L(0.0f));
    return a;
}

template <class L>
SPOTFIT_INLINE Amplitudes<L> amplitudes_of(L n, L f, L ff, L fg, State<L> state, const FitSettings& settings) {
    if (settings.bounded_amplitudes) return bounded_amplitudes(n, f, ff, fg, amplitude_bounds(state, settings));
    return free_amplitudes(n, f, ff, fg);
}

// J'J/alpha^2 and J'r/alpha^2 from the sums of f_j, f f_j, f_i f_j and f_j g, with Kaufman's (1975)
// Jacobian: the derivative of the profile less its projection on what the implicit parameters can
// take up. The residual is orthogonal to that, so the projection drops out of J'r.
template <int N, class L>
SPOTFIT_INLINE void normal_equations(L f, const L (&f_j)[N], const L (&ff_j)[N], const Equations<L, N>& products,
                                     const L* f_j_g, const Amplitudes<L>& a, Equations<L, N>& equations) {
    const L inverse = 1.0f / a.amplitude;
    L p[N], c[N], q[N];
    UNROLL
    for (int j = 0; j < N; ++j) {
        p[j] = f_j[j] * a.w_background;
        c[j] = ff_j[j] - f * p[j];
        q[j] = c[j] * a.w_amplitude;
        equations.b[j] = (f_j_g[j] - a.background * f_j[j]) * inverse - ff_j[j];
    }
    UNROLL
    for (int i = 0; i < N; ++i) {
        UNROLL
        for (int j = i; j < N; ++j) equations.at(i, j) = products.at(i, j) - f_j[i] * p[j] - c[i] * q[j];
    }
}

}  // namespace spotfit::SPOTFIT_ISA
