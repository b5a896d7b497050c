// ROIs of frames on a GPU, cut out: a thread for each pixel.
//
// Compile-time numbers: PIXEL (a number of as many bytes), THREADS (of a block).
#include "../lanes.h"

namespace spotfit::SPOTFIT_ISA {

// Of each ROI, `corners` has its frame, first row and first column; where it is shared, there is one frame for all.
extern "C" __global__ void __launch_bounds__(THREADS)
    cut_out(const PIXEL* values, long long height, long long width, int shared, const long long* corners,
            long long count, int rows, int columns, PIXEL* rois) {
    const long long i = static_cast<long long>(blockIdx.x) * THREADS + threadIdx.x;
    const int size = rows * columns;
    if (i >= count * size) return;
    const long long* const corner = corners + 3 * (i / size);
    const int pixel = int(i % size);
    const long long row = (shared ? 0 : corner[0]) * height + corner[1] + pixel / columns;
    rois[i] = values[row * width + corner[2] + pixel % columns];
}

}  // namespace spotfit::SPOTFIT_ISA
