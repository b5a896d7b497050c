// The sums over a large ROI's pixels that its search asks for, a block of rows and columns at a
// time. They are added up further in double precision, always in the same order.
//
// Here a Roi's lanes are neighbouring columns of one fit (see kernels/README.md); planes are always
// there, and say which pixels count.
#pragma once
#include "layouts/large_request.h"
#include "standard_errors.h"

namespace spotfit {

// The numbers of a piece: S by rows of its upper triangle, T, and chi-square or the deviance.
// With a copy in each object: instruction sets share nothing.
static constexpr int sums_of_shape(int shape) { return (shape + 2) * (shape + 3) / 2 + (shape + 2) + 1; }
constexpr int NUMBERS_OF_CELL = 5;

// Cells along the longer side, but at least three along the shorter one; and how many there are at
// most: of a ROI of 4096 x 5 pixels.
constexpr int CELLS_ALONG = 64, LEAST_CELLS = 3, MOST_CELLS = 5 * 4096;

}  // namespace spotfit

namespace spotfit::SPOTFIT_ISA {

// Without amplitude and background in the search, and with them.
template <class Profile> using LargeSquares = FitVariant<Profile, false, true>;
template <class Profile> using LargeLikelihood = FitVariant<Profile, true, true>;

template <class Variant, class L> SPOTFIT_INLINE void point_of(const LargeRequest& request, L (&point)[Variant::ALL]) {
    UNROLL
    for (int j = 0; j < Variant::SHAPE; ++j) point[j] = L(request.shape[j]);
    point[Variant::SHAPE] = L(request.amplitude);
    point[Variant::SHAPE + 1] = L(request.background);
}

// Least squares about the amplitudes that are given: adds to S, T and the sum of w r^2.
template <class Variant, class L, class Roi>
SPOTFIT_INLINE L residual_sums(Roi& roi, const L (&point)[Variant::ALL], const FitSettings& settings,
                               PixelSums<Variant, L>& sums) {
    constexpr int S = Variant::SHAPE;
    const L amplitude = point[S], background = point[S + 1];
    sums = {};
    PixelAdder<false, Variant, L, Roi> adder(sums);
    L chi = 0.0f, part = 0.0f;
    visit<Variant>(
        roi, point, settings,
        [&](int k, int i, L f, const L(&d)[S]) SPOTFIT_INLINE_LAMBDA {
            const L w = weight_at<Variant, L>(roi, k, i);
            const L residual = roi.at(k, i) - multiply_add(amplitude, f, background), push = w * residual;
            adder.add(i, d, f, w, push);
            part = multiply_add(push, residual, part);
        },
        [&]() SPOTFIT_INLINE_LAMBDA {
            adder.end_line(roi.own_columns());
            chi += part, part = L(0.0f);
        });
    return chi;
}

// S with the weights w^2 var.
template <class Variant, class L, class Roi>
SPOTFIT_INLINE void noise_sums(Roi& roi, const L (&point)[Variant::ALL], const PixelNoise<L>& noise,
                               const FitSettings& settings, PixelSums<Variant, L>& sums) {
    constexpr int S = Variant::SHAPE;
    sums = {};
    PixelAdder<false, Variant, L, Roi> adder(sums);
    visit<Variant>(
        roi, point, settings,
        [&](int k, int i, L f, const L(&d)[S]) SPOTFIT_INLINE_LAMBDA {
            const L w = weight_at<Variant, L>(roi, k, i);
            adder.add(i, d, f, w * w * variance_at(noise, roi, k, i, f, w), L(0.0f));
        },
        [&]() SPOTFIT_INLINE_LAMBDA { adder.end_line(roi.own_columns()); });
}

// What is asked for, of a block: returns chi-square or the deviance.
template <class Profile, class L, class Roi>
SPOTFIT_INLINE L sums_of_block(int task, Roi& roi, const LargeRequest& request, const FitSettings& settings,
                               PixelSums<LargeSquares<Profile>, L>& sums) {
    using Squares = LargeSquares<Profile>;
    using Likelihood = LargeLikelihood<Profile>;
    L point[Squares::ALL];
    point_of<Squares>(request, point);
    if (task == RESIDUALS) return residual_sums<Squares>(roi, point, settings, sums);
    if (task == NOISE) {
        const PixelNoise<L> noise = {L(request.peak), L(request.flat), L(request.scale_squared)};
        noise_sums<Squares>(roi, point, noise, settings, sums);
        return L(0.0f);
    }
    PixelSums<Likelihood, L> own;
    const L deviance = task == FISHER ? likelihood_sums<true, Likelihood>(roi, point, settings, own)
                                      : likelihood_sums<false, Likelihood>(roi, point, settings, own);
    sums.s = own.s;
    return deviance;
}

// ---- separable profiles whose pixels count alike: sums along the axes ----

// What the pixels of a block add to sums along the axes: sums of r f and its derivatives, of r, and
// of r^2.
template <class Variant, class L> struct ResidualSums {
    DataSums<Variant, L> data;
    L residual, chi;
};

// Some neighbouring lines side by side, as in add_lines(). Columns beyond the ROI have the profile 0
// and the pixel `background`.
template <int BLOCK, class Variant, class L, class Roi, class Axis>
SPOTFIT_INLINE void add_residual_lines(const Roi& roi, int k, Axis& y, L amplitude, L background, AxisSums<L>& along_y,
                                       ResidualSums<Variant, L>& sums) {
    AxisProfile<L> v[BLOCK];
    L peak[BLOCK], a[BLOCK], b[BLOCK], c[BLOCK], rest[BLOCK], chi[BLOCK];
    UNROLL
    for (int r = 0; r < BLOCK; ++r) {
        v[r] = y.at(k + r);
        along_y.add(v[r]);
        peak[r] = amplitude * v[r].value;
        a[r] = b[r] = c[r] = rest[r] = chi[r] = L(0.0f);
    }
    for (int i = 0; i < roi.own_columns(); ++i) {
        const AxisProfile<L> u = roi.u(i);
        UNROLL
        for (int r = 0; r < BLOCK; ++r) {
            const L residual = (roi.at(k + r, i) - background) - peak[r] * u.value;
            a[r] = multiply_add(u.value, residual, a[r]);
            b[r] = multiply_add(u.center, residual, b[r]);
            c[r] = multiply_add(u.width, residual, c[r]);
            rest[r] += residual;
            chi[r] = multiply_add(residual, residual, chi[r]);
        }
    }
    UNROLL
    for (int r = 0; r < BLOCK; ++r) {
        sums.data.template add<1>(v[r], DataSums<Variant, L>::of_line(a[r], b[r], c[r]));
        sums.residual += rest[r];
        sums.chi += chi[r];
    }
}

// S and T from them.
template <class Variant, class L>
SPOTFIT_INLINE void sums_from_axes(const AxisSums<L>& x, const AxisSums<L>& y, L pixels,
                                   const ResidualSums<Variant, L>& own, PixelSums<Variant, L>& sums) {
    constexpr int S = Variant::SHAPE, F = S, ONE = S + 1;
    const auto all_of = [](const AxisSums<L>& s) -> AxisSumsOf<Variant, L> {
        return {s.u, s.c, s.s, s.uu, s.uc, s.us, s.cc, s.cs, s.ss};
    };
    const AxisSumsOf<Variant, L> along[] = {all_of(x), all_of(y)};
    const ShapeSums<Variant, L> shape(along);
    UNROLL
    for (int i = 0; i < S; ++i) {
        UNROLL
        for (int j = i; j < S; ++j) sums.s.at(i, j) = shape.products.at(i, j);
        sums.s.at(i, F) = shape.ff[i];
        sums.s.at(i, ONE) = shape.f[i];
        sums.s.b[i] = own.data.p[i];
    }
    sums.s.at(F, F) = shape.squares;
    sums.s.at(F, ONE) = shape.sum;
    sums.s.at(ONE, ONE) = pixels;
    sums.s.b[F] = own.data.f;
    sums.s.b[ONE] = own.residual;
}

}  // namespace spotfit::SPOTFIT_ISA
