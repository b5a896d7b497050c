// What the search in a large ROI asks of the machine with the pixels: a CPU's threads, or a GPU. The
// answer is a few numbers, from which kernels/cpu/large_search.h finds the next request.
#pragma once
#include "fit_settings.h"

namespace spotfit {

enum LargeTask {
    NOTHING,    // the fit has ended
    CELLS,      // the pixels in square cells
    RESIDUALS,  // sums of least squares, with w the weight and q = w r: S, T and chi-square
    DEVIANCE,   // sums of maximum likelihood, with the search's weights: S, T and the deviance
    FISHER,     // the same with Fisher's weights
    NOISE,      // sums with the pixels' variances, w^2 var, for standard errors: S
};

// What the planes of a request are.
enum LargePlanes { NO_PLANES, WEIGHTS, VARIANCES };

// S and T are those of kernels/pixelwise.h. The residuals r = g - amplitude f - background are those
// of the amplitudes of the best point so far, so that one look at each pixel is enough for a trial,
// and no digits are lost in differences of large sums.
struct LargeRequest {
    int task;
    int pieces;         // into which a CPU cuts the work, each with sums of its own, ...
    int numbers;        // ... and how many numbers all of them return; a GPU returns one piece's
    int rows, columns;  // of the ROI
    // Sums are those of some rows.
    int first_row, end_row;
    int planes;            // a LargePlanes
    int angle_convention;  // as in FitSettings
    // A profile's coordinates count from this pixel of the ROI, near which they are exact.
    int origin_x, origin_y;
    float shape[MAX_SHAPE];
    float amplitude, background;
    // A weight counts times this; a pixel is (counts - level) * scale.
    float weight;
    double level, scale;
    // See PixelNoise.
    float peak, flat, scale_squared;
    // Cells of this many pixels a side, from a first row and column on. There are five numbers for
    // each, cell by cell: how many pixels count, the lowest and highest and the mean, less the
    // level, and the sum of the weights.
    int top, left, cell, cell_rows, cell_columns;
};

// Where the pixels of a large ROI lie in a GPU's memory: the first one, and how far it is from a row
// to the next. The same of its weights or variances and of its map of variances; null: there are none.
struct LargePixels {
    const void* pixels;
    const float *planes, *variances;
    long long row_pitch;
};

// Columns of each thread of a GPU, side by side, and of a warp, which has a tile of the ROI.
constexpr int OWN_COLUMNS = 2, TILE_COLUMNS = 32 * OWN_COLUMNS;

}  // namespace spotfit
