// The noise of an image on a CPU: the blocks of a frame, a row of them at a time.
#include "../../noise.h"

#include "../detection_frame.h"
#include "../filtered_strip.h"

namespace spotfit::SPOTFIT_ISA {
namespace {

// The same number on every machine, so that all round alike.
using Sums = Lanes<BLOCK>;
using Doubles = double __attribute__((ext_vector_type(BLOCK)));

double sum(Sums values) {
    double total = 0.0;
    for (int k = 0; k < BLOCK; ++k) total += double(values.v[k]);
    return total;
}

constexpr int ROWS = BLOCK + 2 * REACH;
// Before the first column of a row and behind the last: pixels that are mirrored.
constexpr int BESIDE = REACH + 1, PADDING = 16;

// Detail is not counted where a pixel so near is bad, which is most of what it is made of: others stand for such
// pixels. Blocks with fewer places that count are left out.
constexpr int NEAR_BAD = 2, LEAST_COUNTED = 96;
// Least number of good neighbours that stand for a bad pixel.
constexpr int LEAST_NEIGHBOURS = 4;
// The calmest columns of a block, this share of them, show by what pixels scatter: several
// hot pixels raise the mean, and would hide each other. Of white noise it is this part of the mean. Where more than
// one of this many pixels stands out, that is how sparse light looks, and the mean counts.
constexpr double CALM = 0.25, CALM_OVER_MEAN = 0.82;
constexpr int PIXELS_TO_A_HOT_ONE = 112;
// The least variance of whole numbers, which is that of rounding.
constexpr float OF_ROUNDING = 1.0f / 12.0f;

// Whether a pixel is hot, or as dark, by so much, and if so, the mean of its neighbours.
using HotPixel = bool (*)(const DetectionSettings&, const FrameRows&, long long y, long long x, float step,
                          float& mean);

template <class T>
bool hot_pixel(const DetectionSettings& s, const FrameRows& rows, long long y, long long x, float step, float& mean) {
    const Frame<T> frame = rows.as<T>();
    const auto pixel = [&](long long v, long long u) {
        return frame.with_bad(mirrored(y + v, s.height) * s.width + mirrored(x + u, s.width));
    };
    const auto negative = [&](long long v, long long u) { return -pixel(v, u); };
    if (!is_hot<float>(s, step, pixel) && !is_hot<float>(s, step, negative)) return false;
    mean = mean_of_neighbours(pixel);
    return true;
}

// What a block's columns have so far.
struct ColumnSums {
    Sums mean = 0.0f, both = 0.0f, along_x = 0.0f, along_y = 0.0f, lowest = INFINITE, counted = 0.0f;
    Doubles cube = 0.0;  // which may be beyond single precision
};

// A row of blocks, with the pixels that its detail is made of.
class RowOfBlocks {
  public:
    static long long bytes_needed(const DetectionSettings& s) {
        return (Blocks(s).columns + 1) * static_cast<long long>(sizeof(ColumnSums)) +
               (3 * ROWS + 5) * stride(s) * static_cast<long long>(sizeof(float));
    }
    RowOfBlocks(const DetectionSettings& settings, const FrameRows& pixels, HotPixel hot, long long row, void* memory)
        : s(settings), frame(pixels), hot_pixel(hot), blocks(settings), length(stride(settings)),
          top(blocks.margin + row * BLOCK - REACH),
          sums(static_cast<ColumnSums*>(__builtin_align_up(memory, alignof(ColumnSums)))),
          raw(reinterpret_cast<float*>(sums + blocks.columns) + length + PADDING + REACH),
          clean(raw + (ROWS + 1) * length), lost(clean + ROWS * length), scratch(lost + ROWS * length) {}

    void measure(BlockNoise* table) {
        bool any_bad = false;
        for (int i = -1; i <= ROWS; ++i) any_bad |= load(i);
        __builtin_memcpy(clean - PADDING, raw - PADDING, ROWS * length * sizeof(float));
        if (any_bad) fill_bad_pixels();
        remove_hot_pixels();
        for (long long k = 0; k < blocks.columns; ++k) sums[k] = ColumnSums();
        for (int i = 0; i < BLOCK; ++i)
            if (any_bad) add_row<true>(i);
            else add_row<false>(i);
        for (long long k = 0; k < blocks.columns; ++k) table[k] = block_of(sums[k]);
    }

  private:
    const DetectionSettings& s;
    const FrameRows& frame;
    HotPixel hot_pixel;
    Blocks blocks;
    long long length, top;
    ColumnSums* sums;
    float *raw, *clean, *lost, *scratch;

    static long long stride(const DetectionSettings& s) { return round_up(s.width, BLOCK) + 2 * PADDING + BLOCK; }
    long long first_column(long long k) const { return blocks.margin + k * BLOCK; }

    BlockNoise block_of(const ColumnSums& own) const {
        const double pixels = sum(own.counted);
        constexpr double NONE = double(NOT_A_NUMBER);
        if (pixels < LEAST_COUNTED) return {NONE, NONE, NONE, NONE, NONE, NONE, NONE, NONE};
        double lowest = double(INFINITE), cube = 0.0;
        for (int i = 0; i < BLOCK; ++i) lowest = lower_of(lowest, double(own.lowest.v[i])), cube += own.cube[i];
        const double mean = sum(own.mean) / pixels, both = sum(own.both) / pixels;
        double spread = 0.0, rise = 0.0, columns = 0.0;
        for (int i = 0; i < BLOCK; ++i) columns += own.counted.v[i] > 0.0f;
        for (int i = 0; i < BLOCK; ++i) {
            const double count = double(own.counted.v[i]);
            if (count == 0.0) continue;
            const double brighter = double(own.mean.v[i]) / count - mean, weight = count / columns;
            spread += weight * brighter * brighter;
            rise += weight * brighter * (double(own.both.v[i]) / count - both);
        }
        return {mean + frame.level,
                both,
                sum(own.along_x) / pixels,
                sum(own.along_y) / pixels,
                cube / (pixels * CUBE_BESIDE_NEIGHBOURS),
                lowest + frame.level,
                spread,
                rise};
    }

    // Whether there are bad pixels.
    bool load(int i) {
        float* row = raw + i * length;
        const bool any_bad = frame.copy(mirrored(top + i, s.height) * s.width, s.width, NOT_A_NUMBER, row);
        for (long long x = 1; x <= BESIDE; ++x) {
            row[-x] = row[mirrored(-x, s.width)];
            row[s.width - 1 + x] = row[mirrored(s.width - 1 + x, s.width)];
        }
        return any_bad;
    }

    // Neighbours stand for bad pixels that lie alone; `lost` marks where any were.
    void fill_bad_pixels() {
        for (int i = 0; i < ROWS; ++i)
            for (long long x = -REACH; x < s.width + REACH; ++x) {
                const long long place = i * length + x;
                lost[place] = is_good(raw[place]) ? 0.0f : 1.0f;
                if (lost[place] == 0.0f) continue;
                float total = 0.0f;
                int good = 0;
                for (int v = -1; v <= 1; ++v)
                    for (int u = -1; u <= 1; ++u) {
                        const float pixel = raw[place + v * length + u];
                        if (is_good(pixel)) total += pixel, ++good;
                    }
                if (good >= LEAST_NEIGHBOURS) clean[place] = total / static_cast<float>(good);
            }
    }

    static SPOTFIT_INLINE Sums three(const float* row) {
        return read<Sums>(row - 1) + read<Sums>(row) + read<Sums>(row + 1);
    }
    // A pixel less the mean of its neighbours, from the sum of all nine.
    static SPOTFIT_INLINE Sums beside_neighbours(Sums pixel, Sums nine) {
        return pixel - (nine - pixel) * Sums(0.125f);
    }

    // Of all rows, at each column: the sum of squared differences from the mean of the neighbours, and
    // by how much a pixel is above the four nearest, or below them, at most.
    void look_at_columns(float* scatter, float* highest) const {
        for (long long x = -REACH; x < s.width + REACH; x += BLOCK) {
            const float* here = raw + x;
            Sums above = three(here - length), middle = three(here);
            Sums squares = 0.0f, known = 0.0f, top_step = -INFINITE;
            for (int i = 0; i < ROWS; ++i, here += length) {
                const Sums below = three(here + length), pixel = read<Sums>(here);
                const Sums step = beside_neighbours(pixel, above + middle + below);
                const auto good = is_good(step);
                squares += select(good, step * step, Sums(0.0f));
                known += select(good, Sums(1.0f), Sums(0.0f));
                top_step = select(good, higher_of(beyond_nearest(here), top_step), top_step);
                above = middle, middle = below;
            }
            // Of a pixel; less than none where most are bad.
            write(scatter + x, select(known >= Sums(0.5f * ROWS), squares / known, Sums(-1.0f)));
            write(highest + x, top_step);
        }
    }
    // What a block's pixels scatter by: without those that stand out, and with them; infinite where it is not known.
    struct Scatter { float calm, mean; };

    Scatter scatter_of(const float* columns) const {
        float known[ROWS], total = 0.0f;
        int count = 0;
        for (int i = 0; i < ROWS; ++i) {
            if (!(columns[i] >= 0.0f)) continue;
            int place = count++;
            for (; place > 0 && known[place - 1] > columns[i]; --place) known[place] = known[place - 1];
            known[place] = columns[i], total += columns[i];
        }
        if (count == 0) return {INFINITE, INFINITE};
        const float calm = known[static_cast<int>(CALM * count)] / static_cast<float>(CALM_OVER_MEAN);
        return {calm, total / static_cast<float>(count)};
    }
    SPOTFIT_INLINE Sums beyond_nearest(const float* here) const {
        const auto at = [&](long long by) SPOTFIT_INLINE_LAMBDA { return read<Sums>(here + by); };
        const Sums left = at(-1), right = at(1), above = at(-length), below = at(length);
        const Sums highest = higher_of(higher_of(left, right), higher_of(above, below));
        const Sums lowest = lower_of(lower_of(left, right), lower_of(above, below));
        return higher_of(at(0) - highest, lowest - at(0));
    }

    void remove_hot_pixels() {
        float *scatter = scratch + length, *highest = scratch;
        look_at_columns(scatter, highest);
        for (long long k = 0; k < blocks.columns; ++k) {
            const long long first = first_column(k);
            const Scatter own = scatter_of(scatter + first - REACH);
            const long long begin = k ? first : first - REACH;
            const long long end = first + BLOCK + (k + 1 == blocks.columns ? REACH : 0);
            const float calm = least_step(own.calm), usual = least_step(own.mean);
            const bool is_sparse =
                look_for_hot(begin, end, highest, calm, false) * PIXELS_TO_A_HOT_ONE > (end - begin) * ROWS;
            look_for_hot(begin, end, highest, is_sparse ? usual : calm, true);
        }
    }
    float least_step(float variance) const {
        const float least = frame.may_be_bad ? 0.0f : OF_ROUNDING;
        return HOT_IN_NOISE * square_root(higher_of(variance * (8.0f / 9.0f), least));
    }

    // Counts, and removes if asked for, the hot pixels of some columns; dark ones, too.
    long long look_for_hot(long long begin, long long end, const float* highest, float step, bool remove) {
        long long count = 0;
        for (long long x = begin; x < end; ++x)
            for (int i = 0; i < ROWS && highest[x] > step; ++i) {
                float mean;
                if (!hot_pixel(s, frame, top + i, x, step, mean)) continue;
                if (remove) clean[i * length + x] = mean;
                ++count;
            }
        return count;
    }

    // Which places of a row count, as no pixel near them is bad.
    auto counted_at(int i, long long x) const {
        Sums near = 0.0f;
        for (int v = -NEAR_BAD; v <= NEAR_BAD; ++v)
            for (int u = -NEAR_BAD; u <= NEAR_BAD; ++u) near += read<Sums>(lost + (i + REACH + v) * length + x + u);
        return near == Sums(0.0f);
    }

    // Adds what a row of pixels has to its blocks.
    template <bool ANY_BAD> void add_row(int i) {
        float *coarse = scratch, *fine = scratch + length;
        for (long long x = -REACH; x < s.width + REACH; x += BLOCK) {
            const EvenAndOdd<Sums> along_y(
                [&](int t) SPOTFIT_INLINE_LAMBDA { return read<Sums>(clean + (i + REACH + t) * length + x); });
            write(coarse + x, along_y.coarse());
            write(fine + x, along_y.fine());
        }
        for (long long k = 0; k < blocks.columns; ++k) {
            const long long x = first_column(k);
            const auto along_x = [&](const float* row) SPOTFIT_INLINE_LAMBDA {
                return EvenAndOdd<Sums>([&](int t) SPOTFIT_INLINE_LAMBDA { return read<Sums>(row + x + t); });
            };
            const EvenAndOdd<Sums> of_coarse = along_x(coarse), of_fine = along_x(fine);
            const float* here = clean + (i + REACH) * length + x;
            ColumnSums& own = sums[k];
            const Sums pixel = read<Sums>(here), nine = three(here - length) + three(here) + three(here + length);
            Sums steps = beside_neighbours(pixel, nine), mean = pixel, lowest = pixel, counted = 1.0f;
            Sums both = of_fine.fine(), by_x = of_coarse.fine(), by_y = of_fine.coarse();
            if constexpr (ANY_BAD) {
                const auto counts = counted_at(i, x) & is_good(both + by_x + by_y + steps);
                const auto where = [&](Sums value, float instead)
                                       SPOTFIT_INLINE_LAMBDA { return select(counts, value, Sums(instead)); };
                lowest = where(pixel, INFINITE), counted = where(counted, 0.0f), mean = where(pixel, 0.0f);
                both = where(both, 0.0f), by_x = where(by_x, 0.0f), by_y = where(by_y, 0.0f);
                steps = where(steps, 0.0f);
            }
            own.mean += mean, own.counted += counted;
            own.lowest = lower_of(own.lowest, lowest);
            own.both = multiply_add(both, both, own.both);
            own.along_x = multiply_add(by_x, by_x, own.along_x);
            own.along_y = multiply_add(by_y, by_y, own.along_y);
            const Doubles exact = __builtin_convertvector(steps.v, Doubles);
            own.cube += exact * exact * exact;
        }
    }
};

// The wide band's numbers of sampled rows over the noise of each pixel, in a part of a frame.
void sample_part(const DetectionSettings& s, const FrameRows& frame, const Rectangle& part, float* memory,
                 float* sample) {
    FilteredStrip strip(s, frame, part, memory);
    const SampledRows rows(s.height, s.row_step);
    for (long long y = strip.inner.y0; y < part.y1; ++y) {
        strip.filter_next();
        const long long i = (y - rows.first) / rows.step;
        if (y < part.y0 || y < rows.first || rows.row(i) != y) continue;
        const float *heights = strip.row(WIDE_BAND, y), *means = strip.row(BANDS, y);
        float* to = sample + i * s.width;
        for (long long x = part.x0; x < part.x1; ++x)
            to[x] = heights[x] == 0.0f ? 0.0f : heights[x] / square_root(strip.pixel_variance()(means[x]));
    }
}

}  // namespace

long long noise_bytes(const DetectionSettings& s) { return RowOfBlocks::bytes_needed(s); }

long long noise_block_count(const DetectionSettings& s, long long step) {
    const Blocks blocks(s);
    return (blocks.rows + step - 1) / step * blocks.columns;
}

void measure_noise_blocks(const DetectionSource& source, long long number, long long step, void* work,
                          BlockNoise* table) {
    with_pixel_type(source.pixel_type, [&](auto pixel) {
        using T = typename decltype(pixel)::Type;
        const SubnormalsAreZero here;
        const DetectionSettings& s = *source.settings;
        const FrameRows frame(frame_of<T>(source, number));
        const Blocks blocks(s);
        for (long long row = 0; row < blocks.rows; row += step, table += blocks.columns)
            RowOfBlocks(s, frame, hot_pixel<T>, row, work).measure(table);
    });
}

long long sample_size(const DetectionSettings& s) { return SampledRows(s.height, s.row_step).count * s.width; }

void sample_ratios(const DetectionSource& source, long long number, long long step, void* work, float* sample) {
    with_pixel_type(source.pixel_type, [&](auto pixel) {
        using T = typename decltype(pixel)::Type;
        const SubnormalsAreZero here;
        const DetectionSettings& s = *source.settings;
        const FrameRows frame(frame_of<T>(source, number));
        const Strips strips(s);
        for (long long i = 0; i < strips.count; ++i)
            if ((number * strips.count + i) % step == 0)
                sample_part(s, frame, strips[i], static_cast<float*>(work), sample);
    });
}

double clipped_deviation(const float* sample, long long size) {
    const SubnormalsAreZero here;
    // Number of values that are added up in single precision.
    constexpr long long AT_ONCE = 1 << 12;
    const auto at = [&](long long i) {
        Sums values(0.0f);
        __builtin_memcpy(&values, sample + i, least(BLOCK, size - i) * sizeof(float));
        return values;
    };
    Sums highest(0.0f);
    for (long long i = 0; i < size; i += BLOCK) highest = higher_of(absolute(at(i)), highest);
    float deviation = 0.0f;
    for (int k = 0; k < BLOCK; ++k) deviation = higher_of(deviation, float(highest.v[k]));
    bool goes_on = deviation > 0.0f;
    for (int step = 0; step < MAX_CLIPS && goes_on; ++step) {
        double squares = 0.0, inside = 0.0;
        for (long long first = 0; first < size; first += AT_ONCE) {
            ClippedSum<Sums> sums;
            for (long long i = first; i < least(first + AT_ONCE, size); i += BLOCK)
                sums.add(at(i), Sums(1.0f / deviation));
            squares += sum(sums.squares), inside += sum(sums.inside);
        }
        goes_on = clip(squares, inside, deviation);
    }
    return double(deviation);
}

}  // namespace spotfit::SPOTFIT_ISA
