// The profiles of a spot, and what a fit is made of. A new profile is one struct here and one
// row in the table of models (napari_spotfit/models/profiles.py).
//
// A separable profile says what it is along one axis: f(x, y, ...) = u(x) v(y) ... Any other one says what it is at a
// pixel. Results, sizes and positions have their axes in the array's order, (z,) y, x; a step of the search has the
// last axis first, as pixels are read: x, y(, z), and then widths and all else. `other_order` is the one place where
// these meet.
#pragma once
#include "functions.h"

namespace spotfit::SPOTFIT_ISA {

// ---- separable: u, its derivative by the centre, and its derivative by the width ----
//
// Distances and derivatives are in units that spare divisions and factors: the derivatives are
// times CENTER_UNIT * width and WIDTH_UNIT * width, so that the steps that follow from them are
// steps in these units. CENTER_SQUARED_IS_WIDTH: whether u times the derivative by the width is
// the square of that by the centre. `integral` is that of a profile whose widths are 1. An axis is asked
// for its pixels in turn, from `first` on. Where all pixels count alike in least squares, an Axis will
// do; else it is an ExactAxis, which may take longer.

template <class L> struct AxisProfile { L value, center, width; };

struct Gaussian {
    static constexpr float CENTER_UNIT = 0.84932180028801905f;  // root of log2(e)/2
    static constexpr float WIDTH_UNIT = CENTER_UNIT * CENTER_UNIT;
    static constexpr bool CENTER_SQUARED_IS_WIDTH = true;
    static constexpr float integral(int axes) { return axes == 2 ? 2.0f * PI : 2.0f * PI * ROOT_TWO_PI; }

    // exp(-q^2/2) = exp2(-(CENTER_UNIT q)^2)
    template <class L> struct Axis {
        L inverse, begin;
        SPOTFIT_INLINE Axis(float first, L center, L sigma)
            : inverse(CENTER_UNIT / sigma), begin((first - center) * inverse) {}
        SPOTFIT_INLINE AxisProfile<L> at(int i) const {
            const L q = multiply_add(L(float(i)), inverse, begin);
            const L u = exp2_negative(-(q * q)), qu = q * u;
            return {u, qu, q * qu};
        }
    };
    template <class L> using ExactAxis = Axis<L>;
};

// The Gaussian averaged over each pixel, by the error function at its edges, which neighbours share.
// The difference of two such numbers knows less and less of a wide one, which is enough for least
// squares; a deviance does not settle with it. It is better known by its curvature within the pixel. The average is the
// sum of c_k He_2k(q) exp(-q^2/2) with c_k = (1 / 2 sigma)^2k / (2k + 1)! and Hermite's polynomials He, whose
// derivatives are of the same kind.
struct IntegratedGaussian {
    static constexpr float CENTER_UNIT = 1.41421356237309505f, WIDTH_UNIT = 1.0f;
    static constexpr float HALF_ROOT_PI = 0.88622692545275801f;
    static constexpr float integral(int axes) { return Gaussian::integral(axes); }
    static constexpr bool CENTER_SQUARED_IS_WIDTH = false;
    // From here on, in pixels, the series up to c_4 is exact to single precision.
    static constexpr float WIDE = 1.0f;

    // He_2k, and He_2k+1 over q, as polynomials of q^2.
    static constexpr int TERMS = 5;
    static SPOTFIT_INLINE constexpr float even(int k, int power) {
        constexpr float HE[TERMS][TERMS] = {
            {1, 0, 0, 0, 0}, {-1, 1, 0, 0, 0}, {3, -6, 1, 0, 0}, {-15, 45, -15, 1, 0}, {105, -420, 210, -28, 1}};
        return HE[k][power];
    }
    static SPOTFIT_INLINE constexpr float odd(int k, int power) {
        constexpr float HE[TERMS][TERMS] = {
            {1, 0, 0, 0, 0}, {-3, 1, 0, 0, 0}, {15, -10, 1, 0, 0}, {-105, 105, -21, 1, 0}, {945, -1260, 378, -36, 1}};
        return HE[k][power];
    }

    // The average and its derivatives, over exp(-q^2/2), as polynomials of q^2; that by the centre is
    // also over q.
    template <class L> struct Curvature {
        L value[TERMS], center[TERMS], width[TERMS + 1];

        SPOTFIT_INLINE explicit Curvature(L half) {  // 1 / (2 sigma^2)
            const L squared = half * half;
            const L c[TERMS] = {L(1.0f), half * (1.0f / 12.0f), squared * (1.0f / 480.0f),
                                squared * half * (1.0f / 40320.0f), squared * squared * (1.0f / 5806080.0f)};
            UNROLL
            for (int i = 0; i < TERMS; ++i) {
                value[i] = center[i] = c[i];  // the highest power's factor is 1
                width[i] = L(-2.0f * i) * c[i];
                UNROLL
                for (int k = i + 1; k < TERMS; ++k) {
                    value[i] = multiply_add(c[k], L(even(k, i)), value[i]);
                    center[i] = multiply_add(c[k], L(odd(k, i)), center[i]);
                    width[i] = multiply_add(c[k], L(-2.0f * k * even(k, i)), width[i]);
                }
                if (i > 0) width[i] += center[i - 1];
            }
            width[TERMS] = center[TERMS - 1];
        }
    };

    template <class L> struct Axis {
        L inverse, unit, begin, edge, slope, error;
        SPOTFIT_INLINE Axis(float first, L center, L sigma)
            : inverse(1.0f / (CENTER_UNIT * sigma)), unit(CENTER_UNIT * sigma),
              begin((first + 0.5f - center) * inverse), edge((first - 0.5f - center) * inverse),
              slope(exp2_negative(edge * edge * -LOG2_E)), error(error_function(edge, slope)) {}
        SPOTFIT_INLINE AxisProfile<L> at(int i) {
            const L before = edge, error_before = error, slope_before = slope;
            edge = multiply_add(L(float(i)), inverse, begin);
            slope = exp2_negative(edge * edge * -LOG2_E);
            error = error_function(edge, slope);
            const L u = HALF_ROOT_PI * (error - error_before);
            const L s = multiply_add(before, slope_before, multiply_add(-edge, slope, u));
            return {unit * u, unit * (slope_before - slope), unit * s};
        }
    };

    template <class L> struct ExactAxis {
        Axis<L> narrow;
        L middle;
        Curvature<L> curvature;
        MaskOf<L> wide;
        bool any_narrow, any_wide;  // in any lane, whose own results do not depend on that

        SPOTFIT_INLINE ExactAxis(float first, L center, L sigma)
            : narrow(first, center, sigma), middle((first - center) * narrow.inverse),
              curvature(narrow.inverse * narrow.inverse), wide(sigma >= WIDE), any_narrow(any(!wide)),
              any_wide(any(wide)) {}

        SPOTFIT_INLINE AxisProfile<L> at(int i) {
            AxisProfile<L> p = {};
            if (any_narrow) p = narrow.at(i);
            if (any_wide) {
                const AxisProfile<L> w = by_curvature(i);
                p = {select(wide, w.value, p.value), select(wide, w.center, p.center), select(wide, w.width, p.width)};
            }
            return p;
        }

      private:
        SPOTFIT_INLINE AxisProfile<L> by_curvature(int i) const {
            const L z = multiply_add(L(float(i)), narrow.inverse, middle), zz = z * z, qq = zz + zz;
            const L u = exp2_negative(zz * -LOG2_E);
            return {u * evaluate(curvature.value, qq), 2.0f * z * (u * evaluate(curvature.center, qq)),
                    u * evaluate(curvature.width, qq)};
        }
        template <int N> static SPOTFIT_INLINE L evaluate(const L (&c)[N], L x) {
            L sum = c[N - 1];
            UNROLL
            for (int k = N - 2; k >= 0; --k) sum = multiply_add(sum, x, c[k]);
            return sum;
        }
    };
};

struct Lorentzian {
    static constexpr float CENTER_UNIT = 0.5f, WIDTH_UNIT = 0.5f;
    static constexpr bool CENTER_SQUARED_IS_WIDTH = false;
    static constexpr float integral(int axes) { return axes == 2 ? PI * PI : PI * PI * PI; }

    template <class L> struct Axis {
        L inverse, begin;
        SPOTFIT_INLINE Axis(float first, L center, L width)
            : inverse(1.0f / width), begin((first - center) * inverse) {}
        SPOTFIT_INLINE AxisProfile<L> at(int i) const {
            const L q = multiply_add(L(float(i)), inverse, begin);
            const L u = 1.0f / multiply_add(q, q, L(1.0f)), quu = q * u * u;
            return {u, quu, q * quu};
        }
    };
    template <class L> using ExactAxis = Axis<L>;
};

// A product of what it is in a plane and, in volumes, along z. WIDTHS: the number of the width of each axis, x first,
// so that axes with the same number share one.
constexpr int highest(int first) { return first; }
template <class... Others> constexpr int highest(int first, Others... others) {
    return first > highest(others...) ? first : highest(others...);
}
template <bool FIRST, class A, class B> struct OneOf { using Type = A; };
template <class A, class B> struct OneOf<false, A, B> { using Type = B; };

template <class Lateral, class Axial, int... WIDTHS> struct Product {
    static constexpr int AXES = sizeof...(WIDTHS), SHAPE = AXES + 1 + highest(WIDTHS...);
    static constexpr bool SEPARABLE = true, EXPRESSION = false, ROTATED = false, LATTICE = false;
    static constexpr bool CENTER_SQUARED_IS_WIDTH =
        Lateral::CENTER_SQUARED_IS_WIDTH && (AXES == 2 || Axial::CENTER_SQUARED_IS_WIDTH);
    static constexpr float INTEGRAL = Lateral::integral(AXES);

    template <int AXIS> using Along = typename OneOf<(AXIS < 2), Lateral, Axial>::Type;

    // The shape parameter that is an axis' width, and whether an axis before it has the same.
    static SPOTFIT_INLINE constexpr int width(int axis) {
        constexpr int NUMBERS[] = {WIDTHS...};
        return AXES + NUMBERS[axis];
    }
    static SPOTFIT_INLINE constexpr bool shares_width(int axis) { return axis > 0 && width(axis) == width(axis - 1); }
    static SPOTFIT_INLINE constexpr float center_unit(int axis) {
        return axis < 2 ? Lateral::CENTER_UNIT : Axial::CENTER_UNIT;
    }
    static SPOTFIT_INLINE constexpr float width_unit(int axis) {
        return axis < 2 ? Lateral::WIDTH_UNIT : Axial::WIDTH_UNIT;
    }
    // Of the shape parameter j, which some axis has.
    static SPOTFIT_INLINE constexpr float unit(int j) {
        return j < AXES ? center_unit(j) : AXES == 3 && j == width(2) ? width_unit(2) : width_unit(0);
    }
};
template <class Along> using Round = Product<Along, Along, 0, 0>;
template <class Along> using Elliptical = Product<Along, Along, 0, 1>;
// A camera adds up light over its pixels, but not from one plane of a stack to the next.
template <class Lateral> using Round3d = Product<Lateral, Gaussian, 0, 0, 1>;
template <class Lateral> using Elliptical3d = Product<Lateral, Gaussian, 0, 1, 2>;

// ---- any other: f and its derivatives by all shape parameters, at a pixel ----
//
// `slopes` are d ln(integral) / dp. Steps are in the parameters' own units.

// What is the same for all of them.
struct AtPixels {
    static constexpr bool SEPARABLE = false, EXPRESSION = false, INTERPRETED = false, ROTATED = false, LATTICE = false;
    static constexpr float INTEGRAL = 2.0f * PI;
    static constexpr int AXES = 2;
    static SPOTFIT_INLINE constexpr float unit(int) { return 1.0f; }
};

// exp(-a^2/2 - b^2/2) with a = (dx cos + dy sin)/sigma_x and b = (dy cos - dx sin)/sigma_y.
//
// Widths and angle are polar coordinates of a symmetric matrix, R diag(sigma_x, sigma_y) R'.
// Where the spot is round, the angle has no derivative, and a search that gets there along a
// wrong axis does not get away. So a step adds ((d sigma_x, e), (e, d sigma_y)) within the axes,
// whose shear e = (sigma_x - sigma_y) d angle always has one. With bounds on widths or angle
// there is no such freedom, and no such step (see FitSettings::turns).
struct RotatedGaussian : AtPixels {
    static constexpr int SHAPE = 5, ALONG = 2, ACROSS = 3, ANGLE = 4;
    static constexpr bool ROTATED = true;

    template <class L> struct Pixels {
        L x, y, ax, ay, bx, by, inverse_x, inverse_y, turn;
        SPOTFIT_INLINE Pixels(const L (&p)[SHAPE], bool sheared)
            : x(p[0]), y(p[1]), inverse_x(1.0f / p[2]), inverse_y(1.0f / p[3]) {
            L sine, cosine;
            sine_and_cosine(p[ANGLE], sine, cosine);
            ax = cosine * inverse_x, ay = sine * inverse_x;
            bx = -sine * inverse_y, by = cosine * inverse_y;
            // Exactly 0 for a circle, whose angle is unknown.
            turn = inverse_x + inverse_y;
            if (!sheared) turn = turn * (p[2] - p[3]);
        }
        SPOTFIT_INLINE L at(L column, L row, L (&d)[SHAPE]) const {
            const L dx = column - x, dy = row - y;
            const L a = multiply_add(dx, ax, dy * ay), b = multiply_add(dx, bx, dy * by);
            const L f = exp2_negative(multiply_add(b, b, a * a) * (-0.5f * LOG2_E));
            const L fa = f * a, fb = f * b;
            d[0] = multiply_add(fa, ax, fb * bx);
            d[1] = multiply_add(fa, ay, fb * by);
            d[2] = fa * a * inverse_x;
            d[3] = fb * b * inverse_y;
            d[ANGLE] = fa * b * turn;
            return f;
        }
    };
    template <class L> static SPOTFIT_INLINE L integral(const L (&p)[SHAPE], L (&slopes)[SHAPE]) {
        slopes[2] = 1.0f / p[2], slopes[3] = 1.0f / p[3];
        return p[2] * p[3];
    }
};

// Moffat (1969): (1 + r^2/width^2)^-exponent, the profile of a star behind turbulent air, and
// of PSFs with wide wings.
struct Moffat : AtPixels {
    static constexpr int SHAPE = 4, EXPONENT = 3;
    static constexpr float INTEGRAL = PI;

    template <class L> struct Pixels {
        L x, y, inverse, exponent;
        SPOTFIT_INLINE Pixels(const L (&p)[SHAPE], bool)
            : x(p[0]), y(p[1]), inverse(1.0f / p[2]), exponent(p[EXPONENT]) {}
        SPOTFIT_INLINE L at(L column, L row, L (&d)[SHAPE]) const {
            const L dx = (column - x) * inverse, dy = (row - y) * inverse;
            const L rr = multiply_add(dx, dx, dy * dy), base = 1.0f + rr;
            const L log = logarithm(base);
            const L f = exp2_negative(log * exponent * -LOG2_E);
            const L steep = 2.0f * exponent * f / base * inverse;
            d[0] = steep * dx;
            d[1] = steep * dy;
            d[2] = steep * rr;
            d[EXPONENT] = -log * f;
            return f;
        }
    };
    // Finite for an exponent above 1 alone.
    template <class L> static SPOTFIT_INLINE L integral(const L (&p)[SHAPE], L (&slopes)[SHAPE]) {
        const L rest = 1.0f / (p[EXPONENT] - 1.0f);
        slopes[2] = 2.0f / p[2], slopes[EXPONENT] = -rest;
        return p[2] * p[2] * select(p[EXPONENT] > 1.0f, rest, L(NOT_A_NUMBER));
    }
};

// A measured PSF, a function of x, y and z that is given by numbers (lattice.h), seen in a plane. Its light is the same
// wherever it is.
struct MeasuredPsf : AtPixels {
    static constexpr int SHAPE = 3, Z = 2;
    static constexpr bool LATTICE = true;
    static constexpr float INTEGRAL = 1.0f;
};

// ---- all of them ----

template <class... Profiles> struct ProfileList { static constexpr int COUNT = sizeof...(Profiles); };

// The models in Python's table name their profiles by their places here.
using BuiltIn =
    ProfileList<Round<Gaussian>, Elliptical<Gaussian>, Round<IntegratedGaussian>, Elliptical<IntegratedGaussian>,
                RotatedGaussian, Round<Lorentzian>, Moffat, Round3d<Gaussian>, Elliptical3d<Gaussian>,
                Round3d<IntegratedGaussian>, Elliptical3d<IntegratedGaussian>>;

template <int PLACE, class List = BuiltIn> struct ProfileAt;
template <class First, class... Others> struct ProfileAt<0, ProfileList<First, Others...>> { using Type = First; };
template <int PLACE, class First, class... Others>
struct ProfileAt<PLACE, ProfileList<First, Others...>> : ProfileAt<PLACE - 1, ProfileList<Others...>> {};

// ---- what a fit is made of, as far as code differs; all else comes as numbers ----

constexpr int HELD_AT_RUN_TIME = -1;

// PLANES: pixels have weights or, for maximum likelihood, variances, and some may not count.
// HELD: a bit for each shape parameter that stays at its start value. FAST_AXES: of how many axes there are sums along
// each; the threads of a GPU that share a volume have no lines in common along z.
template <class Profile_, bool LIKELIHOOD_, bool PLANES_, int HELD_ = HELD_AT_RUN_TIME, int FAST_AXES_ = 3>
struct FitVariant {
    using Profile = Profile_;
    // Shape parameters; parameters of a step; and with amplitude and background.
    static constexpr int SHAPE = Profile::SHAPE, ALL = SHAPE + 2;
    static constexpr int N = LIKELIHOOD_ ? ALL : SHAPE;
    static constexpr bool LIKELIHOOD = LIKELIHOOD_, PLANES = PLANES_;
    static constexpr int HELD = HELD_, FAST_AXES = FAST_AXES_;
    // Sums along the axes are enough: the fast path.
    static constexpr bool PLAIN = Profile::SEPARABLE && Profile::AXES <= FAST_AXES && !LIKELIHOOD && !PLANES;
};

// Whether the planes are read-out variances, no weights.
template <class Variant> struct PlanesAreVariances { static constexpr bool value = Variant::LIKELIHOOD; };

template <class Along, class L, bool PLAIN> struct AxisFor { using Type = typename Along::template ExactAxis<L>; };
template <class Along, class L> struct AxisFor<Along, L, true> { using Type = typename Along::template Axis<L>; };
template <class Variant, class L, int AXIS>
using AxisOf = typename AxisFor<typename Variant::Profile::template Along<AXIS>, L, Variant::PLAIN>::Type;

// An axis of a profile from its pixel `first` on.
template <class Variant, int AXIS, class L>
SPOTFIT_INLINE AxisOf<Variant, L, AXIS> axis_from(float first, const L (&shape)[Variant::SHAPE]) {
    return {first, shape[AXIS], shape[Variant::Profile::width(AXIS)]};
}

// Where the array's order has what a step has at place j, and the other way round: the centre the other way round, the
// other parameters alike.
template <class Profile> SPOTFIT_INLINE constexpr int other_order(int j) {
    return j < Profile::AXES ? Profile::AXES - 1 - j : j;
}

// What a step of 1 along a shape parameter is, given where it starts.
template <class Variant, class L> SPOTFIT_INLINE L step_unit(const L* from, int j) {
    using P = typename Variant::Profile;
    if constexpr (!P::SEPARABLE) return L(1.0f);
    else {
        if (j >= Variant::SHAPE) return L(1.0f);
        return P::unit(j) * from[j < P::AXES ? P::width(j) : j];
    }
}

}  // namespace spotfit::SPOTFIT_ISA
