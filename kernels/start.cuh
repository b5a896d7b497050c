// From the pixels of a ROI to a search before its first step: pixels without unit or
// offset, and start values (Fit2DGaussian's rule).
//
// The centre is the maximum of a 3x3 moving average. Sigma follows from the number M of
// pixels above the spot's exp(-1/2) level, which a Gaussian exceeds within one sigma of its
// centre: sigma = sqrt(M / pi). Other models' widths begin in proportion.

#include "minimize.cuh"
#include "stage.cuh"

#define WITHIN_SIGMA 0.60653065971263342f  // exp(-1/2)

// What a fit's lanes know of its pixels together, less the first of them.
struct Summary {
    float mean, low, high, scale;
};

// Takes the lane's own pixels into registers: less their mean, and over their range. A ROI's
// first pixel comes off before. Threads that take no fit keep the pixels that they have.
__device__ __forceinline__ Summary take_pixels(const Staged& roi, PIXEL first, bool take,
                                               Pixels& pixels) {
    float total = 0.0f, low = 0.0f, high = 0.0f;
    if (take) {
#pragma unroll
        for (int k = 0; k < OWN_ROWS; ++k) {
            const PIXEL* row = row_of(roi, first_own_row() + k) + first_own_column();
#pragma unroll
            for (int i = 0; i < OWN_COLUMNS; ++i) {
                // A missing pixel is 0, as the first one is: it changes nothing here.
                const float g = has_row(k) && has_column(i) ? less(row[i], first) : 0.0f;
                pixels[k][i] = g;
                total += g;
                low = fminf(low, g);
                high = fmaxf(high, g);
            }
        }
    }
    Summary all = {sum_over_fit(total) * (1.0f / PIXELS), lowest_of_fit(low),
                   highest_of_fit(high)};
    all.scale = 1.0f / (all.high - all.low);
    if (take) {
#pragma unroll
        for (int k = 0; k < OWN_ROWS; ++k)
#pragma unroll
            for (int i = 0; i < OWN_COLUMNS; ++i)
                if (has_row(k) && has_column(i))
                    pixels[k][i] = fmaf(pixels[k][i], all.scale, -all.mean * all.scale);
    }
    return all;
}

// What start values are made from: the pixel in the middle of the brightest 3x3 (of equal
// ones, the first), and how many pixels are above the spot's exp(-1/2) level.
struct Found {
    int place;
    float bright;
};

// Looks through a lane's own pixels, and those around them.
__device__ __forceinline__ Found look_through(const Staged& roi, PIXEL first, float threshold) {
    const int left = first_own_column(), top = first_own_row();
    float above[OWN_COLUMNS] = {}, here[OWN_COLUMNS] = {}, best = -INFINITE;
    Found found = {PIXELS, 0.0f};
#pragma unroll 1
    for (int row = max(top - 1, 0); row <= min(top + OWN_ROWS, ROWS - 1); ++row) {
        const PIXEL* p = row_of(roi, row) + left;
        const bool own = row >= top && row < top + OWN_ROWS;
        // Three rows around the one in the middle, which is an own one, are read.
        const bool whole = row - 1 >= max(top, 1);
        float before = left > 0 ? less(p[-1], first) : 0.0f;
        float pixel = less(p[0], first);
#pragma unroll
        for (int i = 0; i < OWN_COLUMNS; ++i) {
            const bool more = left + i + 1 < COLUMNS;
            const float after = more ? less(p[i + 1], first) : 0.0f;
            const float below = before + pixel + after;
            const float total = above[i] + here[i] + below;
            if (whole && more && left + i > 0 && total > best) {
                best = total;
                found.place = (row - 1) * COLUMNS + left + i;
            }
            if (own && has_column(i) && pixel > threshold) found.bright += 1.0f;
            above[i] = here[i];
            here[i] = below;
            before = pixel;
            pixel = after;
        }
    }
    // The lane with the highest tells the others.
#pragma unroll
    for (int distance = 1; distance < LANES; distance *= 2) {
        const float other = __shfl_xor_sync(ALL_LANES, best, distance);
        const int there = __shfl_xor_sync(ALL_LANES, found.place, distance);
        if (other > best || (other == best && there < found.place)) {
            best = other;
            found.place = there;
        }
    }
    return {found.place, sum_over_fit(found.bright)};
}

// Puts the fit in a slot of the stage before its first step, where a thread takes one. ROIs
// with NaN or infinite pixels and constant ROIs end here.
__device__ __forceinline__ void prepare(const Rois& rois, const Stage& stage, int slot, bool take,
                                        const Limits& limits, Pixels& pixels,
                                        Search<SHAPE>& search, Kept& kept) {
    const Staged roi = find_staged(rois, stage, slot);
    const PIXEL first = row_of(roi, 0)[0];
    const Summary summary = take_pixels(roi, first, take, pixels);
    float start[SHAPE];
    bool given = true;
#pragma unroll
    for (int j = 0; j < SHAPE; ++j) {
        // The caller gives y, x, widths.
        const int place = SHAPE * slot + (j == IS_X ? IS_Y : j == IS_Y ? IS_X : j);
        start[j] = take && rois.start != nullptr ? stage.start[place] : NOT_A_NUMBER;
        given = given && start[j] == start[j];
    }
    if (__any_sync(ALL_LANES, take && !given)) {
        const float range = summary.high - summary.low;
        const Found found = look_through(roi, first, fmaf(range, WITHIN_SIGMA, summary.low));
        const float width = sqrtf(found.bright * (1.0f / PI)) * START_WIDTH;
        const float own[] = {float(found.place % COLUMNS), float(found.place / COLUMNS)};
#pragma unroll
        for (int j = 0; j < SHAPE; ++j)
            if (!(start[j] == start[j])) start[j] = j <= IS_Y ? own[j] : width;
    }
    if (!take) return;
#pragma unroll
    for (int j = 0; j < SHAPE; ++j) start[j] = clamp(start[j], limits.low[j], limits.high[j]);
    begin(search, kept, start);
    const float scale = summary.scale;
    kept.scale[lane_number()] = scale;
    kept.level[lane_number()] = float(first) + summary.mean;
    const bool usable = scale > 0.0f && scale < INFINITE && fabsf(summary.mean) < INFINITE;
    if (stage.address[slot] == nullptr || !usable) search.stop = STOP_INVALID;
}
