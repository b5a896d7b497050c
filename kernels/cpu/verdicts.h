// What is said against fits, on the memory of their columns: what each instruction set has of it.
#pragma once
#include "../layouts/verdicts.h"
#include "interface.h"

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
