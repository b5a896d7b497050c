// Detection: two bands, each a Gaussian less a wider one, and their local maxima that stand out of
// the noise and have a spot's shape.
//
// The wide band, of Gaussians of the PSF's width and 1.6 of it, finds dim spots; the narrow one, of
// 0.625 of the width and the width, tells crowded ones apart. Frames count from their level, and are
// mirrored at the centres of their border pixels.
#pragma once
#include "noise.h"

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

// The pixel that stands for one outside of the frame, along one axis.
template <class Int> SPOTFIT_INLINE Int mirrored(Int i, Int size) {
    if (0 <= i && i < size) return i;
    if (size == 1) return 0;
    const Int period = 2 * (size - 1);
    i = (i % period + period) % period;
    return i < period - i ? i : period - i;
}

// A frame as it is, mirrored at its border; NaN where pixels are bad.
template <class T, class Int> struct Raw {
    Frame<T> frame;
    Int height, width;

    SPOTFIT_INLINE float operator()(Int y, Int x) const { return at(row(y) + column(x)); }
    // The same in parts: where a row begins, and a column in it.
    SPOTFIT_INLINE Int row(Int y) const { return mirrored(y, height) * width; }
    SPOTFIT_INLINE Int column(Int x) const { return mirrored(x, width); }
    SPOTFIT_INLINE float at(Int place) const {
        const float value = frame.with_bad(place);
        return !MAY_BE_BAD<T> || is_good(value) ? value : NOT_A_NUMBER;
    }
};

// ---- The level: the median of some pixels, a pixel itself, so that constant frames become zero ----

constexpr int LEVEL_SAMPLES = 63;  // evenly spread

// The pixels are a frame's, or a volume's.
template <class T> SPOTFIT_INLINE T level_sample(const DetectionSettings& s, const T* pixels, int i) {
    if (s.level_known) return T(s.level);
    return pixels[(2 * i + 1) * (s.depth * s.height * s.width) / (2 * LEVEL_SAMPLES)];
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

// ---- The bands ----

// Smooths K places at once by all kernels: `centre(k)` is what lies there, `pair(t)(k)` the sum of the
// two t away.
template <int K, class L, class Kernels, class Centre, class Pair>
SPOTFIT_INLINE void smooth_by_all(const Kernels& kernels, const int (&radius)[WIDTHS], Centre centre, Pair pair,
                                  L (&smoothed)[WIDTHS][K]) {
    UNROLL
    for (int k = 0; k < K; ++k) {
        const L here = centre(k);
        UNROLL
        for (int w = 0; w < WIDTHS; ++w) smoothed[w][k] = here * L(kernels[w][0]);
    }
    // The wider ones reach farther.
    const auto add = [&](auto first, int from, int to) SPOTFIT_INLINE_LAMBDA {
        for (int t = from; t <= to; ++t) {
            const auto sum = pair(t);
            UNROLL
            for (int k = 0; k < K; ++k) {
                const L both = sum(k);
                UNROLL
                for (int w = decltype(first)::value; w < WIDTHS; ++w)
                    smoothed[w][k] = multiply_add(both, L(kernels[w][t]), smoothed[w][k]);
            }
        }
    };
    add(IntOf<NARROW>(), 1, radius[NARROW]);
    add(IntOf<OWN>(), radius[NARROW] + 1, radius[OWN]);
    add(IntOf<WIDE>(), radius[OWN] + 1, radius[WIDE]);
}

// Smooths K places at once by one kernel: `pair(t)(k)` is the sum of the two t away.
template <int K, class L, class Centre, class Pair>
SPOTFIT_INLINE void smooth(const float* kernel, int radius, Centre centre, Pair pair, L (&smoothed)[K]) {
    UNROLL
    for (int k = 0; k < K; ++k) smoothed[k] = centre(k) * L(kernel[0]);
    for (int t = 1; t <= radius; ++t) {
        const L weight(kernel[t]);
        const auto sum = pair(t);
        UNROLL
        for (int k = 0; k < K; ++k) smoothed[k] = multiply_add(sum(k), weight, smoothed[k]);
    }
}

// Both bands, and the mean around the pixel less the frame's level.
template <class L> struct Filtered {
    L bands[BANDS], mean;

    SPOTFIT_INLINE Filtered(L narrow, L own, L wide) : bands{own - wide, narrow - own}, mean(wide) {}
    // From sums over the good pixels, and their share of the weights: of their means.
    SPOTFIT_INLINE static Filtered of_good(const L (&light)[WIDTHS], const L (&good)[WIDTHS]) {
        // With less than this share of a band's inner kernel on good pixels, there is no result.
        const L least(0.5f);
        Filtered result(light[NARROW] / good[NARROW], light[OWN] / good[OWN], light[WIDE] / good[WIDE]);
        result.bands[WIDE_BAND] = select(good[OWN] > least, result.bands[WIDE_BAND], L(0.0f));
        result.bands[NARROW_BAND] =
            select((good[NARROW] > least) & (good[OWN] > least), result.bands[NARROW_BAND], L(0.0f));
        return result;
    }
};

// ---- The noise ----

// A pixel's variance, by the mean around it less the frame's level.
struct PixelVariance {
    float slope, intercept, least;

    SPOTFIT_INLINE PixelVariance(const DetectionSettings& s, double level)
        : slope(float(s.slope)), intercept(float(s.slope * level + s.intercept)), least(float(s.least_variance)) {}
    template <class L> SPOTFIT_INLINE L operator()(L mean) const {
        return higher_of(multiply_add(L(slope), mean, L(intercept)), L(least));
    }
};

// By how many standard deviations a hot pixel stands out of its neighbours, above or below, where no
// spots are looked for: a dead one makes a ring of maxima.
constexpr float HOT = 6.0f;

// Whether a pixel stands out of the four next to it as a hot one must, above or below; `at` is as for is_hot.
template <class L, class At> SPOTFIT_INLINE MaskOf<L> may_be_hot(const PixelVariance& variance, At at) {
    const L up = at(-1, 0), down = at(1, 0), left = at(0, -1), right = at(0, 1), pixel = at(0, 0);
    const L above = pixel - higher_of(higher_of(left, right), higher_of(up, down));
    const L below = lower_of(lower_of(left, right), lower_of(up, down)) - pixel;
    const L step = higher_of(above, below), mean = (up + down + left + right) * L(0.25f);
    return (step > L(0.0f)) & (step * step > L(HOT * HOT) * variance(mean));
}

template <class L, class At>
SPOTFIT_INLINE MaskOf<L> is_hot_in_detection(const DetectionSettings& s, const PixelVariance& variance, At at) {
    const L beside = (at(-1, 0) + at(1, 0) + at(0, -1) + at(0, 1)) * L(0.25f);
    const L least_step = L(HOT) * square_root(variance(beside));
    const auto negative = [&](int v, int u) SPOTFIT_INLINE_LAMBDA { return -at(v, u); };
    const MaskOf<L> high = is_hot<L>(s, least_step, at), low = is_hot<L>(s, least_step, negative);
    return high | low;
}

// The variance of a band's noise at a pixel for one of pixels of 1: higher on the border, where
// mirrored pixels count twice.
SPOTFIT_INLINE double noise_gain(const DetectionSettings& s, const BandSettings& band, long long y, long long x) {
    const int r = s.radius[WIDE];
    if (y >= r && y < s.height - r && x >= r && x < s.width - r) return band.gain * band.gain;
    const double *by_y = band.gain_y + y, *by_x = band.gain_x + x;
    const double variance =
        by_y[0] * by_x[0] - 2.0 * by_y[s.height] * by_x[s.width] + by_y[2 * s.height] * by_x[2 * s.width];
    return higher_of(variance, 0.0);
}

// The same of the map of variances: their mean by the squares of the band's kernel.
SPOTFIT_INLINE double mapped_variance(const DetectionSettings& s, int band, long long y, long long x) {
    if (s.variance_map == nullptr) return 0.0;
    const float *inner = s.kernels[band == WIDE_BAND ? OWN : NARROW],
                *outer = s.kernels[band == WIDE_BAND ? WIDE : OWN];
    const int inner_radius = s.radius[band == WIDE_BAND ? OWN : NARROW];
    const int radius = s.radius[band == WIDE_BAND ? WIDE : OWN];
    double sum = 0.0;
    for (int v = -radius; v <= radius; ++v) {
        const float* row = s.variance_map + mirrored<long long>(y + v, s.height) * s.width;
        const int down = v < 0 ? -v : v;
        for (int u = -radius; u <= radius; ++u) {
            const int right = u < 0 ? -u : u;
            const bool both = down <= inner_radius && right <= inner_radius;
            const float weight = (both ? inner[down] * inner[right] : 0.0f) - outer[down] * outer[right];
            sum += double(weight * weight * row[mirrored<long long>(x + u, s.width)]);
        }
    }
    return sum;
}

SPOTFIT_INLINE double cube_root(double x) {
    if (!(x > 0.0)) return 0.0;
    double root = double(from_bits(bits_of(float(x)) / 3 + 709921077));
    for (int i = 0; i < 4; ++i) root -= (root - x / (root * root)) * (1.0 / 3.0);
    return root;
}

constexpr float HIGHEST = 3.40282347e38f;
// Counts less skewed than this are as good as normal.
constexpr double LEAST_SKEWNESS = 1e-3;

// A height over its deviation, whose distribution is skewed, as the normal deviate that is as rare
// (Wilson and Hilferty); infinite without noise.
struct NormalScore {
    double ratio, skewness;

    SPOTFIT_INLINE NormalScore(double height, double deviation, double skewed)
        : ratio(height / deviation), skewness(deviation > 0.0 ? higher_of(skewed, LEAST_SKEWNESS) : 0.0) {}
    SPOTFIT_INLINE bool operator>(double score) const {
        if (!(ratio < double(HIGHEST))) return true;
        const double root = 1.0 + (score - skewness / 6.0) * skewness / 6.0;
        return 1.0 + 0.5 * skewness * ratio > root * root * root;
    }
    SPOTFIT_INLINE double value() const {
        if (!(ratio < double(HIGHEST))) return double(HIGHEST);
        return 6.0 / skewness * (cube_root(1.0 + 0.5 * skewness * ratio) - 1.0) + skewness / 6.0;
    }
};

// Whether a pixel counts in no fit: a hot one, as detection has it, or as dark a one, unless skewed
// noise makes it.
template <class T, class Int>
SPOTFIT_INLINE bool is_hot_in_fit(const DetectionSettings& s, const PixelVariance& variance, const Raw<T, Int>& raw,
                                  Int y, Int x) {
    const auto at = [&](int v, int u) SPOTFIT_INLINE_LAMBDA { return raw(y + v, x + u); };
    const auto negative = [&](int v, int u) SPOTFIT_INLINE_LAMBDA { return -raw(y + v, x + u); };
    const float beside = (at(-1, 0) + at(1, 0) + at(0, -1) + at(0, 1)) * 0.25f;
    const float deviation = square_root(variance(beside)), least_step = HOT * deviation;
    if (!is_hot<float>(s, least_step, at) && !is_hot<float>(s, least_step, negative)) return false;
    const NormalScore score(double(absolute(at(0, 0) - beside)), double(deviation), s.own_slope / double(deviation));
    return score > double(HOT);
}

// ---- Maxima ----

// A maximum lower than this fraction of the pixels around it is a rounding error.
constexpr float LEAST_CONTRAST = 1e-5f;

// Whether no neighbour is higher; of equal neighbours the first is the maximum. `at(v, u)` is v rows
// below and u columns to the right, and -INFINITE outside of the frame.
template <class L, class At> SPOTFIT_INLINE MaskOf<L> is_maximum(L value, At at) {
    return (value > at(-1, -1)) & (value > at(-1, 0)) & (value > at(-1, 1)) & (value > at(0, -1)) &
           (value >= at(0, 1)) & (value >= at(1, -1)) & (value >= at(1, 0)) & (value >= at(1, 1));
}

// What a maximum must exceed wherever it lies: a height, and a multiple of the variance by its square.
struct LeastHeight {
    float height, over_variance;

    SPOTFIT_INLINE LeastHeight(const DetectionSettings& s, const BandSettings& band)
        : height(float(higher_of(band.least_height, 0.0))),
          // Skewness makes scores lower where they are above 1.
          over_variance(s.least_score > 1.0 ? of_score(s, band, s.least_score) : 0.0f) {}
    // Of dark spots, in depths.
    SPOTFIT_INLINE static LeastHeight of_dark_spots(const DetectionSettings& s) {
        LeastHeight least(s, s.bands[WIDE_BAND]);
        const bool wanted = s.dark_score < double(HIGHEST);
        least.height = wanted ? 0.0f : HIGHEST;
        least.over_variance = wanted ? of_score(s, s.bands[WIDE_BAND], s.dark_score) : 0.0f;
        return least;
    }
    template <class L> SPOTFIT_INLINE MaskOf<L> operator()(L own, L variance) const {
        return (own > L(height)) & (own * own > L(over_variance) * variance);
    }
    // The least multiple of the variance of either.
    SPOTFIT_INLINE float least_square(const LeastHeight& other) const {
        return lower_of(over_variance, other.height < HIGHEST ? other.over_variance : over_variance);
    }

  private:
    SPOTFIT_INLINE static float of_score(const DetectionSettings& s, const BandSettings& band, double score) {
        return float(square(score * band.gain * s.lowest_border) * 0.9999);
    }
};

// How steep the surroundings of a maximum are, over its height: how the mean around rises within the PSF's width.
template <class MeanAt>
SPOTFIT_INLINE double steepness_of(const DetectionSettings& s, float height, MeanAt mean_at) {
    const double right = double(mean_at(0, s.step)) - double(mean_at(0, -s.step));
    const double down = double(mean_at(s.step, 0)) - double(mean_at(-s.step, 0));
    const double rise = square_root(right * right + down * down) / double(2 * s.step);
    return rise * double(s.sigma) / double(height);
}

// A spot's shape: how curved the band is at a maximum, in the direction where it is least, over what a
// spot's is; the same over its noise; and how steep its surroundings are. Along a straight edge there
// is no curvature. `at(v, u)` is the band.
template <class At>
SPOTFIT_INLINE bool has_spots_shape(const DetectionSettings& s, const BandSettings& band, float height,
                                    double deviation, double steepness, At at) {
    const int along[DIRECTIONS][2] = {{0, s.step}, {s.step, 0}, {s.diagonal, s.diagonal}, {s.diagonal, -s.diagonal}};
    double curvature = double(HIGHEST), score = double(HIGHEST);
    for (int d = 0; d < DIRECTIONS; ++d) {
        const int v = along[d][0], u = along[d][1];
        const double second = double(height) - 0.5 * (double(at(v, u)) + double(at(-v, -u)));
        curvature = lower_of(curvature, second / double(band.curvature[d] * height));
        score = lower_of(score, second / double(band.roughness[d]));
    }
    const double significance = lower_of(higher_of(2.0 * steepness - 1.0, 0.0), 1.0);
    const double least = lower_of(0.4 * (lower_of(steepness, 0.5) + steepness), 0.75);
    return curvature > least && score > s.shape_score * significance * deviation;
}

// A pixel and the eight around it, or itself where there is none, or a bad one.
struct Neighbours {
    float pixel, around[8];

    template <class T, class Int>
    SPOTFIT_INLINE Neighbours(const Frame<T>& frame, const DetectionSettings& s, Int y, Int x) {
        const Int width = Int(s.width), height = Int(s.height), place = y * width + x;
        pixel = frame[place];
        int i = 0;
        UNROLL
        for (int v = -1; v <= 1; ++v) {
            UNROLL
            for (int u = -1; u <= 1; ++u) {
                if (v == 0 && u == 0) continue;
                const bool inside = y + v >= 0 && y + v < height && x + u >= 0 && x + u < width;
                const Int beside = place + v * width + u;
                around[i++] = inside && frame.good(beside) ? frame[beside] : pixel;
            }
        }
    }
    // Those of the same frame with the other sign.
    SPOTFIT_INLINE Neighbours negative() const {
        Neighbours n = *this;
        n.pixel = -pixel;
        UNROLL
        for (float& beside : n.around) beside = -beside;
        return n;
    }
};

// Whether a maximum is no rounding error. A pixel that happens to be the frame's level has none of its
// own: those around it show what their sums are rounded to.
SPOTFIT_INLINE bool is_no_rounding(float height, const Neighbours& n) {
    float largest = absolute(n.pixel);
    UNROLL
    for (const float beside : n.around) largest = higher_of(absolute(beside), largest);
    return height > LEAST_CONTRAST * largest;
}

// Whether a pixel is on a plateau, as in a saturated spot, were it two rows wide: noise hardly ever
// makes five of eight equal.
SPOTFIT_INLINE bool is_flat(const Neighbours& n) {
    int equal = 0;
    UNROLL
    for (const float beside : n.around) {
        if (beside > n.pixel) return false;
        equal += beside == n.pixel;
    }
    return equal >= 5;
}

// By how many of its deviations a spot's own pixel may be off, in the wide band and in the narrow one, in which it
// weighs more; and the score of dim spots.
constexpr double OFF_IN_WIDE = 2.5, OFF_IN_NARROW = 1.75, DIM = 4.0;

// Whether there is a spot without what a pixel has more than its neighbours: a pixel of much noise alone is none. A
// hot pixel has been left out already.
template <class T, class Int>
SPOTFIT_INLINE bool has_light_beside(const DetectionSettings& s, int number, const PixelVariance& variance,
                                     const Frame<T>& frame, Int y, Int x, float height, double deviation,
                                     const Neighbours& n) {
    float others = 0.0f;
    UNROLL
    for (const float beside : n.around) others += beside;
    const BandSettings& band = s.bands[number];
    const double weight = double(band.own_weight), left = double(height) - weight * double(n.pixel - others * 0.125f);
    const double off = (number == WIDE_BAND ? OFF_IN_WIDE : OFF_IN_NARROW) * weight * square_root(1.125) / band.gain;
    if (left > double(band.beside) * lower_of(double(height), DIM * deviation) - off * deviation) return true;
    const Raw<T, Int> raw = {frame, Int(s.height), Int(s.width)};
    return is_hot_in_detection<float>(s, variance,
                                      [&](int v, int u) SPOTFIT_INLINE_LAMBDA { return raw(y + v, x + u); });
}

// The variance of noise in a band at a pixel, whose own variance follows from the mean around it.
template <class Int>
SPOTFIT_INLINE double noise_in_band(const DetectionSettings& s, int band, const PixelVariance& variance, float mean,
                                    Int y, Int x) {
    return noise_gain(s, s.bands[band], y, x) * double(variance(mean)) + mapped_variance(s, band, y, x);
}

// Whether a maximum of a band is a spot's, and if so, its score and height. `at(plane, v, u)` is what
// was filtered: a band's numbers, or the means after them.
template <class T, class Int, class At>
SPOTFIT_INLINE bool is_spot(const DetectionSettings& s, int band, const PixelVariance& variance, const Frame<T>& frame,
                            Int y, Int x, At at, Maximum& maximum) {
    const BandSettings& own = s.bands[band];
    const float height = at(band, 0, 0);
    const double deviation = square_root(noise_in_band(s, band, variance, at(BANDS, 0, 0), y, x));
    const double skewness = double(own.skewness) * s.own_slope * own.gain / deviation;
    const NormalScore score(double(height), deviation, skewness);
    if (!(score > s.least_score)) return false;
    const double steepness =
        steepness_of(s, height, [&](int v, int u) SPOTFIT_INLINE_LAMBDA { return at(BANDS, v, u); });
    const bool has_shape = has_spots_shape(s, own, height, deviation, steepness,
                                           [&](int v, int u) SPOTFIT_INLINE_LAMBDA { return at(band, v, u); });
    const Neighbours pixels(frame, s, y, x);
    if (!is_no_rounding(height, pixels)) return false;
    // Along the edge of what is saturated maxima have no shape; they are one spot in its middle.
    maximum.on_flat_area = is_flat(pixels);
    if (!has_shape && !maximum.on_flat_area) return false;
    if (!has_light_beside(s, band, variance, frame, y, x, height, deviation, pixels)) return false;
    // Of a spot beside a brighter one the wide band may be below 0.
    maximum.height = higher_of(at(WIDE_BAND, 0, 0), LEAST_CONTRAST * height);
    maximum.score = float(lower_of(score.value(), double(HIGHEST)));
    maximum.narrow_height = at(NARROW_BAND, 0, 0);
    maximum.deviation = float(deviation * s.bands[WIDE_BAND].gain / own.gain);
    return true;
}

// Spots make the band darkest so far away, over the PSF's width; a dark spot is in surroundings that are no steeper
// than this; and no pixel so far away is brighter than the mean by that multiple of its depth, and deviations of a
// pixel.
constexpr float DARKEST = 3.3f, STEEPEST_OF_DARK = 0.8f, BRIGHTEST_BESIDE = 5.0f, BRIGHT_BY_CHANCE = 2.5f;

// Whether a minimum is deep beside what is bright: most minima among spots are, which is soon seen here.
template <class T, class Int>
SPOTFIT_INLINE bool is_beside_light(const DetectionSettings& s, const Frame<T>& frame, Int y, Int x, float mean,
                                    float most) {
    const Int width = Int(s.width), height = Int(s.height);
    const Int straight = Int(DARKEST * s.sigma + 0.5f), diagonal = Int(0.7071f * DARKEST * s.sigma + 0.5f);
    for (int v = -1; v <= 1; ++v)
        for (int u = -1; u <= 1; ++u) {
            const Int away = v != 0 && u != 0 ? diagonal : straight, row = y + Int(v) * away,
                      column = x + Int(u) * away;
            const bool inside = row >= 0 && row < height && column >= 0 && column < width;
            if (inside && frame[row * width + column] - mean > most) return true;
        }
    return false;
}

// Whether a minimum of the wide band is a dark spot, and if so, its depth. `at` is as for is_spot.
template <class T, class Int, class At>
SPOTFIT_INLINE bool is_dark_spot(const DetectionSettings& s, const PixelVariance& variance, const Frame<T>& frame,
                                 Int y, Int x, At at, Maximum& maximum) {
    if (y < Int(s.step) || y >= Int(s.height) - Int(s.step) || x < Int(s.step) || x >= Int(s.width) - Int(s.step))
        return false;
    const float depth = -at(WIDE_BAND, 0, 0);
    const double deviation = square_root(noise_in_band(s, WIDE_BAND, variance, at(BANDS, 0, 0), y, x));
    // Without noise, a minimum says nothing of maxima.
    if (!(deviation > 0.0) || !(double(depth) > s.dark_score * deviation)) return false;
    const float mean = at(BANDS, 0, 0);
    const float most = BRIGHTEST_BESIDE * depth + BRIGHT_BY_CHANCE * square_root(variance(mean));
    if (is_beside_light(s, frame, y, x, mean, most)) return false;
    const double steepness =
        steepness_of(s, depth, [&](int v, int u) SPOTFIT_INLINE_LAMBDA { return at(BANDS, v, u); });
    if (!(steepness <= double(STEEPEST_OF_DARK))) return false;
    if (!has_spots_shape(s, s.bands[WIDE_BAND], depth, deviation, steepness,
                         [&](int v, int u) SPOTFIT_INLINE_LAMBDA { return -at(WIDE_BAND, v, u); }))
        return false;
    // A dead pixel, or one of much noise, is no darkness.
    const Neighbours pixels(frame, s, y, x);
    if (!is_no_rounding(depth, pixels)) return false;
    if (!has_light_beside(s, WIDE_BAND, variance, frame, y, x, depth, deviation, pixels.negative())) return false;
    maximum.height = depth;
    maximum.score = float(double(depth) / deviation);
    maximum.narrow_height = -at(NARROW_BAND, 0, 0);
    maximum.deviation = float(deviation);
    return true;
}

}  // namespace spotfit::SPOTFIT_ISA
