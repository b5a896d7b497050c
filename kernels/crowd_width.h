// Whether spots of a crowd are wider or narrower than the PSF is said to be, all alike: then they look like others.
#pragma once
#include "crowd_count.h"

namespace spotfit::SPOTFIT_ISA {

class CrowdWidth : protected CrowdCount {
  protected:
    CrowdWidth(const JointFits& fits, long long which, void* work) : CrowdCount(fits, which, work) {
        kept = memory.take<Spot>(most);
        kept_levels = memory.take<double>(cells() + ALL_AXES), kept_errors = memory.take<double>(cells());
    }

    // Counts spots again with the width that all of them would rather have, where that is surely another one.
    SPOTFIT_NOT_INLINE void fit_width() {
        const int detected = static_cast<int>(end - begin);
        const bool are_wider = wider_all.wider > 0;
        // Two spots that are found as one are wider, too, but then few others are hidden.
        const double surely = are_wider && count - detected < detected ? SURELY_WIDER : SURELY;
        if (detected < FEWEST_ALIKE || !is_another_width(OFF, surely)) return;
        const double before = loss();
        keep();
        bool counts_again = true;
        ROLLED
        for (int n = 0; n < TRIES && !is_stopped(); ++n) {
            // Where some spots are there because they are too narrow, it is more than they tell.
            const double hidden = n == 0 && are_wider ? HIDDEN_BY * (count - detected) / count : 0;
            set_width(stretch[X] * (1 + clip((1 + hidden) * wider_all.wider, -LONGEST_STEP, LONGEST_STEP)));
            if (counts_again) {
                begin_again(detected);
                move_all(ROUGH_STEPS, ROUGH);
                count_spots();
            }
            settle();
            counts_again = is_another_width(OFF, SURELY);
            if (!counts_again && !is_another_width(STILL_STEP, 1)) break;
        }
        const double least = are_wider && count >= kept_count ? EACH_WIDER * detected : 0;
        if (loss() - before <= bar(kept_count, count, detected) - least) return;
        alone([&] { stretch[X] = stretch[Y] = 1; });
        take_kept();
    }
    // Spots whose width is not what it should be look like several: takes those that were detected, with another width,
    // where they are about as likely as more of them.
    SPOTFIT_NOT_INLINE void compare_widths() {
        const int detected = static_cast<int>(end - begin);
        if (cells() > 1 || count > TOGETHER || count - detected < detected) return;
        const double before = loss();
        double widths[ALL_AXES];
        ROLLED
        for (int axis = X; axis < ALL_AXES; ++axis) widths[axis] = stretch[axis];
        keep();
        begin_again(detected);
        find_stretch();
        if (loss() - before <= bar(kept_count, detected, detected)) {
            find_errors(true);
            return;
        }
        alone([&] {
            ROLLED
            for (int axis = X; axis < ALL_AXES; ++axis) stretch[axis] = widths[axis];
        });
        take_kept();
    }

  private:
    // In nats: what each further spot must add, two of its numbers being for noise; and the most that it says against
    // a width that it is not the PSF's, half of it where it is off by a fraction times the root of 2.
    static constexpr double EACH = 4, EACH_MORE = 8, SURPRISE = 3, OFF = 0.025;
    // By how much widths change in a step, when they change no more, and how far they may be off.
    static constexpr double LONGEST_STEP = 0.15, STILL_STEP = 0.005, NARROWEST = 0.7, WIDEST = 1.45;
    static constexpr int STEPS = 6;
    // How many of its errors a width must be off before spots are counted with another one, how often they are, and of
    // how many detected spots at least.
    static constexpr double SURELY = 3, SURELY_WIDER = 5;
    static constexpr int TRIES = 4, FEWEST_ALIKE = 2;
    // What each spot must gain by a greater width, in nats, if it does not make them fewer.
    static constexpr double EACH_WIDER = 10;
    // How much farther off the width is, as a fraction, if all spots are there because it is too narrow.
    static constexpr double HIDDEN_BY = 0.8;

    Spot* kept;
    int kept_count = 0;
    double *kept_levels, *kept_errors;  // of the background

    // Of all pixels, in nats, and of a width that is not the PSF's.
    SPOTFIT_NOT_INLINE double loss() {
        find_mean();
        Total sum;
        over_part([&](int k) SPOTFIT_INLINE_LAMBDA {
            const Pixels expected = load_pixels(mean + k);
            sum.add(load_pixels(counts + k) * deviance(load_pixels(data + k), expected, 1.0f / expected));
        });
        double loss = sum.value() / 2;
        for (int axis = X; axis < axes(); axis += 2) {
            const double off = square_of((stretch[axis] - 1) / OFF);
            loss += SURPRISE * off / (2 + off);
        }
        return loss;
    }
    // How much less likely another number of spots may be.
    double bar(int before, int now, int detected) const {
        const int fewer = before - now, some = fewer < detected ? fewer : detected;
        if (fewer < 0) return square_of(f.least_score) / 2 * fewer;
        return EACH * some + EACH_MORE * (fewer - some);
    }
    bool is_another_width(double least, double errors) const {
        return square_of(wider_all.wider) > square_of(larger(least, errors * wider_all.error));
    }
    // Of all spots, in planes.
    SPOTFIT_NOT_INLINE void set_width(double width) {
        const double now = clip(width, NARROWEST, WIDEST);
        alone([&] { stretch[X] = stretch[Y] = now, is_evaluated = false; });
        shape_each(spots, nullptr, count);
    }
    SPOTFIT_NOT_INLINE void keep() {
        share(count, [&](int i) { kept[i] = spots[i]; });
        share(cells() + ALL_AXES, [&](int k) { kept_levels[k] = level[k]; });
        share(cells(), [&](int k) { kept_errors[k] = level_errors[k]; });
        set(kept_count, count);
    }
    SPOTFIT_NOT_INLINE void take_kept() {
        share(kept_count, [&](int i) {
            const Footprint lines = spots[i].shape;
            spots[i] = kept[i], spots[i].shape = lines;
        });
        share(cells() + ALL_AXES, [&](int k) { level[k] = kept_levels[k]; });
        share(cells(), [&](int k) { level_errors[k] = kept_errors[k]; });
        alone([&] { count = kept_count, is_evaluated = false; });
        shape_each(spots, nullptr, count);
    }
    SPOTFIT_NOT_INLINE void begin_again(int detected) {
        const double dimmest = least_light(level[0]);
        alone([&] {
            count = detected, is_evaluated = false;
            ROLLED
            for (int k = 0; k < detected; ++k) {
                Spot& s = spots[k];
                const long long i = f.members[begin + k];
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
                const double wanted = stretch[axis] * (1 + clip(wider, -LONGEST_STEP, LONGEST_STEP));
                const double now = clip(wanted, NARROWEST, WIDEST);
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
