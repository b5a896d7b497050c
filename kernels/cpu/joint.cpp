// Fits of crowds of spots whose light overlaps.
#include "joint.h"

#include "instruction_sets.h"

using namespace spotfit;

static const JointFunctions& joint(int index) { return *instruction_set(index).functions->joint; }

SPOTFIT_EXPORT long long spotfit_joint_bytes(int index, const JointFits* fits, long long first, long long last,
                                             long long* each) {
    return joint(index).bytes(*fits, first, last, each);
}

SPOTFIT_EXPORT long long spotfit_most_joint_spots(int index, long long candidates) {
    return joint(index).most_spots(candidates);
}

SPOTFIT_EXPORT long long spotfit_fit_joint(int index, const JointFits* fits, long long first, long long last,
                                           void* work, JointSpot* spots, long long room, long long* count) {
    return joint(index).fit(*fits, first, last, work, spots, room, count);
}
