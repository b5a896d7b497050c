// Quality flags of fits, in the memory of their columns: the functions of an instruction set.
#pragma once
#include "../layouts/verdicts.h"
#include "interface.h"

namespace spotfit {

struct VerdictFunctions {
    // The flags of the fits first ... last - 1 that follow from their numbers alone.
    void (*judge)(const FitColumns&, const VerdictSettings&, long long first, long long last, unsigned* flags);
    // Makes fits of ROIs those of an image, with their flags, in steps: what follows from each fit by itself, beside
    // flags that are there; from the others of its frame, for the frames that begin in first ... last - 1; and from the
    // saturated and the bad pixels of one ROI, with y and x from its first pixel.
    void (*judge_each)(const FitColumns&, const VerdictSettings&, const ImageFits&, long long first, long long last);
    void (*judge_together)(const FitColumns&, const VerdictSettings&, const ImageFits&, long long first,
                           long long last);
    unsigned (*pixel_flags)(const VerdictSettings&, double y, double x, const long long* corner, long long first_row,
                            const unsigned char* saturated, const unsigned char* bad);
    // Flags those of the fits first ... last - 1 that are longer in one direction than across, or far out of focus, by
    // the frames' pixels: of these, rows from one of the image on are here.
    void (*flag_around)(const FitColumns&, const VerdictSettings&, const ImageFits&, const void* frames, int pixel_type,
                        long long height, long long width, long long first, long long last);
    // Lists the spots among them around which is to be looked; returns their number.
    long long (*list_spots)(const FitColumns&, const VerdictSettings&, const ImageFits&, long long first,
                            long long last, FittedSpot* spots);
    void (*correct_errors)(const FilteredNoise&, const ErrorColumns&, long long first, long long last);
    // Widths of spots by their columns, one after the other, of as many numbers each: those of
    // WidthParameter, amplitude and light.
    void (*mean_widths)(const double* columns, long long count, double* widths);
};

}  // namespace spotfit
