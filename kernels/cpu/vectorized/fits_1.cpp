#include "fits.h"

namespace spotfit::SPOTFIT_ISA {

const FitsOfFile fits_1 = fits_from<1>();

}  // namespace spotfit::SPOTFIT_ISA
