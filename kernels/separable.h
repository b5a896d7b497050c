// The least-squares sums of a separable profile f(x, y) = u(x) v(y): sums without the data are
// products of sums along the axes; only the sums with the data, and chi-square, visit the pixels.
//
// What a machine gives as `Roi` is described in kernels/README.md.
#pragma once
#include "amplitudes.h"
#include "levenberg_marquardt.h"

namespace spotfit::SPOTFIT_ISA {

// Sums of u, u' (by the centre), u° (by the width) and of their products along an axis. SQUARE:
// u u° is u'^2.
template <class L, bool SQUARE = false> struct AxisSums {
    L u, c, s, uu, uc, us, cc, cs, ss;
    SPOTFIT_INLINE void add(const AxisProfile<L>& p) {
        u += p.value;
        c += p.center;
        s += p.width;
        uu = multiply_add(p.value, p.value, uu);
        uc = multiply_add(p.value, p.center, uc);
        if (!SQUARE) us = multiply_add(p.value, p.width, us);
        cc = multiply_add(p.center, p.center, cc);
        cs = multiply_add(p.center, p.width, cs);
        ss = multiply_add(p.width, p.width, ss);
    }
    template <class Sum> SPOTFIT_INLINE AxisSums joined(Sum sum) const {
        AxisSums all = {sum(u), sum(c), sum(s), sum(uu), sum(uc), us, sum(cc), sum(cs), sum(ss)};
        all.us = SQUARE ? all.cc : sum(us);
        return all;
    }
};

template <class Variant, class L>
using AxisSumsOf = AxisSums<L, Variant::Profile::CENTER_SQUARED_IS_WIDTH>;

// Of f g, and of its derivatives by the shape.
template <class Variant, class L> struct DataSums {
    using P = typename Variant::Profile;
    L f, p[Variant::SHAPE];
    // Adds a row's sums of u g, u' g, u° g, weighted with the profile along y.
    SPOTFIT_INLINE void add_row(const AxisProfile<L>& v, L u, L c, L s) {
        f = multiply_add(v.value, u, f);
        p[0] = multiply_add(v.value, c, p[0]);
        p[1] = multiply_add(v.center, u, p[1]);
        p[P::WIDTH_X] = multiply_add(v.value, s, p[P::WIDTH_X]);
        p[P::WIDTH_Y] = multiply_add(v.width, u, p[P::WIDTH_Y]);
    }
};

// Sums of f_j, of f f_j and of f_i f_j, the derivatives by the shape.
template <class Variant, class L> struct ShapeSums {
    L f[Variant::SHAPE], ff[Variant::SHAPE];
    Equations<L, Variant::SHAPE> products;

    SPOTFIT_INLINE ShapeSums(const AxisSumsOf<Variant, L>& u, const AxisSumsOf<Variant, L>& v) {
        using P = typename Variant::Profile;
        constexpr int X = P::WIDTH_X, Y = P::WIDTH_Y;
        auto& p = products;
        f[0] = u.c * v.u, f[1] = u.u * v.c;
        ff[0] = u.uc * v.uu, ff[1] = u.uu * v.uc;
        p.at(0, 0) = u.cc * v.uu, p.at(0, 1) = u.uc * v.uc, p.at(1, 1) = u.uu * v.cc;
        if constexpr (X == Y) {
            f[X] = u.s * v.u + u.u * v.s;
            ff[X] = u.us * v.uu + u.uu * v.us;
            p.at(0, X) = u.cs * v.uu + u.uc * v.us;
            p.at(1, X) = u.us * v.uc + u.uu * v.cs;
            p.at(X, X) = u.ss * v.uu + 2.0f * u.us * v.us + u.uu * v.ss;
        } else {
            f[X] = u.s * v.u, f[Y] = u.u * v.s;
            ff[X] = u.us * v.uu, ff[Y] = u.uu * v.us;
            p.at(0, X) = u.cs * v.uu, p.at(0, Y) = u.uc * v.us;
            p.at(1, X) = u.us * v.uc, p.at(1, Y) = u.uu * v.cs;
            p.at(X, X) = u.ss * v.uu, p.at(X, Y) = u.us * v.us, p.at(Y, Y) = u.uu * v.ss;
        }
    }
};

// Writes the profile along x; returns its sums.
template <class Variant, class L, class Roi>
SPOTFIT_INLINE AxisSumsOf<Variant, L> profile_along_x(Roi& roi, const L (&shape)[Variant::SHAPE]) {
    using P = typename Variant::Profile;
    AxisSumsOf<Variant, L> along = {};
    AxisOf<Variant, L> x(float(roi.first_column()), shape[0], shape[P::WIDTH_X]);
    UNROLL_PIXELS
    for (int i = 0; i < roi.own_columns(); ++i) {
        AxisProfile<L> u = x.at(i);
        if (!roi.has_column(i)) u = {L(0.0f), L(0.0f), L(0.0f)};
        roi.put_u(i, u);
        along.add(u);
    }
    return along;
}

// The sums of some neighbouring rows side by side: a CPU then reads each profile value once for
// all of them, and has independent sums to work on.
template <int BLOCK, class Variant, class L, class Roi, class Axis>
SPOTFIT_INLINE void add_rows(Roi& roi, int k, Axis& y, AxisSumsOf<Variant, L>& along_y, DataSums<Variant, L>& sums) {
    AxisProfile<L> v[BLOCK];
    L a[BLOCK], b[BLOCK], c[BLOCK];
    UNROLL
    for (int r = 0; r < BLOCK; ++r) {
        v[r] = y.at(k + r);
        if (!roi.has_row(k + r)) v[r] = {L(0.0f), L(0.0f), L(0.0f)};
        along_y.add(v[r]);
        roi.put_v(k + r, v[r].value);
        a[r] = b[r] = c[r] = L(0.0f);
    }
    UNROLL_PIXELS
    for (int i = 0; i < roi.own_columns(); ++i) {
        const AxisProfile<L> u = roi.u(i);
        UNROLL
        for (int r = 0; r < BLOCK; ++r) {
            const L g = roi.at(k + r, i);
            a[r] = multiply_add(u.value, g, a[r]);
            b[r] = multiply_add(u.center, g, b[r]);
            c[r] = multiply_add(u.width, g, c[r]);
        }
    }
    UNROLL
    for (int r = 0; r < BLOCK; ++r) sums.add_row(v[r], a[r], b[r], c[r]);
}

// The squared residuals of some neighbouring rows: by rows, then over the rows, so that their
// rounding error stays below the smallest change that matters.
template <int BLOCK, class L, class Roi>
SPOTFIT_INLINE L chi_of_rows(const Roi& roi, int k, const Amplitudes<L>& a) {
    L av[BLOCK], part[BLOCK];
    UNROLL
    for (int r = 0; r < BLOCK; ++r) av[r] = a.amplitude * roi.v(k + r), part[r] = L(0.0f);
    UNROLL_PIXELS
    for (int i = 0; i < roi.own_columns(); ++i) {
        const L u = roi.u(i).value;
        UNROLL
        for (int r = 0; r < BLOCK; ++r) {
            const L residual = roi.at(k + r, i) - multiply_add(av[r], u, a.background);
            part[r] = multiply_add(residual, roi.has_column(i) ? residual : L(0.0f), part[r]);
        }
    }
    L sum = roi.has_row(k) ? part[0] : L(0.0f);
    UNROLL
    for (int r = 1; r < BLOCK; ++r) sum += roi.has_row(k + r) ? part[r] : L(0.0f);
    return sum;
}

// Calls `use` with blocks of rows: as many at once as the machine likes, then what is left.
template <class Roi, class Use> SPOTFIT_INLINE void over_rows(const Roi& roi, Use use) {
    constexpr int BLOCK = Roi::ROWS_AT_ONCE;
    int k = 0;
    UNROLL_ROWS
    for (; k + BLOCK <= roi.own_rows(); k += BLOCK) use(IntOf<BLOCK>(), k);
    if constexpr (BLOCK > 2) {
        if (roi.own_rows() - k >= 2) {
            use(IntOf<2>(), k);
            k += 2;
        }
    }
    if constexpr (BLOCK > 1) {
        if (k < roi.own_rows()) use(IntOf<1>(), k);
    }
}

// All there is to know about a trial shape.
template <class Variant, class L, class Roi>
SPOTFIT_INLINE Outcome<L> evaluate_separable(Roi& roi, State<L> state, const L (&shape)[Variant::SHAPE],
                                             const FitSettings& settings, Equations<L, Variant::SHAPE>& equations) {
    using P = typename Variant::Profile;
    AxisSumsOf<Variant, L> along_x = profile_along_x<Variant>(roi, shape), along_y = {};
    AxisOf<Variant, L> y(float(roi.first_row()), shape[1], shape[P::WIDTH_Y]);
    DataSums<Variant, L> sums = {};
    over_rows(roi, [&](auto block, int k)
                       SPOTFIT_INLINE_LAMBDA { add_rows<decltype(block)::value, Variant>(roi, k, y, along_y, sums); });
    along_x = along_x.joined([&](L x) SPOTFIT_INLINE_LAMBDA { return roi.sum_along_x(x); });
    along_y = along_y.joined([&](L x) SPOTFIT_INLINE_LAMBDA { return roi.sum_along_y(x); });
    sums.f = roi.sum(sums.f);
    UNROLL
    for (int j = 0; j < Variant::SHAPE; ++j) sums.p[j] = roi.sum(sums.p[j]);

    const L n = float(roi.rows * roi.columns);
    const L f = along_x.u * along_y.u, ff = along_x.uu * along_y.uu;
    const Amplitudes<L> a = amplitudes_of(n, f, ff, sums.f, state, settings);
    L chi = 0.0f;
    over_rows(roi,
              [&](auto block, int k) SPOTFIT_INLINE_LAMBDA { chi += chi_of_rows<decltype(block)::value>(roi, k, a); });
    const ShapeSums<Variant, L> shape_sums(along_x, along_y);
    normal_equations<Variant::SHAPE>(f, shape_sums.f, shape_sums.ff, shape_sums.products, sums.p, a, equations);
    return {roi.sum(chi),
            a.amplitude,
            a.background,
            a.amplitude * a.amplitude,
            rounding_error<Variant>(a.amplitude, a.background),
            n,
            settings.max_error * square(state[SCALE]),
            L(0.0f)};
}

}  // namespace spotfit::SPOTFIT_ISA
