// Fits on a CPU: ROIs into tiles of lanes, tiles through the search, results out.
#pragma once
#include "../standard_errors.h"
#include "load_rois.h"
#include "roi.h"

namespace spotfit::SPOTFIT_ISA {

// Number of unfinished fits that a tile hands to a pool, where they run side by side.
constexpr int STRAGGLERS = (LANES + 7) / 8;

// The rows of a tile: pixels, what is known of them, the state of the fits, and their searches.
template <class Variant> struct TileRows {
    using L = LaneType;
    static constexpr int SEARCH = StateRows<Variant>::COUNT;
    static constexpr int ITERATIONS = SEARCH + Variant::ALL + 3, STOP = ITERATIONS + 1, CHI = SEARCH + Variant::ALL;
    static constexpr int STATE_COUNT = SEARCH + Variant::ALL + 8;

    static SPOTFIT_INLINE Search<L, Variant::N> read_search(State<L> state) {
        Search<L, Variant::N> s;
        UNROLL
        for (int j = 0; j < Variant::N; ++j) s.trial[j] = state[SEARCH + j];
        const L* r = &state[CHI];
        s.chi = r[0], s.damping = r[1], s.decrease = r[2], s.iterations = r[3], s.stop = r[4];
        s.expected = r[5], s.stretch = r[6], s.reach = r[7];
        return s;
    }
    static SPOTFIT_INLINE void write_search(const Search<L, Variant::N>& s, State<L> state) {
        UNROLL
        for (int j = 0; j < Variant::N; ++j) state[SEARCH + j] = s.trial[j];
        L* r = &state[CHI];
        r[0] = s.chi, r[1] = s.damping, r[2] = s.decrease, r[3] = s.iterations, r[4] = s.stop;
        r[5] = s.expected, r[6] = s.stretch, r[7] = s.reach;
    }
};
// Of any variant, for those who provide the memory.
constexpr int MOST_STATE_ROWS =
    POINT + 2 * (MAX_SHAPE + 2) + (MAX_SHAPE + 2) * (MAX_SHAPE + 3) / 2 + (MAX_SHAPE + 2) + 8;

// Fits of a tile, and to which ROIs its lanes belong.
struct Tile {
    LaneType* rows;
    long long rois[LANES];
    int count;
};

// A thread's memory.
class Work {
    using L = LaneType;

  public:
    Tile tiles[3];
    float* stage;
    L *values, *variances, *along_lines, *numbers;
    AxisProfile<L>*along_x, *along_y;

    static long long rows_needed(const RoiShape& roi, int expression_lanes) {
        const long long pixels = padded(pixels_of(roi));
        return 3 * (2 * pixels + MOST_STATE_ROWS) + 3 * pixels + 3LL * (roi.columns + roi.rows) + lines_of(roi) +
               expression_lanes;
    }
    Work(void* memory, const RoiShape& roi) {
        L* m = reinterpret_cast<L*>((reinterpret_cast<unsigned long long>(memory) + 63) / 64 * 64);
        const int pixels = padded(pixels_of(roi));
        for (Tile& tile : tiles) tile.rows = m, tile.count = 0, m += 2 * pixels + MOST_STATE_ROWS;
        stage = reinterpret_cast<float*>(m), m += pixels;
        values = m, m += pixels;
        variances = m, m += pixels;
        along_x = reinterpret_cast<AxisProfile<L>*>(m), m += 3 * roi.columns;
        along_y = reinterpret_cast<AxisProfile<L>*>(m), m += 3 * roi.rows;
        along_lines = m, m += lines_of(roi);
        numbers = m;
    }
};

// Loops over tiles are functions of their own, so that maximum likelihood, which begins with least
// squares, has that of the latter.

// Puts the fits of a tile before their first step; its pixels and levels are loaded.
template <class Variant>
__attribute__((noinline)) void start_fits(TileRoi<LaneType> roi, State<LaneType> state,
                                          const LaneType (&start)[Variant::SHAPE], const FitSettings& settings) {
    Search<LaneType, Variant::N> search;
    start_from_pixels<Variant>(roi, state, start, settings, search);
    TileRows<Variant>::write_search(search, state);
}

// Iterates until at most `leave` fits of a tile are under way.
template <class Variant>
__attribute__((noinline)) void search_fits(TileRoi<LaneType> roi, State<LaneType> state, const FitSettings& settings,
                                           int leave) {
    using Rows = TileRows<Variant>;
    Search<LaneType, Variant::N> search = Rows::read_search(state);
    while (count(search.stop < 0.0f) > leave) iterate<Variant>(roi, state, search, settings);
    Rows::write_search(search, state);
}

// Of a measured PSF: ends a search by least squares that was just begun, at the better of two places along z, and
// returns the other one; and restarts maximum likelihood at that which is better by it.
template <class Variant, class L> struct SearchEnd;
template <class Variant>
SearchEnd<Variant, LaneType> search_along_z(TileRoi<LaneType> roi, State<LaneType> state,
                                            const LaneType (&given)[Variant::SHAPE], const FitSettings& settings);
template <class Variant, class Before>
void compare_likelihoods(TileRoi<LaneType> roi, State<LaneType> state, const SearchEnd<Before, LaneType>& other,
                         LaneType best_chi, const FitSettings& settings);

// All that stays the same during a call.
template <class Variant> struct TileFits {
    using L = LaneType;
    using Rows = TileRows<Variant>;
    // Maximum likelihood begins with it, on weights of 0 where a pixel has no variance.
    using LeastSquares = FitVariant<typename Variant::Profile, false, Variant::PLANES, Variant::HELD>;
    static constexpr int S = Variant::SHAPE, AXES = Variant::Profile::AXES, ERRORS = Outputs<Variant>::ERRORS;
    static constexpr bool EXPRESSION = Variant::Profile::EXPRESSION;

    const HostRois& source;
    const RoiShape& shape;
    const FitSettings& settings;
    const FitResults& results;
    Work& work;

    int pixels() const { return pixels_of(shape); }
    State<L> state_of(const Tile& tile) const { return {tile.rows + pixels() * (1 + Variant::PLANES)}; }

    TileRoi<L> roi_of(const Tile& tile) const {
        return {lines_of(shape),  shape.rows,   shape.columns,        tile.rows,    tile.rows + pixels(),
                work.values,      nullptr,      work.along_x,         work.along_y, work.along_lines,
                source.constants, work.numbers, !source.planes.values};
    }

    // Shape parameters that the model has.
    int shape_count() const { return EXPRESSION ? program_of(source)->parameters : S; }

    // The caller's start values, NaN where there are none.
    void load_start(const Tile& tile, L (&start)[S]) const {
        const int given = source.start ? shape_count() : 0;
        for (int j = 0; j < S; ++j) {
            start[j] = L(NOT_A_NUMBER);
            const int place = other_order<typename Variant::Profile>(j);
            for (int lane = 0; j < given && lane < tile.count; ++lane)
                lanes_of(start[j])[lane] = source.start[tile.rois[lane] * given + place];
        }
    }

    // Weights or variances; where there are none, all pixels have the same weight, or no variance.
    void load_planes(const Tile& tile, L* planes) const {
        if (source.planes.values)
            return load_map(source, source.planes, tile.rois, tile.count, shape, work.stage, planes);
        for (int i = 0; i < pixels(); ++i) planes[i] = L(Variant::LIKELIHOOD ? 0.0f : 1.0f);
    }

    // Loads the ROIs from `first` on, and puts their fits before the first step.
    void begin(Tile& tile, long long first, long long last) const {
        const State<L> state = state_of(tile);
        TileRoi<L> roi = roi_of(tile);
        tile.count = last - first < LANES ? int(last - first) : LANES;
        for (int lane = 0; lane < tile.count; ++lane) tile.rois[lane] = first + lane;
        L level;
        load_pixels(source, PlanesAreVariances<Variant>::value, tile.rois, tile.count, shape, work.stage, roi.pixels,
                    lanes_of(level));
        if constexpr (Variant::PLANES) load_planes(tile, Variant::LIKELIHOOD ? work.variances : roi.planes);
        state[LEVEL] = level;
        L start[S];
        load_start(tile, start);
        if constexpr (Variant::LIKELIHOOD) {
            FitSettings first_settings = settings;
            first_settings.max_error = 0.0f;
            if (settings.min_delta < LIKELIHOOD_DELTA) first_settings.min_delta = LIKELIHOOD_DELTA;
            if constexpr (Variant::PLANES) {
                for (int i = 0; i < pixels(); ++i) roi.planes[i] = select(work.variances[i] >= 0.0f, L(1.0f), L(0.0f));
            }
            start_fits<LeastSquares>(roi, state, start, first_settings);
            const auto begin = [&]() {
                if constexpr (Variant::PLANES) {
                    for (int i = 0; i < pixels(); ++i) roi.planes[i] = work.variances[i];
                }
                Search<L, Variant::N> search;
                begin_likelihood<Variant>(roi, state, L(state[TileRows<LeastSquares>::STOP]), settings, search);
                Rows::write_search(search, state);
            };
            if constexpr (Variant::Profile::LATTICE) {
                const auto other = search_along_z<LeastSquares>(roi, state, start, first_settings);
                const L chi = state[TileRows<LeastSquares>::CHI];
                begin();
                compare_likelihoods<Variant>(roi, state, other, chi, settings);
            } else {
                search_fits<LeastSquares>(roi, state, first_settings, 0);
                begin();
            }
        } else {
            start_fits<Variant>(roi, state, start, settings);
            if constexpr (Variant::Profile::LATTICE) {
                search_along_z<Variant>(roi, state, start, settings);
                state.read_point(start);
                Search<L, Variant::N> search;
                start_search<Variant>(search, state, start, L(state[Rows::STOP]) < STOP_INVALID);
                Rows::write_search(search, state);
            }
        }
    }

    // Moves the fits that are still under way to the pool.
    void pool_stragglers(const Tile& tile, Tile& pool) const {
        const int height = pixels() * (1 + Variant::PLANES) + Rows::STATE_COUNT;
        const float* stops = lanes_of(state_of(tile)[Rows::STOP]);
        for (int lane = 0; lane < tile.count; ++lane) {
            if (stops[lane] >= 0.0f) continue;
            const float* from = reinterpret_cast<const float*>(tile.rows) + lane;
            float* to = reinterpret_cast<float*>(pool.rows) + pool.count;
            for (int row = 0; row < height; ++row) to[row * LANES] = from[row * LANES];
            pool.rois[pool.count++] = tile.rois[lane];
        }
    }

    // Writes a tile's numbers of one column: those of neighbouring ROIs at once (fits under way are
    // written again when they end), else those of the fits that have ended, wherever they belong.
    template <class T> static SPOTFIT_INLINE void put(const Tile& tile, bool neighbours, const float* stops, L& row,
                                                      T* column) {
        const float* values = lanes_of(row);
        if (neighbours) {
            T* to = column + tile.rois[0];
            for (int lane = 0; lane < LANES; ++lane) to[lane] = T(values[lane]);
        } else {
            for (int lane = 0; lane < tile.count; ++lane)
                if (stops[lane] >= 0.0f) column[tile.rois[lane]] = T(values[lane]);
        }
    }

    // Makes results of a tile's fits, and writes those of the fits that have ended.
    void write(Tile& tile) const {
        const State<L> state = state_of(tile);
        TileRoi<L> roi = roi_of(tile);
        const L chi = state[Rows::CHI];
        L stop = state[Rows::STOP];
        const float* stops = lanes_of(state[Rows::STOP]);
        const bool neighbours = tile.count == LANES && tile.rois[LANES - 1] - tile.rois[0] == LANES - 1;
        make_canonical<Variant>(state, settings);
        L values[S + 5];
        write_values<Variant>(roi, state, chi, stop, settings, values);
        stop = higher_of(stop, L(0.0f));
        for (int axis = 0; axis < AXES; ++axis)
            put(tile, neighbours, stops, values[axis], results.positions + axis * results.length);
        put(tile, neighbours, stops, stop, results.stop_condition);
        L iterations = higher_of(state[Rows::ITERATIONS], L(0.0f));
        put(tile, neighbours, stops, iterations, results.iterations);
        float* column = results.values;
        for (int j = AXES; j < S + 5; ++j) {
            if (j >= shape_count() && j < S) continue;
            put(tile, neighbours, stops, values[j], column);
            column += results.length;
        }
        if (!settings.errors) return;
        if (source.variance.values) {
            load_map(source, source.variance, tile.rois, tile.count, shape, work.stage, work.variances);
            roi.variances = work.variances;
        }
        L errors[ERRORS];
        write_errors<Variant>(roi, state, chi, state[Rows::STOP], settings, errors);
        for (int j = 0; j < ERRORS; ++j) {
            if (j >= shape_count() && j < S) continue;
            put(tile, neighbours, stops, errors[j], column);
            column += results.length;
        }
    }

    // Fits the ROIs first ... last - 1: tile by tile, stragglers together in a pool.
    void run(long long first, long long last) const {
        Tile *fresh = &work.tiles[0], *pool = &work.tiles[1], *spare = &work.tiles[2];
        while (first < last || pool->count > 0) {
            Tile* current = fresh;
            if (first >= last || pool->count + STRAGGLERS > LANES) {
                current = pool, pool = spare, spare = current;
                pool->count = 0;
                float* stops = lanes_of(state_of(*current)[Rows::STOP]);
                for (int lane = current->count; lane < LANES; ++lane) stops[lane] = STOP_INVALID;
            } else {
                begin(*fresh, first, last);
                first += LANES;
            }
            search_fits<Variant>(roi_of(*current), state_of(*current), settings, first < last ? STRAGGLERS : 0);
            pool_stragglers(*current, *pool);
            write(*current);
        }
    }
};

template <class Variant>
void fit_rois(const HostRois& source, long long first, long long last, const RoiShape& shape,
              const FitSettings& settings, void* memory, const FitResults& results) {
    const SubnormalsAreZero during_this_call;
    Work work(memory, shape);
    TileFits<Variant>{source, shape, settings, results, work}.run(first, last);
}

template <class Profile>
constexpr ProfileFits FITS_OF = {{
    fit_rois<FitVariant<Profile, false, false>>,
    fit_rois<FitVariant<Profile, false, true>>,
    fit_rois<FitVariant<Profile, true, false>>,
    fit_rois<FitVariant<Profile, true, true>>,
}};

}  // namespace spotfit::SPOTFIT_ISA
