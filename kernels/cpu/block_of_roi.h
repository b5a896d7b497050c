// Some rows and columns of a large ROI: what kernels/README.md calls a Roi. Its lanes are neighbouring columns of
// one fit. All sums stay in the lanes; the caller adds them up.
#pragma once
#include "../large_roi.h"
#include "instruction_set.h"
#include "interface.h"

namespace spotfit::SPOTFIT_ISA {

template <class L> struct BlockOfRoi {
    static constexpr bool KEEPS_VALUES = false;
    static constexpr int COLUMNS_KEPT = 32;
#if defined(__AVX512F__)
    static constexpr int LINES_AT_ONCE = 4;
#else
    static constexpr int LINES_AT_ONCE = 2;  // a row needs five registers
#endif

    int top, rows;      // the first row, and how many
    int left, vectors;  // the same of columns, by vectors
    int origin_x, origin_y;
    L *pixels, *planes, *variances;  // variances: null where there are none
    AxisProfile<L>* along_x;
    const void* constants;  // of the profile; null: it has none
    L* numbers;             // memory for it
    static constexpr bool unit_weights = false;

    SPOTFIT_INLINE int own_lines() const { return rows; }
    SPOTFIT_INLINE int own_columns() const { return vectors; }
    SPOTFIT_INLINE int first_line() const { return top - origin_y; }
    SPOTFIT_INLINE bool has_line(int) const { return true; }

    SPOTFIT_INLINE L at(int k, int i) const { return pixels[k * vectors + i]; }
    SPOTFIT_INLINE L plane(int k, int i) const { return planes[k * vectors + i]; }
    SPOTFIT_INLINE L variance(int k, int i) const { return variances[k * vectors + i]; }
    SPOTFIT_INLINE bool has_variance() const { return variances != nullptr; }
    SPOTFIT_INLINE AxisProfile<L> u(int i) const { return along_x[left + i]; }

    SPOTFIT_INLINE L sum(L x) const { return x; }
    SPOTFIT_INLINE L lowest(L x) const { return x; }
};

// 0, 1, 2, ... in the lanes.
template <class L> SPOTFIT_INLINE L lane_numbers() {
    L numbers;
    for (int lane = 0; lane < LANES; ++lane) reinterpret_cast<float*>(&numbers)[lane] = float(lane);
    return numbers;
}

template <class L> SPOTFIT_INLINE L column_at(const BlockOfRoi<L>& roi, int i) {
    return lane_numbers<L>() + float((roi.left + i) * LANES - roi.origin_x);
}

// It is made once for many blocks.
template <class L> struct HasProfileAlongX<BlockOfRoi<L>> { static constexpr bool value = true; };

}  // namespace spotfit::SPOTFIT_ISA
