// Which maxima are spots of their own: of those that are too close, the highest stays, of equal ones the
// first; and where one of the wide band and some of the narrow band are of the same spots, either is dropped.
#pragma once
#include "detection.h"

namespace spotfit::SPOTFIT_ISA {

// Where maxima lie: in frames of some height.
struct Plane {
    long long height;

    SPOTFIT_INLINE double square_distance(const Maximum& a, const Maximum& b) const {
        return square(double(a.y) - double(b.y)) + square(double(a.x) - double(b.x));
    }
    // The frames that may have others close to those of one, the first and the last.
    template <class Int> SPOTFIT_INLINE Int first_frame(Int frame, double) const { return frame; }
    template <class Int> SPOTFIT_INLINE Int last_frame(Int frame, double) const { return frame; }
};

// Or in volumes of some depth, with planes per pixel of distance; of a single plane, in that.
struct Space {
    long long height, depth;
    double planes_per_pixel;

    SPOTFIT_INLINE double square_distance(const Maximum& a, const Maximum& b) const {
        return Plane{height}.square_distance(a, b) + square((double(a.frame) - double(b.frame)) / planes_per_pixel);
    }
    template <class Int> SPOTFIT_INLINE Int first_frame(Int frame, double distance) const {
        if (depth == 1) return frame;
        const Int first = frame - frame % Int(depth), reach = planes<Int>(distance);
        return frame - first < reach ? first : frame - reach;
    }
    template <class Int> SPOTFIT_INLINE Int last_frame(Int frame, double distance) const {
        if (depth == 1) return frame;
        const Int last = frame - frame % Int(depth) + Int(depth) - 1, reach = planes<Int>(distance);
        return last - frame < reach ? last : frame + reach;
    }

  private:
    template <class Int> SPOTFIT_INLINE Int planes(double distance) const {
        return Int(lower_of(distance * planes_per_pixel, double(depth)));
    }
};

// `rows` are `maxima` in the order of frame, row and column; those of a row are from begin(frame, y)
// to end(frame, y).

// The first of a row that is not before a column.
template <class Int, class Rows> SPOTFIT_INLINE Int first_from(const Rows& rows, Int frame, Int y, double x) {
    Int low = rows.begin(int(frame), y), count = rows.end(int(frame), y) - low;
    while (count > 0) {
        const Int half = count / 2;
        const bool before = rows.maxima[low + half].x < x;
        low = before ? low + half + 1 : low;
        count = before ? count - half - 1 : half;
    }
    return low;
}

// Calls use(i) for all that are close to one, it among them.
template <class Int, class Rows, class Where, class Use>
SPOTFIT_INLINE void each_close(const Rows& rows, const Where& space, const Maximum& own, double distance, Use use) {
    // How many rows away one may be that is closer than the distance.
    const Int reach = double(Int(distance)) < distance ? Int(distance) : Int(distance) - 1, height = Int(space.height);
    const Int first = own.y < reach ? 0 : own.y - reach, last = own.y + reach < height ? own.y + reach : height - 1;
    const Int last_frame = space.last_frame(Int(own.frame), distance);
    for (Int frame = space.first_frame(Int(own.frame), distance); frame <= last_frame; ++frame) {
        // Of volumes, not all frames from the first to the last may have maxima.
        if (!rows.has(int(frame))) continue;
        for (Int y = first; y <= last; ++y) {
            const Int end = rows.end(int(frame), y);
            for (Int i = first_from(rows, frame, y, own.x - distance); i < end; ++i) {
                if (rows.maxima[i].x > own.x + distance) break;
                if (space.square_distance(own, rows.maxima[i]) < distance * distance) use(i);
            }
        }
    }
}

// Calls use(j, i) for all maxima that `wants(j)`, and all i that are close to them, they among them: those of
// each j row by row. The rows beside a row are walked along with it, so that nothing is searched.
template <class Rows, class Wants, class Use>
void each_close_pair(const Rows& rows, const Space& space, long long count, double distance, Wants wants, Use use) {
    const long long whole = static_cast<long long>(distance), reach = double(whole) < distance ? whole : whole - 1;
    const Maximum* const m = rows.maxima;
    for (long long begin = 0, end; begin < count; begin = end) {
        const long long own = m[begin].frame, y = m[begin].y, last_frame = space.last_frame(own, distance);
        end = rows.end(int(own), y);
        for (long long frame = space.first_frame(own, distance); frame <= last_frame; ++frame) {
            if (!rows.has(int(frame))) continue;
            for (long long beside = y < reach ? 0 : y - reach; beside <= y + reach && beside < space.height; ++beside) {
                long long first = rows.begin(int(frame), beside);
                const long long last = rows.end(int(frame), beside);
                for (long long j = begin; j < end && first < last; ++j) {
                    while (first < last && m[first].x < m[j].x - distance) ++first;
                    if (!wants(j)) continue;
                    for (long long i = first; i < last && m[i].x <= m[j].x + distance; ++i)
                        if (space.square_distance(m[j], m[i]) < distance * distance) use(j, i);
                }
            }
        }
    }
}

// The nearest maximum of the wide band that is close to one of the narrow band; -1 without.
template <class Int, class Rows>
SPOTFIT_INLINE Int nearest_wide(const DetectionSettings& s, const Rows& rows, const Maximum& own) {
    Int nearest = -1;
    const Plane plane = {s.height};
    each_close<Int>(rows, plane, own, s.reach, [&](Int i) {
        const Maximum& wide = rows.maxima[i];
        if (wide.band != WIDE_BAND) return;
        if (nearest < 0 || plane.square_distance(own, wide) < plane.square_distance(own, rows.maxima[nearest]))
            nearest = i;
    });
    return nearest;
}

// Scores in the narrow band over those in the wide one: a spot as wide as the PSF has 0.62, one half as
// wide again 0.4, one more than twice as wide less than 0.3.
constexpr float BLURRED = 0.4f, FAINT = 0.3f;

// Whether a narrow maximum is too faint beside the wide one that it belongs to.
SPOTFIT_INLINE bool is_faint(const Maximum& wide, const Maximum& narrow) { return narrow.score < FAINT * wide.score; }
// Which of the two locates the spot, where they are the only ones.
SPOTFIT_INLINE bool wide_tells_place(const DetectionSettings& s, const Maximum& wide, const Maximum& narrow) {
    return double(narrow.score) < s.clear_score || narrow.score < BLURRED * wide.score;
}

// Calls drop(i) for those that are no spots of their own, among a maximum of the wide band and those of
// the narrow band that belong to it. One of these belongs to the nearest one of the wide band within
// reach. A wide maximum with none of its own stays. With one, the clearer of the two locates the spot: the
// wide one unless the narrow one stands out far. With more, there are as many spots, which the wide band
// cannot separate.
template <class Int, class Rows, class Drop>
SPOTFIT_INLINE void join_with_narrow(const DetectionSettings& s, const Rows& rows, Int i, Drop drop) {
    const Maximum& wide = rows.maxima[i];
    if (wide.band != WIDE_BAND) return;
    Int own = 0, last = -1;
    each_close<Int>(rows, Plane{s.height}, wide, s.reach, [&](Int j) {
        const Maximum& narrow = rows.maxima[j];
        if (narrow.band != NARROW_BAND || nearest_wide<Int>(s, rows, narrow) != i) return;
        if (is_faint(wide, narrow)) drop(j);
        else ++own, last = j;
    });
    if (own == 0) return;
    drop(own == 1 && wide_tells_place(s, wide, rows.maxima[last]) ? last : i);
}

}  // namespace spotfit::SPOTFIT_ISA
