// Standard errors of an image that a filter went over; napari_spotfit/engine/filtered_noise.py fills the numbers in.
#pragma once
#include "fit_settings.h"

namespace spotfit {

// Columns of standard errors, at most: of the shape parameters, amplitude, background and photons.
constexpr int MAX_ERRORS = MAX_SHAPE + 3;

struct FilteredNoise {
    // A pixel's variance in counts^2, as the fits took it: a line over the background, and the least there is.
    double slope, dark, least;
    double stronger;  // how many times the deviation is that before the filter, without it
    // The variance of each parameter, by that of a dark pixel and by a spot's own at its peak: of white noise,
    // and of noise before the filter.
    double white_dark[MAX_ERRORS], white_peak[MAX_ERRORS], filtered_dark[MAX_ERRORS], filtered_peak[MAX_ERRORS];
    int columns;
};

struct ErrorColumns {
    float* errors[MAX_ERRORS];  // as many as the noise says
    const float *amplitude, *background;
};

}  // namespace spotfit
