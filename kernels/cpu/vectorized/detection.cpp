// Detection on a CPU: frames tile by tile, so that what is made of a tile stays in a core's cache.
#include "../../detection.h"
#include "../detection_frame.h"
#include "../instruction_set.h"
#include "tables.h"

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
// Of the sums for the noise: so many on every machine, that all of them round alike.
using Sums = Lanes<16>;
constexpr int SUMS = 16;
static_assert(SUMS == SAMPLE_PADDING);

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
struct SmoothedRow {
    float *narrow, *wide;
};

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

    // Filters a row of `inner`. With bad pixels, both Gaussians are weighted means of the good ones.
    template <bool BAD> void filter(long long y, float* result) {
        smooth_along_y<BAD>(y);
        in_vectors(inner.width(), [&](long long x, auto vectors) SPOTFIT_INLINE_LAMBDA {
            constexpr int K = decltype(vectors)::value;
            L narrow[K], wide[K];
            smooth_along_x(light, x, narrow, wide);
            if constexpr (BAD) {
                L good_narrow[K], good_wide[K];
                smooth_along_x(good, x, good_narrow, good_wide);
                for (int k = 0; k < K; ++k)
                    write(result + BEFORE + x + k * W,
                          difference_of_means(narrow[k], wide[k], good_narrow[k], good_wide[k]));
            } else {
                for (int k = 0; k < K; ++k) write(result + BEFORE + x + k * W, narrow[k] - wide[k]);
            }
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
        smooth(s.narrow, s.narrow_radius, [&](int t, int k) SPOTFIT_INLINE_LAMBDA { return read<L>(n + t + k * W); },
               narrow);
        smooth(s.wide, s.radius, [&](int t, int k) SPOTFIT_INLINE_LAMBDA { return read<L>(w + t + k * W); }, wide);
    }
};

// ---- The noise ----

// Puts the filtered pixels of sampled rows of a tile into the frame's sample.
template <bool BAD> void sample_filtered(const DetectionSettings& s, Tile& tile, const Rectangle& part, float* sample) {
    const SampledRows rows(s.height, s.row_step, 0);
    for (long long i = rows.before(part.y0); i < rows.before(part.y1); ++i) {
        float* row = tile.row(0);
        tile.filter<BAD>(rows.row(i), row);
        __builtin_memcpy(sample + i * s.width + part.x0, row + Tile::BEFORE + part.x0 - tile.inner.x0,
                         part.width() * sizeof(float));
    }
}

// How many numbers the largest sample has.
long long sample_size(const DetectionSettings& s) { return SampledRows(s.height, s.row_step, 0).count * s.width; }

// The same with detail at distances along y and x. Needs memory for three rows.
template <class T>
void sample_detail(const DetectionSettings& s, const Frame<T>& frame, int by_y, int by_x, const Rectangle& part,
                   float* memory, float* sample) {
    const SampledRows rows(s.height, s.row_step, by_y);
    const long long x0 = most(part.x0, by_x), x1 = least(part.x1, s.width - by_x), columns = s.width - 2 * by_x;
    if (x1 <= x0) return;
    const long long count = x1 - x0 + 2 * by_x, stride = round_up(count, W) + W;
    for (long long i = rows.before(part.y0); i < rows.before(part.y1); ++i) {
        for (int k = 0; k < 3; ++k)
            copy_row(frame.pixels + (rows.row(i) + (k - 1) * by_y) * s.width + x0 - by_x, count, frame.level, 0.0f,
                     memory + k * stride);
        for (long long x = 0; x < count; x += W) {
            const float* here = memory + x;
            write(memory + x, second_difference(read<L>(here), read<L>(here + stride), read<L>(here + 2 * stride)));
        }
        float* to = sample + i * columns + x0 - by_x;
        const auto detail_at = [&](long long x) SPOTFIT_INLINE_LAMBDA {
            const float* here = memory + x + by_x;
            return detail(read<L>(here - by_x), read<L>(here), read<L>(here + by_x));
        };
        long long x = 0;
        for (; x + W <= x1 - x0; x += W) write(to + x, detail_at(x));
        const L rest = detail_at(x);
        __builtin_memcpy(to + x, &rest, (x1 - x0 - x) * sizeof(float));
    }
}
long long detail_size(const DetectionSettings& s, int by_y, int by_x) {
    return SampledRows(s.height, s.row_step, by_y).count * most(s.width - 2 * by_x, 0);
}

// The sum over a whole sample, whose last vector is filled up with zeros, which do not count.
ClippedTotal clipped_total(const float* sample, long long size, float deviation) {
    ClippedSum<Sums> sum;
    const Sums inverse(1.0f / deviation);
    for (long long i = 0; i < size; i += SUMS) sum.add(read<Sums>(sample + i), inverse);
    float squares = 0.0f;
    for (int k = 0; k < SUMS; ++k) squares += sum.squares.v[k];
    return {squares, __builtin_reduce_add(sum.inside)};
}

// The standard deviation about 0 of the middle of a sample, after which there is room for a vector.
float clipped_deviation(float* sample, long long size) {
    for (int k = 0; k < SUMS; ++k) sample[size + k] = 0.0f;
    Sums highest(0.0f);
    for (long long i = 0; i < size; i += SUMS) highest = higher_of(absolute(read<Sums>(sample + i)), highest);
    float deviation = 0.0f;
    for (int k = 0; k < SUMS; ++k) deviation = higher_of(deviation, highest.v[k]);
    bool goes_on = deviation > 0.0f;
    for (int i = 0; i < MAX_CLIPS && goes_on; ++i)
        goes_on = clip<double>(clipped_total(sample, size, deviation), deviation);
    return deviation;
}

// ---- Maxima ----

// Lists the maxima of a tile that stand out, in the order of their rows and columns.
template <bool BAD, class T>
long long find_maxima(const DetectionSettings& s, const Frame<T>& frame, long long number, double noise, Tile& tile,
                      const Rectangle& part, const float* sample, Maximum* found) {
    const SampledRows sampled(s.height, s.row_step, 0);
    const float limit = least_height(s, noise);
    const Rectangle& inner = tile.inner;
    long long in_sample = sampled.before(inner.y0);
    const auto make_row = [&](long long y) {
        float* row = tile.row(y);
        if (in_sample < sampled.count && y == sampled.row(in_sample))
            __builtin_memcpy(row + Tile::BEFORE, sample + in_sample++ * s.width + inner.x0,
                             inner.width() * sizeof(float));
        else tile.filter<BAD>(y, row);
        tile.close(row);
    };
    if (inner.y0 < part.y0) make_row(inner.y0);
    make_row(part.y0);
    long long count = 0;
    for (long long y = part.y0; y < part.y1; ++y) {
        if (y + 1 < inner.y1) make_row(y + 1);
        const float* const rows[3] = {y > 0 ? tile.row(y - 1) : tile.outside(), tile.row(y),
                                      y + 1 < s.height ? tile.row(y + 1) : tile.outside()};
        const long long before = Tile::BEFORE - inner.x0;
        for (long long x = part.x0; x < part.x1; x += W) {
            const auto at = [&](int v, int u) SPOTFIT_INLINE_LAMBDA { return read<L>(rows[v + 1] + before + x + u); };
            const L heights = at(0, 0);
            MaskOf<L> candidates = heights > L(limit);
            if (!any(candidates)) continue;
            candidates = candidates & is_maximum(heights, at);
            if (!any(candidates)) continue;
            const long long lanes = least(W, part.x1 - x);
            for (int k = 0; k < lanes; ++k) {
                if (!candidates.v[k]) continue;
                const long long column = x + k;
                const float height = heights.v[k], pixel = frame[y * s.width + column];
                const double own_score = score(s, height, noise, y, column);
                if (!stands_out(s, height, own_score, pixel)) continue;
                const bool flat = is_flat(pixel, [&](int v, int u) {
                    return frame[most(least(y + v, s.height - 1), 0) * s.width + most(least(column + u, s.width - 1), 0)];
                });
                found[count++] = {int(number), int(y), int(column), flat, height,
                                  float(lower_of(own_score, double(HIGHEST)))};
            }
        }
    }
    return count;
}

// ---- A frame from beginning to end, or in stages of which several threads do parts ----

template <class T> struct Detector {
    const DetectionSource& source;
    const DetectionSettings& s;
    Tiles tiles;
    float* rows;  // for a few rows of a tile
    float *filtered, *details;
    Tile tile;

    static long long rows_size(const Tiles& tiles) { return 3 * (round_up(tiles.columns + 4, W) + 2 * W); }

    Detector(const DetectionSource& given, void* memory, bool whole)
        : source(given), s(*given.settings), tiles(s), rows(static_cast<float*>(memory)),
          filtered(rows + rows_size(tiles)), details(filtered + (whole ? sample_size(s) + SUMS : 0)),
          tile(s, details + (whole ? sample_size(s) + SUMS : 0)) {}
    static long long bytes_needed(const DetectionSettings& s, bool whole) {
        const long long samples = whole ? 2 * (sample_size(s) + SUMS) : 0;
        return (rows_size(Tiles(s)) + samples + Tile::floats_needed(s)) * static_cast<long long>(sizeof(float));
    }

    void sample_tile(const Frame<T>& frame, long long number, bool bad, long long i, float* sample) {
        const Rectangle part = tiles[i];
        tile.load(frame, number, part);
        if (bad) sample_filtered<true>(s, tile, part, sample);
        else sample_filtered<false>(s, tile, part, sample);
    }
    long long find(const Frame<T>& frame, long long number, bool bad, double noise, long long i, const float* sample,
                   Maximum* found) {
        const Rectangle part = tiles[i];
        tile.load(frame, number, part);
        if (bad) return find_maxima<true>(s, frame, number, noise, tile, part, sample, found);
        return find_maxima<false>(s, frame, number, noise, tile, part, sample, found);
    }

    double estimate_noise(const Frame<T>& frame) {
        return noise_of(clipped_deviation(filtered, sample_size(s)), s.gain, [&](int by_y, int by_x) {
            for (long long i = 0; i < tiles.count; ++i)
                sample_detail(s, frame, by_y, by_x, tiles[i], rows, details);
            return double(clipped_deviation(details, detail_size(s, by_y, by_x)));
        });
    }
    // Those of tile after tile.
    long long detect(long long number, Maximum* found) {
        const Frame<T> frame = frame_of<T>(source, number);
        const bool bad = has_bad_pixels(frame, s.height * s.width);
        for (long long i = 0; i < tiles.count; ++i) sample_tile(frame, number, bad, i, filtered);
        const double noise = estimate_noise(frame);
        long long count = 0;
        for (long long i = 0; i < tiles.count; ++i)
            count += find(frame, number, bad, noise, i, filtered, found + count);
        return count;
    }
};

// ---- What the library shows ----

long long work_bytes(const DetectionSettings& s, int whole) { return Detector<float>::bytes_needed(s, whole); }
long long tile_count(const DetectionSettings& s) { return Tiles(s).count; }
long long most_maxima(const DetectionSettings& s) { return Tiles(s).most_maxima(); }

long long detect(const DetectionSource& source, long long first, long long last, void* work, Maximum* found,
                 long long room, long long* count) {
    return with_pixel_type(source.pixel_type, [&](auto pixel) {
        const SubnormalsAreZero here;
        Detector<typename decltype(pixel)::Type> detector(source, work, true);
        const long long most = detector.tiles.count * detector.tiles.most_maxima();
        long long frame = first;
        for (*count = 0; frame < last && *count + most <= room; ++frame)
            *count += detector.detect(frame, found + *count);
        return frame;
    });
}

int has_bad(const DetectionSource& source, long long number) {
    return with_pixel_type(source.pixel_type, [&](auto pixel) {
        const SubnormalsAreZero here;
        const auto frame = frame_of<typename decltype(pixel)::Type>(source, number);
        return int(has_bad_pixels(frame, source.settings->height * source.settings->width));
    });
}

long long sample_length(const DetectionSettings& s, int by_y, int by_x) {
    return by_y ? detail_size(s, by_y, by_x) : sample_size(s);
}

void sample_tiles(const DetectionSource& source, long long number, int bad, int by_y, int by_x, long long first,
                  long long last, void* work, float* sample) {
    with_pixel_type(source.pixel_type, [&](auto pixel) {
        using T = typename decltype(pixel)::Type;
        const SubnormalsAreZero here;
        Detector<T> detector(source, work, false);
        const Frame<T> frame = frame_of<T>(source, number);
        for (long long i = first; i < last; ++i) {
            if (by_y) sample_detail(detector.s, frame, by_y, by_x, detector.tiles[i], detector.rows, sample);
            else detector.sample_tile(frame, number, bad, i, sample);
        }
    });
}

double deviation(float* sample, long long size) {
    const SubnormalsAreZero here;
    return clipped_deviation(sample, size);
}

double noise(const DetectionSettings& s, const double* deviations) {
    return noise_of(deviations[0], s.gain,
                    [&](int by_y, int by_x) { return deviations[by_y == 2 ? 3 : by_x == 2 ? 2 : 1]; });
}

long long find_in_tiles(const DetectionSource& source, long long number, int bad, double noise, long long first,
                        long long last, void* work, const float* sample, Maximum* found) {
    return with_pixel_type(source.pixel_type, [&](auto pixel) {
        using T = typename decltype(pixel)::Type;
        const SubnormalsAreZero here;
        Detector<T> detector(source, work, false);
        const Frame<T> frame = frame_of<T>(source, number);
        long long count = 0;
        for (long long i = first; i < last; ++i)
            count += detector.find(frame, number, bad, noise, i, sample, found + count);
        return count;
    });
}

}  // namespace

const DetectionFunctions detection = {
    work_bytes, tile_count, most_maxima, detect,        has_bad,        sample_length,
    sample_tiles, deviation, noise,      find_in_tiles, merge_plateaus, drop_neighbours,
};

}  // namespace spotfit::SPOTFIT_ISA
