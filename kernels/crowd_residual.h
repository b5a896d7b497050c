// What the residual of a crowd shows: where spots are hidden, how rough it is, and which spots may be two.
#pragma once
#include "crowd_heights.h"

namespace spotfit::SPOTFIT_ISA {

class CrowdResidual : protected CrowdHeights {
  protected:
    using CrowdHeights::CrowdHeights;

    // How many times more than noise alone the residual's scores scatter, at least 1: what is hidden in a rough
    // background must stand out of that.
    double roughness = 1;

    SPOTFIT_NOT_INLINE void find_residual() {
        find_mean();
        if (is_evaluated) return;
        over_area([&](long long k) SPOTFIT_INLINE_LAMBDA {
            const Pixels expected = load_pixels(mean + k), w = load_pixels(counts + k) / expected;
            store_pixels(weight + k, w), store_pixels(pull + k, w * (load_pixels(data + k) - expected));
        });
    }
    // How far a spot at each pixel would stand out of the noise, into `base`.
    SPOTFIT_NOT_INLINE void find_scores() {
        float* kernels[ALL_AXES];
        ROLLED
        for (int axis = X; axis < axes(); ++axis) {
            kernels[axis] = spare_lines + 2 * axis * line;
            share_lines(1, [&](int) {
                profile_line(f.reach[axis], f.sigma[axis] * stretch[axis], f.is_integrated, 2 * f.reach[axis] + 1,
                             line - SIDE_BY_SIDE, kernels[axis], kernels[axis] + line);
            });
        }
        convolve(kernels, pull, trial);
        ROLLED
        for (int axis = X; axis < axes(); ++axis)
            share(2 * f.reach[axis] + 1, [&](int k) { kernels[axis][k] *= kernels[axis][k]; });
        convolve(kernels, weight, other);
        over_lines([&](int z, int y) {
            ROLLED
            for (int x = 0; x < columns; x += SIDE_BY_SIDE) {
                const Pixels error = load_pixels(at(other, z, y) + x), light = load_pixels(at(trial, z, y) + x);
                const auto counts_here = select(error > 0.0f, load_pixels(at(counts, z, y) + x), Pixels(0.0f)) > 0.0f;
                const Pixels score = light / square_root(select(counts_here, error, Pixels(1.0f)));
                store_pixels(at(base, z, y) + x, select(counts_here, score, Pixels(-INFINITE)));
            }
        });
    }
    // The same by a measured PSF, at the height at which it is farthest.
    SPOTFIT_NOT_INLINE void find_scores_of_psf() {
        over_area([&](long long k) SPOTFIT_INLINE_LAMBDA { store_pixels(base + k, Pixels(-INFINITE)); });
        double place[] = {double(f.reach[X]), double(f.reach[Y]), 0};
        const Footprint p = spare_shape(place);
        over_heights(SKIPS, [&](double z) {
            place[Z] = z;
            fill_psf<false>(p, place);
            const int below = bright_reach(p, Y), right = bright_reach(p, X);
            over_lines([&](int, int y) {
                const int begin_of_psf = y < below ? -y : -below, end_of_psf = y + below < rows ? below + 1 : rows - y;
                ROLLED
                for (int x = 0; x < columns; x += SIDE_BY_SIDE) {
                    Pixels pulled = 0.0f, squared = 0.0f;
                    ROLLED
                    for (int v = begin_of_psf; v < end_of_psf; ++v) {
                        const float* const own = p.value[X] + (v + core(Y)) * p.pitch + core(X) - right;
                        const float *const pulls = at(pull, 0, y + v) + x - right, *const weights =
                                                                                       at(weight, 0, y + v) + x - right;
                        ROLLED
                        for (int u = 0; u <= 2 * right; ++u) {
                            const Pixels light = own[u];
                            pulled = multiply_add(light, load_pixels(pulls + u), pulled);
                            squared = multiply_add(light * light, load_pixels(weights + u), squared);
                        }
                    }
                    const auto is_there =
                        select(squared > 0.0f, load_pixels(at(counts, 0, y) + x), Pixels(0.0f)) > 0.0f;
                    const Pixels score = pulled / square_root(select(is_there, squared, Pixels(1.0f)));
                    const Pixels best = load_pixels(at(base, 0, y) + x);
                    store_pixels(at(base, 0, y) + x, select(is_there & (score > best), score, best));
                }
            });
        });
    }
    // By the median of those below 0: hidden spots make others higher.
    SPOTFIT_NOT_INLINE void find_roughness() {
        constexpr int BINS = 256;
        alone([&] {
            int counted[BINS] = {}, number = 0;
            ROLLED
            for (int k = 0; k < depth * rows; ++k)
                for (int x = 0; x < columns; ++x) {
                    const float own = -at(base, k / rows, k % rows)[x] * float(FINENESS);
                    if (!(own > 0.0f) || !(own < INFINITE)) continue;
                    ++counted[own < BINS - 1 ? static_cast<int>(own) : BINS - 1], ++number;
                }
            int bin = 0;
            ROLLED
            for (int below = 0; bin < BINS && 2 * (below + counted[bin]) < number; ++bin) below += counted[bin];
            roughness = larger((bin + 0.5) / (FINENESS * HALF), 1);
        });
    }
    // Of equal ones, the first.
    SPOTFIT_NOT_INLINE bool is_highest(int z, int y, int x) const {
        const float own = at(base, z, y)[x];
        ROLLED
        for (int w = z > 0 ? z - 1 : 0; w <= z + 1 && w < depth; ++w)
            for (int v = y > 0 ? y - 1 : 0; v <= y + 1 && v < rows; ++v)
                for (int u = x > 0 ? x - 1 : 0; u <= x + 1 && u < columns; ++u) {
                    const float there = at(base, w, v)[u];
                    const bool is_earlier = w != z ? w < z : v != y ? v < y : u < x;
                    if (is_earlier ? there >= own : there > own) return false;
                }
        return true;
    }

    // How much longer than a spot the residual at one is in the plane of two axes: the score, and the direction.
    struct Quadrupole {
        double along, across;
        double score() const { return along * along + across * across; }
    };
    static constexpr Axis FIRST[] = {X, X, Y}, SECOND[] = {Y, Z, Z};
    // In the planes of x and y and, in volumes, of x and z, and y and z.
    template <int PLANES> SPOTFIT_NOT_INLINE void find_quadrupoles(const Spot& s, Quadrupole* found) {
        const Footprint& p = s.shape;
        const Range planes = in_part(p, Z), lines = in_part(p, Y);
        Pixels own[4 * PLANES];
        UNROLL
        for (Pixels& sum : own) sum = 0.0f;
        ROLLED
        for (int x = 0; x < p.size[X]; x += SIDE_BY_SIDE) {
            const int column = p.first[X] + x;
            const Pixels across_lines = (numbers_of_pixels() + float(column - s.at[X])) * float(scale[X]);
            ROLLED
            for (int z = planes.begin; z < planes.end; ++z) ROLLED
            for (int y = lines.begin + Team::line(); y < lines.end; y += Team::LINES) {
                const float of_line = p.value[Z][z - p.first[Z]] * p.value[Y][y - p.first[Y]];
                const Pixels e = of_line * load_pixels(p.value[X] + x + p.pitch * (y - p.first[Y]));
                const Pixels w = load_pixels(at(weight, z, y) + column), g = load_pixels(at(pull, z, y) + column);
                const Pixels apart[] = {across_lines, float((y - s.at[Y]) * scale[Y]), float((z - s.at[Z]) * scale[Z])};
                UNROLL
                for (int k = 0; k < PLANES; ++k) {
                    const Pixels a = apart[FIRST[k]], b = apart[SECOND[k]];
                    const Pixels along = e * (a * a - b * b), across = e * (2.0f * a * b);
                    own[4 * k] = multiply_add(g, along, own[4 * k]);
                    own[4 * k + 1] = multiply_add(g, across, own[4 * k + 1]);
                    own[4 * k + 2] = multiply_add(w * along, along, own[4 * k + 2]);
                    own[4 * k + 3] = multiply_add(w * across, across, own[4 * k + 3]);
                }
            }
        }
        all_sums(own, sums);
        ROLLED
        for (int k = 0; k < PLANES; ++k) {
            const double* const sum = sums + 4 * k;
            const bool is_known = sum[2] > 0 && sum[3] > 0;
            if (is_known) found[k] = {sum[0] / square_root(sum[2]), sum[1] / square_root(sum[3])};
            else found[k] = {};
        }
    }

  private:
    // A spot is seen with a measured PSF of a height between two of those at which its z is searched for, too.
    static constexpr int SKIPS = 2;
    // Light of a measured PSF that is dimmer, as a share of its brightest, says little of where spots are.
    static constexpr double DIM = 0.1;
    // Half of noise's scores are within this number of deviations; and the parts of one in which scores are counted.
    static constexpr double HALF = 0.6745, FINENESS = 16;

    // Along each axis in turn, by way of `base`.
    void convolve(const float* const* kernels, const float* pixels, float* result) const {
        convolve_along(X, kernels[X], pixels, axes() > Z ? result : base);
        if (axes() > Z) convolve_along(Y, kernels[Y], result, base), convolve_along(Z, kernels[Z], base, result);
        else convolve_along(Y, kernels[Y], base, result);
    }
    // Margins of lines are zero, so that along x no end need be looked for.
    SPOTFIT_NOT_INLINE void convolve_along(Axis axis, const float* kernel, const float* pixels, float* result) const {
        const int reach = f.reach[axis];
        const int apart = axis == X ? 1 : axis == Y ? stride : stride * rows;
        over_lines([&](int z, int y) {
            const int place = axis == Y ? y : z, behind = size(axis) - 1 - place;
            const int first = axis == X || reach < place ? -reach : -place;
            const int last = axis == X || reach < behind ? reach : behind;
            ROLLED
            for (int x = 0; x < columns; x += SIDE_BY_SIDE) {
                const float* const middle = pixels + (at(base, z, y) - base) + x;
                Pixels sum = 0.0f;
                ROLLED
                for (int k = first; k <= last; ++k)
                    sum = multiply_add(load_pixels(middle + k * apart), Pixels(kernel[k + reach]), sum);
                store_pixels(at(result, z, y) + x, sum);
            }
        });
    }
    // How far along an axis a measured PSF is bright.
    SPOTFIT_NOT_INLINE int bright_reach(const Footprint& p, Axis axis) const {
        const int far = core(axis), wide = core(axis == X ? Y : X);
        const float* const middle = p.value[X] + core(Y) * p.pitch + core(X);
        const auto brightest = [&](int from, int end) {
            float most_light = 0;
            ROLLED
            for (int along = from; along < end; ++along)
                for (int across = -wide; across <= wide; ++across) {
                    const int v = axis == Y ? along : across, u = axis == Y ? across : along;
                    const float here = middle[v * p.pitch + u], there = middle[-v * p.pitch - u];
                    most_light = here > most_light ? here : most_light;
                    most_light = there > most_light ? there : most_light;
                }
            return most_light;
        };
        const float dim = float(DIM) * brightest(0, far + 1);
        return Team::last_of(1, far + 1, [&](int k) { return brightest(k, k + 1) > dim; });
    }
};

}  // namespace spotfit::SPOTFIT_ISA
