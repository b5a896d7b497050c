// What the library shows through C, and what its parts, compiled apart, know of each other.
// Python's side of it is src/napari_spotfit/engine/cpu/interface.py.
#pragma once
#include "../fit_settings.h"

#if defined(_WIN32)
#define SPOTFIT_EXPORT extern "C" __declspec(dllexport)
#else
#define SPOTFIT_EXPORT extern "C" __attribute__((visibility("default")))
#endif

extern "C" {

// Types of pixels.
enum PixelType { UINT8, UINT16, INT16, FLOAT32, FLOAT64 };

// One number for each pixel: of one frame for all of them, or of each its own.
struct PixelMap {
    const float* values;  // null where there is none
    int shared;
};

struct ExpressionProgram;

// ROIs where they lie in frames.
struct RoiSource {
    const void* frames;
    long long height, width;   // of a frame
    const long long* corners;  // frame, first row, first column of each; null: every frame is a ROI
    const float* start;        // y, x, other shape parameters of each, or null
    PixelMap planes;           // weights, or read-out variances in photo-electrons^2
    PixelMap variance;         // read-out variance in counts^2, for the standard errors
    const ExpressionProgram* program;
    int pixel_type;
};

// Columns of results.
struct FitResults {
    long long length;
    double *y, *x;
    float* values;  // Outputs::VALUES columns, then Outputs::ERRORS
    unsigned short* iterations;
    unsigned char* stop_condition;
};
}

namespace spotfit {

struct LargeRequest;

using FitFunction = void (*)(const RoiSource&, long long first, long long last, int rows, int columns,
                             const FitSettings&, void* work, const FitResults&);

// Least squares, the same with planes, maximum likelihood, the same with planes.
struct ProfileFits { FitFunction by_estimator[4]; };

// Numbers that are asked for of a ROI, of one piece of the work.
using LargeSums = void (*)(const RoiSource&, long long roi, const LargeRequest&, const FitSettings&, int piece,
                           void* work, double* numbers);
struct DetectionFunctions;

// What is compiled once for each instruction set, in vectorized/, and called through this table.
// It holds addresses: values of other files would be put in when the library is opened, by code for
// that instruction set, whatever the processor has.
struct Functions {
    int lane_width;  // fits side by side in one vector
    // Memory that a thread needs for fits, in bytes.
    long long (*fit_bytes)(int rows, int columns, int expression_slots);
    // By the number that napari_spotfit/engine/cpu/fit.py has for a profile.
    const ProfileFits* fits[7];
    // The same of large ROIs, and the memory that a thread needs for them.
    long long (*large_bytes)(int columns);
    const LargeSums* large_sums[7];
    const DetectionFunctions* detection;
};

}  // namespace spotfit
