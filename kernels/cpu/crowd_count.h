// How many spots a crowd is of: what its residual shows is added, and what the data do not need is dropped.
#pragma once
#include "crowd_moves.h"

namespace spotfit::SPOTFIT_ISA {

class CrowdCount : protected CrowdMoves {
  protected:
    using CrowdMoves::CrowdMoves;

    void count_spots() {
        bool is_new = true;
        for (int k = 0; k < ROUNDS && is_new; ++k) {
            is_new = add_hidden();
            if (is_new) move_all(ROUGH_STEPS, ROUGH);
            if (split()) is_new = true, move_all(ROUGH_STEPS, ROUGH);
            for (int n = 0; (is_new || !k) && n < DROPS; ++n) {
                if (merge()) move_all(ROUGH_STEPS, ROUGH);
                find_errors(false);
                if (!drop()) break;
                move_all(ROUGH_STEPS, ROUGH);
            }
        }
    }
    // Moves spots until they rest; those that are then of no use are dropped.
    void settle() {
        for (int i = 0; i < count; ++i) spots[i].stirred = sweep + 1;
        for (int n = 1; n <= DROPS; ++n) {
            move_all(f.max_iterations, FINE, LAST_SWEEPS);
            const bool is_last = !f.counts_spots || n == DROPS;
            if (!is_last && merge()) continue;
            find_errors(true);
            if (is_last || !drop()) break;
        }
    }

  private:
    // In units of the spots' width: spots nearer to each other are one; how far apart the halves of one that is split
    // are put; how far around a spot that is dropped the others move until they were fitted without it.
    static constexpr double ONE_SPOT = 0.6, HALF_APART = 0.6, APART = 3;
    // Evidence, in units of the least, above which a spot is needed beyond doubt.
    static constexpr double SURE = 2.5;
    // A spot is split to see whether it is two from this score on: twice the logarithm of a likelihood, of a
    // quadrupole.
    static constexpr double QUADRUPOLE = 11;
    // Spots whose score is above the least by so much are added before others; how often spots are added, and dropped.
    static constexpr double CLEAR = 2;
    static constexpr int ROUNDS = 4, DROPS = 3, STEPS_WITHOUT = 20;

    int errors_found = -1;  // the sweep before

    // Of light alone, or of all; of spots that something near them has stirred since they were found.
    void find_errors(bool of_all) {
        const int since = of_all ? 0 : errors_found + 1;
        errors_found = sweep;
        over_cells(since, [&](int cell) {
            find_base(cell);
            evaluate(cell);
            find_normal(cell);
            const bool is_known = find_factor(1e-9);
            const auto error = [&](int i) {
                return is_known ? __builtin_sqrt(factor.variance(i, step)) : double(INFINITE);
            };
            for (int a = 0; a < moving; ++a) {
                Spot& s = spots[together[a]];
                for (int k = of_all ? 0 : 2; k < 3; ++k) s.errors[k] = error(3 * a + k);
                s.is_dropped = s.is_tested = false;
                s.evidence = square_of(s.light / s.errors[2]) / 2;
            }
            if (of_all) level_errors[cell] = error(3 * moving);
            if (of_all && is_known) find_width(cell);
        });
    }
    // Whether the data are as much likelier with a spot as they must be, its neighbours fitted without it, too.
    bool is_needed(int i) {
        Spot& own = spots[i];
        const int cell = cell_of(own);
        struct Place { double y, x, light; };
        Place before[TOGETHER];
        int near[TOGETHER];
        double nearest = square_of(APART * f.sigma);
        int heir = -1;
        moving = 0;
        for (int j = 0; j < count && moving < TOGETHER - 1; ++j) {
            const double far = square_of(spots[j].x - own.x) + square_of(spots[j].y - own.y);
            if (j == i || spots[j].is_dropped || far > square_of(APART * f.sigma)) continue;
            near[moving++] = j;
            if (far < nearest) nearest = far, heir = j;
        }
        near[moving++] = i;
        together = near;
        levels = levels_of_cell();
        // Spots do not move the background of many others.
        if (!all_move()) levels = 0;
        choose_part(INFINITE, -INFINITE, INFINITE, -INFINITE);
        find_base(cell);
        const double with = evaluate(cell);
        const Levels ground = levels_of(cell);
        for (int k = 0; k < moving; ++k) {
            const Spot& s = spots[together[k]];
            before[k] = {s.y, s.x, s.light};
        }
        --moving;
        if (heir >= 0 && nearest < square_of(2 * f.sigma)) take_over(spots[heir], own);
        own.evidence = move(cell, STEPS_WITHOUT, ROUGH / 10).deviance - with;
        if (own.evidence < square_of(f.least_score) / 2) {
            own.is_dropped = true, own.light = 0;
            for (int k = 0; k < moving; ++k) spots[near[k]].stirred = sweep + 1;
            return false;
        }
        ++moving;
        for (int k = 0; k < moving; ++k) {
            Spot& s = spots[together[k]];
            s.y = before[k].y, s.x = before[k].x, s.light = before[k].light;
            shape(s);
        }
        restore(cell, ground);
        evaluate(cell);
        keep_mean();
        return true;
    }
    // Gives a spot the light of another one, and a place between both.
    void take_over(Spot& a, const Spot& b) {
        const double sum = a.light + b.light;
        a.x = (a.x * a.light + b.x * b.light) / sum, a.y = (a.y * a.light + b.y * b.light) / sum;
        a.light = sum;
        shape(a);
    }
    // Drops what is not needed, the weakest first.
    bool drop() {
        bool any = false;
        for (;;) {
            int weakest = -1;
            double least = SURE * square_of(f.least_score) / 2;
            for (int i = 0; i < count; ++i)
                if (!spots[i].is_tested && spots[i].evidence < least) weakest = i, least = spots[i].evidence;
            if (weakest < 0) break;
            spots[weakest].is_tested = true;
            any |= !is_needed(weakest);
        }
        if (any) remove_dropped();
        return any;
    }
    // Joins spots that are nearer to each other than two can be resolved.
    bool merge() {
        bool any = false;
        sort();
        for (int i = 0; i < count; ++i) spots[i].is_dropped = false;
        for (int i = 0; i < count; ++i)
            for (int j = i - 1; j >= 0 && spots[i].y - spots[j].y < 2 * ONE_SPOT * f.sigma; --j) {
                Spot &a = spots[j], &b = spots[i];
                if (a.is_dropped || b.is_dropped) continue;
                if (square_of(a.x - b.x) + square_of(a.y - b.y) >= square_of(ONE_SPOT * f.sigma)) continue;
                take_over(a, b);
                a.stirred = sweep + 1;
                if (a.candidate < 0 || (b.candidate >= 0 && b.candidate < a.candidate)) a.candidate = b.candidate;
                b.is_dropped = any = true;
            }
        if (any) remove_dropped();
        return any;
    }

    void convolve(const float* kernel, const float* from, float* to) const {
        // Along x, then along y in place of a third plane: rows that are done are not needed again.
        for (int y = 0; y < rows; ++y)
            for (int x = 0; x < columns; x += SIDE_BY_SIDE) {
                const float* const row = from + y * stride + margin + x;
                Pixels sum = 0.0f;
                for (int k = -reach; k <= reach; ++k)
                    sum = multiply_add(load_pixels(row + k), Pixels(kernel[k + reach]), sum);
                store_pixels(at(base, y) + x, sum);
            }
        for (int y = 0; y < rows; ++y)
            for (int x = 0; x < columns; x += SIDE_BY_SIDE) {
                Pixels sum = 0.0f;
                for (int k = -reach; k <= reach; ++k)
                    if (y + k >= 0 && y + k < rows)
                        sum = multiply_add(load_pixels(at(base, y + k) + x), Pixels(kernel[k + reach]), sum);
                store_pixels(at(to, y) + x, sum);
            }
    }

    void find_residual() {
        find_mean();
        for (long long k = 0; k < area(); k += SIDE_BY_SIDE) {
            const Pixels expected = load_pixels(mean + k), w = load_pixels(counts + k) / expected;
            store_pixels(weight + k, w), store_pixels(pull + k, w * (load_pixels(data + k) - expected));
        }
    }
    // How far a spot at each pixel would stand out of the noise, from its light times what `other` has, into `base`.
    void find_scores() {
        for (int y = 0; y < rows; ++y)
            for (int x = 0; x < columns; x += SIDE_BY_SIDE) {
                const Pixels error = load_pixels(at(other, y) + x), light = load_pixels(at(trial, y) + x);
                const auto counts_here = select(error > 0.0f, load_pixels(at(counts, y) + x), Pixels(0.0f)) > 0.0f;
                const Pixels score = light / square_root(select(counts_here, error, Pixels(1.0f)));
                store_pixels(at(base, y) + x, select(counts_here, score, Pixels(-INFINITE)));
            }
    }
    // Of equal ones, the first.
    bool is_highest(int y, int x) const {
        const float own = at(base, y)[x];
        for (int v = y > 0 ? y - 1 : 0; v <= y + 1 && v < rows; ++v)
            for (int u = x > 0 ? x - 1 : 0; u <= x + 1 && u < columns; ++u) {
                const float there = at(base, v)[u];
                const bool is_earlier = v < y || (v == y && u < x);
                if (is_earlier ? there >= own : there > own) return false;
            }
        return true;
    }
    bool is_near_spot(double y, double x) const {
        for (int i = 0; i < count; ++i)
            if (square_of(spots[i].x - x) + square_of(spots[i].y - y) < square_of(ONE_SPOT * f.sigma)) return true;
        return false;
    }

    // Adds spots where the residual stands out of the noise as one does.
    bool add_hidden() {
        find_residual();
        float kernel[2 * 64 + 1 + SIDE_BY_SIDE * 2], slope[2 * 64 + 1 + SIDE_BY_SIDE * 2];
        const int side = 2 * reach + 1;
        profile_line(reach, f.sigma, f.is_integrated, side, static_cast<int>(padded(side)), kernel, slope);
        convolve(kernel, pull, trial);
        for (int k = 0; k < side; ++k) kernel[k] *= kernel[k];
        convolve(kernel, weight, other);
        find_scores();
        const int before = count;
        for (double least = f.least_score + CLEAR; count == before && least >= f.least_score; least -= CLEAR)
            for (int y = 0; y < rows; ++y)
                for (int first = 0; first < columns; first += SIDE_BY_SIDE) {
                    if (!any(load_pixels(at(base, y) + first) > float(least))) continue;
                    for (int x = first; x < first + SIDE_BY_SIDE && x < columns; ++x)
                        if (at(base, y)[x] > float(least) && is_highest(y, x) && count < most && !is_near_spot(y, x))
                            add(y, x, at(trial, y)[x] / at(other, y)[x], -1);
                }
        return count > before;
    }

    // Splits spots whose residual is that of two.
    bool split() {
        find_residual();
        const int before = count;
        for (int i = 0; i < before && count < most; ++i) {
            const Spot& s = spots[i];
            const Footprint& p = s.shape;
            double sums[4] = {};
            for (int y = p.top > 0 ? p.top : 0; y < p.top + p.rows && y < rows; ++y) {
                const double dy = y - s.y, ey = p.y[y - p.top];
                for (int x = p.left > 0 ? p.left : 0; x < p.left + p.columns && x < columns; ++x) {
                    const double dx = x - s.x, e = ey * p.x[x - p.left];
                    const double along = e * (dx * dx - dy * dy), across = e * 2 * dx * dy;
                    const double w = at(weight, y)[x], g = at(pull, y)[x];
                    sums[0] += g * along, sums[1] += g * across, sums[2] += w * along * along,
                        sums[3] += w * across * across;
                }
            }
            if (!(sums[2] > 0 && sums[3] > 0)) continue;
            const double a = sums[0] / __builtin_sqrt(sums[2]), b = sums[1] / __builtin_sqrt(sums[3]);
            const double size = a * a + b * b;
            if (!(size > QUADRUPOLE)) continue;
            const double cosine = a / __builtin_sqrt(size), half = HALF_APART * f.sigma;
            const double dx = half * __builtin_sqrt((1 + cosine) / 2);
            const double dy = (b < 0 ? -half : half) * __builtin_sqrt((1 - cosine) / 2);
            add(s.y - dy, s.x - dx, s.light / 2, -1);
            Spot& own = spots[i];
            own.y += dy, own.x += dx, own.light /= 2, own.stirred = sweep + 1;
            shape(own);
        }
        return count > before;
    }
};

}  // namespace spotfit::SPOTFIT_ISA
