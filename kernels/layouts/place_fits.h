// Fits of a few spots at given places of one frame, by kernels/cpu/place_fits.cpp.
#pragma once
#include "detection_settings.h"
#include "fit_settings.h"
#include "flat_areas.h"
#include "rois.h"
#include "spots.h"

namespace spotfit {

// One frame, some places in it, and memory for all that is found on the way.
struct PlaceFits {
    HostRois source;    // the frame; `corners` and `start` are filled in
    const void* taken;  // the same frame as the camera took it
    int taken_type;
    int profile, estimator, rows, columns;
    int shape, numbers;  // how many shape parameters there are, and numbers of single precision of a fit
    const FitSettings* settings;
    const DetectionSource* detection;  // by which lone pixels are found; null: they count
    FlatAreaRule areas;
    SpotCells spots;  // the places; with no row or column of cells, pixels of other spots count
    void* work;
    FitResults results;
    // Of each ROI: whether it has pixels that do not count, and whether a lone one is among them.
    unsigned char *crowded, *lone;
    // The ROIs that have, one after the other: which they are, what there is at their pixels, and their fits.
    long long* cut;
    unsigned char* lone_pixels;
    unsigned char* pixels;
    float *own, *planes, *variances, *start;
    FitResults cut_results;
    unsigned char* whole;  // memory for the pixels of all ROIs, where fits are made elsewhere
    int lone_count;        // is written
};

}  // namespace spotfit
