// A joint fit of a crowd: spots are moved until their likelihood is highest, and counted in between.
#pragma once
#include "crowd_count.h"

namespace spotfit::SPOTFIT_ISA {

class Crowd : CrowdCount {
    // Where points explain the light of a crowd: how far the shape of spots may be off, as a share of their light, as
    // that of a PSF is from a Gaussian, and the deviance from what noise leaves, in its standard deviations.
    static constexpr double SHAPE = 0.05, DEVIATIONS = 5;

    const long long number;

  public:
    using CrowdCount::most_spots;

    Crowd(const JointFits& fits, long long which, void* work) : CrowdCount(fits, which, work), number(which) {}
    static void* operator new(decltype(sizeof 0), void* at) { return at; }
    const unsigned char* end_of_memory() const { return memory.at; }

    // Returns how many spots there are, which `put` gives.
    int fit() {
        find_pixels();
        begin_level();
        const double dimmest = least_light(level[0]);
        ROLLED
        for (long long k = begin; k < end; ++k) {
            const long long i = f.members[k];
            double place[ALL_AXES];
            ROLLED
            for (int axis = X; axis < ALL_AXES; ++axis) place[axis] = place_of(i)[axis] - double(corner[axis]);
            if (has_psf()) place[Z] = f.heights[i];
            add(place, larger(f.light[i], dimmest), i);
        }
        move_all(ROUGH_STEPS, ROUGH);
        if (has_psf() && find_heights()) move_all(ROUGH_STEPS, ROUGH);
        if (f.counts_spots) count_spots();
        settle();
        return count;
    }
    SPOTFIT_NOT_INLINE void put(JointSpot* found) {
        long long pixels;
        const Left left_here = left_over(&pixels);
        share(count, [&](int i) {
            const Spot& s = spots[i];
            const double z_error = places() > Z ? s.errors[Z] : 0;
            found[i] = {s.at[Z] + double(corner[Z]),
                        s.at[Y] + double(corner[Y]),
                        s.at[X] + double(corner[X]),
                        s.light,
                        level_at(s.at),
                        z_error,
                        s.errors[Y],
                        s.errors[X],
                        s.errors[places()],
                        level_errors[cell_of(s)],
                        s.wider,
                        s.wider_error,
                        s.ridge,
                        s.blunt_ridge,
                        s.evidence,
                        left_here.deviance,
                        left_here.tolerated,
                        left_here.squares,
                        pixels,
                        count,
                        number,
                        s.candidate,
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
        over_lines([&](int z, int y) {
            Pixels here = 0.0f, off = 0.0f, squares = 0.0f, tolerated = 0.0f;
            ROLLED
            for (int x = 0; x < columns; x += SIDE_BY_SIDE) {
                const Pixels own = load_pixels(at(data, z, y) + x), expected = load_pixels(at(mean, z, y) + x);
                const Pixels is_there = load_pixels(at(counts, z, y) + x), inverse = 1.0f / expected;
                here += is_there, off += is_there * deviance(own, expected, inverse);
                squares += is_there * square(own - expected);
                tolerated += is_there * square(float(SHAPE) * load_pixels(at(base, z, y) + x)) * inverse;
            }
            number.add(here), deviances.add(off), all_squares.add(squares), all_tolerated.add(tolerated);
        });
        *pixels = static_cast<long long>(number.value());
        const int levels_of_all = cells() == 1 ? levels_of_cell() : cells();
        const double degrees = larger(double(*pixels - parameters() * count - levels_of_all), 1);
        const double of_noise = degrees + DEVIATIONS * square_root(2 * degrees);
        return {deviances.value(), all_tolerated.value() + of_noise, all_squares.value()};
    }
};

}  // namespace spotfit::SPOTFIT_ISA
