// What fits are judged by, as columns where they lie; napari_spotfit/engine/verdicts.py fills them in.
#pragma once
#include "filtered_errors.h"
#include "verdict_settings.h"

namespace spotfit {

// The columns of fits by their places below; null where there is none. Of each, a bit says whether it is of
// double precision; else stop conditions are bytes, the ROI's first pixel is of 32-bit integers, and all others
// are of single precision.
enum FitColumn {
    STOP_CONDITION,
    ROI_Z,
    ROI_Y,
    ROI_X,
    AMPLITUDE,
    BACKGROUND,
    PHOTONS,
    CHI_SQUARE,
    REDUCED_CHI_SQUARE,
    AMPLITUDE_STDERR,
    SHAPE  // and the other shape parameters
};
struct FitColumns {
    const void* columns[SHAPE + MAX_SHAPE];
    int doubles;
};

constexpr int WORK_OF_VERDICT = 32;

// A fitted spot whose pixels show whether it is longer in one direction than across: which of the fits it
// is, its frame and its place in the rows that are here, the level of the pixels below it; its height, 1 over its width
// squared, the variance of a pixel without its light, what a count of it adds, the lowest residual that counts, and how
// many times the variance of coarse noise is that of independent pixels.
struct FittedSpot {
    long long fit, frame;
    double y, x, level;
    float height, curvature, dark, slope, lowest, coarse;
};

// Where in an image fits began, and what is known of its pixels.
struct ImageFits {
    const long long* corners;  // frame from 0 on, in rising order, first (plane,) row and column of each ROI
    const double* places;      // (z,) y and x from which each fit began
    long long count;
    long long depth, height, width;  // of a frame
    double sigma, sigma_z;           // of the PSF, in pixels and planes; NaN where it is not known
    double per_plane;                // how many pixels away a plane counts as
    const unsigned char* bad;        // which pixels are, of one frame for all or of each; null: none
    long long bad_frames;
    const FilteredNoise* noise;  // of an image that a filter went over; else null
    const ErrorColumns* errors;
    void* work;  // memory, WORK_OF_VERDICT bytes for each fit
    // Columns that are filled in; (z,) y and x of the fits are changed in their place.
    double* at[3];  // in the order of the frame's axes
    int* roi[3];
    unsigned* flags;
    long long first;  // row, or plane of volumes, of the image from which the ROIs' count
};

}  // namespace spotfit
