#include "../fit_tiles.h"
#include "tables.h"

namespace spotfit::SPOTFIT_ISA {

const ProfileFits gaussian = FITS_OF<Round<Gaussian>>;
const ProfileFits gaussian_elliptical = FITS_OF<Elliptical<Gaussian>>;

}  // namespace spotfit::SPOTFIT_ISA
