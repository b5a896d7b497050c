// Detection in volumes on a GPU: some rows of all planes of a volume at a time, a thread to a voxel.
//
// Levels and odd pixels are those that detection.cu finds in its planes. Compile-time numbers: PIXEL (the pixels'
// type), THREADS (of a block).
#include "../volume_detection.h"
#include "detection_work.h"

namespace spotfit::SPOTFIT_ISA {

struct Volume : VolumeWork {
    SPOTFIT_INLINE const Work& work() const { return static_cast<const Work&>(planes); }
    SPOTFIT_INLINE const DetectionSettings& s() const { return planes.settings; }
    SPOTFIT_INLINE int rows() const { return planes.strip.y1 - planes.strip.y0; }
    SPOTFIT_INLINE int radius() const { return planes.settings.radius[WIDE]; }
    // Of what was smoothed along x, with rows beside the strip, along y, and of the bands.
    SPOTFIT_INLINE long long at_x(int w, int z, int row, int x) const {
        return place(w, z, row, x, rows() + 2 * radius());
    }
    SPOTFIT_INLINE long long at(int kind, int z, int row, int x) const { return place(kind, z, row, x, rows()); }

  private:
    SPOTFIT_INLINE long long place(int kind, int z, int row, int x, int count) const {
        return (((long long)kind * s().depth + z) * count + row) * s().width + x;
    }
};

// Calls use(z, row, x) for voxels of some rows of each plane, a thread for one after the other.
template <class Use> SPOTFIT_INLINE void each_voxel(const DetectionSettings& s, int rows, Use use) {
    const long long count = s.depth * rows * s.width, threads = (long long)gridDim.x * THREADS;
    for (long long i = (long long)blockIdx.x * THREADS + threadIdx.x; i < count; i += threads)
        use(int(i / s.width / rows), int(i / s.width % rows), int(i % s.width));
}

template <class Content>
SPOTFIT_INLINE void smooth_row(const DetectionSettings& s, int y, int x, Content content, float (&sums)[WIDTHS][1]) {
    smooth_by_all(
        s.kernels, s.radius, [&](int) { return content(y, x); },
        [&](int t) {
            const int width = int(s.width);
            const float both = content(y, mirrored(x - t, width)) + content(y, mirrored(x + t, width));
            return [both](int) { return both; };
        },
        sums);
}

extern "C" __global__ void __launch_bounds__(THREADS) smooth_along_x(Volume volume) {
    const DetectionSettings& s = volume.s();
    const Work& work = volume.work();
    each_voxel(s, volume.rows() + 2 * volume.radius(), [&](int z, int row, int x) {
        const int y = mirrored(volume.planes.strip.y0 + row - volume.radius(), int(s.height));
        float sums[WIDTHS][1];
        smooth_row(s, y, x, Cleaned{work.raw(z), work.odd_words(z), work.words}, sums);
        for (int w = 0; w < WIDTHS; ++w) volume.along_x[volume.at_x(w, z, row, x)] = sums[w][0];
        if constexpr (MAY_BE_BAD<PIXEL>) {
            smooth_row(s, y, x, Goodness{work.frame(z), work.width()}, sums);
            for (int w = 0; w < WIDTHS; ++w) volume.along_x[volume.at_x(WIDTHS + w, z, row, x)] = sums[w][0];
        }
    });
}

// Of light and, where voxels may be bad, of shares.
constexpr int SMOOTHED = MAY_BE_BAD<PIXEL> ? 2 * WIDTHS : WIDTHS;

// One sum of a centre and pairs around it.
template <class At> SPOTFIT_INLINE float smoothed_by(const float* kernel, int radius, At at) {
    float sum[1];
    smooth(
        kernel, radius, [&](int) { return at(0); },
        [&](int t) {
            const float both = at(-t) + at(t);
            return [both](int) { return both; };
        },
        sum);
    return sum[0];
}

extern "C" __global__ void __launch_bounds__(THREADS) smooth_along_y(Volume volume) {
    const DetectionSettings& s = volume.s();
    each_voxel(s, volume.rows(), [&](int z, int row, int x) {
        for (int i = 0; i < SMOOTHED; ++i)
            volume.along_y[volume.at(i, z, row, x)] =
                smoothed_by(s.kernels[i % WIDTHS], s.radius[i % WIDTHS],
                            [&](int t) { return volume.along_x[volume.at_x(i, z, row + volume.radius() + t, x)]; });
    });
}

extern "C" __global__ void __launch_bounds__(THREADS) filter_along_z(Volume volume) {
    const DetectionSettings& s = volume.s();
    each_voxel(s, volume.rows(), [&](int z, int row, int x) {
        float sums[SMOOTHED];
        for (int i = 0; i < SMOOTHED; ++i)
            sums[i] = smoothed_by(s.volume->kernels[i % WIDTHS], s.volume->radius[i % WIDTHS], [&](int t) {
                return volume.along_y[volume.at(i, mirrored(z + t, int(s.depth)), row, x)];
            });
        Filtered<float> here(sums[NARROW], sums[OWN], sums[WIDE]);
        if constexpr (MAY_BE_BAD<PIXEL>)
            here = Filtered<float>::of_good({sums[NARROW], sums[OWN], sums[WIDE]},
                                            {sums[WIDTHS + NARROW], sums[WIDTHS + OWN], sums[WIDTHS + WIDE]});
        for (int band = 0; band < BANDS; ++band) volume.filtered[volume.at(band, z, row, x)] = here.bands[band];
        volume.filtered[volume.at(BANDS, z, row, x)] = here.mean;
    });
}

// Lists the maxima of the strip that are spots', in no order; counts all, whether there is room or not.
extern "C" __global__ void __launch_bounds__(THREADS) find_in_volume(Volume volume) {
    const DetectionSettings& s = volume.s();
    const Work& work = volume.work();
    const Strip& strip = volume.planes.strip;
    const int depth = int(s.depth), height = int(s.height), width = int(s.width);
    each_voxel(s, strip.last - strip.first, [&](int z, int row, int x) {
        const int y = strip.first + row;
        const Limits& limits = work.limits[z];
        const float voxel_variance = limits.variance(volume.filtered[volume.at(BANDS, z, y - strip.y0, x)]);
        for (int band = 0; band < BANDS; ++band) {
            const float own = volume.filtered[volume.at(band, z, y - strip.y0, x)];
            if (!limits.heights[band](own, voxel_variance)) continue;
            const bool highest = is_maximum_in_volume(own, [&](int w, int v, int u) {
                const bool inside = unsigned(z + w) < unsigned(depth) && unsigned(y + v) < unsigned(height) &&
                                    unsigned(x + u) < unsigned(width);
                return inside ? volume.filtered[volume.at(band, z + w, y + v - strip.y0, x + u)] : -INFINITE;
            });
            if (!highest) continue;
            const auto at = [&](int kind, int w, int v, int u) {
                const int row_there = mirrored(y + v, height) - strip.y0;
                return volume.filtered[volume.at(kind, mirrored(z + w, depth), row_there, mirrored(x + u, width))];
            };
            Maximum maximum = {z, y, x, band, 0, 0.0f, 0.0f, 0.0f, 0.0f};
            if (!is_spot_in_volume(s, band, limits.variance, work.frame(z), z, y, x, at, maximum)) continue;
            const int place = atomicAdd(work.count, 1);
            if (place < work.room) work.maxima[place] = maximum;
        }
    });
}

}  // namespace spotfit::SPOTFIT_ISA
