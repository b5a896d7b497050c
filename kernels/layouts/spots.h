// Spots of frames with their ROIs: where they lie, which are fitted together, which pixels are their own.
#pragma once

namespace spotfit {

// Spots that were found in frames, and where they are in an image.
struct FoundSpots {
    const long long *frame, *y, *x;
    long long count;
    const long long* numbers;  // of the frames
    long long* number;         // of each spot's frame
    double* places;            // y and x of each
};

// ROIs around spots of frames, and where their fits start.
struct RoisOfSpots {
    const long long* frame;
    const double* places;  // y and x of each spot, in pixels of its frame
    long long count;
    long long height, width;  // of a frame
    int rows, columns;        // of a ROI
    int parameters;           // of a shape
    long long* corners;       // frame, first row and first column of each
    float* start;             // y and x from there, NaN for the other parameters
};

// ROIs and their start values, or null, in two parts.
struct RoiParts {
    unsigned char* second;   // which are in the second part
    unsigned char* crowded;  // memory for which have neighbours: those are in it, too; null: enough is known
    const long long* corners;
    const float* start;
    long long count;
    int parameters;
    // The numbers of the ROIs, part after part, and what belongs to each.
    long long *numbers, *own_corners;
    float* own_start;
};

// Spots of frames, each with its ROI, and their places once more by cells of the frames: those of cell c
// are by_cell[2 * starts[c]] to by_cell[2 * starts[c + 1] - 1].
struct SpotCells {
    const long long* corners;  // frame, first row, first column of each ROI; a negative frame: no spot
    const double* places;      // y and x of each spot, in pixels of its frame
    long long count;
    long long frames, down, across;  // how many frames, and rows and columns of cells in each
    long long* starts;               // one more than cells
    double* by_cell;
    double top;         // where the first row of cells begins in a frame
    int side;           // of a cell, in pixels
    int rows, columns;  // of the ROIs
};

}  // namespace spotfit
