// The library's C interface. Where a function takes an instruction set, it is an index below
// spotfit_instruction_set_count() that this machine supports; Python checks that.
#include "instruction_sets.h"

using spotfit::instruction_set;

SPOTFIT_EXPORT const char* spotfit_version() { return SPOTFIT_VERSION; }

// Of the sources that the library was compiled from.
SPOTFIT_EXPORT const char* spotfit_digest() { return SPOTFIT_DIGEST; }

SPOTFIT_EXPORT int spotfit_instruction_set_count() { return spotfit::instruction_set_count(); }

SPOTFIT_EXPORT const char* spotfit_instruction_set_name(int index) {
    return instruction_set(index).name;
}

SPOTFIT_EXPORT int spotfit_instruction_set_supported(int index) {
    return instruction_set(index).supported();
}

SPOTFIT_EXPORT int spotfit_lane_width(int index) { return instruction_set(index).functions->lane_width; }

SPOTFIT_EXPORT long long spotfit_fit_bytes(int index, int rows, int columns, int expression_slots) {
    return instruction_set(index).functions->fit_bytes(rows, columns, expression_slots);
}

// Fits the ROIs first ... last - 1 of a source.
SPOTFIT_EXPORT void spotfit_fit(int index, int profile, int estimator, const RoiSource* source, long long first,
                                long long last, int rows, int columns, const spotfit::FitSettings* settings,
                                void* work, const FitResults* results) {
    const spotfit::FitFunction fit = instruction_set(index).functions->fits[profile]->by_estimator[estimator];
    fit(*source, first, last, rows, columns, *settings, work, *results);
}
