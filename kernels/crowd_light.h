// The light of a crowd: spots, and the background under them, a plane or, of a large crowd, a number for each cell with
// straight lines between them. And how likely it makes the pixels around the spots that move together.
#pragma once
#include "crowd_spots.h"

namespace spotfit::SPOTFIT_ISA {

class CrowdLight : protected CrowdSpots {
  protected:
    // Of a large crowd, the spots of a cell move together. In widths of a spot, the side of a cell, much longer than
    // the light of a spot reaches, so that few spots are at borders; and how far from a spot those may be that its
    // light moves, as far as spots are linked to crowds.
    static constexpr double CELL = 16, FAR = 6;
    // Spots that move together at most, as the time of a step grows with their cube.
    static constexpr int TOGETHER = 96;

    int cells_down, cells_across;
    double cell_rows, cell_columns;
    float *cell_y, *cell_x;   // the background's shares, line by line of cells
    float* slopes[ALL_AXES];  // its slopes, where there is one cell
    double *level, *level_errors;
    // Spots that move together: which, and the numbers of the background.
    const int* together;
    int moving = 0, levels = 0;
    float* still;                            // pixels of light that does not move, or null, for none
    int *by_cell, *first_of_cell;            // all spots, those of a cell one after the other
    bool* is_stirred;                        // cells, by spots near them
    double evaluated;                        // the deviance / 2 then
    bool is_shifted = false;                 // cells, by half a cell
    int from[ALL_AXES], to[ALL_AXES];        // the part of the box in which their mean changes
    double least[ALL_AXES], last[ALL_AXES];  // where they may move

    CrowdLight(const JointFits& fits, long long which, void* work) : CrowdSpots(fits, which, work) {
        const double side = CELL * f.sigma[X];
        cells_down = rows > 2 * side ? static_cast<int>(rows / side) : 1;
        cells_across = columns > 2 * side ? static_cast<int>(columns / side) : 1;
        cell_rows = double(rows) / cells_down, cell_columns = double(columns) / cells_across;
        cell_y = memory.take<float>(rows * cells_down);
        cell_x = memory.take<float>(stride * cells_across + margin) + margin;
        slopes[Y] = memory.take<float>(rows), slopes[X] = memory.take<float>(stride + margin) + margin;
        slopes[Z] = memory.take<float>(depth);
        level = memory.take<double>(cells() + ALL_AXES), level_errors = memory.take<double>(cells());
        by_cell = memory.take<int>(most), first_of_cell = memory.take<int>(cells() + 1);
        is_stirred = memory.take<bool>(cells());
    }

    int cells() const { return cells_down * cells_across; }
    // Numbers of the background that move with the spots of a cell: of one cell, a level and slopes.
    int levels_of_cell() const { return cells() == 1 ? 1 + axes() : 1; }
    bool all_move() const { return cells() == 1 && levels && moving == count; }
    bool all_move_in_order() const { return all_move() && together == by_cell; }
    void shape_moving() const { shape_each(spots, together, moving); }

    SPOTFIT_NOT_INLINE void begin_level() {
        begin_lines();
        share(rows * cells_down, [&](int k) { cell_y[k] = 0; });
        share(stride * cells_across + margin, [&](long long k) { cell_x[k - margin] = 0; });
        share(stride + margin, [&](long long k) { slopes[X][k - margin] = 0; });
        fill_shares(cell_y, rows, cells_down, cell_rows, rows);
        fill_shares(cell_x, stride, cells_across, cell_columns, columns);
        ROLLED
        for (int axis = X; axis < ALL_AXES; ++axis) fill_slope(slopes[axis], size(axis));
        const double lowest = lowest_level();
        share(cells(), [&](int cell) { level[cell] = lowest; });
        if (cells() == 1) share(int(ALL_AXES), [&](int k) { level[1 + k] = 0; });
    }
    SPOTFIT_NOT_INLINE double level_at(const double* place) const {
        int pixel[ALL_AXES];
        ROLLED
        for (int axis = X; axis < ALL_AXES; ++axis) {
            const double x = place[axis], end_of_axis = size(axis) - 1;
            pixel[axis] = static_cast<int>(x < 0 ? 0 : x > end_of_axis ? end_of_axis : x + 0.5);
        }
        double value = 0;
        const int middle = cell_of(pixel[Y], pixel[X]), v = middle / cells_across, u = middle % cells_across;
        ROLLED
        for (int down = v > 0 ? v - 1 : 0; down <= v + 1 && down < cells_down; ++down)
            for (int across = u > 0 ? u - 1 : 0; across <= u + 1 && across < cells_across; ++across) {
                const Ground g = ground_of(down * cells_across + across);
                value += g.level * g.y[pixel[Y]] * g.x[pixel[X]] + g.down * slopes[Y][pixel[Y]] +
                         g.across * slopes[X][pixel[X]] + g.through * slopes[Z][pixel[Z]];
            }
        return value;
    }

    int cell_of(const Spot& s) const { return cell_of(s.at[Y], s.at[X]); }
    SPOTFIT_NOT_INLINE int cell_of(double y, double x) const {
        const double shift = is_shifted ? 0.5 : 0;
        int v = static_cast<int>(larger((y + 0.5) / cell_rows + shift, 0));
        int u = static_cast<int>(larger((x + 0.5) / cell_columns + shift, 0));
        if (v >= cells_down) v = cells_down - 1;
        if (u >= cells_across) u = cells_across - 1;
        return v * cells_across + u;
    }
    // Sorts spots by cells, and finds those cells near which spots have been stirred since a sweep.
    SPOTFIT_NOT_INLINE void divide(int since) {
        share(count, [&](int i) { spots[i].moves = !has_psf() || is_near_stirred(i, since); });
        if (cells() == 1) {
            const bool is_any = Team::last_of(0, count, [&](int i) { return spots[i].stirred >= since; }) >= 0;
            alone([&] {
                int number = 0;
                ROLLED
                for (int i = 0; i < count; ++i)
                    if (spots[i].moves) by_cell[number++] = i;
                first_of_cell[0] = 0, first_of_cell[1] = number, is_stirred[0] = is_any;
            });
            return;
        }
        alone([&] {
            ROLLED
            for (int cell = 0; cell <= cells(); ++cell) first_of_cell[cell] = 0;
            ROLLED
            for (int cell = 0; cell < cells(); ++cell) is_stirred[cell] = false;
            ROLLED
            for (int i = 0; i < count; ++i) {
                const Spot& s = spots[i];
                if (s.moves) ++first_of_cell[cell_of(s) + 1];
                if (s.stirred < since) continue;
                const double far_y = FAR * f.sigma[Y], far_x = FAR * f.sigma[X];
                const int low = cell_of(s.at[Y] - far_y, s.at[X] - far_x);
                const int high = cell_of(s.at[Y] + far_y, s.at[X] + far_x);
                ROLLED
                for (int v = low / cells_across; v <= high / cells_across; ++v)
                    for (int u = low % cells_across; u <= high % cells_across; ++u)
                        is_stirred[v * cells_across + u] = true;
            }
            ROLLED
            for (int cell = 0; cell < cells(); ++cell) first_of_cell[cell + 1] += first_of_cell[cell];
            const int number = first_of_cell[cells()];
            ROLLED
            for (int i = count - 1; i >= 0; --i)
                if (spots[i].moves) by_cell[--first_of_cell[cell_of(spots[i]) + 1]] = i;
            ROLLED
            for (int cell = 0; cell < cells(); ++cell) first_of_cell[cell] = first_of_cell[cell + 1];
            first_of_cell[cells()] = number;
        });
    }
    // Chooses the spots of a cell, from one on, to move together, and its background with them.
    SPOTFIT_NOT_INLINE void choose(int cell, int first) {
        alone([&] {
            const int there = first_of_cell[cell + 1] - first_of_cell[cell] - first;
            // Of more than move together, others are at the borders between them every second time.
            const int together_here = is_shifted && first == 0 && there > TOGETHER ? TOGETHER / 2 : TOGETHER;
            moving = there < together_here ? there : together_here, levels = levels_of_cell();
            together = by_cell + first_of_cell[cell] + first;
        });
        choose_part(part_of(cell));
    }
    struct Bounds { double low[ALL_AXES], high[ALL_AXES]; };
    static constexpr Bounds EVERYWHERE = {{-INFINITE, -INFINITE, -INFINITE}, {INFINITE, INFINITE, INFINITE}};
    static constexpr Bounds NOWHERE = {{INFINITE, INFINITE, INFINITE}, {-INFINITE, -INFINITE, -INFINITE}};
    // The pixels under which a cell's background is.
    Bounds part_of(int cell) const {
        Bounds part = EVERYWHERE;
        if (cells() > 1) {
            const int v = cell / cells_across, u = cell % cells_across;
            part.low[Y] = (v - 0.5) * cell_rows - 1, part.high[Y] = (v + 1.5) * cell_rows + 2;
            part.low[X] = (u - 0.5) * cell_columns - 1, part.high[X] = (u + 1.5) * cell_columns + 2;
        }
        return part;
    }
    // The part of the box with these pixels, and those that the spots may reach that move.
    SPOTFIT_NOT_INLINE void choose_part(const Bounds& part) {
        alone([&] {
            ROLLED
            for (int axis = X; axis < ALL_AXES; ++axis) {
                const int reach = f.reach[axis], end_of_axis = size(axis);
                double low = part.low[axis], high = part.high[axis];
                const bool is_everywhere = low < 0 && high > end_of_axis;
                ROLLED
                for (int i = 0; i < moving && !is_everywhere; ++i) {
                    const double x = spots[together[i]].at[axis];
                    low = smaller(low, x - reach - 3), high = larger(high, x + reach + 4);
                }
                const auto clip = [&](double x) {
                    return x < 0 ? 0 : x > end_of_axis ? end_of_axis : static_cast<int>(x);
                };
                from[axis] = clip(low), to[axis] = clip(high);
                if (axis == X) {
                    from[X] = from[X] / SIDE_BY_SIDE * SIDE_BY_SIDE;
                    to[X] = static_cast<int>(padded(to[X]));
                }
                least[axis] = from[axis] > 0 ? from[axis] + reach + 0.5 : -0.5;
                last[axis] = to[axis] < end_of_axis ? to[axis] - reach - 1.5 : end_of_axis - 0.5;
            }
            if (has_psf()) from[Z] = 0, to[Z] = 1, least[Z] = lowest_z(), last[Z] = highest_z();
        });
    }
    double lowest_z() const { return -double(f.psf.z) / f.psf.planes_per_nm; }
    double highest_z() const { return (f.psf.planes - 3 - double(f.psf.z)) / f.psf.planes_per_nm; }
    void choose_all() {
        set(moving, 0);
        choose_part(EVERYWHERE);
    }

    template <class Function> SPOTFIT_INLINE void over_lines(Function each) const {
        const int first = from[Y], end_of_plane = to[Y];
        Team::wait();
        ROLLED
        for (int z = from[Z]; z < to[Z]; ++z) ROLLED
        for (int y = first + Team::line(); y < end_of_plane; y += Team::LINES) each(z, y);
        Team::wait();
    }
    template <class Function> SPOTFIT_INLINE void over_part(Function each) const {
        const int first = from[X], end_of_line = to[X];
        over_lines([&](int z, int y) SPOTFIT_INLINE_LAMBDA {
            const int start = (z * rows + y) * stride + margin;
            ROLLED
            for (int x = first; x < end_of_line; x += SIDE_BY_SIDE) each(start + x);
        });
    }
    // What a cell adds to the background: level * y * x, and its slopes.
    struct Ground {
        double level, down, across, through;
        const float *y, *x;
    };
    SPOTFIT_NOT_INLINE Ground ground_of(int cell) const {
        if (cells() == 1) return {level[0], level[1], level[2], level[3], cell_y, cell_x};
        return {level[cell],
                0,
                0,
                0,
                cell_y + static_cast<long long>(cell / cells_across) * rows,
                cell_x + cell % cells_across * stride};
    }
    // Light that does not move.
    SPOTFIT_NOT_INLINE void find_base(int cell) {
        const bool is_none = all_move();
        set(still, is_none ? variances : base);
        if (is_none) return;
        copy_part(mean, base);
        add_lights(together, moving, -1, base);
        if (levels) add_ground(cell, -1, base, base);
    }
    // The mean of all pixels.
    SPOTFIT_NOT_INLINE void find_mean() {
        choose_all();
        if (is_evaluated) return;
        copy_part(variances, mean);
        ROLLED
        for (int cell = 0; cell < cells(); ++cell) {
            if (cells() > 1) choose_part(part_of(cell));
            add_ground(cell, 1, mean, mean);
        }
        choose_all();
        add_lights(nullptr, count, 1, mean);
        over_part([&](int k) { store_pixels(mean + k, higher_of(load_pixels(mean + k), Pixels(LOWEST))); });
    }
    void keep_mean() { copy_part(trial, mean); }
    // Or 0, where there are none.
    SPOTFIT_NOT_INLINE void copy_part(const float* pixels, float* to) const {
        if (pixels) over_part([&](int k) { store_pixels(to + k, load_pixels(pixels + k)); });
        else over_part([&](int k) { store_pixels(to + k, Pixels(0.0f)); });
    }
    // The mean of the pixels into `trial`, with their weights and the residual's; returns the deviance / 2.
    SPOTFIT_NOT_INLINE double evaluate(int cell) {
        set(is_evaluated, false);
        if (levels) add_ground(cell, 1, still, trial);
        else copy_part(still, trial);
        add_lights(together, moving, 1, trial);
        Total sum;
        const int first = from[X], end_of_line = to[X];
        over_lines([&](int z, int y) SPOTFIT_INLINE_LAMBDA {
            Pixels of_row = 0.0f;
            const int start = (z * rows + y) * stride + margin;
            ROLLED
            for (int k = start + first; k < start + end_of_line; k += SIDE_BY_SIDE) {
                const Pixels own = load_pixels(data + k), is_there = load_pixels(counts + k);
                const Pixels expected = higher_of(load_pixels(trial + k), Pixels(LOWEST)), inverse = 1.0f / expected;
                const Pixels w = is_there * inverse;
                store_pixels(trial + k, expected), store_pixels(weight + k, w);
                store_pixels(pull + k, w * (own - expected));
                of_row = multiply_add(is_there, deviance(own, expected, inverse), of_row);
            }
            sum.add(of_row);
        });
        return sum.value() / 2;
    }
    // Where a line along an axis is in the part.
    struct Range { int begin, end; };
    Range in_part(const Footprint& p, int axis) const {
        const int end_of_line = p.first[axis] + p.size[axis];
        return {p.first[axis] > from[axis] ? p.first[axis] : from[axis],
                end_of_line < to[axis] ? end_of_line : to[axis]};
    }
    // Of spots by number, or of the first ones.
    SPOTFIT_NOT_INLINE void add_lights(const int* which, int some, float factor, float* pixels) const {
        ROLLED
        for (int k = 0; k < some; ++k) {
            const Spot& s = spots[which ? which[k] : k];
            add_light(s.shape, factor * float(s.light), pixels);
        }
    }
    SPOTFIT_NOT_INLINE void add_light(const Footprint& p, float factor, float* pixels) const {
        const Range planes = in_part(p, Z), lines = in_part(p, Y);
        const float *const along_x = p.value[X], *const along_y = p.value[Y] - p.first[Y];
        const int first = p.first[X], length = p.size[X];
        Team::wait();
        ROLLED
        for (int z = planes.begin; z < planes.end; ++z) {
            const float of_plane = factor * p.value[Z][z - p.first[Z]];
            ROLLED
            for (int y = lines.begin + Team::line(); y < lines.end; y += Team::LINES) {
                const Pixels height = of_plane * along_y[y];
                float* const own = at(pixels, z, y) + first;
                const float* const line_here = along_x + p.pitch * (y - p.first[Y]);
                ROLLED
                for (int x = 0; x < length; x += SIDE_BY_SIDE)
                    store_pixels(own + x, multiply_add(load_pixels(line_here + x), height, load_pixels(own + x)));
            }
        }
        Team::wait();
    }

  private:
    // To pixels, or to none, into a result that may be they.
    SPOTFIT_NOT_INLINE void add_ground(int cell, float factor, const float* pixels, float* result) const {
        const Ground g = ground_of(cell);
        const float* const slope = slopes[X];
        const int first = from[X], end_of_line = to[X];
        const Pixels across = factor * float(g.across), none = 0.0f;
        over_lines([&](int z, int y) {
            const float through = factor * float(g.through) * slopes[Z][z];
            const Pixels here = factor * float(g.level) * g.y[y],
                         down = factor * float(g.down) * slopes[Y][y] + through;
            float* const own = at(result, z, y);
            const float* const before = pixels ? pixels + (own - result) : nullptr;
            ROLLED
            for (int x = first; x < end_of_line; x += SIDE_BY_SIDE)
                store_pixels(own + x, (before ? load_pixels(before + x) : none) + down + here * load_pixels(g.x + x) +
                                          across * load_pixels(slope + x));
        });
    }
    // The share of a cell in the background at each place along an axis: all of it in its middle, none in the next
    // cell's.
    SPOTFIT_NOT_INLINE static void fill_shares(float* shares, long long stride, int cells, double side, int size) {
        share(size, [&](int k) {
            const double place = (k + 0.5) / side - 0.5;
            int low = place > 0 ? static_cast<int>(place) : 0;
            if (low > cells - 1) low = cells - 1;
            double rest = place - low;
            rest = low == cells - 1 || rest < 0 ? 0 : rest > 1 ? 1 : rest;
            shares[low * stride + k] = float(1 - rest);
            if (rest > 0) shares[(low + 1) * stride + k] = float(rest);
        });
    }
    // From -1 to 1.
    SPOTFIT_NOT_INLINE static void fill_slope(float* slope, int size) {
        share(size, [&](int k) { slope[k] = float((2.0 * k + 1) / size - 1); });
    }
};

}  // namespace spotfit::SPOTFIT_ISA
