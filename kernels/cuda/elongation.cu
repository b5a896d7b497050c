// Which fitted spots are longer in one direction than across, or far out of focus, where the frames lie: a thread for
// each spot.
//
// Compile-time numbers: PIXEL (the pixels' type), THREADS (of a block).
#include "../elongation.h"
#include "../far_light.h"
#include "../pixels.h"

namespace spotfit::SPOTFIT_ISA {

extern "C" __global__ void __launch_bounds__(THREADS)
    look_around_spots(const PIXEL* frames, long long height, long long width, const FittedSpot* spots, long long count,
                      double sigma, RoiShape roi, int around, unsigned* found) {
    const long long i = static_cast<long long>(blockIdx.x) * THREADS + threadIdx.x;
    if (i >= count) return;
    const FittedSpot spot = spots[i];
    const PIXEL* const frame = frames + spot.frame * height * width;
    const auto pixel = [&](long long y, long long x) -> float {
        if (y < 0 || y >= height || x < 0 || x >= width) return NOT_A_NUMBER;
        if constexpr (sizeof(PIXEL) == 8) return float(frame[y * width + x] - spot.level);
        else return float(frame[y * width + x]) - float(spot.level);
    };
    found[i] = around == AROUND_FAR_LIGHT ? far_light_flags(spot, roi, pixel) : long_flags(spot, sigma, pixel);
}

}  // namespace spotfit::SPOTFIT_ISA
