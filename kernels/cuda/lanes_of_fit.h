// Which part of a fit's ROI a thread has, and sums over the threads ("lanes") of one fit.
//
// A fit is shared by LANES_X x LANES_Y neighbouring threads of a warp, each of which has a
// rectangle of its pixels. What they add up is the same in all of them, to the last bit, so that
// they take every decision together.
#pragma once
#include "warp.h"

namespace spotfit::SPOTFIT_ISA {

// OWN_PLANE: of a volume, each thread has a plane, if there are as many.
template <class Warp_, int DEPTH, int ROWS, int COLUMNS, int LANES_X, int LANES_Y, bool OWN_PLANE_ = false>
struct LanesOfFit {
    static constexpr bool OWN_PLANE = OWN_PLANE_;
    static_assert(!OWN_PLANE || (LANES_X == 1 && LANES_Y >= DEPTH), "a thread has a plane at most");
    using Warp = Warp_;
    static constexpr int lines = DEPTH * ROWS, columns = COLUMNS, PIXELS = lines * COLUMNS, lanes_x = LANES_X;
    // Threads of a fit, and fits of a warp.
    static constexpr int LANES = LANES_X * LANES_Y, FITS = WARP / LANES;
    // At the far edges of the ROI some of a thread's lines and columns may be missing.
    static constexpr int OWN_LINES = OWN_PLANE ? ROWS : (lines + LANES_Y - 1) / LANES_Y;
    static constexpr int OWN_COLUMNS = (COLUMNS + LANES_X - 1) / LANES_X;

    static SPOTFIT_INLINE constexpr int lines_of_plane() { return ROWS; }
    static SPOTFIT_INLINE constexpr int own_lines() { return OWN_LINES; }
    static SPOTFIT_INLINE constexpr int own_columns() { return OWN_COLUMNS; }
    static SPOTFIT_INLINE int first_line() { return LANES_Y == 1 ? 0 : Warp::lane() / LANES_X % LANES_Y * OWN_LINES; }
    static SPOTFIT_INLINE int first_column() { return LANES_X == 1 ? 0 : Warp::lane() % LANES_X * OWN_COLUMNS; }
    // Known to the compiler for most.
    static SPOTFIT_INLINE bool has_line(int k) {
        return (LANES_Y - 1) * OWN_LINES + k < lines || first_line() + k < lines;
    }
    static SPOTFIT_INLINE bool has_column(int i) {
        return (LANES_X - 1) * OWN_COLUMNS + i < COLUMNS || first_column() + i < COLUMNS;
    }
    // Among the warp's fits.
    static SPOTFIT_INLINE int own_fit() { return Warp::lane() / LANES; }
    static SPOTFIT_INLINE bool is_first_lane() { return Warp::lane() % LANES == 0; }

    // Over the threads side by side, ...
    static SPOTFIT_INLINE float sum_along_x(float x) {
        UNROLL
        for (int distance = 1; distance < LANES_X; distance *= 2) x += Warp::exchange(x, distance);
        return x;
    }
    // ... one below the other, ...
    static SPOTFIT_INLINE float sum_along_y(float x) {
        UNROLL
        for (int distance = LANES_X; distance < LANES; distance *= 2) x += Warp::exchange(x, distance);
        return x;
    }
    // ... and all of them.
    static SPOTFIT_INLINE float sum(float x) { return sum_along_y(sum_along_x(x)); }

    static SPOTFIT_INLINE float lowest(float x) {
        UNROLL
        for (int distance = 1; distance < LANES; distance *= 2) x = lower_of(x, Warp::exchange(x, distance));
        return x;
    }
    // The place of the highest number; of equal ones, the first in the order of the rows.
    static SPOTFIT_INLINE void highest_place(float best, float& x, float& y) {
        UNROLL
        for (int distance = 1; distance < LANES; distance *= 2) {
            const float other = Warp::exchange(best, distance);
            const float other_x = Warp::exchange(x, distance), other_y = Warp::exchange(y, distance);
            const bool before = other_y < y || (other_y == y && other_x < x);
            if (other > best || (other == best && before)) best = other, x = other_x, y = other_y;
        }
    }
    // Threads that exchange numbers go on together: then this asks for any fit of the warp, and
    // what its threads have written into pixels can be read by the others.
    static SPOTFIT_INLINE bool any_fit(bool mask) {
        if (LANES == 1) return mask;
        Warp::wait();
        return Warp::any(mask);
    }
};

}  // namespace spotfit::SPOTFIT_ISA
