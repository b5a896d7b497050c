#include "../fit_tiles.h"
#include "tables.h"

namespace spotfit::SPOTFIT_ISA {

const ProfileFits gaussian_rotated = FITS_OF<RotatedGaussian>;
const ProfileFits moffat = FITS_OF<Moffat>;
const ProfileFits lorentzian = FITS_OF<Round<Lorentzian>>;

}  // namespace spotfit::SPOTFIT_ISA
