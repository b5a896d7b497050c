// What works on a crowd on a GPU: a warp, whose halves have a line of pixels each.
#pragma once
#include "warp.h"

// Code that is in a kernel once, and loops that are in it as they are written: warps are in all parts of the kernel at
// the same time, and wait for code that is not in the multiprocessor's cache.
#if defined(__CUDACC_RTC__)
#define SPOTFIT_NOT_INLINE __noinline__
#else
#define SPOTFIT_NOT_INLINE
#endif
#define ROLLED ONE_IN_CODE
#define SHORT_ROW

namespace spotfit::SPOTFIT_ISA {

constexpr int SIDE_BY_SIDE = 16;
using Pixels = float;

SPOTFIT_INLINE int own_pixel() { return Warp::lane() % SIDE_BY_SIDE; }
SPOTFIT_INLINE Pixels load_pixels(const float* from) { return from[own_pixel()]; }
SPOTFIT_INLINE void store_pixels(float* to, Pixels p) { to[own_pixel()] = p; }
SPOTFIT_INLINE Pixels numbers_of_pixels() { return float(own_pixel()); }
// Something at both edges of each pixel of a line from 0 on, given at a place.
template <class Edge, class Each> SPOTFIT_INLINE void over_edges(int, int padded, Edge edge, Each each) {
    Pixels place = numbers_of_pixels() - 0.5f;
    ROLLED
    for (int k = 0; k < padded; k += SIDE_BY_SIDE, place += float(SIDE_BY_SIDE))
        each(k, edge(place), edge(place + 1.0f));
}
SPOTFIT_INLINE Pixels next_pixels(Pixels, Pixels behind) { return behind; }
SPOTFIT_INLINE bool any_pixel(bool mask) { return Warp::any(mask); }

template <class Number> SPOTFIT_NOT_INLINE Number sum_of_warp(Number own) {
    ROLLED
    for (int distance = WARP / 2; distance > 0; distance /= 2) own += Warp::exchange(own, distance);
    return own;
}
// Of both lines.
SPOTFIT_INLINE float sum_of(Pixels p) { return sum_of_warp(p); }

// The same of some: with each exchange a lane has half of the sums left, of twice as many lanes.
constexpr int SUMS_AT_ONCE = 8;
SPOTFIT_NOT_INLINE inline void put_sums(float a, float b, float c, float d, float e, float f, float g, float h,
                                        double* sums) {
    float left[] = {a, b, c, d, e, f, g, h};
    UNROLL
    for (int half = SUMS_AT_ONCE / 2, distance = WARP / 2; half > 0; half /= 2, distance /= 2) {
        const bool is_upper = Warp::lane() & distance;
        UNROLL
        for (int k = 0; k < half; ++k) {
            const float other = is_upper ? left[k] : left[half + k];
            left[k] = (is_upper ? left[half + k] : left[k]) + Warp::exchange(other, distance);
        }
    }
    float own = left[0];
    own += Warp::exchange(own, 2);
    own += Warp::exchange(own, 1);
    if (Warp::lane() % 4 == 0) sums[Warp::lane() / 4] = own;
}
template <int COUNT> SPOTFIT_INLINE void all_sums(const Pixels (&own)[COUNT], double* sums) {
    constexpr int MANY = COUNT / SUMS_AT_ONCE * SUMS_AT_ONCE;
    Warp::wait();
    UNROLL
    for (int k = 0; k < MANY; k += SUMS_AT_ONCE)
        put_sums(own[k], own[k + 1], own[k + 2], own[k + 3], own[k + 4], own[k + 5], own[k + 6], own[k + 7], sums + k);
    UNROLL
    for (int k = MANY; k < COUNT; ++k) {
        const float sum = sum_of(own[k]);
        if (Warp::lane() == 0) sums[k] = sum;
    }
    Warp::wait();
}

class Total {
    double sum = 0;

  public:
    SPOTFIT_INLINE void add(Pixels p) { sum += p; }
    SPOTFIT_INLINE double value() const { return sum_of_warp(sum); }
};

SPOTFIT_NOT_INLINE inline double part_of_dot(const double* a, const double* b, int count) {
    double sum = 0;
    ROLLED
    for (int k = Warp::lane(); k < count; k += WARP) sum += a[k] * b[k];
    return sum;
}

// Numbers first ... end - 1, and `then` ... last - 1, by those who have the `own`-th one and each `apart` further on.
template <class Function>
SPOTFIT_INLINE void over_two_ranges(int first, int end, int then, int last, int own, int apart, Function each) {
    const int of_first = end > first ? end - first : 0, all = of_first + last - then;
    ROLLED
    for (int k = own; k < all; k += apart) each(k < of_first ? first + k : then + (k - of_first));
}

// How far the warps of a block have come: the number of a crowd among those of its warp, a place in its fit, and a
// step. Crowds are so small that a warp needs most of the kernel's code once for each, and code has to be fetched. So
// warps wait for each other at the same places, and fetch it together.
class Meeting {
    static constexpr unsigned PARTS = 16, STEPS = 128, OF_CROWD = 256 * STEPS, FAR_AHEAD = 1u << 30;
    // How long a warp waits for others at most, whose crowds may be larger.
    static constexpr long long MOST_CYCLES = 1 << 20;

    unsigned reached[THREADS / WARP];

    static SPOTFIT_INLINE unsigned now(unsigned& of_warp) { return atomicOr(&of_warp, 0u); }
    SPOTFIT_INLINE unsigned own() { return Warp::of(Warp::lane() == 0 ? now(reached[threadIdx.x / WARP]) : 0u, 0); }
    SPOTFIT_INLINE void put(unsigned place) {
        Warp::wait();
        if (Warp::lane() == 0) atomicExch(&reached[threadIdx.x / WARP], place);
        Warp::wait();
    }
    SPOTFIT_NOT_INLINE void come_to(unsigned place) {
        if (int(place - own()) <= 0) return;
        put(place);
        Warp::wait_while(MOST_CYCLES,
                         [&] { return Warp::lane() < THREADS / WARP && int(now(reached[Warp::lane()]) - place) < 0; });
        Warp::wait();
    }

  public:
    SPOTFIT_INLINE void begin() {
        if (threadIdx.x < THREADS / WARP) reached[threadIdx.x] = 0;
        Warp::wait_for_block();
    }
    SPOTFIT_INLINE void come_to_next_crowd() { come_to(own() / OF_CROWD * OF_CROWD + OF_CROWD); }
    SPOTFIT_INLINE void come_to_part(int round, int part) {
        come_to(own() / OF_CROWD * OF_CROWD + (unsigned(round) * PARTS + unsigned(part)) * STEPS);
    }
    SPOTFIT_INLINE void come_to_step(int step) {
        come_to(own() / STEPS * STEPS + (step < int(STEPS) - 2 ? unsigned(step) + 1 : STEPS - 1));
    }
    SPOTFIT_INLINE void leave() { put(own() + FAR_AHEAD); }
};
__shared__ Meeting meeting;

struct Team {
    static constexpr int LANES = WARP, LINES = WARP / SIDE_BY_SIDE, COLUMNS = SIDE_BY_SIDE;
    static SPOTFIT_INLINE int lane() { return Warp::lane(); }
    static SPOTFIT_INLINE int line() { return Warp::lane() / SIDE_BY_SIDE; }
    static SPOTFIT_INLINE int column() { return own_pixel(); }
    static SPOTFIT_INLINE void wait() { Warp::wait(); }
    static SPOTFIT_INLINE double sum(double own) { return sum_of_warp(own); }
    static SPOTFIT_INLINE void meet(int round, int part) { meeting.come_to_part(round, part); }
    static SPOTFIT_INLINE void meet_at_step(int step) { meeting.come_to_step(step); }
    template <class Function> static SPOTFIT_INLINE int last_of(int first, int end, Function is_true) {
        ROLLED
        for (int begin = (end - 1 - first) / WARP * WARP + first; begin >= first; begin -= WARP) {
            const int k = begin + Warp::lane();
            const unsigned found = Warp::all_of(k < end && is_true(k));
            if (found) return begin + WARP - 1 - Warp::zeros_before(found);
        }
        return first - 1;
    }
};

SPOTFIT_INLINE constexpr int axes_of(int) { return SPOT_AXES; }
SPOTFIT_INLINE constexpr bool is_measured_psf(bool) { return SPOT_HAS_PSF; }

}  // namespace spotfit::SPOTFIT_ISA
