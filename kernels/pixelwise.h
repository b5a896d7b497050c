// Sums over the pixels, for profiles and estimators that need to visit each.
//
// With d = (f_1, ..., f_K, f, 1), the profile's derivatives, itself and 1, a visit adds up
// S = sum of w d d' (its upper triangle) and T = sum of q d. Least squares has w the weight and
// q = w g, and from S and T follows all that the fast path has from its sums along the axes: the
// amplitudes, and Kaufman's Jacobian as the Schur complement of S on (f, 1).
#pragma once
#include "separable.h"

namespace spotfit::SPOTFIT_ISA {

// Held whatever the settings: its sums are not even made.
template <class Variant> SPOTFIT_INLINE constexpr bool never_fitted(int j) {
    return Variant::HELD != HELD_AT_RUN_TIME && j < Variant::SHAPE && (Variant::HELD >> j & 1);
}

// S (equations.a) and T (equations.b).
template <class Variant, class L> struct PixelSums {
    static constexpr int S = Variant::SHAPE, F = S, ONE = S + 1;
    Equations<L, Variant::ALL> s;

    // Joins the sums of a fit's lanes, as far as they are asked for: those of w and q alone (ONES), and T.
    template <bool ONES, bool DATA, class Roi> SPOTFIT_INLINE void join(const Roi& roi) {
        UNROLL
        for (int i = 0; i < (ONES ? ONE + 1 : ONE); ++i) {
            if (never_fitted<Variant>(i)) continue;
            UNROLL
            for (int j = i; j <= ONE; ++j)
                if (!never_fitted<Variant>(j)) s.at(i, j) = roi.sum(s.at(i, j));
            if (DATA) s.b[i] = roi.sum(s.b[i]);
        }
    }
};

// Whether the pixels of a row are kept before they are added to sums: on a CPU, where a profile takes
// long to compute. There are too few registers for it and all sums, and each pixel would wait for the
// one before it.
template <class Variant, class Roi>
constexpr bool KEEPS_LINE = Roi::COLUMNS_KEPT > 0 && !Variant::Profile::SEPARABLE && !Variant::Profile::EXPRESSION;

// Adds pixels to sums as they are visited, or row by row; UNIT_WEIGHTS: all w are 1.
template <bool UNIT_WEIGHTS, class Variant, class L, class Roi> class PixelAdder {
    static constexpr int S = Variant::SHAPE, F = S, ONE = S + 1;
    static constexpr bool KEEPS = KEEPS_LINE<Variant, Roi>;
    struct Pixel { L d[F + 1], w, q; };
    PixelSums<Variant, L>& sums;
    Pixel kept[KEEPS ? Roi::COLUMNS_KEPT : 1];

    SPOTFIT_INLINE static L weighted(const Pixel& p, L x) { return UNIT_WEIGHTS ? x : p.w * x; }
    // To one row of S after the other, which a CPU has registers for.
    SPOTFIT_INLINE void add_kept(int count) {
        auto& s = sums.s;
        UNROLL
        for (int i = 0; i <= F; ++i) {
            if (never_fitted<Variant>(i)) continue;
            for (int c = 0; c < count; ++c) {
                const Pixel& p = kept[c];
                const L x = weighted(p, p.d[i]);
                UNROLL
                for (int j = i; j <= F; ++j)
                    if (!never_fitted<Variant>(j)) s.at(i, j) = multiply_add(x, p.d[j], s.at(i, j));
                s.at(i, ONE) += x;
                s.b[i] = multiply_add(p.q, p.d[i], s.b[i]);
            }
        }
        for (int c = 0; c < count; ++c) s.at(ONE, ONE) += weighted(kept[c], L(1.0f)), s.b[ONE] += kept[c].q;
    }

  public:
    SPOTFIT_INLINE PixelAdder(PixelSums<Variant, L>& sums) : sums(sums) {}
    SPOTFIT_INLINE void add(int i, const L (&d)[S], L f, L w, L q) {
        Pixel& p = kept[KEEPS ? i : 0];
        UNROLL
        for (int j = 0; j < S; ++j) p.d[j] = d[j];
        p.d[F] = f, p.w = w, p.q = q;
        if (!KEEPS) add_kept(1);
    }
    SPOTFIT_INLINE void end_line(int columns) {
        if (KEEPS) add_kept(columns);
    }
};

// Where the lane's own pixels are along x, from the ROI's first one.
template <class L, class Roi> SPOTFIT_INLINE L column_at(const Roi& roi, int i) {
    return L(float(roi.first_column() + i));
}

// Whether a Roi has the profile along x from elsewhere.
template <class Roi> struct HasProfileAlongX { static constexpr bool value = false; };

// What a separable profile is along a line: a factor, and its derivatives by the parameters of all axes but x.
template <class Variant, class L> struct LineProfile {
    using P = typename Variant::Profile;
    L value, d[Variant::SHAPE];

    template <int AXIS> SPOTFIT_INLINE void set(const AxisProfile<L>& v) {
        value = v.value, d[AXIS] = v.center, d[P::width(AXIS)] = v.width;
    }
    // Times the profile along one more axis.
    template <int AXIS> SPOTFIT_INLINE void gain(const AxisProfile<L>& w) {
        UNROLL
        for (int a = 1; a < AXIS; ++a) d[a] *= w.value;
        UNROLL
        for (int a = 1; a < AXIS; ++a)
            if (a == 1 || !P::shares_width(a)) d[P::width(a)] *= w.value;
        d[AXIS] = value * w.center;
        if constexpr (P::shares_width(AXIS)) d[P::width(AXIS)] = multiply_add(value, w.width, d[P::width(AXIS)]);
        else d[P::width(AXIS)] = value * w.width;
        value *= w.value;
    }
};

// The lines of a plane or a volume, which are asked for in turn.
template <class Variant, class L, class Roi, int AXES = Variant::Profile::AXES> struct Lines {
    AxisOf<Variant, L, 1> y;

    SPOTFIT_INLINE Lines(const Roi& roi, const L (&shape)[Variant::SHAPE])
        : y(axis_from<Variant, 1>(float(roi.first_line()), shape)) {}
    SPOTFIT_INLINE void read(int k, LineProfile<Variant, L>& line) { line.template set<1>(y.at(k)); }
};

template <class Variant, class L, class Roi> struct Lines<Variant, L, Roi, 3> {
    const L (&shape)[Variant::SHAPE];
    const int rows;
    int row, end, plane;  // counted from where each axis began
    AxisOf<Variant, L, 1> y;
    AxisOf<Variant, L, 2> z;
    AxisProfile<L> w;

    SPOTFIT_INLINE Lines(const Roi& roi, const L (&shape)[Variant::SHAPE])
        : shape(shape), rows(roi.lines_of_plane()), row(0), end(rows - roi.first_line() % rows), plane(0),
          y(axis_from<Variant, 1>(float(rows - end), shape)),
          z(axis_from<Variant, 2>(float(roi.first_line() / rows), shape)), w(z.at(0)) {}
    SPOTFIT_INLINE void read(int, LineProfile<Variant, L>& line) {
        if (row == end) {
            y = axis_from<Variant, 1>(0.0f, shape);
            w = z.at(++plane);
            row = 0, end = rows;
        }
        line.template set<1>(y.at(row++));
        line.template gain<2>(w);
    }
};

// f and its derivatives, in units of steps, at the pixels of a line.
template <class Variant, class L, class Roi, bool SEPARABLE = Variant::Profile::SEPARABLE,
          bool EXPRESSION = Variant::Profile::EXPRESSION, bool LATTICE = Variant::Profile::LATTICE>
struct PixelProfile;

template <class Variant, class L, class Roi> struct PixelProfile<Variant, L, Roi, true, false, false> {
    using P = typename Variant::Profile;
    Roi& roi;
    Lines<Variant, L, Roi> lines;
    LineProfile<Variant, L> line;

    SPOTFIT_INLINE PixelProfile(Roi& roi, const L (&shape)[Variant::SHAPE], const FitSettings&)
        : roi(roi), lines(roi, shape) {
        if constexpr (!HasProfileAlongX<Roi>::value) profile_along_x<Variant>(roi, shape);
    }
    SPOTFIT_INLINE void begin_line(int k) { lines.read(k, line); }
    SPOTFIT_INLINE L at(int i, L (&d)[Variant::SHAPE]) const {
        constexpr int WIDTH = P::width(0);
        const AxisProfile<L> u = roi.u(i);
        d[0] = u.center * line.value;
        UNROLL
        for (int j = 1; j < Variant::SHAPE; ++j)
            if (j != WIDTH) d[j] = u.value * line.d[j];
        d[WIDTH] = u.width * line.value;
        if constexpr (P::shares_width(1)) d[WIDTH] = multiply_add(u.value, line.d[WIDTH], d[WIDTH]);
        return u.value * line.value;
    }
};

template <class Variant, class L, class Roi> struct PixelProfile<Variant, L, Roi, false, false, false> {
    const Roi& roi;
    typename Variant::Profile::template Pixels<L> pixels;
    L row;

    SPOTFIT_INLINE PixelProfile(Roi& roi, const L (&shape)[Variant::SHAPE], const FitSettings& settings)
        : roi(roi), pixels(shape, settings.angle_convention == 2) {}
    SPOTFIT_INLINE void begin_line(int k) { row = L(float(roi.first_line() + k)); }
    SPOTFIT_INLINE L at(int i, L (&d)[Variant::SHAPE]) const { return pixels.at(column_at<L>(roi, i), row, d); }
};

// Calls use(k, i, f, d) for each of the lane's own pixels, line by line.
template <int SHAPE, class L, class Roi, class Profile, class Use, class EndLine>
SPOTFIT_INLINE void for_each_pixel(const Roi& roi, Profile& profile, Use use, EndLine end_line) {
    for (int k = 0; k < roi.own_lines(); ++k) {
        if (!roi.has_line(k)) break;
        profile.begin_line(k);
        UNROLL_PIXELS
        for (int i = 0; i < roi.own_columns(); ++i) {
            L d[SHAPE];
            const L f = profile.at(i, d);
            use(k, i, f, d);
        }
        end_line();
    }
}

// The same of a search's point, which begins with the shape; a measured PSF may take some lines together.
template <class Variant, class L, int N, class Roi, class Use, class EndLine>
SPOTFIT_INLINE void visit(Roi& roi, const L (&point)[N], const FitSettings& settings, Use use, EndLine end_line) {
    L shape[Variant::SHAPE];
    UNROLL
    for (int j = 0; j < Variant::SHAPE; ++j) shape[j] = point[j];
    PixelProfile<Variant, L, Roi> profile(roi, shape, settings);
    if constexpr (Variant::Profile::LATTICE) profile.for_each_pixel(roi, use, end_line);
    else for_each_pixel<Variant::SHAPE, L>(roi, profile, use, end_line);
}

// The weight of a pixel in least squares; 0 where it does not count.
template <class Variant, class L, class Roi> SPOTFIT_INLINE L weight_at(const Roi& roi, int k, int i) {
    if constexpr (!Variant::PLANES) return L(1.0f);
    else if constexpr (PlanesAreVariances<Variant>::value) return select(roi.plane(k, i) >= 0.0f, L(1.0f), L(0.0f));
    else return roi.plane(k, i);
}

// Whether the weights of all pixels are 1, though the code is for any.
template <class Variant, class Roi> SPOTFIT_INLINE bool has_unit_weights(const Roi& roi) {
    if constexpr (Variant::Profile::EXPRESSION) {
        if constexpr (Variant::Profile::INTERPRETED) return roi.unit_weights;
    }
    return false;
}

template <bool UNIT_WEIGHTS, class Variant, class L, class Roi>
SPOTFIT_INLINE void add_pixels(Roi& roi, const L (&shape)[Variant::SHAPE], const FitSettings& settings,
                               PixelSums<Variant, L>& sums) {
    PixelAdder<UNIT_WEIGHTS || !Variant::PLANES, Variant, L, Roi> adder(sums);
    visit<Variant>(
        roi, shape, settings,
        [&](int k, int i, L f, const L(&d)[Variant::SHAPE]) SPOTFIT_INLINE_LAMBDA {
            const L w = UNIT_WEIGHTS ? L(1.0f) : weight_at<Variant, L>(roi, k, i);
            if constexpr (Roi::KEEPS_VALUES) roi.put_value(k, i, f);
            adder.add(i, d, f, w, w * roi.at(k, i));
        },
        [&]() SPOTFIT_INLINE_LAMBDA { adder.end_line(roi.own_columns()); });
}

template <class Variant, class L, class Roi>
SPOTFIT_INLINE PixelSums<Variant, L> least_squares_sums(Roi& roi, const L (&shape)[Variant::SHAPE],
                                                        const FitSettings& settings) {
    PixelSums<Variant, L> sums = {};
    if (has_unit_weights<Variant>(roi)) add_pixels<true, Variant>(roi, shape, settings, sums);
    else add_pixels<false, Variant>(roi, shape, settings, sums);
    sums.template join<false, true>(roi);
    return sums;
}

// Sum of w (g - background - amplitude f)^2, from the residuals themselves: by rows, then over the
// rows. Needs the sums made just before.
template <class Variant, class L, class Roi>
SPOTFIT_INLINE L weighted_chi_square(Roi& roi, const L (&shape)[Variant::SHAPE], const FitSettings& settings,
                                     const Amplitudes<L>& a) {
    L chi = 0.0f, part = 0.0f;
    const auto add = [&](int k, int i, L f) SPOTFIT_INLINE_LAMBDA {
        const L residual = roi.at(k, i) - multiply_add(a.amplitude, f, a.background);
        part = multiply_add(weight_at<Variant, L>(roi, k, i) * residual, residual, part);
    };
    const auto end_line = [&]() SPOTFIT_INLINE_LAMBDA { chi += part, part = L(0.0f); };
    if constexpr (Roi::KEEPS_VALUES) {
        for (int k = 0; k < roi.own_lines() && roi.has_line(k); ++k) {
            for (int i = 0; i < roi.own_columns(); ++i) add(k, i, roi.value(k, i));
            end_line();
        }
    } else {
        visit<Variant>(
            roi, shape, settings,
            [&](int k, int i, L f, const L(&)[Variant::SHAPE]) SPOTFIT_INLINE_LAMBDA { add(k, i, f); }, end_line);
    }
    return roi.sum(chi);
}

// Where the data do not determine a parameter: the angle of a spot that is round.
template <class Variant, class L>
SPOTFIT_INLINE MaskOf<L> is_undetermined(int j, L own, L ff, const FitSettings& settings) {
    if constexpr (Variant::Profile::ROTATED) {
        if (j == Variant::Profile::ANGLE && settings.angle_convention != 2) return !(own > SINGULAR * ff);
    }
    return own <= 0.0f;
}

// J'J/alpha^2 and J'r/alpha^2. What has no curvature of its own, or none beyond what the amplitudes
// take up, has none at all, so that the search leaves it where it is. A derivative that is no number
// stays one: no step comes of it.
template <class Variant, class L>
SPOTFIT_INLINE void weighted_equations(const PixelSums<Variant, L>& sums, const Amplitudes<L>& a,
                                       const FitSettings& settings, Equations<L, Variant::SHAPE>& equations) {
    constexpr int S = Variant::SHAPE, F = S, ONE = S + 1;
    L f_j[S], ff_j[S];
    Equations<L, S> products;
    UNROLL
    for (int i = 0; i < S; ++i) {
        f_j[i] = sums.s.at(i, ONE);
        ff_j[i] = sums.s.at(i, F);
        UNROLL
        for (int j = i; j < S; ++j) products.at(i, j) = sums.s.at(i, j);
    }
    normal_equations<S>(sums.s.at(F, ONE), f_j, ff_j, products, sums.s.b, a, equations);
    UNROLL
    for (int i = 0; i < S; ++i) {
        const L own = sums.s.at(i, i);
        const MaskOf<L> open =
            !is_undetermined<Variant>(i, own, sums.s.at(F, F), settings) & !(equations.at(i, i) <= SINGULAR * own);
        equations.at(i, i) = select(open, equations.at(i, i), L(0.0f));
        equations.b[i] = select(open & (a.amplitude != 0.0f), equations.b[i], L(0.0f));
    }
}

// How many pixels count.
template <class Variant, class L, class Roi> SPOTFIT_INLINE L valid_pixels(const Roi& roi, State<L> state) {
    return Variant::PLANES ? state[VALID] : L(float(roi.lines * roi.columns));
}

template <class Variant, class L, class Roi>
SPOTFIT_INLINE Outcome<L> evaluate_weighted(Roi& roi, State<L> state, const L (&shape)[Variant::SHAPE],
                                            const FitSettings& settings, Equations<L, Variant::SHAPE>& equations) {
    constexpr int F = Variant::SHAPE, ONE = F + 1;
    const PixelSums<Variant, L> sums = least_squares_sums<Variant>(roi, shape, settings);
    const L n = valid_pixels<Variant, L>(roi, state), ff = sums.s.at(F, F);
    const Amplitudes<L> a = amplitudes_of(n, sums.s.at(F, ONE), ff, sums.s.b[F], state, settings);
    const L chi = weighted_chi_square<Variant>(roi, shape, settings, a);
    weighted_equations<Variant>(sums, a, settings, equations);
    L accepted = settings.max_error * square(state[SCALE]);
    if (Variant::PLANES) accepted *= state[WEIGHT];
    return {chi,
            a.amplitude,
            a.background,
            a.amplitude * a.amplitude,
            rounding_error<Variant>(a.amplitude, a.background),
            n,
            accepted,
            ff};
}

}  // namespace spotfit::SPOTFIT_ISA
