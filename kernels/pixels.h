// Pixels of any type as numbers in single precision, less a reference.
#pragma once
#include "lanes.h"

namespace spotfit::SPOTFIT_ISA {

// In double precision where the pixels have that.
template <class T> SPOTFIT_INLINE float difference(T value, T reference) {
    if constexpr (sizeof(T) == 8) return float(value - reference);
    else return float(value) - float(reference);
}

// A pixel this far from the others is as bad as an infinite one: sums overflow.
constexpr float TOO_FAR = 1e30f;

// Whether pixels of a type can be NaN, infinite or too far away.
template <class T> constexpr bool MAY_BE_BAD = T(0.5f) > T(0);

template <class L> SPOTFIT_INLINE MaskOf<L> is_good(L value) { return absolute(value) < TOO_FAR; }

}  // namespace spotfit::SPOTFIT_ISA
