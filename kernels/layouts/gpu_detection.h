// The settings of the kernels of detection on a GPU. PIXEL is the pixels' type.
#pragma once
#include "detection_settings.h"

namespace spotfit::SPOTFIT_ISA {

struct Limits;

// Part of some frames that is filtered and searched in one go: all rows of many, or some of one.
struct Strip {
    int frame, frames;  // the first one, and how many
    int y0, y1;         // rows that are filtered,
    int first, last;    // and those of them that are searched
};

// Frames, and what is made of them in turn; as napari_spotfit.engine.cuda.detect fills it in. There
// are as many words as it takes for a bit to each pixel of a row.
struct DetectionWork {
    DetectionSettings settings;
    const PIXEL* frames;
    int* count;            // of all maxima, whether there is room for them or not
    int* highest_count;    // of the following
    unsigned char* marks;  // ALONE, DROPPED or DARK, of each of the following
    Maximum* ordered;      // by frame, row and column
    Maximum* maxima;       // as they were found; in the end as they are ordered, the Mark for the band
    PIXEL* levels;         // of each frame
    Limits* limits;
    unsigned* odd;      // words: pixels that are bad, or for which their neighbours stand
    unsigned* found;    // words of all extrema, one beside the other
    int* row_starts;    // of each row, and of one more: where its maxima begin in a group of rows,
    int* group_starts;  // and where the group does
    float* planes;      // of the strip: bands, and means
    unsigned* high;     // words of the strip: pixels that are as high as a spot must be in either band, or as deep
    unsigned* highest;  // of the strip: its maxima that are high enough, their pixels' numbers and kinds
    double distance;    // of spots that are closer only one stays
    Strip strip;
    int number, words, room;
    int run;  // pixels of a row that a warp filters
    // Those of the settings, with zeros behind.
    float weights[WIDTHS][MAX_RADIUS + 1];
};

// A volume whose planes are the frames, some rows of all of them at a time: the strip's; and what was smoothed along
// x, with as many rows beside as the widest kernel reaches, along y, too, and the bands with the means.
struct VolumeWork {
    DetectionWork planes;
    float *along_x, *along_y, *filtered;
};

// The look for hot pixels in ROIs of frames.
struct HotPixelWork {
    DetectionSettings settings;
    const PIXEL* frames;
    const long long* corners;  // frame, first row and first column of each ROI; a negative frame: none
    unsigned char* found;      // which ROIs have hot pixels,
    unsigned char* pixels;     // and which these are, one ROI after the other; or null
    int count, rows, columns;
};

}  // namespace spotfit::SPOTFIT_ISA
