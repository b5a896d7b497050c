// Whether a crowd is of fewer spots, all a little wider or narrower than the PSF is said to be.
#pragma once
#include "crowd_count.h"

namespace spotfit::SPOTFIT_ISA {

class CrowdWidth : protected CrowdCount {
  protected:
    CrowdWidth(const JointFits& fits, long long which, void* work) : CrowdCount(fits, which, work) {
        kept = memory.take<Spot>(most);
    }

    SPOTFIT_NOT_INLINE void count_spots() {
        bool is_new = true;
        ROLLED
        for (int k = 0; k < ROUNDS && is_new && !is_stopped(); ++k) {
            is_new = count_again(k);
            if (k || !change_width()) continue;
            move_all(ROUGH_STEPS, ROUGH);
            k = -1, is_new = true;
        }
    }
    // Spots whose width is not what it should be look like several: takes those that were detected, with another width,
    // and those that are hidden then, where they are about as likely as more of them.
    SPOTFIT_NOT_INLINE void compare_widths() {
        const int detected = number_detected(), all = count;
        if (cells() > 1 || all > TOGETHER || all - detected < detected) return;
        const double before = stretch[X], before_z = stretch[Z], many = deviance_of_all() + surprise();
        const Levels ground = levels_of(0);
        share(all, [&](int i) { kept[i] = spots[i]; });
        begin_again(false);
        // What each further spot must add.
        const auto is_likely = [&](double nearly) {
            const int fewer = all - count, each = fewer < detected ? fewer : detected;
            return deviance_of_all() + surprise() - many <= EACH * each + EACH_MORE * (fewer - each) + nearly;
        };
        if (!find_stretch() || is_likely(NEARLY)) {
            move_all(f.max_iterations, FINE);
            if (is_likely(0)) {
                find_errors(true);
                return;
            }
        }
        // What is much wider is something extended rather than more spots, unless it takes three or four hidden ones
        // for each detection: then it may be a few a little wider. Foci have more.
        bool is_new = axes() == Z && square_of(stretch[X] - 1) < square_of(MUCH_WIDER);
        const int hidden = all - detected;
        const bool is_tried_again =
            axes() == Z && !is_new && stretch[X] > 1 && hidden >= MANY * detected && hidden <= MOST * detected;
        if (is_tried_again) {
            is_new = true;
            begin_again(false);
            alone([&] { stretch[X] = stretch[Y] = A_LITTLE; });
            shape_each(spots, nullptr, count);
            move_all(ROUGH_STEPS, ROUGH);
        }
        ROLLED
        for (int k = 0; k < ROUNDS && is_new && !is_stopped(); ++k) is_new = count_again(k);
        if (count > detected && (count < all || !is_tried_again)) {
            if (is_tried_again) find_stretch();
            settle();
            if (is_likely(0)) return;
        }
        alone([&] {
            count = all, is_evaluated = false;
            stretch[X] = stretch[Y] = before, stretch[Z] = before_z;
        });
        share(all, [&](int i) {
            const Footprint lines = spots[i].shape;
            spots[i] = kept[i], spots[i].shape = lines;
        });
        restore(0, ground);
        shape_each(spots, nullptr, count);
    }

  private:
    // In nats: what each further spot must add, two of its numbers being for noise; and the most that it says against
    // a width that it is not the PSF's, half of it where it is off by a fraction times the root of 2.
    static constexpr double EACH = 4, EACH_MORE = 8, SURPRISE = 3, OFF = 0.025;
    // And what spots that rest nearly may gain, more than which is out of the question.
    static constexpr double NEARLY = 1;
    // By how much widths change in a step, when they change no more, and how far they may be off.
    static constexpr double LONGEST_STEP = 0.15, STILL_STEP = 0.005, NARROWEST = 0.7, WIDEST = 1.45;
    static constexpr int STEPS = 6;

    // A crowd is begun again, so often at most, with the width that most of it would rather have, where that is off by
    // a fraction, at first and then, and by some errors; each of its parts has another error besides. Most of them must
    // agree: in one there may be a blob, for which widths are much larger.
    static constexpr int CHANGES = 4;
    static constexpr double UNLIKE_PSF = 0.015, LIKE = 0.0075, SURE_OF_WIDTH = 5.5, DIFFER = 0.005;
    static constexpr double MOST_PARTS = 0.5;
    static constexpr double MUCH_WIDER = 0.2, EXTENDED = 0.3;
    // By how many hidden spots for each detection those that are few are looked for with another width, and which.
    static constexpr int MANY = 3, MOST = 4;
    static constexpr double A_LITTLE = 1.1;

    Spot* kept;
    int changes = 0;

    // What is counted with too narrow spots would rather be wider, however many there are then.
    SPOTFIT_NOT_INLINE bool change_width() {
        if (!f.finds_widths || has_psf() || axes() > Z || changes == CHANGES) return false;
        const double unlike = changes ? LIKE : UNLIKE_PSF;
        double pulled = 0, weights = 0, all = 0, wide = 0, narrow = 0;
        over_cells(0, [&](int cell) {
            if (!(is_evaluated && all_move())) find_base(cell), evaluate(cell);
            const Added widening = find_widening(X, axes());
            if (cells() == 1 && !may_be_wider(widening, SURE_OF_WIDTH)) return;
            find_normal(cell);
            if (!find_factor(1e-9)) return;
            const Width own = find_width(cell, widening);
            const double weight = 1 / (square_of(own.error) + square_of(DIFFER));
            const bool is_extended = square_of(stretch[X] * (1 + own.wider) - 1) > square_of(EXTENDED);
            all += weight;
            if (is_extended) return;
            pulled += weight * smaller(larger(own.wider, -LONGEST_STEP), LONGEST_STEP), weights += weight;
            wide += own.wider > unlike ? weight : 0, narrow += own.wider < -unlike ? weight : 0;
        });
        const double wider = pulled / weights;
        if (!(square_of(wider) > larger(square_of(unlike), square_of(SURE_OF_WIDTH) / weights))) return false;
        if ((wider > 0 ? wide : narrow) < MOST_PARTS * all) return false;
        const double now = smaller(larger(stretch[X] * (1 + wider), NARROWEST), WIDEST);
        begin_again(true);
        alone([&] { stretch[X] = stretch[Y] = now, ++changes; });
        shape_each(spots, nullptr, count);
        return true;
    }
    double deviance_of_all() {
        divide(0);
        choose(0, 0);
        find_base(0);
        return evaluate(0);
    }
    double surprise() const {
        double sum = 0;
        for (int axis = X; axis < axes(); axis += 2) {
            const double off = square_of((stretch[axis] - 1) / OFF);
            sum += SURPRISE * off / (2 + off);
        }
        return sum;
    }
    // As it was detected or, too, with the spots that were hidden in an earlier fit.
    SPOTFIT_NOT_INLINE void begin_again(bool with_hidden) {
        const double dimmest = least_light(level[0]);
        alone([&] {
            count = 0, is_evaluated = false;
            ROLLED
            for (long long k = begin; k < end; ++k) {
                const long long i = f.members[k];
                if (was_hidden(i) && !with_hidden) continue;
                Spot& s = spots[count++];
                const Footprint lines = s.shape;
                s = {};
                s.shape = lines;
                ROLLED
                for (int axis = X; axis < axes(); ++axis) s.at[axis] = place_of(i)[axis] - double(corner[axis]);
                s.light = larger(f.light[i], dimmest), s.candidate = was_hidden(i) ? -1 : i, s.stirred = sweep + 1;
            }
        });
        shape_each(spots, nullptr, count);
    }
    // Moves spots, and changes the width of all alike, until the likelihood is nearly highest; whether they rest then.
    SPOTFIT_NOT_INLINE bool find_stretch() {
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
                const double wider = find_width(0, find_widening(axis, axis + 2)).wider;
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
        return rests;
    }
};

}  // namespace spotfit::SPOTFIT_ISA
