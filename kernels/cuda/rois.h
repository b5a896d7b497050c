// Where ROIs lie in the GPU's memory, and where their results go. The Python side of both is
// src/napari_spotfit/engine/cuda/layout.py.
#pragma once
#include "../lanes.h"

namespace spotfit::SPOTFIT_ISA {

// One number for each pixel: of one frame for all of them, or of each its own.
struct PixelMap {
    const float* values;
    int shared;
};

struct RoiSource {
    const void* frames;
    long long height, width;   // of a frame
    const long long* corners;  // frame, first row, first column of each, if ROIs lie in frames
    const float* start;        // y, x, other shape parameters of each, or null
    PixelMap planes;           // weights, or read-out variances in photo-electrons^2
    PixelMap variance;         // read-out variance in counts^2, for the standard errors
};

// Columns of results.
struct FitResults {
    long long length;
    double *y, *x;
    float* values;  // Outputs::VALUES columns, then Outputs::ERRORS
    unsigned short* iterations;
    unsigned char* stop_condition;
};

// What is known of ROIs when code is compiled. GATHER: they lie in frames, of which they are a
// part; else every frame is a ROI.
template <class Pixel_, bool GATHER_, int ROWS, int COLUMNS> struct RoiLayout {
    using Pixel = Pixel_;
    static constexpr bool GATHER = GATHER_;
    static constexpr int PIXELS = ROWS * COLUMNS;

    // Where a ROI begins in frames, or in a map that all of them may share; -1 outside of them.
    static SPOTFIT_INLINE long long first_pixel(const RoiSource& source, long long roi, bool shared = false) {
        if (!GATHER) return shared ? 0 : roi * PIXELS;
        const long long* corner = source.corners + 3 * roi;
        const long long frame = corner[0];
        if (frame < 0) return -1;
        return ((shared ? 0 : frame) * source.height + corner[1]) * source.width + corner[2];
    }
    static SPOTFIT_INLINE long long row_pitch(const RoiSource& source) { return GATHER ? source.width : COLUMNS; }

    // In double precision where the pixels have that.
    static SPOTFIT_INLINE float difference(Pixel value, Pixel reference) {
        if constexpr (sizeof(Pixel) == 8) return float(value - reference);
        else return float(value) - float(reference);
    }
};

}  // namespace spotfit::SPOTFIT_ISA
