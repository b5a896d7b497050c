// The library's C interface. Where a function takes an instruction set, it is an index below
// spotfit_instruction_set_count() that this machine supports; Python checks that.
#include "detection_functions.h"
#include "fit_rois.h"
#include "instruction_sets.h"
#include "overlap.h"
#include "rendering.h"
#include "verdicts.h"

using namespace spotfit;

// Of the sources that the library was compiled from, the version among them.
SPOTFIT_EXPORT const char* spotfit_digest() { return SPOTFIT_DIGEST; }

SPOTFIT_EXPORT int spotfit_instruction_set_count() { return instruction_set_count(); }

SPOTFIT_EXPORT const char* spotfit_instruction_set_name(int index) { return instruction_set(index).name; }

SPOTFIT_EXPORT int spotfit_instruction_set_supported(int index) { return instruction_set(index).supported(); }

SPOTFIT_EXPORT int spotfit_lane_width(int index) { return instruction_set(index).functions->lane_width; }

// How many there are; expressions have numbers from this on.
SPOTFIT_EXPORT int spotfit_built_in_profiles() { return instruction_set(0).functions->built_in; }

// A thread's memory for fits of ROIs of any size.
SPOTFIT_EXPORT long long spotfit_fit_bytes(int index, int profile, const RoiShape* roi, int expression_lanes) {
    const Functions& functions = *instruction_set(index).functions;
    if (is_large(*roi)) return large_fit_bytes(functions, profile, roi->columns, expression_lanes);
    return functions.fit_bytes(*roi, expression_lanes);
}

// Fits the ROIs first ... last - 1 of a source.
SPOTFIT_EXPORT void spotfit_fit(int index, int profile, int estimator, const HostRois* source, long long first,
                                long long last, const RoiShape* roi, const FitSettings* settings, void* work,
                                const FitResults* results) {
    const Functions& functions = *instruction_set(index).functions;
    fit_rois(functions, profile, estimator, *source, first, last, *roi, *settings, work, *results);
}

// Does steps of an expression's program for n places in each of some rows; the memory is aligned to
// 64 bytes.
SPOTFIT_EXPORT void spotfit_run_steps(int index, const ExpressionStep* steps, int count, void* memory, int n, int row,
                                      int rows) {
    instruction_set(index).functions->run_steps(steps, count, memory, n, row, rows);
}

static const DetectionFunctions& detection(int index) { return *instruction_set(index).functions->detection; }

SPOTFIT_EXPORT long long spotfit_detection_bytes(int index, const DetectionSettings* settings) {
    return detection(index).work_bytes(*settings);
}

SPOTFIT_EXPORT long long spotfit_detection_strips(int index, const DetectionSettings* settings) {
    return detection(index).strips(*settings);
}

SPOTFIT_EXPORT long long spotfit_most_maxima(int index, const DetectionSettings* settings) {
    return detection(index).most_maxima(*settings);
}

SPOTFIT_EXPORT long long spotfit_find_maxima(int index, const DetectionSource* source, long long first, long long last,
                                             void* work, Maximum* found, long long room, long long* count) {
    return detection(index).find_maxima(*source, first, last, work, found, room, count);
}

SPOTFIT_EXPORT void spotfit_order_maxima(int index, const Maximum* maxima, long long count, long long* row_starts,
                                         long long height, Maximum* ordered) {
    detection(index).order_maxima(maxima, count, row_starts, height, ordered);
}

SPOTFIT_EXPORT long long spotfit_merge_plateaus(int index, const DetectionSource* source, Maximum* maxima,
                                                long long count, long long* row_starts, unsigned long long* visited,
                                                long long* queue, long long room, Maximum* merged) {
    return detection(index).merge_plateaus(*source, maxima, count, row_starts, visited, queue, room, merged);
}

SPOTFIT_EXPORT void spotfit_join_bands(int index, const DetectionSettings* settings, Maximum* maxima, long long count,
                                       long long* row_starts, int* partners, int others) {
    detection(index).join_bands(*settings, maxima, count, row_starts, partners, others);
}

SPOTFIT_EXPORT long long spotfit_choose_spots(int index, const SpotChoice* choice, Maximum* maxima, long long count) {
    return detection(index).choose_spots(*choice, maxima, count);
}

SPOTFIT_EXPORT long long spotfit_noise_bytes(int index, const DetectionSettings* settings) {
    return detection(index).noise_bytes(*settings);
}

SPOTFIT_EXPORT long long spotfit_noise_block_count(int index, const DetectionSettings* settings, long long step) {
    return detection(index).noise_block_count(*settings, step);
}

SPOTFIT_EXPORT void spotfit_measure_noise_blocks(int index, const DetectionSource* source, long long frame,
                                                 long long step, void* work, BlockNoise* table) {
    detection(index).measure_noise_blocks(*source, frame, step, work, table);
}

SPOTFIT_EXPORT long long spotfit_sample_size(int index, const DetectionSettings* settings) {
    return detection(index).sample_size(*settings);
}

SPOTFIT_EXPORT void spotfit_sample_ratios(int index, const DetectionSource* source, long long frame, long long step,
                                          void* work, float* sample) {
    detection(index).sample_ratios(*source, frame, step, work, sample);
}

SPOTFIT_EXPORT double spotfit_deviation(int index, const float* sample, long long size) {
    return detection(index).deviation(sample, size);
}

static const VerdictFunctions& verdicts(int index) { return *instruction_set(index).functions->verdicts; }

SPOTFIT_EXPORT void spotfit_judge(int index, const FitColumns* fits, const VerdictSettings* settings, long long first,
                                  long long last, unsigned* flags) {
    verdicts(index).judge(*fits, *settings, first, last, flags);
}

SPOTFIT_EXPORT void spotfit_correct_errors(int index, const FilteredNoise* noise, const ErrorColumns* fits,
                                           long long count) {
    verdicts(index).correct_errors(*noise, *fits, 0, count);
}

SPOTFIT_EXPORT void spotfit_mean_widths(int index, const double* columns, long long count, double* widths) {
    verdicts(index).mean_widths(columns, count, widths);
}

// Draws the tiles first ... last - 1 of a part of a picture, row by row of tiles.
SPOTFIT_EXPORT void spotfit_render_tiles(int index, const CellIndex* spots, const PicturePart* part, long long first,
                                         long long last, double* sums) {
    instruction_set(index).functions->rendering->render_tiles(*spots, *part, first, last, sums);
}

// Adds the pulls at points first ... last - 1, by those of other segments, to the sums of their groups.
SPOTFIT_EXPORT void spotfit_add_overlap(int index, const Overlap* overlap, long long first, long long last,
                                        double* sums) {
    instruction_set(index).functions->overlap->add_overlap(*overlap, first, last, sums);
}
