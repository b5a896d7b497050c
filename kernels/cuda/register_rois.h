// ROIs in registers, for the fast path: threads keep their pixels, and the profile along their
// columns and rows, where arithmetic finds them. All loops over pixels are unrolled.
#pragma once
#include "../profiles.h"
#include "lanes_of_fit.h"
#include "rois.h"

namespace spotfit::SPOTFIT_ISA {

// The pixels at the edges of what a thread has, for its neighbours of the same fit.
template <class Lanes> struct Edges {
    static constexpr int ROWS = Lanes::OWN_LINES, COLUMNS = Lanes::OWN_COLUMNS;
    static constexpr bool BESIDE = COLUMNS < Lanes::columns;
    static constexpr int TOP = 0, BOTTOM = COLUMNS, LEFT = 2 * COLUMNS, RIGHT = LEFT + ROWS;
    static constexpr int COUNT = Lanes::LANES == 1 ? 0 : BESIDE ? RIGHT + ROWS : LEFT;

    float values[COUNT == 0 ? 1 : COUNT * WARP];

    SPOTFIT_INLINE void put(int k, int i, float x) {
        const int lane = Lanes::Warp::lane();
        if (COUNT == 0) return;
        if (k == 0) values[(TOP + i) * WARP + lane] = x;
        if (k == ROWS - 1) values[(BOTTOM + i) * WARP + lane] = x;
        if (!BESIDE) return;
        if (i == 0) values[(LEFT + k) * WARP + lane] = x;
        if (i == COLUMNS - 1) values[(RIGHT + k) * WARP + lane] = x;
    }
    // Of a pixel that is one row or column beyond the thread's own.
    SPOTFIT_INLINE float at(int k, int i) const {
        const int down = k < 0 ? -1 : k >= ROWS ? 1 : 0, right = i < 0 ? -1 : i >= COLUMNS ? 1 : 0;
        const int own = down != 0 ? (down < 0 ? BOTTOM : TOP) + i - right * COLUMNS : (right < 0 ? RIGHT : LEFT) + k;
        return values[own * WARP + Lanes::Warp::lane() + down * Lanes::lanes_x + right];
    }
};

// All pixels of a thread's plane, for those of the same fit that have the planes beside it.
template <class Lanes> struct PlanesBeside {
    static constexpr int ROWS = Lanes::OWN_LINES, COLUMNS = Lanes::OWN_COLUMNS;

    float values[ROWS * COLUMNS * WARP];

    SPOTFIT_INLINE void put(int k, int i, float x) { values[(k * COLUMNS + i) * WARP + Lanes::Warp::lane()] = x; }
    // Of a pixel in the plane before, or after.
    SPOTFIT_INLINE float at(int k, int i) const {
        const int after = k < 0 ? -1 : 1;
        return values[((k - after * ROWS) * COLUMNS + i) * WARP + Lanes::Warp::lane() + after];
    }
};

template <class Lanes> using Beside = typename OneOf<Lanes::OWN_PLANE, PlanesBeside<Lanes>, Edges<Lanes>>::Type;

template <class Lanes, class Layout> struct RegisterRoi : Lanes {
    using Pixel = typename Layout::Pixel;
    static constexpr int UNROLLED = 32, LINES_UNROLLED = 32, LINES_AT_ONCE = 1;
    static constexpr bool KEEPS_VALUES = false;
    static constexpr int COLUMNS_KEPT = 0;

    Beside<Lanes>& beside;
    float pixels[Lanes::OWN_LINES][Lanes::OWN_COLUMNS];
    AxisProfile<float> along_x[Lanes::OWN_COLUMNS];
    float along_y[Lanes::OWN_LINES];

    SPOTFIT_INLINE explicit RegisterRoi(Beside<Lanes>& beside) : beside(beside) {}

    SPOTFIT_INLINE float at(int k, int i) const { return pixels[k][i]; }
    SPOTFIT_INLINE void put(int k, int i, float x) {
        pixels[k][i] = x;
        beside.put(k, i, x);
    }
    SPOTFIT_INLINE float around(int row, int column) const {
        const int k = row - Lanes::first_line(), i = column - Lanes::first_column();
        if (k >= 0 && k < Lanes::OWN_LINES && i >= 0 && i < Lanes::OWN_COLUMNS) return pixels[k][i];
        return beside.at(k, i);
    }
    SPOTFIT_INLINE AxisProfile<float> u(int i) const { return along_x[i]; }
    SPOTFIT_INLINE float v(int k) const { return along_y[k]; }
    SPOTFIT_INLINE void put_u(int i, const AxisProfile<float>& u) { along_x[i] = u; }
    SPOTFIT_INLINE void put_v(int k, float v) { along_y[k] = v; }
    SPOTFIT_INLINE float plane(int, int) const { return 1.0f; }
    SPOTFIT_INLINE void put_plane(int, int, float) {}

    // Takes the thread's pixels from where the ROI begins; returns the number taken off them. A ROI
    // outside the frames, at -1, is 0, which is no spot.
    SPOTFIT_INLINE float load(const RoiSource& source, long long place) {
        if (Layout::GATHER && place < 0) {
            clear();
            return 0.0f;
        }
        const Pixel* first = static_cast<const Pixel*>(source.frames) + place;
        const Pixel reference = first[0];
        const PixelRows<Lanes, Layout> own(first, source);
        if (!own.WHOLE || Lanes::OWN_PLANE) clear();  // some are missing
        if (Lanes::OWN_PLANE && !Lanes::has_line(0)) return float(reference);
        own.each([&](int k, int i, Pixel pixel)
                     SPOTFIT_INLINE_LAMBDA { pixels[k][i] = Layout::difference(pixel, reference); });
        return float(reference);
    }

  private:
    SPOTFIT_INLINE void clear() {
        UNROLL
        for (int k = 0; k < Lanes::OWN_LINES; ++k) {
            UNROLL
            for (int i = 0; i < Lanes::OWN_COLUMNS; ++i) pixels[k][i] = 0.0f;
        }
    }
};

}  // namespace spotfit::SPOTFIT_ISA
