// Sums over pixels of what the Fisher information of a crowd is made of: products of the slopes of its light by the
// parameters of spots and the background, each weighted, and the pulls of the residual at them.
#pragma once
#include "crowd_light.h"

namespace spotfit::SPOTFIT_ISA {

class CrowdSums : protected CrowdLight {
  protected:
    // Over pixels: of one spot's parameters with themselves, the residual's pulls and those with the background's
    // numbers, of the parameters of two spots, or of the background's numbers and its pulls.
    double sums[4 * SUMS_AT_ONCE];

    CrowdSums(const JointFits& fits, long long which, void* work) : CrowdLight(fits, which, work) {}

    // Numbers of a symmetric matrix row by row from the diagonal on: how many they are, and where one of them is.
    static constexpr int triangle(int size) { return size * (size + 1) / 2; }
    static constexpr int in_triangle(int i, int j, int size) { return i * size - i * (i - 1) / 2 + j - i; }

    // Which of the background's numbers is its slope along x.
    static constexpr int ACROSS = 2;

    // What the slopes of a spot by its parameters are in a line, over those of its light along x: of x and the light,
    // the light of the line, and of y and z the slopes of that.
    template <int AXES> struct LineFactors {
        float of[AXES];
        SPOTFIT_INLINE LineFactors(const Footprint& p, int z, int y) {
            const float v = p.value[Y][y - p.first[Y]];
            of[X] = v, of[Y] = p.slope[Y][y - p.first[Y]];
            if (AXES > Z) {
                const float through = p.value[Z][z - p.first[Z]];
                of[X] *= through, of[Y] *= through;
                of[AXES - 1] = v * p.slope[Z][z - p.first[Z]];
            }
        }
    };
    // Which of them is that of a parameter.
    template <int AXES> static constexpr int line_factor(int parameter) { return parameter == AXES ? X : parameter; }

    template <int AXES, int LEVELS, bool HAS_PSF> void own_sums(const Footprint& p, int cell) {
        if constexpr (HAS_PSF) own_sums_of_maps<LEVELS>(p, cell);
        else own_sums_of_lines<AXES, LEVELS>(p, cell);
    }
    // The derivatives of a spot with a measured PSF by its parameters, at pixels of a line.
    struct MapsHere {
        Pixels of[PSF_MAPS];
        SPOTFIT_INLINE MapsHere(const Footprint& p, int y, int x) {
            const float* const from = p.slope[X] + (y - p.first[Y]) * p.pitch + (x - p.first[X]);
            UNROLL
            for (int k = 0; k < PSF_MAPS; ++k) of[k] = load_pixels(from + k * p.size[Y] * p.pitch);
        }
    };
    template <int LEVELS> SPOTFIT_NOT_INLINE void own_sums_of_maps(const Footprint& p, int cell) {
        constexpr int P = PSF_MAPS, PULLS = P * (P + 1) / 2, GROUND = PULLS + P, ALL = GROUND + LEVELS * P;
        const Ground g = ground_of(cell);
        Pixels own[ALL];
        UNROLL
        for (int k = 0; k < ALL; ++k) own[k] = 0.0f;
        const Range lines = in_part(p, Y);
        ROLLED
        for (int x = p.first[X]; x < p.first[X] + p.size[X]; x += SIDE_BY_SIDE) {
            const Pixels under = LEVELS ? load_pixels(g.x + x) : Pixels(0.0f),
                         across = LEVELS > 1 ? load_pixels(slopes[X] + x) : Pixels(0.0f);
            ROLLED
            for (int y = lines.begin + Team::line(); y < lines.end; y += Team::LINES) {
                const Pixels w = load_pixels(at(weight, 0, y) + x), r = load_pixels(at(pull, 0, y) + x);
                const Pixels ground[] = {under * (LEVELS ? g.y[y] : 0.0f), LEVELS > 1 ? slopes[Y][y] : 0.0f, across};
                const MapsHere maps(p, y, x);
                UNROLL
                for (int i = 0, k = 0; i < P; ++i) {
                    const Pixels weighted = maps.of[i] * w;
                    UNROLL
                    for (int j = i; j < P; ++j, ++k) own[k] = multiply_add(weighted, maps.of[j], own[k]);
                    own[PULLS + i] = multiply_add(maps.of[i], r, own[PULLS + i]);
                    UNROLL
                    for (int n = 0; n < LEVELS; ++n)
                        own[GROUND + n * P + i] = multiply_add(weighted, ground[n], own[GROUND + n * P + i]);
                }
            }
        }
        all_sums(own, sums);
    }
    SPOTFIT_NOT_INLINE void own_pulls_of_maps(const Footprint& p) {
        Pixels own[PSF_MAPS];
        UNROLL
        for (Pixels& sum : own) sum = 0.0f;
        const Range lines = in_part(p, Y);
        ROLLED
        for (int x = p.first[X]; x < p.first[X] + p.size[X]; x += SIDE_BY_SIDE) ROLLED
        for (int y = lines.begin + Team::line(); y < lines.end; y += Team::LINES) {
            const Pixels r = load_pixels(at(pull, 0, y) + x);
            const MapsHere maps(p, y, x);
            UNROLL
            for (int i = 0; i < PSF_MAPS; ++i) own[i] = multiply_add(maps.of[i], r, own[i]);
        }
        all_sums(own, sums);
    }
    SPOTFIT_NOT_INLINE void pair_sums_of_maps(const Footprint& a, const Footprint& b) {
        constexpr int P = PSF_MAPS;
        Pixels own[P * P];
        UNROLL
        for (int k = 0; k < P * P; ++k) own[k] = 0.0f;
        const Range lines = both(in_part(a, Y), in_part(b, Y));
        const int left = a.first[X] > b.first[X] ? a.first[X] : b.first[X];
        const int right = (a.first[X] < b.first[X] ? a.first[X] : b.first[X]) + a.size[X];
        ROLLED
        for (int x = left; x < right; x += SIDE_BY_SIDE) ROLLED
        for (int y = lines.begin + Team::line(); y < lines.end; y += Team::LINES) {
            const Pixels w = load_pixels(at(weight, 0, y) + x);
            const MapsHere first(a, y, x), second(b, y, x);
            UNROLL
            for (int i = 0; i < P; ++i) {
                const Pixels weighted = first.of[i] * w;
                UNROLL
                for (int j = 0; j < P; ++j) own[i * P + j] = multiply_add(weighted, second.of[j], own[i * P + j]);
            }
        }
        all_sums(own, sums);
    }
    // The derivative of a spot's light by the logarithm of the width of its image, to `other`.
    SPOTFIT_NOT_INLINE void add_widening(const Spot& s) const {
        const Footprint& p = s.shape;
        const Range lines = in_part(p, Y);
        Team::wait();
        ROLLED
        for (int y = lines.begin + Team::line(); y < lines.end; y += Team::LINES) ROLLED
        for (int x = p.first[X]; x < p.first[X] + p.size[X]; x += SIDE_BY_SIDE) {
            const MapsHere maps(p, y, x);
            const Pixels across = numbers_of_pixels() + float(x - s.at[X]);
            const Pixels slope = across * maps.of[X] + float(y - s.at[Y]) * maps.of[Y] - 2.0f * maps.of[LIGHT_MAP];
            float* const own = at(other, 0, y) + x;
            store_pixels(own, multiply_add(slope, Pixels(float(s.light)), load_pixels(own)));
        }
        Team::wait();
    }
    // Weights and pulls are first summed along y and z, with what is the same for all pixels of a line.
    template <int AXES, int LEVELS> SPOTFIT_NOT_INLINE void own_sums_of_lines(const Footprint& p, int cell) {
        constexpr int P = AXES + 1, PULLS = triangle(P), GROUND = PULLS + P, ALL = GROUND + LEVELS * P;
        const Ground g = ground_of(cell);
        Pixels own[ALL];
        UNROLL
        for (int k = 0; k < ALL; ++k) own[k] = 0.0f;
        const Range planes = in_part(p, Z), lines = in_part(p, Y);
        ROLLED
        for (int x = 0; x < p.size[X]; x += SIDE_BY_SIDE) {
            const int column = p.first[X] + x;
            // Of two slopes, of a slope and the residual, and of a slope and the background.
            Pixels products[triangle(AXES)], pulls[AXES], grounds[LEVELS + 1][AXES];
            UNROLL
            for (int i = 0, k = 0; i < AXES; ++i) {
                pulls[i] = 0.0f;
                UNROLL
                for (int j = i; j < AXES; ++j, ++k) products[k] = 0.0f;
                UNROLL
                for (int n = 0; n < LEVELS; ++n) grounds[n][i] = 0.0f;
            }
            ROLLED
            for (int z = planes.begin; z < planes.end; ++z) ROLLED
            for (int y = lines.begin + Team::line(); y < lines.end; y += Team::LINES) {
                const Pixels w = load_pixels(at(weight, z, y) + column), r = load_pixels(at(pull, z, y) + column);
                const LineFactors<AXES> factors(p, z, y);
                const float level_here = LEVELS == 1 ? g.y[y] : 1.0f, down = LEVELS > 1 ? slopes[Y][y] : 0.0f,
                            through = LEVELS > 3 ? slopes[Z][z] : 0.0f;
                UNROLL
                for (int i = 0, k = 0; i < AXES; ++i) {
                    const Pixels weighted = w * factors.of[i];
                    UNROLL
                    for (int j = i; j < AXES; ++j, ++k)
                        products[k] = multiply_add(weighted, Pixels(factors.of[j]), products[k]);
                    pulls[i] = multiply_add(r, Pixels(factors.of[i]), pulls[i]);
                    if (LEVELS) grounds[0][i] = multiply_add(weighted, Pixels(level_here), grounds[0][i]);
                    if (LEVELS > 1) grounds[1][i] = multiply_add(weighted, Pixels(down), grounds[1][i]);
                    if (LEVELS > 3) grounds[3][i] = multiply_add(weighted, Pixels(through), grounds[3][i]);
                }
            }
            const Pixels e = load_pixels(p.value[X] + x), d = load_pixels(p.slope[X] + x);
            const Pixels under = LEVELS ? load_pixels(g.x + column) : Pixels(0.0f),
                         across = LEVELS > 1 ? load_pixels(slopes[X] + column) : Pixels(0.0f);
            UNROLL
            for (int i = 0, k = 0; i < P; ++i) {
                const Pixels along = i == X ? d : e;
                const int first = line_factor<AXES>(i);
                UNROLL
                for (int j = i; j < P; ++j, ++k) {
                    const int second = line_factor<AXES>(j);
                    const int both_of_them =
                        first < second ? in_triangle(first, second, AXES) : in_triangle(second, first, AXES);
                    own[k] = multiply_add(along * (j == X ? d : e), products[both_of_them], own[k]);
                }
                own[PULLS + i] = multiply_add(along, pulls[first], own[PULLS + i]);
                UNROLL
                for (int n = 0; n < LEVELS; ++n) {
                    // Where the background has slopes, its level is 1 all over, as its slope along x is in a column.
                    const Pixels level_here = n == 0 ? under : n == ACROSS ? across : Pixels(1.0f);
                    own[GROUND + n * P + i] =
                        multiply_add(along * level_here, grounds[n == ACROSS ? 0 : n][first], own[GROUND + n * P + i]);
                }
            }
        }
        all_sums(own, sums);
    }
    template <int AXES> SPOTFIT_NOT_INLINE void own_pulls_of_lines(const Footprint& p) {
        Pixels own[AXES + 1];
        UNROLL
        for (Pixels& sum : own) sum = 0.0f;
        const Range planes = in_part(p, Z), lines = in_part(p, Y);
        ROLLED
        for (int x = 0; x < p.size[X]; x += SIDE_BY_SIDE) {
            Pixels pulls[AXES];
            UNROLL
            for (Pixels& sum : pulls) sum = 0.0f;
            ROLLED
            for (int z = planes.begin; z < planes.end; ++z) ROLLED
            for (int y = lines.begin + Team::line(); y < lines.end; y += Team::LINES) {
                const Pixels r = load_pixels(at(pull, z, y) + p.first[X] + x);
                const LineFactors<AXES> factors(p, z, y);
                UNROLL
                for (int i = 0; i < AXES; ++i) pulls[i] = multiply_add(r, Pixels(factors.of[i]), pulls[i]);
            }
            const Pixels e = load_pixels(p.value[X] + x), d = load_pixels(p.slope[X] + x);
            UNROLL
            for (int i = 0; i <= AXES; ++i) own[i] = multiply_add(i == X ? d : e, pulls[line_factor<AXES>(i)], own[i]);
        }
        all_sums(own, sums);
    }
    // Of two spots.
    template <int AXES> SPOTFIT_NOT_INLINE void pair_sums(const Footprint& a, const Footprint& b) {
        constexpr int P = AXES + 1;
        Pixels own[P * P];
        UNROLL
        for (int k = 0; k < P * P; ++k) own[k] = 0.0f;
        const Range planes = both(in_part(a, Z), in_part(b, Z)), lines = both(in_part(a, Y), in_part(b, Y));
        const int left = a.first[X] > b.first[X] ? a.first[X] : b.first[X];
        const int right = (a.first[X] < b.first[X] ? a.first[X] : b.first[X]) + a.size[X];
        ROLLED
        for (int x = left; x < right; x += SIDE_BY_SIDE) {
            Pixels products[AXES * AXES];
            UNROLL
            for (Pixels& sum : products) sum = 0.0f;
            ROLLED
            for (int z = planes.begin; z < planes.end; ++z) ROLLED
            for (int y = lines.begin + Team::line(); y < lines.end; y += Team::LINES) {
                const Pixels w = load_pixels(at(weight, z, y) + x);
                const LineFactors<AXES> first(a, z, y), second(b, z, y);
                UNROLL
                for (int i = 0; i < AXES; ++i) {
                    const Pixels weighted = w * first.of[i];
                    UNROLL
                    for (int j = 0; j < AXES; ++j)
                        products[i * AXES + j] = multiply_add(weighted, Pixels(second.of[j]), products[i * AXES + j]);
                }
            }
            const Pixels ea = load_pixels(a.value[X] + (x - a.first[X])),
                         da = load_pixels(a.slope[X] + (x - a.first[X]));
            const Pixels eb = load_pixels(b.value[X] + (x - b.first[X])),
                         db = load_pixels(b.slope[X] + (x - b.first[X]));
            UNROLL
            for (int i = 0; i < P; ++i) {
                UNROLL
                for (int j = 0; j < P; ++j)
                    own[i * P + j] =
                        multiply_add((i == X ? da : ea) * (j == X ? db : eb),
                                     products[line_factor<AXES>(i) * AXES + line_factor<AXES>(j)], own[i * P + j]);
            }
        }
        all_sums(own, sums);
    }
    static Range both(Range a, Range b) {
        return {a.begin > b.begin ? a.begin : b.begin, a.end < b.end ? a.end : b.end};
    }
    // Of the background's numbers among themselves, and what the residual pulls at them: of its level, and its slopes
    // along y, x and z.
    template <int AXES> SPOTFIT_NOT_INLINE void ground_sums(int cell) {
        constexpr int LEVELS = AXES + 1, PULLS = triangle(LEVELS);
        const Ground g = ground_of(cell);
        Pixels own[PULLS + LEVELS];
        UNROLL
        for (Pixels& sum : own) sum = 0.0f;
        over_lines([&](int z, int y) {
            // The products of two numbers with 0, 1 and 2 slopes along x among them, and pulls at both kinds.
            Pixels products[3] = {0.0f, 0.0f, 0.0f}, pulls[2] = {0.0f, 0.0f};
            ROLLED
            for (int x = from[X]; x < to[X]; x += SIDE_BY_SIDE) {
                const Pixels w = load_pixels(at(weight, z, y) + x), r = load_pixels(at(pull, z, y) + x),
                             under = load_pixels(g.x + x), across = load_pixels(slopes[X] + x);
                const Pixels wu = w * under, wa = w * across;
                products[0] = multiply_add(wu, under, products[0]);
                products[1] = multiply_add(wu, across, products[1]);
                products[2] = multiply_add(wa, across, products[2]);
                pulls[0] = multiply_add(r, under, pulls[0]), pulls[1] = multiply_add(r, across, pulls[1]);
            }
            const Pixels factors[] = {g.y[y], slopes[Y][y], 1.0f, slopes[Z][z]};
            UNROLL
            for (int i = 0, k = 0; i < LEVELS; ++i) {
                UNROLL
                for (int j = i; j < LEVELS; ++j, ++k)
                    own[k] = multiply_add(products[(i == ACROSS) + (j == ACROSS)], factors[i] * factors[j], own[k]);
                own[PULLS + i] = multiply_add(pulls[i == ACROSS], factors[i], own[PULLS + i]);
            }
        });
        all_sums(own, sums);
    }
};

}  // namespace spotfit::SPOTFIT_ISA
