// A measured PSF (Babcock & Zhuang 2017, Li et al. 2018): a cubic spline in x, y and z, kept as B-spline coefficients,
// one number for each voxel.
//
// All pixels of a ROI have the same fractions of a pixel, so that the coefficients are contracted axis by axis: along z
// to those of a plane and their derivative, along y to a line, along x to a pixel. Each machine has its own way from
// coefficients to lines (cpu/lattice.h, cuda/lattice.h): LatticeLines.
//
// A search that begins far from a spot's z may end in a wrong minimum. So the spot is compared with images of the PSF
// at some places along z (TemplateLines), and least squares begins at the best two; the better one goes on.
#pragma once
#include "initial_values.h"
#include "splines.h"

namespace spotfit::SPOTFIT_ISA {

// Least squares begins at a second place along z if that explains so much of what the best one does, and settles to a
// fraction of chi-square; maximum likelihood begins at both ends if the chi-square of one is at most this multiple of
// the other's, so far apart, as a part of the depth.
constexpr float LEAST_SECOND = 0.3f, PLACE_DELTA = LIKELIHOOD_DELTA, RIVAL = 1.3f, APART = 0.03f;

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
// The pixel of a template's image at the first pixel of a ROI with the spot's centre at a pixel of it.
template <class Roi> SPOTFIT_INLINE const float* template_image(const Roi& roi, int number, int row, int column) {
    const int line = (2 * roi.lines + 1) * number + roi.lines - row;
    return lattice_of(roi).template_images + line * (2 * roi.columns + 1) + roi.columns - column;
}

// The pixel of a ROI nearest to a place along an axis; that of no number is the last one.
SPOTFIT_INLINE int pixel_near(float place, int pixels) {
    return place < float(pixels - 1) ? knot_before(place + 0.5f) : pixels - 1;
}

template <class L, class Roi> struct LatticeLines;
template <class L, class Roi> struct TemplateLines;

template <class Variant, class L, class Roi> struct PixelProfile<Variant, L, Roi, false, false, true> {
    LatticeLines<L, Roi> lines;

    SPOTFIT_INLINE PixelProfile(Roi& roi, const L (&shape)[Variant::SHAPE], const FitSettings&) : lines(roi, shape) {}
    template <class Use, class EndLine>
    SPOTFIT_INLINE void for_each_pixel(const Roi& roi, Use use, EndLine end_line) {
        lines.for_each_pixel(roi, use, end_line);
    }
};

// Where a search begins, by which template, and how good that is.
template <class L> struct LatticeStart {
    L shape[MeasuredPsf::SHAPE], number, score;

    SPOTFIT_INLINE void take(MaskOf<L> mask, const LatticeStart& other) {
        UNROLL
        for (int j = 0; j < MeasuredPsf::SHAPE; ++j) shape[j] = select(mask, other.shape[j], shape[j]);
        number = select(mask, other.number, number), score = select(mask, other.score, score);
    }
};

// Where the centre of a spot with lobes is looked for along an axis of a ROI, `BATCH` pixels at a time. In a small ROI,
// a lobe may be all that there is, with the centre at its rim and on either side: there, each pixel is tried.
struct CoarseGrid {
    static constexpr int BATCH = 3, LARGE = 16;
    int first, last, step;

    SPOTFIT_INLINE explicit CoarseGrid(int pixels) : step(pixels <= LARGE ? 1 : 2) {
        first = (pixels - 1) / 2 % step;
        last = pixels - 1 - first;
    }
};

// Where a parabola through three points at -1, 0 and 1 is highest, from -1 to 1; the higher end if it has no maximum.
template <class L> SPOTFIT_INLINE L top_of_parabola(L before, L middle, L after) {
    const L slope = after - before, bend = middle + middle - before - after;
    const L top = clamp(slope * 0.5f / bend, L(-1.0f), L(1.0f));
    const L end = select(slope > 0.0f, L(1.0f), L(-1.0f));
    return select(bend > 0.0f, top, select(slope == 0.0f, L(0.0f), end));
}

// Compares a spot with templates.
template <class Variant, class L, class Roi> struct TemplateSearch {
    using Start = LatticeStart<L>;

    Roi& roi;
    const State<L> state;
    const L x, y;  // the middle of the light

    // Sums over pixels of an image, and of its product with the spot.
    struct Sums {
        L f = 0.0f, ff = 0.0f, fg = 0.0f;

        SPOTFIT_INLINE void add(L own, L weight, L g) {
            const L w = own * weight;
            f += w, ff = multiply_add(w, own, ff), fg = multiply_add(w, g, fg);
        }
    };
    // Adds up pixels: `begin` is given a line's number, `add` a pixel's number in it, its weight and the spot's light.
    template <class Begin, class Add> SPOTFIT_INLINE void for_each_pixel(Begin begin, Add add) const {
        for (int k = 0; k < roi.own_lines(); ++k) {
            if (!roi.has_line(k)) break;
            begin(k);
            UNROLL_PIXELS
            for (int i = 0; i < roi.own_columns(); ++i) add(i, weight_at<Variant, L>(roi, k, i), roi.at(k, i));
        }
    }
    // What an image takes off the sum of squares, with the best amplitude above 0 and background.
    SPOTFIT_INLINE L explained_squares(Sums sums) const {
        sums.f = roi.sum(sums.f), sums.ff = roi.sum(sums.ff), sums.fg = roi.sum(sums.fg);
        const L count = valid_pixels<Variant, L>(roi, state);
        const Amplitudes<L> best = free_amplitudes(count, sums.f, sums.ff, sums.fg);
        return select(best.amplitude > 0.0f, best.amplitude * sums.fg, L(0.0f));
    }
    // The best place of a template all over the ROI: of lobes, noise may have shown the wrong one.
    SPOTFIT_INLINE Start best_place(int number) const {
        constexpr int BATCH = CoarseGrid::BATCH;
        const CoarseGrid rows(roi.lines), columns(roi.columns);
        const int pitch = 2 * roi.columns + 1;
        Start best = {{L(0.0f), L(0.0f), L(lattice_of(roi).template_z[3 * number])}, L(float(number)), L(0.0f)};
        for (int row = rows.first; row <= rows.last; row += rows.step)
            for (int column = columns.first; column <= columns.last; column += BATCH * columns.step) {
                int places[BATCH];
                const float* lines[BATCH];
                UNROLL
                for (int n = 0; n < BATCH; ++n) {
                    const int place = column + n * columns.step;
                    places[n] = place < columns.last ? place : columns.last;
                    lines[n] = template_image(roi, number, row, places[n]) + roi.first_line() * pitch;
                }
                Sums sums[BATCH];
                for_each_pixel(
                    [&](int k) SPOTFIT_INLINE_LAMBDA {
                        UNROLL
                        for (int n = 0; n < BATCH; ++n) lines[n] += k > 0 ? pitch : 0;
                    },
                    [&](int i, L weight, L g) SPOTFIT_INLINE_LAMBDA {
                        UNROLL
                        for (int n = 0; n < BATCH; ++n) sums[n].add(L(lines[n][i]), weight, g);
                    });
                UNROLL
                for (int n = 0; n < BATCH; ++n) {
                    const L score = explained_squares(sums[n]);
                    const MaskOf<L> better = score > best.score;
                    best.shape[0] = select(better, L(float(places[n])), best.shape[0]);
                    best.shape[1] = select(better, L(float(row)), best.shape[1]);
                    best.score = select(better, score, best.score);
                }
            }
        return best;
    }
    // The middle of the pixel of a ROI nearest to a place.
    static SPOTFIT_INLINE L nearest(L place, int pixels) {
        L pixel;
        for (int lane = 0; lane < int(sizeof(L) / sizeof(float)); ++lane)
            reinterpret_cast<float*>(&pixel)[lane] = float(pixel_near(reinterpret_cast<float*>(&place)[lane], pixels));
        return pixel;
    }
    // Moves a start by up to a pixel along y and x, to the maximum of parabolas through its and its neighbours' scores.
    SPOTFIT_INLINE void refine(Start& best) const {
        TemplateLines<L, Roi> lines(roi, best.number, best.shape);
        Sums here, above, below, left, right;
        for_each_pixel([&](int k) SPOTFIT_INLINE_LAMBDA { lines.begin(k); },
                       [&](int i, L weight, L g) SPOTFIT_INLINE_LAMBDA {
                           here.add(lines.at(0, i), weight, g);
                           above.add(lines.at(-1, i), weight, g), below.add(lines.at(1, i), weight, g);
                           left.add(lines.at(0, i - 1), weight, g), right.add(lines.at(0, i + 1), weight, g);
                       });
        // An image from one pixel on is that of a spot one pixel before.
        const L middle = explained_squares(here);
        const L before[] = {explained_squares(right), explained_squares(below)};
        const L after[] = {explained_squares(left), explained_squares(above)};
        const L place[] = {nearest(best.shape[0], roi.columns), nearest(best.shape[1], roi.lines)};
        best.score = middle;
        UNROLL
        for (int j = 0; j < 2; ++j) {
            const L step = top_of_parabola(before[j], middle, after[j]);
            best.shape[j] = place[j] + step;
            best.score += (after[j] - before[j]) * step * 0.25f;
        }
    }
    // The best two of the places along z that are better than those around them.
    SPOTFIT_INLINE void best_two(const L (&start)[Variant::SHAPE], Start& first, Start& second) const {
        const Start none = {{start[0], start[1], start[2]}, L(0.0f), L(0.0f)};
        Start last = none;
        first = second = none;
        L before = 0.0f;
        const auto put = [&](MaskOf<L> is_peak) SPOTFIT_INLINE_LAMBDA {
            const MaskOf<L> better = is_peak & (last.score > first.score);
            second.take(better, first);
            second.take(is_peak & !better & (last.score > second.score), last);
            first.take(better, last);
        };
        const PsfLattice& psf = lattice_of(roi);
        for (int k = 0; k < psf.template_count;) {
            const float z = psf.template_z[3 * k];
            Start own = none;
            for (bool is_first = true; k < psf.template_count && psf.template_z[3 * k] == z; ++k, is_first = false) {
                if (psf.has_lobes && !is_first) continue;
                Start next = {
                    {x - psf.template_z[3 * k + 1], y - psf.template_z[3 * k + 2], L(z)}, L(float(k)), L(0.0f)};
                if (psf.has_lobes) next = best_place(k);
                ONE_IN_CODE
                for (int again = 0; again < 2; ++again) refine(next);
                own.take(next.score > own.score, next);
            }
            put((last.score >= before) & (last.score > own.score));
            before = last.score, last = own;
        }
        put(last.score >= before);
    }
};

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
    LatticeStart<L> first, second = {{L(0.0f), L(0.0f), L(0.0f)}, L(0.0f), L(0.0f)};
    const MaskOf<L> open = is_z_open<Variant>(given, settings);
    if (!roi.any_fit(open)) return second;
    L start[Variant::SHAPE];
    UNROLL
    for (int j = 0; j < Variant::SHAPE; ++j) start[j] = search.trial[j];
    TemplateSearch<Variant, L, Roi>{roi, state, start[0], start[1]}.best_two(start, first, second);
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

// Begins a search where the last one has ended.
template <class Variant, class L> SPOTFIT_INLINE void search_on(State<L> state, Search<L, Variant::N>& search) {
    L start[Variant::N];
    state.read_point(start);
    start_search<Variant>(search, state, start, search.stop < STOP_INVALID);
}

// Ends a search that was just begun, at the better of two places, coarsely, and, if TO_THE_END, goes on from there;
// returns the other one. `minimize` ends a search; `second` gives the other start, and where there is one. All in one
// loop, as a GPU has little memory for code.
template <class Variant, bool TO_THE_END, class L, class Minimize, class Second>
SPOTFIT_INLINE SearchEnd<Variant, L> better_of_two(State<L> state, const FitSettings& settings,
                                                   Search<L, Variant::N>& search, bool are_two, Minimize minimize,
                                                   Second second) {
    FitSettings own = settings;
    SearchEnd<Variant, L> end(state, search.chi, search.stop);
    ONE_IN_CODE
    for (int turn = are_two ? 0 : 2; turn < 3; ++turn) {
        if (turn == 1) {
            end = SearchEnd<Variant, L>(state, search.chi, search.stop);
            L start[Variant::N];
            state.read_point(start);
            const MaskOf<L> usable = second(start) & (search.stop < STOP_INVALID);
            start_search<Variant>(search, state, start, usable);
        }
        if (turn == 2 && are_two) {
            end.keep_better(state, search.chi, search.stop);
            if (Variant::LIKELIHOOD || TO_THE_END) search_on<Variant>(state, search);
        }
        if (turn == 2 && !TO_THE_END) break;
        own.min_delta = turn < 2 && settings.min_delta < PLACE_DELTA ? PLACE_DELTA : settings.min_delta;
        own.max_error = turn < 2 && Variant::LIKELIHOOD ? 0.0f : settings.max_error;
        minimize(search, own);
    }
    return end;
}

// The better of two places along z by least squares.
template <class Variant, bool TO_THE_END, class L, class Roi, class Minimize>
SPOTFIT_INLINE SearchEnd<Variant, L> best_along_z(Roi& roi, State<L> state, const L (&given)[Variant::SHAPE],
                                                  const FitSettings& settings, Search<L, Variant::N>& search,
                                                  Minimize minimize) {
    const LatticeStart<L> other = start_at_templates<Variant>(roi, state, given, settings, search);
    return better_of_two<Variant, TO_THE_END>(state, settings, search, true, minimize,
                                              [&](L(&start)[Variant::N]) SPOTFIT_INLINE_LAMBDA {
                                                  UNROLL
                                                  for (int j = 0; j < Variant::SHAPE; ++j) start[j] = other.shape[j];
                                                  return other.score > 0.0f;
                                              });
}

// The same by maximum likelihood, of least squares' two, where they are about as good.
template <class Variant, bool TO_THE_END, class Before, class L, class Roi, class Minimize>
SPOTFIT_INLINE void better_likelihood(Roi& roi, State<L> state, const SearchEnd<Before, L>& other, L best_chi,
                                      const FitSettings& settings, Search<L, Variant::N>& search, Minimize minimize) {
    const MaskOf<L> rival = other.is_rival(state, best_chi, settings);
    better_of_two<Variant, TO_THE_END>(state, settings, search, roi.any_fit(rival), minimize,
                                       [&](L(&start)[Variant::N]) SPOTFIT_INLINE_LAMBDA {
                                           UNROLL
                                           for (int j = 0; j < Variant::SHAPE; ++j) start[j] = other.point[j];
                                           return rival;
                                       });
}

}  // namespace spotfit::SPOTFIT_ISA
