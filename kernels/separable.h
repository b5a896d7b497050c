// The least-squares sums of a separable profile f(x, y, ...) = u(x) v(y) ...: sums without the data are
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

// Sums of a product gain an axis at a time: its own sums times those of the axes before it. So a line of pixels along x
// becomes a plane, and a plane becomes a volume.

// Of f g, and of its derivatives by the shape, as far as the axes go that are there.
template <class Variant, class L> struct DataSums {
    using P = typename Variant::Profile;
    L f, p[Variant::SHAPE];

    // A line's sums of u g, u' g, u° g.
    static SPOTFIT_INLINE DataSums of_line(L u, L c, L s) {
        DataSums line;
        line.f = u, line.p[0] = c, line.p[P::width(0)] = s;
        return line;
    }
    // Adds sums over all axes before this one, at a place where the profile along this one is v.
    template <int AXIS> SPOTFIT_INLINE void add(const AxisProfile<L>& v, const DataSums& before) {
        f = multiply_add(v.value, before.f, f);
        UNROLL
        for (int a = 0; a < AXIS; ++a) p[a] = multiply_add(v.value, before.p[a], p[a]);
        p[AXIS] = multiply_add(v.center, before.f, p[AXIS]);
        UNROLL
        for (int a = 0; a < AXIS; ++a)
            if (!P::shares_width(a)) p[P::width(a)] = multiply_add(v.value, before.p[P::width(a)], p[P::width(a)]);
        p[P::width(AXIS)] = multiply_add(v.width, before.f, p[P::width(AXIS)]);
    }
};

// Sums of f, f_j, f^2, f f_j and f_i f_j, with the derivatives by the shape.
template <class Variant, class L> struct ShapeSums {
    using P = typename Variant::Profile;
    static constexpr int S = Variant::SHAPE;
    L sum, squares, f[S], ff[S];
    Equations<L, S> products;

    template <bool SQUARE> SPOTFIT_INLINE explicit ShapeSums(const AxisSums<L, SQUARE> (&along)[P::AXES]) {
        constexpr int X = 0, WIDTH = P::width(0);
        const AxisSums<L, SQUARE>& u = along[0];
        sum = u.u, squares = u.uu;
        f[X] = u.c, f[WIDTH] = u.s;
        ff[X] = u.uc, ff[WIDTH] = u.us;
        products.at(X, X) = u.cc, products.at(X, WIDTH) = u.cs, products.at(WIDTH, WIDTH) = u.ss;
        gain<1>(along[1]);
        if constexpr (P::AXES == 3) gain<2>(along[2]);
    }

  private:
    // The parameters of the axes before this one: where their widths begin, and how many there are.
    static SPOTFIT_INLINE constexpr int widths_before(int axis) { return P::width(axis - 1) + 1 - P::AXES; }

    template <int AXIS, class Sums> SPOTFIT_INLINE void gain(const Sums& v) {
        constexpr int WIDTH = P::width(AXIS), BEFORE = AXIS + widths_before(AXIS);
        constexpr bool SHARED = P::shares_width(AXIS);
        auto& p = products;
        const auto before = [](int i) SPOTFIT_INLINE_LAMBDA { return i < AXIS ? i : P::AXES + i - AXIS; };
        // What only the axis itself has, and what it has in common with those before it.
        p.at(AXIS, AXIS) = squares * v.cc;
        if constexpr (SHARED) {
            p.at(WIDTH, WIDTH) = p.at(WIDTH, WIDTH) * v.uu + 2.0f * ff[WIDTH] * v.us + squares * v.ss;
            p.at(AXIS, WIDTH) = ff[WIDTH] * v.uc + squares * v.cs;
        } else {
            p.at(WIDTH, WIDTH) = squares * v.ss;
            p.at(AXIS, WIDTH) = squares * v.cs;
        }
        UNROLL
        for (int i = 0; i < BEFORE; ++i) {
            const int own = before(i);
            if (own < AXIS) p.at(own, AXIS) = ff[own] * v.uc;
            else if (own != WIDTH) p.at(AXIS, own) = ff[own] * v.uc;
            if (own == WIDTH) continue;
            p.at(own, WIDTH) = SHARED ? p.at(own, WIDTH) * v.uu + ff[own] * v.us : ff[own] * v.us;
            UNROLL
            for (int j = i; j < BEFORE; ++j)
                if (before(j) != WIDTH) p.at(own, before(j)) *= v.uu;
        }
        UNROLL
        for (int i = 0; i < BEFORE; ++i) {
            const int own = before(i);
            if (own == WIDTH) continue;
            f[own] *= v.u;
            ff[own] *= v.uu;
        }
        f[AXIS] = sum * v.c, ff[AXIS] = squares * v.uc;
        f[WIDTH] = SHARED ? f[WIDTH] * v.u + sum * v.s : sum * v.s;
        ff[WIDTH] = SHARED ? ff[WIDTH] * v.uu + squares * v.us : squares * v.us;
        sum *= v.u, squares *= v.uu;
    }
};

// Writes the profile along x; returns its sums.
template <class Variant, class L, class Roi>
SPOTFIT_INLINE AxisSumsOf<Variant, L> profile_along_x(Roi& roi, const L (&shape)[Variant::SHAPE]) {
    AxisSumsOf<Variant, L> along = {};
    auto x = axis_from<Variant, 0>(float(roi.first_column()), shape);
    UNROLL_PIXELS
    for (int i = 0; i < roi.own_columns(); ++i) {
        AxisProfile<L> u = x.at(i);
        if (!roi.has_column(i)) u = {L(0.0f), L(0.0f), L(0.0f)};
        roi.put_u(i, u);
        along.add(u);
    }
    return along;
}

// The sums of some neighbouring lines side by side, at each of which the profile along y is v: a CPU then reads each
// profile value along x once for all of them, and has independent sums to work on.
template <int BLOCK, class Variant, class L, class Roi>
SPOTFIT_INLINE void add_lines(const Roi& roi, int k, const AxisProfile<L> (&v)[BLOCK], DataSums<Variant, L>& sums) {
    L a[BLOCK], b[BLOCK], c[BLOCK];
    UNROLL
    for (int r = 0; r < BLOCK; ++r) a[r] = b[r] = c[r] = L(0.0f);
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
    for (int r = 0; r < BLOCK; ++r) sums.template add<1>(v[r], DataSums<Variant, L>::of_line(a[r], b[r], c[r]));
}

// The squared residuals of some neighbouring lines: by lines, then over the lines, so that their
// rounding error stays below the smallest change that matters.
template <int BLOCK, class L, class Roi>
SPOTFIT_INLINE L chi_of_lines(const Roi& roi, int k, const Amplitudes<L>& a) {
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
    L sum = roi.has_line(k) ? part[0] : L(0.0f);
    UNROLL
    for (int r = 1; r < BLOCK; ++r) sum += roi.has_line(k + r) ? part[r] : L(0.0f);
    return sum;
}

// Calls `use` with blocks of lines: as many at once as the machine likes, then what is left.
template <class Roi, class Use> SPOTFIT_INLINE void over_lines(const Roi&, int first, int end, Use use) {
    constexpr int BLOCK = Roi::LINES_AT_ONCE;
    int k = first;
    UNROLL_LINES
    for (; k + BLOCK <= end; k += BLOCK) use(IntOf<BLOCK>(), k);
    if constexpr (BLOCK > 2) {
        if (end - k >= 2) {
            use(IntOf<2>(), k);
            k += 2;
        }
    }
    if constexpr (BLOCK > 1) {
        if (k < end) use(IntOf<1>(), k);
    }
}

// The sums of a plane, whose lines are along y; and those of the profile along them. Threads that share a volume have
// a whole plane each.
template <class Variant, class L, class Roi>
SPOTFIT_INLINE void add_plane(Roi& roi, const L (&shape)[Variant::SHAPE], AxisSumsOf<Variant, L>& along_y,
                              DataSums<Variant, L>& sums) {
    constexpr bool WHOLE = Variant::Profile::AXES == 3;
    auto y = axis_from<Variant, 1>(WHOLE ? 0.0f : float(roi.first_line()), shape);
    over_lines(roi, 0, roi.own_lines(), [&](auto block, int k) SPOTFIT_INLINE_LAMBDA {
        constexpr int BLOCK = decltype(block)::value;
        AxisProfile<L> v[BLOCK];
        UNROLL
        for (int r = 0; r < BLOCK; ++r) {
            v[r] = y.at(k + r);
            if (!WHOLE && !roi.has_line(k + r)) v[r] = {L(0.0f), L(0.0f), L(0.0f)};
            along_y.add(v[r]);
            roi.put_v(k + r, v[r].value);
        }
        add_lines<BLOCK, Variant>(roi, k, v, sums);
    });
}

// The same of a volume, whose lines are those of plane after plane along z.
template <class Variant, class L, class Roi>
SPOTFIT_INLINE void add_volume(Roi& roi, const L (&shape)[Variant::SHAPE], AxisSumsOf<Variant, L>& along_y,
                               AxisSumsOf<Variant, L>& along_z, DataSums<Variant, L>& sums) {
    const int rows = roi.lines_of_plane();
    auto y = axis_from<Variant, 1>(0.0f, shape);
    auto z = axis_from<Variant, 2>(0.0f, shape);
    for (int k = 0; k < rows; ++k) {
        const AxisProfile<L> v = y.at(k);
        along_y.add(v);
        roi.put_y(k, v);
    }
    for (int first = 0, plane = 0; first < roi.own_lines(); first += rows, ++plane) {
        const AxisProfile<L> w = z.at(plane);
        along_z.add(w);
        DataSums<Variant, L> own = {};
        over_lines(roi, 0, rows, [&](auto block, int k) SPOTFIT_INLINE_LAMBDA {
            constexpr int BLOCK = decltype(block)::value;
            AxisProfile<L> v[BLOCK];
            UNROLL
            for (int r = 0; r < BLOCK; ++r) {
                v[r] = roi.y(k + r);
                roi.put_v(first + k + r, v[r].value * w.value);
            }
            add_lines<BLOCK, Variant>(roi, first + k, v, own);
        });
        sums.template add<2>(w, own);
    }
}

// The same of the thread's own plane of a volume; returns the profile along z there.
template <class Variant, class L, class Roi>
SPOTFIT_INLINE L add_own_plane(Roi& roi, const L (&shape)[Variant::SHAPE], AxisSumsOf<Variant, L>& along_y,
                               AxisSumsOf<Variant, L>& along_z, DataSums<Variant, L>& sums) {
    DataSums<Variant, L> own = {};
    add_plane<Variant>(roi, shape, along_y, own);
    auto z = axis_from<Variant, 2>(float(roi.first_line() / roi.lines_of_plane()), shape);
    AxisProfile<L> w = z.at(0);
    if (!roi.has_line(0)) w = {L(0.0f), L(0.0f), L(0.0f)};
    along_z.add(w);
    sums.template add<2>(w, own);
    return w.value;
}

// The sums of a trial shape.
template <class Variant, class L, class Roi>
SPOTFIT_INLINE Outcome<L> evaluate_separable(Roi& roi, State<L> state, const L (&shape)[Variant::SHAPE],
                                             const FitSettings& settings, Equations<L, Variant::SHAPE>& equations) {
    constexpr int AXES = Variant::Profile::AXES;
    AxisSumsOf<Variant, L> along[AXES] = {profile_along_x<Variant>(roi, shape)};
    DataSums<Variant, L> sums = {};
    [[maybe_unused]] L along_own_z = 1.0f;
    if constexpr (AXES == 2) add_plane<Variant>(roi, shape, along[1], sums);
    else if constexpr (Roi::OWN_PLANE) along_own_z = add_own_plane<Variant>(roi, shape, along[1], along[2], sums);
    else add_volume<Variant>(roi, shape, along[1], along[2], sums);
    along[0] = along[0].joined([&](L x) SPOTFIT_INLINE_LAMBDA { return roi.sum_along_x(x); });
    UNROLL
    for (int a = 1; a < AXES; ++a)
        along[a] = along[a].joined([&](L x) SPOTFIT_INLINE_LAMBDA {
            return Roi::OWN_PLANE && a == 1 ? x : roi.sum_along_y(x);  // all threads have all of a plane's lines
        });
    sums.f = roi.sum(sums.f);
    UNROLL
    for (int j = 0; j < Variant::SHAPE; ++j) sums.p[j] = roi.sum(sums.p[j]);

    const L n = float(roi.lines * roi.columns);
    const ShapeSums<Variant, L> shape_sums(along);
    const L f = shape_sums.sum;
    const Amplitudes<L> a = amplitudes_of(n, f, shape_sums.squares, sums.f, state, settings);
    L chi = 0.0f;
    Amplitudes<L> own = a;
    if constexpr (Roi::OWN_PLANE) own.amplitude = own.amplitude * along_own_z;
    over_lines(roi, 0, roi.own_lines(), [&](auto block, int k) SPOTFIT_INLINE_LAMBDA {
        chi += chi_of_lines<decltype(block)::value>(roi, k, own);
    });
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
