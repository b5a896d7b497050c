// The light of a crowd: spots, and the background under them, a plane or, of a large crowd, a number for each cell with
// straight lines between them. And how likely it makes the pixels around the spots that move together.
#pragma once
#include "crowd_pixels.h"

namespace spotfit::SPOTFIT_ISA {

struct Spot {
    double y, x, light;  // from the first pixel of the crowd's box
    double kept_y, kept_x, kept_light;
    double errors[3];           // of x, y and light
    double wider, wider_error;  // than `sigma` spots are that moved together, as a fraction
    double evidence;
    long long candidate;
    Footprint shape;
    bool is_dropped, is_tested, rests;
    int stirred;  // the sweep that last moved it, or added or changed it
};

class CrowdLight : protected CrowdPixels {
  protected:
    // Side of the cells in which the spots of a large crowd move together, in units of the spots' width, and how far
    // from a spot those may be that it moves; spots that move together at most; hidden ones that a crowd may have, and
    // those for each candidate.
    static constexpr double CELL = 16, FAR = 6;
    static constexpr int TOGETHER = 96, HIDDEN = 24, HIDDEN_EACH = 3;

    const int line;  // numbers of a line of a spot's light, with as many zeros as are summed side by side behind them
    const long long most;
    int cells_down, cells_across;
    double cell_rows, cell_columns;
    float *cell_y, *cell_x;    // the background's shares, line by line of cells
    float *slope_y, *slope_x;  // its slopes, where there is one cell
    double *level, *level_errors;
    Spot* spots;
    int count = 0;
    // Spots that move together: which, and the numbers of the background.
    const int* together;
    int moving = 0, levels = 0;
    int *by_cell, *first_of_cell;                        // all spots, those of a cell one after the other
    bool* is_stirred;                                    // cells, by spots near them
    int sweep = 0;                                       // the number of the last one
    bool is_shifted = false;                             // cells, by half a cell
    int first_row, last_row, first_column, last_column;  // the part of the box in which their mean changes
    double least_y, most_y, least_x, most_x;             // where they may move

    CrowdLight(const JointFits& fits, long long which, void* work)
        : CrowdPixels(fits, which, work), line(static_cast<int>(padded(2 * reach + 1)) + SIDE_BY_SIDE),
          most(most_spots(end - begin)) {
        const double side = CELL * f.sigma;
        cells_down = rows > 2 * side ? static_cast<int>(rows / side) : 1;
        cells_across = columns > 2 * side ? static_cast<int>(columns / side) : 1;
        cell_rows = double(rows) / cells_down, cell_columns = double(columns) / cells_across;
        cell_y = memory.take<float>(rows * cells_down), cell_x = memory.take<float>(stride * cells_across) + margin;
        slope_y = memory.take<float>(rows), slope_x = memory.take<float>(stride) + margin;
        level = memory.take<double>(cells() + 2), level_errors = memory.take<double>(cells());
        spots = memory.take<Spot>(most);
        lines_of_spots = memory.take<float>(4ll * line * most);
        by_cell = memory.take<int>(most), first_of_cell = memory.take<int>(cells() + 1);
        is_stirred = memory.take<bool>(cells());
    }
    static long long most_spots(long long candidates) { return candidates * HIDDEN_EACH + HIDDEN; }

    int cells() const { return cells_down * cells_across; }
    // Numbers of the background that move with the spots of a cell.
    int levels_of_cell() const { return cells() == 1 ? 3 : 1; }
    bool all_move() const { return cells() == 1 && levels && moving == count; }

    void begin_level() {
        for (long long k = 0; k < rows * cells_down; ++k) cell_y[k] = 0;
        for (long long k = -margin; k < stride * cells_across - margin; ++k) cell_x[k] = 0;
        for (long long k = -margin; k < stride - margin; ++k) slope_x[k] = 0;
        fill_shares(cell_y, rows, cells_down, cell_rows, rows), fill_slope(slope_y, rows);
        fill_shares(cell_x, stride, cells_across, cell_columns, columns), fill_slope(slope_x, columns);
        const double lowest = lowest_level();
        for (int cell = 0; cell < cells(); ++cell) level[cell] = lowest;
        if (cells() == 1) level[1] = level[2] = 0;
    }
    double level_at(double y, double x) const {
        const auto pixel = [](double place, int size) {
            return place < 0 ? 0 : place > size - 1 ? size - 1 : static_cast<int>(place + 0.5);
        };
        const int v = pixel(y, rows), u = pixel(x, columns);
        double value = 0;
        for (int cell = 0; cell < cells(); ++cell) {
            const Ground g = ground_of(cell);
            value += g.level * g.y[v] * g.x[u] + g.down * g.slope_y[v] + g.across * g.slope_x[u];
        }
        return value;
    }

    void shape(Spot& s) const {
        s.shape.top = static_cast<int>(whole(s.y)) - reach, s.shape.left = static_cast<int>(whole(s.x)) - reach;
        const int side = 2 * reach + 1;
        profile_line(s.y - s.shape.top, f.sigma, f.is_integrated, side, line - SIDE_BY_SIDE, s.shape.y,
                     s.shape.slope_y);
        profile_line(s.x - s.shape.left, f.sigma, f.is_integrated, side, line - SIDE_BY_SIDE, s.shape.x,
                     s.shape.slope_x);
    }
    void add(double y, double x, double light, long long candidate) {
        Spot& s = spots[count];
        s = {};
        give_lines(count);
        s.y = y, s.x = x, s.light = light, s.candidate = candidate, s.stirred = sweep + 1;
        shape(s);
        ++count;
    }
    void remove_dropped() {
        int kept = 0;
        for (int i = 0; i < count; ++i) {
            if (spots[i].is_dropped) continue;
            spots[kept] = spots[i];
            give_lines(kept++);
        }
        count = kept;
        for (int i = 0; i < count; ++i) shape(spots[i]);
    }
    // In the order of y and x, whatever they were added in.
    void sort() {
        const auto is_before = [](const Spot& a, const Spot& b) { return a.y < b.y || (a.y == b.y && a.x < b.x); };
        for (int i = 1; i < count; ++i) {
            if (!is_before(spots[i], spots[i - 1])) continue;
            const Spot own = spots[i];
            int k = i;
            for (; k > 0 && is_before(own, spots[k - 1]); --k) spots[k] = spots[k - 1];
            spots[k] = own;
        }
    }

    int cell_of(const Spot& s) const { return cell_of(s.y, s.x); }
    int cell_of(double y, double x) const {
        const double shift = is_shifted ? 0.5 : 0;
        int v = static_cast<int>(larger((y + 0.5) / cell_rows + shift, 0));
        int u = static_cast<int>(larger((x + 0.5) / cell_columns + shift, 0));
        if (v >= cells_down) v = cells_down - 1;
        if (u >= cells_across) u = cells_across - 1;
        return v * cells_across + u;
    }
    // Sorts spots by cells, and finds those cells near which spots have been stirred since a sweep.
    void divide(int since) {
        for (int cell = 0; cell <= cells(); ++cell) first_of_cell[cell] = 0;
        for (int cell = 0; cell < cells(); ++cell) is_stirred[cell] = false;
        for (int i = 0; i < count; ++i) {
            const Spot& s = spots[i];
            ++first_of_cell[cell_of(s) + 1];
            if (s.stirred < since) continue;
            const double far = FAR * f.sigma;
            const int low = cell_of(s.y - far, s.x - far), high = cell_of(s.y + far, s.x + far);
            for (int v = low / cells_across; v <= high / cells_across; ++v)
                for (int u = low % cells_across; u <= high % cells_across; ++u) is_stirred[v * cells_across + u] = true;
        }
        for (int cell = 0; cell < cells(); ++cell) first_of_cell[cell + 1] += first_of_cell[cell];
        for (int i = count - 1; i >= 0; --i) by_cell[--first_of_cell[cell_of(spots[i]) + 1]] = i;
        for (int cell = 0; cell < cells(); ++cell) first_of_cell[cell] = first_of_cell[cell + 1];
        first_of_cell[cells()] = count;
    }
    // Chooses the spots of a cell, from one on, to move together, and its background with them.
    void choose(int cell, int from) {
        const int there = first_of_cell[cell + 1] - first_of_cell[cell] - from;
        moving = there < TOGETHER ? there : TOGETHER, levels = levels_of_cell();
        together = by_cell + first_of_cell[cell] + from;
        const int v = cell / cells_across, u = cell % cells_across;
        if (cells() == 1) choose_part(-INFINITE, INFINITE, -INFINITE, INFINITE);
        else
            choose_part((v - 0.5) * cell_rows - 1, (v + 1.5) * cell_rows + 2, (u - 0.5) * cell_columns - 1,
                        (u + 1.5) * cell_columns + 2);
    }
    // The part of the box with these pixels, and those that the spots may reach that move.
    void choose_part(double low_y, double high_y, double low_x, double high_x) {
        for (int i = 0; i < moving; ++i) {
            const Spot& s = spots[together[i]];
            low_y = smaller(low_y, s.y - reach - 3), high_y = larger(high_y, s.y + reach + 4);
            low_x = smaller(low_x, s.x - reach - 3), high_x = larger(high_x, s.x + reach + 4);
        }
        const auto clip = [](double x, int size) { return x < 0 ? 0 : x > size ? size : static_cast<int>(x); };
        first_row = clip(low_y, rows), last_row = clip(high_y, rows);
        first_column = clip(low_x, columns) / SIDE_BY_SIDE * SIDE_BY_SIDE;
        last_column = static_cast<int>(padded(clip(high_x, columns)));
        least_y = first_row > 0 ? first_row + reach + 0.5 : -0.5;
        most_y = last_row < rows ? last_row - reach - 1.5 : rows - 0.5;
        least_x = first_column > 0 ? first_column + reach + 0.5 : -0.5;
        most_x = last_column < columns ? last_column - reach - 1.5 : columns - 0.5;
    }
    void choose_all() {
        moving = 0;
        choose_part(-INFINITE, INFINITE, -INFINITE, INFINITE);
    }

    template <class Function> void over_part(Function each) const {
        for (int y = first_row; y < last_row; ++y)
            for (int x = first_column; x < last_column; x += SIDE_BY_SIDE) each(y * stride + margin + x);
    }
    // What a cell adds to the background: level * y * x + down * slope_y + across * slope_x.
    struct Ground {
        double level, down, across;
        const float *y, *x, *slope_y, *slope_x;
    };
    Ground ground_of(int cell) const {
        const bool is_one = cells() == 1;
        return {level[cell],
                is_one ? level[1] : 0,
                is_one ? level[2] : 0,
                cell_y + static_cast<long long>(cell / cells_across) * rows,
                cell_x + cell % cells_across * stride,
                slope_y,
                slope_x};
    }
    // Light that does not move.
    void find_base(int cell) {
        if (all_move()) {
            over_part([&](long long k) { store_pixels(base + k, Pixels(0.0f)); });
            return;
        }
        over_part([&](long long k) { store_pixels(base + k, load_pixels(mean + k)); });
        for (int i = 0; i < moving; ++i) add_light(spots[together[i]].shape, -float(spots[together[i]].light), base);
        if (levels) add_ground(cell, -1, base);
    }
    // The mean of all pixels.
    void find_mean() {
        choose_all();
        over_part([&](long long k) { store_pixels(mean + k, Pixels(0.0f)); });
        for (int cell = 0; cell < cells(); ++cell) add_ground(cell, 1, mean);
        for (int i = 0; i < count; ++i) add_light(spots[i].shape, float(spots[i].light), mean);
        over_part([&](long long k) { store_pixels(mean + k, higher_of(load_pixels(mean + k), Pixels(LOWEST))); });
    }
    void keep_mean() {
        over_part([&](long long k) { store_pixels(mean + k, load_pixels(trial + k)); });
    }
    // The mean of the pixels into `trial`, with their weights and the residual's; returns the deviance / 2.
    double evaluate(int cell) {
        over_part([&](long long k) { store_pixels(trial + k, load_pixels(base + k)); });
        if (levels) add_ground(cell, 1, trial);
        for (int i = 0; i < moving; ++i) add_light(spots[together[i]].shape, float(spots[together[i]].light), trial);
        double sum = 0;
        for (int y = first_row; y < last_row; ++y) {
            Pixels of_row = 0.0f;
            for (int x = first_column; x < last_column; x += SIDE_BY_SIDE) {
                const long long k = y * stride + margin + x;
                const Pixels own = load_pixels(data + k), is_there = load_pixels(counts + k);
                const Pixels expected = higher_of(load_pixels(trial + k), Pixels(LOWEST)), inverse = 1.0f / expected;
                const Pixels w = is_there * inverse;
                store_pixels(trial + k, expected), store_pixels(weight + k, w);
                store_pixels(pull + k, w * (own - expected));
                of_row = multiply_add(is_there, deviance(own, expected, inverse), of_row);
            }
            sum += sum_of(of_row);
        }
        return sum / 2;
    }
    void add_light(const Footprint& p, float factor, float* plane) const {
        const int begin = p.top > first_row ? p.top : first_row;
        const int end = p.top + p.rows < last_row ? p.top + p.rows : last_row;
        for (int y = begin; y < end; ++y) {
            const Pixels height = factor * p.y[y - p.top];
            float* const to = at(plane, y) + p.left;
            for (int x = 0; x < p.columns; x += SIDE_BY_SIDE)
                store_pixels(to + x, multiply_add(load_pixels(p.x + x), height, load_pixels(to + x)));
        }
    }

  private:
    float* lines_of_spots;

    void add_ground(int cell, float factor, float* plane) const {
        const Ground g = ground_of(cell);
        const Pixels across = factor * float(g.across);
        for (int y = first_row; y < last_row; ++y) {
            const Pixels here = factor * float(g.level) * g.y[y], down = factor * float(g.down) * g.slope_y[y];
            float* const to = at(plane, y);
            for (int x = first_column; x < last_column; x += SIDE_BY_SIDE)
                store_pixels(to + x, load_pixels(to + x) + down + here * load_pixels(g.x + x) +
                                         across * load_pixels(g.slope_x + x));
        }
    }
    // The share of a cell in the background at each place along an axis: all of it in its middle, none in the next
    // cell's.
    static void fill_shares(float* share, long long stride, int cells, double side, int size) {
        for (int k = 0; k < size; ++k) {
            const double place = (k + 0.5) / side - 0.5;
            int low = place > 0 ? static_cast<int>(place) : 0;
            if (low > cells - 1) low = cells - 1;
            double rest = place - low;
            rest = low == cells - 1 || rest < 0 ? 0 : rest > 1 ? 1 : rest;
            share[low * stride + k] = float(1 - rest);
            if (rest > 0) share[(low + 1) * stride + k] = float(rest);
        }
    }
    // From -1 to 1.
    static void fill_slope(float* slope, int size) {
        for (int k = 0; k < size; ++k) slope[k] = float((2.0 * k + 1) / size - 1);
    }
    void give_lines(int i) {
        float* const own = lines_of_spots + 4ll * line * i;
        for (int k = 0; k < 4 * line; ++k) own[k] = 0;
        spots[i].shape = {0, 0, 2 * reach + 1, 2 * reach + 1, own, own + line, own + 2 * line, own + 3 * line};
    }
};

}  // namespace spotfit::SPOTFIT_ISA
