// Detection on a GPU: frames in the memory of the device, many at a time, kernel after kernel.
//
// Compile-time numbers: PIXEL (the pixels' type), THREADS (of a block), MORE_THREADS (of a block that
// measures a large sample), RUN (pixels of a row that a warp filters), SEGMENT (pixels of a frame
// that a block searches for maxima), GROUP (segments whose maxima are counted together). A kernel
// may be launched in parts: `first_block` is the number of a part's first block.
#include "../detection.h"

namespace spotfit::SPOTFIT_ISA {

constexpr unsigned ALL_LANES = 0xffffffffu;
constexpr int WARPS = THREADS / 32, SEGMENT_WORDS = SEGMENT / 32;
// Of a frame: filtered pixels, and detail at distances of 1 and 1, 1 and 2, 2 and 1 along y and x.
constexpr int SAMPLES = 4;

// The standard deviation of a sample, and whether its iteration is at an end.
struct Deviation {
    float value;
    int settled;
};

// Frames, and what is made of them in turn; as napari_spotfit.engine.cuda.detect fills it in.
struct Work {
    DetectionSettings settings;
    const PIXEL* frames;
    PIXEL* levels;          // of each frame
    int* bad;               // of each part of each frame: whether it has bad pixels
    float* filtered;        // frames
    float* samples;         // SAMPLES of each frame, with room for `room` numbers each
    Deviation* deviations;  // of these samples
    unsigned* marks;        // one bit per pixel, SEGMENT_WORDS words per segment
    int* counts;            // of the marks in each segment
    int* group_counts;      // of those in GROUP segments together
    Maximum* maxima;        // the first one holds the count of all in `frame`
    int parts, room, listed, groups;

    SPOTFIT_INLINE int height() const { return int(settings.height); }
    SPOTFIT_INLINE int width() const { return int(settings.width); }
    SPOTFIT_INLINE long long first_pixel(int frame) const { return frame * settings.height * settings.width; }
    SPOTFIT_INLINE Frame<PIXEL> frame(int i) const { return {frames + first_pixel(i), levels[i]}; }
};

template <class T> SPOTFIT_INLINE T sum_over_warp(T value) {
    UNROLL
    for (int distance = 16; distance > 0; distance /= 2) value += __shfl_xor_sync(ALL_LANES, value, distance);
    return value;
}

// The sum over the block, the same in every thread. Sums that follow each other need different
// places for the warps' own sums.
template <class T, int N> SPOTFIT_INLINE T sum_over_block(T value, T (&of_warps)[N]) {
    value = sum_over_warp(value);
    if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = value;
    __syncthreads();
    T sum = of_warps[0];
    UNROLL
    for (int i = 1; i < N; ++i) sum += of_warps[i];
    return sum;
}

// ---- The level ----

// Finds the level of each frame. Where pixels can be bad, a block looks for such in a part of a frame.
extern "C" __global__ void __launch_bounds__(THREADS) find_levels(Work work, int first_block) {
    const int block = first_block + blockIdx.x;
    // Compilers read four of them at once: nothing else may lie beside the last.
    __shared__ PIXEL sample[(LEVEL_SAMPLES + 3) / 4 * 4];
    __shared__ PIXEL level;
    __shared__ int bad_in_warps[WARPS];
    static_assert(THREADS >= LEVEL_SAMPLES, "a thread for each pixel of the sample");
    const int number = block / work.parts, part = block % work.parts, thread = threadIdx.x;
    const int size = work.height() * work.width();
    const PIXEL* pixels = work.frames + work.first_pixel(number);
    if (thread < LEVEL_SAMPLES) sample[thread] = pixels[level_sample_place(thread, size)];
    if (thread == 0) level = 0;
    __syncthreads();
    if (thread < LEVEL_SAMPLES && is_level(sample, thread)) level = sample[thread];
    __syncthreads();
    if (thread == 0 && part == 0) work.levels[number] = level;
    if constexpr (MAY_BE_BAD<PIXEL>) {
        const Frame<PIXEL> frame = {pixels, level};
        const int length = (size - 1) / work.parts + 1;
        const long long first = (long long)part * length;
        int bad = 0;
        for (int i = thread; i < length && first + i < size; i += THREADS) bad += !frame.good(int(first) + i);
        bad = sum_over_block(bad, bad_in_warps);
        if (thread == 0) work.bad[block] = bad;
    }
    for (int i = block * THREADS + thread; i < work.groups; i += gridDim.x * THREADS) work.group_counts[i] = 0;
}

// ---- The band-pass ----

// A run of a row that was smoothed along y by both kernels, with what lies beside it.
struct Smoothed {
    float narrow[RUN + 2 * MAX_RADIUS], wide[RUN + 2 * MAX_RADIUS];
};

// The halves of both kernels; zeros follow the narrow one.
struct Kernels {
    float narrow[MAX_RADIUS + 1], wide[MAX_RADIUS + 1];
};

// The sum of the pixels at two places.
SPOTFIT_INLINE float sum_at(const Frame<PIXEL>& frame, int one, int other) {
    if constexpr (MAY_BE_BAD<PIXEL>) return frame[one] + frame[other];
    else return float(int(frame.pixels[one]) + int(frame.pixels[other]) - 2 * int(frame.level));
}

// Smooths a run with the rows around it, by a warp; a thread works on several columns at once.
// What is smoothed is the pixels, or how good they are.
constexpr int COLUMNS = 5;
template <bool GOODNESS>
SPOTFIT_INLINE void smooth_along_y(const Work& work, const Frame<PIXEL>& frame, int y, int first, int length,
                                   const Kernels& kernels, Smoothed& run) {
    const int radius = work.settings.radius, width = work.width(), height = work.height();
    for (int i = threadIdx.x; i < length + 2 * radius; i += 32 * COLUMNS) {
        int x[COLUMNS];
        UNROLL
        for (int c = 0; c < COLUMNS; ++c) x[c] = mirrored(first + i + 32 * c - radius, width);
        float narrow[COLUMNS], wide[COLUMNS];
        smooth_by_both(
            kernels.narrow, radius, kernels.wide, radius,
            [&](int c) {
                const int place = y * width + x[c];
                return GOODNESS ? float(frame.good(place)) : frame[place];
            },
            [&](int t) {
                return [&, up = mirrored(y - t, height) * width, down = mirrored(y + t, height) * width](int c) {
                    if constexpr (GOODNESS) return float(frame.good(up + x[c])) + float(frame.good(down + x[c]));
                    else return sum_at(frame, up + x[c], down + x[c]);
                };
            },
            narrow, wide);
        UNROLL
        for (int c = 0; c < COLUMNS; ++c)
            if (i + 32 * c < length + 2 * radius) {
                run.narrow[i + 32 * c] = narrow[c];
                run.wide[i + 32 * c] = wide[c];
            }
    }
    __syncwarp();
}

// A thread's pixels of a run: every 32nd.
constexpr int OWN = RUN / 32;

// Smooths a thread's pixels along x; `run` is where the first of them lies.
SPOTFIT_INLINE void smooth_along_x(const float* run, const float* kernel, int radius, float (&smoothed)[OWN]) {
    smooth(kernel, radius, [&](int t, int k) { return run[32 * k + t]; }, smoothed);
}

SPOTFIT_INLINE bool has_bad_pixels(const Work& work, int frame) {
    bool any = false;
    for (int part = threadIdx.x; part < work.parts; part += 32) any |= work.bad[frame * work.parts + part] != 0;
    return __any_sync(ALL_LANES, any);
}

// Filters frames. A warp, a row of threads, takes a run; a block, runs below each other.
extern "C" __global__ void __launch_bounds__(THREADS) band_pass(Work work, int first_block) {
    const int block = first_block + blockIdx.x;
    __shared__ Kernels kernels;
    __shared__ Smoothed runs[WARPS][MAY_BE_BAD<PIXEL> ? 2 : 1];
    const DetectionSettings& s = work.settings;
    for (int i = threadIdx.y * 32 + threadIdx.x; i <= s.radius; i += THREADS) {
        kernels.narrow[i] = i <= s.narrow_radius ? s.narrow[i] : 0.0f;
        kernels.wide[i] = s.wide[i];
    }
    __syncthreads();

    const int across = (work.width() - 1) / RUN + 1, down = (work.height() - 1) / WARPS + 1;
    const int number = block / (across * down), tile = block % (across * down);
    const int y = tile / across * WARPS + threadIdx.y, first = tile % across * RUN;
    if (y >= work.height()) return;
    const int length = work.width() - first < RUN ? work.width() - first : RUN, thread = threadIdx.x;
    const Frame<PIXEL> frame = work.frame(number);
    float* result = work.filtered + work.first_pixel(number) + y * work.width() + first;

    Smoothed& light = runs[threadIdx.y][0];
    smooth_along_y<false>(work, frame, y, first, length, kernels, light);
    // Past the end of a short run, there are left-overs, from which nothing is made.
    float narrow[OWN], wide[OWN], contrast[OWN];
    const int own = s.radius + thread;
    smooth_along_x(light.narrow + own, kernels.narrow, s.narrow_radius, narrow);
    smooth_along_x(light.wide + own, kernels.wide, s.radius, wide);
    UNROLL
    for (int k = 0; k < OWN; ++k) contrast[k] = narrow[k] - wide[k];
    if (MAY_BE_BAD<PIXEL> && has_bad_pixels(work, number)) {
        Smoothed& good = runs[threadIdx.y][MAY_BE_BAD<PIXEL>];
        smooth_along_y<true>(work, frame, y, first, length, kernels, good);
        float good_narrow[OWN], good_wide[OWN];
        smooth_along_x(good.narrow + own, kernels.narrow, s.narrow_radius, good_narrow);
        smooth_along_x(good.wide + own, kernels.wide, s.radius, good_wide);
        UNROLL
        for (int k = 0; k < OWN; ++k)
            contrast[k] = difference_of_means(narrow[k], wide[k], good_narrow[k], good_wide[k]);
    }
    UNROLL
    for (int k = 0; k < OWN; ++k)
        if (thread + 32 * k < length) result[thread + 32 * k] = contrast[k];
}

// ---- The noise ----

// How far apart the pixels of a sample's detail are, along y and x; 0 for filtered pixels.
SPOTFIT_INLINE int detail_along_y(int sample) { return sample == 0 ? 0 : sample == 3 ? 2 : 1; }
SPOTFIT_INLINE int detail_along_x(int sample) { return sample == 0 ? 0 : sample == 2 ? 2 : 1; }

SPOTFIT_INLINE int sample_columns(const Work& work, int sample) {
    const int columns = work.width() - 2 * detail_along_x(sample);
    return columns > 0 ? columns : 0;
}
SPOTFIT_INLINE SampledRows sample_rows(const Work& work, int sample) {
    return {work.settings.height, work.settings.row_step, detail_along_y(sample)};
}

// Takes the samples of frames, by a warp for each of their rows.
extern "C" __global__ void __launch_bounds__(THREADS) take_samples(Work work, int first_block) {
    const int block = first_block + blockIdx.x;
    const int most_rows = int(sample_rows(work, 0).count), blocks = (most_rows - 1) / WARPS + 1;
    const int number = block / (SAMPLES * blocks), sample = block / blocks % SAMPLES;
    const int i = block % blocks * WARPS + threadIdx.x / 32;
    const SampledRows rows = sample_rows(work, sample);
    if (i >= rows.count) return;
    const int columns = sample_columns(work, sample), by_x = detail_along_x(sample);
    const int down = detail_along_y(sample) * work.width();
    const int first = int(rows.row(i)) * work.width() + by_x;
    float* to = work.samples + ((long long)number * SAMPLES + sample) * work.room + (long long)i * columns;
    const float* filtered = work.filtered + work.first_pixel(number);
    const Frame<PIXEL> frame = work.frame(number);
    const auto along_y = [&](int place) {
        return second_difference(frame[place - down], frame[place], frame[place + down]);
    };
    for (int x = threadIdx.x % 32; x < columns; x += 32) {
        const int place = first + x;
        if (sample == 0) to[x] = filtered[place];
        else to[x] = detail(along_y(place - by_x), along_y(place), along_y(place + by_x));
    }
}

template <int N> SPOTFIT_INLINE float highest_over_block(float value, float (&of_warps)[N]) {
    UNROLL
    for (int distance = 16; distance > 0; distance /= 2)
        value = higher_of(value, __shfl_xor_sync(ALL_LANES, value, distance));
    if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = value;
    __syncthreads();
    UNROLL
    for (int i = 0; i < N; ++i) value = higher_of(value, of_warps[i]);
    return value;
}

// The standard deviation about 0 of the middle of a sample, by a block; so many steps of its
// iteration, from the beginning or from where it is.
template <int N> SPOTFIT_INLINE void measure_deviation(const Work& work, int block, bool begin, int steps) {
    __shared__ float squares_in_warps[2][N / 32];
    __shared__ int inside_in_warps[2][N / 32];
    const int kind = block % SAMPLES;
    const int size = int(sample_rows(work, kind).count) * sample_columns(work, kind);
    const float* sample = work.samples + (long long)block * work.room;
    Deviation& own = work.deviations[block];
    if (!begin && own.settled) return;
    float deviation = begin ? 0.0f : own.value;
    if (begin) {
        for (int i = threadIdx.x; i < size; i += N) deviation = higher_of(deviation, absolute(sample[i]));
        deviation = highest_over_block(deviation, squares_in_warps[1]);
    }
    bool goes_on = deviation > 0.0f;
    for (int step = 0; step < steps && goes_on; ++step) {
        const float inverse = 1.0f / deviation;
        ClippedSum<float> sum;
#pragma unroll 8
        for (int i = threadIdx.x; i < size; i += N) sum.add(sample[i], inverse);
        // Two places in turn: a warp may be one step ahead of another.
        const int inside = sum_over_block(sum.inside, inside_in_warps[step % 2]);
        const float squares = sum_over_block(sum.squares, squares_in_warps[step % 2]);
        goes_on = clip<float>({squares, inside}, deviation);
    }
    // All have read what was there.
    __syncthreads();
    if (threadIdx.x == 0) own = {deviation, !goes_on};
}

extern "C" __global__ void __launch_bounds__(THREADS) measure_deviations(Work work, int first_block, int begin,
                                                                         int steps) {
    measure_deviation<THREADS>(work, first_block + blockIdx.x, begin, steps);
}
extern "C" __global__ void __launch_bounds__(MORE_THREADS) measure_large_deviations(Work work, int first_block,
                                                                                    int begin, int steps) {
    measure_deviation<MORE_THREADS>(work, first_block + blockIdx.x, begin, steps);
}

// ---- Maxima, in the order of frame, row and column ----
//
// Two passes over segments of frames: the first marks maxima by one bit per pixel and counts them;
// the second knows from the counts where each segment's maxima belong.

SPOTFIT_INLINE double noise_at(const Work& work, int frame) {
    const Deviation* own = work.deviations + frame * SAMPLES;
    return noise_of(own[0].value, work.settings.gain, [&](int by_y, int by_x) {
        return double(own[by_y == 2 ? 3 : by_x == 2 ? 2 : 1].value);
    });
}

// A segment of a frame.
struct Segment {
    int number, first;
    Frame<PIXEL> frame;
    const float* filtered;
    double noise;
};

SPOTFIT_INLINE Segment own_segment(const Work& work, int block) {
    const int segments = (work.height() * work.width() - 1) / SEGMENT + 1, number = block / segments;
    return {number, block % segments * SEGMENT, work.frame(number), work.filtered + work.first_pixel(number),
            noise_at(work, number)};
}

// Whether a pixel is a maximum that stands out.
SPOTFIT_INLINE bool is_found(const Work& work, const Segment& segment, int place) {
    const int y = place / work.width(), x = place % work.width();
    const float height = segment.filtered[place];
    const bool highest = is_maximum(height, [&](int v, int u) {
        const bool inside = unsigned(y + v) < unsigned(work.height()) && unsigned(x + u) < unsigned(work.width());
        return inside ? segment.filtered[place + v * work.width() + u] : -INFINITE;
    });
    return highest && stands_out(work.settings, height, score(work.settings, height, segment.noise, y, x),
                                 neighbours(segment.frame, work.settings, y, x));
}

// Marks the maxima of a segment per block, and counts them.
extern "C" __global__ void __launch_bounds__(THREADS) mark_maxima(Work work, int first_block) {
    const int block = first_block + blockIdx.x;
    __shared__ int found_in_warps[WARPS];
    const Segment segment = own_segment(work, block);
    const int left = work.height() * work.width() - segment.first;
    const float limit = least_height(work.settings, segment.noise);
    // Few pixels are high enough; all are read before these are looked at closely.
    unsigned high = 0;
    UNROLL
    for (int k = 0; k < SEGMENT / THREADS; ++k) {
        const int i = k * THREADS + threadIdx.x;
        if (i < left && segment.filtered[segment.first + i] > limit) high |= 1u << k;
    }
    int found = 0;
#pragma unroll 1
    for (int k = 0; k < SEGMENT / THREADS; ++k) {
        const int i = k * THREADS + threadIdx.x;
        const bool here = (high >> k & 1) && is_found(work, segment, segment.first + i);
        const unsigned word = __ballot_sync(ALL_LANES, here);
        if (i % 32 == 0) work.marks[block * (long long)SEGMENT_WORDS + i / 32] = word;
        found += here;
    }
    found = sum_over_block(found, found_in_warps);
    if (threadIdx.x == 0) {
        work.counts[block] = found;
        if (found) atomicAdd(&work.group_counts[block / GROUP], found);
    }
}

// How many marks come before those of this thread, which takes one word of a segment.
SPOTFIT_INLINE int count_before(const Work& work, int block, int own) {
    __shared__ int in_warps[SEGMENT_WORDS / 32], before_warps[SEGMENT_WORDS / 32];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, group = block / GROUP;
    int before = 0;
    for (int i = threadIdx.x; i < group; i += SEGMENT_WORDS) before += work.group_counts[i];
    for (int i = group * GROUP + threadIdx.x; i < block; i += SEGMENT_WORDS) before += work.counts[i];
    before = sum_over_warp(before);
    int up_to_here = own;
    for (int distance = 1; distance < 32; distance *= 2) {
        const int others = __shfl_up_sync(ALL_LANES, up_to_here, distance);
        if (lane >= distance) up_to_here += others;
    }
    if (lane == 31) {
        before_warps[warp] = before;
        in_warps[warp] = up_to_here;
    }
    __syncthreads();
    before = up_to_here - own;
    for (int i = 0; i < SEGMENT_WORDS / 32; ++i) before += before_warps[i] + (i < warp ? in_warps[i] : 0);
    return before;
}

// Lists the maxima of a segment per block, a word of marks per thread; as many as there is room for.
extern "C" __global__ void __launch_bounds__(SEGMENT_WORDS) list_maxima(Work work, int first_block, int blocks) {
    const int block = first_block + blockIdx.x;
    unsigned word = work.marks[block * (long long)SEGMENT_WORDS + threadIdx.x];
    int number = 1 + count_before(work, block, __popc(word));
    // The last thread of all knows how many there are; its block leaves nothing unsaid behind them.
    if (block == blocks - 1) {
        __shared__ int end;
        if (threadIdx.x == SEGMENT_WORDS - 1) {
            end = number + __popc(word);
            work.maxima[0] = {end - 1, 0, 0, 0, 0.0f, 0.0f};
        }
        __syncthreads();
        for (int i = end + int(threadIdx.x); i < work.listed; i += SEGMENT_WORDS) work.maxima[i] = {};
    }
    if (word == 0) return;
    const Segment segment = own_segment(work, block);
    for (; word != 0 && number < work.listed; word &= word - 1) {
        const int place = segment.first + int(threadIdx.x) * 32 + __ffs(int(word)) - 1;
        const int y = place / work.width(), x = place % work.width();
        const float height = segment.filtered[place];
        const bool flat = is_flat(neighbours(segment.frame, work.settings, y, x));
        const double own_score = score(work.settings, height, segment.noise, y, x);
        work.maxima[number++] = {segment.number, y, x, flat, height, float(lower_of(own_score, double(HIGHEST)))};
    }
}

}  // namespace spotfit::SPOTFIT_ISA
