// Fits on a GPU: a warp takes as many as it has room for, and works on them until all have ended.
//
// The kernel itself is a few lines that name a variant, a kind of ROIs and the sizes of both; the
// Python side, src/napari_spotfit/engine/cuda/fit_kernel.py, writes them.
#pragma once
#include "../standard_errors.h"
#include "lattice.h"
#include "own_profile.h"
#include "register_rois.h"
#include "shared_rois.h"

namespace spotfit::SPOTFIT_ISA {

// Read-out variances where they lie in memory; errors alone need them, once.
template <class Roi, class Layout, bool KNOWN> struct WithVariance : Roi {
    using Roi::Roi;
    const float* variances;
    const RoiSource* source;
    static SPOTFIT_INLINE constexpr bool has_variance() { return KNOWN; }
    SPOTFIT_INLINE float variance(int k, int i) const {
        if (!KNOWN) return 0.0f;
        return variances[Layout::line_at(*source, Roi::first_line() + k) + Roi::first_column() + i];
    }
};

// The search that maximum likelihood begins with. Its planes, if there are any, stay the variances
// that the likelihood needs: a thread has no memory for weights beside them.
template <class Variant> struct LeastSquaresOnVariances : Variant {
    static constexpr bool LIKELIHOOD = false, PLAIN = false;
    static constexpr int N = Variant::SHAPE;
};
template <class Variant, bool PLANES = Variant::PLANES> struct LeastSquaresBefore {
    using Type = LeastSquaresOnVariances<Variant>;
};
template <class Variant> struct LeastSquaresBefore<Variant, false> {
    using Type = FitVariant<typename Variant::Profile, false, false, Variant::HELD, Variant::FAST_AXES>;
};
template <class Variant> struct PlanesAreVariances<LeastSquaresOnVariances<Variant>> {
    static constexpr bool value = true;
};

// The state of a warp's fits, a column for each thread.
template <class Variant> struct WarpState {
    static constexpr int ROWS = StateRows<Variant>::COUNT;
    float rows[ROWS * WARP];
    SPOTFIT_INLINE State<float> column(int lane) { return {rows + (ROW_PITCH == 1 ? lane * ROWS : lane)}; }
};

// What both kinds of ROIs have in common.
template <class Variant, class Lanes, class Layout> struct Fits {
    static constexpr int FITS = Lanes::FITS;  // of a warp
    static constexpr int S = Variant::SHAPE, AXES = Variant::Profile::AXES;
    static constexpr int VALUES = Outputs<Variant>::VALUES, ERRORS = Outputs<Variant>::ERRORS;

    // The caller's start values, NaN where there are none.
    static SPOTFIT_INLINE void load_start(const RoiSource& source, long long fit, bool exists, float (&start)[S]) {
        UNROLL
        for (int j = 0; j < S; ++j) {
            const int place = other_order<typename Variant::Profile>(j);
            start[j] = source.start != nullptr && exists ? source.start[fit * S + place] : NOT_A_NUMBER;
        }
    }

    template <class Own, class Roi>
    static SPOTFIT_INLINE void minimize(Roi& roi, State<float> state, Search<float, Own::N>& search,
                                        const FitSettings& settings) {
        while (roi.any_fit(search.stop < 0.0f)) iterate<Own>(roi, state, search, settings);
    }

    // What ends a search.
    template <class Own, class Roi> static SPOTFIT_INLINE auto minimizer(Roi& roi, State<float> state) {
        return [&roi, state](Search<float, Own::N>& search, const FitSettings& settings)
                   SPOTFIT_INLINE_LAMBDA { minimize<Own>(roi, state, search, settings); };
    }

    template <class Roi>
    static SPOTFIT_INLINE void fit(Roi& roi, State<float> state, const RoiSource& source, long long fit, bool exists,
                                   const FitSettings& settings, const FitResults& results) {
        float start[S];
        load_start(source, fit, exists, start);
        Search<float, S> search;
        if constexpr (Variant::LIKELIHOOD) {
            using LeastSquares = typename LeastSquaresBefore<Variant>::Type;
            FitSettings first = settings;
            first.max_error = 0.0f;
            first.min_delta = higher_of(settings.min_delta, LIKELIHOOD_DELTA);
            start_from_pixels<LeastSquares>(roi, state, start, first, search);
            Search<float, Variant::N> likely;
            if constexpr (Variant::Profile::LATTICE) {
                const auto other = best_along_z<LeastSquares, false>(roi, state, start, first, search,
                                                                     minimizer<LeastSquares>(roi, state));
                const float chi = search.chi;
                begin_likelihood<Variant>(roi, state, search.stop, settings, likely);
                better_likelihood<Variant, true>(roi, state, other, chi, settings, likely,
                                                 minimizer<Variant>(roi, state));
            } else {
                minimize<LeastSquares>(roi, state, search, first);
                begin_likelihood<Variant>(roi, state, search.stop, settings, likely);
                minimize<Variant>(roi, state, likely, settings);
            }
            write(roi, state, likely, source, fit, exists, settings, results);
        } else {
            start_from_pixels<Variant>(roi, state, start, settings, search);
            if constexpr (Variant::Profile::LATTICE)
                best_along_z<Variant, true>(roi, state, start, settings, search, minimizer<Variant>(roi, state));
            else minimize<Variant>(roi, state, search, settings);
            write(roi, state, search, source, fit, exists, settings, results);
        }
    }

    template <class Roi>
    static SPOTFIT_INLINE void write(Roi& roi, State<float> state, const Search<float, Variant::N>& search,
                                     const RoiSource& source, long long fit, bool exists, const FitSettings& settings,
                                     const FitResults& results) {
        put_values(roi, state, search, fit, exists, settings, results);
        if (settings.errors) put_errors(roi, state, search.chi, search.stop, source, fit, exists, settings, results);
    }

    template <class Roi>
    static SPOTFIT_INLINE void put_values(Roi& roi, State<float> state, const Search<float, Variant::N>& search,
                                          long long fit, bool exists, const FitSettings& settings,
                                          const FitResults& results) {
        make_canonical<Variant>(state, settings);
        float values[S + 5];
        write_values<Variant>(roi, state, search.chi, search.stop, settings, values);
        if (!exists || !Lanes::is_first_lane()) return;
        UNROLL
        for (int axis = 0; axis < AXES; ++axis) results.positions[axis * results.length + fit] = values[axis];
        UNROLL
        for (int c = 0; c < VALUES; ++c) results.values[c * results.length + fit] = values[AXES + c];
        results.iterations[fit] = static_cast<unsigned short>(search.iterations);
        results.stop_condition[fit] = static_cast<unsigned char>(search.stop);
    }

    template <class Roi>
    static SPOTFIT_INLINE void put_errors(Roi& roi, State<float> state, float chi, float stop, const RoiSource& source,
                                          long long fit, bool exists, const FitSettings& settings,
                                          const FitResults& results) {
        if (roi.has_variance()) {
            const long long place = exists ? Layout::first_pixel(source, fit, source.variance.shared) : 0;
            roi.variances = source.variance.values + (place < 0 ? 0 : place);  // outside the frames: of no use
            roi.source = &source;
        }
        float errors[ERRORS];
        write_errors<Variant>(roi, state, chi, stop, settings, errors);
        if (!exists || !Lanes::is_first_lane()) return;
        UNROLL
        for (int c = 0; c < ERRORS; ++c) results.values[(VALUES + c) * results.length + fit] = errors[c];
    }
};

// ---- ROIs in registers ----

// SEVERAL: a thread, which has a fit of its own then, takes several, one after the other.
template <class Variant, class Lanes, class Layout, bool VARIANCE_MAP, bool SEVERAL>
struct RegisterFits : Fits<Variant, Lanes, Layout> {
    static_assert(!SEVERAL || Lanes::LANES == 1, "threads that share a fit go on together");
    struct Memory {
        Beside<Lanes> beside;
        WarpState<Variant> state;
    };

    // Fits what is the warp's, up to `last`.
    static SPOTFIT_INLINE void run(Memory& memory, long long first, long long last, const RoiSource& source,
                                   const FitResults& results, const FitSettings& settings) {
        if (first >= last) return;
        if constexpr (SEVERAL) run_several(memory, first, int(last - first), source, results, settings);
        else run_once(memory, first, last, source, results, settings);
    }

  private:
    static constexpr int S = Variant::SHAPE;
    // Threads take their next fits when this many of a warp are idle.
    static constexpr int ENOUGH_IDLE = 24;

    static SPOTFIT_INLINE void run_once(Memory& memory, long long first, long long last, const RoiSource& source,
                                        const FitResults& results, const FitSettings& settings) {
        const long long fit = first + Lanes::own_fit();
        const bool exists = fit < last;
        WithVariance<RegisterRoi<Lanes, Layout>, Layout, VARIANCE_MAP> roi(memory.beside);
        const State<float> state = memory.state.column(Lanes::Warp::lane());
        // Threads without a fit do the last one's, too, and write nothing.
        state[LEVEL] = roi.load(source, Layout::first_pixel(source, exists ? fit : last - 1));
        RegisterFits::fit(roi, state, source, fit, exists, settings, results);
    }

    static SPOTFIT_INLINE void run_several(Memory& memory, long long first, int count, const RoiSource& source,
                                           const FitResults& results, const FitSettings& settings) {
        using Warp = typename Lanes::Warp;
        const int lane = Warp::lane();
        const State<float> state = memory.state.column(lane);
        WithVariance<RegisterRoi<Lanes, Layout>, Layout, VARIANCE_MAP> roi(memory.beside);
        Search<float, Variant::N> search = {};
        search.stop = STOP_INVALID;
        int own = count, next = 0;  // among the warp's fits
        for (;;) {
            const bool done = !(search.stop < 0.0f);
            const unsigned idle = Warp::all_of(done);
            if (idle == Warp::ALL || (next < count && Warp::bits(idle) >= ENOUGH_IDLE)) {
                if (done && own < count) {
                    RegisterFits::put_values(roi, state, search, first + own, true, settings, results);
                    if (settings.errors) keep_for_errors(state, search.chi, first + own, results);
                }
                if (next >= count) break;
                if (done) own = next + Warp::bits(idle & ((1u << lane) - 1));
                if (done && own < count) {
                    float start[Variant::SHAPE];
                    const long long fit = first + own;
                    state[LEVEL] = roi.load(source, Layout::first_pixel(source, fit));
                    RegisterFits::load_start(source, fit, true, start);
                    start_from_pixels<Variant>(roi, state, start, settings, search);
                }
                next += Warp::bits(idle);
            }
            if (search.stop < 0.0f) iterate<Variant>(roi, state, search, settings);
        }
        if (!settings.errors) return;
        Warp::wait();
        for (long long fit = first + lane; fit < first + count; fit += WARP) {
            const float chi = take_kept(results, fit, state);
            const float stop = results.stop_condition[fit];
            RegisterFits::put_errors(roi, state, chi, stop, source, fit, true, settings, results);
        }
    }

    // Errors come last, when no pixels are in registers any more. Until then their columns, and those of
    // the shape, keep what they are made of.
    static SPOTFIT_INLINE void keep_for_errors(State<float> state, float chi, long long fit,
                                               const FitResults& results) {
        const float kept[] = {chi, state[SCALE], state[LEVEL], state[POINT + S], state[POINT + S + 1]};
        static_assert(sizeof(kept) <= sizeof(float) * RegisterFits::ERRORS, "as many columns as errors");
        float* column = results.values + RegisterFits::VALUES * results.length + fit;
        UNROLL
        for (float own : kept) *column = own, column += results.length;
    }
    // Returns chi-square.
    static SPOTFIT_INLINE float take_kept(const FitResults& results, long long fit, State<float> state) {
        const auto column = [&](int c) SPOTFIT_INLINE_LAMBDA { return results.values[c * results.length + fit]; };
        constexpr int KEPT = RegisterFits::VALUES;
        constexpr int AXES = RegisterFits::AXES;
        UNROLL
        for (int axis = 0; axis < AXES; ++axis)
            state[POINT + AXES - 1 - axis] = float(results.positions[axis * results.length + fit]);
        UNROLL
        for (int j = AXES; j < S; ++j) state[POINT + j] = column(j - AXES);
        state[SCALE] = column(KEPT + 1), state[LEVEL] = column(KEPT + 2);
        state[POINT + S] = column(KEPT + 3), state[POINT + S + 1] = column(KEPT + 4);
        return column(KEPT);
    }
};

// ---- ROIs in shared memory ----

template <class Variant, class Lanes, class Layout, bool VARIANCE_MAP> struct SharedFits
    : Fits<Variant, Lanes, Layout> {
    static constexpr bool SEPARABLE = Variant::Profile::SEPARABLE;
    static constexpr bool U_IN_MEMORY = SEPARABLE && (Lanes::columns > 16) && (Variant::LIKELIHOOD || VARIANCE_MAP);
    using WarpSegments =
        Segments<Lanes, Layout, Variant::PLANES, Variant::LIKELIHOOD, U_IN_MEMORY, Variant::Profile::LATTICE>;
    struct Memory {
        WarpSegments segments;
        WarpState<Variant> state;
    };

    static SPOTFIT_INLINE void run(Memory& memory, long long first, long long last, const RoiSource& source,
                                   const FitResults& results, const FitSettings& settings) {
        if (first >= last) return;
        const long long fit = first + Lanes::own_fit();
        const bool exists = fit < last;
        WithVariance<SharedRoi<Lanes, WarpSegments, SEPARABLE>, Layout, VARIANCE_MAP> roi(memory.segments);
        roi.constants = source.constants;
        const State<float> state = memory.state.column(Lanes::Warp::lane());
        state[LEVEL] = memory.segments.load(source, fit, exists);
        SharedFits::fit(roi, state, source, fit, exists, settings, results);
    }
};

}  // namespace spotfit::SPOTFIT_ISA
