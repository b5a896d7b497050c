// Own expressions have planes always, and shape parameters that they may not need: code for every
// number of parameters and every estimator would be most of the library.
#include "../expression.h"
#include "../fit_tiles.h"
#include "tables.h"

namespace spotfit::SPOTFIT_ISA {
namespace {

template <int SHAPE, bool LIKELIHOOD>
void fit_expressions(const HostRois& source, long long first, long long last, const RoiShape& shape,
                     const FitSettings& given, void* memory, const FitResults& results) {
    FitSettings settings = given;
    for (int j = program_of(source)->parameters; j < SHAPE; ++j) settings.held |= 1 << j;
    fit_rois<FitVariant<Interpreted<SHAPE>, LIKELIHOOD, true>>(source, first, last, shape, settings, memory, results);
}

template <int SHAPE>
constexpr ProfileFits EXPRESSION_OF = {{fit_expressions<SHAPE, false>, fit_expressions<SHAPE, false>,
                                        fit_expressions<SHAPE, true>, fit_expressions<SHAPE, true>}};

}  // namespace

const ProfileFits expression_3 = EXPRESSION_OF<3>;
const ProfileFits expression_4 = EXPRESSION_OF<4>;
const ProfileFits expression_5 = EXPRESSION_OF<5>;
const ProfileFits expression_6 = EXPRESSION_OF<6>;
const ProfileFits expression_8 = EXPRESSION_OF<8>;
const ProfileFits expression_12 = EXPRESSION_OF<12>;

}  // namespace spotfit::SPOTFIT_ISA
