// What works on a crowd on a CPU: one thread, with pixels of a line side by side.
#pragma once
#include "../lanes.h"

#define SPOTFIT_NOT_INLINE
#define ROLLED
// Rows of a few numbers: few side by side, as what is left over goes one by one.
#define SHORT_ROW _Pragma("clang loop vectorize_width(4) interleave_count(1)")

namespace spotfit::SPOTFIT_ISA {

// Pixels of a line that are summed side by side, whatever the instruction set.
constexpr int SIDE_BY_SIDE = 16;
using Pixels = Lanes<SIDE_BY_SIDE>;

SPOTFIT_INLINE Pixels load_pixels(const float* from) {
    Pixels p;
    __builtin_memcpy(&p, from, sizeof p);
    return p;
}
SPOTFIT_INLINE void store_pixels(float* to, Pixels p) { __builtin_memcpy(to, &p, sizeof p); }
// 0, 1, 2, ...
SPOTFIT_INLINE Pixels numbers_of_pixels() {
    Pixels p;
    for (int k = 0; k < SIDE_BY_SIDE; ++k) p.v[k] = float(k);
    return p;
}
// Something at both edges of each pixel of a line from 0 on, given at a place: pixels share the edges between them.
template <class Edge, class Each> SPOTFIT_INLINE void over_edges(int count, int padded, Edge edge, Each each) {
    Pixels place = numbers_of_pixels() - 0.5f;
    auto low = edge(place);
    for (int k = 0; k < padded; k += SIDE_BY_SIDE) {
        const auto behind = k + SIDE_BY_SIDE <= count ? edge(place += float(SIDE_BY_SIDE)) : low;
        each(k, low, low.next(behind));
        low = behind;
    }
}
// Of the pixels behind each, given those behind all of them.
SPOTFIT_INLINE Pixels next_pixels(Pixels own, Pixels behind) {
    return __builtin_shufflevector(own.v, behind.v, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16);
}
SPOTFIT_INLINE bool any_pixel(MaskOf<Pixels> mask) { return any(mask); }
// In the same order whatever the instruction set.
SPOTFIT_INLINE float sum_of(Pixels p) {
    const auto half = p.v.lo + p.v.hi;
    const auto quarter = half.lo + half.hi;
    const auto two = quarter.lo + quarter.hi;
    return two.x + two.y;
}

// The same of some, next to each other.
constexpr int SUMS_AT_ONCE = 8;
inline void sums_of(const Pixels* eight, double* sums) {
    using All = decltype(Pixels::v);
    All halves[4], quarters[2];
    for (int k = 0; k < 4; ++k) {
        const All a = eight[2 * k].v, b = eight[2 * k + 1].v;
        halves[k] = __builtin_shufflevector(a, b, 0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23) +
                    __builtin_shufflevector(a, b, 8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28, 29, 30, 31);
    }
    for (int k = 0; k < 2; ++k) {
        const All a = halves[2 * k], b = halves[2 * k + 1];
        quarters[k] = __builtin_shufflevector(a, b, 0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19, 24, 25, 26, 27) +
                      __builtin_shufflevector(a, b, 4, 5, 6, 7, 12, 13, 14, 15, 20, 21, 22, 23, 28, 29, 30, 31);
    }
    const All a = quarters[0], b = quarters[1];
    const All two = __builtin_shufflevector(a, b, 0, 1, 4, 5, 8, 9, 12, 13, 16, 17, 20, 21, 24, 25, 28, 29) +
                    __builtin_shufflevector(a, b, 2, 3, 6, 7, 10, 11, 14, 15, 18, 19, 22, 23, 26, 27, 30, 31);
    for (int k = 0; k < SUMS_AT_ONCE; ++k) sums[k] = two[2 * k] + two[2 * k + 1];
}
// There is room for this many sums beyond those that there are.
template <int COUNT> void all_sums(const Pixels (&own)[COUNT], double* sums) {
    for (int k = 0; k + SUMS_AT_ONCE <= COUNT; k += SUMS_AT_ONCE) sums_of(own + k, sums + k);
    for (int k = COUNT / SUMS_AT_ONCE * SUMS_AT_ONCE; k < COUNT; ++k) sums[k] = sum_of(own[k]);
}

// A sum over pixels that are added line by line. Some lines wait, as those of several are summed in less time.
class Total {
    Pixels waiting[SUMS_AT_ONCE];
    int count = 0;
    double sum = 0;

  public:
    SPOTFIT_INLINE void add(Pixels p) {
        waiting[count++] = p;
        if (count < SUMS_AT_ONCE) return;
        double sums[SUMS_AT_ONCE];
        sums_of(waiting, sums);
        for (const double one : sums) sum += one;
        count = 0;
    }
    double value() const {
        double all = sum;
        for (int k = 0; k < count; ++k) all += sum_of(waiting[k]);
        return all;
    }
};

// The sum of products of `count` numbers, some side by side; of a team, what one has of it.
inline double part_of_dot(const double* a, const double* b, int count) {
    constexpr int WIDE = 8;
    using Doubles = double __attribute__((ext_vector_type(WIDE)));
    double rest = 0;
    if (count < WIDE) {
        for (int k = 0; k < count; ++k) rest += a[k] * b[k];
        return rest;
    }
    Doubles sum = 0.0;
    int k = 0;
    for (; k + WIDE <= count; k += WIDE) {
        Doubles x, y;
        __builtin_memcpy(&x, a + k, sizeof x), __builtin_memcpy(&y, b + k, sizeof y);
        sum += x * y;
    }
    for (; k < count; ++k) rest += a[k] * b[k];
    const auto half = sum.lo + sum.hi;
    const auto two = half.lo + half.hi;
    return rest + (two.x + two.y);
}

// Numbers first ... end - 1, and `then` ... last - 1, by those who have the `own`-th one and each `apart` further on.
template <class Function>
SPOTFIT_INLINE void over_two_ranges(int first, int end, int then, int last, int own, int apart, Function each) {
    if (end >= then) end = last;
    for (int k = first + own; k < end; k += apart) each(k);
    if (end == last) return;
    for (int k = then + own; k < last; k += apart) each(k);
}

// All that work on a crowd: how many they are, how many lines of pixels they have at a time, and numbers of a line; and
// which of them this is.
struct Team {
    static constexpr int LANES = 1, LINES = 1, COLUMNS = 1;
    static constexpr int lane() { return 0; }
    static constexpr int line() { return 0; }
    static constexpr int column() { return 0; }
    // What one has written before, all others read afterwards.
    static void wait() {}
    static double sum(double own) { return own; }
    // Where those who work on different crowds wait for each other: the `part` of a `round`, and a step of that.
    static void meet(int, int) {}
    static void meet_at_step(int) {}
    // The last number for which something is true, or the one before the first.
    template <class Function> static int last_of(int first, int end, Function is_true) {
        int k = end - 1;
        while (k >= first && !is_true(k)) --k;
        return k;
    }
};

// Along how many axes spots move.
constexpr int axes_of(int axes) { return axes; }
// And whether they have a measured PSF, and so a z, in planes.
constexpr bool is_measured_psf(bool is_one) { return is_one; }

}  // namespace spotfit::SPOTFIT_ISA
