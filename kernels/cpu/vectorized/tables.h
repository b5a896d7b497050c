// What the files of this folder define. Each is compiled once for every instruction set, whose
// name is SPOTFIT_ISA, into a namespace of that name: code for one instruction set must never be
// taken for that of another when the library is linked.
#pragma once

#include "../interface.h"

namespace spotfit::SPOTFIT_ISA {

extern const Functions functions;

}  // namespace spotfit::SPOTFIT_ISA
