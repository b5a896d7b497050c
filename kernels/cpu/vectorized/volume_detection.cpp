// Detection in volumes on a CPU: part by part, each of all planes.
#include "../detection_frame.h"
#include "../filtered_slab.h"

namespace spotfit::SPOTFIT_ISA {
namespace {

// Lists the maxima of a part of a volume that are spots', plane after plane.
class Search {
  public:
    // Whether a maximum of a band is a spot's, and if so, its score and height.
    using IsSpot = bool (*)(const Search&, int band, long long z, long long y, long long x, Maximum&);

    // The frame is the volume's first, of this number.
    Search(const DetectionSettings& settings, const FrameRows& pixels, long long frame_number,
           const Rectangle& rectangle, float* memory, Maximum* maxima, IsSpot spot)
        : s(settings), number(frame_number), part(rectangle), found(maxima), is_one(spot),
          slab(settings, pixels, rectangle, memory), least_heights{{s, s.bands[WIDE_BAND]}, {s, s.bands[NARROW_BAND]}} {
    }

    // Returns how many there are.
    long long run() {
        const long long reach = FilteredSlab::planes_reach(s);
        long long next = 0;
        for (long long z = 0; z < s.depth; ++z) {
            slab.filter_next();
            if (z >= reach) look_at_plane(next++);
        }
        while (next < s.depth) look_at_plane(next++);
        return count;
    }

    template <class T>
    static bool is_spot_of(const Search& search, int band, long long z, long long y, long long x, Maximum& maximum) {
        const DetectionSettings& s = search.s;
        const FilteredSlab& slab = search.slab;
        const auto at = [&](int kind, int w, int v, int u) {
            return slab.row(kind, mirrored(z + w, s.depth), mirrored(y + v, s.height))[mirrored(x + u, s.width)];
        };
        return is_spot_in_volume(s, band, slab.pixel_variance(), slab.frame(z).as<T>(), z, y, x, at, maximum);
    }

  private:
    const DetectionSettings& s;
    long long number;
    Rectangle part;
    Maximum* found;
    long long count = 0;
    IsSpot is_one;
    FilteredSlab slab;
    LeastHeight least_heights[BANDS];

    void look_at_plane(long long z) {
        for (long long y = part.y0; y < part.y1; ++y) {
            const float* const means = slab.row(BANDS, z, y);
            for (int band = 0; band < BANDS; ++band) {
                const float* const heights = slab.row(band, z, y);
                for (long long x = part.x0; x < part.x1; x += W) {
                    const MaskOf<L> high =
                        least_heights[band](read<L>(heights + x), slab.pixel_variance()(read<L>(means + x)));
                    if (any(high)) look_at(band, z, y, x, high);
                }
            }
        }
    }
    void look_at(int band, long long z, long long y, long long x, MaskOf<L> high) {
        const auto at = [&](int w, int v, int u) { return read<L>(slab.row(band, z + w, y + v) + x + u); };
        const MaskOf<L> maxima = high & is_maximum_in_volume(at(0, 0, 0), at);
        if (!any(maxima)) return;
        const long long lanes = least(W, part.x1 - x);
        for (unsigned left = bits(maxima) & ((1u << lanes) - 1); left; left &= left - 1)
            look_closely(band, z, y, x + __builtin_ctz(left));
    }
    void look_closely(int band, long long z, long long y, long long x) {
        Maximum& maximum = found[count];
        maximum = {int(number + z), int(y), int(x), band, 0, 0.0f, 0.0f, 0.0f, 0.0f};
        count += is_one(*this, band, z, y, x, maximum);
    }
};

}  // namespace

long long slab_bytes(const DetectionSettings& s) {
    return FilteredSlab::floats_needed(s) * static_cast<long long>(sizeof(float));
}

long long find_in_slab(const DetectionSource& source, long long volume, long long strip, void* work, Maximum* found) {
    return with_pixel_type(source.pixel_type, [&](auto pixel) {
        using T = typename decltype(pixel)::Type;
        const SubnormalsAreZero here;
        const DetectionSettings& s = *source.settings;
        const long long first = volume * s.depth;
        const FrameRows frame(frame_of<T>(source, first));
        Search search(s, frame, first, Strips(s)[strip], static_cast<float*>(work), found, Search::is_spot_of<T>);
        return search.run();
    });
}

}  // namespace spotfit::SPOTFIT_ISA
