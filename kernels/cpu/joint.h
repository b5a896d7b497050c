// Joint fits of crowds of spots: what each instruction set has of them.
#pragma once
#include "../layouts/joint_fits.h"
#include "interface.h"

namespace spotfit {

struct JointFunctions {
    // The memory that a thread needs for any of the crowds first ... last - 1, in bytes, and for each, if `each` is not
    // null.
    long long (*bytes)(const JointFits&, long long first, long long last, long long* each);
    // Fits crowds from the first on until there may be no room for the spots of the next one, whose number is returned.
    long long (*fit)(const JointFits&, long long first, long long last, void* work, JointSpot* spots, long long room,
                     long long* count);
    // The most spots of a crowd with this number of candidates.
    long long (*most_spots)(long long candidates);
};

}  // namespace spotfit
