// Where the ROIs of a call lie, and where their results go.
#pragma once

namespace spotfit {

// Pixels of a ROI along its axes; a ROI of a plane has a depth of 1. In memory and in fits it is lines of pixels along
// x, those of one plane after those of another.
struct RoiShape { int depth, rows, columns; };

enum PixelType { UINT8, UINT16, INT16, FLOAT32, FLOAT64 };

// One number for each pixel: of one frame for all of them, or of each its own.
struct PixelMap {
    const float* values;  // null where there is none
    int shared;
};

struct RoiSource {
    const void* frames;        // planes, or volumes
    long long depth;           // planes of a frame
    long long height, width;   // of a plane
    const long long* corners;  // frame, first plane of volumes, row and column of each; null: every frame is a ROI
    const float* start;        // the position and the other shape parameters of each, in the array's order, or null
    PixelMap planes;           // weights, or read-out variances in photo-electrons^2
    PixelMap variance;         // read-out variance in counts^2, for the standard errors
    const void* constants;     // of the profile; null: it has none
};

// ROIs in the host's frames.
struct HostRois : RoiSource {
    int pixel_type;  // a PixelType
};

// Columns of results.
struct FitResults {
    long long length;
    double* positions;  // a column for each axis, in the array's order
    float* values;      // Outputs::VALUES columns, then Outputs::ERRORS
    unsigned short* iterations;
    unsigned char* stop_condition;
};

}  // namespace spotfit
