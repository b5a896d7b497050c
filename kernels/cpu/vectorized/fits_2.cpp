#include "fits.h"

namespace spotfit::SPOTFIT_ISA {

const FitsOfFile fits_2 = fits_from<2>();

}  // namespace spotfit::SPOTFIT_ISA
