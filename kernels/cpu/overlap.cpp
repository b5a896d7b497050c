// Drift from the overlap of a movie's segments: where each lies on those before, and how all pull at each other.
// Compiled once for all machines.
#include "../layouts/overlap.h"

#include "interface.h"

using namespace spotfit;

namespace {

constexpr int BINS = 15, STEPS = 4;
// Of the points in a cell, those added last are compared; those of a segment are evenly taken in as many turns, until
// there are enough pairs.
constexpr int MOST_IN_CELL = 12, TURNS = 8;
// Weights exp(-u) end here.
constexpr float REACH = 4;

// Points that are compared at once.
constexpr int AT_ONCE = 4;
using Four = float __attribute__((ext_vector_type(AT_ONCE)));
using FourInts = int __attribute__((ext_vector_type(AT_ONCE)));

template <class Vector, class Value> __attribute__((always_inline)) inline Vector load(const Value* from) {
    Vector found;
    __builtin_memcpy(&found, from, sizeof found);
    return found;
}
inline float sum_of(Four x) { return (x[0] + x[1]) + (x[2] + x[3]); }

// exp(-u) for u from 0 to REACH, to 1e-4 of it: the eighth power of exp(-u/8), by a series around the middle.
template <class T> __attribute__((always_inline)) inline T weight(T u) {
    const T v = 0.25f - u * 0.125f;
    T w = 0.7788008f * (1.0f + v * (1.0f + v * (0.5f + v * (1.0f / 6 + v * (1.0f / 24)))));
    w *= w, w *= w, w *= w;
    return w;
}

inline int along(float x, float low, float per_unit, int count) {
    const float c = (x - low) * per_unit;
    return c > 0 ? c < static_cast<float>(count) ? static_cast<int>(c) : count - 1 : 0;
}

inline int cell_of(const FieldCells& f, float y, float x) {
    return along(y, f.low_y, f.per_unit, f.down) * f.across + along(x, f.low_x, f.per_unit, f.across);
}

// Calls use(first, last) for the cells in the row of a position, and in those beside it.
template <class Use>
inline void each_row(const FieldCells& f, float y, float x, Use use) {
    const int row = along(y, f.low_y, f.per_unit, f.down), column = along(x, f.low_x, f.per_unit, f.across);
    const int left = column > 0 ? column - 1 : 0, right = column + 1 < f.across ? column + 1 : column;
    for (int v = row > 0 ? row - 1 : 0; v <= row + 1 && v < f.down; ++v) use(v * f.across + left, v * f.across + right);
}

class Starting {
    const DriftStart& s;
    long long pairs = 0;

    float part(long long pair, int axis) const { return s.pairs[3 * pair + axis]; }
    int bin(float x) const { return static_cast<int>((x / s.reach + 1) * (0.5f * BINS)); }

    void add_pairs(float y, float x, float z) {
        const SegmentPoints& p = s.points;
        each_row(s.cells, y, x, [&](int c, int last) {
            for (; c <= last; ++c) {
                int left = MOST_IN_CELL;
                for (int j = s.cells.starts[c]; j >= 0 && left > 0 && pairs < s.most_pairs; j = s.next[j], --left) {
                    const float down = y - p.y[j], across = x - p.x[j], deep = p.z ? z - p.z[j] : 0;
                    if (!(down < s.reach && down > -s.reach && across < s.reach && across > -s.reach)) continue;
                    float* pair = s.pairs + 3 * pairs++;
                    pair[0] = down, pair[1] = across, pair[2] = deep;
                }
            }
        });
    }

    void find_pairs(long long first, long long end, const double* drift) {
        const SegmentPoints& p = s.points;
        const float dy = static_cast<float>(drift[0]), dx = static_cast<float>(drift[1]);
        const float dz = static_cast<float>(drift[2]);
        const long long step = (end - first + s.queries - 1) / s.queries;
        pairs = 0;
        for (int turn = 0; turn < TURNS; ++turn)
            for (long long i = first + turn * step; i < end && pairs < s.most_pairs; i += TURNS * step)
                add_pairs(p.y[i] - dy, p.x[i] - dx, p.z ? p.z[i] - dz : 0);
    }

    // The fullest bins, three side by side along each axis.
    void find_peak(double* peak) const {
        int counts[BINS][BINS] = {}, most = -1;
        for (long long k = 0; k < pairs; ++k) ++counts[bin(part(k, 0))][bin(part(k, 1))];
        for (int v = 1; v + 1 < BINS; ++v)
            for (int u = 1; u + 1 < BINS; ++u) {
                int sum = 0;
                for (int b = v - 1; b <= v + 1; ++b)
                    for (int a = u - 1; a <= u + 1; ++a) sum += counts[b][a];
                if (sum > most) most = sum, peak[0] = v, peak[1] = u;
            }
        const double side = 2.0 * static_cast<double>(s.reach) / BINS;
        for (int axis = 0; axis < 2; ++axis) peak[axis] = (peak[axis] + 0.5) * side - static_cast<double>(s.reach);
        peak[2] = 0;
        if (!s.points.z) return;
        int depths[BINS] = {};
        for (long long k = 0; k < pairs; ++k) {
            const double down = static_cast<double>(part(k, 0)) - peak[0],
                         across = static_cast<double>(part(k, 1)) - peak[1];
            const float deep = part(k, 2);
            if (down * down + across * across < 4 * side * side && deep < s.reach && deep > -s.reach)
                ++depths[bin(deep)];
        }
        most = -1;
        for (int b = 1; b + 1 < BINS; ++b) {
            const int sum = depths[b - 1] + depths[b] + depths[b + 1];
            if (sum > most) most = sum, peak[2] = (b + 0.5) * side - static_cast<double>(s.reach);
        }
    }

    // Moves a peak to the mean of what is around it, and returns how many pairs are there.
    double settle(double* peak) const {
        constexpr float WIDTH = 2;
        double sum = 0;
        for (int step = 0; step < STEPS; ++step) {
            double pull[3] = {};
            sum = 0;
            for (long long k = 0; k < pairs; ++k) {
                float square = 0, off[3];
                for (int axis = 0; axis < 3; ++axis) {
                    off[axis] = part(k, axis) - static_cast<float>(peak[axis]);
                    if (axis < 2 || s.points.z) square += off[axis] * off[axis];
                }
                const float u = square / (4 * WIDTH * WIDTH);
                if (!(u < REACH)) continue;
                const double w = static_cast<double>(weight(u));
                sum += w;
                for (int axis = 0; axis < 3; ++axis) pull[axis] += w * static_cast<double>(off[axis]);
            }
            if (!(sum > 0)) break;
            for (int axis = 0; axis < (s.points.z ? 3 : 2); ++axis) peak[axis] += pull[axis] / sum;
        }
        return sum;
    }

  public:
    explicit Starting(const DriftStart& start) : s(start) {}

    void run() {
        const FieldCells& f = s.cells;
        for (int c = 0; c < f.down * f.across; ++c) f.starts[c] = -1;
        const SegmentPoints& p = s.points;
        double drift[3] = {};
        long long first = 0;
        for (int segment = 0; segment < s.segments; ++segment) {
            long long end = first;
            while (end < p.count && p.group[end] == segment) ++end;
            s.pairs_of[segment] = 0;
            if (first > 0 && end > first) {
                find_pairs(first, end, drift);
                double peak[3] = {};
                if (pairs > 0) {
                    find_peak(peak);
                    s.pairs_of[segment] = settle(peak);
                    for (int axis = 0; axis < 3; ++axis) drift[axis] += peak[axis];
                }
            }
            for (int axis = 0; axis < 3; ++axis) s.drift[3 * segment + axis] = drift[axis];
            for (long long i = first; i < end; ++i) {
                p.y[i] -= static_cast<float>(drift[0]), p.x[i] -= static_cast<float>(drift[1]);
                if (p.z) p.z[i] -= static_cast<float>(drift[2]);
                int& head = f.starts[cell_of(f, p.y[i], p.x[i])];
                s.next[i] = head, head = static_cast<int>(i);
            }
            first = end;
        }
    }
};

}  // namespace

// Finds the drift of each segment from those before it, roughly.
SPOTFIT_EXPORT void spotfit_start_drift(const DriftStart* start) { Starting(*start).run(); }

// Puts points in the order of their cells.
SPOTFIT_EXPORT void spotfit_sort_segments(const SegmentPoints* points, const SegmentPoints* sorted,
                                          const FieldCells* cells) {
    const FieldCells& f = *cells;
    const SegmentPoints &p = *points, &to = *sorted;
    const int count = f.down * f.across;
    for (int c = 0; c <= count; ++c) f.starts[c] = 0;
    for (long long i = 0; i < p.count; ++i) ++f.starts[cell_of(f, p.y[i], p.x[i])];
    int sum = 0;
    for (int c = 0; c <= count; ++c) sum += f.starts[c], f.starts[c] = sum;
    for (long long i = p.count; i-- > 0;) {
        const int place = --f.starts[cell_of(f, p.y[i], p.x[i])];
        to.y[place] = p.y[i], to.x[place] = p.x[i], to.group[place] = p.group[i];
        if (p.z) to.z[place] = p.z[i];
    }
}

// Adds the pulls at points first ... last - 1, by those of other segments, to the sums of their groups.
SPOTFIT_EXPORT void spotfit_add_overlap(const Overlap* overlap, long long first, long long last, double* sums) {
    const Overlap& o = *overlap;
    const SegmentPoints &p = o.points, &q = o.others;
    const FourInts lanes = {0, 1, 2, 3};
    const float scale = 1 / (4 * o.width * o.width);
    for (long long i = first; i < last; i += o.stride) {
        const int group = p.group[i], segment = group < o.segments ? group : group - o.segments;
        const float* own = o.shifts + 3 * group;
        const float y = p.y[i] - own[0], x = p.x[i] - own[1], z = p.z ? p.z[i] - own[2] : 0;
        Four sum = 0, pull[3] = {}, squares[3] = {};
        each_row(o.cells, p.y[i], p.x[i], [&](int c, int last_cell) {
            const int end = o.cells.starts[last_cell + 1];
            for (int j = o.cells.starts[c]; j < end; j += AT_ONCE) {
                const Four down = y - load<Four>(q.y + j), across = x - load<Four>(q.x + j);
                Four deep = 0, square = down * down + across * across;
                if (q.z) deep = z - load<Four>(q.z + j), square += deep * deep;
                const Four u = square * scale;
                const FourInts is_near = (u < REACH) & (load<FourInts>(q.group + j) != segment) & (lanes < end - j);
                const Four w = reinterpret_cast<Four>(reinterpret_cast<FourInts>(weight(u)) & is_near);
                sum += w;
                const Four by_down = w * down, by_across = w * across;
                pull[0] += by_down, pull[1] += by_across;
                squares[0] += by_down * down, squares[1] += by_across * across;
                if (q.z) pull[2] += w * deep, squares[2] += w * deep * deep;
            }
        });
        const double total = static_cast<double>(sum_of(sum));
        if (!(total > 0)) continue;
        // A point's position is no better known by more partners than a few.
        const double trust = 1 / (1 + total);
        double* to = sums + OVERLAP_SUMS * group;
        to[PARTNERED] += 1, to[OVERLAP] += trust * total;
        for (int axis = 0; axis < 3; ++axis) {
            to[PULL + axis] += trust * static_cast<double>(sum_of(pull[axis]));
            to[SQUARE + axis] += trust * static_cast<double>(sum_of(squares[axis]));
        }
    }
}
