// ROIs in registers, for the fast path: threads keep their pixels, and the profile along their
// columns and rows, where arithmetic finds them. All loops over pixels are unrolled.
//
// Where several threads share a fit, a warp first copies its ROIs to shared memory, neighbouring
// threads neighbouring pixels.
#pragma once
#include "../profiles.h"
#include "lanes_of_fit.h"
#include "rois.h"

namespace spotfit::SPOTFIT_ISA {

template <class Lanes, class Layout> struct RegisterRoi : Lanes {
    using Pixel = typename Layout::Pixel;
    static constexpr int UNROLLED = 32, ROWS_AT_ONCE = 1;
    static constexpr bool KEEPS_VALUES = false;

    float pixels[Lanes::OWN_ROWS][Lanes::OWN_COLUMNS];
    AxisProfile<float> along_x[Lanes::OWN_COLUMNS];
    float along_y[Lanes::OWN_ROWS];
    // The whole ROI, if threads share it.
    const Pixel* staged;
    Pixel reference;

    SPOTFIT_INLINE float at(int k, int i) const { return pixels[k][i]; }
    SPOTFIT_INLINE void put(int k, int i, float x) { pixels[k][i] = x; }
    SPOTFIT_INLINE float around(int row, int column) const {
        if constexpr (Lanes::LANES == 1) return pixels[row][column];
        else return Layout::difference(staged[row * Lanes::columns + column], reference);
    }
    SPOTFIT_INLINE AxisProfile<float> u(int i) const { return along_x[i]; }
    SPOTFIT_INLINE float v(int k) const { return along_y[k]; }
    SPOTFIT_INLINE void put_u(int i, const AxisProfile<float>& u) { along_x[i] = u; }
    SPOTFIT_INLINE void put_v(int k, float v) { along_y[k] = v; }
    SPOTFIT_INLINE float plane(int, int) const { return 1.0f; }
    SPOTFIT_INLINE void put_plane(int, int, float) {}

    SPOTFIT_INLINE void clear() {
        UNROLL
        for (int k = 0; k < Lanes::OWN_ROWS; ++k) {
            UNROLL
            for (int i = 0; i < Lanes::OWN_COLUMNS; ++i) pixels[k][i] = 0.0f;
        }
    }

    // Takes the thread's pixels from where the ROI begins; returns the number taken off them.
    SPOTFIT_INLINE float load(const Pixel* first, long long row_pitch) {
        staged = first;
        reference = first[0];
        UNROLL
        for (int k = 0; k < Lanes::OWN_ROWS; ++k) {
            const Pixel* row = first + (Lanes::first_row() + k) * row_pitch + Lanes::first_column();
            UNROLL
            for (int i = 0; i < Lanes::OWN_COLUMNS; ++i) {
                pixels[k][i] = 0.0f;
                if (Lanes::has_row(k) && Lanes::has_column(i)) pixels[k][i] = Layout::difference(row[i], reference);
            }
        }
        return float(reference);
    }
};

// A warp's ROIs in shared memory, as they are.
template <class Lanes, class Layout> struct Stage {
    using Pixel = typename Layout::Pixel;
    // Threads that read the same pixel of neighbouring ROIs use different banks: an odd number of
    // words lies between them, or of halves or quarters of words.
    static constexpr int UNIT = sizeof(Pixel) < 4 ? 4 : int(sizeof(Pixel)), BYTES = Lanes::PIXELS * int(sizeof(Pixel));
    static constexpr int PITCH = Lanes::PIXELS + (BYTES % (2 * UNIT) == 0 ? UNIT / int(sizeof(Pixel)) : 0);

    Pixel pixels[Lanes::FITS * PITCH];
    long long places[Lanes::FITS];

    SPOTFIT_INLINE const Pixel* roi(int fit) const { return pixels + fit * PITCH; }

    // Copies `count` ROIs from `first` on; the others, and those outside the frames, become 0,
    // which is no spot.
    SPOTFIT_INLINE void copy(const RoiSource& source, long long first, int count) {
        using Warp = typename Lanes::Warp;
        const Pixel* frames = static_cast<const Pixel*>(source.frames);
        const int lane = Warp::lane();
        if (Layout::GATHER) {
            if (lane < Lanes::FITS) places[lane] = lane < count ? Layout::first_pixel(source, first + lane) : -1;
            Warp::wait();
        }
        for (int e = lane; e < Lanes::FITS * Lanes::PIXELS; e += WARP) {
            const int fit = e / Lanes::PIXELS, within = e % Lanes::PIXELS;
            Pixel pixel = 0;
            if constexpr (Layout::GATHER) {
                const int row = within / Lanes::columns, column = within % Lanes::columns;
                const long long place = places[fit];
                if (place >= 0) pixel = frames[place + row * source.width + column];
            } else {
                if (e < count * Lanes::PIXELS) pixel = frames[first * Lanes::PIXELS + e];
            }
            pixels[fit * PITCH + within] = pixel;
        }
        Warp::wait();
    }
};

}  // namespace spotfit::SPOTFIT_ISA
