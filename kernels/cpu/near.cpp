// Which points have another one near, in the same frame, compiled once for all machines.
// Python's side of it is src/napari_spotfit/engine/near.py.
#include "interface.h"

// Points of frames, and room to sort their numbers by cells of the frames: those of cell c are
// by_cell[starts[c]] to by_cell[starts[c + 1] - 1].
struct NearPoints {
    const long long* frame;  // from 0 on
    const double *y, *x;     // NaN: near to none
    // Of two points the one of lower rank stays; null: every point counts for every other one.
    const double* rank;
    const unsigned char* asked;  // which are asked for; null: all
    long long count, cells;
    long long down, across;  // rows and columns of cells in each frame
    double side;             // of a cell, in pixels: no less than the reach, or a neighbour is far away
    double reach_y, reach_x;
    long long *starts, *by_cell;
};

namespace {

long long within(double x, long long count) {
    const long long i = x > 0 ? static_cast<long long>(x) : 0;
    return i < count ? i : count - 1;
}

// Cells of a frame, and a little more than the reach, as all that is rounded.
struct Cells {
    const NearPoints& p;
    double per_pixel, far_y, far_x;

    explicit Cells(const NearPoints& points)
        : p(points), per_pixel(1 / points.side), far_y(points.reach_y * (1 + 1e-9)),
          far_x(points.reach_x * (1 + 1e-9)) {}
    long long row(long long frame, double y) const {
        return (frame * p.down + within(y * per_pixel, p.down)) * p.across;
    }
    long long column(double x) const { return within(x * per_pixel, p.across); }

    void sort() const {
        for (long long c = 0; c <= p.cells; ++c) p.starts[c] = 0;
        for (long long i = 0; i < p.count; ++i) ++p.starts[row(p.frame[i], p.y[i]) + column(p.x[i])];
        long long sum = 0;
        for (long long c = 0; c <= p.cells; ++c) sum += p.starts[c], p.starts[c] = sum;
        for (long long i = p.count; i-- > 0;) p.by_cell[--p.starts[row(p.frame[i], p.y[i]) + column(p.x[i])]] = i;
    }

    // Whether `takes(j)` of any point j that may be in reach of a point.
    template <class Takes> bool any(long long i, Takes takes) const {
        const long long first = column(p.x[i] - far_x), last = column(p.x[i] + far_x);
        const long long end = row(p.frame[i], p.y[i] + far_y);
        for (long long cells = row(p.frame[i], p.y[i] - far_y); cells <= end; cells += p.across)
            for (long long place = p.starts[cells + first]; place < p.starts[cells + last + 1]; ++place)
                if (takes(p.by_cell[place])) return true;
        return false;
    }
};

bool are_near(const NearPoints& p, long long i, long long j) {
    return __builtin_fabs(p.y[j] - p.y[i]) <= p.reach_y && __builtin_fabs(p.x[j] - p.x[i]) <= p.reach_x && j != i;
}

// Of points of one rank, the one of the lower y stays, then x, then the earlier one.
bool loses_to(const NearPoints& p, long long i, long long j) {
#pragma clang fp contract(off)
    const double down = p.y[j] - p.y[i], across = p.x[j] - p.x[i];
    if (!(down * down + across * across <= p.reach_y * p.reach_y)) return false;
    if (p.rank[j] != p.rank[i]) return p.rank[j] < p.rank[i];
    if (down != 0) return down < 0;
    return across != 0 ? across < 0 : j < i;
}

}  // namespace

SPOTFIT_EXPORT void spotfit_find_near(const NearPoints* points, unsigned char* near) {
    const NearPoints& p = *points;
    const Cells cells(p);
    cells.sort();
    for (long long i = 0; i < p.count; ++i) {
        if (p.asked && !p.asked[i]) near[i] = 0;
        else if (p.rank) near[i] = cells.any(i, [&](long long j) { return loses_to(p, i, j); });
        else near[i] = cells.any(i, [&](long long j) { return are_near(p, i, j); });
    }
}
