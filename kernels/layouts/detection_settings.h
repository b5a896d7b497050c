// The settings of detection as numbers, and what it finds;
// napari_spotfit/engine/detection/detection_settings.py fills the settings in.
#pragma once

namespace spotfit {

// Of the widest kernel, for any sigma that there may be.
constexpr int MAX_RADIUS = 48;

// Three Gaussians, and two bands: the PSF's width less the widest, the narrowest less the PSF's.
enum Width { NARROW, OWN, WIDE, WIDTHS };
enum BandNumber { WIDE_BAND, NARROW_BAND, BANDS };
// What is looked for: maxima of either band, and minima of the wide one, which stand for a band of their own.
enum Extremum { DARK_SPOT = 2, EXTREMA };
// Along x, along y, and along both diagonals.
constexpr int DIRECTIONS = 4;
// Of volumes: along each axis, along both diagonals of two axes, and along the four of all three.
constexpr int VOLUME_DIRECTIONS = 13;

struct BandSettings {
    // What white noise of 1 becomes: sums of squares of the inner kernel, of its products with the
    // outer one, and of squares of that, at each row and at each column, three rows of numbers each.
    const double *gain_y, *gain_x;
    double gain;          // away from the border
    double least_height;  // of a spot
    float skewness;       // of filtered counts, for a slope of the deviation's size
    // Of second differences in each direction: a spot's over its height, and the noise's over the gain.
    float curvature[DIRECTIONS], roughness[DIRECTIONS];
    // The weight of a place's own pixel; and the part of a spot's height that is left if that is as its neighbours are.
    float own_weight, beside;
};

// A band of volumes, plane by plane: near the first and the last one, mirrored planes count twice.
struct VolumeBandSettings {
    const double* gain_z;  // as gain_y and gain_x above
    // Of each plane, away from the borders of rows and columns: the skewness of filtered counts, times the band's
    // noise there; and the curvature as above, in each direction, 0 where none shows.
    const float *skewness, *curvature;
    // A spot's height in the wide band over that in this one; the noise of its curvature, over what it should be,
    // for one as high as the band's noise.
    double in_wide, curvature_noise;
};

// What volumes have beside planes.
struct VolumeSettings {
    const float* kernels[WIDTHS];  // along z
    VolumeBandSettings bands[BANDS];
    float sigma_z;
    int radius[WIDTHS];
    int reach[VOLUME_DIRECTIONS][3];  // of second differences along z, y and x
};

struct DetectionSettings {
    // Weights of the kernels from their centres outwards, radius + 1 each.
    const float* kernels[WIDTHS];
    BandSettings bands[BANDS];
    // Read-out variances of all pixels, in addition to the noise below; or null.
    const float* variance_map;
    double lowest_border;             // the least that the noise of a pixel is over that away from the border
    double least_score, shape_score;  // of a spot, as a deviate of a normal distribution
    double clear_score, reach;        // of a narrow maximum that locates a spot better, and how far it may be off
    double dark_score;                // of a dark spot, its depth over its deviation; infinite if none are looked for
    // Of a pixel's noise: its variance over its mean, the variance at 0, and the least variance, all
    // with what correlates pixels; and the variance over the mean without that.
    double slope, intercept, least_variance, own_slope;
    double level;  // of frames that are a part of one, where it is known
    // Of a frame; and how many frames a volume has, 1 where each is by itself. Those of a volume are numbered one
    // after the other, before those of the next.
    long long height, width, depth;
    double planes_per_pixel;       // a pixel over the distance of planes
    const VolumeSettings* volume;  // null of frames
    int radius[WIDTHS];
    int step, diagonal;  // of second differences
    int row_step;        // noise is measured in every such row
    float sigma;
    // Of a hot pixel: its step from the highest neighbour over its height, at least, and how far
    // away its surroundings are looked at.
    float hot_share;
    int hot_distance;
    int level_known;
};

// A pixel that is higher in a band than those around it.
struct Maximum {
    int frame, y, x, band;
    int on_flat_area;     // of the frame itself
    float height, score;  // the height is that in the wide band
    // The height in the narrow band, and the deviation of noise in the wide band; of volumes both are 0. Of dark spots
    // all heights are depths.
    float narrow_height, deviation;
};

// State of a maximum, in place of its band: it has no other one too close; it is no spot of
// its own; another one may be too close; or it is a dark spot.
enum Mark { ALONE, DROPPED, CROWDED, DARK };

// Of a block: its mean, the mean squares of detail that is fine along both axes, along x, and along
// y, the mean cube of the noise of a pixel, the lowest pixel; the sum over its columns of squared
// differences of their mean from that of the block, and of these times those of what is fine along
// both axes.
struct BlockNoise { double mean, both, along_x, along_y, cube, lowest, spread, rise; };

// Frames that lie one after the other.
struct DetectionSource {
    const void* frames;
    const DetectionSettings* settings;
    int pixel_type;  // a PixelType
};

// Which of the marked maxima of frames are spots, memory for the search, and the columns of those that are.
struct SpotChoice {
    long long height, width, depth;  // as in DetectionSettings
    double planes_per_pixel;
    const unsigned char*
        masks;  // where spots are looked for, for all frames, or volumes, or for each; null: everywhere
    long long mask_count;
    double distance;            // of spots that are closer only the highest stays
    int merged;                 // whether those on one plateau have been made one
    long long* row_starts;      // for a number for each row of the frames from the first to the last, and one more
    unsigned long long* order;  // for two numbers for each maximum
    // What is left out beside dark spots, see kernels/texture.h: their score, as in DetectionSettings; a spot's share
    // of a dark one's depth, by the square of its distance; and how far that reaches, and dark spots do.
    double dark_score, dark_reach;
    const float* shares;
    double share_reach;
    long long *frame, *y, *x;
    float *score, *height_in_band;
};

}  // namespace spotfit
