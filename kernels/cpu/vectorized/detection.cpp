// Detection on a CPU: frames strip by strip.
#include "../detection_frame.h"
#include "../filtered_strip.h"
#include "tables.h"

namespace spotfit::SPOTFIT_ISA {
namespace {

// Lists the maxima of a part of a frame that are spots', row after row.
class Search {
  public:
    using Near = FilteredStrip::RowsNear;
    // Whether an extremum is a spot, bright or dark, and if so, its score and height.
    using IsSpot = bool (*)(const Search&, const Near&, int extremum, long long y, long long x, Maximum&);

    Search(const DetectionSettings& settings, const FrameRows& pixels, long long frame_number,
           const Rectangle& rectangle, float* memory, Maximum* maxima, IsSpot spot)
        : s(settings), frame(pixels), number(frame_number), part(rectangle), found(maxima), is_one(spot),
          strip(settings, pixels, rectangle, memory),
          least_heights{{s, s.bands[WIDE_BAND]}, {s, s.bands[NARROW_BAND]}, LeastHeight::of_dark_spots(s)},
          least_square(least_heights[WIDE_BAND].least_square(least_heights[DARK_SPOT])) {}

    // Returns how many there are.
    long long run() {
        const long long reach = FilteredStrip::reach(s);
        long long next = part.y0;
        for (long long y = strip.inner.y0; y < strip.inner.y1; ++y) {
            strip.filter_next();
            if (y - reach >= part.y0) look_at_row(next++);
        }
        while (next < part.y1) look_at_row(next++);
        return count;
    }

    template <class T>
    static bool is_spot_of(const Search& search, const Near& row, int extremum, long long y, long long x,
                           Maximum& maximum) {
        const DetectionSettings& s = search.s;
        const PixelVariance& variance = search.strip.pixel_variance();
        const Frame<T> frame = search.frame.as<T>();
        const auto at = [&](int plane, int v, int u) {
            return row(plane, mirrored(y + v, s.height))[mirrored(x + u, s.width)];
        };
        return extremum == DARK_SPOT ? is_dark_spot(s, variance, frame, y, x, at, maximum)
                                     : is_spot(s, extremum, variance, frame, y, x, at, maximum);
    }

  private:
    const DetectionSettings& s;
    const FrameRows& frame;
    long long number;
    Rectangle part;
    Maximum* found;
    long long count = 0;
    IsSpot is_one;
    FilteredStrip strip;
    LeastHeight least_heights[EXTREMA];
    // Of the height, or depth, in the wide band, over the variance.
    float least_square;
    // Of a difference of means beside a dark spot, over its depth: a little more than is_dark_spot asks.
    float steepest_square = 1.001f * square(STEEPEST_OF_DARK * 2.0f * float(s.step) / s.sigma);

    void look_at_row(long long y) {
        const Near row = strip.rows_near(y);
        const float* const means = row(BANDS, y);
        const float* const heights[BANDS] = {row(WIDE_BAND, y), row(NARROW_BAND, y)};
        static_assert(Strips::COLUMNS / W <= 64);
        unsigned long long deep = 0, own = 1;
        for (long long x = part.x0; x < part.x1; x += W, own <<= 1) {
            const L variance = strip.pixel_variance()(read<L>(means + x));
            const L wide = read<L>(heights[WIDE_BAND] + x), narrow = read<L>(heights[NARROW_BAND] + x);
            MaskOf<L> high[BANDS];
            high[NARROW_BAND] = least_heights[NARROW_BAND](narrow, variance);
            // Most pixels are neither high nor deep: one comparison shows it.
            if (!any((wide * wide > L(least_square) * variance) | high[NARROW_BAND])) continue;
            high[WIDE_BAND] = least_heights[WIDE_BAND](wide, variance);
            deep |= any(least_heights[DARK_SPOT](-wide, variance)) ? own : 0;
            for (int band = 0; band < BANDS; ++band)
                if (any(high[band])) look_at(row, band, y, x, high[band]);
        }
        if (deep) look_for_dark_spots(row, y, deep);
    }
    // In vectors of a row, a bit for each. Most deep pixels are beside light, on a slope.
    void look_for_dark_spots(const Near& row, long long y, unsigned long long deep) {
        if (y < s.step || y >= s.height - s.step) return;
        const float* const rows[3] = {row(WIDE_BAND, y - 1), row(WIDE_BAND, y), row(WIDE_BAND, y + 1)};
        const float *const means = row(BANDS, y), *const above = row(BANDS, y - s.step);
        const float* const below = row(BANDS, y + s.step);
        for (; deep; deep &= deep - 1) {
            const long long x = part.x0 + W * __builtin_ctzll(deep);
            const auto at = [&](int v, int u) SPOTFIT_INLINE_LAMBDA { return -read<L>(rows[v + 1] + x + u); };
            const L depth = at(0, 0), right = read<L>(means + x + s.step) - read<L>(means + x - s.step);
            const L down = read<L>(below + x) - read<L>(above + x);
            const MaskOf<L> is_even = right * right + down * down <= L(steepest_square) * depth * depth;
            const MaskOf<L> is_deep = least_heights[DARK_SPOT](depth, strip.pixel_variance()(read<L>(means + x)));
            look_at_each(row, DARK_SPOT, y, x, is_deep & is_even & is_maximum(depth, at));
        }
    }
    void look_at(const Near& row, int band, long long y, long long x, MaskOf<L> high) {
        const float* const rows[3] = {row(band, y - 1), row(band, y), row(band, y + 1)};
        const auto at = [&](int v, int u) SPOTFIT_INLINE_LAMBDA { return read<L>(rows[v + 1] + x + u); };
        look_at_each(row, band, y, x, high & is_maximum(at(0, 0), at));
    }
    void look_at_each(const Near& row, int extremum, long long y, long long x, MaskOf<L> maxima) {
        if (!any(maxima)) return;
        const long long lanes = least(W, part.x1 - x);
        for (unsigned left = bits(maxima) & ((1u << lanes) - 1); left; left &= left - 1)
            look_closely(row, extremum, y, x + __builtin_ctz(left));
    }
    void look_closely(const Near& row, int extremum, long long y, long long x) {
        Maximum& maximum = found[count];
        maximum = {int(number), int(y), int(x), extremum, 0, 0.0f, 0.0f, 0.0f, 0.0f};
        count += is_one(*this, row, extremum, y, x, maximum);
    }
};

// ---- What the library shows ----

long long work_bytes(const DetectionSettings& s) {
    if (s.volume) return slab_bytes(s);
    return FilteredStrip::floats_needed(s) * static_cast<long long>(sizeof(float));
}
long long strip_count(const DetectionSettings& s) { return Strips(s).count; }
// And one that is looked at.
long long most_maxima(const DetectionSettings& s) { return Strips(s).most_maxima() + 1; }

long long find_maxima(const DetectionSource& source, long long first, long long last, void* work, Maximum* found,
                      long long room, long long* count) {
    return with_pixel_type(source.pixel_type, [&](auto pixel) {
        using T = typename decltype(pixel)::Type;
        const SubnormalsAreZero here;
        const DetectionSettings& s = *source.settings;
        const Strips strips(s);
        long long strip = strips.count ? first : last;
        for (*count = 0; strip < last && *count + most_maxima(s) <= room;) {
            const long long number = strip / strips.count, end = least((number + 1) * strips.count, last);
            if (s.volume) {
                *count += find_in_slab(source, number, strip % strips.count, work, found + *count);
                ++strip;
                continue;
            }
            const FrameRows frame(frame_of<T>(source, number));
            for (; strip < end && *count + most_maxima(s) <= room; ++strip) {
                const Rectangle part = strips[strip % strips.count];
                Search search(s, frame, number, part, static_cast<float*>(work), found + *count, Search::is_spot_of<T>);
                *count += search.run();
            }
        }
        return strip;
    });
}

}  // namespace

const DetectionFunctions detection = {
    work_bytes,           strip_count, most_maxima,   find_maxima,       order_maxima,
    merge_plateaus,       join_bands,  choose_spots,  noise_bytes,       noise_block_count,
    measure_noise_blocks, sample_size, sample_ratios, clipped_deviation, find_hot_pixels,
};

}  // namespace spotfit::SPOTFIT_ISA
