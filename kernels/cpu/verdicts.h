// What is said against fits, on the memory of their columns: what each instruction set has of it.
// Python's side of it is src/napari_spotfit/engine/quality/verdicts.py.
#pragma once
#include "../filtered_errors.h"
#include "../verdict_settings.h"
#include "interface.h"

extern "C" {

// The columns of fits by their places below; null where there is none. Of each, a bit says whether it is of
// double precision; else stop conditions are bytes, the ROI's first pixel is of 32-bit integers, and all others
// are of single precision.
enum { STOP, ROI_Y, ROI_X, AMPLITUDE, BACKGROUND, PHOTONS, CHI_SQUARE, REDUCED_CHI_SQUARE, AMPLITUDE_ERROR, SHAPE };
struct FitColumns {
    const void* columns[SHAPE + spotfit::MAX_SHAPE];
    int doubles;
};

// Pixels of ROIs that count in no fit: of which ROIs, in rising order, and which, one ROI after the other.
struct LostPixels {
    const long long* rois;
    const unsigned char* pixels;
    long long count;
};

// Where in an image fits began, and what is known of its pixels.
struct ImageFits {
    const long long* corners;  // frame from 0 on, in rising order, first row and first column of each ROI
    const double* places;      // y and x from which each fit began
    long long count;
    long long height, width;   // of a frame
    double sigma;              // of the PSF, in pixels; NaN where nobody has said it
    const unsigned char* bad;  // which pixels are, of one frame for all or of each; null: none
    long long bad_frames;
    LostPixels saturated, lone;
    const spotfit::FilteredNoise* noise;  // of an image that a filter went over; else null
    const spotfit::ErrorColumns* errors;
    void* work;  // memory, 32 bytes for each fit
    // Columns that are filled in; y and x of the fits are changed in their place.
    double *y, *x;
    int *roi_y, *roi_x;
    unsigned* flags;
};
}

namespace spotfit {

struct VerdictFunctions {
    // The flags of the fits first ... last - 1 that follow from their numbers alone.
    void (*judge)(const FitColumns&, const VerdictSettings&, long long first, long long last, unsigned* flags);
    // Makes fits of ROIs those of an image, with all of their flags: of the frames that begin in first ... last - 1.
    void (*judge_in_image)(const FitColumns&, const VerdictSettings&, const ImageFits&, long long first,
                           long long last);
    void (*correct_errors)(const FilteredNoise&, const ErrorColumns&, long long count);
    // Widths of spots by the columns that tell them, one after the other, of as many numbers each: those of
    // WidthParameter, amplitude and light.
    void (*mean_widths)(const double* columns, long long count, double* widths);
};

}  // namespace spotfit
