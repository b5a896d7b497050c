// What the library shows through C, and what its parts, compiled apart, know of each other.
// Python's side of it is src/napari_spotfit/engine/cpu/interface.py.
#pragma once
#include "../fit_settings.h"
#include "../roi_source.h"

#if defined(_WIN32)
#define SPOTFIT_EXPORT extern "C" __declspec(dllexport)
#else
#define SPOTFIT_EXPORT extern "C" __attribute__((visibility("default")))
#endif

namespace spotfit {

// Types of pixels.
enum PixelType { UINT8, UINT16, INT16, FLOAT32, FLOAT64 };

// One step of an expression's program. Its numbers are in the memory of the expression, at places
// in units of lanes. An operand is the same for all pixels, or it has numbers for columns, rows or
// pixels; bits 1, 2 and 4 are for the operands a, b and c.
struct ExpressionStep {
    unsigned char operation;  // in the order of kernels/cpu/expression.h
    unsigned char varies;     // those with a number for each place that the step is done for
    unsigned char by_row;     // of a step for pixels: those with a number for each row
    unsigned char by_pixel;   // of a step for pixels: those with a number for each pixel
    int out, a, b, c;
};

// An expression and its derivatives, for ROIs of one size. Constants come first in its memory, then
// the shape parameters.
struct ExpressionProgram {
    const ExpressionStep* steps;  // done once, for all columns, for all rows, for pixels
    int once, by_column, by_row, by_pixel;
    const float* constants;
    int constant_count, parameters;
    int x, y;          // where the columns' and the rows' numbers are
    int results;       // f at the pixels of some rows, and its derivatives behind
    int rows_at_once;  // so many
    int pitch;         // how far the results are apart
};

// ROIs where they lie in the host's frames, of one of the PixelTypes.
struct HostRois : RoiSource {
    const ExpressionProgram* program;  // null where the model is none of somebody's own
    int pixel_type;
};
static_assert(sizeof(HostRois) == sizeof(RoiSource) + sizeof(void*) + 8, "as ctypes lays it out");

struct LargeRequest;

using FitFunction = void (*)(const HostRois&, long long first, long long last, int rows, int columns,
                             const FitSettings&, void* work, const FitResults&);

// Least squares, the same with planes, maximum likelihood, the same with planes.
struct ProfileFits { FitFunction by_estimator[4]; };

// Numbers that are asked for of a ROI, of one piece of the work.
using LargeSums = void (*)(const HostRois&, long long roi, const LargeRequest&, const FitSettings&, int piece,
                           void* work, double* numbers);
struct DetectionFunctions;
struct OwnPixelFunctions;
struct VerdictFunctions;

// The fits of the built-in profiles are compiled in so many files, for compilers with many cores.
constexpr int FIT_FILES = 4;

// What is compiled once for each instruction set, in vectorized/, and called through this table.
// It holds addresses: values of other files would be put in when the library is opened, by code for
// that instruction set, whatever the processor has.
struct Functions {
    int lane_width;  // fits side by side in one vector
    // Memory that a thread needs for fits, in bytes.
    long long (*fit_bytes)(int rows, int columns, int expression_lanes);
    // Of the built-in profiles, by their places in BuiltIn; each of several files has every so many.
    int built_in;
    const ProfileFits* fits[FIT_FILES];
    // Of expressions, for so many shape parameters at most as engine/cpu/interface.py says.
    const ProfileFits* expressions[6];
    void (*run_steps)(const ExpressionStep* steps, int count, void* memory, int n, int row, int rows);
    // The same of large ROIs, and the memory that a thread needs for them.
    long long (*large_bytes)(int columns, int expression_lanes);
    // After the built-in profiles come expressions of 3 shape parameters and more.
    const LargeSums* large_sums;
    const DetectionFunctions* detection;
    const OwnPixelFunctions* own_pixels;
    const VerdictFunctions* verdicts;

    const ProfileFits& fits_of(int profile) const {
        if (profile >= built_in) return *expressions[profile - built_in];
        return fits[profile % FIT_FILES][profile / FIT_FILES];
    }
};

}  // namespace spotfit
