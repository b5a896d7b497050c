// Detection: a band-pass (a Gaussian as wide as a spot, less a wider one), the noise of what it
// leaves, and its local maxima that stand out of this noise.
//
// Frames count from their level, and are mirrored at the centres of their border pixels.
#pragma once
#include "detection_settings.h"
#include "pixels.h"

namespace spotfit::SPOTFIT_ISA {

// Pixels of a frame less its level; 0 where they are bad.
template <class T> struct Frame {
    const T* pixels;
    T level;

    template <class Int> SPOTFIT_INLINE float with_bad(Int place) const { return difference(pixels[place], level); }
    template <class Int> SPOTFIT_INLINE bool good(Int place) const {
        return !MAY_BE_BAD<T> || is_good(with_bad(place));
    }
    template <class Int> SPOTFIT_INLINE float operator[](Int place) const {
        const float value = with_bad(place);
        return !MAY_BE_BAD<T> || is_good(value) ? value : 0.0f;
    }
};

// ---- The level: the median of some pixels, a pixel itself, so that constant frames become zero ----

constexpr int LEVEL_SAMPLES = 63;  // evenly spread

SPOTFIT_INLINE long long level_sample_place(int i, long long pixels) {
    return (2 * i + 1) * pixels / (2 * LEVEL_SAMPLES);
}

// Whether one of the pixels is the median of the good ones, the upper of two in the middle.
template <class T> SPOTFIT_INLINE bool is_level(const T* sample, int i) {
    int good = 0, lower = 0;
    for (int j = 0; j < LEVEL_SAMPLES; ++j) {
        const bool counts = is_good(float(sample[j]));
        good += counts;
        lower += counts && (sample[j] < sample[i] || (sample[j] == sample[i] && j < i));
    }
    return is_good(float(sample[i])) && lower == good / 2;
}

// ---- The band-pass ----

// The pixel that stands for one outside of the frame, along one axis.
template <class Int> SPOTFIT_INLINE Int mirrored(Int i, Int size) {
    if (0 <= i && i < size) return i;
    if (size == 1) return 0;
    const Int period = 2 * (size - 1);
    i = (i % period + period) % period;
    return i < period - i ? i : period - i;
}

// Smooths K places at once by both kernels: `centre(k)` is what lies there, `pair(t)(k)` the sum of
// the two t away.
template <int K, class L, class Centre, class Pair>
SPOTFIT_INLINE void smooth_by_both(const float* narrow, int narrow_radius, const float* wide, int radius, Centre centre,
                                   Pair pair, L (&by_narrow)[K], L (&by_wide)[K]) {
    UNROLL
    for (int k = 0; k < K; ++k) {
        const L here = centre(k);
        by_narrow[k] = here * L(narrow[0]);
        by_wide[k] = here * L(wide[0]);
    }
    for (int t = 1; t <= narrow_radius; ++t) {
        const L n(narrow[t]), w(wide[t]);
        const auto sum = pair(t);
        UNROLL
        for (int k = 0; k < K; ++k) {
            const L both = sum(k);
            by_narrow[k] = multiply_add(both, n, by_narrow[k]);
            by_wide[k] = multiply_add(both, w, by_wide[k]);
        }
    }
    for (int t = narrow_radius + 1; t <= radius; ++t) {
        const L w(wide[t]);
        const auto sum = pair(t);
        UNROLL
        for (int k = 0; k < K; ++k) by_wide[k] = multiply_add(sum(k), w, by_wide[k]);
    }
}

// Smooths K places at once by one kernel: `at(t, k)` lies t away.
template <int K, class L, class At>
SPOTFIT_INLINE void smooth(const float* weights, int radius, At at, L (&smoothed)[K]) {
    UNROLL
    for (int k = 0; k < K; ++k) smoothed[k] = at(0, k) * L(weights[0]);
    for (int t = 1; t <= radius; ++t) {
        const L weight(weights[t]);
        UNROLL
        for (int k = 0; k < K; ++k) smoothed[k] = multiply_add(at(-t, k) + at(t, k), weight, smoothed[k]);
    }
}

// With less than this share of the narrow kernel on good pixels, there is no result.
constexpr float LEAST_WEIGHT = 0.5f;

// The difference of the means of the good pixels, from sums over both kernels and the good pixels'
// share of their weights.
template <class L> SPOTFIT_INLINE L difference_of_means(L narrow, L wide, L good_narrow, L good_wide) {
    return select(good_narrow > LEAST_WEIGHT, narrow / good_narrow - wide / good_wide, L(0.0f));
}

// ---- The noise of a pixel ----

// Its variance, by the mean around it less the frame's level.
struct PixelVariance {
    float slope, intercept, least;

    SPOTFIT_INLINE PixelVariance(const DetectionSettings& s, double level)
        : slope(float(s.slope)), intercept(float(s.slope * level + s.intercept)), least(float(s.least_variance)) {}
    template <class L> SPOTFIT_INLINE L operator()(L mean) const {
        return higher_of(multiply_add(L(slope), mean, L(intercept)), L(least));
    }
};

// ---- The noise: the standard deviation of a filtered frame without its spots ----
//
// It comes from the middle of the filtered values: again and again, those beyond one and a half
// standard deviations are left out, so that the heavy tails which spots make do not count. Values
// that are exactly 0 do not count either; they belong to areas without noise, such as the outside
// of a mask.
//
// Where spots lie closer than about ten times their sigma, no part of the filtered frame is free of
// them. What light microscopes cannot show, detail as fine as the pixels, tells the noise then: it
// bounds the first estimate if it looks like the noise of independent pixels.

// Values beyond so many standard deviations are left out, and the variance of a normal
// distribution within, over that of all of it.
constexpr float CLIP = 1.5f;
constexpr double KEPT_VARIANCE = 0.5515244157615512;
// The estimate has settled when it shrinks by less than to this fraction.
constexpr double SETTLED = 0.999;
constexpr int MAX_CLIPS = 100;
// Near its end an iteration goes a third of the way: its change is squared. Far from it, a little
// farther than the change itself, which may be 0: the squares can be too small for single precision.
constexpr double FAR_HASTE = 0.8, LEAST_CHANGE = 1e-9;
// The noise is at most so many times that of independent pixels: what is less above it may as well
// be the texture of a cell as crowded spots.
constexpr double TEXTURE = 3.0;
// Pixels are independent if detail that is twice as coarse along one axis is stronger by less than
// this factor. In a blurred or interpolated image it is much stronger.
constexpr double WHITENESS = 1.5;

// The rows that the noise is taken from: every `step`-th, some rows apart from the border.
struct SampledRows {
    long long first, step, count;

    SPOTFIT_INLINE SampledRows(long long height, int row_step, int border)
        : first(border + row_step / 2), step(row_step),
          count(first < height - border ? (height - border - 1 - first) / row_step + 1 : 0) {}
    // How many come before a row.
    SPOTFIT_INLINE long long before(long long y) const {
        const long long n = y <= first ? 0 : (y - first + step - 1) / step;
        return n < count ? n : count;
    }
    SPOTFIT_INLINE long long row(long long i) const { return first + i * step; }
};

// Detail of K places: second differences along both axes, scaled to the pixels' own noise.
template <class L> SPOTFIT_INLINE L second_difference(L before, L here, L after) {
    return before - here - here + after;
}
template <class L> SPOTFIT_INLINE L detail(L before, L here, L after) {
    return second_difference(before, here, after) * L(1.0f / 6.0f);
}

SPOTFIT_INLINE int ones(bool mask) { return mask; }
#if !defined(__CUDACC_RTC__)
template <int W> SPOTFIT_INLINE IntsOf<W> ones(LaneMask<W> mask) { return -mask.v; }
#endif

// Sums over what is within the clip, in units of the present deviation.
template <class L> struct ClippedSum {
    L squares = L(0.0f);
    typename Lane<L>::Ints inside{};

    SPOTFIT_INLINE void add(L value, L inverse) {
        const L scaled = absolute(value) * inverse;
        const MaskOf<L> kept = (scaled < CLIP) & (value != 0.0f);
        const L counted = select(kept, scaled, L(0.0f));
        squares = multiply_add(counted, counted, squares);
        inside = inside + ones(kept);
    }
};

// The same over all of a sample.
struct ClippedTotal {
    float squares;
    long long inside;
};

// One step of the iteration, in the precision that a machine is good at. True where it goes on.
template <class Real> SPOTFIT_INLINE bool clip(ClippedTotal total, float& deviation) {
    if (total.inside == 0) return false;
    const Real change = square_root(Real(total.squares) / (Real(total.inside) * Real(KEPT_VARIANCE)));
    if (change > Real(SETTLED)) return false;
    deviation *= float(higher_of(higher_of(change * change, Real(FAR_HASTE) * change), Real(LEAST_CHANGE)));
    return deviation > 0.0f;
}

// The noise of a frame, from the deviation of its filtered pixels and those of its detail at
// distances along y and x, which `detail_at` gives.
template <class DetailAt> SPOTFIT_INLINE double noise_of(double filtered, double gain, DetailAt detail_at) {
    const double white = TEXTURE * gain, bound = white * detail_at(1, 1);
    if (bound >= filtered) return filtered;
    const double coarser = white * higher_of<double>(detail_at(1, 2), detail_at(2, 1));
    return higher_of(coarser, bound) < WHITENESS * bound ? bound : filtered;
}

// ---- Maxima ----

// A maximum lower than this fraction of the pixels around it is a rounding error.
constexpr float LEAST_CONTRAST = 1e-5f;
constexpr float HIGHEST = 3.40282347e38f;

// Whether no neighbour is higher; of equal neighbours the first is the maximum. `at(v, u)` is v rows
// below and u columns to the right, and -INFINITE outside of the frame.
template <class L, class At> SPOTFIT_INLINE MaskOf<L> is_maximum(L value, At at) {
    return (value > at(-1, -1)) & (value > at(-1, 0)) & (value > at(-1, 1)) & (value > at(0, -1)) &
           (value >= at(0, 1)) & (value >= at(1, -1)) & (value >= at(1, 0)) & (value >= at(1, 1));
}

// The noise at a pixel over that of the frame: up to twice as high on the border, where mirrored
// pixels count twice.
SPOTFIT_INLINE float border(const DetectionSettings& s, long long y, long long x) {
    const double *by_y = s.gain_y + y, *by_x = s.gain_x + x;
    const double variance =
        by_y[0] * by_x[0] - 2.0 * by_y[s.height] * by_x[s.width] + by_y[2 * s.height] * by_x[2 * s.width];
    return s.gain > 0.0 ? float(square_root(higher_of(variance, 0.0)) / s.gain) : 1.0f;
}

// What a maximum must exceed wherever it lies.
SPOTFIT_INLINE float least_height(const DetectionSettings& s, double noise) {
    return float(higher_of(s.least_height, s.least_score * noise * s.lowest_border));
}

// Height over noise; infinite without noise.
SPOTFIT_INLINE double score(const DetectionSettings& s, float height, double noise, long long y, long long x) {
    return double(height) / (noise * double(border(s, y, x)));
}

// A pixel and the four next to it, or itself where there is none.
struct Neighbours { float pixel, above, left, right, below; };

template <class T, class Int>
SPOTFIT_INLINE Neighbours neighbours(const Frame<T>& frame, const DetectionSettings& s, Int y, Int x) {
    const Int width = Int(s.width), place = y * width + x;
    return {frame[place], frame[y > 0 ? place - width : place], frame[x > 0 ? place - 1 : place],
            frame[x + 1 < width ? place + 1 : place], frame[y + 1 < Int(s.height) ? place + width : place]};
}

// Whether a maximum stands out of the noise, and is no rounding error. A pixel that happens to be
// the frame's level has none of its own: those around it tell what their sums are rounded to.
SPOTFIT_INLINE bool stands_out(const DetectionSettings& s, float height, double score, const Neighbours& n) {
    const float column = higher_of(absolute(n.above), absolute(n.below));
    const float row = higher_of(absolute(n.left), absolute(n.right));
    const float largest = higher_of(absolute(n.pixel), higher_of(column, row));
    return score > s.least_score && height > LEAST_CONTRAST * largest;
}

// Whether all are equal, as in a saturated spot.
SPOTFIT_INLINE bool is_flat(const Neighbours& n) {
    return n.above == n.pixel && n.left == n.pixel && n.right == n.pixel && n.below == n.pixel;
}

// ---- Non-maximum suppression: of maxima that are too close, the highest stays; of equal ones, the first ----

SPOTFIT_INLINE bool are_close(const Maximum& a, const Maximum& b, double distance) {
    const double y = double(a.y) - double(b.y), x = double(a.x) - double(b.x);
    return y * y + x * x < distance * distance;
}

}  // namespace spotfit::SPOTFIT_ISA
