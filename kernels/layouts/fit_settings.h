// The settings of a fit as numbers, the same for all fits of a call;
// napari_spotfit/engine/fit_job.py fills them in.
#pragma once

namespace spotfit {

// The most shape parameters of any model, the centre included.
constexpr int MAX_SHAPE = 12;

struct FitSettings {
    float max_iterations, max_error, min_delta, min_step;
    // Of each shape parameter in the order x, y, ...: bounds, and where it starts unless the
    // caller says: a number, and a multiple of the sigma that is estimated from the data.
    float low[MAX_SHAPE], high[MAX_SHAPE];
    float start[MAX_SHAPE], start_per_sigma[MAX_SHAPE];
    // The PSF's widths in a volume, in pixels and in planes; 0 where they are not known.
    float sigma, sigma_z;
    // Bounds in counts, the camera's offset included in the background's.
    float amplitude_min, amplitude_max, background_min, background_max;
    // What the results' background counts from, and how many counts are one of their photons.
    float offset, photon;
    // What maximum likelihood takes for counts without light, and counts per photo-electron; and how
    // many times the variance of its results is that of photo-electrons.
    float dark, gain, excess;
    // The variance of a pixel's noise in counts^2: a line over its counts above the offset, and the
    // least that there is.
    float noise_slope, noise_at_offset, noise_least;
    // Fitted parameters, amplitude and background included.
    float fitted;
    int held;                // a bit for each shape parameter that stays at its start value
    int bounded_amplitudes;  // whether amplitude or background have bounds
    int noise_known;         // else least squares takes the scatter of the residuals
    int errors;              // whether standard errors are asked for
    // How the axes of a rotated Gaussian are named in the end: 2, with its first axis next to x; 1, with its
    // axes as they are; 0, with its angle as it is.
    int angle_convention;
};

}  // namespace spotfit
