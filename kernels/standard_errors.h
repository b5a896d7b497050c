// Standard errors of the parameters and the photons.
//
// With d the model's derivatives, A = sum of w d d': the covariance is A^-1 for maximum likelihood,
// where w = 1/h makes A the Fisher information; of noise that is not that of photo-electrons, it is a
// multiple of that. For least squares it is A^-1 (sum of w^2 var d d') A^-1 with
//     var = slope max(amplitude, 0) f + max(slope (background - offset) + at offset, least)
// where the noise is known: the line of a noise model, whose slope for a camera is its gain, twice
// that of an EMCCD, and whose other two numbers are its read-out variance. Else it is s^2 A^-1 with
// s^2 = chi-square over the degrees of freedom. On the fast path all sums are products of sums along
// the axes.
//
// What is held, or ended at one of its bounds, does not follow the data: A is that of the others.
// Its error is 0 if it is held, NaN if it is at a bound; all are NaN where A is singular.
#pragma once
#include "outputs.h"

namespace spotfit::SPOTFIT_ISA {

// A symmetric matrix; `at` has both of its triangles in the upper one.
template <class L, int N> struct Matrix {
    L a[N][N];
    SPOTFIT_INLINE L (&operator[](int i)) [N] { return a[i]; } SPOTFIT_INLINE const L (&operator[](int i) const)[N] {
        return a[i];
    }
    SPOTFIT_INLINE L& at(int i, int j) { return i < j ? a[i][j] : a[j][i]; }
    SPOTFIT_INLINE const L& at(int i, int j) const { return i < j ? a[i][j] : a[j][i]; }
};

// The variance of a pixel in the fit's own unit: peak f + flat, and what it has more than others,
// in counts^2, times `scale_squared`.
template <class L> struct PixelNoise { L peak, flat, scale_squared; };

template <class Variant, class L>
SPOTFIT_INLINE PixelNoise<L> pixel_noise(State<L> state, const FitSettings& settings) {
    constexpr int S = Variant::SHAPE;
    const L scale = state[SCALE];
    const L squared = scale * scale, shot = scale * settings.noise_slope;
    const L level = multiply_add(state[LEVEL] - settings.offset, scale, state[POINT + S + 1]);
    const L flat =
        higher_of(multiply_add(shot, level, squared * settings.noise_at_offset), squared * settings.noise_least);
    return {shot * higher_of(state[POINT + S], L(0.0f)), flat, squared};
}

// That of a pixel of weight w.
template <class L, class Roi>
SPOTFIT_INLINE L variance_at(const PixelNoise<L>& own, const Roi& roi, int k, int i, L f, L w) {
    const L variance = multiply_add(own.peak, f, own.flat);
    if (!roi.has_variance()) return variance;
    const L more = select(w > 0.0f, roi.variance(k, i) * own.scale_squared, L(0.0f));
    return higher_of(variance + more, L(0.0f));
}

// Sums of products of 1, u, u', u°, plain and weighted with u, along an axis.
template <class L> struct AxisTables {
    L plain[4][4], weighted[4][4];

    static SPOTFIT_INLINE void fill(L (&table)[4][4], const L (&upper_triangle)[10]) {
        int i = 0;
        UNROLL
        for (int a = 0; a < 4; ++a) {
            UNROLL
            for (int b = a; b < 4; ++b) table[a][b] = table[b][a] = upper_triangle[i++];
        }
    }
    template <class Axis> SPOTFIT_INLINE AxisTables(int size, Axis axis) {
        AxisSums<L> s = {};
        L t[6] = {};
        for (int i = 0; i < size; ++i) {
            const AxisProfile<L> p = axis.at(i);
            s.add(p);
            const L uu = p.value * p.value, uc = p.value * p.center, us = p.value * p.width;
            t[0] = multiply_add(uu, p.value, t[0]);
            t[1] = multiply_add(uu, p.center, t[1]);
            t[2] = multiply_add(uu, p.width, t[2]);
            t[3] = multiply_add(uc, p.center, t[3]);
            t[4] = multiply_add(uc, p.width, t[4]);
            t[5] = multiply_add(us, p.width, t[5]);
        }
        fill(plain, {L(float(size)), s.u, s.c, s.s, s.uu, s.uc, s.us, s.cc, s.cs, s.ss});
        fill(weighted, {s.u, s.uu, s.uc, s.us, t[0], t[1], t[2], t[3], t[4], t[5]});
    }
};

// The terms of the model's derivatives: one by each axis' place, one by its width, those by amplitude and background.
// Each is a product of 1, u, u' or u° (0 to 3) along the axes; a width that axes share has several.
template <class Variant> struct Terms {
    using P = typename Variant::Profile;
    static constexpr int AXES = P::AXES, COUNT = 2 * AXES + 2;
    static SPOTFIT_INLINE constexpr int parameter(int term) {
        return term < AXES ? term : term < 2 * AXES ? P::width(term - AXES) : Variant::SHAPE + term - 2 * AXES;
    }
    static SPOTFIT_INLINE constexpr int along(int axis, int term) {
        return term == axis ? 2 : term == AXES + axis ? 3 : term == COUNT - 1 ? 0 : 1;
    }
};

// The matrix of the parameters' derivatives from a table of each axis.
template <class Variant, class L>
SPOTFIT_INLINE void products_of_axes(const L (*const (&tables)[Variant::Profile::AXES])[4],
                                     Matrix<L, Variant::ALL>& matrix) {
    using T = Terms<Variant>;
    constexpr int LAST = T::AXES - 1;
    matrix = {};
    UNROLL
    for (int s = 0; s < T::COUNT; ++s) {
        UNROLL
        for (int t = 0; t < T::COUNT; ++t) {
            if (T::parameter(s) > T::parameter(t)) continue;
            const auto along = [&](int axis)
                                   SPOTFIT_INLINE_LAMBDA { return tables[axis][T::along(axis, s)][T::along(axis, t)]; };
            L others = along(0);
            UNROLL
            for (int axis = 1; axis < LAST; ++axis) others = others * along(axis);
            L& sum = matrix[T::parameter(s)][T::parameter(t)];
            sum = multiply_add(others, along(LAST), sum);
        }
    }
}

// A, and where it is asked for the noise between the two inverses, by sums along the axes.
template <class Variant, class L, class Roi>
SPOTFIT_INLINE void matrices_from_axes(const Roi& roi, State<L> state, bool sandwich, const FitSettings& settings,
                                       Matrix<L, Variant::ALL>& a, Matrix<L, Variant::ALL>& noise) {
    using P = typename Variant::Profile;
    constexpr int N = Variant::ALL;
    L shape[Variant::SHAPE];
    state.read_point(shape);
    const AxisTables<L> x(roi.columns, axis_from<Variant, 0>(0.0f, shape));
    const AxisTables<L> y(roi.lines_of_plane(), axis_from<Variant, 1>(0.0f, shape));
    const auto fill = [&](const auto&... axes) SPOTFIT_INLINE_LAMBDA {
        products_of_axes<Variant, L>({axes.plain...}, a);
        if (sandwich) products_of_axes<Variant, L>({axes.weighted...}, noise);
    };
    if constexpr (P::AXES == 2) fill(x, y);
    else fill(x, y, AxisTables<L>(roi.lines / roi.lines_of_plane(), axis_from<Variant, 2>(0.0f, shape)));
    if (!sandwich) return;
    const PixelNoise<L> own = pixel_noise<Variant>(state, settings);
    UNROLL
    for (int i = 0; i < N; ++i) {
        UNROLL
        for (int j = i; j < N; ++j) noise[i][j] = multiply_add(own.peak, noise[i][j], own.flat * a[i][j]);
    }
}

template <class Variant, class L>
SPOTFIT_INLINE void fill_matrix(const PixelSums<Variant, L>& sums, Matrix<L, Variant::ALL>& matrix) {
    UNROLL
    for (int i = 0; i < Variant::ALL; ++i) {
        UNROLL
        for (int j = i; j < Variant::ALL; ++j) matrix[i][j] = matrix[j][i] = sums.s.at(i, j);
    }
}

// The same by a pass over the pixels; A not where it is known from sums along the axes.
template <class Variant, class L, class Roi>
SPOTFIT_INLINE void matrices_from_pixels(Roi& roi, State<L> state, bool sandwich, const FitSettings& settings,
                                         Matrix<L, Variant::ALL>& a, Matrix<L, Variant::ALL>& noise) {
    constexpr int S = Variant::SHAPE;
    PixelSums<Variant, L> sums = {}, noise_sums = {};
    if constexpr (Variant::LIKELIHOOD) {
        L point[S + 2];
        state.read_point(point);
        likelihood_sums<true, Variant>(roi, point, settings, sums);
    } else {
        const PixelNoise<L> own = pixel_noise<Variant>(state, settings);
        PixelAdder<false, Variant, L, Roi> adder(sums), noise_adder(noise_sums);
        L shape[S];
        state.read_point(shape);
        visit<Variant>(
            roi, shape, settings,
            [&](int k, int i, L f, const L(&d)[S]) SPOTFIT_INLINE_LAMBDA {
                const L w = weight_at<Variant, L>(roi, k, i);
                if (!Variant::PLAIN) adder.add(i, d, f, w, L(0.0f));
                if (sandwich) noise_adder.add(i, d, f, w * w * variance_at(own, roi, k, i, f, w), L(0.0f));
            },
            [&]() SPOTFIT_INLINE_LAMBDA {
                if (!Variant::PLAIN) adder.end_line(roi.own_columns());
                if (sandwich) noise_adder.end_line(roi.own_columns());
            });
        if (!Variant::PLAIN) sums.template join<true, false>(roi);
        if (sandwich) noise_sums.template join<true, false>(roi);
    }
    if (!Variant::PLAIN) fill_matrix<Variant>(sums, a);
    fill_matrix<Variant>(noise_sums, noise);
}

// Where the data do not move a parameter: it is held, or at a bound, or the angle of a round spot.
template <class Variant, class L>
SPOTFIT_INLINE void find_unknown(State<L> state, const FitSettings& settings, const Matrix<L, Variant::ALL>& a,
                                 MaskOf<L> (&unknown)[Variant::ALL]) {
    constexpr int S = Variant::SHAPE, N = Variant::ALL;
    const Box<L, N> box = bounds_of_all<Variant>(state, settings);
    UNROLL
    for (int p = 0; p < N; ++p) {
        unknown[p] = (state[POINT + p] <= box.low[p]) | (state[POINT + p] >= box.high[p]);
        if (is_held<Variant>(settings, p)) unknown[p] = true;
        if (Variant::Profile::ROTATED && p < S)
            unknown[p] = unknown[p] | is_undetermined<Variant>(p, a[p][p], a[S][S], settings);
    }
}

// Inverts a positive definite matrix in place; NaN where it is singular. It is scaled to a unit
// diagonal first (its parameters differ in size), then Gauss-Jordan elimination needs no pivoting;
// with the pivot's sign turned it stays symmetric, and ends at the inverse times -1. Rows of what is
// left out become 0.
template <class L, int N> SPOTFIT_INLINE void invert(Matrix<L, N>& a, const MaskOf<L> (&left_out)[N]) {
    L scale[N];
    UNROLL_MATRIX(N)
    for (int p = 0; p < N; ++p) scale[p] = select(left_out[p], L(0.0f), 1.0f / square_root(a[p][p]));
    const auto rescale = [&](float sign) SPOTFIT_INLINE_LAMBDA {
        UNROLL_MATRIX(N)
        for (int p = 0; p < N; ++p) {
            UNROLL_MATRIX(N)
            for (int q = p; q < N; ++q)
                a[p][q] = select(left_out[p] | left_out[q], L(0.0f), a[p][q] * (sign * scale[p] * scale[q]));
        }
    };
    rescale(1.0f);
    UNROLL_MATRIX(N)
    for (int k = 0; k < N; ++k) {
        L pivot = select(a[k][k] > SINGULAR, 1.0f / a[k][k], L(NOT_A_NUMBER));
        pivot = select(left_out[k], L(0.0f), pivot);
        UNROLL_MATRIX(N)
        for (int i = 0; i < N; ++i) {
            if (i == k) continue;
            const L factor = -a.at(i, k) * pivot;
            UNROLL_MATRIX(N)
            for (int j = i; j < N; ++j)
                if (j != k) a[i][j] = multiply_add(factor, a.at(k, j), a[i][j]);
        }
        UNROLL_MATRIX(N)
        for (int j = 0; j < N; ++j) a.at(k, j) *= pivot;
        a[k][k] = -pivot;
    }
    rescale(-1.0f);
}

// The variance of a combination of the parameters, given by its slopes.
template <class L, int N>
SPOTFIT_INLINE L variance_along(const Matrix<L, N>& inverse, const Matrix<L, N>& noise, const L (&slopes)[N],
                                bool sandwich, L scatter) {
    L moved[N], total = 0.0f;
    UNROLL_MATRIX(N)
    for (int p = 0; p < N; ++p) {
        moved[p] = L(0.0f);
        UNROLL_MATRIX(N)
        for (int q = 0; q < N; ++q) moved[p] = multiply_add(inverse.at(p, q), slopes[q], moved[p]);
    }
    UNROLL_MATRIX(N)
    for (int p = 0; p < N; ++p) {
        L row = slopes[p] * scatter;
        if (sandwich) {
            row = L(0.0f);
            UNROLL_MATRIX(N)
            for (int q = 0; q < N; ++q) row = multiply_add(noise.at(p, q), moved[q], row);
        }
        total = multiply_add(moved[p], row, total);
    }
    return total;
}

// The variance of a parameter, a diagonal element of the covariance.
template <class L, int N>
SPOTFIT_INLINE L variance_of(const Matrix<L, N>& inverse, const Matrix<L, N>& noise, int p, bool sandwich, L scatter) {
    if (!sandwich) return inverse[p][p] * scatter;
    L total = 0.0f;
    UNROLL_MATRIX(N)
    for (int i = 0; i < N; ++i) {
        L row = 0.0f;
        UNROLL_MATRIX(N)
        for (int j = 0; j < N; ++j) row = multiply_add(noise.at(i, j), inverse.at(j, p), row);
        total = multiply_add(inverse.at(p, i), row, total);
    }
    return total;
}

// Outputs::ERRORS, of the position, the other shape parameters, amplitude, background and photons, from A
// and the noise between its inverses, the profile's integral and the slopes of its logarithm.
template <class Variant, class L>
SPOTFIT_INLINE void errors_of(State<L> state, L chi, L stop, Matrix<L, Variant::ALL>& inverse,
                              const Matrix<L, Variant::ALL>& noise, bool sandwich, L integral,
                              const L (&shape_slopes)[Variant::SHAPE], L freedom, const FitSettings& settings,
                              L (&out)[Variant::ALL + 1]) {
    using P = typename Variant::Profile;
    constexpr int S = Variant::SHAPE, N = Variant::ALL;
    MaskOf<L> unknown[N];
    find_unknown<Variant>(state, settings, inverse, unknown);
    // The matrix is that of the profile's derivatives: those of the model are times the amplitude.
    invert(inverse, unknown);

    const L amplitude = state[POINT + S], unit = 1.0f / state[SCALE];
    const L scatter = Variant::LIKELIHOOD ? L(settings.excess) : chi / freedom;
    const MaskOf<L> valid = stop < STOP_INVALID;
    L point[N], slopes[N];
    state.read_point(point);
    UNROLL
    for (int p = 0; p < N; ++p) {
        L error = square_root(variance_of(inverse, noise, p, sandwich, scatter));
        if (p >= S) error = error * unit;
        else error = error * absolute(step_unit<Variant>(point, p) / amplitude);
        if constexpr (P::ROTATED) {
            if (p == P::ANGLE) error = error * DEGREES;
        }
        error = select(unknown[p] | !(error < INFINITE), L(NOT_A_NUMBER), error);
        if (is_held<Variant>(settings, p)) error = L(0.0f);
        out[p < S ? other_order<P>(p) : p] = select(valid, error, L(NOT_A_NUMBER));
    }
    // photons = integral * amplitude
    UNROLL
    for (int j = 0; j < N; ++j) slopes[j] = j < S ? shape_slopes[j < S ? j : 0] : L(j == S ? 1.0f : 0.0f);
    const L light = square_root(variance_along(inverse, noise, slopes, sandwich, scatter));
    const L photons = light * absolute(integral) * unit * (P::INTEGRAL / settings.photon);
    out[N] = select(valid & (photons < INFINITE), photons, L(NOT_A_NUMBER));
}

// Comes after the values, whose names of a rotated profile's axes are those of the results.
template <class Variant, class L, class Roi>
SPOTFIT_INLINE void write_errors(Roi& roi, State<L> state, L chi, L stop, const FitSettings& given,
                                 L (&out)[Variant::ALL + 1]) {
    constexpr int S = Variant::SHAPE, N = Variant::ALL;
    FitSettings settings = given;
    if (settings.angle_convention == 2) settings.angle_convention = 1;  // derivatives by the angle, not by a shear
    const bool sandwich = settings.noise_known && !Variant::LIKELIHOOD;
    Matrix<L, N> inverse, noise;
    bool by_axes = Variant::PLAIN;
    if (sandwich && roi.has_variance()) by_axes = false;
    if (!by_axes) matrices_from_pixels<Variant>(roi, state, sandwich, settings, inverse, noise);
    if constexpr (Variant::PLAIN)
        matrices_from_axes<Variant>(roi, state, sandwich && by_axes, settings, inverse, noise);
    L shape[S], slopes[S];
    state.read_point(shape);
    const L integral = profile_integral<Variant>(roi, shape, settings, slopes);
    errors_of<Variant>(state, chi, stop, inverse, noise, sandwich, integral, slopes,
                       degrees_of_freedom<Variant, L>(roi, state, settings), settings, out);
}

}  // namespace spotfit::SPOTFIT_ISA
