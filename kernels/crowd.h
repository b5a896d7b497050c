// A joint fit of a crowd: spots are moved until their likelihood is highest, and counted in between.
#pragma once
#include "crowd_width.h"

namespace spotfit::SPOTFIT_ISA {

class Crowd : CrowdWidth {
    // Where points explain the light of a crowd: how far the shape of spots may be off, as a share of their light, as
    // that of a PSF is from a Gaussian, and the deviance from what noise leaves, in its standard deviations.
    static constexpr double SHAPE = 0.05, DEVIATIONS = 5;
    // The latter of the pixels that are nearest to a spot.
    static constexpr double OWN_DEVIATIONS = 3;

    const long long number;

  public:
    using CrowdWidth::most_spots;

    Crowd(const JointFits& fits, long long which, void* work) : CrowdWidth(fits, which, work), number(which) {}
    static void* operator new(decltype(sizeof 0), void* at) { return at; }
    const unsigned char* end_of_memory() const { return memory.at; }

    // Returns how many spots there are, which `put` gives.
    int fit() {
        find_pixels();
        Team::meet(0, 1);
        begin_level();
        const double dimmest = least_light(level[0]);
        ROLLED
        for (long long k = begin; k < end; ++k) {
            const long long i = f.members[k];
            double place[ALL_AXES];
            ROLLED
            for (int axis = X; axis < ALL_AXES; ++axis) place[axis] = place_of(i)[axis] - double(corner[axis]);
            if (has_psf()) place[Z] = f.heights[i];
            add(place, larger(f.light[i], dimmest), was_hidden(i) ? -1 : i);
        }
        Team::meet(0, 2);
        move_all(ROUGH_STEPS, ROUGH);
        if (has_psf() && find_heights(0)) move_all(ROUGH_STEPS, ROUGH);
        if (f.counts_spots) count_spots();
        settle();
        if (f.counts_spots && f.finds_widths && !has_psf()) compare_widths();
        return count;
    }
    SPOTFIT_NOT_INLINE void put(JointSpot* found) {
        long long pixels;
        const Left left_here = left_over(&pixels);
        if (left_here.deviance > left_here.tolerated) find_own();
        share(count, [&](int i) {
            const Spot& s = spots[i];
            const double z_error = places() > Z ? s.errors[Z] : 0;
            found[i] = {s.at[Z] + double(corner[Z]),
                        s.at[Y] + double(corner[Y]),
                        s.at[X] + double(corner[X]),
                        s.light,
                        level_at(s.at) - lift,
                        z_error,
                        s.errors[Y],
                        s.errors[X],
                        s.errors[places()],
                        level_errors[cell_of(s)],
                        stretch[X],
                        stretch[Z],
                        stretch[X] * (1 + s.wider) - 1,
                        stretch[X] * s.wider_error,
                        s.ridge,
                        s.blunt_ridge,
                        s.blurred,
                        s.blurred_error,
                        s.evidence,
                        left_here.deviance,
                        left_here.tolerated,
                        s.deviance,
                        s.tolerated,
                        left_here.squares,
                        pixels,
                        count,
                        number,
                        s.candidate,
                        f.grows && stretch[X] == 1 && s.candidate < 0 && is_apart(s.at),
                        iterations,
                        s.rests};
        });
    }

  private:
    // What noise explains of the deviance, and a slightly different shape of the spots.
    struct Left { double deviance, tolerated, squares; };
    SPOTFIT_NOT_INLINE Left left_over(long long* pixels) {
        find_mean();
        copy_part(nullptr, base);
        add_lights(nullptr, count, 1, base);
        Total number, deviances, all_squares, all_tolerated;
        over_lines([&](int z, int y) SPOTFIT_INLINE_LAMBDA {
            Pixels here = 0.0f, off = 0.0f, squares = 0.0f, tolerated = 0.0f;
            ROLLED
            for (int x = 0; x < columns; x += SIDE_BY_SIDE) {
                const Pixels own = load_pixels(at(data, z, y) + x), expected = load_pixels(at(mean, z, y) + x);
                const Pixels is_there = load_pixels(at(counts, z, y) + x), inverse = 1.0f / expected;
                here += is_there;
                const Pixels unlike = is_there * deviance(own, expected, inverse);
                const Pixels shape = is_there * square(float(SHAPE) * load_pixels(at(base, z, y) + x)) * inverse;
                off += unlike, tolerated += shape, squares += is_there * square(own - expected);
                store_pixels(at(weight, z, y) + x, unlike), store_pixels(at(pull, z, y) + x, shape);
            }
            number.add(here), deviances.add(off), all_squares.add(squares), all_tolerated.add(tolerated);
        });
        *pixels = static_cast<long long>(number.value());
        const int levels_of_all = cells() == 1 ? levels_of_cell() : cells();
        const double of_noise = by_noise(double(*pixels - parameters() * count - levels_of_all), DEVIATIONS);
        return {deviances.value(), all_tolerated.value() + of_noise, all_squares.value()};
    }
    // The deviance that noise may leave.
    static double by_noise(double degrees, double deviations) {
        const double some = larger(degrees, 1);
        return some + deviations * square_root(2 * some);
    }

    // What is left of the pixels that are nearest to each spot, after left_over.
    SPOTFIT_NOT_INLINE void find_own() {
        share(area(), [&](long long k) { trial[k] = INFINITE, other[k] = -1; });
        const auto over_own = [&](int i, auto each) {
            double place[ALL_AXES];
            ROLLED
            for (int axis = X; axis < ALL_AXES; ++axis)
                place[axis] = double(corner[axis]) + (axis < axes() ? spots[i].at[axis] : 0);
            over_near(place, each);
        };
        ROLLED
        for (int i = 0; i < count; ++i)
            over_own(i, [&](long long k, float far) {
                if (far < trial[k]) trial[k] = far, other[k] = float(i);
            });
        ROLLED
        for (int i = 0; i < count; ++i) {
            double unlike = 0, shape = 0, pixels = 0;
            over_own(i, [&](long long k, float) {
                if (other[k] == float(i)) unlike += weight[k], shape += pull[k], pixels += counts[k];
            });
            unlike = Team::sum(unlike), shape = Team::sum(shape);
            const double by_chance = by_noise(Team::sum(pixels) - parameters(), OWN_DEVIATIONS);
            alone([&] { spots[i].deviance = unlike, spots[i].tolerated = shape + by_chance; });
        }
    }
};

}  // namespace spotfit::SPOTFIT_ISA
