// Drift from the overlap of a movie's segments: where each lies on those before, and in which cells its points are.
// Compiled once for all machines.
#include "overlap.h"

#include "interface.h"

using namespace spotfit;

namespace {

constexpr int BINS = 15, STEPS = 4;
// Of the points in a cell, those added last are compared; those of a segment are evenly taken in as many turns, until
// there are enough pairs.
constexpr int MOST_IN_CELL = 12, TURNS = 8;
// Points whose cells are on the way from memory while others are added.
constexpr int AHEAD = 16;

class Starting {
    const DriftStart& s;
    long long pairs = 0;

    float part(long long pair, int axis) const { return s.pairs[3 * pair + axis]; }
    int bin(float x) const { return static_cast<int>((x / s.reach + 1) * (0.5f * BINS)); }

    void add_pairs(float y, float x, float z) {
        const SegmentPoints& p = s.points;
        each_row(s.cells, row_of(s.cells, y), column_of(s.cells, x), [&](int c, int last) {
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

    // Adds a point to its cell, which `next` has until then.
    void add_to_cell(long long i) const {
        int& head = s.cells.starts[s.next[i]];
        s.next[i] = head, head = static_cast<int>(i);
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
                s.next[i] = cell_of(f, p.y[i], p.x[i]);
                __builtin_prefetch(f.starts + s.next[i], 1);
                if (i >= first + AHEAD) add_to_cell(i - AHEAD);
            }
            for (long long i = end - AHEAD > first ? end - AHEAD : first; i < end; ++i) add_to_cell(i);
            first = end;
        }
    }
};

void copy_point(const SegmentPoints& from, long long i, const SegmentPoints& to, long long place) {
    to.y[place] = from.y[i], to.x[place] = from.x[i], to.group[place] = from.group[i];
    if (from.z) to.z[place] = from.z[i];
}

}  // namespace

// Finds the drift of each segment from those before it, roughly.
SPOTFIT_EXPORT void spotfit_start_drift(const DriftStart* start) { Starting(*start).run(); }

// Counts the points first ... last - 1 by their rows of cells.
SPOTFIT_EXPORT void spotfit_count_by_rows(const SegmentPoints* points, const FieldCells* cells, long long first,
                                          long long last, int* counts) {
    for (long long i = first; i < last; ++i) ++counts[row_of(*cells, points->y[i])];
}

// Puts the points first ... last - 1 where the next one of their row of cells belongs, which moves on.
SPOTFIT_EXPORT void spotfit_sort_by_rows(const SegmentPoints* points, const SegmentPoints* sorted,
                                         const FieldCells* cells, long long first, long long last, int* next) {
    for (long long i = first; i < last; ++i) copy_point(*points, i, *sorted, next[row_of(*cells, points->y[i])]++);
}

// Puts the points of some rows of cells, which are row by row, in the order of their cells.
SPOTFIT_EXPORT void spotfit_sort_rows(const SegmentPoints* points, const SegmentPoints* sorted, const FieldCells* cells,
                                      const int* row_starts, long long first_row, long long last_row) {
    const FieldCells& f = *cells;
    for (long long row = first_row; row < last_row; ++row) {
        int* const starts = f.starts + row * f.across;
        for (int c = 0; c < f.across; ++c) starts[c] = 0;
        const int begin = row_starts[row], end = row_starts[row + 1];
        for (int i = begin; i < end; ++i) ++starts[column_of(f, points->x[i])];
        int sum = begin;
        for (int c = 0; c < f.across; ++c) sum += starts[c], starts[c] = sum;
        for (int i = end; i-- > begin;) copy_point(*points, i, *sorted, --starts[column_of(f, points->x[i])]);
    }
    if (last_row == f.down) f.starts[f.down * f.across] = row_starts[f.down];
}
