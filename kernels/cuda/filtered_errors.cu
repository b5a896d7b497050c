// Standard errors of filtered images on a GPU, where the fits lie: a thread for each fit.
//
// Compile-time number: THREADS (of a block).
#include "../filtered_errors.h"

namespace spotfit::SPOTFIT_ISA {

extern "C" __global__ void __launch_bounds__(THREADS)
    correct_errors_of_fits(FilteredNoise noise, ErrorColumns fits, long long count) {
    const long long i = static_cast<long long>(blockIdx.x) * THREADS + threadIdx.x;
    if (i < count) correct_errors(noise, fits, i);
}

}  // namespace spotfit::SPOTFIT_ISA
