// Which maxima are one spot: those on one plateau, and those too close to each other.
#include "../detection_frame.h"
#include "../instruction_set.h"

namespace spotfit::SPOTFIT_ISA {
namespace {

// Walks over equal pixels that touch by their sides, the nearest first.
template <class T> class Flood {
  public:
    Flood(const DetectionSettings& settings, const Frame<T>& pixels, unsigned long long* marks, long long* memory,
          long long length)
        : s(settings), frame(pixels), visited(marks), queue(memory), room(length) {}

    // Calls see(y, x) for each; marks them, or takes the marks away again. False where the queue is
    // too short for them.
    template <class See> bool walk(long long start, bool mark, See see) {
        long long first = 0, last = 0;
        const auto meet = [&](long long place) {
            flip(place);
            queue[last++ % room] = place;
            return last - first < room;
        };
        if (!meet(start)) return false;
        while (first < last) {
            const long long place = queue[first++ % room], y = place / s.width, x = place % s.width;
            see(y, x);
            const float value = frame[place];
            const auto visit = [&](bool inside, long long v, long long u) {
                if (!inside) return true;
                const long long to = v * s.width + u;
                if (is_marked(v, u) == mark) return true;
                return mark && frame[to] != value ? true : meet(to);
            };
            if (!(visit(y > 0, y - 1, x) && visit(x > 0, y, x - 1) && visit(x + 1 < s.width, y, x + 1) &&
                  visit(y + 1 < s.height, y + 1, x)))
                return false;
        }
        return true;
    }
    bool is_marked(long long y, long long x) const {
        const long long place = y * s.width + x;
        return visited[place / 64] >> place % 64 & 1;
    }

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
    long long height;

    // Needs memory for `height` numbers for each frame from the first to the last, and one more.
    Rows(const Maximum* all, long long count, long long rows, long long* memory)
        : maxima(all), height(rows), starts(memory), first_frame(count ? all[0].frame : 0) {
        long long next = 0;
        for (long long i = 0; i < count; ++i)
            for (const long long own = index(all[i].frame, all[i].y); next <= own; ++next) starts[next] = i;
        const long long end = count ? index(all[count - 1].frame, height) : 0;
        for (; next <= end; ++next) starts[next] = count;
    }
    long long begin(int frame, long long y) const { return starts[index(frame, y)]; }
    long long end(int frame, long long y) const { return starts[index(frame, y) + 1]; }
    // The first of a row that is not before a column.
    long long from(int frame, long long y, double x) const {
        long long low = begin(frame, y), count = end(frame, y) - low;
        while (count > 0) {
            const long long half = count / 2;
            const bool before = maxima[low + half].x < x;
            low = before ? low + half + 1 : low;
            count = before ? count - half - 1 : half;
        }
        return low;
    }

  private:
    long long* starts;
    long long first_frame;

    long long index(long long frame, long long y) const { return (frame - first_frame) * height + y; }
};

// All maxima of a plateau become one, on the pixel that is nearest to the middle. False where the
// queue is too short.
template <class T>
bool merge_plateau(Flood<T>& flood, long long width, const Rows& rows, Maximum* maxima, long long own,
                   Maximum& merged) {
    merged = maxima[own];
    const long long start = merged.y * width + merged.x;
    long long sum_y = 0, sum_x = 0, size = 0, lowest = merged.y, highest = merged.y;
    const bool done = flood.walk(start, true, [&](long long y, long long x) {
        sum_y += y, sum_x += x, ++size;
        lowest = least(lowest, y), highest = most(highest, y);
    });
    if (!done) return false;
    for (long long i = rows.begin(merged.frame, lowest); i < rows.end(merged.frame, highest); ++i) {
        Maximum& other = maxima[i];
        if (!flood.is_marked(other.y, other.x)) continue;
        merged.height = higher_of(merged.height, other.height);
        merged.score = higher_of(merged.score, other.score);
        other.on_flat_area = -1;
    }
    const double mean_y = double(sum_y) / size, mean_x = double(sum_x) / size;
    double nearest = HIGHEST;
    return flood.walk(start, false, [&](long long y, long long x) {
        const double distance = square(y - mean_y) + square(x - mean_x);
        if (distance < nearest) nearest = distance, merged.y = int(y), merged.x = int(x);
    });
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
            const Frame<T> frame = frame_of<T>(source, maxima[i].frame);
            Flood<T> flood(s, frame, visited, queue, room);
            if (!merge_plateau(flood, s.width, rows, maxima, i, merged[left++])) return -1;
        }
        for (long long i = 0; i < count; ++i)
            if (maxima[i].on_flat_area == 0) merged[left++] = maxima[i];
        return left;
    });
}

void drop_neighbours(const Maximum* maxima, long long count, const unsigned long long* order, long long height,
                     long long* row_starts, double distance, unsigned char* dropped) {
    const Rows rows(maxima, count, height, row_starts);
    const long long reach = static_cast<long long>(distance) + 1;
    for (long long i = 0; i < count; ++i) {
        const long long place = static_cast<long long>(order[i] & 0xFFFFFFFF);
        const Maximum& own = maxima[place];
        if (dropped[place]) continue;
        for (long long y = most(own.y - reach, 0); y <= least(own.y + reach, height - 1); ++y)
            for (long long j = rows.from(own.frame, y, own.x - distance);
                 j < rows.end(own.frame, y) && maxima[j].x <= own.x + distance; ++j)
                if (j != place && are_close(own, maxima[j], distance)) dropped[j] = 1;
    }
}

// Scores in the narrow band over those in the wide one: a spot as wide as the PSF has 0.62, one half as
// wide again 0.4, one more than twice as wide less than 0.3.
constexpr float BLURRED = 0.4f, FAINT = 0.3f;

// A maximum of the narrow band belongs to the nearest one of the wide band within reach. A wide maximum
// with none of its own stays. With one, the clearer of the two tells the place: the wide one unless the
// narrow one stands out far. With more, there are as many spots, which the wide band cannot tell apart.
void join_bands(const DetectionSettings& s, const Maximum* maxima, long long count, long long* row_starts,
                unsigned char* dropped) {
    const Rows rows(maxima, count, s.height, row_starts);
    const long long reach = static_cast<long long>(s.reach) + 1;
    const auto each_near = [&](const Maximum& own, int band, auto use) {
        for (long long y = most(own.y - reach, 0); y <= least(own.y + reach, s.height - 1); ++y)
            for (long long j = rows.from(own.frame, y, own.x - s.reach);
                 j < rows.end(own.frame, y) && maxima[j].x <= own.x + s.reach; ++j)
                if (maxima[j].band == band && are_close(own, maxima[j], s.reach)) use(j);
    };
    const auto distance = [&](const Maximum& a, const Maximum& b) {
        return square(double(a.y) - double(b.y)) + square(double(a.x) - double(b.x));
    };
    const auto wide_of = [&](const Maximum& own) {
        long long nearest = -1;
        each_near(own, WIDE_BAND, [&](long long j) {
            if (nearest < 0 || distance(own, maxima[j]) < distance(own, maxima[nearest])) nearest = j;
        });
        return nearest;
    };
    for (long long i = 0; i < count; ++i) {
        const Maximum& wide = maxima[i];
        if (wide.band != WIDE_BAND) continue;
        long long own = 0, last = -1;
        each_near(wide, NARROW_BAND, [&](long long j) {
            if (wide_of(maxima[j]) != i) return;
            if (maxima[j].score < FAINT * wide.score) dropped[j] = 1;
            else ++own, last = j;
        });
        if (own == 0) continue;
        const bool wide_stays =
            own == 1 && (double(maxima[last].score) < s.clear_score || maxima[last].score < BLURRED * wide.score);
        dropped[wide_stays ? last : i] = 1;
    }
}

}  // namespace spotfit::SPOTFIT_ISA
