// Cells of a field, and the overlap of a movie's segments: what each instruction set has of it.
#pragma once
#include "../layouts/overlap.h"

namespace spotfit {

struct OverlapFunctions {
    // Adds the pulls at points first ... last - 1, by those of other segments, to the sums of their groups.
    void (*add_overlap)(const Overlap&, long long first, long long last, double* sums);
};

namespace {

// Weights exp(-u) end here.
constexpr float REACH = 4;

// exp(-u) for u from 0 to REACH, to 1e-4 of it: the eighth power of exp(-u/8), by a series around the middle.
template <class T> __attribute__((always_inline)) inline T weight(T u) {
#pragma clang fp contract(off)
    const T v = 0.25f - u * 0.125f;
    T w = 0.7788008f * (1.0f + v * (1.0f + v * (0.5f + v * (1.0f / 6 + v * (1.0f / 24)))));
    w *= w, w *= w, w *= w;
    return w;
}

inline int along(float x, float low, float per_unit, int count) {
    const float c = (x - low) * per_unit;
    return c > 0 ? c < static_cast<float>(count) ? static_cast<int>(c) : count - 1 : 0;
}

inline int row_of(const FieldCells& f, float y) { return along(y, f.low_y, f.per_unit, f.down); }
inline int column_of(const FieldCells& f, float x) { return along(x, f.low_x, f.per_unit, f.across); }
inline int cell_of(const FieldCells& f, float y, float x) { return row_of(f, y) * f.across + column_of(f, x); }

// Calls use(first, last) for the cells in the row of a cell that are beside it, and in the rows beside.
template <class Use> inline void each_row(const FieldCells& f, int row, int column, Use use) {
    const int left = column > 0 ? column - 1 : 0, right = column + 1 < f.across ? column + 1 : column;
    for (int v = row > 0 ? row - 1 : 0; v <= row + 1 && v < f.down; ++v) use(v * f.across + left, v * f.across + right);
}

}  // namespace
}  // namespace spotfit
