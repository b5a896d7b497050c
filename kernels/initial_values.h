// From pixels to a search before its first step: pixels without unit or level, and start values
// where the caller gives none (Fit2DGaussian's rule).
//
// The centre is the maximum of a moving average over 3 pixels along each axis. Sigma follows from the number M of
// pixels above the spot's exp(-1/2) level, which a Gaussian exceeds within one sigma of its centre: sigma = root of
// M/pi, in volumes the cube root of M/(4 pi/3). The other parameters follow from sigma, as the table of models says; a
// rotated Gaussian's from the second moments of the light that stands out.
#pragma once
#include "slopes.h"

namespace spotfit::SPOTFIT_ISA {

constexpr float DEGREES = 180.0f / PI;

constexpr float WITHIN_SIGMA = 0.60653065971263342f;  // exp(-1/2)

// What stands out of the lower third of the range, within 3 sigma of the centre, shows a rotated
// Gaussian's axes. Their ratio begins above 1, since the angle of a round spot is undetermined and
// its derivative 0.
constexpr float STANDS_OUT = 0.33f, REACH = 3.0f, LEAST_RATIO = 1.1f, MOST_RATIO = 3.0f;

// What a fit's lanes know of its pixels together: the lowest in the fit's own unit, how many are
// bright, and whether they are numbers, and not all the same.
template <class L> struct PixelSummary {
    L lowest, bright;
    MaskOf<L> usable;
};

// Takes level and range off the pixels, so that their weighted sum is 0; weights become 1 on
// average, and those of pixels that do not count 0.
template <class Variant, class L, class Roi>
SPOTFIT_INLINE PixelSummary<L> normalise_pixels(Roi& roi, State<L> state) {
    constexpr bool WEIGHTS = Variant::PLANES && !PlanesAreVariances<Variant>::value;
    L total = 0.0f, low = INFINITE, high = -INFINITE, weights = 0.0f, valid = 0.0f;
    UNROLL_LINES
    for (int k = 0; k < roi.own_lines(); ++k) {
        if (!roi.has_line(k)) break;
        UNROLL_PIXELS
        for (int i = 0; i < roi.own_columns(); ++i) {
            if (!roi.has_column(i)) break;
            L g = roi.at(k, i);
            if constexpr (Variant::PLANES) {
                if constexpr (WEIGHTS) {
                    const L given = roi.plane(k, i);
                    roi.put_plane(k, i, select((given > 0.0f) & (given < INFINITE), given, L(0.0f)));
                }
                const L w = weight_at<Variant, L>(roi, k, i);
                const MaskOf<L> good = w > 0.0f;
                g = select(good, g, L(0.0f));
                roi.put(k, i, g);
                total = multiply_add(w, g, total);
                weights += w;
                valid += select(good, L(1.0f), L(0.0f));
                low = select(good, lower_of(g, low), low);
                high = select(good, higher_of(g, high), high);
            } else {
                total += g;
                low = lower_of(g, low);
                high = higher_of(g, high);
            }
        }
    }
    total = roi.sum(total), low = roi.lowest(low), high = -roi.lowest(-high);
    L mean = total * (1.0f / float(roi.lines * roi.columns)), weight = 1.0f;
    if constexpr (Variant::PLANES) {
        weights = roi.sum(weights), valid = roi.sum(valid);
        mean = total / weights;
        weight = valid / weights;
        state[VALID] = valid;
        state[WEIGHT] = weight;
    }
    const L scale = 1.0f / (high - low), lowest = (low - mean) * scale;
    L bright = 0.0f;
    UNROLL_LINES
    for (int k = 0; k < roi.own_lines(); ++k) {
        if (!roi.has_line(k)) break;
        UNROLL_PIXELS
        for (int i = 0; i < roi.own_columns(); ++i) {
            if (!roi.has_column(i)) break;
            L g = (roi.at(k, i) - mean) * scale;
            MaskOf<L> counts = g > lowest + WITHIN_SIGMA;
            if constexpr (Variant::PLANES) {
                if constexpr (WEIGHTS) roi.put_plane(k, i, roi.plane(k, i) * weight);
                const MaskOf<L> good = weight_at<Variant, L>(roi, k, i) > 0.0f;
                g = select(good, g, L(0.0f));
                counts = counts & good;
            }
            roi.put(k, i, g);
            bright += select(counts, L(1.0f), L(0.0f));
        }
    }
    state[SCALE] = scale;
    state[LEVEL] = state[LEVEL] + mean;
    const MaskOf<L> usable = (scale > 0.0f) & (scale < INFINITE) & (absolute(mean) < INFINITE);
    return {lowest, roi.sum(bright), usable};
}

// Where the moving average over 3 pixels along each axis is highest; of equal ones, the first.
template <class L, int AXES, class Roi> SPOTFIT_INLINE void brightest_pixel(const Roi& roi, L (&place)[AXES]) {
    const int left_end = roi.first_column(), top_end = roi.first_line(), rows = roi.lines_of_plane();
    L best = -INFINITE, x = 0.0f, line = 0.0f;
    UNROLL_LINES
    for (int k = 0; k < roi.own_lines(); ++k) {
        const int own = top_end + k, row = AXES == 2 ? own : own % rows;
        if (row < 1 || row > rows - 2) continue;
        if (AXES == 3 && (own < rows || own >= roi.lines - rows)) continue;
        const auto column_sum = [&](int column) SPOTFIT_INLINE_LAMBDA {
            const auto of_plane = [&](int middle) SPOTFIT_INLINE_LAMBDA {
                return roi.around(middle - 1, column) + roi.around(middle, column) + roi.around(middle + 1, column);
            };
            if constexpr (AXES == 2) return of_plane(own);
            else return of_plane(own - rows) + of_plane(own) + of_plane(own + rows);
        };
        const L before = best;
        L left = 0.0f, middle = column_sum(left_end);
        if (left_end > 0) left = column_sum(left_end - 1);
        UNROLL_PIXELS
        for (int i = 0; i < roi.own_columns(); ++i) {
            const int column = left_end + i;
            if (column > roi.columns - 2) continue;
            const L right = column_sum(column + 1);
            const L total = left + middle + right;
            if (column > 0) {
                const MaskOf<L> higher = total > best;
                best = select(higher, total, best);
                x = select(higher, L(float(column)), x);
            }
            left = middle;
            middle = right;
        }
        line = select(best > before, L(float(own)), line);
    }
    roi.highest_place(best, x, line);
    place[0] = x, place[1] = line;
    if constexpr (AXES == 3) {
        // Half a line further on, no rounding error leads to another plane.
        place[2] = round_up((line + 0.5f) * (1.0f / float(rows))) - 1.0f;
        place[1] = line - place[2] * float(rows);
    }
}

// Sigma from how many pixels are within one sigma of the centre: of a disc, or of a ball.
template <int AXES, class L> SPOTFIT_INLINE L sigma_from_count(L bright) {
    if constexpr (AXES == 2) return square_root(bright * (1.0f / PI));
    else return exponential(logarithm(bright * (0.75f / PI)) * (1.0f / 3.0f));
}

// Second moments around a centre of the light that stands out.
template <class Variant, class L, class Roi>
SPOTFIT_INLINE void light_moments(const Roi& roi, L lowest, L x, L y, L sigma, L& xx, L& xy, L& yy) {
    xx = xy = yy = L(0.0f);
    const L reach = square(REACH * sigma);
    for (int k = 0; k < roi.own_lines(); ++k) {
        if (!roi.has_line(k)) break;
        for (int i = 0; i < roi.own_columns(); ++i) {
            const L dx = float(roi.first_column() + i) - x, dy = float(roi.first_line() + k) - y;
            L light = roi.at(k, i) - (lowest + STANDS_OUT);
            const MaskOf<L> counts =
                (light > 0.0f) & (dx * dx + dy * dy <= reach) & (weight_at<Variant, L>(roi, k, i) > 0.0f);
            light = select(counts, light, L(0.0f));
            xx = multiply_add(light * dx, dx, xx);
            yy = multiply_add(light * dy, dy, yy);
            xy = multiply_add(light * dx, dy, xy);
        }
    }
    xx = roi.sum(xx), xy = roi.sum(xy), yy = roi.sum(yy);
}

// Gives widths and angle their start values where there are none (NaN). Equal widths leave the
// angle open, unless it is held; then it is that of the data.
template <class Variant, class L, class Roi>
SPOTFIT_INLINE void rotated_start(const Roi& roi, L lowest, L sigma, const FitSettings& settings,
                                  L (&start)[Variant::SHAPE]) {
    using P = typename Variant::Profile;
    L xx, xy, yy;
    light_moments<Variant>(roi, lowest, start[0], start[1], sigma, xx, xy, yy);
    L &along = start[P::ALONG], &across = start[P::ACROSS], &angle = start[P::ANGLE];
    const MaskOf<L> open = is_nan(along) | is_nan(across), equal = along == across;
    const MaskOf<L> held = is_held<Variant>(settings, P::ANGLE);
    const MaskOf<L> rotated = !is_nan(angle) & (open | !equal | held);
    const L difference = xx - yy;
    angle = select(rotated, angle, 0.5f * arctangent(2.0f * xy, difference));
    L sine, cosine;
    sine_and_cosine(angle, sine, cosine);
    const L along_angle = cosine * cosine * difference * 2.0f + 4.0f * cosine * sine * xy - difference;
    const L part = select(rotated, along_angle, square_root(difference * difference + 4.0f * xy * xy));
    L ratio = square_root((xx + yy + part) / (xx + yy - part));
    ratio = select(is_nan(ratio), L(1.0f), clamp(ratio, L(1.0f / MOST_RATIO), L(MOST_RATIO)));
    const MaskOf<L> nearly_round = (ratio > 1.0f / LEAST_RATIO) & (ratio < LEAST_RATIO);
    ratio = select(nearly_round, select(ratio < 1.0f, L(1.0f / LEAST_RATIO), L(LEAST_RATIO)), ratio);
    angle = select(!rotated & !open & (along < across), angle + 0.5f * PI, angle);
    const L stretch = square_root(ratio);
    const MaskOf<L> held_along = is_held<Variant>(settings, P::ALONG);
    const MaskOf<L> held_across = is_held<Variant>(settings, P::ACROSS);
    along = select(is_nan(along), sigma * stretch, select(equal & !held_along, along * stretch, along));
    across = select(is_nan(across), sigma / stretch, select(equal & !held_across, across / stretch, across));
}

// Puts a search before its first step. `given` has the caller's values, angles in degrees, or NaN.
// Fits whose pixels are constant, NaN or infinite, or too few, end here.
template <class Variant, class L, class Roi>
SPOTFIT_INLINE void start_from_pixels(Roi& roi, State<L> state, const L (&given)[Variant::SHAPE],
                                      const FitSettings& settings, Search<L, Variant::SHAPE>& search) {
    constexpr int S = Variant::SHAPE, AXES = Variant::Profile::AXES;
    const PixelSummary<L> pixels = normalise_pixels<Variant, L>(roi, state);
    L start[S];
    UNROLL
    for (int j = 0; j < S; ++j) start[j] = given[j];
    if constexpr (Variant::Profile::ROTATED) start[Variant::Profile::ANGLE] *= L(1.0f / DEGREES);
    UNROLL
    for (int j = 0; j < S; ++j)  // held at a number
        if (is_held<Variant>(settings, j) && settings.low[j] == settings.high[j]) start[j] = L(settings.low[j]);
    MaskOf<L> unplaced = is_nan(start[0]);
    UNROLL
    for (int a = 1; a < AXES; ++a) unplaced = unplaced | is_nan(start[a]);
    if (roi.any_fit(unplaced)) {
        L place[AXES];
        brightest_pixel(roi, place);
        UNROLL
        for (int a = 0; a < AXES; ++a) start[a] = select(is_nan(start[a]), place[a], start[a]);
    }
    const L sigma = sigma_from_count<AXES>(pixels.bright);
    if constexpr (Variant::Profile::ROTATED) rotated_start<Variant>(roi, pixels.lowest, sigma, settings, start);
    UNROLL
    for (int j = 0; j < S; ++j) {
        const L own = multiply_add(sigma, L(settings.start_per_sigma[j]), L(settings.start[j]));
        if (j >= AXES) start[j] = select(is_nan(start[j]), own, start[j]);
        start[j] = clamp(start[j], L(settings.low[j]), L(settings.high[j]));
    }
    if constexpr (AXES == 3) take_slopes_off<Variant>(roi, state, start, settings);
    MaskOf<L> usable = pixels.usable;
    if (Variant::PLANES) usable = usable & (state[VALID] > settings.fitted);
    start_search<Variant>(search, state, start, usable);
    state[POINT + S] = state[POINT + S + 1] = L(0.0f);
}

}  // namespace spotfit::SPOTFIT_ISA
