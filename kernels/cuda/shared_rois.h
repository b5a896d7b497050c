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
    // The profile along the columns stays in registers, where there is room for it.
    static constexpr bool U_IN_REGISTERS = SEPARABLE && (Lanes::columns <= 16 || !VARIANCES);
    // Of each fit: its threads write the same.
    float along_x[SEPARABLE && !U_IN_REGISTERS ? 3 * Lanes::columns * Lanes::FITS : 1];

    // Where a pixel of a fit lies in either.
    static SPOTFIT_INLINE int place(int fit, int row, int column) {
        return (fit * Lanes::LANES + row / Lanes::OWN_ROWS) * PITCH + row % Lanes::OWN_ROWS * Lanes::columns + column;
    }

    // Takes the thread's rows of a ROI; one that does not exist or lies outside the frames is 0,
    // which is no spot. Returns the number taken off the pixels.
    SPOTFIT_INLINE float load(const RoiSource& source, long long fit, bool exists) {
        const long long row_pitch = Layout::row_pitch(source);
        const long long roi = exists ? Layout::first_pixel(source, fit) : -1;
        const long long plane = PLANES && roi >= 0 ? Layout::first_pixel(source, fit, source.planes.shared) : 0;
        const Pixel* from = static_cast<const Pixel*>(source.frames) + (roi < 0 ? 0 : roi);
        const float* planes_from = source.planes.values + plane;
        const Pixel reference = roi < 0 ? Pixel(0) : first_that_counts(source, from, plane, row_pitch);
        for (int k = 0; k < Lanes::OWN_ROWS; ++k) {
            if (!Lanes::has_row(k)) break;
            const long long there = (Lanes::first_row() + k) * row_pitch;
            const int to = Lanes::Warp::lane() * PITCH + k * Lanes::columns;
            take_row(pixels + to, roi >= 0, [&](int i) SPOTFIT_INLINE_LAMBDA {
                return Layout::difference(from[there + i], reference);
            });
            if (PLANES)
                take_row(planes + to, roi >= 0, [&](int i) SPOTFIT_INLINE_LAMBDA { return planes_from[there + i]; });
        }
        return float(reference);
    }

  private:
    // Several at a time, so that one does not wait for the other.
    template <class Value> static SPOTFIT_INLINE void take_row(float* to, bool exists, Value value) {
        constexpr int AT_ONCE = 8;
        for (int first = 0; first < Lanes::columns; first += AT_ONCE) {
            float some[AT_ONCE];
            UNROLL
            for (int i = 0; i < AT_ONCE; ++i)
                some[i] = exists && first + i < Lanes::columns ? value(first + i) : 0.0f;
            UNROLL
            for (int i = 0; i < AT_ONCE; ++i)
                if (first + i < Lanes::columns) to[first + i] = some[i];
        }
    }
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
    static constexpr int COLUMNS_KEPT = 0;
    static constexpr bool U_IN_REGISTERS = Segments::U_IN_REGISTERS;
    static constexpr int PIXELS_AT_ONCE = 4, UNROLLED = U_IN_REGISTERS ? Lanes::columns : PIXELS_AT_ONCE;

    Segments& segments;
    AxisProfile<float> along_x[U_IN_REGISTERS ? Lanes::columns : 1];

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
