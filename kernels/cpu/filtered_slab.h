// A part of a volume on a CPU, some rows and columns of all its planes, filtered plane after plane: all that is made
// on the way stays in a core's cache. Planes are smoothed along both their axes as they come, and along z when those
// behind are there.
#pragma once
#include "../volume_detection.h"
#include "filtered_strip.h"

namespace spotfit::SPOTFIT_ISA {
namespace {

// A ring of the last planes.
struct RingOfPlanes {
    float* first;
    long long kept, stride;

    float* operator[](long long z) const { return first + z % kept * stride; }
};

class FilteredSlab {
  public:
    // Rows and columns that can be filtered: the part, and what its maxima are compared with.
    Rectangle inner;

    // How many planes before and after are compared with a maximum.
    static long long planes_reach(const DetectionSettings& s) {
        long long reach = 1;
        for (const auto& one : s.volume->reach) reach = most(reach, one[0]);
        return reach;
    }
    static long long floats_needed(const DetectionSettings& s) {
        const long long beside = 2 * FilteredStrip::reach(s);
        const Rectangle largest = {0, least(Strips(s).rows + beside, s.height), 0,
                                   least(Strips(s).columns + beside, s.width)};
        const Sizes z(s, largest);
        long long planes = (BANDS + 1) * z.filtered_planes * z.filtered_plane + z.filtered_stride;
        for (const long long kept : z.smoothed_planes) planes += 2 * kept * z.smoothed_plane;
        return W + z.places_floats + SmoothedStrip::floats_needed(s, largest) + planes;
    }

    // The frame is the volume's first.
    FilteredSlab(const DetectionSettings& settings, const FrameRows& pixels, const Rectangle& part, float* memory)
        : inner(part.wider(FilteredStrip::reach(settings), settings)), s(settings), z(settings, inner),
          first_frame(pixels), variance(settings, pixels.level) {
        memory = static_cast<float*>(__builtin_align_up(memory, W * sizeof(float)));
        places = reinterpret_cast<long long*>(memory);
        memory += z.places_floats;
        strip_memory = memory;
        memory += SmoothedStrip::floats_needed(s, inner);
        const auto ring = [&](long long planes, long long pitch) {
            const RingOfPlanes made = {memory, planes, pitch};
            memory += planes * pitch;
            return made;
        };
        for (int w = 0; w < WIDTHS; ++w) light[w] = ring(z.smoothed_planes[w], z.smoothed_plane);
        for (RingOfPlanes& own : filtered) own = ring(z.filtered_planes, z.filtered_plane);
        outside = memory;
        for (long long i = 0; i < z.filtered_stride; ++i) outside[i] = -INFINITE;
        memory += z.filtered_stride;
        for (int w = 0; w < WIDTHS; ++w) good[w] = ring(z.smoothed_planes[w], z.smoothed_plane);
        const Rectangle read = inner.wider(s.radius[WIDE] + s.hot_distance, s);
        for (long long i = 0; i < s.depth && !bad; ++i) bad = has_bad_pixels(frame(i), s, read);
    }

    FrameRows frame(long long i) const { return first_frame.behind(i * s.height * s.width); }
    // Filters the next plane.
    void filter_next() {
        const long long plane = next_plane++;
        for (const long long end = least(plane + s.volume->radius[WIDE], s.depth - 1); next_smoothed <= end;)
            smooth_plane(next_smoothed++);
        if (bad) smooth_along_z<true>(plane);
        else smooth_along_z<false>(plane);
    }
    // Numbers of a band, or the means after them, of a row of a plane after which no more than planes_reach have
    // come; beyond the volume, -INFINITE.
    const float* row(int kind, long long plane, long long y) const {
        const bool is_inside = 0 <= plane && plane < s.depth && 0 <= y && y < s.height;
        const float* const first = is_inside ? filtered[kind][plane] + (y - inner.y0) * z.filtered_stride : outside;
        return first + BEFORE - inner.x0;
    }
    const PixelVariance& pixel_variance() const { return variance; }

  private:
    struct Sizes {
        long long smoothed_stride, smoothed_plane, filtered_stride, filtered_plane, filtered_planes;
        long long smoothed_planes[WIDTHS], places_each, places_floats;
        Sizes(const DetectionSettings& s, const Rectangle& inner) {
            smoothed_stride = round_up(inner.width(), W);
            smoothed_plane = smoothed_stride * inner.height();
            filtered_stride = smoothed_stride + BEFORE + W;
            filtered_plane = filtered_stride * inner.height();
            filtered_planes = 2 * planes_reach(s) + 1;
            places_each = 2 * (s.volume->radius[WIDE] + 1);
            places_floats = round_up(2 * WIDTHS * places_each, W);
            for (int w = 0; w < WIDTHS; ++w)
                smoothed_planes[w] = least(s.volume->radius[w] + s.volume->radius[WIDE] + 1, s.depth);
        }
    };

    const DetectionSettings& s;
    Sizes z;
    FrameRows first_frame;
    PixelVariance variance;
    bool bad = false;
    long long next_smoothed = 0, next_plane = 0;
    RingOfPlanes light[WIDTHS], good[WIDTHS], filtered[BANDS + 1];
    float *strip_memory, *outside;
    // Of each ring, where the planes before and after lie.
    long long* places;

    void smooth_plane(long long i) {
        SmoothedStrip strip(s, frame(i), inner, bad, strip_memory);
        for (long long place = 0; place < z.smoothed_plane; place += z.smoothed_stride) {
            strip.smooth_next([&](long long x, auto any_bad, const auto& smoothed, const auto& shares)
                                  SPOTFIT_INLINE_LAMBDA {
                                      write_planes(light, i, place + x, smoothed);
                                      if constexpr (decltype(any_bad)::value) write_planes(good, i, place + x, shares);
                                  });
        }
    }
    template <int K>
    SPOTFIT_INLINE void write_planes(const RingOfPlanes (&to)[WIDTHS], long long i, long long place,
                                     const L (&values)[WIDTHS][K]) {
        UNROLL
        for (int w = 0; w < WIDTHS; ++w) {
            float* const own = to[w][i] + place;
            UNROLL
            for (int k = 0; k < K; ++k) write(own + k * W, values[w][k]);
        }
    }

    template <bool BAD> void smooth_along_z(long long plane) {
        for (int w = 0; w < WIDTHS; ++w)
            for (long long t = 0; t <= s.volume->radius[w]; ++t)
                for (int after = 0; after < 2; ++after) {
                    const long long from = mirrored<long long>(after ? plane + t : plane - t, s.depth);
                    places[w * z.places_each + 2 * t + after] = from % light[w].kept * light[w].stride;
                }
        for (long long y = 0; y < inner.height(); ++y) {
            float* to[BANDS + 1];
            for (int kind = 0; kind <= BANDS; ++kind) to[kind] = filtered[kind][plane] + y * z.filtered_stride + BEFORE;
            in_vectors(inner.width(), [&](long long x, auto vectors) SPOTFIT_INLINE_LAMBDA {
                constexpr int K = decltype(vectors)::value;
                L smoothed[WIDTHS][K], shares[WIDTHS][K];
                smooth_planes(light, y * z.smoothed_stride + x, smoothed);
                if constexpr (BAD) smooth_planes(good, y * z.smoothed_stride + x, shares);
                write_filtered<BAD>(smoothed, shares, x, to);
            });
            end_row(inner, to);
        }
    }
    template <int K>
    SPOTFIT_INLINE void smooth_planes(const RingOfPlanes (&rings)[WIDTHS], long long place, L (&smoothed)[WIDTHS][K]) {
        UNROLL
        for (int w = 0; w < WIDTHS; ++w) {
            const float* const first = rings[w].first + place;
            const long long* const own = places + w * z.places_each;
            smooth(
                s.volume->kernels[w], s.volume->radius[w],
                [&](int k) SPOTFIT_INLINE_LAMBDA { return read<L>(first + own[0] + k * W); },
                [&](int t) SPOTFIT_INLINE_LAMBDA {
                    return [before = first + own[2 * t], after = first + own[2 * t + 1]](int k)
                               SPOTFIT_INLINE_LAMBDA { return read<L>(before + k * W) + read<L>(after + k * W); };
                },
                smoothed[w]);
        }
    }
};

}  // namespace
}  // namespace spotfit::SPOTFIT_ISA
