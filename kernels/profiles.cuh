// Profiles: one function per separable model, along one axis.
//
// A profile gives its value u and its derivatives with respect to the centre (u') and to
// sigma (u°). Distances and derivatives are in units that spare divisions and factors: the
// derivatives are times CENTER_UNIT * sigma and SIGMA_UNIT * sigma, so that the steps that
// follow from them are steps in these units.

struct Profile {
    float value, center, sigma;
};

// exp(-q^2/2) = exp2(-(CENTER_UNIT * q)^2), with CENTER_UNIT = sqrt(log2(e) / 2).
#define CENTER_UNIT 0.84932180028801905f
#define SIGMA_UNIT (CENTER_UNIT * CENTER_UNIT)

// The Gaussian at the distance q / CENTER_UNIT, in units of sigma.
__device__ __forceinline__ Profile gaussian(float q) {
    const float u = exp2f(-(q * q)), qu = q * u;
    return {u, qu, q * qu};
}

// Sums of u, u', u° and of their products along an axis.
struct AxisSums {
    float u, c, s, uu, uc, us, cc, cs, ss;

    __device__ __forceinline__ void add(const Profile& p) {
        u += p.value;
        c += p.center;
        s += p.sigma;
        uu = fmaf(p.value, p.value, uu);
        uc = fmaf(p.value, p.center, uc);
        us = fmaf(p.value, p.sigma, us);
        cc = fmaf(p.center, p.center, cc);
        cs = fmaf(p.center, p.sigma, cs);
        ss = fmaf(p.sigma, p.sigma, ss);
    }
};
