// How the segments of a movie pull at each other. Points of one cell are compared side by side, each with four others
// at once: it sums in the same order however wide vectors are, so all instruction sets find the same drift.
#include "../overlap.h"

#include "../instruction_set.h"
#include "../transpose.h"
#include "tables.h"

// Products and sums are rounded each, as without instructions that fuse them.
#pragma clang fp contract(off)

namespace spotfit::SPOTFIT_ISA {
namespace {

constexpr int OTHERS = 4, MOST_POINTS = LANES / OTHERS;
constexpr int FIRST[OTHERS] = {0, 1, 2, 3};

template <int... I, class Four> SPOTFIT_INLINE auto repeated(Four four, Sequence<I...>) {
    return __builtin_shufflevector(four, four, (I % OTHERS)...);
}

// The sums of POINTS points of one cell, OTHERS numbers of each.
template <int POINTS> class Pulls {
    static constexpr int WIDTH = OTHERS * POINTS;
    using Floats = FloatsOf<WIDTH>;
    using Ints = IntsOf<WIDTH>;

    Floats sum = 0, pull[3] = {}, squares[3] = {};

    SPOTFIT_INLINE static Floats others(const float* from) {
        FloatsOf<OTHERS> four;
        __builtin_memcpy(&four, from, sizeof four);
        return repeated(four, UpTo<WIDTH>());
    }
    SPOTFIT_INLINE static Ints others(const int* from) {
        IntsOf<OTHERS> four;
        __builtin_memcpy(&four, from, sizeof four);
        return repeated(four, UpTo<WIDTH>());
    }
    SPOTFIT_INLINE static double total(const Floats& sums, int k) {
        return static_cast<double>((sums[OTHERS * k] + sums[OTHERS * k + 1]) +
                                   (sums[OTHERS * k + 2] + sums[OTHERS * k + 3]));
    }

  public:
    // Those of `count` points from the first one on; what is left of a vector has the last one again.
    SPOTFIT_INLINE void find(const Overlap& o, long long first, int count, int row, int column) {
        const SegmentPoints &p = o.points, &q = o.others;
        const float scale = 1 / (4 * o.width * o.width);
        Floats y = 0, x = 0, z = 0;
        Ints segment = 0;
        for (int k = 0; k < WIDTH; ++k) {
            const long long i = first + (k / OTHERS < count ? k / OTHERS : count - 1) * o.stride;
            const float* own = o.shifts + 3 * p.group[i];
            y[k] = p.y[i] - own[0], x[k] = p.x[i] - own[1], z[k] = p.z ? p.z[i] - own[2] : 0;
            segment[k] = p.group[i] < o.segments ? p.group[i] : p.group[i] - o.segments;
        }
        const Ints place = others(FIRST);
        each_row(o.cells, row, column, [&](int c, int last) SPOTFIT_INLINE_LAMBDA {
            const int end = o.cells.starts[last + 1];
            for (int j = o.cells.starts[c]; j < end; j += OTHERS) {
                const Floats down = y - others(q.y + j), across = x - others(q.x + j);
                Floats deep = 0, square = down * down + across * across;
                if (q.z) deep = z - others(q.z + j), square += deep * deep;
                const Floats u = square * scale;
                const Ints is_near = (u < REACH) & (others(q.group + j) != segment) & (place < end - j);
                const Floats w = reinterpret_cast<Floats>(reinterpret_cast<Ints>(weight(u)) & is_near);
                sum += w;
                const Floats by_down = w * down, by_across = w * across;
                pull[0] += by_down, pull[1] += by_across;
                squares[0] += by_down * down, squares[1] += by_across * across;
                if (q.z) pull[2] += w * deep, squares[2] += w * deep * deep;
            }
        });
    }

    // Adds those of one point to the sums of its group.
    SPOTFIT_INLINE void add(int k, double* to) const {
        const double overlap = total(sum, k);
        if (!(overlap > 0)) return;
        // A point's position is no better known by more partners than a few.
        const double trust = 1 / (1 + overlap);
        to[PARTNERED] += 1, to[OVERLAP] += trust * overlap;
        for (int axis = 0; axis < 3; ++axis) {
            to[PULL + axis] += trust * total(pull[axis], k);
            to[SQUARE + axis] += trust * total(squares[axis], k);
        }
    }
};

template <int POINTS>
void add_points(const Overlap& o, long long first, int count, int row, int column, double* sums) {
    if constexpr (POINTS > 1)
        if (2 * count <= POINTS) return add_points<POINTS / 2>(o, first, count, row, column, sums);
    Pulls<POINTS> pulls;
    pulls.find(o, first, count, row, column);
    for (int k = 0; k < count; ++k) pulls.add(k, sums + OVERLAP_SUMS * o.points.group[first + k * o.stride]);
}

void add_overlap(const Overlap& o, long long first, long long last, double* sums) {
    const SegmentPoints& p = o.points;
    for (long long i = first; i < last;) {
        const int row = row_of(o.cells, p.y[i]), column = column_of(o.cells, p.x[i]);
        const auto is_beside = [&](long long j) {
            return row_of(o.cells, p.y[j]) == row && column_of(o.cells, p.x[j]) == column;
        };
        int count = 1;
        long long next = i + o.stride;
        for (; next < last && count < MOST_POINTS && is_beside(next); next += o.stride) ++count;
        add_points<MOST_POINTS>(o, i, count, row, column, sums);
        i = next;
    }
}

}  // namespace

const OverlapFunctions overlap = {add_overlap};

}  // namespace spotfit::SPOTFIT_ISA
