// The sums over a large ROI's pixels, by the whole GPU: each warp has a tile of it, and what the
// warps have found is added up in a fixed order, in double precision. Few numbers go to the host,
// where the search is (kernels/cpu/large_search.h).
//
// The kernels themselves are a few lines that name a profile, a task and a type of pixels; the
// Python side, src/napari_spotfit/engine/cuda/large_rois.py, writes them.
#pragma once
#include "../large_roi.h"
#include "own_profile.h"
#include "warp.h"

namespace spotfit::SPOTFIT_ISA {

static_assert(TILE_COLUMNS == WARP * OWN_COLUMNS);

template <class Pixel, int TASK> struct TileOfWarp {
    static constexpr int UNROLLED = OWN_COLUMNS;
    static constexpr int COLUMNS_KEPT = 0;
    static constexpr bool KEEPS_VALUES = false, ELECTRONS = TASK == DEVIANCE || TASK == FISHER;

    const LargePixels& source;
    const LargeRequest& request;
    int top, rows_of_tile, left;  // the thread's first column
    AxisProfile<float> along_x[OWN_COLUMNS];

    SPOTFIT_INLINE int own_lines() const { return rows_of_tile; }
    static SPOTFIT_INLINE constexpr int own_columns() { return OWN_COLUMNS; }
    SPOTFIT_INLINE int first_line() const { return top - request.origin_y; }
    SPOTFIT_INLINE int first_column() const { return left - request.origin_x; }
    SPOTFIT_INLINE bool has_line(int) const { return true; }
    SPOTFIT_INLINE bool has_column(int i) const { return left + i < request.columns; }

    SPOTFIT_INLINE long long place(int k, int i) const { return (top + k) * source.row_pitch + left + i; }
    SPOTFIT_INLINE float in_unit(int k, int i) const {
        const Pixel value = static_cast<const Pixel*>(source.pixels)[place(k, i)];
        if constexpr (sizeof(Pixel) == 8) return float((value - request.level) * request.scale);
        else return (float(value) - float(request.level)) * float(request.scale);
    }
    // The read-out variance, or below 0 where the pixel does not count.
    SPOTFIT_INLINE float known(int k, int i) const {
        if (!has_column(i)) return -1.0f;
        return request.planes == VARIANCES ? source.planes[place(k, i)] : 0.0f;
    }
    SPOTFIT_INLINE float plane(int k, int i) const {
        if constexpr (ELECTRONS) {
            const float own = known(k, i);
            return own >= 0.0f ? own : NO_PIXEL;
        } else {
            if (!has_column(i)) return 0.0f;
            if (request.planes == NO_PLANES) return 1.0f;
            const float own = source.planes[place(k, i)];
            if (request.planes == VARIANCES) return own >= 0.0f ? 1.0f : 0.0f;
            return own > 0.0f && own < INFINITE ? own * request.weight : 0.0f;
        }
    }
    SPOTFIT_INLINE float at(int k, int i) const {
        if constexpr (ELECTRONS) {
            const float own = known(k, i);
            return own >= 0.0f ? higher_of(in_unit(k, i) + own, 0.0f) : NO_PIXEL;
        } else {
            return plane(k, i) > 0.0f ? in_unit(k, i) : 0.0f;
        }
    }
    SPOTFIT_INLINE bool has_variance() const { return source.variances != nullptr; }
    SPOTFIT_INLINE float variance(int k, int i) const { return has_column(i) ? source.variances[place(k, i)] : 0.0f; }

    SPOTFIT_INLINE AxisProfile<float> u(int i) const { return along_x[i]; }
    SPOTFIT_INLINE void put_u(int i, const AxisProfile<float>& u) { along_x[i] = u; }

    SPOTFIT_INLINE float sum(float x) const { return x; }
    SPOTFIT_INLINE float lowest(float x) const { return x; }
};

// A warp's sum, the same in all of its threads.
template <class T> SPOTFIT_INLINE T sum_of_warp(T x) {
    UNROLL
    for (int distance = 1; distance < WARP; distance *= 2) x += Warp::exchange(x, distance);
    return x;
}

// A tile's sums, to `numbers`: each sum's of all tiles side by side.
template <class Profile, class Pixel, int TASK>
SPOTFIT_INLINE void add_up_tile(const LargePixels& source, const LargeRequest& request, int tile, int tiles,
                                int rows_of_tile, double* numbers) {
    using Variant = LargeSquares<Profile>;
    if (tile >= tiles) return;
    const int across = (request.columns + TILE_COLUMNS - 1) / TILE_COLUMNS;
    const int top = request.first_row + tile / across * rows_of_tile;
    const int rows = request.end_row - top < rows_of_tile ? request.end_row - top : rows_of_tile;
    const int left = tile % across * TILE_COLUMNS + Warp::lane() * OWN_COLUMNS;
    TileOfWarp<Pixel, TASK> roi = {source, request, top, rows, left, {}};
    FitSettings settings = {};
    settings.angle_convention = request.angle_convention;
    PixelSums<Variant, float> sums;
    const float chi = sums_of_block<Profile>(TASK, roi, request, settings, sums);
    const auto write = [&](float own) SPOTFIT_INLINE_LAMBDA {
        const double total = sum_of_warp(double(own));
        if (Warp::lane() == 0) numbers[tile] = total;
        numbers += tiles;
    };
    UNROLL
    for (const float own : sums.s.a) write(own);
    UNROLL
    for (const float own : sums.s.b) write(own);
    write(chi);
}

// Adds up what the tiles have found: a warp for each sum.
SPOTFIT_INLINE void join_tiles(const double* numbers, int tiles, int sums, int sum, double* joined) {
    if (sum >= sums) return;
    double total = 0.0;
    for (int tile = Warp::lane(); tile < tiles; tile += WARP) total += numbers[1LL * sum * tiles + tile];
    total = sum_of_warp(total);
    if (Warp::lane() == 0) joined[sum] = total;
}

// The pixels of a cell, by a warp.
template <class Pixel>
SPOTFIT_INLINE void fill_cell(const LargePixels& source, const LargeRequest& request, int place, double* numbers) {
    if (place >= request.cell_rows * request.cell_columns) return;
    TileOfWarp<Pixel, CELLS> roi = {source, request, 0, 0, 0, {}};
    const int top = request.top + place / request.cell_columns * request.cell;
    const int left = request.left + place % request.cell_columns * request.cell;
    const int rows = request.rows - top < request.cell ? request.rows - top : request.cell;
    const int columns = request.columns - left < request.cell ? request.columns - left : request.cell;
    double count = 0.0, low = INFINITE, high = -INFINITE, total = 0.0, weights = 0.0;
    for (int i = Warp::lane(); i < rows * columns; i += WARP) {
        const int row = top + i / columns, column = left + i % columns;
        const float weight = roi.plane(row, column);
        if (!(weight > 0.0f)) continue;
        const double value = double(static_cast<const Pixel*>(source.pixels)[roi.place(row, column)]) - request.level;
        count += 1.0;
        low = lower_of(value, low);
        high = higher_of(value, high);
        total += value;
        weights += weight;
    }
    UNROLL
    for (int distance = 1; distance < WARP; distance *= 2) {
        low = lower_of(Warp::exchange(low, distance), low);
        high = higher_of(Warp::exchange(high, distance), high);
    }
    count = sum_of_warp(count), total = sum_of_warp(total), weights = sum_of_warp(weights);
    if (Warp::lane() > 0) return;
    numbers += place * NUMBERS_OF_CELL;
    numbers[0] = count, numbers[1] = low, numbers[2] = high;
    numbers[3] = count > 0.0 ? total / count : 0.0, numbers[4] = weights;
}

}  // namespace spotfit::SPOTFIT_ISA
