// Whether a crowd is of as many spots as were detected, all a little wider than the PSF is said to be.
#pragma once
#include "crowd_count.h"

namespace spotfit::SPOTFIT_ISA {

class CrowdWidth : protected CrowdCount {
  protected:
    CrowdWidth(const JointFits& fits, long long which, void* work) : CrowdCount(fits, which, work) {
        kept = memory.take<Spot>(end - begin);
    }

    // Spots whose width is not what it should be look like several: takes those that were detected, with another width,
    // where they are about as likely as more of them.
    SPOTFIT_NOT_INLINE void compare_widths() {
        const int detected = number_detected(), all = count;
        if (cells() > 1 || all > TOGETHER || all - detected < detected) return;
        divide(0);
        choose(0, 0);
        find_base(0);
        const double many = evaluate(0);
        const Levels ground = levels_of(0);
        share(detected, [&](int i) { kept[i] = spots[i]; });
        begin_again();
        find_stretch();
        const double few = evaluated;
        const double lost = few + surprise() - many;
        if (lost <= EACH * detected + EACH_MORE * (all - 2 * detected)) {
            find_errors(true);
            return;
        }
        share(detected, [&](int i) { spots[i] = kept[i]; });
        alone([&] {
            count = all, is_evaluated = false;
            stretch[X] = stretch[Y] = stretch[Z] = 1;
        });
        restore(0, ground);
        shape_each(spots, nullptr, count);
    }

  private:
    // In nats: what each further spot must add, two of its numbers being for noise; and the most that it says against
    // a width that it is not the PSF's, half of it where it is off by a fraction times the root of 2.
    static constexpr double EACH = 4, EACH_MORE = 8, SURPRISE = 3, OFF = 0.025;
    // By how much widths change in a step, when they change no more, and how far they may be off.
    static constexpr double LONGEST_STEP = 0.15, STILL_STEP = 0.005, NARROWEST = 0.7, WIDEST = 1.45;
    static constexpr int STEPS = 6;

    Spot* kept;

    double surprise() const {
        double sum = 0;
        for (int axis = X; axis < axes(); axis += 2) {
            const double off = square_of((stretch[axis] - 1) / OFF);
            sum += SURPRISE * off / (2 + off);
        }
        return sum;
    }
    SPOTFIT_NOT_INLINE void begin_again() {
        const double dimmest = least_light(level[0]);
        alone([&] {
            count = 0, is_evaluated = false;
            ROLLED
            for (long long k = begin; k < end; ++k) {
                const long long i = f.members[k];
                if (was_hidden(i)) continue;
                Spot& s = spots[count++];
                const Footprint lines = s.shape;
                s = {};
                s.shape = lines;
                ROLLED
                for (int axis = X; axis < axes(); ++axis) s.at[axis] = place_of(i)[axis] - double(corner[axis]);
                s.light = larger(f.light[i], dimmest), s.candidate = i, s.stirred = sweep + 1;
            }
        });
        shape_each(spots, nullptr, count);
    }
    // Moves spots, and changes the width of all alike, until the likelihood is highest.
    SPOTFIT_NOT_INLINE void find_stretch() {
        bool rests = false;
        ROLLED
        for (int n = 0; n < STEPS && !rests; ++n) {
            move_all(ROUGH_STEPS, STILL);
            rests = true;
            ROLLED
            for (int axis = X; axis < axes(); axis += 2) {
                divide(0);
                choose(0, 0);
                find_base(0);
                evaluate(0);
                find_normal(0);
                if (!find_factor(1e-9)) break;
                const double wider = find_width(0, axis, axis + 2).wider;
                const double wanted = stretch[axis] * (1 + smaller(larger(wider, -LONGEST_STEP), LONGEST_STEP));
                const double now = smaller(larger(wanted, NARROWEST), WIDEST);
                rests &= square_of(now / stretch[axis] - 1) < square_of(STILL_STEP);
                alone([&] {
                    is_evaluated = false;
                    stretch[axis] = now;
                    if (axis == X) stretch[Y] = now;
                });
                shape_each(spots, nullptr, count);
                share(count, [&](int i) { spots[i].stirred = sweep + 1; });
            }
        }
        move_all(f.max_iterations, FINE);
    }
};

}  // namespace spotfit::SPOTFIT_ISA
