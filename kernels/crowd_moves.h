// How the spots of a crowd, and its background, move to where their likelihood is highest.
#pragma once
#include "crowd_information.h"

namespace spotfit::SPOTFIT_ISA {

class CrowdMoves : protected CrowdInformation {
  protected:
    // Changes of the logarithm of the likelihood below which spots rest: while they are counted, much less than the 9.2
    // that a spot adds; in the end, so that places are off by less than 2 % of their errors; between sweeps; and for
    // those of a large crowd to be settled.
    static constexpr double ROUGH = 0.2, FINE = 1e-4, STILL = 0.02, SLOW = 0.2;
    // In the end, of measured PSFs, whose steps take longer: places are off by less than 5 % of their errors.
    static constexpr double FINE_OF_PSF = 1e-3;
    // What is wanted does not come where a step gains less than this share of what is left, nor from that many times
    // the evidence that a spot must have: of 1200 fits without a spot, those that came to 2.5 times that began
    // within 44.
    static constexpr double HOPELESS = 0.03, FAR_OFF = 60;
    // The share of what a step promised that it must gain to be damped less the next time, and below which it is damped
    // more: else every second step of a crowd that comes to rest slowly is one too far.
    static constexpr double GOOD = 0.75, POOR = 0.25;
    // Steps and sweeps at most while spots are counted, and sweeps in the end. What does not rest by then is moved
    // again in the next round or, in the end, flagged.
    static constexpr int ROUGH_STEPS = 12, SWEEPS = 6, LAST_SWEEPS = 20;

    int iterations = 0;

    using CrowdInformation::CrowdInformation;

    // Of a spot that stands out of a background as far as it must.
    SPOTFIT_NOT_INLINE double least_light(double ground) const {
        const double pixels = 4 * double(PI);  // over which light counts as spread out, in squares of the width
        const double least =
            f.least_score * square_root(pixels * larger(ground, 1)) * square_root(f.sigma[X] * f.sigma[Y]);
        return axes() > Z ? least * square_root(square_root(pixels) * f.sigma[Z]) : least;
    }
    struct Levels { double of[1 + ALL_AXES]; };
    Levels levels_of(int cell) const {
        Levels now = {};
        ROLLED
        for (int k = 0; k <= ALL_AXES; ++k)
            if (k < levels) now.of[k] = level[cell + k];
        return now;
    }
    SPOTFIT_NOT_INLINE void restore(int cell, const Levels& before) const {
        alone([&] {
            ROLLED
            for (int k = 0; k <= ALL_AXES; ++k)
                if (k < levels) level[cell + k] = before.of[k];
        });
    }

    // The deviance / 2 in the end, and how much it fell.
    struct Moved {
        double deviance, gained;
        bool rests;
    };
    // Levenberg-Marquardt of the spots that move, until a further step would change the likelihood by less than `rest`:
    // as much less than the last one as that changed it less than the one before; or until there is no hope that the
    // deviance / 2 falls to one that is wanted.
    SPOTFIT_NOT_INLINE Moved move(int cell, int most_steps, double rest, double wanted = INFINITE) {
        double now = is_evaluated && all_move() ? evaluated : evaluate(cell), gained = 0, last_gain = 0;
        double damping = has_psf() ? 0.1 : 0.01;
        share(moving, [&](int a) { spots[together[a]].is_held = false; });
        bool rests = has_psf() && now - wanted > FAR_OFF * square_of(f.least_score) / 2, is_current = true;
        bool is_normal_of_now = is_evaluated && has_normal, is_rejected = false;
        ROLLED
        for (int n = 0; n < most_steps && !rests; ++n) {
            Team::meet_at_step(n);
            set(iterations, iterations + 1);
            find_normal(cell);
            is_normal_of_now = !hold_bounded(cell, is_rejected);
            bool is_better = false;
            const Levels before = levels_of(cell);
            ROLLED
            for (int attempt = 0; attempt < 8 && !is_better; ++attempt) {
                if (!find_factor(damping)) {
                    damping *= 10;
                    continue;
                }
                share(normal.size, [&](int i) { step[i] = gradient[i]; });
                factor.solve(step);
                // What the step would gain, nearly.
                const double promised = Team::sum(part_of_dot(gradient, step, normal.size)) / 2;
                if (promised < rest) break;
                take_step(cell, before);
                const double then = evaluate(cell);
                is_better = is_current = then <= now * (1 + 3e-7) + 1e-6;
                if (is_better) {
                    const double gain = now - then;
                    rests = gain < rest || (n > 0 && gain * gain < rest * last_gain) ||
                            (n > 0 && gain < HOPELESS * (then - wanted));
                    gained += gain, now = then, last_gain = gain, is_normal_of_now = false;
                    if (gain > GOOD * promised) damping = larger(damping / 10, 1e-5);
                    else if (gain < POOR * promised) damping *= 5;
                } else {
                    take_back(cell, before);
                    is_rejected = true;
                    if (hold_bounded(cell, true)) is_normal_of_now = false;
                    damping *= 10;
                }
            }
            if (!is_better) rests = true;  // no step is better, or by much: it is the best there is
        }
        if (!is_current) shape_moving(), evaluate(cell);
        if (!is_evaluated) keep_mean();
        alone([&] {
            is_evaluated = all_move(), evaluated = now;
            has_normal = is_normal_of_now && all_move_in_order();
        });
        return {now, gained, rests};
    }
    // Whether the fits are no longer wanted.
    bool is_stopped() const { return f.stop && *static_cast<const volatile int*>(f.stop); }
    // Takes the cells near which spots have been stirred since a sweep.
    template <class Function> void over_cells(int since, Function each) {
        divide(since);
        ROLLED
        for (int cell = 0; cell < cells(); ++cell) {
            if (!is_stirred[cell] || is_stopped()) continue;
            int from = 0;
            do {
                choose(cell, from);
                each(cell);
                from += moving;
            } while (from < first_of_cell[cell + 1] - first_of_cell[cell]);
        }
    }
    // Moves the spots of one cell after the other, until none of them moves those of others.
    SPOTFIT_NOT_INLINE void move_all(int most_steps, double rest, int most_sweeps = SWEEPS) {
        sort();
        if (cells() > 1 || count > TOGETHER || has_psf()) find_mean();
        bool rests = false;
        const bool at_once = cells() == 1 && count <= TOGETHER;
        ROLLED
        for (int k = 0; k < most_sweeps && !rests; ++k) {
            rests = true;
            // Spots on both sides of a border of cells would take long to come to rest.
            alone([&] { ++sweep, is_shifted = k % 2; });
            over_cells(sweep - 1, [&](int cell) {
                find_base(cell);
                const Moved own = move(cell, most_steps, rest);
                const bool rest_here = at_once ? own.rests : own.gained < (has_psf() ? larger(rest, STILL) : STILL);
                const bool settled = at_once ? own.rests : own.gained < SLOW;
                share(moving, [&](int a) {
                    spots[together[a]].rests = settled;
                    if (!rest_here) spots[together[a]].stirred = sweep;
                });
                rests &= rest_here;
            });
            if (at_once) break;
        }
        set(is_shifted, false);
    }

  private:
    // The longest step, in pixels along x and as much of the width along other axes: about half a width, as the
    // likelihood is not that of its derivatives beyond.
    static constexpr double LONGEST = 0.7;
    // The same of z, in nm: a measured PSF is another one a few hundred further on.
    static constexpr double LONGEST_Z = 100;
    // The least light, as a share of that of a spot at the bar: what has less moves nowhere.
    static constexpr double DIMMEST = 0.05;

    double dimmest(int cell) const { return DIMMEST * least_light(level[cell]); }
    // Leaves background, light and z where they are if they are at a bound and pulled beyond it, so places where a step
    // was rejected, and places from where one has led away from all pixels: a step that counts on them to go there is
    // too long for all others, and a crowd that the image's edge cuts would not come to rest. Returns whether there are
    // any.
    SPOTFIT_NOT_INLINE bool hold_bounded(int cell, bool is_rejected) {
        const double dim = dimmest(cell);
        const int ground = parameters() * moving;
        bool any = false;
        const auto hold = [&](int i) {
            any = true;
            share(normal.size, [&](int j) {
                if (j == i) gradient[i] = 0;
                else normal.at(j < i ? j : i, j < i ? i : j) = 0;
            });
        };
        if (levels && gradient[ground] < 0 && level[cell] <= LOWEST) hold(ground);
        // Most spots may go wherever they are pulled.
        const auto may_be_bounded = [&](int a) {
            const Spot& s = spots[together[a]];
            return s.is_held || s.light <= dim || places() > axes() || is_rejected;
        };
        ROLLED
        for (int a = moving; (a = Team::last_of(0, a, may_be_bounded)) >= 0;) {
            const Spot& s = spots[together[a]];
            ROLLED
            for (int k = 0; k <= places(); ++k) {
                const double pulled = gradient[parameters() * a + k];
                bool is_held = s.is_held;
                if (k == places()) is_held = pulled < 0 && s.light <= dim;
                else if ((k >= axes() || is_rejected) && !is_held)
                    is_held = pulled < 0 ? s.at[k] <= least[k] : pulled > 0 && s.at[k] >= last[k];
                if (is_held) hold(parameters() * a + k);
            }
        }
        if (any) set(factored, double(NONE));
        return any;
    }
    static double clip(double x, double low, double high) { return x < low ? low : x > high ? high : x; }
    SPOTFIT_NOT_INLINE void take_step(int cell, const Levels& before) {
        const double dim = dimmest(cell);
        share(moving, [&](int a) {
            Spot& s = spots[together[a]];
            const double* const own = step + parameters() * a;
            s.kept_light = s.light;
            ROLLED
            for (int axis = X; axis < places(); ++axis) {
                const double longest = axis < axes() ? LONGEST / scale[axis] : LONGEST_Z;
                s.kept_at[axis] = s.at[axis];
                s.at[axis] = clip(s.at[axis] + clip(own[axis], -longest, longest), least[axis], last[axis]);
            }
            s.is_held |= !has_pixels(s);
            if (s.is_held) put_back(s);
            s.light = larger(s.kept_light + own[places()], dim);
        });
        shape_moving();
        alone([&] {
            ROLLED
            for (int k = 0; k <= ALL_AXES; ++k)
                if (k < levels) level[cell + k] = before.of[k] + step[parameters() * moving + k];
            if (levels) level[cell] = larger(level[cell], LOWEST);
        });
    }
    // Their light is as it was before another step is taken, or when it is made again.
    SPOTFIT_NOT_INLINE void take_back(int cell, const Levels& before) {
        share(moving, [&](int a) { put_back(spots[together[a]]); });
        restore(cell, before);
    }
    void put_back(Spot& s) const {
        ROLLED
        for (int axis = X; axis < places(); ++axis) s.at[axis] = s.kept_at[axis];
        s.light = s.kept_light;
    }
    // Whether a spot is at, or beside, a pixel that counts.
    SPOTFIT_NOT_INLINE bool has_pixels(const Spot& s) const {
        const int u = static_cast<int>(whole(s.at[X])), v = static_cast<int>(whole(s.at[Y])),
                  w = has_psf() ? 0 : static_cast<int>(whole(s.at[Z]));
        if (v < rows && w < depth && at(counts, w, v)[u] > 0) return true;
        ROLLED
        for (int z = w > 0 ? w - 1 : 0; z <= w + 1 && z < depth; ++z)
            for (int y = v > 0 ? v - 1 : 0; y <= v + 1 && y < rows; ++y)
                for (int x = u - 1; x <= u + 1; ++x)
                    if (at(counts, z, y)[x] > 0) return true;
        return false;
    }
};

}  // namespace spotfit::SPOTFIT_ISA
