// Detection on a GPU: frames in the memory of the device, many at a time, kernel after kernel.
//
// Compile-time numbers: PIXEL (the pixels' type), THREADS (of a block), RUN (pixels of a row that a
// warp filters, at most), ODD_ROWS (rows of 32 pixels in which a warp looks for odd ones). Warps of a block
// are independent. A kernel may be launched in parts: `first_block` is the number of a
// part's first block.
#include "../maxima.h"
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
    const long long first = number - number % work.settings.depth;
    const PIXEL* pixels = work.frames + first * work.settings.height * work.settings.width;
    for (int i = lane; i < LEVEL_SAMPLES; i += WARP) sample[i] = level_sample(work.settings, pixels, i);
    if (lane == 0) work.levels[number] = 0;
    Warp::wait();
    for (int i = lane; i < LEVEL_SAMPLES; i += WARP)
        if (is_level(sample, i)) work.levels[number] = sample[i];
    Warp::wait();
    if (lane > 0) return;
    const DetectionSettings& s = work.settings;
    work.limits[number] = {
        {s, double(work.levels[number])},
        {{s, s.bands[WIDE_BAND]}, {s, s.bands[NARROW_BAND]}, LeastHeight::of_dark_spots(s)},
    };
    if (number == 0) *work.count = 0;
}

// ---- Odd pixels: bad ones, and hot ones ----

// Marks odd pixels in a word's columns of some rows, by a warp.
extern "C" __global__ void __launch_bounds__(THREADS, 3) find_odd_pixels(Work work, int first_block) {
    const int groups = (work.height() - 1) / ODD_ROWS + 1, own = own_warp(first_block);
    const int word = own % work.words, first = own / work.words % groups * ODD_ROWS;
    const int number = own / work.words / groups;
    if (number >= work.number) return;
    const Raw<PIXEL, int> raw = work.raw(number);
    const PixelVariance variance = work.limits[number].variance;
    const int x = word * WARP + Warp::lane(), last = least(first + ODD_ROWS, work.height());
    const bool inside = x < work.width();
    unsigned* to = work.odd + ((long long)number * work.height() + first) * work.words + word;
    // All pixels are on their way at once.
    float middle[ODD_ROWS + 2], left[ODD_ROWS], right[ODD_ROWS];
    const int column = raw.column(x), column_before = raw.column(x - 1), column_behind = raw.column(x + 1);
    UNROLL
    for (int i = 0; i < ODD_ROWS + 2; ++i) {
        const int row = raw.row(first + i - 1);
        middle[i] = raw.at(row + column);
        if (i == 0 || i > ODD_ROWS) continue;
        left[i - 1] = raw.at(row + column_before);
        right[i - 1] = raw.at(row + column_behind);
    }
    unsigned bad = 0, may_be = 0;
    UNROLL
    for (int i = 0; i < ODD_ROWS; ++i) {
        const auto beside = [&](int v, int u) {
            return v != 0 ? middle[i + 1 + v] : u < 0 ? left[i] : u > 0 ? right[i] : middle[i + 1];
        };
        bad |= unsigned(inside && is_nan(middle[i + 1])) << i;
        may_be |= unsigned(inside && may_be_hot<float>(variance, beside)) << i;
    }
#pragma unroll 1
    for (int y = first; y < last; ++y, to += work.words, bad >>= 1, may_be >>= 1) {
        bool odd = bad & 1;
        if (may_be & 1)
            odd |= is_hot_in_detection<float>(work.settings, variance, [&](int v, int u) { return raw(y + v, x + u); });
        const unsigned bits = Warp::all_of(odd);
        if (Warp::lane() == 0) *to = bits;
    }
}

// ---- The bands ----

// A part of a row that a warp filters.
struct Run { int number, y, first, length; };

// Pixels of a row that a thread reads at once.
constexpr int QUAD = 4;
template <class T> struct alignas(QUAD * sizeof(T)) Quad { T at[QUAD]; };
template <class T> SPOTFIT_INLINE bool is_aligned(const Frame<T>& frame) {
    return reinterpret_cast<unsigned long long>(frame.pixels) % sizeof(Quad<T>) == 0;
}

constexpr int in_quads(int pixels) { return (pixels + QUAD - 1) / QUAD * QUAD; }

// Columns beside a run that are smoothed with it, whole quads.
SPOTFIT_INLINE int beside(const DetectionSettings& s) { return in_quads(s.radius[WIDE]); }

// A run that was smoothed along y by all kernels, with what lies beside it.
struct alignas(QUAD * sizeof(float)) Smoothed {
    float by[WIDTHS][RUN + 2 * in_quads(MAX_RADIUS)];

    // Four columns from one on, which begins a quad.
    SPOTFIT_INLINE Quad<float>& quad(int width, int column) {
        return *reinterpret_cast<Quad<float>*>(by[width] + column);
    }
};

// Whether any pixel is odd that counts for a run; those that are mirrored count as well.
SPOTFIT_INLINE bool has_odd_pixels(const Work& work, const Run& run) {
    const int radius = work.settings.radius[WIDE];
    const int y0 = most(run.y - radius, 0), y1 = least(run.y + radius + 1, work.height());
    const int first = most(run.first - radius, 0) / WARP;
    const int words = least((run.first + run.length + radius - 1) / WARP + 1, work.words) - first;
    const unsigned* odd = work.odd_words(run.number) + first;
    unsigned any = 0;
    // Eight threads to a row.
    for (int y = y0 + Warp::lane() / 8; y < y1; y += WARP / 8)
        for (int i = Warp::lane() % 8; i < words; i += 8) any |= odd[y * work.words + i];
    return Warp::any(any != 0);
}

// Smooths a run with the rows around it. `content(y, x)` is what is smoothed.
template <class Content>
SPOTFIT_INLINE void smooth_along_y(const DetectionSettings& s, const Run& run, Content content, Smoothed& smoothed) {
    const int width = int(s.width), height = int(s.height);
    for (int i = Warp::lane(); i < in_quads(run.length) + 2 * beside(s); i += WARP) {
        const int x = mirrored(run.first + i - beside(s), width);
        float results[WIDTHS][1];
        smooth_by_all(
            s.kernels, s.radius, [&](int) { return content(run.y, x); },
            [&](int t) {
                const float both = content(mirrored(run.y - t, height), x) + content(mirrored(run.y + t, height), x);
                return [both](int) { return both; };
            },
            results);
        UNROLL
        for (int w = 0; w < WIDTHS; ++w) smoothed.by[w][i] = results[w][0];
    }
    Warp::wait();
}

// Fills in the columns past the frame's border, some of which have been smoothed; what no kernel
// reaches, but quads do, with zeros.
SPOTFIT_INLINE void mirror_columns(const DetectionSettings& s, const Run& run, Smoothed& smoothed) {
    Warp::wait();
    const int radius = s.radius[WIDE], width = int(s.width), before = beside(s);
    const int left = most(before - run.first, 0), end = run.first + in_quads(run.length) + before;
    for (int i = Warp::lane(); i < left + most(end - width, 0); i += WARP) {
        const int x = i < left ? i - left : width + i - left;
        const bool counts = -radius <= x && x < width + radius;
        UNROLL
        for (int w = 0; w < WIDTHS; ++w) {
            float& here = smoothed.by[w][x - run.first + before];
            here = counts ? smoothed.by[w][mirrored(x, width) - run.first + before] : 0.0f;
        }
    }
    Warp::wait();
}

// The same of a frame without odd pixels: a thread works on a quad of columns.
template <bool ALIGNED>
SPOTFIT_INLINE void smooth_quads_along_y(const Work& work, const Run& run, Smoothed& smoothed) {
    const DetectionSettings& s = work.settings;
    const Frame<PIXEL> frame = work.frame(run.number);
    const int radius = s.radius[WIDE], width = int(s.width), height = int(s.height);
    const bool far_from_border = run.y >= radius && run.y + radius < height;
    const int end = least(run.first + run.length + beside(s), width);
    for (int x = run.first - beside(s) + QUAD * Warp::lane(); x < end; x += QUAD * WARP) {
        if (x < 0) continue;
        const auto quad = [&](int y) {
            const PIXEL* row = frame.pixels + (far_from_border ? y : mirrored(y, height)) * width;
            if constexpr (ALIGNED) {
                return *reinterpret_cast<const Quad<PIXEL>*>(row + x);
            } else {
                Quad<PIXEL> pixels;
                UNROLL
                for (int k = 0; k < QUAD; ++k) pixels.at[k] = row[least(x + k, width - 1)];
                return pixels;
            }
        };
        const Quad<PIXEL> own = quad(run.y);
        alignas(Quad<float>) float results[WIDTHS][QUAD];
        smooth_by_all(
            work.weights, s.radius, [&](int k) { return difference(own.at[k], frame.level); },
            [&](int t) {
                const Quad<PIXEL> up = quad(run.y - t), down = quad(run.y + t);
                return [up, down, level = frame.level](int k) {
                    if constexpr (MAY_BE_BAD<PIXEL>) return difference(up.at[k], level) + difference(down.at[k], level);
                    else return float(int(up.at[k]) + int(down.at[k]) - 2 * int(level));
                };
            },
            results);
        UNROLL
        for (int w = 0; w < WIDTHS; ++w)
            smoothed.quad(w, x - run.first + beside(s)) = *reinterpret_cast<const Quad<float>*>(results[w]);
    }
    mirror_columns(s, run, smoothed);
}

// Quads of a run that a thread has: every 32nd.
constexpr int OF_RUN = (RUN - 1) / (QUAD * WARP) + 1;

// Smooths a quad of a run along x, by one kernel, four pixels farther at a time.
SPOTFIT_INLINE void smooth_along_x(const Work& work, int width, int column, Smoothed& smoothed,
                                   float (&results)[QUAD]) {
    const float* weights = work.weights[width];
    Quad<float> left[2], right[2];
    left[1] = right[0] = smoothed.quad(width, column);
    UNROLL
    for (int k = 0; k < QUAD; ++k) results[k] = left[1].at[k] * weights[0];
    for (int far = QUAD; far < work.settings.radius[width] + QUAD; far += QUAD) {
        left[0] = smoothed.quad(width, column - far);
        right[1] = smoothed.quad(width, column + far);
        UNROLL
        for (int t = 1; t <= QUAD; ++t) {
            UNROLL
            for (int k = 0; k < QUAD; ++k) {
                const int before = QUAD + k - t, after = k + t;
                const float sum = left[before / QUAD].at[before % QUAD] + right[after / QUAD].at[after % QUAD];
                results[k] = multiply_add(sum, weights[far - QUAD + t], results[k]);
            }
        }
        left[1] = left[0], right[0] = right[1];
    }
}

// The same of all of a thread's quads, by all kernels.
using OfThread = float[OF_RUN][WIDTHS][QUAD];
SPOTFIT_INLINE void smooth_quads_along_x(const Work& work, const Run& run, Smoothed& smoothed, OfThread& results) {
    UNROLL
    for (int i = 0; i < OF_RUN; ++i) {
        const int x = QUAD * (WARP * i + Warp::lane());
        if (x >= run.length) continue;
        UNROLL
        for (int w = 0; w < WIDTHS; ++w) smooth_along_x(work, w, x + beside(work.settings), smoothed, results[i][w]);
    }
    // Others may write there next.
    Warp::wait();
}

// Filters runs of a strip, by a warp each, and marks pixels that are high enough.
extern "C" __global__ void __launch_bounds__(THREADS, 2) filter_strip(Work work, int first_block) {
    __shared__ Smoothed runs[WARPS];
    Smoothed& smoothed = runs[threadIdx.x / WARP];
    const DetectionSettings& s = work.settings;
    const int across = (work.width() - 1) / work.run + 1, own = own_warp(first_block), row = own / across;
    if (own == 0 && Warp::lane() == 0) *work.highest_count = 0;
    if (row >= work.strip.frames * rows_of(work.strip)) return;
    const int first = own % across * work.run;
    const Run run = {work.strip.frame + row / rows_of(work.strip), work.strip.y0 + row % rows_of(work.strip), first,
                     least(work.width() - first, work.run)};
    const Frame<PIXEL> frame = work.frame(run.number);

    const bool odd = has_odd_pixels(work, run), in_whole_quads = work.width() % QUAD == 0;
    OfThread light, good;
    if (odd) smooth_along_y(s, run, Cleaned{work.raw(run.number), work.odd_words(run.number), work.words}, smoothed);
    else if (in_whole_quads && is_aligned(frame)) smooth_quads_along_y<true>(work, run, smoothed);
    else smooth_quads_along_y<false>(work, run, smoothed);
    smooth_quads_along_x(work, run, smoothed, light);
    const bool with_good = MAY_BE_BAD<PIXEL> && odd;
    if (with_good) {
        smooth_along_y(s, run, Goodness{frame, work.width()}, smoothed);
        smooth_quads_along_x(work, run, smoothed, good);
    }
    const Limits limits = work.limits[run.number];
    unsigned* high = work.high + (long long)row * work.words + first / WARP;
    UNROLL
    for (int i = 0; i < OF_RUN; ++i) {
        const int x = QUAD * (WARP * i + Warp::lane());
        Quad<float> made[BANDS + 1];
        unsigned bits = 0;
        UNROLL
        for (int k = 0; k < QUAD; ++k) {
            Filtered<float> here(light[i][NARROW][k], light[i][OWN][k], light[i][WIDE][k]);
            if (with_good)
                here = Filtered<float>::of_good({light[i][NARROW][k], light[i][OWN][k], light[i][WIDE][k]},
                                                {good[i][NARROW][k], good[i][OWN][k], good[i][WIDE][k]});
            const float variance = limits.variance(here.mean);
            bool is_high = limits.heights[DARK_SPOT](-here.bands[WIDE_BAND], variance);
            UNROLL
            for (int band = 0; band < BANDS; ++band) {
                is_high |= limits.heights[band](here.bands[band], variance);
                made[band].at[k] = here.bands[band];
            }
            made[BANDS].at[k] = here.mean;
            bits |= unsigned(is_high && x + k < run.length) << k;
        }
        UNROLL
        for (int plane = 0; plane <= BANDS; ++plane) {
            float* to = work.plane(plane, run.number, run.y) + first + x;
            if (in_whole_quads && x < run.length) *reinterpret_cast<Quad<float>*>(to) = made[plane];
            UNROLL
            for (int k = 0; k < QUAD; ++k)
                if (!in_whole_quads && x + k < run.length) to[k] = made[plane].at[k];
        }
        // Eight threads have the bits of a word.
        bits <<= QUAD * (Warp::lane() % 8);
        UNROLL
        for (int distance = 1; distance < 8; distance *= 2) bits |= Warp::exchange(bits, distance);
        if (Warp::lane() % 8 == 0 && x < run.length) high[x / WARP] = bits;
    }
}

// ---- Maxima ----

// Whether a pixel is an extremum, and as high, or deep, as a spot's must be. Dark spots are not on the border.
SPOTFIT_INLINE bool is_highest(const Work& work, int extremum, int number, int y, int x) {
    const int width = work.width(), height = work.height();
    const float* own = work.plane(extremum == DARK_SPOT ? int(WIDE_BAND) : extremum, number, y) + x;
    const float sign = extremum == DARK_SPOT ? -1.0f : 1.0f;
    const bool highest = is_maximum(sign * *own, [&](int v, int u) {
        const bool inside = unsigned(y + v) < unsigned(height) && unsigned(x + u) < unsigned(width);
        return inside ? sign * own[v * width + u] : -sign * INFINITE;
    });
    const Limits& limits = work.limits[number];
    return highest && limits.heights[extremum](sign * *own, limits.variance(work.plane(BANDS, number, y)[x]));
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

// Lists the maxima of a strip that are high enough. A warp takes a word to each thread, and then one of
// their pixels.
extern "C" __global__ void __launch_bounds__(THREADS, 4) find_maxima(Work work, int first_block) {
    const Strip& strip = work.strip;
    const int searched = strip.last - strip.first, all = strip.frames * searched * work.words;
    const int first = own_warp(first_block) * WARP, own = first + Warp::lane();
    const auto row_of = [&](int word) { return word / work.words % searched + strip.first; };
    const auto frame_of = [&](int word) { return word / work.words / searched; };
    const auto found_in = [&](int word) {
        const long long row = (long long)(strip.frame + frame_of(word)) * work.height() + row_of(word);
        return work.found + (row * work.words + word % work.words) * EXTREMA;
    };
    unsigned bits = 0;
    if (own < all) {
        const int row = frame_of(own) * rows_of(strip) + row_of(own) - strip.y0;
        bits = work.high[(long long)row * work.words + own % work.words];
        for (int extremum = 0; extremum < EXTREMA; ++extremum) found_in(own)[extremum] = 0;
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
        for (int extremum = 0; extremum < EXTREMA; ++extremum)
            if (is_highest(work, extremum, number, y, x)) {
                const unsigned row = frame_of(word) * searched + y - strip.first;
                work.highest[atomicAdd(work.highest_count, 1)] = (row * work.width() + x) * EXTREMA + extremum;
            }
    }
}

// Keeps those that are spots'; a thread takes one at a time.
extern "C" __global__ void __launch_bounds__(THREADS, 2) keep_spots(Work work) {
    const Strip& strip = work.strip;
    const DetectionSettings& s = work.settings;
    const int width = work.width(), height = work.height(), searched = strip.last - strip.first;
    const int count = *work.highest_count, threads = int(gridDim.x) * THREADS;
    for (int i = int(blockIdx.x) * THREADS + int(threadIdx.x); i < count; i += threads) {
        const unsigned place = work.highest[i] / EXTREMA;
        const int extremum = work.highest[i] % EXTREMA, x = place % width, row = place / width;
        const int number = strip.frame + row / searched, y = strip.first + row % searched;
        const auto at = [&](int plane, int v, int u) {
            return work.plane(plane, number, mirrored(y + v, height))[mirrored(x + u, width)];
        };
        Maximum maximum = {number, y, x, extremum, 0, 0.0f, 0.0f, 0.0f, 0.0f};
        const PixelVariance& variance = work.limits[number].variance;
        const bool counts = extremum == DARK_SPOT
                                ? is_dark_spot(s, variance, work.frame(number), y, x, at, maximum)
                                : is_spot(s, extremum, variance, work.frame(number), y, x, at, maximum);
        if (!counts) continue;
        const int own = atomicAdd(work.count, 1);
        if (own >= work.room) continue;
        work.maxima[own] = maximum;
        const long long word = ((long long)number * height + y) * work.words + x / WARP;
        atomicOr(work.found + word * EXTREMA + extremum, 1u << x % WARP);
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
    SPOTFIT_INLINE bool has(int) const { return true; }
};

// Counts the maxima of rows, a warp those of a group, a thread those of a row.
extern "C" __global__ void __launch_bounds__(THREADS) count_maxima(Work work, int first_block) {
    const int rows = work.number * work.height(), group = own_warp(first_block), row = group * WARP + Warp::lane();
    if (group > rows / WARP) return;
    int count = 0;
    const unsigned* words = work.found + (long long)row * work.words * EXTREMA;
    for (int i = 0; row < rows && i < work.words * EXTREMA; ++i) count += Warp::bits(words[i]);
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
    const unsigned* words = work.found + ((long long)own.frame * work.height() + own.y) * work.words * EXTREMA;
    const int word = own.x / WARP * EXTREMA;
    int place = Rows{work, work.ordered}.begin(own.frame, own.y);
    for (int k = 0; k < word; ++k) place += Warp::bits(words[k]);
    for (int extremum = 0; extremum < EXTREMA; ++extremum) {
        // A pixel's own come one after the other.
        const unsigned before = (1u << own.x % WARP) - 1, here = extremum < own.band ? 1u << own.x % WARP : 0;
        place += Warp::bits(words[word + extremum] & (before | here));
    }
    if (place >= work.room) return;
    work.ordered[place] = own;
    work.marks[place] = own.band == DARK_SPOT ? DARK : ALONE;
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
    if (own.band == ALONE)
        each_close<int>(Rows{work, work.ordered}, Plane{work.settings.height}, own, work.distance, [&](int other) {
            if (other != i && work.marks[other] == ALONE) own.band = CROWDED;
        });
    work.maxima[i] = own;
}

}  // namespace spotfit::SPOTFIT_ISA
