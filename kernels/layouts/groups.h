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
};

}  // namespace spotfit
