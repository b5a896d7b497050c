// The instruction sets that the library was compiled for, and which of them this machine has.
#pragma once

#include "interface.h"

namespace spotfit {

struct InstructionSet {
    const char* name;
    bool (*supported)();
    const Functions* functions;
};

// From the least to the best.
int instruction_set_count();
const InstructionSet& instruction_set(int index);

}  // namespace spotfit
