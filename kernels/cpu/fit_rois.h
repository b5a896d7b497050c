// Fits of ROIs of any size by one thread.
#pragma once
#include "interface.h"

namespace spotfit {

// Larger ROIs are fitted where they lie, by sums over their pixels.
constexpr int MOST_SIDE = 32;

static inline bool is_large(const RoiShape& roi) { return roi.rows > MOST_SIDE || roi.columns > MOST_SIDE; }

// A thread's memory.
long long large_fit_bytes(const Functions&, int profile, int columns, int expression_lanes);

void fit_large_rois(const Functions&, int profile, int estimator, const HostRois&, long long first, long long last,
                    const RoiShape&, const FitSettings&, void* memory, const FitResults&);

static inline void fit_rois(const Functions& functions, int profile, int estimator, const HostRois& source,
                            long long first, long long last, const RoiShape& roi, const FitSettings& settings,
                            void* memory, const FitResults& results) {
    if (is_large(roi))
        return fit_large_rois(functions, profile, estimator, source, first, last, roi, settings, memory, results);
    functions.fits_of(profile).by_estimator[estimator](source, first, last, roi, settings, memory, results);
}

}  // namespace spotfit
