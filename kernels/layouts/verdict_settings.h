// What fits are judged by, the same for all of a call, as napari_spotfit.engine.verdicts makes it.
#pragma once
#include "fit_settings.h"
#include "rois.h"

namespace spotfit {

// The bits of napari_spotfit.Flag.
namespace flag {
enum FlagBit : unsigned {
    NOT_CONVERGED = 1 << 0,
    AT_BOUND = 1 << 1,
    MOVED = 1 << 2,
    WIDE = 1 << 3,
    NARROW = 1 << 4,
    WEAK = 1 << 5,
    NEGATIVE = 1 << 6,
    DUPLICATE = 1 << 7,
    NEIGHBOUR = 1 << 8,
    POOR_FIT = 1 << 9,
    EDGE = 1 << 10,
    BAD_PIXELS = 1 << 11,
    SATURATED = 1 << 12,
    ELONGATED = 1 << 13,
    OUTSIDE_STACK = 1 << 16,
    SIGMA_Z_HELD = 1 << 17,
    Z_AT_LIMIT = 1 << 18
};
}

// Parameters from which the width of a spot follows, whatever the model.
enum WidthParameter { SIGMA, SIGMA_X, SIGMA_Y, WIDTH, EXPONENT, WIDTH_PARAMETERS };

// What chi-square is of.
enum ChiBy { CHI_UNKNOWN, CHI_OF_COUNTS, CHI_OF_LIKELIHOOD };

// What is looked for around spots: that they go on as lines, where they are as long as wide; or light far around them,
// where z is of a calibration, which does not know what is far out of focus.
enum Around { AROUND_NOTHING, AROUND_LINES, AROUND_FAR_LIGHT };

struct VerdictSettings {
    // The ends at which a parameter does not follow the data, NaN where there is none: of (z,) y and x from the
    // ROI's first pixel, of the other shape parameters in the order of the results, and of the light.
    double low[MAX_SHAPE], high[MAX_SHAPE];
    double amplitude_low, amplitude_high, background_low, background_high;
    double least_errors;  // of a spot's amplitude
    // The variance of a pixel without light of the spot in counts^2, correlation left out: a line over
    // the background, the least that there is, and the least where light falls on a whole ROI.
    double slope, dark, least, least_with_light;
    // By which chi-square is judged: the ROI's pixels, fitted parameters, counts of one of the photons of the
    // results, variance of a pixel in counts^2 for each of its photo-electrons; how many times the noise of
    // white pixels is that, squared, how far it may be too low, and a number for the tails of its
    // distribution; counts per photo-electron and excess of maximum likelihood; standard deviations.
    double pixels, fitted, photon, electron, correlated, measured, tails, gain, excess, most_chi;
    // The sum of the squares of a Gaussian spot, over its height and its light.
    double overlap;
    // By which places, widths and neighbours are judged, in units of the PSF's sigma; the least reach of one spot in
    // pixels.
    double farthest, widest, narrowest, same_spot, crowd, same_spot_px;
    RoiShape roi;
    int widths_judged;               // whether they follow the data, and mean what the PSF's does
    int shape;                       // parameters
    int depth_at;                    // where among them a z is that a calibration bounds; -1: nowhere
    int width_at[WIDTH_PARAMETERS];  // where among them those of a width are, in this order; -1: nowhere
    int sigma_z_at;                  // where that along z is; -1: nowhere
    int noise_known;                 // whether errors have the spot's shot noise
    int chi_by;                      // a ChiBy
    int around;                      // an Around, if the noise is known
    double lens_x, lens_y;           // the direction of the axis of sigma_x
    double offset;                   // counts without light, in the image's pixels
    double coarse;                   // how many times the variance of coarse noise is that of independent pixels
};

}  // namespace spotfit
