// A lane type L is what the mathematics is written over: one float on a GPU (or double, for
// sums over a large ROI), LANES floats side by side on a CPU. Code written for L knows no
// difference: decisions are masks, and loops end when no lane needs them any more.
#pragma once

#if defined(__CUDACC_RTC__)
#define SPOTFIT_INLINE __device__ __forceinline__
#define SPOTFIT_INLINE_LAMBDA
#define UNROLL _Pragma("unroll")
// Pixels in registers need loops without counters; elsewhere they are short enough as they are.
#define UNROLL_PIXELS _Pragma("unroll (Roi::UNROLLED)")
#define UNROLL_LINES _Pragma("unroll (Roi::LINES_UNROLLED)")
#else
#define SPOTFIT_INLINE inline __attribute__((always_inline))
#define SPOTFIT_INLINE_LAMBDA __attribute__((always_inline))
#define UNROLL _Pragma("clang loop unroll(full)")
#define UNROLL_PIXELS
#define UNROLL_LINES
#endif
// What such a loop does is in the code once.
#define ONE_IN_CODE _Pragma("unroll 1")
// Of N x N matrices, loops that need no unrolling would be most of the code where N is large.
#define SPOTFIT_PRAGMA(text) _Pragma(#text)
#define UNROLL_MATRIX(N) SPOTFIT_PRAGMA(unroll((N) <= 7 ? (N) : 1))

namespace spotfit::SPOTFIT_ISA {

constexpr float INFINITE = __builtin_bit_cast(float, 0x7f800000);
constexpr float NOT_A_NUMBER = __builtin_bit_cast(float, 0x7fc00000);
constexpr float PI = 3.14159265358979324f, ROOT_TWO_PI = 2.50662827463100050f;

template <class L> struct Lane;
template <class L> using MaskOf = typename Lane<L>::Mask;

// ---- one number ----
template <> struct Lane<float> {
    using Mask = bool;
    using Ints = int;
};
template <> struct Lane<double> {
    using Mask = bool;
    using Ints = int;
};

SPOTFIT_INLINE float select(bool mask, float yes, float no) { return mask ? yes : no; }
SPOTFIT_INLINE double select(bool mask, double yes, double no) { return mask ? yes : no; }
SPOTFIT_INLINE bool any(bool mask) { return mask; }
SPOTFIT_INLINE bool all(bool mask) { return mask; }
SPOTFIT_INLINE int count(bool mask) { return mask; }
SPOTFIT_INLINE double multiply_add(double a, double b, double c) { return a * b + c; }
#if defined(__CUDACC_RTC__)
SPOTFIT_INLINE float absolute(float x) { return fabsf(x); }
SPOTFIT_INLINE double absolute(double x) { return fabs(x); }
SPOTFIT_INLINE double square_root(double x) { return sqrt(x); }
SPOTFIT_INLINE double to_nearest(double x) { return rint(x); }
SPOTFIT_INLINE float multiply_add(float a, float b, float c) { return fmaf(a, b, c); }
SPOTFIT_INLINE float square_root(float x) { return sqrtf(x); }
SPOTFIT_INLINE int bits_of(float x) { return __float_as_int(x); }
SPOTFIT_INLINE float from_bits(int x) { return __int_as_float(x); }
#else
SPOTFIT_INLINE float absolute(float x) { return __builtin_fabsf(x); }
SPOTFIT_INLINE double absolute(double x) { return __builtin_fabs(x); }
SPOTFIT_INLINE double square_root(double x) { return __builtin_sqrt(x); }
SPOTFIT_INLINE double to_nearest(double x) { return __builtin_rint(x); }
SPOTFIT_INLINE float multiply_add(float a, float b, float c) { return a * b + c; }
SPOTFIT_INLINE float square_root(float x) { return __builtin_sqrtf(x); }
SPOTFIT_INLINE int bits_of(float x) { return __builtin_bit_cast(int, x); }
SPOTFIT_INLINE float from_bits(int x) { return __builtin_bit_cast(float, x); }
#endif
SPOTFIT_INLINE float to_floats(int x) { return float(x); }

// ---- W numbers ----
#if !defined(__CUDACC_RTC__)

template <int W> using FloatsOf = float __attribute__((ext_vector_type(W)));
template <int W> using IntsOf = int __attribute__((ext_vector_type(W)));

// True or false in each lane: all bits of it, or none.
template <int W> struct LaneMask {
    using Ints = IntsOf<W>;
    Ints v;

    LaneMask() = default;
    SPOTFIT_INLINE LaneMask(Ints x) : v(x) {}
    SPOTFIT_INLINE LaneMask(bool x) : v(x ? ~Ints{} : Ints{}) {}
    friend SPOTFIT_INLINE LaneMask operator&(LaneMask a, LaneMask b) { return a.v & b.v; }
    friend SPOTFIT_INLINE LaneMask operator|(LaneMask a, LaneMask b) { return a.v | b.v; }
    friend SPOTFIT_INLINE LaneMask operator!(LaneMask a) { return ~a.v; }
    friend SPOTFIT_INLINE bool any(LaneMask a) { return __builtin_reduce_or(a.v) != 0; }
    friend SPOTFIT_INLINE bool all(LaneMask a) { return __builtin_reduce_and(a.v) != 0; }
    friend SPOTFIT_INLINE int count(LaneMask a) { return -__builtin_reduce_add(a.v); }
};

template <int W> struct Lanes {
    using Floats = FloatsOf<W>;
    using Ints = IntsOf<W>;
    using Mask = LaneMask<W>;
    Floats v;

    Lanes() = default;
    SPOTFIT_INLINE Lanes(float x) : v(x) {}
    SPOTFIT_INLINE Lanes(Floats x) : v(x) {}

    friend SPOTFIT_INLINE Lanes operator+(Lanes a, Lanes b) { return a.v + b.v; }
    friend SPOTFIT_INLINE Lanes operator-(Lanes a, Lanes b) { return a.v - b.v; }
    friend SPOTFIT_INLINE Lanes operator*(Lanes a, Lanes b) { return a.v * b.v; }
    friend SPOTFIT_INLINE Lanes operator/(Lanes a, Lanes b) { return a.v / b.v; }
    friend SPOTFIT_INLINE Lanes operator-(Lanes a) { return -a.v; }
    SPOTFIT_INLINE Lanes& operator+=(Lanes b) { return v += b.v, *this; }
    SPOTFIT_INLINE Lanes& operator-=(Lanes b) { return v -= b.v, *this; }
    SPOTFIT_INLINE Lanes& operator*=(Lanes b) { return v *= b.v, *this; }
    friend SPOTFIT_INLINE Mask operator<(Lanes a, Lanes b) { return Mask(a.v < b.v); }
    friend SPOTFIT_INLINE Mask operator<=(Lanes a, Lanes b) { return Mask(a.v <= b.v); }
    friend SPOTFIT_INLINE Mask operator>(Lanes a, Lanes b) { return Mask(a.v > b.v); }
    friend SPOTFIT_INLINE Mask operator>=(Lanes a, Lanes b) { return Mask(a.v >= b.v); }
    friend SPOTFIT_INLINE Mask operator==(Lanes a, Lanes b) { return Mask(a.v == b.v); }
    friend SPOTFIT_INLINE Mask operator!=(Lanes a, Lanes b) { return Mask(a.v != b.v); }

    friend SPOTFIT_INLINE Lanes select(Mask mask, Lanes yes, Lanes no) { return mask.v ? yes.v : no.v; }
    // Fused where the machine can.
    friend SPOTFIT_INLINE Lanes multiply_add(Lanes a, Lanes b, Lanes c) { return a.v * b.v + c.v; }
    friend SPOTFIT_INLINE Lanes square_root(Lanes x) { return __builtin_elementwise_sqrt(x.v); }
    friend SPOTFIT_INLINE Lanes absolute(Lanes x) { return __builtin_elementwise_abs(x.v); }
    friend SPOTFIT_INLINE Ints bits_of(Lanes x) { return (Ints)x.v; }
};
template <int W> struct Lane<Lanes<W>> {
    using Mask = LaneMask<W>;
    using Ints = IntsOf<W>;
};
template <int W> SPOTFIT_INLINE Lanes<W> from_bits(IntsOf<W> x) { return (FloatsOf<W>)x; }
template <int W> SPOTFIT_INLINE Lanes<W> to_floats(IntsOf<W> x) { return __builtin_convertvector(x, FloatsOf<W>); }

#endif

// ---- both ----
// A whole number that is known when code is compiled.
template <int N> struct IntOf { static constexpr int value = N; };

template <class L> SPOTFIT_INLINE L lower_of(L a, L b) { return select(a < b, a, b); }
template <class L> SPOTFIT_INLINE L higher_of(L a, L b) { return select(a > b, a, b); }
#if defined(__CUDACC_RTC__)
SPOTFIT_INLINE float lower_of(float a, float b) { return fminf(a, b); }
SPOTFIT_INLINE float higher_of(float a, float b) { return fmaxf(a, b); }
#endif
// NaN stays NaN.
template <class L> SPOTFIT_INLINE L clamp(L x, L low, L high) {
    return select(x < low, low, select(x > high, high, x));
}
// Where the mask is true the new value is kept, elsewhere the kept one comes back.
template <class L> SPOTFIT_INLINE void keep_or_restore(MaskOf<L> mask, L& value, L& kept) {
    value = select(mask, value, kept);
#if defined(__AVX__) && !defined(__AVX512F__)
    // Else the compiler makes it a masked store, which takes some processors ten times as long.
    __asm__("" : "+x"(value.v));
#endif
    kept = value;
}
template <class Number> SPOTFIT_INLINE void keep_or_restore_one(bool mask, Number& value, Number& kept) {
    if (mask) kept = value;
    else value = kept;
}
SPOTFIT_INLINE void keep_or_restore(bool mask, float& value, float& kept) { keep_or_restore_one(mask, value, kept); }
SPOTFIT_INLINE void keep_or_restore(bool mask, double& value, double& kept) { keep_or_restore_one(mask, value, kept); }
template <class L> SPOTFIT_INLINE MaskOf<L> is_nan(L x) { return x != x; }
template <class L> SPOTFIT_INLINE L square(L x) { return x * x; }

}  // namespace spotfit::SPOTFIT_ISA
