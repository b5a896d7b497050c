// As many rows of numbers as there are lanes become the lanes of as many vectors.
#pragma once
#include "instruction_set.h"

namespace spotfit::SPOTFIT_ISA {

// 0, 1, ..., N - 1, for __builtin_shufflevector.
template <int... I> struct Sequence {};
template <class, int... I> using SequenceOf = Sequence<I...>;
template <int N> using UpTo = __make_integer_seq<SequenceOf, int, N>;

// Exchanges blocks of HALF numbers between two rows.
template <int HALF, int... I> SPOTFIT_INLINE void swap_blocks(LaneType& a, LaneType& b, Sequence<I...>) {
    const LaneType::Floats x = a.v, y = b.v;
    a.v = __builtin_shufflevector(x, y, (I & HALF ? LANES + I - HALF : I)...);
    b.v = __builtin_shufflevector(x, y, (I & HALF ? LANES + I : I + HALF)...);
}
template <int HALF> SPOTFIT_INLINE void swap_all_blocks(LaneType (&rows)[LANES]) {
    UNROLL
    for (int i = 0; i < LANES; ++i)
        if (!(i & HALF)) swap_blocks<HALF>(rows[i], rows[i + HALF], UpTo<LANES>());
    if constexpr (HALF > 1) swap_all_blocks<HALF / 2>(rows);
}

// LANES neighbouring numbers of each row, which are `stride` apart, become LANES vectors.
SPOTFIT_INLINE void transpose(const float* source, int stride, LaneType* target) {
    LaneType rows[LANES];
    UNROLL
    for (int i = 0; i < LANES; ++i) __builtin_memcpy(&rows[i], source + i * stride, sizeof(LaneType));
    swap_all_blocks<LANES / 2>(rows);
    UNROLL
    for (int i = 0; i < LANES; ++i) target[i] = rows[i];
}

}  // namespace spotfit::SPOTFIT_ISA
