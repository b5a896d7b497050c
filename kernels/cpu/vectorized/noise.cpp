// The noise of an image on a CPU: the blocks of a frame, a row of them at a time.
#include "../../noise.h"

#include "../detection_frame.h"
#include "../filtered_strip.h"

namespace spotfit::SPOTFIT_ISA {
namespace {

// So many numbers on every machine, that all of them round alike.
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

// What a block's columns have so far.
struct ColumnSums {
    Sums mean = 0.0f, both = 0.0f, along_x = 0.0f, along_y = 0.0f, lowest = INFINITE;
    Doubles cube = 0.0;  // which may be beyond single precision
};

// A row of blocks, with the pixels that its detail is made of.
template <class T> class RowOfBlocks {
  public:
    static long long bytes_needed(const DetectionSettings& s) {
        return (Blocks(s).columns + 1) * static_cast<long long>(sizeof(ColumnSums)) +
               (2 * ROWS + 5) * stride(s) * static_cast<long long>(sizeof(float));
    }
    RowOfBlocks(const DetectionSettings& settings, const Frame<T>& pixels, long long row, void* memory)
        : s(settings), frame(pixels), blocks(settings), length(stride(settings)),
          top(blocks.margin + row * BLOCK - REACH),
          sums(static_cast<ColumnSums*>(__builtin_align_up(memory, alignof(ColumnSums)))),
          raw(reinterpret_cast<float*>(sums + blocks.columns) + length + PADDING + REACH),
          clean(raw + (ROWS + 1) * length), scratch(clean + ROWS * length) {}

    void measure(BlockNoise* table) {
        for (int i = -1; i <= ROWS; ++i) load(i);
        __builtin_memcpy(clean - PADDING, raw - PADDING, ROWS * length * sizeof(float));
        remove_lone_pixels();
        for (long long k = 0; k < blocks.columns; ++k) sums[k] = ColumnSums();
        for (int i = 0; i < BLOCK; ++i) add_row(i);
        constexpr double PIXELS = BLOCK * BLOCK;
        for (long long k = 0; k < blocks.columns; ++k) {
            const ColumnSums& own = sums[k];
            double lowest = double(INFINITE), cube = 0.0;
            for (int i = 0; i < BLOCK; ++i) lowest = lower_of(lowest, double(own.lowest.v[i])), cube += own.cube[i];
            const double mean = sum(own.mean) / PIXELS, both = sum(own.both) / PIXELS;
            double spread = 0.0, rise = 0.0;
            for (int i = 0; i < BLOCK; ++i) {
                const double brighter = double(own.mean.v[i]) / BLOCK - mean;
                spread += brighter * brighter;
                rise += brighter * (double(own.both.v[i]) / BLOCK - both);
            }
            table[k] = {mean + double(frame.level),
                        both,
                        sum(own.along_x) / PIXELS,
                        sum(own.along_y) / PIXELS,
                        cube / (PIXELS * CUBE_BESIDE_NEIGHBOURS),
                        lowest + double(frame.level),
                        spread,
                        rise};
        }
    }

  private:
    const DetectionSettings& s;
    const Frame<T>& frame;
    Blocks blocks;
    long long length, top;
    ColumnSums* sums;
    float *raw, *clean, *scratch;

    static long long stride(const DetectionSettings& s) { return round_up(s.width, BLOCK) + 2 * PADDING + BLOCK; }
    long long first_column(long long k) const { return blocks.margin + k * BLOCK; }

    void load(int i) {
        float* row = raw + i * length;
        copy_row(frame.pixels + mirrored(top + i, s.height) * s.width, s.width, frame.level, NOT_A_NUMBER, row);
        for (long long x = 1; x <= BESIDE; ++x) {
            row[-x] = row[mirrored(-x, s.width)];
            row[s.width - 1 + x] = row[mirrored(s.width - 1 + x, s.width)];
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
            Sums above = three(here - length), middle = three(here), squares = 0.0f, top_step = -INFINITE;
            for (int i = 0; i < ROWS; ++i, here += length) {
                const Sums below = three(here + length), pixel = read<Sums>(here);
                const Sums step = beside_neighbours(pixel, above + middle + below);
                squares = multiply_add(step, step, squares);
                top_step = higher_of(beyond_nearest(here), top_step);
                above = middle, middle = below;
            }
            write(scatter + x, squares), write(highest + x, top_step);
        }
    }
    SPOTFIT_INLINE Sums beyond_nearest(const float* here) const {
        const auto at = [&](long long by) SPOTFIT_INLINE_LAMBDA { return read<Sums>(here + by); };
        const Sums left = at(-1), right = at(1), above = at(-length), below = at(length);
        const Sums highest = higher_of(higher_of(left, right), higher_of(above, below));
        const Sums lowest = lower_of(lower_of(left, right), lower_of(above, below));
        return higher_of(at(0) - highest, lowest - at(0));
    }

    void remove_lone_pixels() {
        float *scatter = scratch + length, *highest = scratch;
        look_at_columns(scatter, highest);
        for (long long k = 0; k < blocks.columns; ++k) {
            const long long first = first_column(k);
            double squares = 0.0;
            for (long long x = first - REACH; x < first + BLOCK + REACH; ++x) squares += scatter[x];
            const float variance = float(squares * (8.0 / 9.0) / (ROWS * ROWS));
            const float least_step = LONE_IN_NOISE * square_root(variance);
            const long long begin = k ? first : first - REACH;
            const long long end = first + BLOCK + (k + 1 == blocks.columns ? REACH : 0);
            for (long long x = begin; x < end; ++x)
                if (highest[x] > least_step) remove_in(x, least_step);
        }
    }
    // Of a column; dark ones, too.
    void remove_in(long long x, float least_step) {
        for (int i = 0; i < ROWS; ++i) {
            const auto pixel = [&](long long v, long long u) {
                return frame.with_bad(mirrored(top + i + v, s.height) * s.width + mirrored(x + u, s.width));
            };
            const auto negative = [&](long long v, long long u) { return -pixel(v, u); };
            if (is_lone<float>(s, least_step, pixel) || is_lone<float>(s, least_step, negative))
                clean[i * length + x] = mean_of_neighbours(pixel);
        }
    }

    // Adds what a row of pixels has to its blocks.
    void add_row(int i) {
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
            const Sums steps = beside_neighbours(pixel, nine);
            own.mean += pixel;
            own.lowest = lower_of(own.lowest, pixel);
            own.both = multiply_add(of_fine.fine(), of_fine.fine(), own.both);
            own.along_x = multiply_add(of_coarse.fine(), of_coarse.fine(), own.along_x);
            own.along_y = multiply_add(of_fine.coarse(), of_fine.coarse(), own.along_y);
            const Doubles exact = __builtin_convertvector(steps.v, Doubles);
            own.cube += exact * exact * exact;
        }
    }
};

// The wide band's numbers of sampled rows over the noise of each pixel, in a part of a frame.
template <class T>
void sample_part(const DetectionSettings& s, const Frame<T>& frame, const Rectangle& part, float* memory,
                 float* sample) {
    FilteredStrip<T> strip(s, frame, part, memory);
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

long long noise_bytes(const DetectionSettings& s) { return RowOfBlocks<float>::bytes_needed(s); }

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
        const Frame<T> frame = frame_of<T>(source, number);
        const Blocks blocks(s);
        for (long long row = 0; row < blocks.rows; row += step, table += blocks.columns)
            RowOfBlocks<T>(s, frame, row, work).measure(table);
    });
}

long long sample_size(const DetectionSettings& s) { return SampledRows(s.height, s.row_step).count * s.width; }

void sample_ratios(const DetectionSource& source, long long number, long long step, void* work, float* sample) {
    with_pixel_type(source.pixel_type, [&](auto pixel) {
        using T = typename decltype(pixel)::Type;
        const SubnormalsAreZero here;
        const DetectionSettings& s = *source.settings;
        const Frame<T> frame = frame_of<T>(source, number);
        const Strips strips(s);
        for (long long i = 0; i < strips.count; ++i)
            if ((number * strips.count + i) % step == 0)
                sample_part(s, frame, strips[i], static_cast<float*>(work), sample);
    });
}

double clipped_deviation(const float* sample, long long size) {
    const SubnormalsAreZero here;
    // So many numbers are added up in single precision.
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
