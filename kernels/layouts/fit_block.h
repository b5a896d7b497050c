// Fits of ROIs in a block of frames, by kernels/cpu/fit_block.cpp.
#pragma once
#include "detection_settings.h"
#include "fit_settings.h"
#include "flat_areas.h"
#include "rois.h"
#include "spots.h"
#include "verdicts.h"

namespace spotfit {

// What a device has found in the ROIs of frames that only it reads, and those ROIs of a range in two parts: first the
// ones that are fitted where they lie, then the ones with excluded pixels.
struct DeviceLooks {
    // Of each ROI: what it is suspected of, filled in where `taken` is the host's; and whether it has hot pixels.
    unsigned char* areas;
    const unsigned char* hot;
    // Of the ROIs with more: which place each has among them, all their pixels as the camera took them
    // where only the device reads these, and which are hot.
    const long long* place;
    const void* pixels;
    const unsigned char* hot_pixels;
    // Are written: which they are, and what belongs to each.
    long long *rois, *corners;
    float* start;
};

// Fits that hold sigma along z, of spots that begin so near the first or the last plane that too few planes show it.
struct HeldDepth {
    const FitSettings* settings;  // null: none does
    double planes;                // nearer than that
    int place;                    // of sigma along z among the shape parameters
    float sigma_z;
};

// A block, the positions in it, and memory for all results. Without ROIs (`source.corners`), the frames are cut-outs,
// which are fitted whole.
struct BlockFits {
    HostRois source;    // the frames; `corners` and `start` of positions are filled in
    const void* taken;  // the same frames as the camera took them; null: only a device reads them
    int taken_type;
    int profile, estimator;
    RoiShape roi;
    int shape, numbers;  // how many shape parameters there are, and numbers of single precision of a fit
    long long fit_bytes;
    const FitSettings* settings;
    HeldDepth held;
    const DetectionSource* detection;  // by which hot pixels are found; null: they count
    FlatAreaRule areas;
    SpotCells spots;         // the positions; with no row of cells, pixels of other spots count
    const long long* frame;  // of each position; null: the first
    const float* z;          // of each: where the search of a measured PSF begins; null: where its templates say
    long long first_row;     // of a frame, if only some rows, or planes of volumes, are here,
    long long frame_rows;    // and how many it has
    double* highest;         // the largest number of each frame, NaN until it is needed
    FitResults results;
    const FitColumns* fits;
    const VerdictSettings* quality;
    const ImageFits* image;
    const FilteredNoise* noise;  // of cut-outs of an image that a filter went over; else null
    const ErrorColumns* errors;
    int saturated;  // is written: whether there are pixels that `highest` alone calls saturated
    // Of fits that others make, between EXCLUDE and JOIN: memory for the pixels of all ROIs, or null, and how many ROIs
    // without some of their pixels are cut out at most. Those that are, are written: how many, what their fits read,
    // and where the results go.
    unsigned char* whole;
    long long room, cut_count, listed_count;
    HostRois cut;
    FitResults cut_results;
    const DeviceLooks* device;  // null: the host reads the frames
};

// Why a pixel is excluded: bits.
constexpr int SATURATED_PIXEL = 1, HOT_PIXEL = 2, PADDING_PIXEL = 4, NEIGHBOUR_PIXEL = 8;

// What to do: put the ROIs around all positions, fit a range of them, flag what follows from other fits. Where others
// fit, a range is divided into two steps: exclude pixels, and join the results of ROIs that were cut out with the rest.
// They do so for the fits that hold sigma along z by themselves.
constexpr int PLACE_ROIS = 1, FIT_RANGE = 2, FLAG_TOGETHER = 4, EXCLUDE = 8, JOIN = 16, HELD = 32;

}  // namespace spotfit
