// The light of a crowd: spots, and the background under them, a plane or, of a large crowd, a number for each cell with
// straight lines between them. And how likely it makes the pixels around the spots that move together.
#pragma once
#include "banded_matrix.h"
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
    // so many for each candidate.
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
    // Of spots that move together: which, and so many numbers of the background.
    const int* together;
    int moving = 0, levels = 0;
    int *by_cell, *first_of_cell;                        // all spots, those of a cell one after the other
    bool* is_stirred;                                    // cells, by spots near them
    int sweep = 0;                                       // the number of the last one
    bool is_shifted = false;                             // cells, by half a cell
    int first_row, last_row, first_column, last_column;  // the part of the box in which their mean changes
    double least_y, most_y, least_x, most_x;             // where they may move
    BandedMatrix normal, factor;
    double *gradient, *step;

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
        const int size = 3 * (most < TOGETHER ? static_cast<int>(most) : TOGETHER) + 3;
        by_cell = memory.take<int>(most), first_of_cell = memory.take<int>(cells() + 1);
        is_stirred = memory.take<bool>(cells());
        BandedMatrix* const matrices[] = {&normal, &factor};
        for (BandedMatrix* matrix : matrices) {
            matrix->room = size;
            matrix->rows = memory.take<double>(static_cast<long long>(size) * size);
            matrix->end = memory.take<int>(size);
        }
        gradient = memory.take<double>(size), step = memory.take<double>(size);
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

    // The Fisher information of the spots that move, and the likelihood's gradient: x, y and light of each, then the
    // background.
    void find_normal(int cell) {
        const int first = 3 * moving;
        normal.size = factor.size = first + levels, normal.border = factor.border = levels;
        for (int a = 0, last = 0; a < moving; ++a) {
            const Spot& s = spots[together[a]];
            for (int b = moving - 1; b > last; --b)
                if (overlap(s.shape, spots[together[b]].shape)) last = b;
            if (last < a) last = a;
            for (int i = 3 * a; i < 3 * a + 3; ++i) {
                normal.end[i] = factor.end[i] = 3 * (last + 1);
                for (int j = 3 * a; j < normal.end[i]; ++j) normal.at(i, j) = 0;
            }
            const OwnSums own = levels == 3 ? own_sums<3>(s.shape, cell)
                                : levels    ? own_sums<1>(s.shape, cell)
                                            : own_sums<0>(s.shape, cell);
            const double block[3][3] = {{own.x_x, own.x_y, own.light_x},
                                        {own.x_y, own.y_y, own.light_y},
                                        {own.light_x, own.light_y, own.light_light}};
            put(a, a, block, s.light, s.light);
            double* const g = gradient + 3 * a;
            g[0] = s.light * own.pull_x, g[1] = s.light * own.pull_y, g[2] = own.pull_light;
            for (int k = 0; k < levels; ++k) {
                normal.at(3 * a, first + k) = s.light * own.ground[k][1];
                normal.at(3 * a + 1, first + k) = s.light * own.ground[k][2];
                normal.at(3 * a + 2, first + k) = own.ground[k][0];
            }
            for (int b = a + 1; b <= last; ++b) {
                const Spot& o = spots[together[b]];
                if (!overlap(s.shape, o.shape)) continue;
                const PairSums p = pair_sums(s.shape, o.shape);
                const double pair[3][3] = {
                    {p.x_x, p.x_y, p.x_light}, {p.y_x, p.y_y, p.y_light}, {p.light_x, p.light_y, p.light_light}};
                put(a, b, pair, s.light, o.light);
            }
        }
        for (int k = 0; k < levels; ++k) normal.end[first + k] = factor.end[first + k] = first;
        if (levels) sum_ground(cell);
    }
    bool find_factor(double damping) {
        for (int i = 0; i < normal.size; ++i) {
            for (int j = i; j < normal.end[i]; ++j) factor.at(i, j) = normal.at(i, j);
            for (int j = i > normal.inner() ? i : normal.inner(); j < normal.size; ++j)
                factor.at(i, j) = normal.at(i, j);
            factor.at(i, i) = normal.at(i, i) * (1 + damping) + 1e-12;
        }
        return factor.factor();
    }

    // By which fraction the spots that move would be wider if they might be, all alike, and its error; `factor` is that
    // of their Fisher information.
    void find_width(int cell) {
        constexpr double SMALL = 0.02;
        float lines[4][2 * SIDE_BY_SIDE * 8];
        over_part([&](long long k) { store_pixels(other + k, Pixels(0.0f)); });
        for (int a = 0; a < moving; ++a) {
            const Spot& s = spots[together[a]];
            Footprint light = s.shape;
            light.y = lines[0], light.x = lines[1];
            for (double sign = 1; sign >= -1; sign -= 2) {
                const double sigma = f.sigma * (1 + sign * SMALL);
                const int side = light.rows, whole_line = line - SIDE_BY_SIDE;
                profile_line(s.y - light.top, sigma, f.is_integrated, side, whole_line, lines[0], lines[2]);
                profile_line(s.x - light.left, sigma, f.is_integrated, side, whole_line, lines[1], lines[3]);
                add_light(light, float(sign * s.light / (2 * SMALL)), other);
            }
        }
        double pulled = 0, information = 0;
        over_part([&](long long k) {
            const Pixels slope = load_pixels(other + k), weighted = load_pixels(weight + k) * slope;
            pulled += sum_of(load_pixels(pull + k) * slope), information += sum_of(weighted * slope);
            store_pixels(pull + k, weighted);
        });
        find_normal(cell);
        for (int i = 0; i < normal.size; ++i) step[i] = gradient[i];
        factor.solve(step);
        for (int i = 0; i < normal.size; ++i) information -= gradient[i] * step[i];
        for (int a = 0; a < moving; ++a) {
            Spot& s = spots[together[a]];
            s.wider = pulled / information, s.wider_error = 1 / __builtin_sqrt(information);
        }
    }

  private:
    // What a cell adds to the background: level * y * x + down * slope_y + across * slope_x.
    struct Ground {
        double level, down, across;
        const float *y, *x, *slope_y, *slope_x;
    };
    float* lines_of_spots;

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
    bool overlap(const Footprint& a, const Footprint& b) const {
        const int y = a.top - b.top, x = a.left - b.left, side = 2 * reach;
        return y <= side && -y <= side && x <= side && -x <= side;
    }
    void put(int a, int b, const double (&block)[3][3], double light_a, double light_b) const {
        for (int i = 0; i < 3; ++i)
            for (int j = 0; j < 3; ++j)
                normal.at(3 * a + i, 3 * b + j) = block[i][j] * (i < 2 ? light_a : 1) * (j < 2 ? light_b : 1);
    }

    template <int LEVELS> OwnSums own_sums(const Footprint& p, int cell) const {
        const Ground g = ground_of(cell);
        Pixels sums[18];
        for (Pixels& sum : sums) sum = 0.0f;
        const int begin = p.top > first_row ? p.top : first_row;
        const int end = p.top + p.rows < last_row ? p.top + p.rows : last_row;
        for (int x = 0; x < p.columns; x += SIDE_BY_SIDE) {
            const Pixels e = load_pixels(p.x + x), d = load_pixels(p.slope_x + x);
            const Pixels ee = e * e, ed = e * d, dd = d * d;
            const Pixels under = LEVELS ? load_pixels(g.x + p.left + x) : Pixels(0.0f),
                         across = LEVELS > 1 ? load_pixels(g.slope_x + p.left + x) : Pixels(0.0f);
            for (int y = begin; y < end; ++y) {
                const Pixels w = load_pixels(at(weight, y) + p.left + x), r = load_pixels(at(pull, y) + p.left + x);
                const float v = p.y[y - p.top], s = p.slope_y[y - p.top];
                const Pixels wee = ee * w, wed = ed * w;
                const auto add = [&](int k, Pixels value, float factor) {
                    sums[k] = multiply_add(value, Pixels(factor), sums[k]);
                };
                add(0, wee, v * v), add(1, wed, v * v), add(2, wee, v * s);
                add(3, dd * w, v * v), add(4, wed, v * s), add(5, wee, s * s);
                const Pixels re = e * r;
                add(6, re, v), add(7, d * r, v), add(8, re, s);
                const Pixels we = e * w, wd = d * w;
                const auto add_ground = [&](int k, Pixels light, Pixels slope, float factor) {
                    add(k, light, v * factor), add(k + 1, slope, v * factor), add(k + 2, light, s * factor);
                };
                if (LEVELS) add_ground(9, we * under, wd * under, g.y[y]);
                if (LEVELS > 1) add_ground(12, we, wd, g.slope_y[y]), add_ground(15, we * across, wd * across, 1);
            }
        }
        double s[18];
        sums_of(sums, s), sums_of(sums + 8, s + 8), s[16] = sum_of(sums[16]), s[17] = sum_of(sums[17]);
        return {s[0], s[1], s[2], s[3], s[4],
                s[5], s[6], s[7], s[8], {{s[9], s[10], s[11]}, {s[12], s[13], s[14]}, {s[15], s[16], s[17]}}};
    }
    PairSums pair_sums(const Footprint& a, const Footprint& b) const {
        Pixels sums[9];
        for (Pixels& sum : sums) sum = 0.0f;
        int begin = a.top > b.top ? a.top : b.top, end = (a.top < b.top ? a.top : b.top) + a.rows;
        if (begin < first_row) begin = first_row;
        if (end > last_row) end = last_row;
        const int left = a.left > b.left ? a.left : b.left, right = (a.left < b.left ? a.left : b.left) + a.columns;
        for (int x = left; x < right; x += SIDE_BY_SIDE) {
            const Pixels xa = load_pixels(a.x + (x - a.left)), da = load_pixels(a.slope_x + (x - a.left));
            const Pixels xb = load_pixels(b.x + (x - b.left)), db = load_pixels(b.slope_x + (x - b.left));
            const Pixels ee = xa * xb, ed = xa * db, de = da * xb, dd = da * db;
            for (int y = begin; y < end; ++y) {
                const Pixels w = load_pixels(at(weight, y) + x), light = ee * w, second = ed * w, first = de * w;
                const float va = a.y[y - a.top], sa = a.slope_y[y - a.top], vb = b.y[y - b.top],
                            sb = b.slope_y[y - b.top];
                const auto add = [&](int k, Pixels value, float factor) {
                    sums[k] = multiply_add(value, Pixels(factor), sums[k]);
                };
                add(0, light, va * vb), add(1, second, va * vb), add(2, light, va * sb);
                add(3, first, va * vb), add(4, dd * w, va * vb), add(5, first, va * sb);
                add(6, light, sa * vb), add(7, second, sa * vb), add(8, light, sa * sb);
            }
        }
        double s[8];
        sums_of(sums, s);
        return {s[0], s[1], s[2], s[3], s[4], s[5], s[6], s[7], sum_of(sums[8])};
    }
    // Of the background's numbers among themselves, and what the residual pulls at them.
    void sum_ground(int cell) const {
        const Ground g = ground_of(cell);
        Pixels sums[9];
        for (Pixels& sum : sums) sum = 0.0f;
        for (int y = first_row; y < last_row; ++y) {
            const Pixels here = g.y[y], down = g.slope_y[y];
            Pixels of_row[5] = {0.0f, 0.0f, 0.0f, 0.0f, 0.0f};
            for (int x = first_column; x < last_column; x += SIDE_BY_SIDE) {
                const Pixels w = load_pixels(at(weight, y) + x), r = load_pixels(at(pull, y) + x),
                             under = load_pixels(g.x + x), across = load_pixels(g.slope_x + x);
                const Pixels wu = w * under, wa = w * across;
                of_row[0] = multiply_add(wu, under, of_row[0]), of_row[1] = multiply_add(wu, across, of_row[1]);
                of_row[2] = multiply_add(wa, across, of_row[2]);
                of_row[3] = multiply_add(r, under, of_row[3]), of_row[4] = multiply_add(r, across, of_row[4]);
            }
            const auto add = [&](int k, Pixels value, Pixels factor) {
                sums[k] = multiply_add(value, factor, sums[k]);
            };
            add(0, of_row[0], here * here), add(1, of_row[0], here * down), add(2, of_row[1], here);
            add(3, of_row[0], down * down), add(4, of_row[1], down), add(5, of_row[2], 1.0f);
            add(6, of_row[3], here), add(7, of_row[3], down), add(8, of_row[4], 1.0f);
        }
        double s[8];
        sums_of(sums, s);
        const double values[3][3] = {{s[0], s[1], s[2]}, {s[1], s[3], s[4]}, {s[2], s[4], s[5]}};
        const double pulls[3] = {s[6], s[7], sum_of(sums[8])};
        const int first = 3 * moving;
        for (int k = 0; k < levels; ++k) {
            gradient[first + k] = pulls[k];
            for (int i = k; i < levels; ++i) normal.at(first + k, first + i) = values[k][i];
        }
    }
};

}  // namespace spotfit::SPOTFIT_ISA
