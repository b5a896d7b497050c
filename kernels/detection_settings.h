// What detection is told and what it finds, the same on every machine;
// napari_spotfit/engine/detection/band.py makes the numbers.
#pragma once

namespace spotfit {

// Of the wide kernel, for any sigma that there may be.
constexpr int MAX_RADIUS = 48;

struct DetectionSettings {
    // Weights of the band-pass's narrow and wide kernel from their centres outwards, radius + 1 each.
    const float *narrow, *wide;
    // What white noise of 1 becomes: sums of narrow^2, narrow wide and wide^2 at each row and at each
    // column, three rows of numbers each.
    const double *gain_y, *gain_x;
    double gain;                       // of the whole frame, as a root mean square
    double lowest_border;              // the least that NoiseGain::border is anywhere
    double least_score, least_height;  // of a spot
    long long height, width;           // of a frame
    int narrow_radius, radius;
    int row_step;  // the noise is that of one row in so many
    // Of a pixel's noise: its variance over its mean, the variance at 0, and the least variance.
    double slope, intercept, least_variance;
    // Of a lone pixel: its step from the highest neighbour over its height, at least, and how far
    // away its surroundings are looked at.
    float lone_share;
    int lone_distance;
};

// A pixel that is higher in the filtered frame than those around it.
struct Maximum {
    int frame, y, x;
    int on_flat_area;  // of the frame itself
    float height, score;
};

// Of a block: its mean, the mean squares of detail that is fine along both axes, along x, and along
// y, the mean cube of the noise of a pixel, and the lowest pixel.
struct BlockNoise { double mean, both, along_x, along_y, cube, lowest; };

}  // namespace spotfit
