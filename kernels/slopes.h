// A background that slopes. A spot on the edge of a cell, or in its haze, has more light on one side: with a flat
// background it is fitted too wide, beside its place, or not at all. In a volume, many pixels around a spot show the
// slopes; in a plane few do, and slopes would cost precision.
#pragma once
#include "likelihood.h"

namespace spotfit::SPOTFIT_ISA {

// Distance from the centre, in widths, beyond which pixels show background; their least share of those that count, and
// their least number. Where the PSF's widths are not known, they are those where the fit begins, which a slope makes
// too large, but at most the ROI's sides over the last number.
constexpr float AROUND = 2.5f, LEAST_AROUND = 0.5f, FEWEST_AROUND = 100.0f, SIDES_PER_WIDTH = 5.5f;
// Slopes are taken off if they lower chi-square by so much, in units of the pixels' own variance: by chance they do in
// one flat background of 60,000. They must be this share of what is seen there, and their rms this part of the range of
// the ROI's pixels: what a spot beside its place leaves there, or a neighbour, is less.
constexpr float LEAST_SLOPES = 25.0f, LEAST_SHARE = 0.22f, LEAST_RISE = 0.03f;
// The share of a direction's own extent that must be left of it by the others.
constexpr float LEAST_EXTENT = 1e-3f;

// Sums over pixels of 1, of places x, y, z from the spot's centre in widths, and of the pixels g themselves.
template <class L> struct SlopeSums {
    static constexpr int X = 0, Y = 1, Z = 2, G = 3;
    L count, of[4];
    Equations<L, 4> products;

    // Adds a line of pixels by its sums of 1, x, x x, g, g x and g g.
    SPOTFIT_INLINE void add_line(const L (&at)[2], const L (&line)[6]) {
        const L n = line[0], x = line[1], g = line[3], along[4] = {x, at[0] * n, at[1] * n, g};
        count += n;
        UNROLL
        for (int i = 0; i < 4; ++i) of[i] += along[i];
        products.at(X, X) += line[2], products.at(X, G) += line[4], products.at(G, G) += line[5];
        UNROLL
        for (int a = 0; a < 2; ++a) {
            products.at(X, Y + a) = multiply_add(at[a], x, products.at(X, Y + a));
            products.at(Y + a, G) = multiply_add(at[a], g, products.at(Y + a, G));
            UNROLL
            for (int b = a; b < 2; ++b)
                products.at(Y + a, Y + b) = multiply_add(at[a], along[Y + b], products.at(Y + a, Y + b));
        }
    }
    template <class Roi> SPOTFIT_INLINE void join(const Roi& roi) {
        count = roi.sum(count);
        UNROLL
        for (int i = 0; i < 4; ++i) {
            of[i] = roi.sum(of[i]);
            UNROLL
            for (int j = i; j < 4; ++j) products.at(i, j) = roi.sum(products.at(i, j));
        }
    }
    // The slopes by least squares; returns where they are significant.
    SPOTFIT_INLINE MaskOf<L> solve(L (&slopes)[3], L pixels) {
        Equations<L, 4>& p = products;
        UNROLL
        for (int i = 0; i < 4; ++i) {
            UNROLL
            for (int j = i; j < 4; ++j) p.at(i, j) -= of[i] * of[j] / count;
        }
        const L all = p.at(G, G);
        MaskOf<L> known = (count > LEAST_AROUND * pixels) & (count > FEWEST_AROUND);
        UNROLL
        for (int k = 0; k < 3; ++k) {
            const L own = p.at(k, k), inverse = 1.0f / own;
            known = known & (own > LEAST_EXTENT * count);
            UNROLL
            for (int i = k + 1; i < 4; ++i) {
                const L factor = p.at(k, i) * inverse;
                UNROLL
                for (int j = i; j < 4; ++j) p.at(i, j) = multiply_add(-factor, p.at(k, j), p.at(i, j));
            }
        }
        UNROLL
        for (int k = 2; k >= 0; --k) {
            L own = p.at(k, G);
            UNROLL
            for (int j = k + 1; j < 3; ++j) own = multiply_add(-p.at(k, j), slopes[j], own);
            slopes[k] = own / p.at(k, k);
        }
        const L left = p.at(G, G), taken = all - left;
        return known & (taken * (count - 4.0f) > LEAST_SLOPES * left) & (taken > LEAST_SHARE * all) &
               (taken > square(LEAST_RISE) * count);
    }
};

// Takes the slopes of the background off the pixels of a volume, whose weighted sum stays 0.
template <class Variant, class L, class Roi>
SPOTFIT_INLINE void take_slopes_off(Roi& roi, State<L> state, const L (&start)[Variant::SHAPE],
                                    const FitSettings& settings) {
    using P = typename Variant::Profile;
    const int rows = roi.lines_of_plane();
    const int sides[3] = {roi.columns, rows, roi.lines / rows};
    L per_width[3];
    UNROLL
    for (int a = 0; a < 3; ++a) {
        const float known = a < 2 ? settings.sigma : settings.sigma_z;
        const L begin = lower_of(start[P::width(a)], L(float(sides[a]) / SIDES_PER_WIDTH));
        per_width[a] = 1.0f / (known > 0.0f ? L(known) : begin);
    }
    const auto column_of = [&](int i) SPOTFIT_INLINE_LAMBDA {
        return (L(float(roi.first_column() + i)) - start[0]) * per_width[0];
    };
    const auto line_of = [&](int k, L(&at)[2]) SPOTFIT_INLINE_LAMBDA {
        const int line = roi.first_line() + k;
        at[0] = (L(float(line % rows)) - start[1]) * per_width[1];
        at[1] = (L(float(line / rows)) - start[2]) * per_width[2];
    };
    const auto counts = [&](int k, int i) SPOTFIT_INLINE_LAMBDA { return weight_at<Variant, L>(roi, k, i) > 0.0f; };
    SlopeSums<L> sums = {};
    L weights = 0.0f, middle[3] = {L(0.0f), L(0.0f), L(0.0f)};
    UNROLL_LINES
    for (int k = 0; k < roi.own_lines(); ++k) {
        if (!roi.has_line(k)) break;
        L at[2], line[6] = {L(0.0f), L(0.0f), L(0.0f), L(0.0f), L(0.0f), L(0.0f)};
        line_of(k, at);
        L own = 0.0f, own_x = 0.0f;
        const L near = square(AROUND) - square(at[0]) - square(at[1]);
        UNROLL_PIXELS
        for (int i = 0; i < roi.own_columns(); ++i) {
            if (!roi.has_column(i)) break;
            const L x = column_of(i), w = weight_at<Variant, L>(roi, k, i);
            const MaskOf<L> around = (x * x > near) & counts(k, i);
            const L one = select(around, L(1.0f), L(0.0f)), g = select(around, roi.at(k, i), L(0.0f)), x_ = one * x;
            line[0] += one, line[1] += x_, line[3] += g;
            line[2] = multiply_add(x_, x, line[2]);
            line[4] = multiply_add(g, x, line[4]);
            line[5] = multiply_add(g, g, line[5]);
            own += w, own_x = multiply_add(w, x, own_x);
        }
        sums.add_line(at, line);
        weights += own, middle[0] += own_x;
        middle[1] = multiply_add(at[0], own, middle[1]);
        middle[2] = multiply_add(at[1], own, middle[2]);
    }
    sums.join(roi);
    L slopes[3];
    const MaskOf<L> sloped = sums.solve(slopes, valid_pixels<Variant, L>(roi, state));
    if (!roi.any_fit(sloped)) return;
    L level = 0.0f;
    weights = 1.0f / roi.sum(weights);
    UNROLL
    for (int a = 0; a < 3; ++a) level = multiply_add(slopes[a], roi.sum(middle[a]) * weights, level);
    UNROLL_LINES
    for (int k = 0; k < roi.own_lines(); ++k) {
        if (!roi.has_line(k)) break;
        L at[2];
        line_of(k, at);
        const L own = multiply_add(slopes[1], at[0], multiply_add(slopes[2], at[1], -level));
        UNROLL_PIXELS
        for (int i = 0; i < roi.own_columns(); ++i) {
            if (!roi.has_column(i)) break;
            const L g = roi.at(k, i);
            roi.put(k, i, select(sloped & counts(k, i), g - multiply_add(slopes[0], column_of(i), own), g));
        }
    }
}

}  // namespace spotfit::SPOTFIT_ISA
