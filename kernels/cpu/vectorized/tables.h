// What the files of this folder define. Each is compiled once for every instruction set, whose
// name is SPOTFIT_ISA, into a namespace of that name: code for one instruction set must never be
// taken for that of another when the library is linked.
#pragma once

#include "../interface.h"

namespace spotfit::SPOTFIT_ISA {

extern const Functions functions;

// Several files, so that a compiler has something to do on every core.
extern const ProfileFits gaussian, gaussian_elliptical, gaussian_integrated, gaussian_elliptical_integrated,
    gaussian_rotated, lorentzian, moffat;
// For so many shape parameters at most.
extern const ProfileFits expression_3, expression_4, expression_5, expression_6, expression_8, expression_12;

long long large_bytes(int columns, int expression_lanes);
extern const LargeSums large_gaussian, large_gaussian_elliptical, large_gaussian_integrated,
    large_gaussian_elliptical_integrated, large_gaussian_rotated, large_lorentzian, large_moffat;
extern const LargeSums large_expression_3, large_expression_4, large_expression_5, large_expression_6,
    large_expression_8, large_expression_12;
extern const DetectionFunctions detection;

}  // namespace spotfit::SPOTFIT_ISA
