// Detection on a CPU: frames strip by strip.
#include "../detection_frame.h"
#include "../filtered_strip.h"
#include "tables.h"

namespace spotfit::SPOTFIT_ISA {
namespace {

// Lists the maxima of a part of a frame that are spots', row after row.
template <class T> class Search {
  public:
    Search(const DetectionSettings& settings, const Frame<T>& pixels, long long frame_number,
           const Rectangle& rectangle, float* memory, Maximum* maxima)
        : s(settings), frame(pixels), number(frame_number), part(rectangle), found(maxima),
          strip(settings, pixels, rectangle, memory),
          least_heights{{s, s.bands[WIDE_BAND]}, {s, s.bands[NARROW_BAND]}} {}

    // Returns how many there are.
    long long run() {
        const long long reach = FilteredStrip<T>::reach(s);
        long long next = part.y0;
        for (long long y = strip.inner.y0; y < strip.inner.y1; ++y) {
            strip.filter_next();
            if (y - reach >= part.y0) look_at_row(next++);
        }
        while (next < part.y1) look_at_row(next++);
        return count;
    }

  private:
    const DetectionSettings& s;
    const Frame<T>& frame;
    long long number;
    Rectangle part;
    Maximum* found;
    long long count = 0;
    FilteredStrip<T> strip;
    LeastHeight least_heights[BANDS];

    using Near = typename FilteredStrip<T>::RowsNear;

    void look_at_row(long long y) {
        const Near row = strip.rows_near(y);
        const float* const means = row(BANDS, y);
        const float* const heights[BANDS] = {row(WIDE_BAND, y), row(NARROW_BAND, y)};
        for (long long x = part.x0; x < part.x1; x += W) {
            const L variance = strip.pixel_variance()(read<L>(means + x));
            MaskOf<L> high[BANDS];
            for (int band = 0; band < BANDS; ++band)
                high[band] = least_heights[band](read<L>(heights[band] + x), variance);
            if (!any(high[WIDE_BAND] | high[NARROW_BAND])) continue;
            for (int band = 0; band < BANDS; ++band)
                if (any(high[band])) look_at(row, band, y, x, high[band]);
        }
    }
    void look_at(const Near& row, int band, long long y, long long x, MaskOf<L> high) {
        const float* const rows[3] = {row(band, y - 1), row(band, y), row(band, y + 1)};
        const auto at = [&](int v, int u) SPOTFIT_INLINE_LAMBDA { return read<L>(rows[v + 1] + x + u); };
        const MaskOf<L> maxima = high & is_maximum(at(0, 0), at);
        if (!any(maxima)) return;
        const long long lanes = least(W, part.x1 - x);
        for (unsigned left = bits(maxima) & ((1u << lanes) - 1); left; left &= left - 1)
            look_closely(row, band, y, x + __builtin_ctz(left));
    }
    void look_closely(const Near& row, int band, long long y, long long x) {
        const auto at = [&](int plane, int v, int u) {
            return row(plane, mirrored(y + v, s.height))[mirrored(x + u, s.width)];
        };
        Maximum& maximum = found[count];
        maximum = {int(number), int(y), int(x), band, 0, 0.0f, 0.0f};
        count += is_spot(s, band, strip.pixel_variance(), frame, y, x, at, maximum);
    }
};

// ---- What the library shows ----

long long work_bytes(const DetectionSettings& s) {
    if (s.volume) return slab_bytes(s);
    return FilteredStrip<float>::floats_needed(s) * static_cast<long long>(sizeof(float));
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
            const Frame<T> frame = frame_of<T>(source, number);
            for (; strip < end && *count + most_maxima(s) <= room; ++strip) {
                const Rectangle part = strips[strip % strips.count];
                Search<T> search(s, frame, number, part, static_cast<float*>(work), found + *count);
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
