// A part of a frame on a CPU, filtered row after row: all that is made on the way stays in a core's
// cache. Rows are smoothed along x as they come, and along y when those below are there.
#pragma once
#include "../detection.h"
#include "detection_frame.h"
#include "instruction_set.h"

namespace spotfit::SPOTFIT_ISA {
namespace {

using L = LaneType;
constexpr int W = LANES;

// Calls step(place, IntOf<K>) for K vectors at a time, which share what is read for all of them.
template <class Step> SPOTFIT_INLINE void in_vectors(long long count, Step step) {
    long long x = 0;
    for (; x + 3 * W < count; x += 4 * W) step(x, IntOf<4>());
    if (x + W < count) step(x, IntOf<2>()), x += 2 * W;
    if (x < count) step(x, IntOf<1>());
}

template <class V> SPOTFIT_INLINE V read(const float* from) {
    V value;
    __builtin_memcpy(&value, from, sizeof value);
    return value;
}
template <class V> SPOTFIT_INLINE void write(float* to, V value) { __builtin_memcpy(to, &value, sizeof value); }

// A bit for each lane of a mask, the first one lowest.
SPOTFIT_INLINE unsigned bits(MaskOf<L> mask) {
    using Bools = bool __attribute__((ext_vector_type(W)));
    const Bools set = __builtin_convertvector(mask.v, Bools);
    unsigned short bits = 0;
    __builtin_memcpy(&bits, &set, sizeof set);
    return bits & ((1u << W) - 1);
}

constexpr long long round_up(long long n, long long step) { return (n + step - 1) / step * step; }

// Rows and columns of a frame.
struct Rectangle {
    long long y0, y1, x0, x1;

    long long height() const { return most(y1 - y0, 0); }
    long long width() const { return most(x1 - x0, 0); }
    // With a margin on all sides, as far as the frame goes.
    Rectangle wider(long long by, const DetectionSettings& s) const {
        return {most(y0 - by, 0), least(y1 + by, s.height), most(x0 - by, 0), least(x1 + by, s.width)};
    }
};

// How a frame, or all frames of a volume, is cut: as wide as what is kept of some rows, or planes, has room in a
// core's cache, and with the columns beside a whole number of vectors.
struct Strips {
    static constexpr long long PIXELS = 1 << 16, COLUMNS = 128, LEAST_ROWS = 16, CACHE = 1 << 18;
    long long height, width, depth, rows, columns, across, count;

    explicit Strips(const DetectionSettings& s) : height(s.height), width(s.width), depth(s.volume ? s.depth : 1) {
        across = most((width + COLUMNS - 1) / COLUMNS, 1);
        columns = across > 2 ? COLUMNS - 2 : most((width + across - 1) / across, 1);
        across = (width + columns - 1) / columns;
        rows = least(s.volume ? rows_of_slab(*s.volume) : PIXELS / columns, height);
        count = rows > 0 ? across * ((height + rows - 1) / rows) : 0;
    }
    Rectangle operator[](long long i) const {
        const long long y = i / across * rows, x = i % across * columns;
        return {y, least(y + rows, height), x, least(x + columns, width)};
    }
    // In both bands, and of the wide one's other sign.
    long long most_maxima() const { return EXTREMA * (rows / 2 + 1) * (columns / 2 + 1) * ((depth + 1) / 2); }

  private:
    static long long rows_of_slab(const VolumeSettings& volume) {
        long long planes = 0;
        for (const int radius : volume.radius) planes += radius + volume.radius[WIDE] + 1;
        return most(CACHE / (planes * COLUMNS), LEAST_ROWS);
    }
};

// W neighbouring pixels less the level.
template <class T> SPOTFIT_INLINE L differences(const T* from, T level) {
    using Pixels = T __attribute__((ext_vector_type(W)));
    Pixels pixels;
    __builtin_memcpy(&pixels, from, sizeof pixels);
    if constexpr (sizeof(T) == 8) return __builtin_convertvector(pixels - level, L::Floats);
    else return __builtin_convertvector(pixels, L::Floats) - float(level);
}

// Copies pixels of a row less the level, and returns whether there were bad ones, for which another
// number stands.
template <class T> SPOTFIT_INLINE bool copy_row(const T* from, long long count, T level, float instead, float* to) {
    MaskOf<L> good(true);
    const auto copy = [&](long long i) SPOTFIT_INLINE_LAMBDA {
        L values = differences(from + i, level);
        if constexpr (MAY_BE_BAD<T>) {
            const MaskOf<L> own = is_good(values);
            values = select(own, values, L(instead));
            good = good & own;
        }
        write(to + i, values);
    };
    for (long long i = 0; i + W <= count; i += W) copy(i);
    if (count >= W) {
        if (count % W) copy(count - W);
        return !all(good);
    }
    bool any_bad = false;
    for (long long i = 0; i < count; ++i) {
        const float value = difference(from[i], level);
        const bool bad = MAY_BE_BAD<T> && !is_good(value);
        to[i] = bad ? instead : value;
        any_bad |= bad;
    }
    return any_bad;
}

// Asks for the pixels of a row that comes later: rows of wide frames lie too far apart for processors to
// guess which are next.
constexpr long long ROWS_AHEAD = 8;

// The rows of a frame, by a function for its type of pixels: what filters them is compiled once, not for each type.
class FrameRows {
  public:
    double level;
    bool may_be_bad;

    template <class T>
    explicit FrameRows(const Frame<T>& frame)
        : level(double(frame.level)), may_be_bad(MAY_BE_BAD<T>), pixels(reinterpret_cast<const char*>(frame.pixels)),
          size(sizeof(T)), copy_pixels(copy_as<T>) {}

    // As it was given.
    template <class T> Frame<T> as() const { return {reinterpret_cast<const T*>(pixels), T(level)}; }
    // Those a number of pixels further on, as the next frame is.
    FrameRows behind(long long count) const {
        FrameRows other = *this;
        other.pixels += count * size;
        return other;
    }
    bool copy(long long place, long long count, float instead, float* to) const {
        return copy_pixels(*this, place, count, instead, to);
    }
    SPOTFIT_INLINE void prefetch(const DetectionSettings& s, long long y, long long x0, long long x1) const {
        const char* const ahead = pixels + least(y + ROWS_AHEAD, s.height - 1) * s.width * size;
        for (long long at = x0 * size; at < x1 * size; at += 64) __builtin_prefetch(ahead + at);
    }

  private:
    const char* pixels;
    long long size;
    bool (*copy_pixels)(const FrameRows&, long long, long long, float, float*);

    template <class T>
    static bool copy_as(const FrameRows& rows, long long place, long long count, float instead, float* to) {
        const Frame<T> own = rows.as<T>();
        return copy_row(own.pixels + place, count, own.level, instead, to);
    }
};

SPOTFIT_INLINE bool has_bad_pixels(const FrameRows& rows, const DetectionSettings& s, const Rectangle& part) {
    if (!rows.may_be_bad) return false;
    constexpr long long AT_ONCE = 512;
    float scratch[AT_ONCE];
    for (long long y = part.y0; y < part.y1; ++y) {
        rows.prefetch(s, y, part.x0, part.x1);
        for (long long x = part.x0; x < part.x1; x += AT_ONCE)
            if (rows.copy(y * s.width + x, least(AT_ONCE, part.x1 - x), 0.0f, scratch)) return true;
    }
    return false;
}

// A ring of the last rows.
struct RingOfRows {
    float* first;
    long long kept, stride;

    float* operator[](long long y) const { return first + y % kept * stride; }
    // Where rows lie that are not farther from row y than there are rows: division takes its time.
    struct Near {
        long long y, place, kept, stride;
        long long operator()(long long row) const {
            const long long own = place + row - y;
            return (own < 0 ? own + kept : own < kept ? own : own - kept) * stride;
        }
    };
    Near near(long long y) const { return {y, y % kept, kept, stride}; }
};

// A part of a frame, smoothed along both axes by all kernels.
class SmoothedStrip {
  public:
    // Rows and columns that are smoothed.
    Rectangle inner;

    static long long floats_needed(const DetectionSettings& s, const Rectangle& inner) {
        const Sizes z(s, inner.width());
        return z.stride * (z.raw_rows + 1) + 2 * WIDTHS * z.smoothed_rows * z.smoothed_stride;
    }

    // The memory is aligned to vectors.
    SmoothedStrip(const DetectionSettings& settings, const FrameRows& pixels, const Rectangle& part, bool any_bad,
                  float* memory)
        : inner(part), s(settings), bad(any_bad), z(settings, part.width()), frame(pixels), variance(s, frame.level),
          next_raw(most(inner.y0 - s.radius[WIDE] - s.hot_distance, 0)),
          next_smoothed(most(inner.y0 - s.radius[WIDE], 0)), next_row(inner.y0) {
        raw = {memory, z.raw_rows, z.stride};
        clean = memory + z.raw_rows * z.stride;
        memory = clean + z.stride;
        const auto ring = [&](long long rows, long long pitch) {
            const RingOfRows made = {memory, rows, pitch};
            memory += rows * pitch;
            return made;
        };
        for (RingOfRows& own : light) own = ring(z.smoothed_rows, z.smoothed_stride);
        for (RingOfRows& own : good) own = ring(z.smoothed_rows, z.smoothed_stride);
    }

    // Smooths the next row: calls use(x, BoolOf<any bad>, light, shares) for vectors of columns from inner.x0 + x on.
    template <class Use> void smooth_next(Use use) {
        const long long y = next_row++;
        for (const long long end = least(y + s.radius[WIDE], s.height - 1); next_smoothed <= end; ++next_smoothed)
            if (bad) smooth_along_x<true>(next_smoothed);
            else smooth_along_x<false>(next_smoothed);
        if (bad) smooth_along_y<true>(y, use);
        else smooth_along_y<false>(y, use);
    }
    long long next() const { return next_row; }
    const PixelVariance& pixel_variance() const { return variance; }

  protected:
    const DetectionSettings& s;
    bool bad;

  private:
    struct Sizes {
        long long margin, stride, raw_rows, smoothed_rows, smoothed_stride;
        Sizes(const DetectionSettings& s, long long width) {
            margin = round_up(s.radius[WIDE] + s.hot_distance, W);
            stride = round_up(width, W) + 2 * margin + 2 * W;
            raw_rows = least(2 * s.hot_distance + 1, s.height);
            smoothed_rows = least(2 * s.radius[WIDE] + 1, s.height);
            smoothed_stride = round_up(width, W);
        }
    };

    Sizes z;
    FrameRows frame;
    PixelVariance variance;
    long long next_raw, next_smoothed, next_row;
    RingOfRows raw, light[WIDTHS], good[WIDTHS];
    float* clean;

    // Takes a row of pixels, NaN where they are bad, and mirrors what lies beside the frame.
    void take(long long y) {
        const long long beside = s.radius[WIDE] + s.hot_distance;
        const long long x0 = most(inner.x0 - beside, 0), x1 = least(inner.x1 + beside, s.width);
        float* const column_0 = raw[y] + z.margin - inner.x0;
        frame.prefetch(s, y, x0, x1);
        frame.copy(y * s.width + x0, x1 - x0, NOT_A_NUMBER, column_0 + x0);
        if (beside < s.width) {  // once is enough
            for (long long i = x0 - inner.x0 + beside; i > 0; --i) column_0[x0 - i] = column_0[x0 + i];
            for (long long i = inner.x1 + beside - x1; i > 0; --i) column_0[x1 - 1 + i] = column_0[x1 - 1 - i];
            return;
        }
        for (long long x = inner.x0 - beside; x < x0; ++x) column_0[x] = column_0[mirrored(x, s.width)];
        for (long long x = x1; x < inner.x1 + beside; ++x) column_0[x] = column_0[mirrored(x, s.width)];
    }

    // Returns a row without its hot pixels, which begins where `inner` does.
    const float* without_hot_pixels(long long y) {
        for (const long long end = least(y + s.hot_distance, s.height - 1); next_raw <= end; ++next_raw) take(next_raw);
        const float* const near[3] = {own_row(y - 1), own_row(y), own_row(y + 1)};
        const float* const far[3] = {own_row(y - s.hot_distance), near[1], own_row(y + s.hot_distance)};
        const long long radius = s.radius[WIDE];
        bool any_hot = false;
        for (long long x = -radius; x < inner.width() + radius; x += W) {
            const auto beside = [&](int v, int u) SPOTFIT_INLINE_LAMBDA { return read<L>(near[v + 1] + x + u); };
            if (!any(may_be_hot<L>(variance, beside))) continue;
            const auto at = [&](int v, int u) SPOTFIT_INLINE_LAMBDA {
                const bool is_near = v * v <= 1 && u * u <= 1;
                return read<L>((is_near ? near[v + 1] : far[(v > 0) - (v < 0) + 1]) + x + u);
            };
            const MaskOf<L> hot = is_hot_in_detection<L>(s, variance, at);
            if (!any(hot)) continue;
            if (!any_hot) __builtin_memcpy(clean, raw[y], z.stride * sizeof(float));
            any_hot = true;
            float* const to = clean + z.margin + x;
            write(to, select(hot, mean_of_neighbours(at), read<L>(to)));
        }
        return any_hot ? clean + z.margin : near[1];
    }
    const float* own_row(long long y) const { return raw[mirrored(y, s.height)] + z.margin; }

    template <bool BAD> void smooth_along_x(long long y) {
        const float* const row = without_hot_pixels(y);
        float *light_row[WIDTHS], *good_row[WIDTHS];
        for (int w = 0; w < WIDTHS; ++w) light_row[w] = light[w][y], good_row[w] = good[w][y];
        in_vectors(inner.width(), [&](long long x, auto vectors) SPOTFIT_INLINE_LAMBDA {
            constexpr int K = decltype(vectors)::value;
            const auto smooth_content = [&](auto content, float* const(&to)[WIDTHS]) SPOTFIT_INLINE_LAMBDA {
                L smoothed[WIDTHS][K];
                smooth_by_all(
                    s.kernels, s.radius, [&](int k) SPOTFIT_INLINE_LAMBDA { return content(read<L>(row + x + k * W)); },
                    [&](int t) SPOTFIT_INLINE_LAMBDA {
                        return [&content, left = row + x - t, right = row + x + t](int k) SPOTFIT_INLINE_LAMBDA {
                            return content(read<L>(left + k * W)) + content(read<L>(right + k * W));
                        };
                    },
                    smoothed);
                UNROLL
                for (int w = 0; w < WIDTHS; ++w) UNROLL
                for (int k = 0; k < K; ++k) write(to[w] + x + k * W, smoothed[w][k]);
            };
            if constexpr (BAD) {
                smooth_content([](L v) SPOTFIT_INLINE_LAMBDA { return select(is_nan(v), L(0.0f), v); }, light_row);
                smooth_content([](L v) SPOTFIT_INLINE_LAMBDA { return select(is_nan(v), L(0.0f), L(1.0f)); }, good_row);
            } else {
                smooth_content([](L v) SPOTFIT_INLINE_LAMBDA { return v; }, light_row);
            }
        });
    }

    template <bool BAD, class Use> void smooth_along_y(long long y, Use use) {
        // Where the rows above and below lie in each ring, from its beginning.
        long long up[MAX_RADIUS + 1], down[MAX_RADIUS + 1];
        const RingOfRows::Near place = light[WIDE].near(y);
        const bool inside = y >= s.radius[WIDE] && y + s.radius[WIDE] < s.height;
        for (int t = 0; t <= s.radius[WIDE]; ++t) {
            up[t] = place(inside ? y - t : mirrored(y - t, s.height));
            down[t] = place(inside ? y + t : mirrored(y + t, s.height));
        }
        in_vectors(inner.width(), [&](long long x, auto vectors) SPOTFIT_INLINE_LAMBDA {
            constexpr int K = decltype(vectors)::value;
            const auto smooth_rows = [&](const RingOfRows(&rings)[WIDTHS],
                                         L(&smoothed)[WIDTHS][K]) SPOTFIT_INLINE_LAMBDA {
                UNROLL
                for (int w = 0; w < WIDTHS; ++w) {
                    const float* const first = rings[w].first + x;
                    smooth(
                        s.kernels[w], s.radius[w],
                        [&](int k) SPOTFIT_INLINE_LAMBDA { return read<L>(first + up[0] + k * W); },
                        [&](int t) SPOTFIT_INLINE_LAMBDA {
                            return [above = first + up[t], below = first + down[t]](int k) SPOTFIT_INLINE_LAMBDA {
                                return read<L>(above + k * W) + read<L>(below + k * W);
                            };
                        },
                        smoothed[w]);
                }
            };
            L smoothed[WIDTHS][K], shares[WIDTHS][K];
            smooth_rows(light, smoothed);
            if constexpr (BAD) smooth_rows(good, shares);
            use(x, IntOf<BAD>(), smoothed, shares);
        });
    }
};

// Writes both bands and the mean of K vectors to where each of them is kept.
template <bool BAD, int K>
SPOTFIT_INLINE void write_filtered(const L (&smoothed)[WIDTHS][K], const L (&shares)[WIDTHS][K], long long x,
                                   float* const (&to)[BANDS + 1]) {
    UNROLL
    for (int k = 0; k < K; ++k) {
        Filtered<L> here(smoothed[NARROW][k], smoothed[OWN][k], smoothed[WIDE][k]);
        if constexpr (BAD) {
            const L sums[WIDTHS] = {smoothed[NARROW][k], smoothed[OWN][k], smoothed[WIDE][k]};
            const L weights[WIDTHS] = {shares[NARROW][k], shares[OWN][k], shares[WIDE][k]};
            here = Filtered<L>::of_good(sums, weights);
        }
        UNROLL
        for (int band = 0; band < BANDS; ++band) write(to[band] + x + k * W, here.bands[band]);
        write(to[BANDS] + x + k * W, here.mean);
    }
}

// Marks what lies beside a filtered row, which begins where `inner` does: nothing is higher beyond the frame.
SPOTFIT_INLINE void end_row(const Rectangle& inner, float* const (&to)[BANDS + 1]) {
    for (int band = 0; band < BANDS; ++band) {
        if (inner.x0 == 0) to[band][-1] = -INFINITE;
        for (int i = 0; i < W; ++i) to[band][inner.width() + i] = -INFINITE;
    }
}

// Before the first column of a filtered row: room for what lies outside of the frame.
constexpr int BEFORE = W;

// The same, with the bands of the last rows.
class FilteredStrip : public SmoothedStrip {
  public:
    // How many rows above and below are compared with a maximum.
    static long long reach(const DetectionSettings& s) { return most(s.step, 1); }
    static long long floats_needed(const DetectionSettings& s) {
        const long long width = least(Strips(s).columns + 2 * reach(s), s.width);
        const long long stride = round_up(width, W) + BEFORE + W;
        return W + SmoothedStrip::floats_needed(s, {0, 0, 0, width}) + ((BANDS + 1) * (2 * reach(s) + 1) + 1) * stride;
    }

    FilteredStrip(const DetectionSettings& settings, const FrameRows& pixels, const Rectangle& part, float* memory)
        : FilteredStrip(settings, pixels, part.wider(reach(settings), settings),
                        static_cast<float*>(__builtin_align_up(memory, W * sizeof(float))), 0) {}

    // Filters the next row.
    void filter_next() {
        const long long y = next();
        float* to[BANDS + 1];
        for (int plane = 0; plane <= BANDS; ++plane) to[plane] = filtered[plane][y] + BEFORE;
        smooth_next([&](long long x, auto any_bad, const auto& smoothed, const auto& shares)
                        SPOTFIT_INLINE_LAMBDA { write_filtered<decltype(any_bad)::value>(smoothed, shares, x, to); });
        end_row(inner, to);
    }
    // Numbers of a band, or the means after them, of a row after which no more than 2 reach have come;
    // beyond the frame, -INFINITE.
    const float* row(int plane, long long y) const { return rows_near(y)(plane, y); }
    // The same of several rows that are not farther than the reach from one of the frame.
    struct RowsNear {
        const FilteredStrip& strip;
        RingOfRows::Near place;
        const float* operator()(int plane, long long y) const {
            const bool inside = 0 <= y && y < strip.s.height;
            return (inside ? strip.filtered[plane].first + place(y) : strip.outside) + BEFORE - strip.inner.x0;
        }
    };
    RowsNear rows_near(long long y) const { return {*this, filtered[0].near(y)}; }

  private:
    RingOfRows filtered[BANDS + 1];
    float* outside;

    // The memory is aligned.
    FilteredStrip(const DetectionSettings& settings, const FrameRows& pixels, const Rectangle& wider, float* memory,
                  int)
        : SmoothedStrip(
              settings, pixels, wider,
              has_bad_pixels(pixels, settings, wider.wider(settings.radius[WIDE] + settings.hot_distance, settings)),
              memory) {
        memory += SmoothedStrip::floats_needed(s, inner);
        const long long rows = 2 * reach(s) + 1, stride = round_up(inner.width(), W) + BEFORE + W;
        for (RingOfRows& own : filtered) {
            own = {memory, rows, stride};
            memory += rows * stride;
        }
        outside = memory;
        for (long long i = 0; i < stride; ++i) outside[i] = -INFINITE;
    }
};

}  // namespace
}  // namespace spotfit::SPOTFIT_ISA
