#include "../fit_tiles.h"
#include "tables.h"

namespace spotfit::SPOTFIT_ISA {
namespace {

long long fit_bytes(int rows, int columns, int expression_slots) {
    return Work::rows_needed(rows, columns, expression_slots) * static_cast<long long>(sizeof(LaneType)) + 64;
}

}  // namespace

const Functions functions = {
    LANES,
    fit_bytes,
    {&gaussian, &gaussian_elliptical, &gaussian_integrated, &gaussian_elliptical_integrated, &gaussian_rotated,
     &lorentzian, &moffat},
    large_bytes,
    {&large_gaussian, &large_gaussian_elliptical, &large_gaussian_integrated,
     &large_gaussian_elliptical_integrated, &large_gaussian_rotated, &large_lorentzian, &large_moffat},
    &detection,
};

}  // namespace spotfit::SPOTFIT_ISA
