// Detection: what each instruction set has of it.
#pragma once
#include "../layouts/detection_settings.h"
#include "interface.h"

namespace spotfit {

struct DetectionFunctions {
    // Memory that a thread needs; how many strips a frame is cut into; and how many maxima there are at
    // most in one.
    long long (*work_bytes)(const DetectionSettings&);
    long long (*strips)(const DetectionSettings&);
    long long (*most_maxima)(const DetectionSettings&);
    // Lists the maxima of both bands, in strips of all frames from the first on, while there is room for
    // all that the next may have; sets their number, and returns the next strip.
    long long (*find_maxima)(const DetectionSource&, long long first, long long last, void* work, Maximum* found,
                             long long room, long long* count);
    // Puts those of one frame, of strips that are in order, in the order of row and column. `row_starts` is
    // memory for a number for each row of the frame, and one more.
    void (*order_maxima)(const Maximum* maxima, long long count, long long* row_starts, long long height,
                         Maximum* ordered);

    // Of maxima in the order of frame, row and column. `row_starts` is memory for a number for each
    // row of the frames from the first to the last of them, and one more.
    // Makes those on a plateau one, or none; returns how many are left, or -1 where the queue is too short.
    // `visited` has a bit for each pixel of a frame, none of them set.
    long long (*merge_plateaus)(const DetectionSource&, Maximum* maxima, long long count, long long* row_starts,
                                unsigned long long* visited, long long* queue, long long room, Maximum* merged);
    // Puts a Mark in the place of the bands: of those that are no spots of their own, and of those that are.
    // `partners` is memory for a number for each.
    void (*join_bands)(const DetectionSettings&, Maximum* maxima, long long count, long long* row_starts, int* partners,
                       int others);
    // Lists the spots of marked maxima and returns how many these are. Where plateaus are to be merged before,
    // it drops what is none, and returns -1 less the number of those that stay.
    long long (*choose_spots)(const SpotChoice&, Maximum* maxima, long long count);

    // Measures every `step`-th row of a frame's blocks; memory for that, and how many blocks these are.
    long long (*noise_bytes)(const DetectionSettings&);
    long long (*noise_block_count)(const DetectionSettings&, long long step);
    void (*measure_noise_blocks)(const DetectionSource&, long long frame, long long step, void* work,
                                 BlockNoise* table);
    // The wide band's numbers in sampled rows over the noise of each pixel, in every `step`-th strip of
    // all frames; how many these are with step 1, and their deviation without those that stay 0.
    long long (*sample_size)(const DetectionSettings&);
    void (*sample_ratios)(const DetectionSource&, long long frame, long long step, void* work, float* sample);
    double (*deviation)(const float* sample, long long size);

    // Which of the ROIs first ... last - 1 have hot pixels; and, unless it is null, which these are, one ROI
    // after the other. Of each ROI, `corners` has its frame, first row and first column; a negative frame
    // stands for none.
    void (*find_hot_pixels)(const DetectionSource&, const long long* corners, long long first, long long last, int rows,
                            int columns, unsigned char* found, unsigned char* pixels);
};

}  // namespace spotfit
