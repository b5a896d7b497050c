// Spots of frames with their ROIs: where they lie, which pixels are their own.
#pragma once
#include "rois.h"

namespace spotfit {

// Spots that were found in frames, and where they are in an image.
struct FoundSpots {
    const long long *frame, *y, *x;
    long long count;
    const long long* numbers;  // of the frames
    long long* number;         // of each spot's frame
    double* places;            // y and x of each
};

// Spots of frames, each with its ROI, and their places once more by cells of the frames: those of cell c
// are those of by_cell from starts[c] to starts[c + 1] - 1.
struct SpotCells {
    const long long* corners;  // frame, first plane of volumes, row and column of each ROI; a negative frame: no spot
    const double* places;      // (z,) y and x of each spot, in pixels of its frame
    long long count;
    long long frames, down, across;  // how many frames, and rows and columns of cells in each
    long long* starts;               // one more than cells
    double* by_cell;
    double top;  // where the first row of cells begins in a frame
    int side;    // of a cell, in pixels
    RoiShape roi;
    double per_plane;  // how many pixels away a plane counts as
};

}  // namespace spotfit
