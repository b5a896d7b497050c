#include "../fit_tiles.h"
#include "tables.h"

namespace spotfit::SPOTFIT_ISA {

const ProfileFits gaussian_integrated = FITS_OF<Round<IntegratedGaussian>>;
const ProfileFits gaussian_elliptical_integrated = FITS_OF<Elliptical<IntegratedGaussian>>;

}  // namespace spotfit::SPOTFIT_ISA
