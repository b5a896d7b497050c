// Which pixels of ROIs are excluded from fits: the functions of each instruction set.
#pragma once
#include "../layouts/flat_areas.h"
#include "../layouts/spots.h"
#include "interface.h"

namespace spotfit {

struct ExcludedPixelFunctions {
    // Fills `starts` and `by_cell`; -1 as the first start means that the spots need no cells, as they lie row by row.
    void (*sort)(const SpotCells&);
    // Which of the ROIs first ... last - 1 have pixels that are not their own.
    void (*find_crowded)(const SpotCells&, long long first, long long last, unsigned char* crowded);
    // What is known of the pixels of some ROIs, rois[0] ... rois[count - 1], one ROI after the other: of
    // their own pixels one number, of the others another.
    void (*mark)(const SpotCells&, const long long* rois, long long count, float own, float others, float* planes);
    // Copies ROIs of planes of numbers of a size in bytes; where it is shared, there is one plane for all. Those
    // of volumes are as many ROIs of planes, here and below.
    void (*cut_out)(const void* values, int bytes, long long height, long long width, bool shared,
                    const long long* corners, long long count, int rows, int columns, void* rois);
    // What of that the ROIs first ... last - 1 of frames are suspected of.
    void (*find_flat_areas)(const void* frames, int pixel_type, long long height, long long width,
                            const long long* corners, long long first, long long last, int rows, int columns,
                            const FlatAreaRule&, unsigned char* found);
    // The largest number, without NaN.
    double (*highest)(const void* values, int pixel_type, long long count);
    // Marks the saturated pixels of one suspect ROI, given the highest of its frame; and those that are no data, of a
    // ROI of some planes, with memory for a number for each pixel. Both return whether there are any.
    bool (*find_saturated)(const void* frames, int pixel_type, long long height, long long width,
                           const long long* corner, int rows, int columns, const FlatAreaRule&, double highest,
                           unsigned char* pixels);
    bool (*find_padding)(const void* frames, int pixel_type, long long height, long long width,
                         const long long* corners, int planes, int rows, int columns, double* memory,
                         unsigned char* pixels);
    // Marks, besides, what is no number.
    bool (*add_no_numbers)(const void* frames, int pixel_type, long long height, long long width,
                           const long long* corners, int planes, int rows, int columns, unsigned char* pixels);
};

}  // namespace spotfit
