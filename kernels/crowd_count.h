// How many spots a crowd is of: what its residual shows is added, and what the data do not need is dropped.
#pragma once
#include "crowd_residual.h"

namespace spotfit::SPOTFIT_ISA {

class CrowdCount : protected CrowdResidual {
  protected:
    using CrowdResidual::CrowdResidual;

    // How often spots are added, and dropped in between, at most: bounds of time.
    static constexpr int ROUNDS = 4, DROPS = 3;

    // Adds spots, and drops some, once more; returns whether any are new.
    SPOTFIT_NOT_INLINE bool count_again(int round) {
        const int since = sweep + 1;
        Team::meet(1 + round, 0);
        bool is_new = add_hidden();
        Team::meet(1 + round, 1);
        if (is_new) move_all(ROUGH_STEPS, ROUGH);
        if (is_new && has_psf() && find_heights(since)) move_all(ROUGH_STEPS, ROUGH);
        Team::meet(1 + round, 2);
        if (split()) is_new = true, move_all(ROUGH_STEPS, ROUGH);
        ROLLED
        for (int n = 0; (is_new || !round) && n < DROPS; ++n) {
            Team::meet(1 + round, 3 + 3 * n);
            if (merge()) move_all(ROUGH_STEPS, ROUGH);
            Team::meet(1 + round, 4 + 3 * n);
            find_errors(false);
            Team::meet(1 + round, 5 + 3 * n);
            if (!drop()) break;
            move_all(ROUGH_STEPS, ROUGH);
        }
        return is_new;
    }
    // Moves spots until they rest; those that are then of no use are dropped.
    SPOTFIT_NOT_INLINE void settle() {
        share(count, [&](int i) { spots[i].stirred = sweep + 1; });
        set(settles, true);
        ROLLED
        for (int n = 1; n <= DROPS; ++n) {
            Team::meet(ROUNDS + n, 0);
            move_all(f.max_iterations, has_psf() ? FINE_OF_PSF : FINE, LAST_SWEEPS);
            if (f.counts_spots && f.grows && cells() == 1) judge_background();
            const bool is_last = !f.counts_spots || n == DROPS;
            Team::meet(ROUNDS + n, 1);
            if (!is_last && merge()) continue;
            find_errors(true);
            if (is_last || !drop()) break;
        }
        Team::meet(ROUNDS + DROPS + 1, 0);
        if (f.counts_spots && !has_psf() && axes() == Z) find_blurred();
        Team::meet(ROUNDS + DROPS + 1, 1);
    }

    // Of light alone, or of all; of spots that something near them has stirred since they were found.
    SPOTFIT_NOT_INLINE void find_errors(bool of_all) {
        const int since = of_all ? 0 : errors_found + 1;
        set(errors_found, sweep);
        over_cells(since, [&](int cell) {
            if (!(is_evaluated && all_move())) find_base(cell), evaluate(cell);
            find_normal(cell);
            const bool is_known = find_factor(1e-9);
            const auto error = [&](int i) {
                return is_known ? square_root(factor.variance(i, step)) : double(INFINITE);
            };
            ROLLED
            for (int a = 0; a < moving; ++a) {
                Spot& s = spots[together[a]];
                ROLLED
                for (int k = of_all ? 0 : places(); k <= places(); ++k) set(s.errors[k], error(parameters() * a + k));
                alone([&] {
                    s.is_dropped = false;
                    s.evidence = square_of(s.light / s.errors[places()]) / 2;
                });
            }
            if (of_all) set(level_errors[cell], error(parameters() * moving));
            if (of_all && is_known) {
                const Width all_alike = find_width(cell, find_widening(X, axes()));
                share(moving, [&](int a) {
                    Spot& s = spots[together[a]];
                    s.wider = all_alike.wider, s.wider_error = all_alike.error;
                });
            }
            if (of_all && is_known && f.counts_spots && !has_psf()) find_ridge(cell);
        });
    }

  private:
    // In units of the spots' width: spots nearer to each other are one, as two of 1000 photons are resolved in fewer
    // than a tenth of cases there; how far from its place the halves of one that is split begin; how far around a spot
    // that is dropped the others move until they were fitted without it, where its light has fallen to a hundredth.
    static constexpr double ONE_SPOT = 0.6, HALF_APART = 0.6, APART = 3;
    // In the same unit: a neighbour as near begins with the light of one that is dropped.
    static constexpr double HEIR = 2;
    // In the same unit, how far around a spot others are part of something extended, if it is; and of how many at
    // least.
    static constexpr double AROUND = 3;
    static constexpr int FEWEST = 3;
    // Evidence, in units of the least, above which a spot is needed beyond doubt: a margin, as that of a light over its
    // error is only near that of fits with and without the spot.
    static constexpr double SURE = 2.5;
    // A spot is split to see whether it is two from this score on: twice the logarithm of a likelihood, of a
    // quadrupole's two numbers, which one spot in 250 exceeds by noise.
    static constexpr double QUADRUPOLE = 11;
    // Spots whose score is above the least by so much are added before others, whose score they may change.
    static constexpr double CLEAR = 2;
    // In widths of a spot, how near to another one it may be without a maximum of its own: those have been judged by
    // their shape, as texture must be that makes the residual scatter more times than the second.
    static constexpr double HIDES = 3, EVEN = 1.4;
    // Which share of its light a measured PSF may have elsewhere: beyond 12 pixels, astigmatic ones had 1 to 2.7 %.
    // And beyond its last plane: by a tenth of its depth, spots of up to 6 % explained it.
    static constexpr double PSF_ERROR = 0.03, END_ERROR = 0.15;
    // The same of a Gaussian, and how far away, in its widths: where the PSF is 10 % wider, 4 % of a spot's light is
    // left over at each place around it, most 2 widths away. And by which fraction a width may be off without being a
    // sign of more spots.
    static constexpr double SHAPE_ERROR = 0.03, NEAR_LIGHT = 4, UNLIKE = 0.025;

    int errors_found = -1;  // the sweep before
    int splits = 0;
    bool settles = false;  // spots are added no more

    double least_evidence(const Spot& s) const {
        if (s.candidate < 0 && !may_hide(s.at, s.light, &s)) return INFINITE;
        const double by_noise = square_of(s.candidate < 0 ? f.least_score * roughness : f.least_score) / 2;
        return square_root(square_of(by_noise) + square_of(by_shape(s)));
    }
    // What the light of a spot and of the brightest one beside it would gain by a slightly different shape.
    double by_shape(const Spot& s) const {
        if (has_psf()) return 0;
        double brightest = 0;
        any_near(s.at[Y], HEIR * f.sigma[Y], [&](int i) {
            const Spot& other = spots[i];
            const bool is_beside = &other != &s && !other.is_dropped;
            if (is_beside && square_between(other.at, s.at) < square_of(HEIR * f.sigma[X]))
                brightest = larger(brightest, other.light);
            return false;
        });
        return 2 * square_of(UNLIKE) * (s.light + brightest);
    }

    // Which share of the light around each would rather be wider; spots are in the order of y.
    SPOTFIT_NOT_INLINE void find_blurred() {
        bool is_ready = false;
        ROLLED
        for (int i = 0; i < count; ++i) {
            const int some = add_near(i, 0, AROUND, 0);
            if (some < FEWEST) continue;
            if (!is_ready) find_residual();
            is_ready = true;
            const int all = add_near(i, AROUND, FAR, some);
            alone([&] { together = near, moving = all, levels = levels_of_cell(); });
            find_blur(spots[i], some);
        }
    }
    // Lists further spots that are farther from one than some widths, and nearer than others; returns how many there
    // are then.
    SPOTFIT_NOT_INLINE int add_near(int i, double from, double to, int some) {
        const double low = square_of(from * f.sigma[X]), high = square_of(to * f.sigma[X]);
        Team::wait();
        ROLLED
        for (int step = -1; step <= 1; step += 2)
            for (int j = step < 0 ? i : i + 1; j >= 0 && j < count && some < TOGETHER; j += step) {
                const double apart = square_between(spots[j].at, spots[i].at);
                if (square_of((spots[j].at[Y] - spots[i].at[Y]) * scale[Y]) > high) break;
                if (apart < low || apart >= high) continue;
                if (Team::lane() == 0) near[some] = j;
                ++some;
            }
        Team::wait();
        return some;
    }
    // Whether the data are as much likelier with a spot as they must be, its neighbours fitted without it, too.
    SPOTFIT_NOT_INLINE bool is_needed(int i) {
        Spot& own = spots[i];
        const int cell = cell_of(own);
        const double apart = square_of(APART * f.sigma[X]);
        double nearest = apart;
        int heir = -1, others = 0;
        any_near(own.at[Y], APART * f.sigma[Y], [&](int j) {
            const double far = square_between(spots[j].at, own.at);
            if (j == i || spots[j].is_dropped || far > apart) return false;
            if (Team::lane() == 0) near[others] = j;
            ++others;
            if (far < nearest) nearest = far, heir = j;
            return others == TOGETHER - 1;
        });
        alone([&] {
            near[others] = i;
            together = near, moving = others + 1, levels = levels_of_cell();
            // Spots do not move the background of many others.
            if (!all_move()) levels = 0;
        });
        choose_part(NOWHERE);
        find_base(cell);
        const double with = evaluate(cell);
        const Levels ground = levels_of(cell);
        keep_places();
        set(moving, others);
        if (heir >= 0 && nearest < square_of(HEIR * f.sigma[X])) {
            alone([&] { take_over(spots[heir], own); });
            shape(spots[heir]);
        }
        // How much evidence there is beyond the bar is asked for in the end alone.
        const double bar = least_evidence(own), most_wanted = has_psf() ? SURE * bar : settles ? double(INFINITE) : bar;
        const double wanted = with + most_wanted;
        double evidence = move(cell, STEPS_WITHOUT, ROUGH / 10, wanted).deviance - with;
        if (has_psf() && heir >= 0 && !(evidence < bar))
            evidence = smaller(evidence, least_deviance(cell, own, spots[heir], with, ground) - with);
        set(own.is_sure, true);
        const bool is_kept = !(evidence < bar);
        alone([&] {
            // What is needed beyond doubt was not tried to the end.
            own.evidence = evidence < wanted - with ? evidence : larger(own.evidence, wanted - with);
            if (!is_kept) own.is_dropped = true, own.light = 0;
        });
        if (!is_kept) {
            // Its other half is what it was.
            share(own.half ? count : 0, [&](int j) {
                Spot& s = spots[j];
                if (j == i || s.half != own.half) return;
                s.is_one = true;
                if (s.candidate < 0) s.candidate = own.candidate;
            });
            share(moving, [&](int k) { spots[near[k]].stirred = sweep + 1; });
            return false;
        }
        set(moving, others + 1);
        put_places();
        shape_moving();
        restore(cell, ground);
        evaluate(cell);
        keep_mean();
        return true;
    }
    // The deviance / 2 without a spot, whose light another one has, at another height: of two spots, one may be
    // what is wrong with the z of the other one. Ends at the first height at which the spot is not needed.
    SPOTFIT_NOT_INLINE double least_deviance(int cell, const Spot& own, Spot& heir, double with, const Levels& ground) {
        const auto begin = [&](const Height* height) {
            put_places();
            alone([&] {
                take_over(heir, own);
                if (height) heir.at[Z] = height->z, heir.light = height->light;
            });
            shape_moving();
            restore(cell, ground);
        };
        begin(nullptr);
        evaluate(cell);
        Height tried[TRIES];
        const int some = best_heights(heir.at, &heir, tried);
        double least = INFINITE;
        ROLLED
        for (int k = 0; k < some && !(least - with < least_evidence(own)); ++k) {
            begin(&tried[k]);
            least = smaller(least, move(cell, STEPS_WITHOUT, ROUGH / 10, with + SURE * least_evidence(own)).deviance);
        }
        return least;
    }
    // Gives a spot the light of another one, and a place between both.
    SPOTFIT_NOT_INLINE void take_over(Spot& a, const Spot& b) {
        const double sum = a.light + b.light;
        ROLLED
        for (int axis = X; axis < axes(); ++axis) a.at[axis] = (a.at[axis] * a.light + b.at[axis] * b.light) / sum;
        a.light = sum;
    }
    // The brighter half is the spot that was split: the other one was found in what it leaves, and is judged so.
    SPOTFIT_NOT_INLINE void name_halves() {
        const double far = 2 * APART * f.sigma[Y];
        alone([&] {
            ROLLED
            for (int i = 0; i < count; ++i) {
                Spot& own = spots[i];
                if (!own.half) continue;
                for (int j = i + 1; j < count && spots[j].at[Y] - own.at[Y] < far; ++j) {
                    Spot& other = spots[j];
                    const bool is_named = own.candidate >= 0;
                    if (other.half != own.half || is_named == (other.candidate >= 0)) continue;
                    if (is_named ? other.light <= own.light : own.light <= other.light) continue;
                    const long long name = own.candidate;
                    own.candidate = other.candidate, other.candidate = name;
                }
            }
        });
    }
    double strength_of(int i) const {
        const double own = spots[i].evidence / least_evidence(spots[i]);
        // What is wrong with the z of another spot may be as bright as any.
        const bool may_be_wrong = has_psf() && settles && own >= SURE && !spots[i].is_sure;
        return may_be_wrong && is_near_spot(spots[i].at, APART, &spots[i]) ? SURE * (1 - 1 / own) : own;
    }
    // Of spots in a heap, the weakest first, moves one behind those that are weaker.
    SPOTFIT_NOT_INLINE void sift(int* heap, int at, int size) const {
        const auto is_weaker = [&](int a, int b) {
            return spots[a].strength < spots[b].strength || (spots[a].strength == spots[b].strength && a < b);
        };
        ROLLED
        for (int weakest = at;; at = weakest) {
            ROLLED
            for (int k = 2 * at + 1; k <= 2 * at + 2 && k < size; ++k)
                if (is_weaker(heap[k], heap[weakest])) weakest = k;
            if (weakest == at) return;
            const int own = heap[at];
            heap[at] = heap[weakest], heap[weakest] = own;
        }
    }
    // Drops what is not needed, the weakest first.
    SPOTFIT_NOT_INLINE bool drop() {
        sort();
        name_halves();
        share(count, [&](int i) { spots[i].strength = strength_of(i); });
        int* const weak = by_cell;
        int left = 0;
        ROLLED
        for (int i = 0; i < count; ++i) left += spots[i].strength < SURE;
        alone([&] {
            int number = 0;
            ROLLED
            for (int i = 0; i < count; ++i)
                if (spots[i].strength < SURE) weak[number++] = i;
            ROLLED
            for (int k = number / 2; k >= 0; --k) sift(weak, k, number);
        });
        bool any = false;
        ROLLED
        while (left > 0 && !is_stopped()) {
            const int weakest = weak[0];
            --left;
            alone([&] { weak[0] = weak[left], sift(weak, 0, left); });
            // Those dropped before it may have changed what it must be.
            if (strength_of(weakest) < SURE) any |= !is_needed(weakest);
        }
        if (any) remove_dropped();
        return any;
    }
    // Joins spots that are nearer to each other than two can be resolved.
    SPOTFIT_NOT_INLINE bool merge() {
        sort();
        alone([&] {
            ROLLED
            for (int i = 0; i < count; ++i) spots[i].is_dropped = false;
            // Places along y change a little as spots become one.
            ROLLED
            for (int i = 0; i < count; ++i)
                for (int j = i - 1; j >= 0 && spots[i].at[Y] - spots[j].at[Y] < 2 * ONE_SPOT * f.sigma[Y]; --j) {
                    Spot &a = spots[j], &b = spots[i];
                    if (a.is_dropped || b.is_dropped) continue;
                    if (square_between(a.at, b.at) >= square_of(ONE_SPOT * f.sigma[X])) continue;
                    take_over(a, b);
                    a.is_one |= a.half && a.half == b.half;
                    a.stirred = sweep + 1;
                    if (a.candidate < 0 || (b.candidate >= 0 && b.candidate < a.candidate)) a.candidate = b.candidate;
                    b.is_dropped = true;
                }
        });
        if (!remove_dropped()) return false;
        shape_each(spots, nullptr, count);
        return true;
    }

    // In planes, roughness is known once all spots are there: those that are hidden still make it rough.
    SPOTFIT_NOT_INLINE void judge_background() {
        if (Team::last_of(0, count, [&](int i) { return spots[i].candidate < 0; }) < 0) return;
        find_residual();
        find_scores();
        find_roughness();
    }
    SPOTFIT_NOT_INLINE bool is_near_spot(const double* place, double widths, const Spot* but = nullptr) const {
        return any_near(place[Y], widths * f.sigma[Y], [&](int i) {
            return &spots[i] != but && square_between(spots[i].at, place) < square_of(widths * f.sigma[X]);
        });
    }
    // In a rough background, what is not near to another spot would have a maximum of its own. A measured PSF is not
    // known all over, nor is any PSF a Gaussian: a small share of its light, more where z is at an end, may look like
    // spots. While spots are added, z may be at an end because of what is hidden.
    bool may_hide(const double* place, double light, const Spot* own = nullptr) const {
        if (!has_psf() && roughness >= EVEN && !is_near_spot(place, HIDES, own)) return false;
        const double far = has_psf() ? f.reach[X] + core(X) : NEAR_LIGHT * f.sigma[X];
        const double far_y = has_psf() ? far : NEAR_LIGHT * f.sigma[Y];
        return !any_near(place[Y], far_y, [&](int i) {
            const Spot& s = spots[i];
            if (&s == own || square_between(s.at, place) > square_of(far)) return false;
            const bool is_at_end = has_psf() && (s.at[Z] <= lowest_z() || s.at[Z] >= highest_z());
            const double error = !has_psf() ? SHAPE_ERROR : settles && is_at_end ? END_ERROR : PSF_ERROR;
            return light < error * s.light;
        });
    }

    // Adds spots where the residual stands out of the noise as one does.
    SPOTFIT_NOT_INLINE bool add_hidden() {
        sort();
        find_residual();
        if (has_psf()) find_scores_of_psf();
        else find_scores();
        // In planes, hidden spots make it rough themselves, until they have been found by an earlier fit; and parts of
        // large crowds are not alike.
        const bool has_grown = number_detected() < end - begin;
        if (axes() > Z || (cells() == 1 && has_grown)) find_roughness();
        // It grows once. What is wider than a PSF may be an edge itself.
        const bool stays_near = f.grows && (has_grown || (cells() == 1 && stretch[X] != 1));
        const int before = count;
        const double lowest = f.least_score * roughness;
        ROLLED
        for (double bar = lowest + CLEAR; count == before && bar >= lowest; bar -= CLEAR)
            for (int k = 0; k < depth * rows; ++k) {
                const int z = k / rows, y = k % rows;
                ROLLED
                for (int first = 0; first < columns; first += SIDE_BY_SIDE) {
                    if (!any_pixel(load_pixels(at(base, z, y) + first) > float(bar))) continue;
                    ROLLED
                    for (int x = first; x < first + SIDE_BY_SIDE && x < columns; ++x) {
                        double place[] = {double(x), double(y), double(z)};
                        if (!(at(base, z, y)[x] > float(bar)) || !is_highest(z, y, x) || count >= most ||
                            is_near_spot(place, ONE_SPOT) || (stays_near && is_apart(place)))
                            continue;
                        Height found[TRIES] = {};
                        if (has_psf()) best_heights(place, nullptr, found), place[Z] = found[0].z;
                        else found[0].light = at(trial, z, y)[x] / at(other, z, y)[x];
                        if (may_hide(place, found[0].light)) add(place, found[0].light, -1);
                    }
                }
            }
        if (has_psf() && count > before) {
            find_mean();
            ROLLED
            for (int i = before; i < count; ++i) move_alone(i);
        }
        return count > before;
    }

    // Splits spots whose residual is that of two.
    SPOTFIT_NOT_INLINE bool split() {
        find_residual();
        const int before = count, planes_of_axes = axes() > Z ? 3 : 1;
        ROLLED
        for (int i = 0; i < before && count < most; ++i) {
            if (spots[i].is_one) continue;
            Quadrupole found[3];
            if (axes() > Z) find_quadrupoles<3>(spots[i], found);
            else find_quadrupoles<1>(spots[i], found);
            int best = 0;
            ROLLED
            for (int k = 1; k < planes_of_axes; ++k)
                if (found[k].score() > found[best].score()) best = k;
            if (!(found[best].score() > QUADRUPOLE)) continue;
            const Axis a = FIRST[best], b = SECOND[best];
            const double cosine = found[best].along / square_root(found[best].score());
            const double half = HALF_APART * f.sigma[X];
            double step_of[ALL_AXES] = {}, place[ALL_AXES];
            step_of[a] = half * square_root((1 + cosine) / 2) / scale[a];
            step_of[b] = (found[best].across < 0 ? -half : half) * square_root((1 - cosine) / 2) / scale[b];
            Spot& own = spots[i];
            ROLLED
            for (int axis = X; axis < ALL_AXES; ++axis) place[axis] = own.at[axis] - step_of[axis];
            alone([&] {
                own.light /= 2, own.stirred = sweep + 1;
                ROLLED
                for (int axis = X; axis < ALL_AXES; ++axis) own.at[axis] += step_of[axis];
            });
            shape(own);
            add(place, own.light, -1);
            alone([&] { own.half = spots[count - 1].half = ++splits; });
        }
        return count > before;
    }
};

}  // namespace spotfit::SPOTFIT_ISA
