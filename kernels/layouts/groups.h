// Spots of frames that belong together.
#pragma once

namespace spotfit {

// Positions that are linked to groups: those of a frame that are no farther apart than an ellipsoid's half axes.
struct LinkedSpots {
    const double* places;    // one number for each axis, the array's order; NaN is linked to none
    const long long* frame;  // of each, in rising order
    const double* reach;     // along each axis
    long long count;
    int axes;
    long long *heads, *next;  // memory, one for each position
    long long* group;         // is written: the first position of each one's group
    double shape[3];          // pixels of a frame along each axis; what is outside is linked to none; 0: all are inside
};

// What is known of a position before spots are fitted together, as bits.
enum SpotState {
    HAS_FIT = 1,       // its fit is good
    TAKES_PART = 2,    // it can be fitted together with others
    OVERLAPS = 4,      // another one that takes part is nearer than `overlap`
    MAY_BE_TWO = 8,    // its own fit is doubtful, as that of two spots would be
    IS_CONCERNED = 16  // fits of spots together concern it
};

// Fits of the positions of frames one by one, among which those that overlap are sought.
struct SingleFits {
    const double* given;     // one number for each axis, the array's order
    const long long* frame;  // of each, in rising order
    long long count;
    int axes;
    double pixels[3];  // in which distances are, along each axis
    // Columns of the fits, or null, as is the state, where only distances are asked for.
    const double* fitted[3];  // along each axis
    const unsigned* flags;
    const unsigned char* stop;
    const float *amplitude, *amplitude_error;  // or null, without errors
    // Widths in the plane and, in volumes, along z; or null where they are fixed, and without errors.
    const float *sigma, *sigma_error, *sigma_z, *sigma_z_error;
    unsigned not_good, left_out, doubtful;  // flags
    int invalid;                            // stop condition
    int takes_all;                          // whether all are fitted together, overlap or not
    int takes_invalid;                      // whether those that cannot be fitted alone take part
    double overlap[3];                      // the half axes of an ellipsoid in which spots overlap, and,
    double farthest, near,
        reach;  // in such pixels, from which on spots may overlap, are neighbours, concern each other
    // A spot may be two that is wider than the PSF by more than these errors, and this fraction, together.
    double psf_sigma, psf_sigma_z, errors, uneven;
    // Memory, one for each position of the largest frame, and one for each axis.
    long long *ends, *cell, *spot, *root;
    float* nearest;
    double* sorted;
    // Are written, one for each position.
    double* places;  // from which fits together begin, as `given`
    unsigned char* state;
    float *distance, *evidence;  // to the nearest other one, NaN if none is near; of the fit
};

}  // namespace spotfit
