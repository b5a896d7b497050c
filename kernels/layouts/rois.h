// Where the ROIs of a call lie, and where their results go.
#pragma once
#include "expression_program.h"

namespace spotfit {

enum PixelType { UINT8, UINT16, INT16, FLOAT32, FLOAT64 };

// One number for each pixel: of one frame for all of them, or of each its own.
struct PixelMap {
    const float* values;  // null where there is none
    int shared;
};

struct RoiSource {
    const void* frames;
    long long height, width;   // of a frame
    const long long* corners;  // frame, first row, first column of each; null: every frame is a ROI
    const float* start;        // y, x, other shape parameters of each, or null
    PixelMap planes;           // weights, or read-out variances in photo-electrons^2
    PixelMap variance;         // read-out variance in counts^2, for the standard errors
};

// ROIs in the host's frames.
struct HostRois : RoiSource {
    const ExpressionProgram* program;  // null for a built-in model
    int pixel_type;                    // a PixelType
};

// Columns of results.
struct FitResults {
    long long length;
    double *y, *x;
    float* values;  // Outputs::VALUES columns, then Outputs::ERRORS
    unsigned short* iterations;
    unsigned char* stop_condition;
};

}  // namespace spotfit
