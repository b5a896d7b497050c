// What marks the library's functions, and what its parts, compiled apart, know of each other. Python is given
// those functions, and the structures in kernels/layouts/, by tools/layouts.py.
#pragma once
#include "../layouts/expression_program.h"
#include "../layouts/fit_settings.h"
#include "../layouts/rois.h"

#if defined(_WIN32)
#define SPOTFIT_EXPORT extern "C" __declspec(dllexport)
#else
#define SPOTFIT_EXPORT extern "C" __attribute__((visibility("default")))
#endif

namespace spotfit {

struct LargeRequest;

// An expression's constants are its program.
inline const ExpressionProgram* program_of(const HostRois& source) {
    return static_cast<const ExpressionProgram*>(source.constants);
}

using FitFunction = void (*)(const HostRois&, long long first, long long last, const RoiShape&, const FitSettings&,
                             void* work, const FitResults&);

// Least squares, the same with planes, maximum likelihood, the same with planes.
struct ProfileFits { FitFunction by_estimator[4]; };

// Numbers that are asked for of a ROI, of one piece of the work.
using LargeSums = void (*)(const HostRois&, long long roi, const LargeRequest&, const FitSettings&, int piece,
                           void* work, double* numbers);
struct DetectionFunctions;
struct ExcludedPixelFunctions;
struct VerdictFunctions;
struct JointFunctions;
struct RenderFunctions;
struct OverlapFunctions;

// Number of files in which the fits of the built-in profiles are compiled, for compilers with many cores.
constexpr int FIT_FILES = 4;

// What is compiled once for each instruction set, in vectorized/, and called through this table.
// It holds addresses: values of other files would be put in when the library is opened, by code for
// that instruction set, whatever the processor has.
struct Functions {
    int lane_width;  // fits side by side in one vector
    // Memory that a thread needs for fits, in bytes.
    long long (*fit_bytes)(const RoiShape& roi, int expression_lanes);
    // Of the built-in profiles, by their places in BuiltIn; each of several files has a share.
    int built_in;
    const ProfileFits* fits[FIT_FILES];
    // Of profiles with constants: of expressions, by their EXPRESSION_SIZES, and of measured PSFs.
    const ProfileFits* with_constants[sizeof EXPRESSION_SIZES / sizeof(int) + 1];
    void (*run_steps)(const ExpressionStep* steps, int count, void* memory, int n, int row, int rows);
    // The same of large ROIs, and the memory that a thread needs for them.
    long long (*large_bytes)(int columns, int expression_lanes);
    // After the built-in profiles come expressions of 3 shape parameters and more.
    const LargeSums* large_sums;
    const DetectionFunctions* detection;
    const ExcludedPixelFunctions* excluded_pixels;
    const VerdictFunctions* verdicts;
    const JointFunctions* joint;
    const RenderFunctions* rendering;
    const OverlapFunctions* overlap;

    __attribute__((always_inline)) const ProfileFits& fits_of(int profile) const {
        if (profile >= built_in) return *with_constants[profile - built_in];
        return fits[profile % FIT_FILES][profile / FIT_FILES];
    }
};

}  // namespace spotfit
