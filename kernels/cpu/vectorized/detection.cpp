// Detection on a CPU: frames tile by tile.
#include "../detection_frame.h"
#include "../filtered_tile.h"
#include "tables.h"

namespace spotfit::SPOTFIT_ISA {
namespace {

// ---- The noise ----

// Of the sums for the noise: so many on every machine, that all of them round alike.
using Sums = Lanes<16>;
constexpr int SUMS = 16;
static_assert(SUMS == SAMPLE_PADDING);

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

// The same over the noise of each pixel.
template <class T>
void sample_ratios(const DetectionSettings& s, const Frame<T>& frame, bool bad, Tile& tile, const Rectangle& part,
                   float* sample) {
    const SampledRows rows(s.height, s.row_step, 0);
    const PixelVariance variance(s, double(frame.level));
    for (long long i = rows.before(part.y0); i < rows.before(part.y1); ++i) {
        float *row = tile.row(0), *means = tile.row(1);
        if (bad) tile.filter<true>(rows.row(i), row, means);
        else tile.filter<false>(rows.row(i), row, means);
        for (long long x = part.x0; x < part.x1; ++x) {
            const long long place = Tile::BEFORE + x - tile.inner.x0;
            sample[i * s.width + x] = row[place] == 0.0f ? 0.0f : row[place] / square_root(variance(means[place]));
        }
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

// So many numbers are added up in single precision.
constexpr long long SUMMED_AT_ONCE = 1 << 12;

// The sum over a whole sample, whose last vector is filled up with zeros, which do not count.
ClippedTotal clipped_total(const float* sample, long long size, float deviation) {
    const Sums inverse(1.0f / deviation);
    double squares = 0.0;
    long long inside = 0;
    for (long long first = 0; first < size; first += SUMMED_AT_ONCE) {
        ClippedSum<Sums> sum;
        for (long long i = first; i < least(first + SUMMED_AT_ONCE, size); i += SUMS)
            sum.add(read<Sums>(sample + i), inverse);
        for (int k = 0; k < SUMS; ++k) squares += double(sum.squares.v[k]);
        inside += __builtin_reduce_add(sum.inside);
    }
    return {float(squares), inside};
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
                const float height = heights.v[k];
                const Neighbours pixels = neighbours(frame, s, y, column);
                const double own_score = score(s, height, noise, y, column);
                if (!stands_out(s, height, own_score, pixels)) continue;
                found[count++] = {int(number),     int(y), int(column),
                                  is_flat(pixels), height, float(lower_of(own_score, double(HIGHEST)))};
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
            for (long long i = 0; i < tiles.count; ++i) sample_detail(s, frame, by_y, by_x, tiles[i], rows, details);
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

// Of a whole frame.
void sample_ratios(const DetectionSource& source, long long number, void* work, float* sample) {
    with_pixel_type(source.pixel_type, [&](auto pixel) {
        using T = typename decltype(pixel)::Type;
        const SubnormalsAreZero here;
        Detector<T> detector(source, work, false);
        const Frame<T> frame = frame_of<T>(source, number);
        const bool bad = has_bad_pixels(frame, detector.s.height * detector.s.width);
        for (long long i = 0; i < detector.tiles.count; ++i) {
            detector.tile.load(frame, number, detector.tiles[i]);
            sample_ratios(detector.s, frame, bad, detector.tile, detector.tiles[i], sample);
        }
    });
}

double deviation(float* sample, long long size) {
    const SubnormalsAreZero here;
    return clipped_deviation(sample, size);
}

double noise(const DetectionSettings& s, const double* deviations) {
    return noise_of(deviations[0], s.gain, [&](int by_y, int by_x) {
        return deviations[by_y == 2 ? 3 : by_x == 2 ? 2 : 1];
    });
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
    work_bytes,  tile_count,        most_maxima,          detect,
    has_bad,     sample_length,     sample_tiles,         deviation,
    noise,       find_in_tiles,     merge_plateaus,       drop_neighbours,
    noise_bytes, noise_block_count, measure_noise_blocks, sample_ratios,
};

}  // namespace spotfit::SPOTFIT_ISA
