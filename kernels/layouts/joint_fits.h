// Spots whose light overlaps, which are fitted together.
#pragma once
#include "psf_lattice.h"

namespace spotfit {

// Crowds of candidates in frames, and how to fit them.
struct JointFits {
    const void* frames;
    // Of what is there of each frame; planes have a depth of 1.
    long long depth, height, width, first_plane, first_row;
    int axes;                // along which spots move: x, y and, in volumes, z
    const float* variances;  // of scaled pixels beside their mean, or null; the same for all frames if it is_shared
    int is_shared;
    int pixel_type;
    int is_integrated;    // whether the model is averaged over each pixel
    double scale, shift;  // a pixel as a number that is about as noisy as photo-electrons: value * scale + shift
    double least_noise;   // the least variance of that number, wherever the line of noise would have less
    double sigma[3];      // along x, y and z
    int reach[3];         // of the light of a spot along x, y and z, in pixels; 0 along z in planes
    double least_score;   // how far a spot stands out of the noise, as a normal deviate, at least
    int counts_spots;     // whether spots are added and dropped
    int finds_widths;     // whether crowds that are counted may be of spots of another width, all alike
    int grows;            // whether hidden spots are judged with all pixels around them: crowds are fitted again then
    int max_iterations;
    const int* stop;  // not 0 as soon as the fits are no longer wanted, which leaves crowds as they are; or null
    // All candidates by frame, y and x, and their light in the unit of the scaled pixels.
    const long long* frame;
    const double* places;  // x, y and z
    const double* light;
    const unsigned char* hidden;  // which were hidden in an earlier fit, 1, or null where none were
    long long count;
    // In planes with a measured PSF, z of all candidates in nm, or null; and the PSF, whose place among the knots is
    // that of the first pixel of a spot that is `reach` pixels from it. Searches for z begin at `template_z`.
    const double* heights;
    PsfLattice psf;
    // Pixels that count in no fit: their numbers among those of all frames, in rising order.
    const long long* lost;
    long long lost_count;
    // The candidates of crowd c are members[first[c]] ... members[first[c + 1] - 1], in rising order.
    const long long *members, *first;
};

// A spot that was found in a crowd; light is in the unit of the scaled pixels.
struct JointSpot {
    double z, y, x, light, background;
    double z_error, y_error, x_error, light_error, background_error;
    double widened, widened_z;      // how many times as wide as the PSF it is, in planes and along z
    double wider, wider_error;      // than the PSF all spots that moved together should be, as a fraction
    double ridge, blunt_ridge;      // its share of how much likelier ridges are than the spots that moved together
    double blurred, blurred_error;  // the share of the light around it that would rather be wider; NaN if not known
    double evidence;                // the logarithm of how much likelier the data are with it
    double deviance, tolerated;     // of the crowd, and what noise and a slightly different shape explain
    // The same of the pixels that are nearest to it, 0 where the crowd's deviance is tolerated.
    double own_deviance, own_tolerated;
    double squares;              // of the crowd's residual
    long long pixels, spots;     // of the crowd
    long long crowd, candidate;  // the candidate it began as, -1 for one that was hidden
    long long is_apart;          // whether it was hidden far from all candidates, where the crowd has few pixels
    int iterations, is_settled;
};

}  // namespace spotfit
