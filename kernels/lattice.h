// A measured PSF (Babcock & Zhuang 2017, Li et al. 2018): a cubic spline in x, y and z, kept as B-spline coefficients,
// one number for each voxel.
//
// All pixels of a ROI have the same fractions of a pixel, so that the coefficients are contracted axis by axis: along z
// to those of a plane and their derivative, along y to a line, along x to a pixel. Each machine has its own way from
// coefficients to lines (cpu/lattice.h, cuda/lattice.h): LatticeLines, with or without derivatives.
//
// A search that begins far from a spot's z may end in a wrong minimum. So the spot is compared with the PSF at some
// places along z, and least squares, which is quick to tell, begins at the best two; the better one goes on.
#pragma once
#include "initial_values.h"
#include "layouts/psf_lattice.h"

namespace spotfit::SPOTFIT_ISA {

// Least squares begins at a second place along z if that explains so much of what the best one does, and settles to a
// fraction of chi-square; maximum likelihood begins at both ends if the chi-square of one is at most this multiple of
// the other's, so far apart, as a part of the depth.
constexpr float LEAST_SECOND = 0.3f, PLACE_DELTA = LIKELIHOOD_DELTA, RIVAL = 1.3f, APART = 0.03f;

// The four B-splines that are not 0 at a fraction t behind a knot, and their derivatives.
template <class L> struct Taps {
    L value[4], slope[4];

    SPOTFIT_INLINE explicit Taps(L t) {
        const L s = 1.0f - t, tt = t * t, ss = s * s;
        value[0] = ss * s * (1.0f / 6.0f), value[3] = tt * t * (1.0f / 6.0f);
        value[1] = multiply_add(tt, multiply_add(t, L(0.5f), L(-1.0f)), L(2.0f / 3.0f));
        value[2] = multiply_add(ss, multiply_add(s, L(0.5f), L(-1.0f)), L(2.0f / 3.0f));
        slope[0] = ss * -0.5f, slope[3] = tt * 0.5f;
        slope[1] = t * multiply_add(t, L(1.5f), L(-2.0f));
        slope[2] = s * multiply_add(s, L(-1.5f), L(2.0f));
    }
    SPOTFIT_INLINE L sum(L a, L b, L c, L d) const {
        return multiply_add(value[3], d, multiply_add(value[2], c, multiply_add(value[1], b, value[0] * a)));
    }
    SPOTFIT_INLINE L sum_of_slopes(L a, L b, L c, L d) const {
        return multiply_add(slope[3], d, multiply_add(slope[2], c, multiply_add(slope[1], b, slope[0] * a)));
    }
};

template <class Roi> SPOTFIT_INLINE const PsfLattice& lattice_of(const Roi& roi) {
    return *static_cast<const PsfLattice*>(roi.constants);
}

// Where the pixel at (0, 0) of a ROI is among the knots, within the lattice whatever the shape. NaN stays NaN.
template <class L> struct LatticePlace {
    L x, y, z;
    template <class Roi>
    SPOTFIT_INLINE LatticePlace(const Roi& roi, const PsfLattice& psf, const L (&shape)[MeasuredPsf::SHAPE])
        : x(clamp(psf.x - shape[0], L(0.0f), L(float(psf.columns - 3 - roi.columns)))),
          y(clamp(psf.y - shape[1], L(0.0f), L(float(psf.rows - 3 - roi.lines)))),
          z(clamp(multiply_add(shape[2], L(psf.planes_per_nm), L(psf.z)), L(0.0f), L(float(psf.planes - 3)))) {}
};
// The knot before a place; that of no number is the first one.
SPOTFIT_INLINE int knot_before(float place) { return place > 0.0f ? int(place) : 0; }
SPOTFIT_INLINE int plane_before(const PsfLattice& psf, float place) {
    const int knot = knot_before(place);
    return knot < psf.planes - 4 ? knot : psf.planes - 4;
}

template <class L, class Roi, bool SLOPES> struct LatticeLines;

template <class Variant, class L, class Roi> struct PixelProfile<Variant, L, Roi, false, false, true> {
    LatticeLines<L, Roi, true> lines;

    SPOTFIT_INLINE PixelProfile(Roi& roi, const L (&shape)[Variant::SHAPE], const FitSettings&) : lines(roi, shape) {}
    SPOTFIT_INLINE void begin_line(int k) { lines.begin(k); }
    SPOTFIT_INLINE L at(int i, L (&d)[Variant::SHAPE]) { return lines.at(i, d); }
};

// What the PSF at a place takes off the sum of squares, with the best amplitude above 0 and background.
template <class Variant, class L, class Roi>
SPOTFIT_INLINE L explained_squares(Roi& roi, State<L> state, const L (&shape)[Variant::SHAPE]) {
    LatticeLines<L, Roi, false> lines(roi, shape);
    L f = 0.0f, ff = 0.0f, fg = 0.0f;
    for (int k = 0; k < roi.own_lines(); ++k) {
        if (!roi.has_line(k)) break;
        lines.begin(k);
        UNROLL_PIXELS
        for (int i = 0; i < roi.own_columns(); ++i) {
            const L own = lines.at(i), w = own * weight_at<Variant, L>(roi, k, i);
            f += w, ff = multiply_add(w, own, ff), fg = multiply_add(w, roi.at(k, i), fg);
        }
    }
    f = roi.sum(f), ff = roi.sum(ff), fg = roi.sum(fg);
    const Amplitudes<L> best = free_amplitudes(valid_pixels<Variant, L>(roi, state), f, ff, fg);
    return select(best.amplitude > 0.0f, best.amplitude * fg, L(0.0f));
}

// Where a search begins, and how good that is.
template <class L> struct LatticeStart {
    L shape[MeasuredPsf::SHAPE], score;

    SPOTFIT_INLINE void take(MaskOf<L> mask, const LatticeStart& other) {
        UNROLL
        for (int j = 0; j < MeasuredPsf::SHAPE; ++j) shape[j] = select(mask, other.shape[j], shape[j]);
        score = select(mask, other.score, score);
    }
};

// The best two of the places along z that are better than those around them. Several templates may have one z.
template <class Variant, class L, class Roi>
SPOTFIT_INLINE void best_starts(Roi& roi, State<L> state, const L (&start)[Variant::SHAPE], LatticeStart<L>& first,
                                LatticeStart<L>& second) {
    const PsfLattice& psf = lattice_of(roi);
    LatticeStart<L> own = {{start[0], start[1], start[2]}, L(0.0f)}, last = own;
    first = second = last;
    L before = 0.0f;
    const auto put = [&](MaskOf<L> is_peak) SPOTFIT_INLINE_LAMBDA {
        const MaskOf<L> best = is_peak & (last.score > first.score);
        second.take(best, first);
        second.take(is_peak & !best & (last.score > second.score), last);
        first.take(best, last);
    };
    for (int k = 0; k < psf.template_count; ++k) {
        const PsfTemplate& at = psf.templates[k];
        LatticeStart<L> next = {{start[0] - at.x, start[1] - at.y, L(at.z)}, L(0.0f)};
        next.score = explained_squares<Variant>(roi, state, next.shape);
        if (k > 0 && at.z == psf.templates[k - 1].z) {
            own.take(next.score > own.score, next);
            continue;
        }
        put((last.score >= before) & (last.score > own.score));
        before = last.score, last = own, own = next;
    }
    put((last.score >= before) & (last.score > own.score));
    before = last.score, last = own;
    put(last.score >= before);
}

// Whether there is a search for z: it is fitted, and the caller has not said where to begin.
template <class Variant, class L>
SPOTFIT_INLINE MaskOf<L> is_z_open(const L (&given)[Variant::SHAPE], const FitSettings& settings) {
    if (is_held<Variant>(settings, MeasuredPsf::Z)) return false;
    return is_nan(given[MeasuredPsf::Z]);
}

// Moves a search that was just begun to the best place, and returns the second one.
template <class Variant, class L, class Roi>
SPOTFIT_INLINE LatticeStart<L> start_at_templates(Roi& roi, State<L> state, const L (&given)[Variant::SHAPE],
                                                  const FitSettings& settings, Search<L, Variant::N>& search) {
    LatticeStart<L> first, second = {{L(0.0f), L(0.0f), L(0.0f)}, L(0.0f)};
    const MaskOf<L> open = is_z_open<Variant>(given, settings);
    if (!roi.any_fit(open)) return second;
    L start[Variant::SHAPE];
    UNROLL
    for (int j = 0; j < Variant::SHAPE; ++j) start[j] = search.trial[j];
    best_starts<Variant>(roi, state, start, first, second);
    UNROLL
    for (int j = 0; j < Variant::SHAPE; ++j) {
        const L own = clamp(first.shape[j], L(settings.low[j]), L(settings.high[j]));
        search.trial[j] = state[POINT + j] = select(open & !MaskOf<L>(is_held<Variant>(settings, j)), own, start[j]);
        second.shape[j] = clamp(second.shape[j], L(settings.low[j]), L(settings.high[j]));
        second.shape[j] = select(MaskOf<L>(is_held<Variant>(settings, j)), start[j], second.shape[j]);
    }
    second.score = select(open & (second.score > LEAST_SECOND * first.score), second.score, L(0.0f));
    return second;
}

// Where a search has ended.
template <class Variant, class L> struct SearchEnd {
    L point[Variant::ALL], chi, stop;

    SPOTFIT_INLINE SearchEnd(State<L> state, L chi, L stop) : chi(chi), stop(stop) { state.read_point(point); }
    // Puts it back where the one after it was no better, and keeps the other one.
    SPOTFIT_INLINE void keep_better(State<L> state, L& later_chi, L& later_stop) {
        const MaskOf<L> later = (later_stop < STOP_INVALID) & (later_chi < chi);
        const auto swap = [&](L& there, L& here) SPOTFIT_INLINE_LAMBDA {
            const L kept = there;
            there = select(later, kept, here), here = select(later, here, kept);
        };
        UNROLL
        for (int j = 0; j < Variant::ALL; ++j) swap(state[POINT + j], point[j]);
        swap(later_chi, chi), swap(later_stop, stop);
    }
    // Where it may yet be the better one, against least squares.
    SPOTFIT_INLINE MaskOf<L> is_rival(State<L> state, L best_chi, const FitSettings& settings) const {
        constexpr int Z = MeasuredPsf::Z;
        const L apart = absolute(point[Z] - state[POINT + Z]);
        return (stop < STOP_INVALID) & (chi < RIVAL * best_chi) &
               (apart > APART * (settings.high[Z] - settings.low[Z]));
    }
};

// Ends a search by least squares that was just begun, at the better of two places along z, and returns the other one.
// `minimize` ends a search.
template <class Variant, class L, class Roi, class Minimize>
SPOTFIT_INLINE SearchEnd<Variant, L> best_along_z(Roi& roi, State<L> state, const L (&given)[Variant::SHAPE],
                                                  const FitSettings& settings, Search<L, Variant::N>& search,
                                                  Minimize minimize) {
    const LatticeStart<L> second = start_at_templates<Variant>(roi, state, given, settings, search);
    FitSettings first = settings;
    if (first.min_delta < PLACE_DELTA) first.min_delta = PLACE_DELTA;
    minimize(search, first);
    SearchEnd<Variant, L> end(state, search.chi, search.stop);
    const MaskOf<L> usable = (second.score > 0.0f) & (search.stop < STOP_INVALID);
    start_search<Variant>(search, state, second.shape, usable);
    minimize(search, first);
    end.keep_better(state, search.chi, search.stop);
    return end;
}

// Begins a search where the last one has ended.
template <class Variant, class L> SPOTFIT_INLINE void search_on(State<L> state, Search<L, Variant::N>& search) {
    L start[Variant::N];
    state.read_point(start);
    start_search<Variant>(search, state, start, search.stop < STOP_INVALID);
}

// Restarts a search by maximum likelihood where that is better: of least squares' two, which are about as good.
template <class Variant, class Before, class L, class Roi, class Minimize>
SPOTFIT_INLINE void better_likelihood(Roi& roi, State<L> state, const SearchEnd<Before, L>& other, L best_chi,
                                      const FitSettings& given, Search<L, Variant::N>& search, Minimize minimize) {
    const MaskOf<L> rival = other.is_rival(state, best_chi, given);
    if (!roi.any_fit(rival)) return;
    FitSettings settings = given;
    settings.max_error = 0.0f;
    if (settings.min_delta < LIKELIHOOD_DELTA) settings.min_delta = LIKELIHOOD_DELTA;
    minimize(search, settings);
    SearchEnd<Variant, L> end(state, search.chi, search.stop);
    L start[Variant::N];
    state.read_point(start);
    UNROLL
    for (int j = 0; j < Variant::SHAPE; ++j) start[j] = other.point[j];
    const MaskOf<L> usable = rival & (search.stop < STOP_INVALID);
    start_search<Variant>(search, state, start, usable);
    minimize(search, settings);
    end.keep_better(state, search.chi, search.stop);
    search_on<Variant>(state, search);
}

}  // namespace spotfit::SPOTFIT_ISA
