// ROIs in shared memory, for fits that visit every pixel with all that is known of it. Threads
// that share a fit have some rows of it each, in segments of their own.
#pragma once
#include "../profiles.h"
#include "lanes_of_fit.h"
#include "rois.h"

namespace spotfit::SPOTFIT_ISA {

// The pixels of a warp's fits, each less a number near them, and what is known of them.
template <class Lanes, class Layout, bool PLANES, bool VARIANCES, bool SEPARABLE> struct Segments {
    using Pixel = typename Layout::Pixel;
    // An odd number, so that threads that read the same pixel of several fits use different banks.
    static constexpr int PITCH = (Lanes::OWN_ROWS * Lanes::columns) | 1;
    static_assert(Lanes::OWN_COLUMNS == Lanes::columns, "threads have whole rows");

    float pixels[WARP * PITCH];
    float planes[PLANES ? WARP * PITCH : 1];
    static constexpr bool ALONG_X = true;
    // The profile along the columns, of each fit: its threads write the same.
    float along_x[ALONG_X && SEPARABLE ? 3 * Lanes::columns * Lanes::FITS : 1];
    long long places[Lanes::FITS], plane_places[Lanes::FITS];
    Pixel references[Lanes::FITS];

    // Where a pixel of a fit lies in either.
    static SPOTFIT_INLINE int place(int fit, int row, int column) {
        return (fit * Lanes::LANES + row / Lanes::OWN_ROWS) * PITCH + row % Lanes::OWN_ROWS * Lanes::columns + column;
    }

    // Copies `count` ROIs from `first` on, neighbouring threads neighbouring pixels. The others,
    // and those outside the frames, become 0, which is no spot. Returns the number taken off the
    // pixels of the thread's own fit.
    SPOTFIT_INLINE float copy(const RoiSource& source, long long first, int count) {
        using Warp = typename Lanes::Warp;
        const Pixel* frames = static_cast<const Pixel*>(source.frames);
        const long long row_pitch = Layout::row_pitch(source);
        const int lane = Warp::lane(), own = Lanes::own_fit();
        const long long roi = own < count ? Layout::first_pixel(source, first + own) : -1;
        const long long plane = PLANES && roi >= 0 ? Layout::first_pixel(source, first + own, source.planes.shared) : 0;
        const Pixel reference = roi < 0 ? Pixel(0) : first_that_counts(source, frames + roi, plane, row_pitch);
        if (Lanes::is_first_lane()) places[own] = roi, plane_places[own] = plane, references[own] = reference;
        Warp::wait();
        for (int fit = 0; fit < Lanes::FITS; ++fit) {
            for (int p = lane; p < Lanes::PIXELS; p += WARP) {
                const int row = p / Lanes::columns, column = p % Lanes::columns;
                const long long there = row * row_pitch + column;
                const bool exists = places[fit] >= 0;
                const int to = place(fit, row, column);
                pixels[to] = exists ? Layout::difference(frames[places[fit] + there], references[fit]) : 0.0f;
                if (PLANES) planes[to] = exists ? source.planes.values[plane_places[fit] + there] : 0.0f;
            }
        }
        Warp::wait();
        return float(reference);
    }

  private:
    static SPOTFIT_INLINE Pixel first_that_counts(const RoiSource& source, const Pixel* roi, long long plane,
                                                  long long row_pitch) {
        for (int p = 0; p < Lanes::PIXELS; ++p) {
            const long long there = p / Lanes::columns * row_pitch + p % Lanes::columns;
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
    static constexpr int ROWS_AT_ONCE = 1;
    static constexpr bool KEEPS_VALUES = false;
    static constexpr bool IN_REGISTERS = false;
    // The profile along the columns stays in registers.
    static constexpr int UNROLLED = SEPARABLE && IN_REGISTERS ? Lanes::columns : 1;

    Segments& segments;
    AxisProfile<float> along_x[SEPARABLE && IN_REGISTERS ? Lanes::columns : 1];

    SPOTFIT_INLINE explicit SharedRoi(Segments& segments) : segments(segments) {}

    static SPOTFIT_INLINE int own(int k, int i) {
        return Lanes::Warp::lane() * Segments::PITCH + k * Lanes::columns + i;
    }
    SPOTFIT_INLINE float at(int k, int i) const { return segments.pixels[own(k, i)]; }
    SPOTFIT_INLINE void put(int k, int i, float x) { segments.pixels[own(k, i)] = x; }
    SPOTFIT_INLINE float plane(int k, int i) const { return segments.planes[own(k, i)]; }
    SPOTFIT_INLINE void put_plane(int k, int i, float x) { segments.planes[own(k, i)] = x; }
    SPOTFIT_INLINE float around(int row, int column) const {
        return segments.pixels[Segments::place(Lanes::own_fit(), row, column)];
    }
    SPOTFIT_INLINE AxisProfile<float> u(int i) const {
        if constexpr (IN_REGISTERS) return along_x[i];
        const float* own = segments.along_x + 3 * Lanes::FITS * i + Lanes::own_fit();
        return {own[0], own[Lanes::FITS], own[2 * Lanes::FITS]};
    }
    SPOTFIT_INLINE void put_u(int i, const AxisProfile<float>& u) {
        if constexpr (IN_REGISTERS) {
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
