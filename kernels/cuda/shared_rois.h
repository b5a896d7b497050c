// ROIs in shared memory, for fits that visit every pixel with all that is known of it. Threads
// that share a fit have some lines of it each, in segments of their own.
#pragma once
#include "../profiles.h"
#include "lanes_of_fit.h"
#include "rois.h"

namespace spotfit::SPOTFIT_ISA {

// The pixels of a warp's fits, each less a number near them, and what is known of them.
template <class Lanes, class Layout, bool PLANES, bool VARIANCES, bool U_IN_MEMORY_, bool KEEPS_VALUES_>
struct Segments {
    using Pixel = typename Layout::Pixel;
    // An odd number, so that threads that read the same pixel of several fits use different banks.
    static constexpr int PITCH = (Lanes::OWN_LINES * Lanes::columns) | 1;
    static_assert(Lanes::OWN_COLUMNS == Lanes::columns, "threads have whole lines");

    float pixels[WARP * PITCH];
    float planes[PLANES ? WARP * PITCH : 1];
    // The profile's values, from one pass over the pixels to the next.
    static constexpr bool KEEPS_VALUES = KEEPS_VALUES_;
    float values[KEEPS_VALUES ? WARP * PITCH : 1];
    // The profile along the columns of each fit, where registers have no room for it: its threads
    // write the same.
    static constexpr bool U_IN_MEMORY = U_IN_MEMORY_;
    float along_x[U_IN_MEMORY ? 3 * Lanes::columns * Lanes::FITS : 1];

    // Where a pixel of a fit lies in either.
    static SPOTFIT_INLINE int place(int fit, int line, int column) {
        return (fit * Lanes::LANES + line / Lanes::OWN_LINES) * PITCH + line % Lanes::OWN_LINES * Lanes::columns +
               column;
    }

    // Takes the ROIs of the warp's fits, given the thread's own one; one that does not exist or lies
    // outside the frames is 0, which is no spot. Returns the number taken off the own one's pixels.
    SPOTFIT_INLINE float load(const RoiSource& source, long long fit, bool exists) {
        using Warp = typename Lanes::Warp;
        const long long roi = exists ? Layout::first_pixel(source, fit) : -1;
        const long long plane = PLANES && roi >= 0 ? Layout::first_pixel(source, fit, source.planes.shared) : 0;
        const Pixel reference =
            roi < 0 ? Pixel(0) : first_that_counts(source, static_cast<const Pixel*>(source.frames) + roi, plane);
        if constexpr (Lanes::LANES == 1) {
            for (int k = 0; k < Lanes::lines; ++k)
                take<Lanes::columns, 1>(
                    source, roi, plane, reference, 0,
                    [&](int i) SPOTFIT_INLINE_LAMBDA { return Layout::line_at(source, k) + i; },
                    [&](int i) SPOTFIT_INLINE_LAMBDA { return place(Warp::lane(), k, i); });
        } else {
            // Neighbouring threads take neighbouring pixels.
            for (int j = 0; j < Lanes::FITS; ++j) {
                const int from = j * Lanes::LANES;
                take<Lanes::PIXELS, WARP>(
                    source, Warp::of(roi, from), Warp::of(plane, from), Warp::of(reference, from), Warp::lane(),
                    [&](int t) SPOTFIT_INLINE_LAMBDA {
                        return Layout::line_at(source, t / Lanes::columns) + t % Lanes::columns;
                    },
                    [&](int t) SPOTFIT_INLINE_LAMBDA { return place(j, t / Lanes::columns, t % Lanes::columns); });
            }
            // Sums along the axes count lines that a thread lacks for 0.
            for (int k = 0; k < Lanes::OWN_LINES; ++k)
                for (int i = 0; i < Lanes::columns && !Lanes::has_line(k); ++i)
                    pixels[Warp::lane() * PITCH + k * Lanes::columns + i] = 0.0f;
            Warp::wait();
        }
        return float(reference);
    }

  private:
    // Takes every STRIDE-th of some pixels of a ROI, with their weights. Several at a time,
    // so that one does not wait for the other.
    template <int COUNT, int STRIDE, class There, class To>
    SPOTFIT_INLINE void take(const RoiSource& source, long long roi, long long plane, Pixel reference, int begin,
                             There there, To to) {
        const Pixel* from = static_cast<const Pixel*>(source.frames) + roi;
        take_values<COUNT, STRIDE>(pixels, begin, to, [&](int t) SPOTFIT_INLINE_LAMBDA {
            return roi >= 0 ? Layout::difference(from[there(t)], reference) : 0.0f;
        });
        if (!PLANES) return;
        take_values<COUNT, STRIDE>(planes, begin, to, [&](int t) SPOTFIT_INLINE_LAMBDA {
            return roi >= 0 ? source.planes.values[plane + there(t)] : 0.0f;
        });
    }
    template <int COUNT, int STRIDE, class To, class Value>
    static SPOTFIT_INLINE void take_values(float* values, int begin, To to, Value value) {
        constexpr int AT_ONCE = 8;
        for (int first = begin; first < COUNT; first += AT_ONCE * STRIDE) {
            float some[AT_ONCE];
            UNROLL
            for (int i = 0; i < AT_ONCE; ++i) some[i] = first + i * STRIDE < COUNT ? value(first + i * STRIDE) : 0.0f;
            UNROLL
            for (int i = 0; i < AT_ONCE; ++i)
                if (first + i * STRIDE < COUNT) values[to(first + i * STRIDE)] = some[i];
        }
    }
    static SPOTFIT_INLINE Pixel first_that_counts(const RoiSource& source, const Pixel* roi, long long plane) {
        for (int p = 0; p < Lanes::PIXELS; ++p) {
            const long long there = Layout::line_at(source, p / Lanes::columns) + p % Lanes::columns;
            const Pixel pixel = roi[there];
            if (!(absolute(float(pixel)) < INFINITE)) continue;
            if (!PLANES) return pixel;
            const float known = source.planes.values[plane + there];
            if (VARIANCES ? known >= 0.0f : known > 0.0f) return pixel;
        }
        return Pixel(0);
    }
};

template <class Lanes, class Segments, bool SEPARABLE> struct SharedRoi : Lanes {
    static constexpr int LINES_AT_ONCE = 1, LINES_UNROLLED = 1;
    static constexpr bool KEEPS_VALUES = Segments::KEEPS_VALUES;
    static constexpr int COLUMNS_KEPT = 0;
    static constexpr bool U_IN_REGISTERS = SEPARABLE && !Segments::U_IN_MEMORY;
    static constexpr int PIXELS_AT_ONCE = 4, UNROLLED = U_IN_REGISTERS ? Lanes::columns : PIXELS_AT_ONCE;

    Segments& segments;
    const void* constants;  // of the profile; null: it has none
    AxisProfile<float> along_x[U_IN_REGISTERS ? Lanes::columns : 1];

    SPOTFIT_INLINE explicit SharedRoi(Segments& segments) : segments(segments) {}

    static SPOTFIT_INLINE int own(int k, int i) {
        return Lanes::Warp::lane() * Segments::PITCH + k * Lanes::columns + i;
    }
    SPOTFIT_INLINE float at(int k, int i) const { return segments.pixels[own(k, i)]; }
    SPOTFIT_INLINE void put(int k, int i, float x) { segments.pixels[own(k, i)] = x; }
    SPOTFIT_INLINE float plane(int k, int i) const { return segments.planes[own(k, i)]; }
    SPOTFIT_INLINE void put_plane(int k, int i, float x) { segments.planes[own(k, i)] = x; }
    SPOTFIT_INLINE float value(int k, int i) const { return segments.values[own(k, i)]; }
    SPOTFIT_INLINE void put_value(int k, int i, float x) { segments.values[own(k, i)] = x; }
    SPOTFIT_INLINE float around(int line, int column) const {
        return segments.pixels[Segments::place(Lanes::own_fit(), line, column)];
    }
    SPOTFIT_INLINE AxisProfile<float> u(int i) const {
        if constexpr (U_IN_REGISTERS) return along_x[i];
        const float* own = segments.along_x + 3 * Lanes::FITS * i + Lanes::own_fit();
        return {own[0], own[Lanes::FITS], own[2 * Lanes::FITS]};
    }
    SPOTFIT_INLINE void put_u(int i, const AxisProfile<float>& u) {
        if constexpr (U_IN_REGISTERS) {
            along_x[i] = u;
        } else {
            float* own = segments.along_x + 3 * Lanes::FITS * i + Lanes::own_fit();
            own[0] = u.value, own[Lanes::FITS] = u.center, own[2 * Lanes::FITS] = u.width;
        }
    }
    // Of the fast path alone.
    SPOTFIT_INLINE float v(int) const { return 0.0f; }
    SPOTFIT_INLINE void put_v(int, float) {}
};

}  // namespace spotfit::SPOTFIT_ISA
