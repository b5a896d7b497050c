// From fetched pixels to a search before its first step: pixels without unit or level, and
// start values (Fit2DGaussian's rule, as in start.cuh; for a turned Gaussian, what the second
// moments of the bright pixels add to it).

#include "pixelwise.cuh"

#define WITHIN_SIGMA 0.60653065971263342f  // exp(-1/2)

// How start values follow from the estimated sigma: value + per_sigma * sigma.
struct First {
    float value[SHAPE], per_sigma[SHAPE];
};

// Takes the level off the lane's own pixels and divides them by their range, so that the
// weighted sum of all is 0; weights become 1 on average.
__device__ __forceinline__ Data normalise(Room& room, Kept& kept, float& range, float& lowest) {
    const int lane = lane_number();
    float* pixels = room.pixels[lane];
    float total = 0.0f, weights = 0.0f, valid = 0.0f, low = INFINITE, high = -INFINITE;
    over_own_pixels([&](int place, int, int) {
        const float w = weight_of(room, place), g = pixels[place];
        total = fmaf(w, g, total);
        weights += w;
        if (PLANES && !(w > 0.0f)) return;
        valid += 1.0f;
        low = fminf(low, g);
        high = fmaxf(high, g);
    });
    total = sum_over_fit(total), weights = sum_over_fit(weights), valid = sum_over_fit(valid);
    low = lowest_of_fit(low), high = highest_of_fit(high);
    const float mean = total / weights, scale = 1.0f / (high - low), weight = weights / valid;
    over_own_pixels([&](int place, int, int) {
        if (PLANES && !(weight_of(room, place) > 0.0f)) return;
        pixels[place] = fmaf(pixels[place], scale, -mean * scale);
#if PLANES
        if (!LIKELIHOOD) room.planes[lane][place] /= weight;
#endif
    });
    __syncwarp();
    kept.scale[lane] = scale;
    kept.level[lane] += mean;
    range = high - low;
    lowest = (low - mean) * scale;
    return {{valid, 1.0f / valid}, valid, LIKELIHOOD ? 1.0f : weight};
}

// The pixel in the middle of the brightest 3x3 (of equal ones, the first).
__device__ __forceinline__ int brightest(const Room& room) {
    float best = -INFINITE;
    int found = PIXELS;
    const int top = first_own_row();
#pragma unroll 1
    for (int row = max(top, 1); row < min(top + OWN_ROWS, ROWS - 1); ++row) {
        float left = 0.0f, middle = 0.0f;
#pragma unroll 4
        for (int i = 0; i < COLUMNS; ++i) {
            const float right =
                pixel_of(room, row - 1, i) + pixel_of(room, row, i) + pixel_of(room, row + 1, i);
            const float total = left + middle + right;
            if (i > 1 && total > best) {
                best = total;
                found = row * COLUMNS + i - 1;
            }
            left = middle;
            middle = right;
        }
    }
    // The lane with the highest tells the others.
#pragma unroll
    for (int distance = 1; distance < LANES; distance *= 2) {
        const float other = __shfl_xor_sync(ALL_LANES, best, distance);
        const int there = __shfl_xor_sync(ALL_LANES, found, distance);
        if (other > best || (other == best && there < found)) {
            best = other;
            found = there;
        }
    }
    return found;
}

// The spot's sigma, from the number of pixels above its exp(-1/2) level.
__device__ __forceinline__ float estimated_sigma(const Room& room, float lowest) {
    float bright = 0.0f;
    over_own_pixels([&](int place, int, int) {
        const bool valid = !PLANES || weight_of(room, place) > 0.0f;
        if (valid && room.pixels[lane_number()][place] > lowest + WITHIN_SIGMA) bright += 1.0f;
    });
    return sqrtf(sum_over_fit(bright) * (1.0f / PI));
}

#if PROFILE == ROTATED

// Of what stands out of the lower third of the range, within 3 sigma of the centre.
#define STANDS_OUT 0.33f
#define REACH 3.0f
// The ratio of both widths to begin with: above 1, since the angle of a round spot is
// undetermined, and its derivative 0.
#define LEAST_RATIO 1.1f
#define MOST_RATIO 3.0f

// Gives the widths and the angle their start values where the caller has none, or has widths
// that leave the angle open.
__device__ __forceinline__ void turn(const Room& room, float lowest, float sigma,
                                     float (&start)[SHAPE]) {
    float xx = 0.0f, xy = 0.0f, yy = 0.0f;
    over_own_pixels([&](int place, int row, int column) {
        const float dx = float(column) - start[IS_X], dy = float(row) - start[IS_Y];
        const float light = room.pixels[lane_number()][place] - (lowest + STANDS_OUT);
        const float reach = REACH * sigma;
        if (PLANES && !(weight_of(room, place) > 0.0f)) return;
        if (!(light > 0.0f) || dx * dx + dy * dy > reach * reach) return;
        xx = fmaf(light * dx, dx, xx);
        xy = fmaf(light * dx, dy, xy);
        yy = fmaf(light * dy, dy, yy);
    });
    xx = sum_over_fit(xx), xy = sum_over_fit(xy), yy = sum_over_fit(yy);
    float& along = start[WIDTH_X];
    float& across = start[WIDTH_Y];
    float& angle = start[ANGLE];
    const bool open = !(along == along) || !(across == across);
    // Along the long axis, unless the axes are given; equal widths say nothing of them.
    const bool turned = angle == angle && (open || along != across || HELD_AT(ANGLE));
    const float slope = sqrtf((xx - yy) * (xx - yy) + 4.0f * xy * xy);
    float c = 1.0f, s = 0.0f;
    if (!turned) angle = 0.5f * atan2f(2.0f * xy, xx - yy);
    sincospif(angle * (1.0f / PI), &s, &c);
    const float part = turned ? c * c * (xx - yy) * 2.0f + 4.0f * c * s * xy - (xx - yy) : slope;
    float ratio = sqrtf((xx + yy + part) / (xx + yy - part));
    ratio = ratio == ratio ? clamp(ratio, 1.0f / MOST_RATIO, MOST_RATIO) : 1.0f;
    if (ratio > 1.0f / LEAST_RATIO && ratio < LEAST_RATIO)
        ratio = ratio < 1.0f ? 1.0f / LEAST_RATIO : LEAST_RATIO;
    if (!turned && !open && along < across) angle += 0.5f * PI;
    const float stretch = sqrtf(ratio);
    const bool equal = along == across;
    if (!(along == along)) along = sigma * stretch;
    else if (equal && !HELD_AT(WIDTH_X)) along *= stretch;
    if (!(across == across)) across = sigma / stretch;
    else if (equal && !HELD_AT(WIDTH_Y)) across /= stretch;
}

#endif

// Puts the lane's fit before its first step. Fits whose pixels are constant, NaN or infinite,
// or too few, end here.
__device__ __forceinline__ Data prepare(const Rois& rois, long long fit, bool exists,
                                        const Limits& limits, const First& first, Room& room,
                                        Kept& kept, Search<SHAPE>& search) {
    float range = 0.0f, lowest = 0.0f, start[SHAPE];
    const Data data = normalise(room, kept, range, lowest);
    const float sigma = estimated_sigma(room, lowest);
    const int middle = brightest(room);
    const float own[] = {float(middle % COLUMNS), float(middle / COLUMNS)};
#pragma unroll
    for (int j = 0; j < SHAPE; ++j) {
        // The caller gives y, x, widths.
        const int place = j == IS_X ? IS_Y : j == IS_Y ? IS_X : j;
        start[j] = exists && rois.start != nullptr ? rois.start[SHAPE * fit + place] : NOT_A_NUMBER;
#if PROFILE == ROTATED
        if (j == ANGLE) start[j] *= DEGREE;
        if (HELD_AT(j) && limits.low[j] == limits.high[j]) start[j] = limits.low[j];
        if (j <= IS_Y && !(start[j] == start[j])) start[j] = own[j];
#else
        if (!(start[j] == start[j]))
            start[j] = j <= IS_Y ? own[j] : fmaf(first.per_sigma[j], sigma, first.value[j]);
#endif
    }
#if PROFILE == ROTATED
    turn(room, lowest, sigma, start);
#endif
#pragma unroll
    for (int j = 0; j < SHAPE; ++j) start[j] = clamp(start[j], limits.low[j], limits.high[j]);
    begin(search, kept, start);
    const float scale = kept.scale[lane_number()];
    const bool usable = scale > 0.0f && scale < INFINITE && range < INFINITE &&
                        fabsf(kept.level[lane_number()]) < INFINITE && data.valid > FITTED;
    const bool fetched = exists && find_roi(rois, fit) >= 0;
    if (!fetched || !usable) search.stop = STOP_INVALID;
    return data;
}
