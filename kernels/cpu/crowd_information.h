// What the pixels say of the light of a crowd: the Fisher information of spots and background that move together, the
// gradient of their likelihood, and the width that they would rather have.
#pragma once
#include "banded_matrix.h"
#include "crowd_light.h"

namespace spotfit::SPOTFIT_ISA {

class CrowdInformation : protected CrowdLight {
  protected:
    BandedMatrix normal, factor;
    double *gradient, *step;

    CrowdInformation(const JointFits& fits, long long which, void* work) : CrowdLight(fits, which, work) {
        const int size = 3 * (most < TOGETHER ? static_cast<int>(most) : TOGETHER) + 3;
        BandedMatrix* const matrices[] = {&normal, &factor};
        for (BandedMatrix* matrix : matrices) {
            matrix->room = size;
            matrix->rows = memory.take<double>(static_cast<long long>(size) * size);
            matrix->end = memory.take<int>(size);
        }
        gradient = memory.take<double>(size), step = memory.take<double>(size);
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
