// Sums over the pixels, for models and estimators that need to visit each.
//
// With d = (f_1, ..., f_K, f, 1), the profile's derivatives, itself and 1, a visit adds up
// S = sum of w d d' (its upper triangle) and T = sum of q d. Least squares has w the weight
// and q = w g, and from S and T follows all that the fast path has from its sums along the
// axes: the amplitudes, and Kaufman's Jacobian as the Schur complement of S on (f, 1).

#include "room.cuh"

#define IS_F SHAPE
#define IS_ONE (SHAPE + 1)

typedef Equations<PARAMETERS> Sums;

// Calls use(place, f, d) for each of the lane's own pixels, d being the derivatives in steps'
// units, and end_row() after each row.
template <typename Use, typename EndRow>
__device__ __forceinline__ void visit(const float (&p)[SHAPE], Use use, EndRow end_row) {
    float d[SHAPE];
#if SEPARABLE
    Profile u[COLUMNS];
    Axis x(0.0f, p[IS_X], p[WIDTH_X]), y(float(first_own_row()), p[IS_Y], p[WIDTH_Y]);
#pragma unroll
    for (int i = 0; i < COLUMNS; ++i) u[i] = x.at(i);
#else
    const Model model(p);
#endif
#pragma unroll 1
    for (int k = 0; k < OWN_ROWS; ++k) {
        if (!has_row(k)) break;
#if SEPARABLE
        const Profile v = y.at(k);
#pragma unroll
        for (int i = 0; i < COLUMNS; ++i) {
            d[IS_X] = u[i].center * v.value, d[IS_Y] = u[i].value * v.center;
            d[WIDTH_X] = u[i].width * v.value;
            const float along_y = u[i].value * v.width;
            d[WIDTH_Y] = ROUND ? d[WIDTH_X] + along_y : along_y;
            use(k * COLUMNS + i, u[i].value * v.value, d);
        }
#else
        const float row = float(first_own_row() + k);
#pragma unroll 4
        for (int i = 0; i < COLUMNS; ++i) {
            const float f = model.at(float(i), row, d);
            use(k * COLUMNS + i, f, d);
        }
#endif
        end_row();
    }
}

// Adds a pixel to S and T. With `ones`, the sums of w and of q are made too.
template <bool ones>
__device__ __forceinline__ void add(Sums& sums, const float (&d)[SHAPE], float f, float w,
                                    float q) {
#pragma unroll
    for (int i = 0; i <= IS_F; ++i) {
        if (is_fixed<PARAMETERS>(i)) continue;
        const float own = i < SHAPE ? d[i] : f, weighted = w * own;
#pragma unroll
        for (int j = i; j <= IS_F; ++j)
            if (!is_fixed<PARAMETERS>(j))
                sums.at(i, j) = fmaf(weighted, j < SHAPE ? d[j] : f, sums.at(i, j));
        sums.at(i, IS_ONE) += weighted;
        sums.b[i] = fmaf(q, own, sums.b[i]);
    }
    if (ones) {
        sums.at(IS_ONE, IS_ONE) += w;
        sums.b[IS_ONE] += q;
    }
}

// Joins the sums of a fit's lanes.
template <bool ones>
__device__ __forceinline__ void join(Sums& sums) {
#pragma unroll
    for (int i = 0; i <= IS_ONE; ++i) {
        if (is_fixed<PARAMETERS>(i) || (i == IS_ONE && !ones)) continue;
#pragma unroll
        for (int j = i; j <= IS_ONE; ++j)
            if (!is_fixed<PARAMETERS>(j)) sums.at(i, j) = sum_over_fit(sums.at(i, j));
        sums.b[i] = sum_over_fit(sums.b[i]);
    }
}

// Whether the data say nothing of a parameter: of the angle of a spot that is round.
__device__ __forceinline__ bool is_undetermined(const Sums& sums, int j) {
#if PROFILE == ROTATED && !SHEARED
    if (j == ANGLE) return !(sums.at(j, j) > SINGULAR * sums.at(IS_F, IS_F));
#endif
    return !(sums.at(j, j) > 0.0f);
}

// The sums at a shape, and its best amplitudes.
__device__ __forceinline__ Amplitudes least_squares_sums(const Room& room, const Data& data,
                                                         const float (&shape)[SHAPE],
                                                         const AmplitudeBounds& bounds,
                                                         Sums& sums) {
    const float* pixels = room.pixels[lane_number()];
    sums = {};
    visit(shape, [&](int place, float f, const float (&d)[SHAPE]) {
        const float w = weight_of(room, place);
        add<false>(sums, d, f, w, w * pixels[place]);
    }, [] {});
    join<false>(sums);
    return amplitudes_of(data.weights, sums.at(IS_F, IS_ONE), sums.at(IS_F, IS_F), sums.b[IS_F],
                         bounds);
}

// Sum of w (g - background - amplitude f)^2, from the residuals themselves: by rows, then over
// the rows.
__device__ __forceinline__ float chi_square(const Room& room, const float (&shape)[SHAPE],
                                            const Amplitudes& a) {
    const float* pixels = room.pixels[lane_number()];
    float total = 0.0f, row = 0.0f;
    visit(shape, [&](int place, float f, const float (&)[SHAPE]) {
        const float residual = pixels[place] - fmaf(a.amplitude, f, a.background);
        row = fmaf(residual * weight_of(room, place), residual, row);
    }, [&] {
        total += row;
        row = 0.0f;
    });
    return sum_over_fit(total);
}

// J'J and J'r, divided by amplitude^2. What has no curvature of its own, or none beyond what
// the amplitudes take up, has none at all, so that the search leaves it where it is.
__device__ __forceinline__ void normal_equations(const Sums& sums, const Amplitudes& a,
                                                 Equations<SHAPE>& equations) {
    const float f = sums.at(IS_F, IS_ONE);
    const float inverse = a.amplitude == 0.0f ? 0.0f : 1.0f / a.amplitude;
    float p[SHAPE], c[SHAPE], q[SHAPE];
#pragma unroll
    for (int j = 0; j < SHAPE; ++j) {
        if (is_fixed<SHAPE>(j)) continue;
        const float one = sums.at(j, IS_ONE);
        p[j] = one * a.w_background;
        c[j] = sums.at(j, IS_F) - f * p[j];
        q[j] = c[j] * a.w_amplitude;
        equations.b[j] = inverse == 0.0f ? 0.0f
                                         : (sums.b[j] - a.background * one) * inverse -
                                               sums.at(j, IS_F);
    }
#pragma unroll
    for (int i = 0; i < SHAPE; ++i) {
        if (is_fixed<SHAPE>(i)) continue;
#pragma unroll
        for (int j = i; j < SHAPE; ++j)
            if (!is_fixed<SHAPE>(j))
                equations.at(i, j) = sums.at(i, j) - sums.at(i, IS_ONE) * p[j] - c[i] * q[j];
        float& own = equations.at(i, i);
        if (is_undetermined(sums, i) || !(own > SINGULAR * sums.at(i, i)))
            own = equations.b[i] = 0.0f;
    }
}

// Tries one step of least squares, and finds the next.
__device__ __forceinline__ void iterate(const Room& room, const Data& data,
                                        Search<SHAPE>& search, Kept& kept, const Limits& limits) {
    Sums sums;
    Equations<SHAPE> equations = {};
    const Amplitudes a =
        least_squares_sums(room, data, search.trial, own_bounds(kept, limits), sums);
    normal_equations(sums, a, equations);
    const float chi = chi_square(room, search.trial, a);
    if (search.stop != STOP_RUNNING) return;
    if (chi < search.chi) kept.put_amplitudes(a.amplitude, a.background);
    const float scale = kept.scale[lane_number()];
    const float accepted = limits.max_error * scale * scale / data.weight;
    judge(search, kept, limits, limits.low, limits.high,
          {chi, a.amplitude * a.amplitude, ROUNDING * (1.0f + fabsf(a.amplitude)), data.valid,
           LIKELIHOOD ? 0.0f : accepted, sums.at(IS_F, IS_F)},
          equations);
}
