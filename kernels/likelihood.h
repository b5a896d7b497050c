// Maximum likelihood of Poisson counts (Laurence & Chromy 2010), by Fisher scoring.
//
// In photo-electrons, the data are e and the model is h = amplitude f + background; a pixel's
// read-out variance is added to both (Huang et al. 2013). What is minimised is the deviance, over
// the shape and both amplitudes together. With w = 1/h and q = e/h - 1, S = sum of w d d' is the
// Fisher information, which is never indefinite, and T = sum of q d the gradient. The search,
// whose steps need the true curvature of the deviance, e/h^2, takes the mean of both for w, which
// is also always above 0.
#pragma once
#include "pixelwise.h"

namespace spotfit::SPOTFIT_ISA {

// The variance, and the data, of a pixel that does not count: the model fits it, whatever it is,
// and its weight is nothing.
constexpr float NO_PIXEL = 1e30f;

// Half the deviance of a pixel over h: (1 + q) ln(1 + q) - q. Near 0, where the terms cancel, it
// is q^2 (1 + R(q) (1 + q)), with ln(1 + q) = q + q^2 R(q).
template <class L> SPOTFIT_INLINE L half_deviance_over_model(L q) {
    const L ratio = q + 1.0f;
    const LogParts<L> parts = log_parts(ratio);
    const MaskOf<L> near = (ratio > 0.7078f) & (ratio < 1.4127f);
    const L x = select(near, q, parts.excess), remainder = log1p_remainder(x);
    const L log = multiply_add(parts.exponent, L(LN_2), multiply_add(x * x, remainder, x));
    return select(near, q * q * multiply_add(remainder, ratio, L(1.0f)), multiply_add(ratio, log, -q));
}

// S and T at a point, with Fisher's weights or the search's, and the deviance: infinite where the
// model is not above 0 everywhere.
template <bool FISHER, class Variant, class L, class Roi>
SPOTFIT_INLINE L likelihood_sums(Roi& roi, const L (&point)[Variant::ALL], const FitSettings& settings,
                                 PixelSums<Variant, L>& sums) {
    constexpr int S = Variant::SHAPE;
    const L amplitude = point[S], background = point[S + 1];
    sums = {};
    PixelAdder<false, Variant, L, Roi> adder(sums);
    L total = 0.0f, part = 0.0f, lowest = INFINITE;
    visit<Variant>(
        roi, point, settings,
        [&](int k, int i, L f, const L(&d)[S]) SPOTFIT_INLINE_LAMBDA {
            const L e = roi.at(k, i);
            L h = multiply_add(amplitude, f, background);
            MaskOf<L> dark = false;
            if constexpr (Variant::Profile::LATTICE) dark = h < LEAST_LIGHT, h = select(dark, L(LEAST_LIGHT), h);
            if constexpr (Variant::PLANES) h += roi.plane(k, i);
            const L w = 1.0f / h, q = (e - h) * w;
            L own = FISHER ? w : w * multiply_add(q, L(0.5f), L(1.0f)), pull = q;
            if constexpr (Variant::Profile::LATTICE) own = select(dark, L(0.0f), own), pull = select(dark, L(0.0f), q);
            adder.add(i, d, f, own, pull);
            part = multiply_add(h, half_deviance_over_model(q), part);
            lowest = lower_of(h, lowest);
        },
        [&]() SPOTFIT_INLINE_LAMBDA {
            adder.end_line(roi.own_columns());
            total += part, part = L(0.0f);
        });
    sums.template join<true, !FISHER>(roi);
    total = roi.sum(total);
    return select(roi.lowest(lowest) > 0.0f, total + total, L(INFINITE));
}

// Of Fisher's information and the gradient: the model's derivatives by the shape are those of the
// profile, times the amplitude.
template <class Variant, class L>
SPOTFIT_INLINE void likelihood_equations(const PixelSums<Variant, L>& sums, L amplitude, const FitSettings& settings,
                                         Equations<L, Variant::ALL>& equations) {
    constexpr int S = Variant::SHAPE, N = Variant::ALL;
    UNROLL
    for (int i = 0; i < N; ++i) {
        UNROLL
        for (int j = i; j < N; ++j) {
            const L own = sums.s.at(i, j);
            equations.at(i, j) = i >= S ? own : j >= S ? own * amplitude : own * (amplitude * amplitude);
        }
        equations.b[i] = i < S ? sums.s.b[i] * amplitude : sums.s.b[i];
        if (i < S) {
            const MaskOf<L> open = !is_undetermined<Variant>(i, sums.s.at(i, i), sums.s.at(S, S), settings);
            equations.at(i, i) = select(open, equations.at(i, i), L(0.0f));
            equations.b[i] = select(open, equations.b[i], L(0.0f));
        }
    }
}

// What a trial came to, by its sums and deviance.
template <class Variant, class L>
SPOTFIT_INLINE Outcome<L> likelihood_outcome(const PixelSums<Variant, L>& sums, L chi, const L (&point)[Variant::ALL],
                                             L pixels, const FitSettings& settings,
                                             Equations<L, Variant::ALL>& equations) {
    constexpr int S = Variant::SHAPE;
    const L amplitude = point[S], background = point[S + 1];
    likelihood_equations<Variant>(sums, amplitude, settings, equations);
    // A residual is known to the rounding error of the model over its root.
    return {chi,
            amplitude,
            background,
            L(1.0f),
            rounding_error<Variant>(amplitude, background),
            pixels,
            L(settings.max_error),
            square(amplitude) * sums.s.at(S, S)};
}

template <class Variant, class L, class Roi>
SPOTFIT_INLINE Outcome<L> evaluate_likelihood(Roi& roi, State<L> state, const L (&point)[Variant::ALL],
                                              const FitSettings& settings, Equations<L, Variant::ALL>& equations) {
    PixelSums<Variant, L> sums;
    const L chi = likelihood_sums<false, Variant>(roi, point, settings, sums);
    return likelihood_outcome<Variant>(sums, chi, point, valid_pixels<Variant, L>(roi, state), settings, equations);
}

// Turns the lane's pixels into photo-electrons, with the read-out variance; returns their light.
template <class Variant, class L, class Roi>
SPOTFIT_INLINE L to_electrons(Roi& roi, L unit, L level) {
    L total = 0.0f;
    UNROLL_LINES
    for (int k = 0; k < roi.own_lines(); ++k) {
        if (!roi.has_line(k)) break;
        UNROLL_PIXELS
        for (int i = 0; i < roi.own_columns(); ++i) {
            L e = multiply_add(roi.at(k, i), unit, level);
            if constexpr (Variant::PLANES) {
                const L variance = roi.plane(k, i);
                const MaskOf<L> good = variance >= 0.0f;
                total += select(good, higher_of(e, L(0.0f)), L(0.0f));
                roi.put_plane(k, i, select(good, variance, L(NO_PIXEL)));
                e = select(good, higher_of(e + variance, L(0.0f)), L(NO_PIXEL));
            } else {
                e = higher_of(e, L(0.0f));
                total += e;
            }
            roi.put(k, i, e);
        }
    }
    return roi.sum(total);
}

// Begins the search where least squares ended, given the pixels' mean in photo-electrons.
template <class Variant, class L>
SPOTFIT_INLINE void start_likelihood(State<L> state, L mean, L least_squares_stop, const FitSettings& settings,
                                     Search<L, Variant::N>& search) {
    constexpr int S = Variant::SHAPE;
    const float per_gain = 1.0f / settings.gain;
    const L unit = per_gain / state[SCALE], level = (state[LEVEL] - settings.dark) * per_gain;
    // A background of nothing would make far pixels impossible.
    const float low = (settings.background_min - settings.dark) * per_gain;
    const L floor = low == 0.0f ? LEAST_BACKGROUND * mean : L(low);
    L start[Variant::N];
    UNROLL
    for (int j = 0; j < S; ++j) start[j] = state[POINT + j];
    start[S] = clamp(higher_of(state[POINT + S] * unit, FIRST_AMPLITUDE * mean), L(settings.amplitude_min * per_gain),
                     L(settings.amplitude_max * per_gain));
    start[S + 1] = clamp(higher_of(multiply_add(state[POINT + S + 1], unit, level), FIRST_BACKGROUND * mean), floor,
                         L((settings.background_max - settings.dark) * per_gain));
    const MaskOf<L> usable = (least_squares_stop < STOP_INVALID) & (mean > 0.0f);
    start_search<Variant>(search, state, start, usable);
    state[SCALE] = L(per_gain);
    state[LEVEL] = L(settings.dark);
    state[FLOOR] = floor;
}

template <class Variant, class L, class Roi>
SPOTFIT_INLINE void begin_likelihood(Roi& roi, State<L> state, L least_squares_stop, const FitSettings& settings,
                                     Search<L, Variant::N>& search) {
    const float per_gain = 1.0f / settings.gain;
    const L unit = per_gain / state[SCALE], level = (state[LEVEL] - settings.dark) * per_gain;
    const L mean = to_electrons<Variant>(roi, unit, level) / valid_pixels<Variant, L>(roi, state);
    start_likelihood<Variant>(state, mean, least_squares_stop, settings, search);
}

}  // namespace spotfit::SPOTFIT_ISA
