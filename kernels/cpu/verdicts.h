// What is said against fits, on the memory of their columns: what each instruction set has of it.
// Python's side of it is src/napari_spotfit/results/verdicts.py.
#pragma once
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
}

namespace spotfit {

struct VerdictFunctions {
    // The flags of the fits first ... last - 1 that follow from their numbers alone.
    void (*judge)(const FitColumns&, const VerdictSettings&, long long first, long long last, unsigned* flags);
};

}  // namespace spotfit
