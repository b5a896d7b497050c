// Which points of a frame have another one near, by cells of the frame.
#pragma once

namespace spotfit::SPOTFIT_ISA {

// Points of one frame, each at a stride from the one before; NaN is near to none. Planes count as pixels.
struct Points {
    const double *y, *x;
    int stride, count;
    const double* z = nullptr;  // null: of a plane
    double per_plane = 0;
    double at_y(int i) const { return y[static_cast<long long>(i) * stride]; }
    double at_x(int i) const { return x[static_cast<long long>(i) * stride]; }
    double deeper(int i, int j) const {
        return z ? (z[static_cast<long long>(j) * stride] - z[static_cast<long long>(i) * stride]) * per_plane : 0;
    }
    bool is_near(int i, int j, double reach_y, double reach_x, double reach_z) const {
        return __builtin_fabs(at_x(j) - at_x(i)) <= reach_x && __builtin_fabs(at_y(j) - at_y(i)) <= reach_y &&
               (!z || __builtin_fabs(deeper(i, j)) <= reach_z);
    }
};

// Points sorted into cells, about one to each, if many are asked for: only those of a point's own cell and of the ones
// that its reach touches are looked at, until one is in reach. So the time follows the number of points, however many
// lie at one place.
class NearPoints {
    const Points p;
    const double far_y, far_x;  // a little more than the reach, as all that is rounded
    double per_pixel = 0, top = 0;
    int down, across;
    bool is_sorted;
    // Those of cell c are by_cell[starts[c]] to by_cell[starts[c + 1] - 1].
    int *const starts, *const by_cell;

    static constexpr int FEW = 8;

    static int within(double x, int count) {
        const int i = x > 0 ? x < count ? static_cast<int>(x) : count - 1 : 0;
        return i;
    }
    static int cells_along(double size, double side) { return 1 + static_cast<int>(size / side); }
    int row(double y) const { return within((y - top) * per_pixel, down) * across; }
    int column(double x) const { return within(x * per_pixel, across); }
    int cell(int i) const { return row(p.at_y(i)) + column(p.at_x(i)); }

  public:
    // How many integers of memory sorting takes.
    static long long work(long long count) { return 2 * count + 2; }

    // Of a frame of some height and width, for a number of requested points.
    NearPoints(const Points& points, double height, double width, double reach_y, double reach_x, int asked,
               int* memory)
        : p(points), far_y(reach_y * (1 + 1e-9)), far_x(reach_x * (1 + 1e-9)), starts(memory),
          by_cell(memory + points.count + 2) {
        is_sorted = asked > FEW;
        if (!is_sorted) return;
        // Of a large frame, points may be in few rows.
        double bottom = 0;
        top = height;
        for (int i = 0; i < p.count; ++i) {
            const double y = p.at_y(i);
            if (y < top) top = y;
            if (y > bottom) bottom = y;
        }
        if (!(top > 0)) top = 0;
        if (!(bottom < height)) bottom = height;
        const double rows = bottom > top ? bottom - top + 1 : 1;
        // No more cells than points, and none smaller than the reach.
        double side = __builtin_sqrt(rows * width / p.count);
        if (side < reach_y) side = reach_y;
        if (side < reach_x) side = reach_x;
        do {
            side *= 1.125;
            down = cells_along(rows, side), across = cells_along(width, side);
        } while (static_cast<long long>(down) * across > p.count);
        per_pixel = 1 / side;
        const int cells = down * across;
        for (int c = 0; c <= cells; ++c) starts[c] = 0;
        for (int i = 0; i < p.count; ++i) ++starts[cell(i)];
        int sum = 0;
        for (int c = 0; c <= cells; ++c) sum += starts[c], starts[c] = sum;
        for (int i = p.count; i-- > 0;) by_cell[--starts[cell(i)]] = i;
    }

    // Whether `takes(j)` of any other point j that may be in reach of a point.
    template <class Takes> bool any(int i, Takes takes) const {
        if (!is_sorted) {
            for (int j = 0; j < p.count; ++j)
                if (j != i && takes(j)) return true;
            return false;
        }
        const double y = p.at_y(i), x = p.at_x(i);
        const int first = column(x - far_x), last = column(x + far_x), end = row(y + far_y);
        for (int cells = row(y - far_y); cells <= end; cells += across)
            for (int place = starts[cells + first]; place < starts[cells + last + 1]; ++place)
                if (by_cell[place] != i && takes(by_cell[place])) return true;
        return false;
    }

    // Whether another point is no farther away along any axis.
    bool has_near(int i, double reach_y, double reach_x, double reach_z) const {
        return any(i, [&](int j) SPOTFIT_INLINE_LAMBDA { return p.is_near(i, j, reach_y, reach_x, reach_z); });
    }

    // Calls use(j) for the other points within a distance.
    template <class Use> void each_within(int i, double reach, Use use) const {
        const double y = p.at_y(i), x = p.at_x(i);
        any(i, [&](int j) SPOTFIT_INLINE_LAMBDA {
#pragma clang fp contract(off)
            const double down_by = p.at_y(j) - y, across_by = p.at_x(j) - x;
            if (down_by * down_by + across_by * across_by <= reach * reach) use(j);
            return false;
        });
    }

    // Whether a point of lower rank is within a distance; of points of one rank that of the lower z counts, then
    // y, then x, then the earlier one.
    bool has_lower(int i, double reach, const double* rank) const {
        const double y = p.at_y(i), x = p.at_x(i);
        return any(i, [&](int j) SPOTFIT_INLINE_LAMBDA {
#pragma clang fp contract(off)
            const double back_by = p.deeper(i, j), down_by = p.at_y(j) - y, across_by = p.at_x(j) - x;
            if (!(down_by * down_by + across_by * across_by + back_by * back_by <= reach * reach)) return false;
            if (rank[j] != rank[i]) return rank[j] < rank[i];
            if (back_by != 0) return back_by < 0;
            if (down_by != 0) return down_by < 0;
            return across_by != 0 ? across_by < 0 : j < i;
        });
    }
};

// Marks which points have another one no farther away along any axis, of points that lie row by row, as
// detections do; returns false where they do not, or where too many lie in reach along y.
inline bool mark_near_in_order(const Points& p, double reach_y, double reach_x, double reach_z, unsigned char* near) {
    constexpr int MOST_IN_REACH = 32;
    if (p.count > MOST_IN_REACH) {
        const double rows = p.at_y(p.count - 1) - p.at_y(0) + 1;
        if (!(p.count * reach_y <= MOST_IN_REACH * rows)) return false;
    }
    for (int i = 1; i < p.count; ++i)
        if (!(p.at_y(i) >= p.at_y(i - 1))) return false;
    for (int i = 0; i < p.count; ++i) near[i] = 0;
    for (int i = 0; i < p.count; ++i)
        for (int j = i + 1; j < p.count && p.at_y(j) - p.at_y(i) <= reach_y; ++j)
            if (p.is_near(i, j, reach_y, reach_x, reach_z)) near[i] = near[j] = 1;
    return true;
}

// The same of points in any order, with memory for NearPoints::work integers.
inline void mark_near(const Points& p, double height, double width, double reach_y, double reach_x, double reach_z,
                      int* memory, unsigned char* near) {
    if (mark_near_in_order(p, reach_y, reach_x, reach_z, near)) return;
    const NearPoints points(p, height, width, reach_y, reach_x, p.count, memory);
    for (int i = 0; i < p.count; ++i) near[i] = points.has_near(i, reach_y, reach_x, reach_z);
}

}  // namespace spotfit::SPOTFIT_ISA
