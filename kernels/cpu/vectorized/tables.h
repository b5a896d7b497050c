// What the files of this folder define. Each is compiled once for every instruction set, whose
// name is SPOTFIT_ISA, into a namespace of that name: code for one instruction set must never be
// taken for that of another when the library is linked.
#pragma once

#include "../../profiles.h"
#include "../interface.h"

namespace spotfit::SPOTFIT_ISA {

extern const Functions functions;

// Every FIT_FILES-th of the built-in profiles.
struct FitsOfFile { ProfileFits of[(BuiltIn::COUNT + FIT_FILES - 1) / FIT_FILES]; };
extern const FitsOfFile fits_0, fits_1, fits_2, fits_3;
// Largest number of shape parameters.
extern const ProfileFits expression_3, expression_4, expression_5, expression_6, expression_8, expression_12;
extern const ProfileFits measured_psf;

long long large_bytes(int columns, int expression_lanes);
// Of the built-in profiles, and of expressions of 3 to MAX_SHAPE shape parameters.
struct SumsOfLarge { LargeSums of[BuiltIn::COUNT + MAX_SHAPE - 2]; };
extern const SumsOfLarge sums_of_large;
extern const DetectionFunctions detection;
extern const ExcludedPixelFunctions excluded_pixels;
extern const VerdictFunctions verdicts;
extern const JointFunctions joint;
extern const RenderFunctions rendering;
extern const OverlapFunctions overlap;

}  // namespace spotfit::SPOTFIT_ISA
