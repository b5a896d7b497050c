#include "fits.h"

namespace spotfit::SPOTFIT_ISA {

const FitsOfFile fits_3 = fits_from<3>();

}  // namespace spotfit::SPOTFIT_ISA
