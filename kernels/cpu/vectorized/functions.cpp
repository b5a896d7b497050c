#include "../expression.h"
#include "../fit_tiles.h"
#include "tables.h"

namespace spotfit::SPOTFIT_ISA {
namespace {

long long fit_bytes(const RoiShape& roi, int expression_lanes) {
    return Work::rows_needed(roi, expression_lanes) * static_cast<long long>(sizeof(LaneType)) + 64;
}

void run_expression(const ExpressionStep* steps, int count, void* memory, int n, int row, int rows) {
    const SubnormalsAreZero during_this_call;
    run_steps(steps, count, static_cast<LaneType*>(memory), n, row, rows);
}

}  // namespace

const Functions functions = {
    LANES,
    fit_bytes,
    BuiltIn::COUNT,
    {fits_0.of, fits_1.of, fits_2.of, fits_3.of},
    {&expression_3, &expression_4, &expression_5, &expression_6, &expression_8, &expression_12, &measured_psf},
    run_expression,
    large_bytes,
    sums_of_large.of,
    &detection,
    &excluded_pixels,
    &verdicts,
    &joint,
    &rendering,
    &overlap,
};

}  // namespace spotfit::SPOTFIT_ISA
