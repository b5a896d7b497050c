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
    for (long long i = 0; i < count; ++i) {
        const long long place = static_cast<long long>(order[i] & 0xFFFFFFFF);
        if (dropped[place]) continue;
        each_close(rows, height, maxima[place], distance, [&](long long j) {
            if (j != place) dropped[j] = 1;
        });
    }
}

void join_bands(const DetectionSettings& s, const Maximum* maxima, long long count, long long* row_starts,
                unsigned char* dropped) {
    const Rows rows(maxima, count, s.height, row_starts);
    for (long long i = 0; i < count; ++i) join_with_narrow(s, rows, i, [&](long long other) { dropped[other] = 1; });
}

}  // namespace spotfit::SPOTFIT_ISA
