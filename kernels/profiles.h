// The profiles of a spot, and what a fit is made of. A new profile is one struct here and one
// row in the table of models (napari_spotfit/models/profiles.py).
//
// The first shape parameters are always the centre's x and y. A separable profile says what it
// is along one axis: f(x, y) = u(x) v(y). Any other one says what it is at a pixel.
#pragma once
#include "functions.h"

namespace spotfit::SPOTFIT_ISA {

// ---- separable: u, its derivative by the centre, and its derivative by the width ----
//
// Distances and derivatives are in units that spare divisions and factors: the derivatives are
// times CENTER_UNIT * width and WIDTH_UNIT * width, so that the steps that follow from them are
// steps in these units. CENTER_SQUARED_IS_WIDTH: whether u times the derivative by the width is
// the square of that by the centre. INTEGRAL is that of a profile whose widths are 1. An axis is asked for
// its pixels in turn, from `first` on.

template <class L> struct AxisProfile { L value, center, width; };

struct Gaussian {
    static constexpr float CENTER_UNIT = 0.84932180028801905f;  // root of log2(e)/2
    static constexpr float WIDTH_UNIT = CENTER_UNIT * CENTER_UNIT, INTEGRAL = 2.0f * PI;
    static constexpr bool CENTER_SQUARED_IS_WIDTH = true;

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
};

// The Gaussian averaged over each pixel: by the error function at its edges, which neighbours share,
// where it is narrow. The difference of two such numbers knows less and less of a wide one; that is
// better known by its curvature within the pixel: the average is the sum of c_k He_2k(q) exp(-q^2/2)
// with c_k = (1 / 2 sigma)^2k / (2k + 1)! and Hermite's polynomials He, whose derivatives are of the
// same kind.
struct IntegratedGaussian {
    static constexpr float CENTER_UNIT = 1.41421356237309505f, WIDTH_UNIT = 1.0f;
    static constexpr float INTEGRAL = 2.0f * PI, HALF_ROOT_PI = 0.88622692545275801f;
    // In pixels; the series with c_3 is then exact to single precision.
    static constexpr float WIDE = 1.75f;
    static constexpr bool CENTER_SQUARED_IS_WIDTH = false;

    template <class L> struct Axis {
        L inverse, unit, begin, edge, slope, error, middle;
        MaskOf<L> wide;
        bool any_narrow, any_wide;  // in any lane, whose own results do not depend on that

        SPOTFIT_INLINE Axis(float first, L center, L sigma)
            : inverse(1.0f / (CENTER_UNIT * sigma)), unit(CENTER_UNIT * sigma),
              begin((first + 0.5f - center) * inverse), edge((first - 0.5f - center) * inverse),
              slope(exp2_negative(edge * edge * -LOG2_E)), error(error_function(edge, slope)),
              middle((first - center) * inverse), wide(sigma >= WIDE), any_narrow(any(!wide)), any_wide(any(wide)) {}

        SPOTFIT_INLINE AxisProfile<L> at(int i) {
            AxisProfile<L> p = {};
            if (any_narrow) p = between_edges(i);
            if (any_wide) {
                const AxisProfile<L> w = by_curvature(i);
                p = {select(wide, w.value, p.value), select(wide, w.center, p.center), select(wide, w.width, p.width)};
            }
            return p;
        }

      private:
        SPOTFIT_INLINE AxisProfile<L> between_edges(int i) {
            const L before = edge, error_before = error, slope_before = slope;
            edge = multiply_add(L(float(i)), inverse, begin);
            slope = exp2_negative(edge * edge * -LOG2_E);
            error = error_function(edge, slope);
            const L u = HALF_ROOT_PI * (error - error_before);
            const L s = multiply_add(before, slope_before, multiply_add(-edge, slope, u));
            return {unit * u, unit * (slope_before - slope), unit * s};
        }

        SPOTFIT_INLINE AxisProfile<L> by_curvature(int i) const {
            const L z = multiply_add(L(float(i)), inverse, middle), zz = z * z, v = zz + zz;  // v = q^2
            const L u = exp2_negative(zz * -LOG2_E);
            const L c = inverse * inverse, c1 = c * (1.0f / 12.0f), c2 = c * c * (1.0f / 480.0f);
            const L c3 = c * c * c * (1.0f / 40320.0f);
            const L he2 = v - 1.0f, he4 = multiply_add(v, v - 6.0f, L(3.0f));
            const L he6 = multiply_add(v, multiply_add(v, v - 15.0f, L(45.0f)), L(-15.0f));
            const L he8 = multiply_add(v, multiply_add(v, multiply_add(v, v - 28.0f, L(210.0f)), L(-420.0f)), L(105.0f));
            // The odd ones, over q.
            const L he3 = v - 3.0f, he5 = multiply_add(v, v - 10.0f, L(15.0f));
            const L he7 = multiply_add(v, multiply_add(v, v - 21.0f, L(105.0f)), L(-105.0f));
            const L value = multiply_add(c1, he2, multiply_add(c2, he4, c3 * he6));
            const L center = multiply_add(c1, he3, multiply_add(c2, he5, c3 * he7));
            const L width = multiply_add(c1, he4 + he2, multiply_add(c2, he6 + he4, c3 * (he8 + he6)));
            return {multiply_add(u, value, u), 2.0f * z * multiply_add(u, center, u), u * (v + width)};
        }
    };
};

struct Lorentzian {
    static constexpr float CENTER_UNIT = 0.5f, WIDTH_UNIT = 0.5f, INTEGRAL = PI * PI;
    static constexpr bool CENTER_SQUARED_IS_WIDTH = false;

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
};

// One width for both axes, or one each.
template <class Along> struct Round : Along {
    static constexpr int SHAPE = 3, WIDTH_X = 2, WIDTH_Y = 2;
    static constexpr bool SEPARABLE = true, EXPRESSION = false, TURNED = false;
};
template <class Along> struct Elliptical : Along {
    static constexpr int SHAPE = 4, WIDTH_X = 2, WIDTH_Y = 3;
    static constexpr bool SEPARABLE = true, EXPRESSION = false, TURNED = false;
};

// ---- any other: f and its derivatives by all shape parameters, at a pixel ----
//
// `slopes` are d ln(integral) / dp. Steps are in the parameters' own units.

// What is the same for all of them.
struct AtPixels {
    static constexpr bool SEPARABLE = false, EXPRESSION = false, TURNED = false;
    static constexpr float CENTER_UNIT = 1.0f, WIDTH_UNIT = 1.0f, INTEGRAL = 2.0f * PI;
    static constexpr int WIDTH_X = 2, WIDTH_Y = 2;
};

// exp(-a^2/2 - b^2/2) with a = (dx cos + dy sin)/sigma_x and b = (dy cos - dx sin)/sigma_y.
//
// Widths and angle are polar coordinates of a symmetric matrix, R diag(sigma_x, sigma_y) R'.
// Where the spot is round, the angle has no derivative, and a search that gets there along a
// wrong axis does not get away. So a step adds ((d sigma_x, e), (e, d sigma_y)) within the axes,
// whose shear e = (sigma_x - sigma_y) d angle always has one. With bounds on widths or angle
// there is no such freedom, and no such step (see FitSettings::turns).
struct RotatedGaussian : AtPixels {
    static constexpr int SHAPE = 5, WIDTH_Y = 3, ANGLE = 4;
    static constexpr bool TURNED = true;

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

// ---- what a fit is made of, as far as code differs; all else comes as numbers ----

constexpr int HELD_AT_RUN_TIME = -1;

// PLANES: pixels have weights or, for maximum likelihood, variances, and some may not count.
// HELD: a bit for each shape parameter that stays at its start value.
template <class Profile_, bool LIKELIHOOD_, bool PLANES_, int HELD_ = HELD_AT_RUN_TIME>
struct FitVariant {
    using Profile = Profile_;
    // Shape parameters; parameters of a step; and with amplitude and background.
    static constexpr int SHAPE = Profile::SHAPE, ALL = SHAPE + 2;
    static constexpr int N = LIKELIHOOD_ ? ALL : SHAPE;
    static constexpr bool LIKELIHOOD = LIKELIHOOD_, PLANES = PLANES_;
    static constexpr int HELD = HELD_;
    // Sums along the axes are enough: the fast path.
    static constexpr bool PLAIN = Profile::SEPARABLE && !LIKELIHOOD && !PLANES;
};

// The search that maximum likelihood begins with: where there are planes, they are variances.
template <class Variant> struct WithVariances : Variant {
    static constexpr bool LIKELIHOOD = false, PLAIN = false;
    static constexpr int N = Variant::SHAPE;
};
template <class Variant, bool PLANES = Variant::PLANES> struct LeastSquaresBefore {
    using Type = WithVariances<Variant>;
};
template <class Variant> struct LeastSquaresBefore<Variant, false> {
    using Type = FitVariant<typename Variant::Profile, false, false, Variant::HELD>;
};
template <class Variant> struct PlanesAreVariances { static constexpr bool value = Variant::LIKELIHOOD; };
template <class Variant> struct PlanesAreVariances<WithVariances<Variant>> { static constexpr bool value = true; };

// What a step of 1 along a shape parameter is, given where it starts.
template <class Variant, class L> SPOTFIT_INLINE L step_unit(const L* from, int j) {
    using P = typename Variant::Profile;
    if (!P::SEPARABLE || j >= Variant::SHAPE) return L(1.0f);
    if (j < 2) return P::CENTER_UNIT * from[j == 0 ? P::WIDTH_X : P::WIDTH_Y];
    return P::WIDTH_UNIT * from[j];
}

}  // namespace spotfit::SPOTFIT_ISA
