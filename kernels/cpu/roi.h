// The pixels of LANES ROIs side by side in memory, one fit to a lane: what kernels/README.md calls
// a Roi. All lanes have the whole of their ROI, so that sums over the lanes of a fit are their own.
#pragma once
#include "../outputs.h"
#include "instruction_set.h"
#include "interface.h"

namespace spotfit::SPOTFIT_ISA {

SPOTFIT_INLINE float* lanes_of(LaneType& row) { return reinterpret_cast<float*>(&row); }
SPOTFIT_INLINE const float* lanes_of(const LaneType& row) { return reinterpret_cast<const float*>(&row); }

template <class L> struct TileRoi {
    static constexpr int LINES_AT_ONCE = SPOTFIT_ISA::LINES_AT_ONCE;
    static constexpr bool KEEPS_VALUES = true, OWN_PLANE = false;
    static constexpr int COLUMNS_KEPT = 32;

    int lines, rows, columns;                 // lines of pixels, those of a plane, and pixels of a line
    L *pixels, *planes, *values, *variances;  // variances: null where there are none
    AxisProfile<L>*along_x, *along_y;
    L* along_lines;
    const void* constants;  // of the profile; null: it has none
    L* numbers;             // memory for it
    bool unit_weights;      // of all pixels, in least squares

    SPOTFIT_INLINE int own_lines() const { return lines; }
    SPOTFIT_INLINE int lines_of_plane() const { return rows; }
    SPOTFIT_INLINE int own_columns() const { return columns; }
    SPOTFIT_INLINE int first_line() const { return 0; }
    SPOTFIT_INLINE int first_column() const { return 0; }
    SPOTFIT_INLINE bool has_line(int) const { return true; }
    SPOTFIT_INLINE bool has_column(int) const { return true; }

    SPOTFIT_INLINE L at(int k, int i) const { return pixels[k * columns + i]; }
    SPOTFIT_INLINE L around(int line, int column) const { return at(line, column); }
    SPOTFIT_INLINE L plane(int k, int i) const { return planes[k * columns + i]; }
    SPOTFIT_INLINE L value(int k, int i) const { return values[k * columns + i]; }
    SPOTFIT_INLINE L variance(int k, int i) const { return variances[k * columns + i]; }
    SPOTFIT_INLINE bool has_variance() const { return variances != nullptr; }
    SPOTFIT_INLINE void put(int k, int i, L x) { pixels[k * columns + i] = x; }
    SPOTFIT_INLINE void put_plane(int k, int i, L x) { planes[k * columns + i] = x; }
    SPOTFIT_INLINE void put_value(int k, int i, L x) { values[k * columns + i] = x; }

    SPOTFIT_INLINE AxisProfile<L> u(int i) const { return along_x[i]; }
    SPOTFIT_INLINE AxisProfile<L> y(int k) const { return along_y[k]; }
    SPOTFIT_INLINE L v(int k) const { return along_lines[k]; }
    SPOTFIT_INLINE void put_u(int i, const AxisProfile<L>& u) { along_x[i] = u; }
    SPOTFIT_INLINE void put_y(int k, const AxisProfile<L>& v) { along_y[k] = v; }
    SPOTFIT_INLINE void put_v(int k, L v) { along_lines[k] = v; }

    SPOTFIT_INLINE L sum(L x) const { return x; }
    SPOTFIT_INLINE L sum_along_x(L x) const { return x; }
    SPOTFIT_INLINE L sum_along_y(L x) const { return x; }
    SPOTFIT_INLINE L lowest(L x) const { return x; }
    SPOTFIT_INLINE void highest_place(L, L&, L&) const {}
    SPOTFIT_INLINE bool any_fit(MaskOf<L> mask) const { return any(mask); }
};

}  // namespace spotfit::SPOTFIT_ISA
