// What the pixels say of the light of a crowd: the Fisher information of spots and background that move together, the
// gradient of their likelihood, and the width that they would rather have.
#pragma once
#include "banded_matrix.h"
#include "crowd_light.h"

namespace spotfit::SPOTFIT_ISA {

class CrowdInformation : protected CrowdLight {
  protected:
    static constexpr double NONE = -1;
    BandedMatrix normal, factor;
    double *gradient, *step, *spare;
    double factored = NONE;  // the damping of `factor`, where that is of `normal`
    // Over pixels: of one spot's parameters with themselves, the residual's pulls and those with the background's
    // numbers, of the parameters of two spots, or of the background's numbers and its pulls.
    double sums[4 * SUMS_AT_ONCE];

    CrowdInformation(const JointFits& fits, long long which, void* work) : CrowdLight(fits, which, work) {
        const int size = parameters() * (most < TOGETHER ? static_cast<int>(most) : TOGETHER) + 1 + axes();
        BandedMatrix* const matrices[] = {&normal, &factor};
        ROLLED
        for (BandedMatrix* matrix : matrices) {
            matrix->block = parameters();
            matrix->rows = memory.take<double>(static_cast<long long>(size) * size);
            matrix->end = memory.take<int>(size);
        }
        double** const vectors[] = {&gradient, &step, &spare};
        ROLLED
        for (double** vector : vectors) *vector = memory.take<double>(size);
    }

    // The Fisher information of the spots that move, and the likelihood's gradient: place and light of each, then the
    // background.
    SPOTFIT_NOT_INLINE void find_normal(int cell) {
        const bool is_of_all = is_evaluated && all_move_in_order();
        if (is_of_all && has_normal) return;
        alone([&] { has_normal = is_of_all, factored = NONE; });
        if (has_psf()) find_normal_of<2, true>(cell);
        else if (axes() > Z) find_normal_of<3, false>(cell);
        else find_normal_of<2, false>(cell);
    }
    SPOTFIT_NOT_INLINE bool find_factor(double damping) {
        if (damping == factored) return true;
        share_lines(normal.size, [&](int i) {
            normal.over_row(normal.end[i], i, Team::column(), Team::COLUMNS,
                            [&](int j) { factor.at(i, j) = normal.at(i, j); });
            if (Team::column() == 0) factor.at(i, i) = normal.at(i, i) * (1 + damping) + 1e-12;
        });
        const bool is_positive = factor.factor();
        set(factored, is_positive ? damping : double(NONE));
        return is_positive;
    }

    // What pulls at light that may be added, and the information about how much of it there is.
    struct Added { double pulled, information; };
    // The same of the width of all spots that move along some axes, as a fraction, with all else as it is.
    SPOTFIT_NOT_INLINE Added find_widening(int first, int end_of_axes) {
        constexpr double SMALL = 0.02;  // the step of the derivative, as a fraction of the width
        copy_part(nullptr, other);
        ROLLED
        for (int a = 0; a < moving; ++a) {
            const Spot& s = spots[together[a]];
            if (has_psf()) {
                add_widening(s);
                continue;
            }
            ROLLED
            for (double sign = 1; sign >= -1; sign -= 2)
                add_spare(s.shape, s.at, 1 + sign * SMALL, sign * s.light / (2 * SMALL), first, end_of_axes);
        }
        return find_added();
    }
    // Whether spots may be wider by some errors, whatever else moves.
    static bool may_be_wider(const Added& own, double errors) {
        return square_of(own.pulled) >= square_of(errors) * LEAST_SHARE * own.information;
    }
    // By which fraction the spots that move would be wider if they might be, all alike, and its error; `factor` is that
    // of their Fisher information.
    struct Width { double wider, error; };
    SPOTFIT_NOT_INLINE Width find_width(int cell, const Added& widening) {
        const Added own = with_others(cell, widening);
        return {own.pulled / own.information, 1 / square_root(own.information)};
    }
    // How much likelier a ridge is than the spots that move, in nats, each with its share: half of their light is
    // halfway to the next ones. The blunt one ends at the last ones, the other one goes on as far. As find_width.
    SPOTFIT_NOT_INLINE void find_ridge(int cell) {
        if (moving > 1) copy_part(nullptr, other);
        int links = 0, ends = 0;
        double likelier[2] = {};
        ROLLED
        for (int with_ends = 0; with_ends < 2; ++with_ends) {
            ROLLED
            for (int a = 0; a < moving; ++a) {
                const Spot& s = spots[together[a]];
                int own = 0, next = a;
                ROLLED
                for (int b = 0; b < moving; ++b) {
                    const Spot& o = spots[together[b]];
                    if (b == a || !are_next(s, o)) continue;
                    ++own, next = b;
                    if (!with_ends && b < a) add_between(s, o, 0.5, (s.light + o.light) / 4);
                }
                links += own, ends += own == 1;
                if (with_ends && own == 1) add_between(s, spots[together[next]], -0.5, s.light / 4);
            }
            if (!links) break;
            likelier[with_ends] = likelier[0];
            if (with_ends && !ends) break;
            const Added own = with_others(cell, find_added());
            likelier[with_ends] = own.pulled - own.information / 2;
        }
        share(moving, [&](int a) {
            Spot& s = spots[together[a]];
            s.blunt_ridge = likelier[0] / moving, s.ridge = likelier[1] / moving;
        });
    }

    // Which share of the light of the first of the spots that move would rather be that of wider ones, and its error:
    // half of it or more, if they make up something extended. The mean, weights and pulls are those of all pixels.
    SPOTFIT_NOT_INLINE void find_blur(Spot& own, int some) {
        choose_part(NOWHERE);
        copy_part(nullptr, other);
        ROLLED
        for (int a = 0; a < some; ++a) {
            const Spot& s = spots[together[a]];
            add_spare(s.shape, s.at, BLUR, s.light);
        }
        add_lights(together, some, -1, other);
        Added found = find_added();
        if (found.pulled >= larger(LEAST_BLURRED, LEAST_SHARE * found.information))
            found = with_others(cell_of(own), found, false);
        alone([&] {
            own.blurred = found.pulled / found.information, own.blurred_error = 1 / square_root(found.information);
        });
    }

  private:
    // How many times as wide spots of something extended are; below which pull, in nats, and as a share of the
    // information with nothing else moving, these are out of the question.
    static constexpr double BLUR = 1.5, LEAST_BLURRED = 8, LEAST_SHARE = 0.02;
    // How far apart the spots of a ridge are at most, in widths of a spot, and how many times nearer others may not be.
    static constexpr double NEXT = 4.5, MUCH = 1.5;

    // Whether one is the next spot to another one: none is nearer to both, nor two much nearer to either.
    SPOTFIT_NOT_INLINE bool are_next(const Spot& s, const Spot& o) const {
        const double apart = square_between(s.at, o.at);
        if (apart > square_of(NEXT * f.sigma[X])) return false;
        int much_nearer[] = {-1, -1};  // but themselves
        bool is_between = false;
        ROLLED
        for (int k = 0; k < moving; ++k) {
            const double* const place = spots[together[k]].at;
            const double there[] = {square_between(s.at, place), square_between(o.at, place)};
            UNROLL
            for (int end_of_link = 0; end_of_link < 2; ++end_of_link)
                much_nearer[end_of_link] += there[end_of_link] * square_of(MUCH) < apart;
            is_between |= there[0] < apart && there[1] < apart && there[0] > 0 && there[1] > 0;
        }
        return !is_between && much_nearer[0] < 2 && much_nearer[1] < 2;
    }
    // Adds light to `other` on the line from one spot to another, none outside of where spots may be.
    SPOTFIT_NOT_INLINE void add_between(const Spot& s, const Spot& o, double share_of_way, double amount) {
        double place[ALL_AXES];
        Footprint light = s.shape;
        ROLLED
        for (int axis = X; axis < ALL_AXES; ++axis) {
            place[axis] = s.at[axis] + share_of_way * (o.at[axis] - s.at[axis]);
            if (place[axis] < least[axis] || place[axis] > last[axis]) return;
        }
        ROLLED
        for (int axis = X; axis < axes(); ++axis)
            light.first[axis] = static_cast<int>(whole(place[axis])) - f.reach[axis];
        add_spare(light, place, 1, amount);
    }
    // Adds the light of a spot to `other` that is somewhere else than those that move, or wider along some axes.
    SPOTFIT_NOT_INLINE void add_spare(Footprint light, const double* place, double wider, double amount, int first = X,
                                      int end_of_axes = ALL_AXES) {
        ROLLED
        for (int axis = X; axis < axes(); ++axis)
            light.value[axis] = spare_lines + 2 * axis * line, light.slope[axis] = light.value[axis] + line;
        share_lines(axes(),
                    [&](int axis) { fill_line(light, place, axis, axis >= first && axis < end_of_axes ? wider : 1); });
        add_light(light, float(amount), other);
    }
    // Of the light in `other`, with all else as it is.
    SPOTFIT_NOT_INLINE Added find_added() {
        Total pulled, squared;
        const int first = from[X], end_of_line = to[X];
        over_lines([&](int z, int y) SPOTFIT_INLINE_LAMBDA {
            Pixels pulled_here = 0.0f, squared_here = 0.0f;
            const int start = (z * rows + y) * stride + margin;
            ROLLED
            for (int k = start + first; k < start + end_of_line; k += SIDE_BY_SIDE) {
                const Pixels slope = load_pixels(other + k);
                pulled_here = multiply_add(load_pixels(pull + k), slope, pulled_here);
                squared_here = multiply_add(load_pixels(weight + k) * slope, slope, squared_here);
            }
            pulled.add(pulled_here), squared.add(squared_here);
        });
        return {pulled.value(), squared.value()};
    }
    // As spots and background move with it; `factor` is that of their Fisher information, unless it has to be found.
    SPOTFIT_NOT_INLINE Added with_others(int cell, Added found, bool has_factor = true) {
        over_part([&](int k) { store_pixels(pull + k, load_pixels(weight + k) * load_pixels(other + k)); });
        if (has_factor) {
            share(normal.size, [&](int i) { spare[i] = gradient[i]; });
            find_gradient(cell);
        } else {
            set(is_evaluated, false);
            find_normal(cell);
        }
        if (has_factor || find_factor(1e-9)) {
            share(normal.size, [&](int i) { step[i] = gradient[i]; });
            factor.solve(step);
            found.information -= Team::sum(part_of_dot(gradient, step, normal.size));
        }
        over_part([&](int k) {
            const Pixels off = load_pixels(data + k) - load_pixels(mean + k);
            store_pixels(pull + k, load_pixels(weight + k) * off);
        });
        if (has_factor) share(normal.size, [&](int i) { gradient[i] = spare[i]; });
        return found;
    }

    // The gradient alone, by what pulls, where weights and spots are those of `normal`.
    SPOTFIT_NOT_INLINE void find_gradient(int cell) {
        if (has_psf()) find_gradient_of<2, true>(cell);
        else if (axes() > Z) find_gradient_of<3, false>(cell);
        else find_gradient_of<2, false>(cell);
    }
    template <int AXES, bool HAS_PSF> void find_gradient_of(int cell) {
        constexpr int LIGHT = AXES + HAS_PSF, PARAMETERS = LIGHT + 1;
        ROLLED
        for (int a = 0; a < moving; ++a) {
            const Spot& s = spots[together[a]];
            if constexpr (HAS_PSF) own_pulls_of_maps(s.shape);
            else own_pulls_of_lines<AXES>(s.shape);
            share(PARAMETERS, [&](int i) { gradient[PARAMETERS * a + i] = (i == LIGHT ? 1 : s.light) * sums[i]; });
        }
        if (levels) sum_ground<AXES>(cell);
    }
    template <int AXES, bool HAS_PSF> void find_normal_of(int cell) {
        constexpr int LIGHT = AXES + HAS_PSF, PARAMETERS = LIGHT + 1;
        const int first = PARAMETERS * moving;
        alone([&] {
            normal.size = normal.room = first + levels, normal.border = levels;
            factor.size = factor.room = normal.size, factor.border = levels;
        });
        ROLLED
        for (int a = 0, furthest = 0; a < moving; ++a) {
            const Spot& s = spots[together[a]];
            const auto meets = [&](int b) { return overlap(s.shape, spots[together[b]].shape); };
            furthest = Team::last_of((furthest > a ? furthest : a) + 1, moving, meets);
            const int begin_of_spot = PARAMETERS * a, end_of_row = PARAMETERS * (furthest + 1);
            share_lines(PARAMETERS, [&](int i) {
                if (Team::column() == 0) normal.end[begin_of_spot + i] = factor.end[begin_of_spot + i] = end_of_row;
                ROLLED
                for (int j = begin_of_spot + Team::column(); j < end_of_row; j += Team::COLUMNS)
                    normal.at(begin_of_spot + i, j) = 0;
            });
            if (levels > 1) own_sums<AXES, AXES + 1, HAS_PSF>(s.shape, cell);
            else if (levels) own_sums<AXES, 1, HAS_PSF>(s.shape, cell);
            else own_sums<AXES, 0, HAS_PSF>(s.shape, cell);
            share(PARAMETERS, [&](int i) {
                const double unit = i == LIGHT ? 1 : s.light;
                gradient[begin_of_spot + i] = unit * sums[triangle(PARAMETERS) + i];
                ROLLED
                for (int j = i; j < PARAMETERS; ++j)
                    normal.at(begin_of_spot + i, begin_of_spot + j) =
                        sums[in_triangle(i, j, PARAMETERS)] * unit * (j == LIGHT ? 1 : s.light);
                ROLLED
                for (int k = 0; k < levels; ++k)
                    normal.at(begin_of_spot + i, first + k) =
                        unit * sums[triangle(PARAMETERS) + PARAMETERS * (k + 1) + i];
            });
            ROLLED
            for (int b = a + 1; b <= furthest; ++b) {
                const Spot& o = spots[together[b]];
                if (!overlap(s.shape, o.shape)) continue;
                if constexpr (HAS_PSF) pair_sums_of_maps(s.shape, o.shape);
                else pair_sums<AXES>(s.shape, o.shape);
                share(PARAMETERS * PARAMETERS, [&](int k) {
                    const int i = k / PARAMETERS, j = k % PARAMETERS;
                    normal.at(begin_of_spot + i, PARAMETERS * b + j) =
                        sums[k] * (i == LIGHT ? 1 : s.light) * (j == LIGHT ? 1 : o.light);
                });
            }
        }
        share(levels, [&](int k) { normal.end[first + k] = factor.end[first + k] = first; });
        if (levels) sum_ground<AXES>(cell);
    }
    SPOTFIT_NOT_INLINE bool overlap(const Footprint& a, const Footprint& b) const {
        ROLLED
        for (int axis = X; axis < axes(); ++axis) {
            const int apart = a.first[axis] - b.first[axis], side = 2 * core(axis);
            if (apart > side || -apart > side) return false;
        }
        return true;
    }
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
    template <int AXES> SPOTFIT_NOT_INLINE void sum_ground(int cell) {
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
        const int first = parameters() * moving;
        share(levels, [&](int i) {
            ROLLED
            for (int j = i; j < levels; ++j) normal.at(first + i, first + j) = sums[in_triangle(i, j, LEVELS)];
            gradient[first + i] = sums[PULLS + i];
        });
    }
};

}  // namespace spotfit::SPOTFIT_ISA
