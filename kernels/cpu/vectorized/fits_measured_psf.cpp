#include "../lattice.h"
#include "tables.h"

namespace spotfit::SPOTFIT_ISA {

const ProfileFits measured_psf = FITS_OF<MeasuredPsf>;

}  // namespace spotfit::SPOTFIT_ISA
