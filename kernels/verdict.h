// What the numbers of one fit say against it; docs/trust.md and napari_spotfit.results.flags say why.
#pragma once
#include "lanes.h"
#include "stopping.h"
#include "verdict_settings.h"

namespace spotfit::SPOTFIT_ISA {

// How far a spot's shape may be from the model's, as a fraction of its height, and the fewest photo-electrons
// in a pixel with which chi-square has the mean and the scatter that are taken here.
constexpr double MODEL_TOLERANCE = 0.05, FEWEST_ELECTRONS = 3;
// Of the variance that a spot's own light adds, an amplitude's has at least so much: with least squares 0.74
// where sigma is free, 0.67 where it is held; with maximum likelihood from these, if dim, to 0.5, if bright.
constexpr double OWN_NOISE = 0.5;

// The numbers of a fit, NaN where they are unknown.
struct FitNumbers {
    double shape[MAX_SHAPE];  // y and x from the ROI's first pixel, then what makes the width
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
    for (int i = 0; i < s.shape; ++i) at_bound |= fit.shape[i] <= s.low[i] || fit.shape[i] >= s.high[i];
    return at_bound;
}

// Whether chi-square is more than the noise and the model's own tolerance explain. Least squares: the
// pixels' variances v = slope h + that of a dark pixel, of which the sum of r^2 has the mean (N - p) <v> or less,
// as the light draws the fit, and the variance sum (2 v^2 + slope^2 v); thrice the latter of an EMCCD. Maximum
// likelihood: the deviance of so many photo-electrons, with its first correction.
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
        mean += MODEL_TOLERANCE * MODEL_TOLERANCE * height * light / 2;
        const double squares =
            count * level * level + 2 * level * s.slope * light + s.slope * s.slope * height * light / 2;
        const double tails = s.tails * s.slope * s.slope * count * average;
        variance = s.correlated * s.correlated * (2 * squares + tails);
    }
    return fit.chi_square > mean + s.most_chi * square_root(variance);
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
    if (s.chi_by != CHI_UNKNOWN && is_poor(s, fit)) flags |= flag::POOR_FIT;
    return flags;
}

}  // namespace spotfit::SPOTFIT_ISA
