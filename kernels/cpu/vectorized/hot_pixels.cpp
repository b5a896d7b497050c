// Hot pixels in ROIs, where they lie in the frames.
#include "../filtered_strip.h"
#include "../inside.h"
#include "tables.h"

namespace spotfit::SPOTFIT_ISA {
namespace {

// A part of a ROI that is looked at at a time, and what is read of a row for it.
constexpr int SIDE = 32, STRIDE = round_up(SIDE + 2, W) + W;

template <class T> class HotPixelsOfRoi {
  public:
    HotPixelsOfRoi(const DetectionSource& source, long long number)
        : s(*source.settings), raw{frame_of<T>(source, number), s.height, s.width},
          variance(s, double(raw.frame.level)) {}

    // Calls use(y, x) for the hot pixels of a part of the frame.
    template <class Use> void each(const Rectangle& part, Use use) {
        for (long long y = part.y0 - 1; y <= part.y1; ++y) take(part, y);
        for (long long y = part.y0; y < part.y1; ++y)
            for (long long x = part.x0; x < part.x1; x += W) {
                const float* const place = rows[y - part.y0 + 1] + x - part.x0 + 1;
                const auto beside = [&](int v, int u) SPOTFIT_INLINE_LAMBDA { return read<L>(place + v * STRIDE + u); };
                const MaskOf<L> high = may_be_hot<L>(variance, beside);
                if (any(high)) look_closely(high, y, x, least(W, part.x1 - x), use);
            }
    }

  private:
    const DetectionSettings& s;
    Raw<T, long long> raw;
    PixelVariance variance;
    float rows[SIDE + 2][STRIDE] = {};

    // Takes a row of the frame, and a pixel on each side of the part, mirrored beside the frame.
    void take(const Rectangle& part, long long y) {
        float* const to = rows[y - part.y0 + 1] + 1 - part.x0;
        const long long x0 = most(part.x0 - 1, 0), x1 = least(part.x1 + 1, s.width);
        // With fewer than a vector, pixels would be copied one by one.
        const long long count = least(most(x1 - x0, W), s.width - x0);
        copy_row(raw.frame.pixels + mirrored(y, s.height) * s.width + x0, count, raw.frame.level, NOT_A_NUMBER,
                 to + x0);
        if (part.x0 == 0) to[-1] = to[mirrored(-1LL, s.width)];
        if (part.x1 == s.width) to[s.width] = to[mirrored(s.width, s.width)];
    }
    template <class Use>
    void look_closely(const MaskOf<L>& high, long long y, long long x, long long lanes, Use use) const {
        for (int k = 0; k < lanes; ++k)
            if (high.v[k] && is_hot_in_fit(s, variance, raw, y, x + k)) use(y, x + k);
    }
};

template <class T>
void find_in(const DetectionSource& source, const long long* corners, long long first, long long last, int rows,
             int columns, unsigned char* found, unsigned char* pixels) {
    for (long long n = first; n < last;) {
        const long long number = corners[3 * n];
        HotPixelsOfRoi<T> search(source, number < 0 ? 0 : number);
        for (; n < last && corners[3 * n] == number; ++n) {
            const long long top = corners[3 * n + 1], left = corners[3 * n + 2];
            unsigned char* const own = pixels == nullptr ? nullptr : pixels + n * rows * columns;
            if (own != nullptr) __builtin_memset(own, 0, static_cast<unsigned long>(rows) * columns);
            found[n] = 0;
            if (!is_inside(corners + 3 * n, source.settings->height, source.settings->width, rows, columns)) continue;
            for (int v = 0; v < rows; v += SIDE)
                for (int u = 0; u < columns; u += SIDE) {
                    const Rectangle part = {top + v, top + least(v + SIDE, rows), left + u,
                                            left + least(u + SIDE, columns)};
                    search.each(part, [&](long long y, long long x) {
                        found[n] = 1;
                        if (own != nullptr) own[(y - top) * columns + x - left] = 1;
                    });
                }
        }
    }
}

}  // namespace

void find_hot_pixels(const DetectionSource& source, const long long* corners, long long first, long long last, int rows,
                     int columns, unsigned char* found, unsigned char* pixels) {
    with_pixel_type(source.pixel_type, [&](auto pixel) {
        using T = typename decltype(pixel)::Type;
        const SubnormalsAreZero here;
        find_in<T>(source, corners, first, last, rows, columns, found, pixels);
    });
}

}  // namespace spotfit::SPOTFIT_ISA
