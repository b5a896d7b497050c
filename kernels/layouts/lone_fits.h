// Spots that do not overlap; some of them may be two.
#pragma once
#include "fit_block.h"
#include "groups.h"
#include "joint_fits.h"

namespace spotfit {

// What joint fits make of such spots: they concern none; none changes; or that must be found out by fits of all.
enum LoneOutcome { NONE_IS_CONCERNED = 0, ALL_STAY = 1, MAY_CHANGE = 2 };

// Fits of the positions of frames one by one, and how those that may be two are fitted together with what is near.
struct LoneFits {
    SingleFits singles;    // in planes
    const float* photons;  // of each position
    float gain, unit;      // light is photons * gain / unit
    double widest;         // the larger one of the spots' widths
    // Half axes of an ellipsoid in which spots are linked, along y and x, and how far apart linked ones may be.
    double linking[2], linked;
    JointFits joint;    // without candidates
    BlockFits* search;  // for pixels that count in no fit, around positions that are filled in
    void* search_work;
    long long room;                 // how many positions may be concerned
    long long crowd_bytes;          // memory for a crowd
    unsigned char *memory, *crowd;  // of spotfit_lone_bytes, and for a crowd
};

}  // namespace spotfit
