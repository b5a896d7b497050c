// From the state of a search to results in counts and pixels: the position in the array's order, the other shape
// parameters, amplitude, background, photons, chi-square and reduced chi-square; NaN for invalid fits.
#pragma once
#include "initial_values.h"
#include "layouts/psf_lattice.h"

namespace spotfit::SPOTFIT_ISA {

template <class Variant> struct Outputs {
    // Values of single precision, after the position, and standard errors: of all parameters, and of the photons.
    static constexpr int VALUES = Variant::SHAPE - Variant::Profile::AXES + 5, ERRORS = Variant::ALL + 1;
};

// One trial, and the next step.
template <class Variant, class L, class Roi>
SPOTFIT_INLINE void iterate(Roi& roi, State<L> state, Search<L, Variant::N>& search, const FitSettings& settings) {
    Equations<L, Variant::N> equations;
    Outcome<L> trial;
    if constexpr (Variant::LIKELIHOOD)
        trial = evaluate_likelihood<Variant>(roi, state, search.trial, settings, equations);
    else if constexpr (Variant::PLAIN)
        trial = evaluate_separable<Variant>(roi, state, search.trial, settings, equations);
    else trial = evaluate_weighted<Variant>(roi, state, search.trial, settings, equations);
    accept_or_reject<Variant>(search, state, settings, bounds_of_all<Variant>(state, settings), trial, equations);
}

// The integral of the profile, over Profile::INTEGRAL, and its logarithm's derivatives in units of
// steps. Where it has no formula it is the sum over the ROI's pixels.
template <class Variant, class L, class Roi>
SPOTFIT_INLINE L profile_integral(Roi& roi, const L (&shape)[Variant::SHAPE], const FitSettings& settings,
                                  L (&slopes)[Variant::SHAPE]) {
    using P = typename Variant::Profile;
    constexpr int S = Variant::SHAPE;
    UNROLL
    for (int j = 0; j < S; ++j) slopes[j] = L(0.0f);
    if constexpr (P::SEPARABLE) {
        L integral = shape[P::width(0)];
        UNROLL
        for (int a = 0; a < P::AXES; ++a) {
            slopes[P::width(a)] += L(P::width_unit(a));
            if (a > 0) integral = integral * shape[P::width(a)];
        }
        return integral;
    } else if constexpr (P::EXPRESSION) {
        L total = 0.0f;
        visit<Variant>(
            roi, shape, settings,
            [&](int, int, L f, const L(&d)[S]) SPOTFIT_INLINE_LAMBDA {
                total += f;
                UNROLL
                for (int j = 0; j < S; ++j) slopes[j] += d[j];
            },
            [] {});
        total = roi.sum(total);
        UNROLL
        for (int j = 0; j < S; ++j) slopes[j] = roi.sum(slopes[j]) / total;
        return total;
    } else if constexpr (P::LATTICE) {
        return L(static_cast<const PsfLattice*>(roi.constants)->light);
    } else {
        return P::integral(shape, slopes);
    }
}

// A rotated profile is the same with its axes exchanged: the first one is to be next to x, unless
// the caller has set bounds to axes or angle.
template <class Variant, class L> SPOTFIT_INLINE void make_canonical(State<L> state, const FitSettings& settings) {
    using P = typename Variant::Profile;
    if constexpr (P::ROTATED) {
        if (settings.angle_convention == 0) return;
        const float turn = PI / float(settings.angle_convention);
        const L turns = round_up(state[POINT + P::ANGLE] * (1.0f / turn) - 0.5f);
        state[POINT + P::ANGLE] = state[POINT + P::ANGLE] - turns * turn;
        if (settings.angle_convention == 1) return;
        const MaskOf<L> odd = absolute(turns - 2.0f * round_up(turns * 0.5f - 0.25f)) > 0.5f;
        const L along = state[POINT + P::ALONG], across = state[POINT + P::ACROSS];
        state[POINT + P::ALONG] = select(odd, across, along);
        state[POINT + P::ACROSS] = select(odd, along, across);
    }
}

// A number in counts, exactly at its bounds where the search left it there in its own unit.
template <class L>
SPOTFIT_INLINE L in_counts(L own, L own_low, L own_high, L counts, L low, L high) {
    return select(own <= own_low, low, select(own >= own_high, high, clamp(counts, low, high)));
}

template <class Variant, class L, class Roi>
SPOTFIT_INLINE L degrees_of_freedom(const Roi& roi, State<L> state, const FitSettings& settings) {
    return higher_of(valid_pixels<Variant, L>(roi, state) - settings.fitted, L(1.0f));
}

// The position and Outputs::VALUES, given the profile's integral.
template <class Variant, class L>
SPOTFIT_INLINE void values_of(State<L> state, L chi, L stop, L integral, L freedom, const FitSettings& settings,
                              L (&out)[Variant::SHAPE + 5]) {
    constexpr int S = Variant::SHAPE;
    using P = typename Variant::Profile;
    const L unit = 1.0f / state[SCALE];
    const Box<L, Variant::ALL> box = bounds_of_all<Variant>(state, settings);
    const L amplitude = in_counts(state[POINT + S], box.low[S], box.high[S], state[POINT + S] * unit,
                                  L(settings.amplitude_min), L(settings.amplitude_max));
    // The floor of maximum likelihood is no bound of the user's.
    const AmplitudeBounds<L> bounds = amplitude_bounds(state, settings);
    const L background =
        in_counts(state[POINT + S + 1], bounds.background_min, bounds.background_max,
                  multiply_add(state[POINT + S + 1], unit, state[LEVEL] - settings.offset),
                  L(settings.background_min - settings.offset), L(settings.background_max - settings.offset));
    if (!Variant::LIKELIHOOD) {
        chi = chi * unit * unit;
        if (Variant::PLANES) chi = chi / state[WEIGHT];
    }
    L own[S + 5];
    UNROLL
    for (int j = 0; j < S; ++j) own[other_order<P>(j)] = state[POINT + j];
    if constexpr (P::ROTATED) own[P::ANGLE] *= DEGREES;
    own[S] = amplitude;
    own[S + 1] = background;
    own[S + 2] = integral * amplitude * (P::INTEGRAL / settings.photon);
    own[S + 3] = chi;
    own[S + 4] = chi / freedom;
    const MaskOf<L> valid = stop < STOP_INVALID;
    UNROLL
    for (int j = 0; j < S + 5; ++j) out[j] = select(valid, own[j], L(NOT_A_NUMBER));
}

template <class Variant, class L, class Roi>
SPOTFIT_INLINE void write_values(Roi& roi, State<L> state, L chi, L stop, const FitSettings& settings,
                                 L (&out)[Variant::SHAPE + 5]) {
    constexpr int S = Variant::SHAPE;
    L shape[S], slopes[S];
    state.read_point(shape);
    const L integral = profile_integral<Variant>(roi, shape, settings, slopes);
    values_of<Variant>(state, chi, stop, integral, degrees_of_freedom<Variant, L>(roi, state, settings), settings, out);
}

}  // namespace spotfit::SPOTFIT_ISA
