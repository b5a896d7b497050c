// The noise of an image on a CPU: the blocks of a frame, a row of them at a time.
#include "../../noise.h"

#include "../detection_frame.h"
#include "../filtered_strip.h"

namespace spotfit::SPOTFIT_ISA {
namespace {

// So many numbers on every machine, that all of them round alike.
using Sums = Lanes<BLOCK>;

double sum(Sums values) {
    double total = 0.0;
    for (int k = 0; k < BLOCK; ++k) total += double(values.v[k]);
    return total;
}

constexpr int ROWS = BLOCK + 2 * REACH;
// Before the first column of a row and behind the last: pixels that are mirrored.
constexpr int BESIDE = REACH + 1, PADDING = 16;

// A row of blocks, with the pixels that its detail is made of.
template <class T> class RowOfBlocks {
  public:
    static long long floats_needed(const DetectionSettings& s) { return (2 * ROWS + 2) * stride(s) + 3 * stride(s); }
    RowOfBlocks(const DetectionSettings& settings, const Frame<T>& pixels, long long row, float* memory)
        : s(settings), frame(pixels), blocks(settings), length(stride(settings)),
          top(blocks.margin + row * BLOCK - REACH), raw(memory + length + PADDING), clean(raw + (ROWS + 1) * length),
          scratch(clean + ROWS * length) {}

    void measure(BlockNoise* table) {
        for (int i = -1; i <= ROWS; ++i) load(i);
        __builtin_memcpy(clean - PADDING, raw - PADDING, ROWS * length * sizeof(float));
        remove_lone_pixels();
        for (long long k = 0; k < blocks.columns; ++k) table[k] = {0.0, 0.0, 0.0, 0.0, 0.0, double(INFINITE)};
        for (int i = 0; i < BLOCK; ++i) add_row(i, table);
        constexpr double PIXELS = BLOCK * BLOCK;
        for (long long k = 0; k < blocks.columns; ++k) {
            const BlockNoise sums = table[k];
            table[k] = {sums.mean / PIXELS + double(frame.level),
                        sums.both / PIXELS,
                        sums.along_x / PIXELS,
                        sums.along_y / PIXELS,
                        sums.cube / (PIXELS * CUBE_BESIDE_NEIGHBOURS),
                        sums.lowest + double(frame.level)};
        }
    }

  private:
    const DetectionSettings& s;
    const Frame<T>& frame;
    Blocks blocks;
    long long length, top;
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

    // Pixels less the mean of their neighbours.
    SPOTFIT_INLINE Sums beside_neighbours(const float* here) const {
        const auto three = [](const float* row) SPOTFIT_INLINE_LAMBDA {
            return read<Sums>(row - 1) + read<Sums>(row) + read<Sums>(row + 1);
        };
        const Sums pixel = read<Sums>(here);
        const Sums nine = three(here - length) + three(here) + three(here + length);
        return pixel - (nine - pixel) * Sums(0.125f);
    }

    // Sums over all rows of squared differences from the mean of the neighbours, at each column.
    void sum_scatter(float* sums) const {
        for (long long x = -REACH; x < s.width + REACH; x += BLOCK) {
            Sums sum(0.0f);
            for (int i = 0; i < ROWS; ++i) {
                const Sums step = beside_neighbours(raw + i * length + x);
                sum = multiply_add(step, step, sum);
            }
            write(sums + x, sum);
        }
    }

    void remove_lone_pixels() {
        float* sums = scratch + length;
        sum_scatter(sums);
        for (long long k = 0; k < blocks.columns; ++k) {
            const long long first = first_column(k);
            double scatter = 0.0;
            for (long long x = first - REACH; x < first + BLOCK + REACH; ++x) scatter += sums[x];
            const float variance = float(scatter * (8.0 / 9.0) / (ROWS * ROWS));
            const float least_step = LONE_IN_NOISE * square_root(variance);
            const long long begin = k ? first : first - REACH;
            const long long end = first + BLOCK + (k + 1 == blocks.columns ? REACH : 0);
            for (int i = 0; i < ROWS; ++i)
                for (long long x = begin; x < end; x += BLOCK) remove_in(i, x, least(end - x, BLOCK), least_step);
        }
    }
    void remove_in(int i, long long first, long long columns, float least_step) {
        const float* here = raw + i * length + first;
        const auto at = [&](long long by) SPOTFIT_INLINE_LAMBDA { return read<Sums>(here + by); };
        const Sums beside = higher_of(higher_of(at(-1), at(1)), higher_of(at(-length), at(length)));
        const MaskOf<Sums> high = at(0) - beside > Sums(least_step);
        if (!any(high)) return;
        for (long long x = first; x < first + columns; ++x) {
            if (!high.v[x - first]) continue;
            const auto pixel = [&](long long v, long long u) {
                return frame.with_bad(mirrored(top + i + v, s.height) * s.width + mirrored(x + u, s.width));
            };
            if (is_lone<float>(s, least_step, pixel)) clean[i * length + x] = mean_of_neighbours(pixel);
        }
    }

    // Adds what a row of pixels has to its blocks.
    void add_row(int i, BlockNoise* table) {
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
            const Sums step = beside_neighbours(here);
            table[k].mean += sum(read<Sums>(here));
            for (int i = 0; i < BLOCK; ++i) {
                const double own = double(step.v[i]);  // whose cube may be beyond single precision
                table[k].cube += own * own * own;
            }
            for (int i = 0; i < BLOCK; ++i) table[k].lowest = lower_of(table[k].lowest, double(here[i]));
            table[k].both += sum(square(of_fine.fine()));
            table[k].along_x += sum(square(of_coarse.fine()));
            table[k].along_y += sum(square(of_fine.coarse()));
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

long long noise_bytes(const DetectionSettings& s) {
    return RowOfBlocks<float>::floats_needed(s) * static_cast<long long>(sizeof(float));
}

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
            RowOfBlocks<T>(s, frame, row, static_cast<float*>(work)).measure(table);
    });
}

long long sample_size(const DetectionSettings& s) { return SampledRows(s.height, s.row_step).count * s.width; }

void sample_ratios(const DetectionSource& source, long long number, void* work, float* sample) {
    with_pixel_type(source.pixel_type, [&](auto pixel) {
        using T = typename decltype(pixel)::Type;
        const SubnormalsAreZero here;
        const DetectionSettings& s = *source.settings;
        const Frame<T> frame = frame_of<T>(source, number);
        const Strips strips(s);
        for (long long i = 0; i < strips.count; ++i)
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
