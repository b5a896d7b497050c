#include "../../expression.h"
#include "../fit_tiles.h"
#include "tables.h"

namespace spotfit::SPOTFIT_ISA {
namespace {

long long fit_bytes(int rows, int columns, int expression_lanes) {
    return Work::rows_needed(rows, columns, expression_lanes) * static_cast<long long>(sizeof(LaneType)) + 64;
}

void run_expression(const ExpressionStep* steps, int count, void* memory, int n, int row, int rows) {
    const SubnormalsAreZero during_this_call;
    run_steps(steps, count, static_cast<LaneType*>(memory), n, row, rows);
}

}  // namespace

const Functions functions = {
    LANES,
    fit_bytes,
    {&gaussian, &gaussian_elliptical, &gaussian_integrated, &gaussian_elliptical_integrated, &gaussian_rotated,
     &lorentzian, &moffat, &expression_3, &expression_4, &expression_5, &expression_6, &expression_8, &expression_12},
    run_expression,
    large_bytes,
    {&large_gaussian, &large_gaussian_elliptical, &large_gaussian_integrated,
     &large_gaussian_elliptical_integrated, &large_gaussian_rotated, &large_lorentzian, &large_moffat,
     &large_expression_3, &large_expression_4, &large_expression_5, &large_expression_6, &large_expression_8,
     &large_expression_8, &large_expression_12, &large_expression_12, &large_expression_12, &large_expression_12},
    &detection,
};

}  // namespace spotfit::SPOTFIT_ISA
