// What is known of a fit besides its pixels, one row of lanes each. On a CPU the rows lie behind
// a tile's pixels, on a GPU in shared memory, a warp's threads side by side.
#pragma once
#include "layouts/fit_settings.h"
#include "profiles.h"
#include "stopping.h"

namespace spotfit::SPOTFIT_ISA {

// Where row i of the upper triangle of a symmetric N x N matrix has its column j >= i.
template <int N> SPOTFIT_INLINE constexpr int upper(int i, int j) { return i * N - i * (i - 1) / 2 + j - i; }

#if defined(__CUDACC_RTC__)
constexpr int ROW_PITCH = 32;
#else
constexpr int ROW_PITCH = 1;
#endif

// Pixels are fitted as (counts - LEVEL) * SCALE. VALID: how many count; WEIGHT: what a weight of
// 1 stands for; FLOOR: the least background of maximum likelihood; NORM: the sum of squares that
// a step's change of the model is compared to, at the best point so far.
enum Row { SCALE, LEVEL, VALID, WEIGHT, FLOOR, NORM, POINT };

template <class L> struct State {
    L* first;
    SPOTFIT_INLINE L& operator[](int row) const { return first[row * ROW_PITCH]; }
    // The shape, or all parameters, of the best point so far.
    template <int N> SPOTFIT_INLINE void read_point(L (&point)[N]) const {
        UNROLL
        for (int j = 0; j < N; ++j) point[j] = (*this)[POINT + j];
    }
};

// The rows after these: the best point so far (shape, amplitude and background) with its normal
// equations.
template <class Variant> struct StateRows {
    static constexpr int NORMAL = POINT + Variant::ALL;
    static constexpr int GRADIENT = NORMAL + Variant::N * (Variant::N + 1) / 2;
    static constexpr int COUNT = GRADIENT + Variant::N;
};

// A search under way: the point to be tried next, and how it goes. `expected`: what the step that
// leads there is to lower chi-square by, had it not been stretched by `stretch`. `reach`: how far a step along z goes
// at most, with the sign of the last one; 0 before the first.
template <class L, int N> struct Search {
    L trial[N];
    L chi, damping, decrease, iterations, stop, expected, stretch, reach;
};

// The normal matrix (its upper triangle, by rows) and the right-hand side.
template <class L, int N> struct Equations {
    L a[N * (N + 1) / 2], b[N];
    SPOTFIT_INLINE L& at(int i, int j) { return a[upper<N>(i, j)]; }
    SPOTFIT_INLINE const L& at(int i, int j) const { return a[upper<N>(i, j)]; }
};

template <class Variant> SPOTFIT_INLINE bool is_held(const FitSettings& settings, int j) {
    if (j >= Variant::SHAPE) return false;
    return (Variant::HELD == HELD_AT_RUN_TIME ? settings.held : Variant::HELD) >> j & 1;
}

// Bounds of amplitude and background in the unit of the pixels.
template <class L> struct AmplitudeBounds { L amplitude_min, amplitude_max, background_min, background_max; };
template <class L>
SPOTFIT_INLINE AmplitudeBounds<L> amplitude_bounds(State<L> state, const FitSettings& settings) {
    const L scale = state[SCALE], level = state[LEVEL];
    return {settings.amplitude_min * scale, settings.amplitude_max * scale, (settings.background_min - level) * scale,
            (settings.background_max - level) * scale};
}

// Lower and upper bounds of the parameters of a search.
template <class L, int N> struct Box { L low[N], high[N]; };

template <class Variant, class L>
SPOTFIT_INLINE Box<L, Variant::ALL> bounds_of_all(State<L> state, const FitSettings& settings) {
    constexpr int S = Variant::SHAPE;
    Box<L, Variant::ALL> box;
    UNROLL
    for (int j = 0; j < S; ++j) box.low[j] = settings.low[j], box.high[j] = settings.high[j];
    const AmplitudeBounds<L> own = amplitude_bounds(state, settings);
    box.low[S] = own.amplitude_min, box.high[S] = own.amplitude_max;
    box.low[S + 1] = Variant::LIKELIHOOD ? state[FLOOR] : own.background_min;
    box.high[S + 1] = own.background_max;
    return box;
}

}  // namespace spotfit::SPOTFIT_ISA
