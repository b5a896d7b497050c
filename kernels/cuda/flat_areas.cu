// ROIs on a GPU whose highest pixels may be saturated, or whose lowest may be no data: a thread for each ROI.
//
// Compile-time numbers: PIXEL (the pixels' type), THREADS (of a block).
#include "../flat_areas.h"
#include "../pixels.h"

namespace spotfit::SPOTFIT_ISA {

// Of each ROI, `corners` has its frame, first row and first column; a negative frame stands for none.
extern "C" __global__ void __launch_bounds__(THREADS)
    find_flat_areas(const PIXEL* frames, long long height, long long width, const long long* corners, long long count,
                    int rows, int columns, FlatAreaRule rule, unsigned char* found) {
    const long long i = static_cast<long long>(blockIdx.x) * THREADS + threadIdx.x;
    if (i >= count) return;
    const long long* const corner = corners + 3 * i;
    found[i] = 0;
    if (corner[0] < 0) return;
    const PIXEL* const roi = frames + (corner[0] * height + corner[1]) * width + corner[2];
    const auto each = [&](auto use) {
        for (int y = 0; y < rows; ++y)
            for (int x = 0; x < columns; ++x) use(roi[y * width + x]);
    };
    PIXEL highest = roi[0], lowest = roi[0];
    bool is_number = true;
    // NaN is no pixel's highest value, nor its lowest.
    each([&](PIXEL pixel) {
        is_number &= !MAY_BE_BAD<PIXEL> || is_good(float(pixel));
        highest = pixel > highest || highest != highest ? pixel : highest;
        lowest = pixel < lowest || lowest != lowest ? pixel : lowest;
    });
    const bool top = is_flat_top(highest, rule, [&] {
        int equal = 0;
        each([&](PIXEL pixel) { equal += pixel == highest; });
        return equal;
    });
    const bool ground = has_flat_ground(roi, width, rows, columns, lowest, highest, rule);
    found[i] = (top ? FLAT_TOP : 0) | (ground ? FLAT_GROUND : 0) | (is_number ? 0 : NO_NUMBERS);
}

}  // namespace spotfit::SPOTFIT_ISA
