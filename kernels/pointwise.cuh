// Profiles that are no products: f and its derivatives at a point.
//
// A step of their search is in the parameters' own units: pixels, and radians for angles.
//
// Widths and angle of a turned Gaussian are polar coordinates of a symmetric matrix,
// R diag(sigma_x, sigma_y) R'. Where the spot is round, the angle has no derivative, and a
// search that gets there along a wrong axis does not get away. So a step adds
// ((d sigma_x, e), (e, d sigma_y)) within the axes, whose shear e = (sigma_x - sigma_y) d angle
// always has one (SHEARED). With bounds on widths or angle, there is no such freedom.

#include "shape.cuh"

#if PROFILE == ROTATED

#define DEGREE (PI / 180.0f)
#define INTEGRAL (2.0f * PI)

// Adds a shear to widths and angle; the axes keep their names.
__device__ __forceinline__ void add_shear(float shear, float& along, float& across,
                                          float& angle) {
    const float middle = 0.5f * (along + across), half = 0.5f * (along - across);
    const float size = sqrtf(half * half + shear * shear);
    const float turn = 0.5f * atan2f(shear, fabsf(half));
    along = half < 0.0f ? middle - size : middle + size;
    across = half < 0.0f ? middle + size : middle - size;
    angle += half < 0.0f ? -turn : turn;
}

// exp(-a^2/2 - b^2/2) with a = (dx cos + dy sin) / sigma_x and b = (dy cos - dx sin) / sigma_y.
struct Model {
    float x, y, ax, ay, bx, by, inverse_x, inverse_y, turn;

    __device__ __forceinline__ explicit Model(const float (&p)[SHAPE])
        : x(p[IS_X]), y(p[IS_Y]), inverse_x(1.0f / p[WIDTH_X]), inverse_y(1.0f / p[WIDTH_Y]) {
        float s, c;
        sincospif(p[ANGLE] * (1.0f / PI), &s, &c);
        ax = c * inverse_x, ay = s * inverse_x;
        bx = -s * inverse_y, by = c * inverse_y;
        // Exactly 0 for a circle, whose angle is unknown.
        turn = (inverse_x + inverse_y) * (SHEARED ? 1.0f : p[WIDTH_X] - p[WIDTH_Y]);
    }
    __device__ __forceinline__ float at(float column, float row, float (&d)[SHAPE]) const {
        const float dx = column - x, dy = row - y;
        const float a = fmaf(dx, ax, dy * ay), b = fmaf(dx, bx, dy * by);
        const float aa = a * a;
        const float f = exp2f(-0.72134752044448170f * fmaf(b, b, aa));  // log2(e) / 2
        const float fa = f * a, fb = f * b;
        d[IS_X] = fmaf(fa, ax, fb * bx);
        d[IS_Y] = fmaf(fa, ay, fb * by);
        d[WIDTH_X] = fa * a * inverse_x;
        d[WIDTH_Y] = fb * b * inverse_y;
        d[ANGLE] = fa * b * turn;
        return f;
    }
};

#elif PROFILE == CUSTOM

// Somebody's own, which comes before the files of this folder.
typedef OwnProfile Model;

#endif
