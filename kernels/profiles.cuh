// Profiles: one function per separable model, along one axis.
//
// A profile gives its value u and its derivatives with respect to the centre (u') and to
// the width (u°). Distances and derivatives are in units that spare divisions and factors:
// the derivatives are times CENTER_UNIT * width and WIDTH_UNIT * width, so that the steps
// that follow from them are steps in these units. An axis is asked for its pixels in turn.
//
// PROFILE names the model: GAUSSIAN (sampled), INTEGRATED (the Gaussian averaged over each
// pixel), LORENTZIAN; two more, ROTATED and CUSTOM, are no products (see pointwise.cuh).

#define GAUSSIAN 0
#define INTEGRATED 1
#define LORENTZIAN 2
#define ROTATED 3
#define CUSTOM 4
#define SEPARABLE (PROFILE <= LORENTZIAN)

#define PI 3.14159265358979324f

struct Profile {
    float value, center, width;
};

#if PROFILE == GAUSSIAN

// exp(-q^2/2) = exp2(-(CENTER_UNIT * q)^2), with CENTER_UNIT = sqrt(log2(e) / 2).
#define CENTER_UNIT 0.84932180028801905f
#define WIDTH_UNIT (CENTER_UNIT * CENTER_UNIT)
#define INTEGRAL (2.0f * PI)  // of the profile, for a width of 1
#define START_WIDTH 1.0f      // the width to begin with, over the spot's estimated sigma

struct Axis {
    float inverse, begin;

    __device__ __forceinline__ Axis(float first, float center, float width)
        : inverse(CENTER_UNIT / width), begin((first - center) * inverse) {}
    __device__ __forceinline__ Profile at(int i) const {
        const float q = fmaf(float(i), inverse, begin);
        const float u = exp2f(-(q * q)), qu = q * u;
        return {u, qu, q * qu};
    }
};

#elif PROFILE == INTEGRATED

#define CENTER_UNIT 1.41421356237309505f
#define WIDTH_UNIT 1.0f
#define INTEGRAL (2.0f * PI)
#define START_WIDTH 1.0f
#define HALF_ROOT_PI 0.88622692545275801f

// The integral of exp(-t^2 / 2 sigma^2) over a pixel, by the error function at its edges,
// which neighbours share.
struct Axis {
    float inverse, unit, begin, edge, error, slope;

    __device__ __forceinline__ Axis(float first, float center, float sigma)
        : inverse(1.0f / (CENTER_UNIT * sigma)), unit(CENTER_UNIT * sigma) {
        begin = (first + 0.5f - center) * inverse;
        edge = (first - 0.5f - center) * inverse;
        error = erff(edge);
        slope = expf(-(edge * edge));
    }
    __device__ __forceinline__ Profile at(int i) {
        const float before = edge, error_before = error, slope_before = slope;
        edge = fmaf(float(i), inverse, begin);
        error = erff(edge);
        slope = expf(-(edge * edge));
        const float u = HALF_ROOT_PI * (error - error_before);
        const float s = fmaf(before, slope_before, fmaf(-edge, slope, u));
        return {unit * u, unit * (slope_before - slope), unit * s};
    }
};

#elif PROFILE == LORENTZIAN

#define CENTER_UNIT 0.5f
#define WIDTH_UNIT 0.5f
#define INTEGRAL (PI * PI)
#define START_WIDTH 1.18f  // half its full width at half maximum, over a Gaussian's sigma

struct Axis {
    float inverse, begin;

    __device__ __forceinline__ Axis(float first, float center, float width)
        : inverse(1.0f / width), begin((first - center) * inverse) {}
    __device__ __forceinline__ Profile at(int i) const {
        const float q = fmaf(float(i), inverse, begin);
        const float u = 1.0f / fmaf(q, q, 1.0f), quu = q * u * u;
        return {u, quu, q * quu};
    }
};

#endif

// Sums of u, u', u° and of their products along an axis.
struct AxisSums {
    float u, c, s, uu, uc, us, cc, cs, ss;

    __device__ __forceinline__ void add(const Profile& p) {
        u += p.value;
        c += p.center;
        s += p.width;
        uu = fmaf(p.value, p.value, uu);
        uc = fmaf(p.value, p.center, uc);
        us = fmaf(p.value, p.width, us);
        cc = fmaf(p.center, p.center, cc);
        cs = fmaf(p.center, p.width, cs);
        ss = fmaf(p.width, p.width, ss);
    }
};
