// What the pixels say of the light of a crowd: the Fisher information of spots and background that move together, the
// gradient of their likelihood, and the width that they would rather have.
#pragma once
#include "banded_matrix.h"
#include "crowd_sums.h"

namespace spotfit::SPOTFIT_ISA {

class CrowdInformation : protected CrowdSums {
  protected:
    static constexpr double NONE = -1;
    BandedMatrix normal, factor;
    double *gradient, *step, *spare;
    double factored = NONE;  // the damping of `factor`, where that is of `normal`

    CrowdInformation(const JointFits& fits, long long which, void* work) : CrowdSums(fits, which, work) {
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
        if (levels) find_ground<AXES>(cell);
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
        if (levels) find_ground<AXES>(cell);
    }
    SPOTFIT_NOT_INLINE bool overlap(const Footprint& a, const Footprint& b) const {
        ROLLED
        for (int axis = X; axis < axes(); ++axis) {
            const int apart = a.first[axis] - b.first[axis], side = 2 * core(axis);
            if (apart > side || -apart > side) return false;
        }
        return true;
    }
    // Of the background's numbers, by what is summed of them.
    template <int AXES> void find_ground(int cell) {
        constexpr int LEVELS = AXES + 1, PULLS = triangle(LEVELS);
        ground_sums<AXES>(cell);
        const int first = parameters() * moving;
        share(levels, [&](int i) {
            ROLLED
            for (int j = i; j < levels; ++j) normal.at(first + i, first + j) = sums[in_triangle(i, j, LEVELS)];
            gradient[first + i] = sums[PULLS + i];
        });
    }
};

}  // namespace spotfit::SPOTFIT_ISA
