// Standard errors of an image that a filter went over: explained in napari_spotfit/engine/filtered_noise.py.
#pragma once
#include "lanes.h"
#include "layouts/filtered_errors.h"

namespace spotfit::SPOTFIT_ISA {

SPOTFIT_INLINE void correct_errors(const FilteredNoise& noise, const ErrorColumns& fits, long long i) {
    const double line = noise.slope * fits.background[i] + noise.dark, height = fits.amplitude[i];
    const double dark = line < noise.least ? noise.least : line, peak = height < 0 ? 0 : noise.slope * height;
    for (int k = 0; k < noise.columns; ++k) {
        const double expected = noise.filtered_dark[k] * dark + noise.filtered_peak[k] * peak;
        const double taken = noise.white_dark[k] * dark + noise.white_peak[k] * peak;
        fits.errors[k][i] *= static_cast<float>(noise.stronger * square_root(expected / taken));
    }
}

}  // namespace spotfit::SPOTFIT_ISA
