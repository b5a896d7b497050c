// What detection's kernels on a GPU are told, and what they make in turn.
#pragma once
#include "../detection.h"
#include "warp.h"

namespace spotfit::SPOTFIT_ISA {

constexpr int WARPS = THREADS / WARP;

SPOTFIT_INLINE int least(int a, int b) { return a < b ? a : b; }
SPOTFIT_INLINE int most(int a, int b) { return a > b ? a : b; }

// What a pixel of a frame is compared with.
struct Limits {
    PixelVariance variance;
    LeastHeight heights[BANDS];
};

// Part of some frames that is filtered and searched in one go: all rows of many, or some of one.
struct Strip {
    int frame, frames;  // the first one, and how many
    int y0, y1;         // rows that are filtered,
    int first, last;    // and those of them that are searched

    SPOTFIT_INLINE int rows() const { return y1 - y0; }
};

// Frames, and what is made of them in turn; as napari_spotfit.engine.cuda.detect fills it in. There
// are as many words as it takes for a bit to each pixel of a row.
struct Work {
    DetectionSettings settings;
    const PIXEL* frames;
    int* count;            // of all maxima, whether there is room for them or not
    int* highest_count;    // of the following
    unsigned char* marks;  // ALONE or DROPPED, of each of the following
    Maximum* ordered;      // by frame, row and column
    Maximum* maxima;       // as they were found; in the end as they are ordered, the Mark for the band
    PIXEL* levels;         // of each frame
    Limits* limits;
    unsigned* odd;      // words: pixels that are bad, or for which their neighbours stand
    unsigned* found;    // words of both bands, one beside the other: maxima
    int* row_starts;    // of each row, and of one more: where its maxima begin in a group of rows,
    int* group_starts;  // and where the group does
    float* planes;      // of the strip: bands, and means
    unsigned* high;     // words of the strip: pixels that are as high as a spot must be in either band
    unsigned* highest;  // of the strip: its maxima that are high enough, their pixels' numbers and bands
    double distance;    // of spots that are closer only one stays
    Strip strip;
    int number, words, room;
    int run;  // pixels of a row that a warp filters
    // Those of the settings, with zeros behind.
    float weights[WIDTHS][MAX_RADIUS + 1];

    SPOTFIT_INLINE int height() const { return int(settings.height); }
    SPOTFIT_INLINE int width() const { return int(settings.width); }
    SPOTFIT_INLINE Frame<PIXEL> frame(int i) const {
        return {frames + i * settings.height * settings.width, levels[i]};
    }
    SPOTFIT_INLINE Raw<PIXEL, int> raw(int i) const { return {frame(i), height(), width()}; }
    SPOTFIT_INLINE const unsigned* odd_words(int frame) const { return odd + (long long)frame * height() * words; }
    SPOTFIT_INLINE float* plane(int i, int frame, int y) const {
        const long long row = (long long)(i * strip.frames + frame - strip.frame) * strip.rows() + y - strip.y0;
        return planes + row * width();
    }
};

SPOTFIT_INLINE int own_warp(int first_block) {
    return (first_block + int(blockIdx.x)) * WARPS + int(threadIdx.x) / WARP;
}

}  // namespace spotfit::SPOTFIT_ISA
