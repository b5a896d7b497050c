// Detection on a GPU: frames in the memory of the device, many at a time, kernel after kernel.
//
// Compile-time numbers: PIXEL (the pixels' type), THREADS (of a block), RUN (pixels of a row that a
// warp filters), ODD_ROWS (rows of 32 pixels in which a warp looks for odd ones). Warps of a block
// know nothing of each other. A kernel may be launched in parts: `first_block` is the number of a
// part's first block.
#include "detection_work.h"

namespace spotfit::SPOTFIT_ISA {

// ---- The level ----

// Finds the level of each frame, by a warp, and what follows from it.
extern "C" __global__ void __launch_bounds__(THREADS) find_levels(Work work, int first_block) {
    // Compilers read four of them at once: nothing else may lie beside the last.
    __shared__ PIXEL samples[WARPS][(LEVEL_SAMPLES + 3) / 4 * 4];
    PIXEL(&sample)[(LEVEL_SAMPLES + 3) / 4 * 4] = samples[threadIdx.x / WARP];
    const int number = own_warp(first_block), lane = Warp::lane();
    if (number >= work.number) return;
    const PIXEL* pixels = work.frames + number * work.settings.height * work.settings.width;
    for (int i = lane; i < LEVEL_SAMPLES; i += WARP)
        sample[i] = pixels[level_sample_place(i, work.settings.height * work.settings.width)];
    if (lane == 0) work.levels[number] = 0;
    Warp::wait();
    for (int i = lane; i < LEVEL_SAMPLES; i += WARP)
        if (is_level(sample, i)) work.levels[number] = sample[i];
    Warp::wait();
    if (lane > 0) return;
    const DetectionSettings& s = work.settings;
    work.limits[number] = {{s, double(work.levels[number])}, {{s, s.bands[WIDE_BAND]}, {s, s.bands[NARROW_BAND]}}};
    if (number == 0) *work.count = 0;
}

// ---- Odd pixels: bad ones, and lone ones ----

// Marks odd pixels in a word's columns of some rows, by a warp.
extern "C" __global__ void __launch_bounds__(THREADS, 4) find_odd_pixels(Work work, int first_block) {
    const int groups = (work.height() - 1) / ODD_ROWS + 1, own = own_warp(first_block);
    const int word = own % work.words, first = own / work.words % groups * ODD_ROWS;
    const int number = own / work.words / groups;
    if (number >= work.number) return;
    const Raw<PIXEL, int> raw = work.raw(number);
    const PixelVariance variance = work.limits[number].variance;
    const int x = word * WARP + Warp::lane(), last = least(first + ODD_ROWS, work.height());
    const bool inside = x < work.width();
    unsigned* to = work.odd + ((long long)number * work.height() + first) * work.words + word;
    float above = raw(first - 1, x), pixel = raw(first, x);
    for (int y = first; y < last; ++y, to += work.words) {
        const float below = raw(y + 1, x);
        const float left = raw(y, x - 1), right = raw(y, x + 1);
        const auto beside = [&](int v, int u) {
            return v < 0 ? above : v > 0 ? below : u < 0 ? left : u > 0 ? right : pixel;
        };
        bool odd = inside && is_nan(pixel);
        if (inside && may_be_lone<float>(variance, beside))
            odd |=
                is_lone_in_detection<float>(work.settings, variance, [&](int v, int u) { return raw(y + v, x + u); });
        const unsigned bits = Warp::all_of(odd);
        if (Warp::lane() == 0) *to = bits;
        above = pixel, pixel = below;
    }
}

// ---- The bands ----

// A part of a row that a warp filters.
struct Run { int number, y, first, length; };

// A run that was smoothed along y by all kernels, with what lies beside it.
struct Smoothed { float by[WIDTHS][RUN + 2 * MAX_RADIUS]; };

// Whether any pixel is odd that counts for a run; those that are mirrored count as well.
SPOTFIT_INLINE bool has_odd_pixels(const Work& work, const Run& run) {
    const int radius = work.settings.radius[WIDE];
    const int y0 = most(run.y - radius, 0), y1 = least(run.y + radius + 1, work.height());
    const int first = most(run.first - radius, 0) / WARP;
    const int words = least((run.first + run.length + radius - 1) / WARP + 1, work.words) - first;
    const unsigned* odd = work.odd_words(run.number) + first;
    unsigned any = 0;
    for (int i = Warp::lane(); i < (y1 - y0) * words; i += WARP) any |= odd[(y0 + i / words) * work.words + i % words];
    return Warp::any(any != 0);
}

// What the kernels see of a frame without odd pixels, ...
struct Plain {
    Frame<PIXEL> frame;

    SPOTFIT_INLINE float operator()(int place) const { return frame.with_bad(place); }
    SPOTFIT_INLINE float operator()(int one, int other) const {
        if constexpr (MAY_BE_BAD<PIXEL>) return frame.with_bad(one) + frame.with_bad(other);
        else return float(int(frame.pixels[one]) + int(frame.pixels[other]) - 2 * int(frame.level));
    }
};

// ... of one with such, ...
struct Cleaned {
    Raw<PIXEL, int> raw;
    const unsigned* odd;
    int words;

    SPOTFIT_INLINE bool is_odd(int place) const {
        return odd[place / raw.width * words + place % raw.width / WARP] >> place % raw.width % WARP & 1;
    }
    SPOTFIT_INLINE float operator()(int place) const {
        if (!is_odd(place)) return raw.frame.with_bad(place);
        if (!raw.frame.good(place)) return 0.0f;
        const int y = place / raw.width, x = place % raw.width;
        return mean_of_neighbours([&](int v, int u) { return raw(y + v, x + u); });
    }
    SPOTFIT_INLINE float operator()(int one, int other) const { return (*this)(one) + (*this)(other); }
};

// ... and of which of its pixels are good.
struct Goodness {
    Frame<PIXEL> frame;

    SPOTFIT_INLINE float operator()(int place) const { return float(frame.good(place)); }
    SPOTFIT_INLINE float operator()(int one, int other) const { return (*this)(one) + (*this)(other); }
};

// Smooths a run with the rows around it; a thread works on several columns at once. `content(place)`
// is what is smoothed, of two places their sum.
template <int COLUMNS, class Content>
SPOTFIT_INLINE void smooth_along_y(const DetectionSettings& s, const Run& run, Content content, Smoothed& smoothed) {
    const int radius = s.radius[WIDE], width = int(s.width), height = int(s.height), own = run.y * width;
    const int columns = run.length + 2 * radius;
    for (int i = Warp::lane(); i < columns; i += WARP * COLUMNS) {
        int x[COLUMNS];
        UNROLL
        for (int c = 0; c < COLUMNS; ++c) x[c] = mirrored(run.first + i + WARP * c - radius, width);
        float results[WIDTHS][COLUMNS];
        smooth_by_all(
            s.kernels, s.radius, [&](int c) { return content(own + x[c]); },
            [&](int t) {
                return [&, up = mirrored(run.y - t, height) * width,
                        down = mirrored(run.y + t, height) * width](int c) { return content(up + x[c], down + x[c]); };
            },
            results);
        UNROLL
        for (int c = 0; c < COLUMNS; ++c)
            if (i + WARP * c < columns) {
                UNROLL
                for (int w = 0; w < WIDTHS; ++w) smoothed.by[w][i + WARP * c] = results[w][c];
            }
    }
    Warp::wait();
}

// A thread's pixels of a run: every 32nd.
constexpr int OF_RUN = RUN / WARP;

// Smooths a thread's pixels along x, by all kernels. Past the end of a short run, there are
// left-overs, from which nothing is made.
SPOTFIT_INLINE void smooth_along_x(const DetectionSettings& s, const Smoothed& smoothed,
                                   float (&results)[WIDTHS][OF_RUN]) {
    UNROLL
    for (int w = 0; w < WIDTHS; ++w) {
        const float* own = smoothed.by[w] + s.radius[WIDE] + Warp::lane();
        smooth(
            s.kernels[w], s.radius[w], [&](int k) { return own[WARP * k]; },
            [&](int t) { return [own, t](int k) { return own[WARP * k - t] + own[WARP * k + t]; }; }, results[w]);
    }
    // Others may write there next.
    Warp::wait();
}

// Filters runs of a strip, by a warp each, and marks pixels that are high enough.
extern "C" __global__ void __launch_bounds__(THREADS, 3) filter_strip(Work work, int first_block) {
    __shared__ Smoothed runs[WARPS];
    Smoothed& smoothed = runs[threadIdx.x / WARP];
    const DetectionSettings& s = work.settings;
    const int across = (work.width() - 1) / RUN + 1, own = own_warp(first_block), row = own / across;
    if (row >= work.strip.frames * work.strip.rows()) return;
    const int first = own % across * RUN;
    const Run run = {work.strip.frame + row / work.strip.rows(), work.strip.y0 + row % work.strip.rows(), first,
                     least(work.width() - first, RUN)};
    const Frame<PIXEL> frame = work.frame(run.number);

    const bool odd = has_odd_pixels(work, run);
    float light[WIDTHS][OF_RUN], good[WIDTHS][OF_RUN];
    if (odd) smooth_along_y<1>(s, run, Cleaned{work.raw(run.number), work.odd_words(run.number), work.words}, smoothed);
    else smooth_along_y<5>(s, run, Plain{frame}, smoothed);
    smooth_along_x(s, smoothed, light);
    const bool with_good = MAY_BE_BAD<PIXEL> && odd;
    if (with_good) {
        smooth_along_y<1>(s, run, Goodness{frame}, smoothed);
        smooth_along_x(s, smoothed, good);
    }
    const Limits limits = work.limits[run.number];
    unsigned* high = work.high + (long long)row * work.words + first / WARP;
    float* to[BANDS + 1];
    UNROLL
    for (int plane = 0; plane <= BANDS; ++plane) to[plane] = work.plane(plane, run.number, run.y) + first;
    UNROLL
    for (int k = 0; k < OF_RUN; ++k) {
        Filtered<float> here(light[NARROW][k], light[OWN][k], light[WIDE][k]);
        if (with_good)
            here = Filtered<float>::of_good({light[NARROW][k], light[OWN][k], light[WIDE][k]},
                                            {good[NARROW][k], good[OWN][k], good[WIDE][k]});
        const int x = WARP * k + Warp::lane();
        const bool inside = x < run.length;
        bool is_high = false;
        UNROLL
        for (int band = 0; band < BANDS; ++band) {
            is_high |= limits.heights[band](here.bands[band], limits.variance(here.mean));
            if (inside) to[band][x] = here.bands[band];
        }
        if (inside) to[BANDS][x] = here.mean;
        const unsigned bits = Warp::all_of(inside && is_high);
        if (WARP * k < run.length && Warp::lane() == 0) high[k] = bits;
    }
}

// ---- Maxima ----

// Looks for a spot's maximum of a band on a pixel, and lists it.
SPOTFIT_INLINE bool find_maximum(const Work& work, int band, int number, int y, int x) {
    const DetectionSettings& s = work.settings;
    const int width = work.width(), height = work.height();
    const float* own = work.plane(band, number, y) + x;
    const bool highest = is_maximum(*own, [&](int v, int u) {
        const bool inside = unsigned(y + v) < unsigned(height) && unsigned(x + u) < unsigned(width);
        return inside ? own[v * width + u] : -INFINITE;
    });
    const Limits& limits = work.limits[number];
    if (!highest || !limits.heights[band](*own, limits.variance(work.plane(BANDS, number, y)[x]))) return false;
    const auto at = [&](int plane, int v, int u) {
        return work.plane(plane, number, mirrored(y + v, height))[mirrored(x + u, width)];
    };
    Maximum maximum = {number, y, x, band, 0, 0.0f, 0.0f};
    if (!is_spot(s, band, limits.variance, work.frame(number), y, x, at, maximum)) return false;
    const int place = atomicAdd(work.count, 1);
    if (place < work.room) work.maxima[place] = maximum;
    return true;
}

// The sum of those of the threads before.
SPOTFIT_INLINE int sum_before(int own) {
    int sum = own;
    for (int distance = 1; distance < WARP; distance *= 2) {
        const int before = Warp::of(sum, most(Warp::lane() - distance, 0));
        if (Warp::lane() >= distance) sum += before;
    }
    return sum - own;
}

// Finds the maxima of a strip. A warp takes a word to each thread, and then one of their pixels.
extern "C" __global__ void __launch_bounds__(THREADS, 2) find_maxima(Work work, int first_block) {
    const Strip& strip = work.strip;
    const int searched = strip.last - strip.first, all = strip.frames * searched * work.words;
    const int first = own_warp(first_block) * WARP, own = first + Warp::lane();
    const auto row_of = [&](int word) { return word / work.words % searched + strip.first; };
    const auto frame_of = [&](int word) { return word / work.words / searched; };
    const auto found_in = [&](int word) {
        const long long row = (long long)(strip.frame + frame_of(word)) * work.height() + row_of(word);
        return work.found + (row * work.words + word % work.words) * BANDS;
    };
    unsigned bits = 0;
    if (own < all) {
        const int row = frame_of(own) * strip.rows() + row_of(own) - strip.y0;
        bits = work.high[(long long)row * work.words + own % work.words];
        for (int band = 0; band < BANDS; ++band) found_in(own)[band] = 0;
    }
    Warp::wait();
    const int count = Warp::bits(bits), before = sum_before(count), last = Warp::of(before + count, WARP - 1);
    for (int begin = 0; begin < last; begin += WARP) {
        // The thread whose word has the pixel is the last one with fewer pixels before.
        const int i = begin + Warp::lane();
        int k = 0;
        for (int step = WARP / 2; step > 0; step /= 2) k += Warp::of(before, k + step) <= i ? step : 0;
        unsigned there = Warp::of(bits, k);
        for (int skipped = Warp::of(before, k); skipped < i && there != 0; ++skipped) there &= there - 1;
        if (i >= last) continue;
        const int bit = __ffs(int(there)) - 1, word = first + k;
        const int number = strip.frame + frame_of(word), y = row_of(word), x = word % work.words * WARP + bit;
#pragma unroll 1
        for (int band = 0; band < BANDS; ++band)
            if (find_maximum(work, band, number, y, x)) atomicOr(found_in(word) + band, 1u << bit);
    }
}

// ---- Their order, and which are spots of their own ----

// Maxima in the order of frame, row and column.
struct Rows {
    const Work& work;
    const Maximum* maxima;

    SPOTFIT_INLINE int begin(int frame, int y) const {
        const int row = frame * work.height() + y;
        return work.group_starts[row / WARP] + work.row_starts[row];
    }
    SPOTFIT_INLINE int end(int frame, int y) const { return begin(frame, y + 1); }
};

// Counts the maxima of rows, a warp those of a group, a thread those of a row.
extern "C" __global__ void __launch_bounds__(THREADS) count_maxima(Work work, int first_block) {
    const int rows = work.number * work.height(), group = own_warp(first_block), row = group * WARP + Warp::lane();
    if (group > rows / WARP) return;
    int count = 0;
    const unsigned* words = work.found + (long long)row * work.words * BANDS;
    for (int i = 0; row < rows && i < work.words * BANDS; ++i) count += Warp::bits(words[i]);
    const int before = sum_before(count);
    work.row_starts[row] = before;
    if (Warp::lane() == WARP - 1) work.group_starts[group] = before + count;
}

// Makes counts of groups the sums of those before them, by one warp.
extern "C" __global__ void __launch_bounds__(WARP) start_groups(Work work, int) {
    const int groups = work.number * work.height() / WARP + 1, share = (groups - 1) / WARP + 1;
    const int first = Warp::lane() * share, last = least(first + share, groups);
    int count = 0;
    for (int i = first; i < last; ++i) count += work.group_starts[i];
    int before = sum_before(count);
    for (int i = first; i < last; ++i) {
        const int own = work.group_starts[i];
        work.group_starts[i] = before;
        before += own;
    }
}

// Puts a maximum per thread where it belongs.
extern "C" __global__ void __launch_bounds__(THREADS) order_maxima(Work work, int first_block) {
    const int i = (first_block + int(blockIdx.x)) * THREADS + int(threadIdx.x);
    if (i >= least(*work.count, work.room)) return;
    const Maximum own = work.maxima[i];
    const unsigned* words = work.found + ((long long)own.frame * work.height() + own.y) * work.words * BANDS;
    const int word = own.x / WARP * BANDS;
    int place = Rows{work, work.ordered}.begin(own.frame, own.y);
    for (int k = 0; k < word; ++k) place += Warp::bits(words[k]);
    for (int band = 0; band < BANDS; ++band) {
        // A pixel's own bands come one after the other.
        const unsigned before = (1u << own.x % WARP) - 1, here = band < own.band ? 1u << own.x % WARP : 0;
        place += Warp::bits(words[word + band] & (before | here));
    }
    if (place >= work.room) return;
    work.ordered[place] = own;
    work.marks[place] = ALONE;
}

// The number of a thread's maximum; -1 where there is none, or no room for all.
SPOTFIT_INLINE int own_maximum(const Work& work, int first_block) {
    const int i = (first_block + int(blockIdx.x)) * THREADS + int(threadIdx.x);
    return i < *work.count && *work.count <= work.room ? i : -1;
}

// Marks maxima of both bands that are no spots of their own; a thread looks at one of the wide band.
extern "C" __global__ void __launch_bounds__(THREADS, 4) join_bands(Work work, int first_block) {
    const int i = own_maximum(work, first_block);
    if (i < 0) return;
    join_with_narrow(work.settings, Rows{work, work.ordered}, i, [&](int other) { work.marks[other] = DROPPED; });
}

// Marks those that are too close to another, and writes all down in order, with their marks.
extern "C" __global__ void __launch_bounds__(THREADS, 4) find_crowded(Work work, int first_block) {
    const int i = own_maximum(work, first_block);
    if (i < 0) return;
    Maximum own = work.ordered[i];
    own.band = work.marks[i];
    if (own.band != DROPPED)
        each_close(Rows{work, work.ordered}, work.height(), own, work.distance, [&](int other) {
            if (other != i && work.marks[other] != DROPPED) own.band = CROWDED;
        });
    work.maxima[i] = own;
}

}  // namespace spotfit::SPOTFIT_ISA
