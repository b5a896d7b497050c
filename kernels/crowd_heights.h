// At which z the spots of a crowd with a measured PSF are. A search that begins far from a spot's z may end in a wrong
// minimum, and fits of single spots in crowds often do; so each spot is tried at the heights that suit the pixels best.
#pragma once
#include "crowd_moves.h"

namespace spotfit::SPOTFIT_ISA {

class CrowdHeights : protected CrowdMoves {
  protected:
    // Steps of those that move where one is tried at another height, or to be dropped: a bound of time.
    static constexpr int STEPS_WITHOUT = 20;
    // Heights at which a spot is tried, at most.
    static constexpr int TRIES = 3;

    struct Height { double z, light, gain; };
    // The spots that move where one is tried, and where they were.
    struct Place { double at[ALL_AXES], light; };
    int* near;
    Place* places_before;

    CrowdHeights(const JointFits& fits, long long which, void* work) : CrowdMoves(fits, which, work) {
        near = memory.take<int>(TOGETHER), places_before = memory.take<Place>(TOGETHER);
    }

    static Place place_now(const Spot& s) { return {{s.at[X], s.at[Y], s.at[Z]}, s.light}; }
    static void put(Spot& s, const Place& place) {
        ROLLED
        for (int axis = X; axis < ALL_AXES; ++axis) s.at[axis] = place.at[axis];
        s.light = place.light;
    }
    void keep_places() const {
        share(moving, [&](int k) { places_before[k] = place_now(spots[together[k]]); });
    }
    void put_places() const {
        share(moving, [&](int k) { put(spots[together[k]], places_before[k]); });
    }

    // Of the heights at which searches begin, each `step`-th one.
    template <class Function> void over_heights(int step, Function each) const {
        ROLLED
        for (int k = 0, number = 0; k < f.psf.template_count; ++k) {
            const double z = f.psf.template_z[3 * k];
            if (k && z == double(f.psf.template_z[3 * k - 3])) continue;
            if (number++ % step == 0) each(z);
        }
    }
    // At which z a spot at a place explains most of the residual, with its own light, if it has some, added to that:
    // each better than those around it, the best first. Returns how many there are.
    SPOTFIT_NOT_INLINE int best_heights(const double* place, const Spot* own, Height* found) const {
        const Footprint p = spare_shape(place);
        const Range lines = in_part(p, Y);
        const float* const own_light =
            own ? own->shape.value[X] + (f.reach[Y] - core(Y)) * p.pitch + f.reach[X] - core(X) : nullptr;
        double x_y_z[] = {place[X], place[Y], 0};
        Height last = {}, peaks[TRIES] = {};
        double before = 0;
        const auto take = [&](const Height& next) {
            if (last.gain > 0 && last.gain >= before && last.gain > next.gain) {
                Height peak = last;
                ROLLED
                for (int k = 0; k < TRIES; ++k)
                    if (peak.gain > peaks[k].gain) {
                        const Height less = peaks[k];
                        peaks[k] = peak, peak = less;
                    }
            }
            before = last.gain, last = next;
        };
        over_heights(1, [&](double z) {
            x_y_z[Z] = z;
            fill_psf<false>(p, x_y_z);
            Total pulled, squared;
            ROLLED
            for (int y = lines.begin + Team::line(); y < lines.end; y += Team::LINES) ROLLED
            for (int x = 0; x < p.size[X]; x += SIDE_BY_SIDE) {
                const int k = (y - p.first[Y]) * p.pitch + x;
                const Pixels light = load_pixels(p.value[X] + k), w = load_pixels(at(weight, 0, y) + p.first[X] + x);
                Pixels r = load_pixels(at(pull, 0, y) + p.first[X] + x);
                if (own) r = multiply_add(w * float(own->light), load_pixels(own_light + k), r);
                pulled.add(light * r), squared.add(light * light * w);
            }
            const double sum = pulled.value(), square = squared.value();
            const bool is_light = sum > 0 && square > 0;
            take({z, is_light ? sum / square : 0, is_light ? sum * sum / square / 2 : 0});
        });
        take({});
        int count = 0;
        ROLLED
        for (const Height& peak : peaks)
            if (peak.gain > LEAST_GAIN * peaks[0].gain) found[count++] = peak;
        return count;
    }
    // Moves one spot, the others and the background as they are.
    SPOTFIT_NOT_INLINE void move_alone(int i) {
        alone([&] { near[0] = i, together = near, moving = 1, levels = 0; });
        choose_part(NOWHERE);
        find_base(cell_of(spots[i]));
        move(cell_of(spots[i]), STEPS_WITHOUT, ROUGH);
    }
    // Moves each spot near those stirred since a sweep to another height where that makes the pixels likelier, the
    // others as they are; returns whether there was any.
    SPOTFIT_NOT_INLINE bool find_heights(int since) {
        bool any = false;
        ROLLED
        for (int i = 0; i < count && !is_stopped(); ++i)
            if (is_near_stirred(i, since, FAR)) any |= find_height(i);
        return any;
    }

  private:
    // By which share of the best one's gain another height is worth a try, and by how many nats it must be likelier.
    static constexpr double LEAST_GAIN = 0.3, WORTH = 0.1;

    SPOTFIT_NOT_INLINE bool find_height(int i) {
        Spot& own = spots[i];
        const int cell = cell_of(own);
        alone([&] { near[0] = i, together = near, moving = 1, levels = 0; });
        choose_part(NOWHERE);
        find_base(cell);
        double least = evaluate(cell) - WORTH;
        Height tried[TRIES];
        const int some = best_heights(own.at, &own, tried);
        const Place before = place_now(own);
        const double apart = (highest_z() - lowest_z()) / f.psf.template_count;
        Place best = before;
        bool is_moved = false, is_better = false;
        ROLLED
        for (int k = 0; k < some; ++k) {
            const double far = tried[k].z - before.at[Z];
            if (far < apart && -far < apart) continue;
            alone([&] { put(own, {{before.at[X], before.at[Y], tried[k].z}, tried[k].light}); });
            shape(own);
            evaluate(cell);
            const double then = move(cell, STEPS_WITHOUT, ROUGH / 10).deviance;
            is_moved = true;
            if (then < least) least = then, best = place_now(own), is_better = true;
        }
        if (!is_moved) return false;
        alone([&] {
            put(own, best);
            if (is_better) own.stirred = sweep + 1;
        });
        shape(own);
        evaluate(cell);
        keep_mean();
        return is_better;
    }
};

}  // namespace spotfit::SPOTFIT_ISA
