// A tile of a frame on a CPU, and its filtered pixels: what is made of a tile stays in a core's cache.
#pragma once
#include "../detection.h"
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
constexpr long long TILE_PIXELS = 1 << 16, TILE_COLUMNS = 512;

template <class V> SPOTFIT_INLINE V read(const float* from) {
    V value;
    __builtin_memcpy(&value, from, sizeof value);
    return value;
}
template <class V> SPOTFIT_INLINE void write(float* to, V value) { __builtin_memcpy(to, &value, sizeof value); }

long long round_up(long long n, long long step) { return (n + step - 1) / step * step; }

// Rows and columns of a frame.
struct Rectangle {
    long long y0, y1, x0, x1;

    long long height() const { return most(y1 - y0, 0); }
    long long width() const { return most(x1 - x0, 0); }
    // With so many more on all sides, as far as the frame goes.
    Rectangle wider(long long by, const DetectionSettings& s) const {
        return {most(y0 - by, 0), least(y1 + by, s.height), most(x0 - by, 0), least(x1 + by, s.width)};
    }
    bool operator==(const Rectangle& other) const {
        return y0 == other.y0 && y1 == other.y1 && x0 == other.x0 && x1 == other.x1;
    }
};

// How a frame is cut.
struct Tiles {
    long long height, width, rows, columns, across, count;

    explicit Tiles(const DetectionSettings& s) : height(s.height), width(s.width) {
        const bool small = height * width <= TILE_PIXELS;
        across = small ? 1 : (width + TILE_COLUMNS - 1) / TILE_COLUMNS;
        columns = (width + across - 1) / across;
        rows = small ? height : least(most(TILE_PIXELS / columns, 1), height);
        count = across * ((height + rows - 1) / rows);
    }
    Rectangle operator[](long long i) const {
        const long long y = i / across * rows, x = i % across * columns;
        return {y, least(y + rows, height), x, least(x + columns, width)};
    }
    long long most_maxima() const { return (rows / 2 + 1) * (columns / 2 + 1); }
};

// W neighbouring pixels less the level.
template <class T> SPOTFIT_INLINE L differences(const T* from, T level) {
    using Pixels = T __attribute__((ext_vector_type(W)));
    Pixels pixels;
    __builtin_memcpy(&pixels, from, sizeof pixels);
    if constexpr (sizeof(T) == 8) return __builtin_convertvector(pixels - level, L::Floats);
    else return __builtin_convertvector(pixels, L::Floats) - float(level);
}

// Copies pixels of a row less the level, and says whether there were bad ones, for which another
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

template <class T> bool has_bad_pixels(const Frame<T>& frame, long long count) {
    if constexpr (MAY_BE_BAD<T>) {
        float scratch[1024];
        for (long long i = 0; i < count; i += 1024)
            if (copy_row(frame.pixels + i, least(1024, count - i), frame.level, 0.0f, scratch)) return true;
    }
    return false;
}

// A row of a tile that was smoothed along y by both kernels, with what lies beside it.
struct SmoothedRow { float *narrow, *wide; };

// A tile with all that its filtered pixels are made of, in a thread's memory.
class Tile {
  public:
    // Rows and columns that can be filtered: the tile, and one more on each side.
    Rectangle inner;

    // Before the first column of a filtered row: room for what lies outside of the frame.
    static constexpr int BEFORE = W;

    static long long floats_needed(const DetectionSettings& s) {
        const Sizes z(s);
        return z.image + 4 * z.smoothed + 4 * z.filtered;
    }
    Tile(const DetectionSettings& settings, float* memory) : inner{}, s(settings), z(settings), frame(-1) {
        image = memory, memory += z.image;
        float** const smoothed[] = {&light.narrow, &light.wide, &good.narrow, &good.wide};
        for (float** row : smoothed) *row = memory, memory += z.smoothed;
        for (float*& row : filtered) row = memory, memory += z.filtered;
        for (long long i = 0; i < z.filtered; ++i) filtered[3][i] = -INFINITE;
    }

    // Copies what is needed of a frame, unless it is there already.
    template <class T> void load(const Frame<T>& from, long long number, const Rectangle& tile) {
        const Rectangle wanted = tile.wider(1, s);
        if (frame == number && wanted == inner) return;
        frame = number, inner = wanted, outer = inner.wider(s.radius, s);
        for (long long y = outer.y0; y < outer.y1; ++y)
            copy_row(from.pixels + y * s.width + outer.x0, outer.width(), from.level, NOT_A_NUMBER, image_row(y));
    }

    // Filters a row of `inner`, and gives the wide Gaussian's means where there is room for them. With
    // bad pixels, both Gaussians are weighted means of the good ones.
    template <bool BAD> void filter(long long y, float* result, float* means = nullptr) {
        smooth_along_y<BAD>(y);
        in_vectors(inner.width(), [&](long long x, auto vectors) SPOTFIT_INLINE_LAMBDA {
            constexpr int K = decltype(vectors)::value;
            L narrow[K], wide[K];
            smooth_along_x(light, x, narrow, wide);
            if constexpr (BAD) {
                L good_narrow[K], good_wide[K];
                smooth_along_x(good, x, good_narrow, good_wide);
                for (int k = 0; k < K; ++k) {
                    write(result + BEFORE + x + k * W,
                          difference_of_means(narrow[k], wide[k], good_narrow[k], good_wide[k]));
                    wide[k] = wide[k] / good_wide[k];
                }
            } else {
                for (int k = 0; k < K; ++k) write(result + BEFORE + x + k * W, narrow[k] - wide[k]);
            }
            if (means)
                for (int k = 0; k < K; ++k) write(means + BEFORE + x + k * W, wide[k]);
        });
    }
    // Has a filtered row end where the frame ends: nothing is higher there.
    void close(float* row) const {
        row[BEFORE - 1] = -INFINITE;
        float* after = row + BEFORE + inner.width();
        for (int i = 0; i < W; ++i) after[i] = -INFINITE;
    }
    // Memory for a filtered row: rows that follow each other have different ones.
    float* row(long long y) { return filtered[(y + 3) % 3]; }
    const float* outside() const { return filtered[3]; }

  private:
    struct Sizes {
        long long stride, margin, image, smoothed, filtered;
        explicit Sizes(const DetectionSettings& s) {
            const Tiles tiles(s);
            const long long around = 2 * s.radius + 2;
            stride = round_up(least(tiles.columns + around, s.width), W);
            margin = round_up(s.radius, W);
            image = stride * least(tiles.rows + around, s.height);
            smoothed = stride + 2 * margin + 2 * W;
            filtered = round_up(tiles.columns + 2, W) + BEFORE + 2 * W;
        }
    };

    const DetectionSettings& s;
    Sizes z;
    long long frame;
    Rectangle outer;
    float *image, *filtered[4];
    SmoothedRow light, good;

    float* image_row(long long y) { return image + (y - outer.y0) * z.stride; }

    template <bool BAD> void smooth_along_y(long long y) {
        const float* up[MAX_RADIUS + 1];
        const float* down[MAX_RADIUS + 1];
        for (int t = 0; t <= s.radius; ++t) {
            up[t] = image_row(mirrored(y - t, s.height));
            down[t] = image_row(mirrored(y + t, s.height));
        }
        const long long first = z.margin - (inner.x0 - outer.x0);
        in_vectors(outer.width(), [&](long long x, auto vectors) SPOTFIT_INLINE_LAMBDA {
            constexpr int K = decltype(vectors)::value;
            const auto smooth_content = [&](auto content, const SmoothedRow& to) SPOTFIT_INLINE_LAMBDA {
                L narrow[K], wide[K];
                smooth_by_both(
                    s.narrow, s.narrow_radius, s.wide, s.radius,
                    [&](int k) SPOTFIT_INLINE_LAMBDA { return content(read<L>(up[0] + x + k * W)); },
                    [&](int t) SPOTFIT_INLINE_LAMBDA {
                        return [&content, above = up[t] + x, below = down[t] + x](int k) SPOTFIT_INLINE_LAMBDA {
                            return content(read<L>(above + k * W)) + content(read<L>(below + k * W));
                        };
                    },
                    narrow, wide);
                for (int k = 0; k < K; ++k) {
                    write(to.narrow + first + x + k * W, narrow[k]);
                    write(to.wide + first + x + k * W, wide[k]);
                }
            };
            if constexpr (BAD) {
                smooth_content([](L v) SPOTFIT_INLINE_LAMBDA { return select(is_nan(v), L(0.0f), v); }, light);
                smooth_content([](L v) SPOTFIT_INLINE_LAMBDA { return select(is_nan(v), L(0.0f), L(1.0f)); }, good);
            } else {
                smooth_content([](L v) SPOTFIT_INLINE_LAMBDA { return v; }, light);
            }
        });
        mirror_ends(light);
        if constexpr (BAD) mirror_ends(good);
    }
    void mirror_ends(const SmoothedRow& row) const {
        float* const both[] = {row.narrow, row.wide};
        for (float* smoothed : both) {
            float* const column_0 = smoothed + z.margin - inner.x0;
            for (long long x = inner.x0 - s.radius; x < outer.x0; ++x) column_0[x] = column_0[mirrored(x, s.width)];
            for (long long x = outer.x1; x < inner.x1 + s.radius; ++x) column_0[x] = column_0[mirrored(x, s.width)];
        }
    }
    template <int K>
    SPOTFIT_INLINE void smooth_along_x(const SmoothedRow& row, long long x, L (&narrow)[K], L (&wide)[K]) const {
        const float *n = row.narrow + z.margin + x, *w = row.wide + z.margin + x;
        smooth(
            s.narrow, s.narrow_radius, [&](int t, int k) SPOTFIT_INLINE_LAMBDA { return read<L>(n + t + k * W); },
            narrow);
        smooth(s.wide, s.radius, [&](int t, int k) SPOTFIT_INLINE_LAMBDA { return read<L>(w + t + k * W); }, wide);
    }
};

}  // namespace
}  // namespace spotfit::SPOTFIT_ISA
