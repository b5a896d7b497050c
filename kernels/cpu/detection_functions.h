// Detection as the library shows it through C: what each instruction set has of it.
// Python's side of it is src/napari_spotfit/engine/cpu/detection_interface.py.
#pragma once
#include "../detection_settings.h"
#include "interface.h"

extern "C" {

// Frames that lie one after the other.
struct DetectionSource {
    const void* frames;
    const spotfit::DetectionSettings* settings;
    int pixel_type;
};
}

namespace spotfit {

// Detection in frames as a whole, one after the other, or in one frame by stages, of which several
// threads do some tiles each. Samples have room for SAMPLE_PADDING numbers more.
constexpr int SAMPLE_PADDING = 16;
struct DetectionFunctions {
    // Memory that a thread needs, for whole frames or for tiles; how many tiles a frame has; and how
    // many maxima there are at most in one.
    long long (*work_bytes)(const DetectionSettings&, int whole);
    long long (*tiles)(const DetectionSettings&);
    long long (*most_maxima)(const DetectionSettings&);
    // Lists the maxima of frames from the first on, while there is room for all that the next may
    // have; says how many these are, and returns the frame that comes next.
    long long (*detect)(const DetectionSource&, long long first, long long last, void* work, Maximum* found,
                        long long room, long long* count);

    int (*has_bad_pixels)(const DetectionSource&, long long frame);
    // A sample of filtered pixels, or of detail at distances along y and x that are not 0.
    long long (*sample_size)(const DetectionSettings&, int by_y, int by_x);
    void (*sample)(const DetectionSource&, long long frame, int bad, int by_y, int by_x, long long first,
                   long long last, void* work, float* sample);
    double (*deviation)(float* sample, long long size);
    // From the deviations of filtered pixels, fine detail, and detail that is coarser along an axis.
    double (*noise)(const DetectionSettings&, const double* deviations);
    long long (*find_maxima)(const DetectionSource&, long long frame, int bad, double noise, long long first,
                             long long last, void* work, const float* sample, Maximum* found);

    // Of maxima in the order of frame, row and column. `row_starts` is memory for a number for each
    // row of the frames from the first to the last of them, and one more.
    // Makes those on a plateau one; returns how many are left, or -1 where the queue is too short.
    // `visited` has a bit for each pixel of a frame, none of them set.
    long long (*merge_plateaus)(const DetectionSource&, Maximum* maxima, long long count, long long* row_starts,
                                unsigned long long* visited, long long* queue, long long room, Maximum* merged);
    // Marks those that are too close to a higher one that stays. `order` has their numbers from the
    // highest to the lowest, in its lower 32 bits.
    void (*drop_neighbours)(const Maximum* maxima, long long count, const unsigned long long* order, long long height,
                            long long* row_starts, double distance, unsigned char* dropped);

    // Measures every `step`-th row of a frame's blocks; memory for that, and how many blocks these are.
    long long (*noise_bytes)(const DetectionSettings&);
    long long (*noise_block_count)(const DetectionSettings&, long long step);
    void (*measure_noise_blocks)(const DetectionSource&, long long frame, long long step, void* work,
                                 BlockNoise* table);
    // Filtered pixels of sampled rows over the noise of each pixel.
    void (*sample_ratios)(const DetectionSource&, long long frame, void* work, float* sample);
};

}  // namespace spotfit
