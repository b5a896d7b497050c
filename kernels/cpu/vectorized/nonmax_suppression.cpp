// Which maxima are one spot: those on one plateau, and those too close to each other.
#include "../../texture.h"
#include "../detection_frame.h"
#include "../instruction_set.h"

namespace spotfit::SPOTFIT_ISA {
namespace {

// Walks over equal pixels of a frame or a volume that touch by their sides, the nearest first.
template <class T> class Flood {
  public:
    Flood(const DetectionSettings& settings, const Frame<T>& pixels, unsigned long long* marks, long long* memory,
          long long length)
        : s(settings), frame(pixels), visited(marks), queue(memory), room(length) {}

    // Calls see(z, y, x) for each until it returns false; marks them, or takes the marks away
    // again. False where the queue is too short for them.
    template <class See> bool walk(long long start, bool mark, See see) {
        long long first = 0, last = 0;
        const auto meet = [&](long long place) {
            flip(place);
            queue[last++ % room] = place;
            return last - first < room;
        };
        if (!meet(start)) return false;
        while (first < last) {
            const long long place = queue[first++ % room], row = place / s.width, x = place % s.width;
            const long long z = row / s.height, y = row % s.height;
            if (!see(z, y, x)) return true;
            const float value = frame[place];
            const auto visit = [&](bool inside, long long to) {
                if (!inside || is_marked(to) == mark) return true;
                return mark && frame[to] != value ? true : meet(to);
            };
            const long long plane = s.height * s.width;
            if (!(visit(y > 0, place - s.width) && visit(x > 0, place - 1) && visit(x + 1 < s.width, place + 1) &&
                  visit(y + 1 < s.height, place + s.width) && visit(z > 0, place - plane) &&
                  visit(z + 1 < s.depth, place + plane)))
                return false;
        }
        return true;
    }
    bool is_marked(long long place) const { return visited[place / 64] >> place % 64 & 1; }

  private:
    const DetectionSettings& s;
    const Frame<T>& frame;
    unsigned long long* visited;
    long long *queue, room;

    void flip(long long place) { visited[place / 64] ^= 1ull << place % 64; }
};

// Maxima in the order of frame, row and column, and where the rows of these frames begin.
class Rows {
  public:
    const Maximum* maxima;

    // Needs memory for `height` numbers for each frame from the first to the last, and one more.
    Rows(const Maximum* all, long long count, long long rows, long long* memory)
        : maxima(all), height(rows), starts(memory), first_frame(count ? all[0].frame : 0),
          last_frame(count ? all[count - 1].frame : -1) {
        long long next = 0;
        for (long long i = 0; i < count; ++i)
            for (const long long own = index(all[i].frame, all[i].y); next <= own; ++next) starts[next] = i;
        const long long end = count ? index(last_frame, height) : 0;
        for (; next <= end; ++next) starts[next] = count;
    }
    long long begin(int frame, long long y) const { return starts[index(frame, y)]; }
    long long end(int frame, long long y) const { return starts[index(frame, y) + 1]; }
    bool has(int frame) const { return first_frame <= frame && frame <= last_frame; }

  private:
    long long height;
    long long* starts;
    long long first_frame, last_frame;

    long long index(long long frame, long long y) const { return (frame - first_frame) * height + y; }
};

// Whether a pixel has the largest number of its type, at which a camera ends.
template <class T> bool is_largest(T pixel) {
    if constexpr (MAY_BE_BAD<T>) return false;
    else return static_cast<T>(pixel + 1) < pixel;
}

// Whether spots may be on the flat area of a pixel. Large ones that are no brighter than the level have none: they
// are what a mosaic is padded with, or what a threshold has left.
template <class T> class MayHaveSpots {
  public:
    MayHaveSpots(const Frame<T>& frame, long long place)
        : bright(frame[place] > 0.0f || is_largest(frame.pixels[place])) {}
    bool operator()(long long pixels) const { return bright || pixels <= LARGE; }

  private:
    static constexpr long long LARGE = 1 << 12;
    bool bright;
};

// All maxima of a plateau become one, on the pixel that is nearest to the middle. Where no spots can be, those that
// are flat themselves become none, and others stay. Returns how many they became, or -1 where the queue is too short.
template <class T>
int merge_plateau(Flood<T>& flood, const MayHaveSpots<T>& may_have_spots, const DetectionSettings& s, const Rows& rows,
                  Maximum* maxima, long long own, Maximum& merged) {
    merged = maxima[own];
    // Counted from here, so that a frame and a part of it agree to the bit on what is nearest.
    const long long from_z = merged.frame % s.depth, from_y = merged.y, from_x = merged.x;
    const long long start = (from_z * s.height + from_y) * s.width + from_x, before = merged.frame - from_z;
    long long sum_z = 0, sum_y = 0, sum_x = 0, size = 0, lowest = from_y, highest = from_y;
    long long first = from_z, last = from_z;
    const bool done = flood.walk(start, true, [&](long long z, long long y, long long x) {
        sum_z += z - from_z, sum_y += y - from_y, sum_x += x - from_x, ++size;
        lowest = least(lowest, y), highest = most(highest, y);
        first = least(first, z), last = most(last, z);
        return true;
    });
    if (!done) return -1;
    const bool has_spots = may_have_spots(size);
    for (long long z = first; z <= last; ++z) {
        const int frame = int(before + z);
        if (!rows.has(frame)) continue;
        for (long long i = rows.begin(frame, lowest); i < rows.end(frame, highest); ++i) {
            Maximum& other = maxima[i];
            const long long place = (z * s.height + other.y) * s.width + other.x;
            if (!flood.is_marked(place) || !(has_spots || other.on_flat_area)) continue;
            merged.height = higher_of(merged.height, other.height);
            merged.score = higher_of(merged.score, other.score);
            other.on_flat_area = -1;
        }
    }
    const double mean_z = double(sum_z) / size, mean_y = double(sum_y) / size, mean_x = double(sum_x) / size;
    double nearest = HIGHEST;
    const bool unmarked = flood.walk(start, false, [&](long long z, long long y, long long x) {
        const double along_z = square((z - from_z - mean_z) / s.planes_per_pixel);
        const double distance = square(y - from_y - mean_y) + square(x - from_x - mean_x) + along_z;
        if (distance < nearest)
            nearest = distance, merged.frame = int(before + z), merged.y = int(y), merged.x = int(x);
        return true;
    });
    return unmarked ? has_spots : -1;
}

}  // namespace

// The band-pass of a saturated spot is highest along the edge of what is saturated. The result is
// in no order.
long long merge_plateaus(const DetectionSource& source, Maximum* maxima, long long count, long long* row_starts,
                         unsigned long long* visited, long long* queue, long long room, Maximum* merged) {
    return with_pixel_type(source.pixel_type, [&](auto pixel) -> long long {
        using T = typename decltype(pixel)::Type;
        const SubnormalsAreZero here;
        const DetectionSettings& s = *source.settings;
        const Rows rows(maxima, count, s.height, row_starts);
        long long left = 0;
        for (long long i = 0; i < count; ++i) {
            if (maxima[i].on_flat_area != 1) continue;
            const long long z = maxima[i].frame % s.depth;
            const Frame<T> frame = frame_of<T>(source, maxima[i].frame - z);
            Flood<T> flood(s, frame, visited, queue, room);
            const MayHaveSpots<T> may_have_spots(frame, (z * s.height + maxima[i].y) * s.width + maxima[i].x);
            Maximum one;
            const int ones = merge_plateau(flood, may_have_spots, s, rows, maxima, i, one);
            if (ones < 0) return -1;
            if (ones) merged[left++] = one;
        }
        for (long long i = 0; i < count; ++i)
            if (maxima[i].on_flat_area == 0) merged[left++] = maxima[i];
        return left;
    });
}

// Puts maxima of a frame, some after the other row by row in parts of some columns, the part farther left
// first, in the order of row and column; of those on one pixel the first stays first.
void order_maxima(const Maximum* maxima, long long count, long long* row_starts, long long height, Maximum* ordered) {
    for (long long y = 0; y <= height; ++y) row_starts[y] = 0;
    for (long long i = 0; i < count; ++i) ++row_starts[maxima[i].y + 1];
    for (long long y = 0; y < height; ++y) row_starts[y + 1] += row_starts[y];
    for (long long i = 0; i < count; ++i) ordered[row_starts[maxima[i].y]++] = maxima[i];
    // Within a row few have to move, and not far: the bands take turns.
    for (long long i = 1; i < count; ++i) {
        const Maximum own = ordered[i];
        long long place = i;
        for (; place > 0 && ordered[place - 1].y == own.y && ordered[place - 1].x > own.x; --place)
            ordered[place] = ordered[place - 1];
        if (place < i) ordered[place] = own;
    }
}

namespace {

// Of a wide maximum: how many narrow ones belong to it, or the only one; of others: the wide one.
enum Partner { NONE = -1, SEVERAL = -2, LEFT_OUT = -3 };

}  // namespace

// Does what join_with_narrow does for each, but looks for the nearest wide one of each narrow one once.
void join_bands(const DetectionSettings& s, Maximum* maxima, long long count, long long* row_starts, int* partners,
                int others) {
    const Rows rows(maxima, count, s.height, row_starts);
    const auto is_narrow = [&](long long i) SPOTFIT_INLINE_LAMBDA { return maxima[i].band == NARROW_BAND; };
    for (long long i = 0; i < count; ++i) partners[i] = NONE;
    const Space space = {s.height, s.depth, s.planes_per_pixel};
    each_close_pair(rows, space, count, s.reach, is_narrow, [&](long long j, long long i) SPOTFIT_INLINE_LAMBDA {
        const Maximum &own = maxima[j], &wide = maxima[i];
        if (wide.band != WIDE_BAND) return;
        if (partners[j] == NONE || space.square_distance(own, wide) < space.square_distance(own, maxima[partners[j]]))
            partners[j] = static_cast<int>(i);
    });
    for (long long j = 0; j < count; ++j) {
        if (!is_narrow(j) || partners[j] == NONE) continue;
        const int i = partners[j];
        if (is_faint(maxima[i], maxima[j])) partners[j] = LEFT_OUT;
        else partners[i] = partners[i] == NONE ? static_cast<int>(j) : SEVERAL;
    }
    for (long long i = 0; i < count; ++i) {
        if (is_narrow(i) || partners[i] == NONE) continue;
        const int j = partners[i];
        if (j != SEVERAL && wide_tells_place(s, maxima[i], maxima[j])) partners[j] = LEFT_OUT;
        else partners[i] = LEFT_OUT;
    }
    for (long long i = 0; i < count; ++i)
        maxima[i].band = maxima[i].band == DARK_SPOT ? DARK : partners[i] == LEFT_OUT ? DROPPED : others;
}

namespace {

// Keeps maxima for which keep(maximum) is true, in their order; returns how many.
template <class Keep> long long kept(Maximum* maxima, long long count, Keep keep) {
    long long left = 0;
    for (long long i = 0; i < count; ++i)
        if (keep(maxima[i])) maxima[left++] = maxima[i];
    return left;
}

// Sorts numbers, in whose upper half the maxima's heights are, from the highest to the lowest; of equal ones
// the first stays first. Heights are positive: as whole numbers they have the same order.
void sort_by_height(unsigned long long* numbers, unsigned long long* other, long long count) {
    constexpr int BITS = 8, HALF = 32;
    for (int shift = HALF; shift < 2 * HALF; shift += BITS) {
        const auto digit = [&](long long i) { return ~numbers[i] >> shift & ((1u << BITS) - 1); };
        long long starts[(1 << BITS) + 1] = {};
        for (long long i = 0; i < count; ++i) ++starts[digit(i) + 1];
        for (int d = 0; d < 1 << BITS; ++d) starts[d + 1] += starts[d];
        for (long long i = 0; i < count; ++i) other[starts[digit(i)]++] = numbers[i];
        unsigned long long* const sorted = other;
        other = numbers, numbers = sorted;
    }
}

Space space_of(const SpotChoice& c) { return {c.height, c.depth, c.planes_per_pixel}; }

// Of crowded maxima, takes the mark from those without another one too close, where that is not known yet.
void look_for_neighbours(const SpotChoice& c, const Rows& rows, Maximum* maxima, long long count) {
    for (long long i = 0; i < count; ++i)
        if (maxima[i].band != CROWDED) return;
    unsigned char* const crowded = reinterpret_cast<unsigned char*>(c.order);
    for (long long i = 0; i < count; ++i) crowded[i] = 0;
    const auto all = [](long long) { return true; };
    each_close_pair(rows, space_of(c), count, c.distance, all, [&](long long j, long long i) { crowded[j] |= j != i; });
    for (long long i = 0; i < count; ++i) maxima[i].band = crowded[i] ? CROWDED : ALONE;
}

// Marks those of crowded maxima as dropped that are too close to a higher one that stays. All others have room.
void drop_neighbours(const SpotChoice& c, Maximum* maxima, long long count) {
    bool any = false;
    for (long long i = 0; i < count; ++i) any |= maxima[i].band == CROWDED;
    if (!any) return;
    const Rows rows(maxima, count, c.height, c.row_starts);
    look_for_neighbours(c, rows, maxima, count);
    long long crowded = 0;
    for (long long i = 0; i < count; ++i)
        if (maxima[i].band == CROWDED)
            c.order[crowded++] = static_cast<unsigned long long>(__builtin_bit_cast(unsigned, maxima[i].height)) << 32 |
                                 static_cast<unsigned long long>(i);
    sort_by_height(c.order, c.order + crowded, crowded);
    for (long long k = 0; k < crowded; ++k) {
        const long long own = static_cast<long long>(c.order[k] & 0xFFFFFFFF);
        if (maxima[own].band == DROPPED) continue;
        each_close<long long>(rows, space_of(c), maxima[own], c.distance, [&](long long j) {
            if (j != own) maxima[j].band = DROPPED;
        });
    }
}

}  // namespace

long long choose_spots(const SpotChoice& c, Maximum* maxima, long long count) {
    bool flat = false, any_dark = false;
    const auto stays = [](const Maximum& m) { return m.band != DROPPED; };
    count = kept(maxima, count, stays);
    for (long long i = 0; i < count; ++i) any_dark |= maxima[i].band == DARK;
    if (any_dark) {
        drop_texture(c, Rows(maxima, count, c.height, c.row_starts), maxima, count,
                     reinterpret_cast<unsigned char*>(c.order), c.order + count);
        count = kept(maxima, count, stays);
    }
    for (long long i = 0; i < count; ++i) flat |= maxima[i].on_flat_area != 0;
    if (flat && !c.merged) return -1 - count;
    if (c.masks != nullptr)
        count = kept(maxima, count, [&](const Maximum& m) {
            return c.masks[(m.frame % c.mask_count * c.height + m.y) * c.width + m.x] != 0;
        });
    drop_neighbours(c, maxima, count);
    long long left = 0;
    for (long long i = 0; i < count; ++i) {
        const Maximum& m = maxima[i];
        if (m.band == DROPPED) continue;
        c.frame[left] = m.frame, c.y[left] = m.y, c.x[left] = m.x;
        c.score[left] = m.score, c.height_in_band[left++] = m.height;
    }
    return left;
}

}  // namespace spotfit::SPOTFIT_ISA
