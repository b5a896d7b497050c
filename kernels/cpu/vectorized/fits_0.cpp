#include "fits.h"

namespace spotfit::SPOTFIT_ISA {

const FitsOfFile fits_0 = fits_from<0>();

}  // namespace spotfit::SPOTFIT_ISA
