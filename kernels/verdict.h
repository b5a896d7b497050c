// Quality flags of one fit from its numbers, explained in docs/trust.md and napari_spotfit.engine.flags.
#pragma once
#include "lanes.h"
#include "layouts/verdict_settings.h"
#include "stopping.h"

namespace spotfit::SPOTFIT_ISA {

// How far a spot's shape may be from the model's, as a fraction of its height, and the fewest photo-electrons
// in a pixel with which chi-square has the mean and the scatter that are taken here.
constexpr double MODEL_TOLERANCE = 0.05, FEWEST_ELECTRONS = 3;
// Of the variance that a spot's own light adds, an amplitude's has at least so much: with least squares 0.74
// where sigma is free, 0.67 where it is held; with maximum likelihood from these, if dim, to 0.5, if bright.
constexpr double OWN_NOISE = 0.5;

// The numbers of a fit, NaN where they are unknown.
struct FitNumbers {
    // (z,) y and x from the ROI's first pixel, then what makes the width, each at a stride from the one before.
    const double* shape;
    int stride;
    double amplitude, background, photons, chi_square, reduced_chi_square, amplitude_error;
};

// NaN stays NaN, here and below.
SPOTFIT_INLINE double no_less(double x, double least) { return x < least ? least : x; }
SPOTFIT_INLINE double no_more(double x, double most) { return x > most ? most : x; }

// The variance of a pixel without light of the spot, in counts^2; correlation left out.
SPOTFIT_INLINE double dark_variance(const VerdictSettings& s, double background) {
    return no_less(s.slope * background + s.dark, s.least);
}

// How many times its own an amplitude's standard error is without the spot's shot noise.
SPOTFIT_INLINE double without_own_noise(const VerdictSettings& s, const FitNumbers& fit) {
    // Of no electron in a ROI it is not known that the background has less than one there.
    const double level = no_less(dark_variance(s, fit.background), s.least_with_light);
    const double own = s.slope * no_less(fit.amplitude, 0);
    return square_root(level / (own > 0 ? level + OWN_NOISE * own : level));
}

SPOTFIT_INLINE bool is_at_bound(const VerdictSettings& s, const FitNumbers& fit) {
    bool at_bound = fit.amplitude <= s.amplitude_low || fit.amplitude >= s.amplitude_high ||
                    fit.background <= s.background_low || fit.background >= s.background_high;
    // There are a few: vectors would take longer to fill.
#pragma clang loop vectorize(disable)
    for (int i = 0; i < s.shape; ++i) {
        const double value = fit.shape[i * fit.stride];
        at_bound |= i != s.depth_at && (value <= s.low[i] || value >= s.high[i]);
    }
    return at_bound;
}

// Whether z is at an end of what a calibration knows.
SPOTFIT_INLINE bool is_z_at_limit(const VerdictSettings& s, const FitNumbers& fit) {
    if (s.depth_at < 0) return false;
    const double z = fit.shape[s.depth_at * fit.stride];
    return z <= s.low[s.depth_at] || z >= s.high[s.depth_at];
}

// Whether chi-square is more than the noise and the model's own tolerance explain. Least squares: the
// pixels' variances v = slope h + that of a dark pixel; the sum of r^2 then has the mean (N - p) <v> or less,
// as the light draws the fit, and the variance sum (2 v^2 + slope^2 v); thrice the latter of an EMCCD. Maximum
// likelihood: the deviance of a number of photo-electrons, with its first correction.
SPOTFIT_INLINE bool is_poor(const VerdictSettings& s, const FitNumbers& fit) {
    const double degrees = no_more(fit.chi_square / fit.reduced_chi_square, s.pixels);
    const double light = fit.photons * s.photon, height = fit.amplitude;
    const double level = dark_variance(s, fit.background), electrons = level / s.electron;
    if (!(electrons >= FEWEST_ELECTRONS) || !(light > 0) || !(height > 0)) return false;
    double mean, variance;
    if (s.chi_by == CHI_OF_LIKELIHOOD) {
        mean = s.excess * s.measured * degrees * (1 + 1 / (6 * electrons));
        mean += MODEL_TOLERANCE * MODEL_TOLERANCE * light / s.gain;
        variance = 2 * degrees * s.excess * s.excess * (1 + 1 / electrons);
    } else {
        // The pixels that count, which have about all of the light.
        const double count = no_more(__builtin_rint(degrees) + s.fitted, s.pixels);
        const double average = level + s.slope * light / count;
        mean = s.correlated * s.measured * degrees * average;
        mean += MODEL_TOLERANCE * MODEL_TOLERANCE * height * light * s.overlap;
        const double squares =
            count * level * level + 2 * level * s.slope * light + s.slope * s.slope * height * light * s.overlap;
        const double tails = s.tails * s.slope * s.slope * count * average;
        variance = s.correlated * s.correlated * (2 * squares + tails);
    }
    return fit.chi_square > mean + s.most_chi * square_root(variance);
}

// e^x - 1 in double precision, by that of a fraction of x.
SPOTFIT_INLINE double exponential_less_1(double x) {
    int halved = 0;
    for (; __builtin_fabs(x) > 0.25 && halved < 16; ++halved) x /= 2;
    double sum = 0;
    for (int n = 12; n > 0; --n) sum = (sum + 1) * x / n;
    for (; halved > 0; --halved) sum *= sum + 2;
    return sum;
}

// How wide a spot is in pixels: the sigma of a round Gaussian; the geometric mean of an elliptical one's; that
// of the round Gaussian which is as wide at half maximum as a Moffat profile, whose wings may have much of its
// light; else that of the round Gaussian with the same height and the same light, which for models of one's own
// is that in the ROI. NaN where none of them is known.
template <class Width> SPOTFIT_INLINE double mean_width(Width width, double amplitude, double light) {
    constexpr double LOG_2 = 0.69314718055994531, HALF_WIDTH_OF_1 = 1.1774100225154747, PI_2 = 6.2831853071795865;
    const double round = width(SIGMA);
    if (!is_nan(round)) return round;
    const double elliptical = square_root(width(SIGMA_X) * width(SIGMA_Y));
    if (!is_nan(elliptical)) return elliptical;
    const double moffat = square_root(exponential_less_1(LOG_2 / width(EXPONENT))) * width(WIDTH);
    if (!is_nan(moffat)) return moffat / HALF_WIDTH_OF_1;
    return square_root(__builtin_fabs(light / amplitude) / PI_2);
}
SPOTFIT_INLINE double mean_width(const VerdictSettings& s, const FitNumbers& fit) {
    const auto width = [&](WidthParameter name) SPOTFIT_INLINE_LAMBDA -> double {
        return s.width_at[name] < 0 ? NOT_A_NUMBER : fit.shape[s.width_at[name] * fit.stride];
    };
    return mean_width(width, fit.amplitude, fit.photons * s.photon);
}

// Which of its numbers a fit has: amplitude and photons; the amplitude's error; the background.
struct Known { bool light, error, background; };

// The flags that follow from a fit's numbers alone.
SPOTFIT_INLINE unsigned flags_of_numbers(const VerdictSettings& s, const FitNumbers& fit, double stop, Known known) {
    if (stop == STOP_INVALID) return flag::NOT_CONVERGED;
    unsigned flags = stop >= STOP_MAX_ERROR && stop <= STOP_MIN_STEP ? 0 : flag::NOT_CONVERGED;
    if (known.light && (fit.amplitude <= 0 || fit.photons <= 0)) flags |= flag::NEGATIVE;
    if (known.error) {
        const double error = fit.amplitude_error * (s.noise_known && known.background ? without_own_noise(s, fit) : 1);
        if (!(__builtin_fabs(fit.amplitude) > s.least_errors * error)) flags |= flag::WEAK;
    }
    if (is_at_bound(s, fit)) flags |= flag::AT_BOUND;
    if (is_z_at_limit(s, fit)) flags |= flag::Z_AT_LIMIT;
    if (s.chi_by != CHI_UNKNOWN && is_poor(s, fit)) flags |= flag::POOR_FIT;
    return flags;
}

// Where a fit began and ended along each axis, in pixels of a frame of some size, and its ROI's first pixel.
struct PlaceAlong { double start, end, first, size; };
struct FitPlace {
    PlaceAlong y, x, z;  // z is 0 in planes
    double per_plane;    // how many pixels away a plane counts as
};

SPOTFIT_INLINE double distance_moved(const FitPlace& place) {
#pragma clang fp contract(off)
    const double down = place.y.end - place.y.start, across = place.x.end - place.x.start;
    const double back = (place.z.end - place.z.start) * place.per_plane;
    return square_root(down * down + across * across + back * back);
}

// A limit in single precision, as widths and bounds are.
SPOTFIT_INLINE double in_single(double x) { return static_cast<float>(x); }

// Whether one end of a fit lies too near to the image's.
SPOTFIT_INLINE bool is_near_end(const PlaceAlong& p, double reach) {
    const double before = p.end + 0.5, behind = p.size - 0.5 - p.end;
    return before < reach || behind < reach;
}
// The same, or its ROI was shifted into the image.
SPOTFIT_INLINE bool is_at_edge(const PlaceAlong& p, int side, double reach) {
    return __builtin_fabs(p.start - (p.first + side / 2)) > 0.5 || is_near_end(p, reach);
}

// The flags of a valid fit in a volume that follow from its place and its width along z. The centre stays in the ROI,
// which ends half a plane outside of the first and the last plane: what ends there belongs farther out.
SPOTFIT_INLINE unsigned flags_of_depth(const VerdictSettings& s, const FitNumbers& fit, const PlaceAlong& z,
                                       double sigma_z, bool held) {
    unsigned flags = !is_nan(s.low[0]) && is_near_end(z, 1e-9) ? flag::OUTSIDE_STACK : 0;
    if (is_nan(sigma_z)) return flags;
    const double width = s.widths_judged && !held ? fit.shape[s.sigma_z_at * fit.stride] : sigma_z;
    if (width > in_single(s.widest * sigma_z)) flags |= flag::WIDE;
    if (width < in_single(s.narrowest * sigma_z)) flags |= flag::NARROW;
    // ROIs of stacks of few planes are never around their spots.
    return is_near_end(z, sigma_z) ? flags | flag::EDGE : flags;
}

// The flags that follow from a valid fit's place in an image, but for what is near; the PSF's sigma may be NaN.
SPOTFIT_INLINE unsigned flags_of_place(const VerdictSettings& s, const FitNumbers& fit, const FitPlace& place,
                                       double sigma, double moved) {
    const bool known = !is_nan(sigma), judged = known && s.widths_judged;
    const double width = judged || !known ? mean_width(s, fit) : sigma, scale = known ? sigma : width;
    unsigned flags = moved > s.farthest * scale ? flag::MOVED : 0;
    if (judged && width > in_single(s.widest * sigma)) flags |= flag::WIDE;
    if (judged && width < in_single(s.narrowest * sigma)) flags |= flag::NARROW;
    if (is_at_edge(place.y, s.roi.rows, scale) || is_at_edge(place.x, s.roi.columns, scale)) flags |= flag::EDGE;
    return flags;
}

// Of a calibration's range, the part at its ends in which a lobe of a spot beyond may seem to lie. Behind a lens, both
// halves of a spot beyond look alike: twins, along one of its axes. By how much of their mean widths and light of twins
// may differ, and how far they may be beside the axis, as a part of their distance along it.
constexpr double LOBES_WITHIN = 0.05, TWIN_WIDTHS = 0.2, TWIN_LIGHT = 0.3, BESIDE_AXIS = 0.2;

SPOTFIT_INLINE bool is_alike(double a, double b, double part) {
    return __builtin_fabs(a - b) <= part * 0.5 * __builtin_fabs(a + b);
}
// Given how far they are apart along both axes of the lens.
SPOTFIT_INLINE bool are_on_axis(double along, double across) {
    const double one = __builtin_fabs(along), other = __builtin_fabs(across);
    return one <= BESIDE_AXIS * other || other <= BESIDE_AXIS * one;
}

// Of the 3x3 pixels in a spot's middle, how many must be saturated: without one pixel, the others tell height,
// light and width, and better than to a standard error.
constexpr int FULL_PIXELS = 2;

// A number from 0 to count - 1.
SPOTFIT_INLINE long long within(long long i, long long count) { return i < 0 ? 0 : i < count ? i : count - 1; }

// How many pixels of a plane are marked among the 3x3 around a place: what lies outside of the plane is not, or,
// if the border repeats, is as the nearest one within.
SPOTFIT_INLINE int marked_around(const unsigned char* plane, long long rows, long long columns, long long row,
                                 long long column, bool border_repeats) {
    int marked = 0;
    for (int i = 0; i < 9; ++i) {
        const long long y = row + i / 3 - 1, x = column + i % 3 - 1;
        const long long inside_y = within(y, rows), inside_x = within(x, columns);
        if (border_repeats || (inside_y == y && inside_x == x)) marked += plane[inside_y * columns + inside_x] != 0;
    }
    return marked;
}

}  // namespace spotfit::SPOTFIT_ISA
