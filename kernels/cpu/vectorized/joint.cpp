// Joint fits of crowds, one after the other.
#include "../joint.h"

#include "../../crowd.h"
#include "../instruction_set.h"
#include "tables.h"

namespace spotfit::SPOTFIT_ISA {
namespace {

long long bytes(const JointFits& fits, long long first, long long last, long long* each) {
    unsigned char none[1];
    long long most = 0;
    for (long long c = first; c < last; ++c) {
        const long long own = Crowd(fits, c, none).end_of_memory() - none + 64;
        if (each) each[c - first] = own;
        if (own > most) most = own;
    }
    return most;
}

long long most_spots(long long candidates) { return Crowd::most_spots(candidates); }

long long fit(const JointFits& fits, long long first, long long last, void* work, JointSpot* spots, long long room,
              long long* count) {
    const SubnormalsAreZero during_this_call;
    *count = 0;
    for (; first < last; ++first) {
        if (*count + most_spots(fits.first[first + 1] - fits.first[first]) > room) break;
        Crowd crowd(fits, first, work);
        const int found = crowd.fit();
        crowd.put(spots + *count);
        *count += found;
    }
    return first;
}

}  // namespace

const JointFunctions joint = {bytes, fit, most_spots};

}  // namespace spotfit::SPOTFIT_ISA
