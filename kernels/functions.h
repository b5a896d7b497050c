// Exponentials, logarithms, error functions and angles of a lane. A GPU has its own; on a CPU
// they are polynomials (fitted for the smallest largest error in single precision), which work
// on all lanes at once.
#pragma once
#include "lanes.h"

namespace spotfit::SPOTFIT_ISA {

template <int N, class L> SPOTFIT_INLINE L polynomial(const float (&c)[N], L x) {
    L sum = multiply_add(x, L(c[N - 1]), L(c[N - 2]));
    UNROLL
    for (int k = N - 3; k >= 0; --k) sum = multiply_add(sum, x, L(c[k]));
    return sum;
}

// ln(1 + x) = x + x^2 R(x), for x between -0.3 and 0.42.
template <class L> SPOTFIT_INLINE L log1p_remainder(L x) {
    constexpr float R[] = {-0.49999988079071045f, 0.33333346247673035f, -0.2500157952308655f,
                           0.20000939071178436f,  -0.1660836935043335f, 0.14199650287628174f,
                           -0.13266031444072723f, 0.12806610763072968f, -0.07451186329126358f};
    return polynomial(R, x);
}

// x = 2^exponent (1 + excess), with 1 + excess between the roots of 1/2 and of 2.
template <class L> struct LogParts { L exponent, excess; };
template <class L> SPOTFIT_INLINE LogParts<L> log_parts(L x) {
    const auto bits = bits_of(x);
    const auto exponent = (bits - 0x3F3504F3) >> 23;
    return {to_floats(exponent), from_bits(bits - (exponent << 23)) - 1.0f};
}
constexpr float LN_2 = 0.6931471805599453f, LOG2_E = 1.44269504088896341f;

#if defined(__CUDACC_RTC__)

SPOTFIT_INLINE float exp2_negative(float x) { return exp2f(x); }
SPOTFIT_INLINE float error_function(float z, float) { return erff(z); }
SPOTFIT_INLINE float error_function(float z) { return erff(z); }
SPOTFIT_INLINE float hyperbolic_tangent(float x) { return tanhf(x); }
SPOTFIT_INLINE float exponential(float x) { return expf(x); }
SPOTFIT_INLINE float logarithm(float x) { return logf(x); }
SPOTFIT_INLINE void sine_and_cosine(float x, float& sine, float& cosine) { sincospif(x * (1.0f / PI), &sine, &cosine); }
SPOTFIT_INLINE float sine(float x) { return sinf(x); }
SPOTFIT_INLINE float cosine(float x) { return cosf(x); }
SPOTFIT_INLINE float tangent(float x) { return tanf(x); }
SPOTFIT_INLINE float arctangent(float y, float x) { return atan2f(y, x); }
SPOTFIT_INLINE float round_up(float x) { return ceilf(x); }

#else

// To the nearest whole number, for |x| < 2^22.
template <class L> SPOTFIT_INLINE L nearest(L x) { return (x + 12582912.0f) - 12582912.0f; }
SPOTFIT_INLINE double nearest(double x) { return (x + 6755399441055744.0) - 6755399441055744.0; }
template <int W> SPOTFIT_INLINE IntsOf<W> to_ints(Lanes<W> x) { return __builtin_convertvector(x.v, IntsOf<W>); }
SPOTFIT_INLINE int to_ints(float x) { return int(x); }
template <class L> SPOTFIT_INLINE L round_up(L x) {
    const L n = nearest(x);
    return select(n < x, n + 1.0f, n);
}

// 2^x for x <= 0, with a relative error below 2.5e-7; x below -126 counts as -126.
template <class L> SPOTFIT_INLINE L exp2_negative(L x) {
    constexpr float EXP2[] = {1.0000001192092896f,   0.6931471824645996f,   0.2402210682630539f,
                              0.055503569543361664f, 0.009676031768321991f, 0.0013390863314270973f};
    x = select(x > L(-126.0f), x, L(-126.0f));
    const L n = nearest(x);
    return polynomial(EXP2, x - n) * from_bits((to_ints(n) + 127) << 23);
}

// e^x: at least e^-87, and infinite above 88.
template <class L> SPOTFIT_INLINE L exponential(L x) {
    constexpr float EXP[] = {0.49999994f, 0.16666521f, 0.041668292f, 0.008368716f, 0.0013818698f};
    const L within = clamp(x, L(-87.0f), L(88.0f));
    const L n = nearest(within * LOG2_E);
    // Less n ln(2), in two parts; the first has few enough bits for an exact product.
    const L rest = multiply_add(n, L(-1.428606765330187e-6f), multiply_add(n, L(-0.693145751953125f), within));
    const L result = 1.0f + multiply_add(rest * rest, polynomial(EXP, rest), rest);
    return select(x > 88.0f, L(INFINITE), result * from_bits((to_ints(n) + 127) << 23));
}

template <class L> SPOTFIT_INLINE L logarithm(L x) {
    const LogParts<L> parts = log_parts(x);
    const L own = multiply_add(parts.excess * parts.excess, log1p_remainder(parts.excess), parts.excess);
    const L result = multiply_add(parts.exponent, L(LN_2), own);
    const L finite = select(x < INFINITE, result, L(INFINITE));
    return select(x > 0.0f, finite, select(x == 0.0f, L(-INFINITE), L(NOT_A_NUMBER)));
}

// erf(z), where exp(-z^2) is known already.
template <class L> SPOTFIT_INLINE L error_function(L z, L gauss) {
    constexpr float ERF[] = {1.1283791065216064f,    -0.37612342834472656f, 0.11280316859483719f,
                             -0.026715055108070374f, 0.004921761807054281f, -0.0005648059886880219f};
    constexpr float ERFCX[] = {-0.0012303375406190753f, 0.4128965735435486f, 0.29018810391426086f, 0.6008262038230896f,
                               -0.3071137070655823f};
    const L size = absolute(z);
    const L tail = gauss * polynomial(ERFCX, 1.0f / multiply_add(size, L(0.7f), L(1.0f)));
    const L far = select(z < 0.0f, tail - 1.0f, 1.0f - tail);
    return select(size < 1.0f, z * polynomial(ERF, z * z), far);
}

template <class L> SPOTFIT_INLINE L error_function(L z) { return error_function(z, exp2_negative(z * z * -LOG2_E)); }

template <class L> SPOTFIT_INLINE L hyperbolic_tangent(L x) {
    constexpr float TANH[] = {-0.333333f, 0.13331936f, -0.053784717f, 0.020798625f, -0.0058979667f};
    const L size = absolute(x), squared = x * x;
    const L decay = exp2_negative(size * (-2.0f * LOG2_E)), large = (1.0f - decay) / (1.0f + decay);
    const L near = multiply_add(x * squared, polynomial(TANH, squared), x);
    return select(size < 0.6f, near, select(x < 0.0f, -large, select(is_nan(x), x, large)));
}

// To 1e-7, for |x| up to some thousands.
template <class L> SPOTFIT_INLINE void sine_and_cosine(L x, L& sine, L& cosine) {
    constexpr float SIN[] = {1.0f, -0.16666667f, 8.3333310e-3f, -1.9840874e-4f, 2.7525562e-6f};
    constexpr float COS[] = {1.0f, -0.5f, 4.1666646e-2f, -1.3887316e-3f, 2.4433157e-5f};
    const L n = nearest(x * 0.63661977236758134f);  // quarter turns
    L rest = multiply_add(n, L(-1.5703125f), x);    // less n pi/2, in three parts
    rest = multiply_add(n, L(-4.837512969970703e-4f), rest);
    rest = multiply_add(n, L(-7.549789948768648e-8f), rest);
    const L squared = rest * rest, s = rest * polynomial(SIN, squared), c = polynomial(COS, squared);
    const auto turns = to_ints(n);
    const MaskOf<L> odd = to_floats(turns & 1) > 0.0f;
    const MaskOf<L> back = to_floats(turns & 2) > 0.0f, ahead = to_floats((turns + 1) & 2) > 0.0f;
    sine = select(odd, c, s);
    cosine = select(odd, s, c);
    sine = select(back, -sine, sine);
    cosine = select(ahead, -cosine, cosine);
}

template <class L> SPOTFIT_INLINE L sine(L x) {
    L sine, cosine;
    sine_and_cosine(x, sine, cosine);
    return sine;
}
template <class L> SPOTFIT_INLINE L cosine(L x) {
    L sine, cosine;
    sine_and_cosine(x, sine, cosine);
    return cosine;
}
template <class L> SPOTFIT_INLINE L tangent(L x) {
    L sine, cosine;
    sine_and_cosine(x, sine, cosine);
    return sine / cosine;
}

// The angle of (x, y), between -pi and pi.
template <class L> SPOTFIT_INLINE L arctangent(L y, L x) {
    constexpr float ATAN[] = {-0.33333153f, 0.19993767f,  -0.14211002f,  0.106657684f,
                              -0.07551656f, 0.043204635f, -0.016363103f, 0.0029193931f};
    const L ax = absolute(x), ay = absolute(y);
    const MaskOf<L> steep = ay > ax;
    const L least = select(steep, ax, ay), most = select(steep, ay, ax);
    const L t = select(most > 0.0f, least / most, L(0.0f));
    const L squared = t * t;
    L angle = multiply_add(t * squared, polynomial(ATAN, squared), t);
    angle = select(steep, 0.5f * PI - angle, angle);
    angle = select(x < 0.0f, PI - angle, angle);
    return select(y < 0.0f, -angle, angle);
}

#endif

}  // namespace spotfit::SPOTFIT_ISA
