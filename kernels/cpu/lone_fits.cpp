// Whether joint fits would change spots that do not overlap: most of those that may be two are one, as before. Compiled
// once for all machines.
#include "../layouts/lone_fits.h"

#include "../memory.h"
#include "instruction_sets.h"
#include "joint.h"

using namespace spotfit;

extern "C" {
void spotfit_find_overlaps(const SingleFits*, long long, long long);
void spotfit_link_spots(const LinkedSpots*, long long, long long);
int spotfit_fit_block(int, BlockFits*, long long, long long, void*, int);
long long spotfit_list_excluded(int, BlockFits*, long long, long long, long long*, void*);
}

namespace {

// The most spots of a crowd that is fitted here.
constexpr long long MOST_SPOTS = 128;

class LoneSpots {
    const LoneFits& g;
    const SingleFits& s;
    const int index;
    const JointFunctions& joint;
    long long count = 0;  // of positions that are concerned
    // Of these in their order: which they are, their frames, the first one of their crowd, and whether it is fitted.
    long long *rows, *frame, *crowd, *heads, *next;
    double* places;
    bool* is_fitted;
    // And by frame, y and x, as joint fits take them.
    long long *order, *frame_in_order, *members, *first_member, crowds = 0;
    double *at, *light, *moved;
    long long* rois;
    JointSpot* spots;
    Memory memory;

    unsigned state(long long k) const { return s.state[rows[k]]; }
    const double* start(long long k) const { return s.places + 2 * rows[k]; }

    // Returns whether none overlaps, and there is room for all.
    bool find_concerned() {
        for (long long i = 0; i < s.count; ++i) {
            if (!(s.state[i] & IS_CONCERNED)) continue;
            if ((s.state[i] & OVERLAPS) || count == g.room) return false;
            rows[count] = i, frame[count++] = s.frame[i];
        }
        return true;
    }
    // Links positions to crowds; returns false where one is not in its frame.
    bool link() {
        bool any = false;
        for (long long k = 0; k < count; ++k) {
            const double* const own = start(k);
            if (!(own[0] >= -0.5 && own[0] <= double(g.joint.height) - 0.5 && own[1] >= -0.5 &&
                  own[1] <= double(g.joint.width) - 0.5))
                return false;
            const bool takes_part = (state(k) & TAKES_PART) != 0;
            for (int axis = 0; axis < 2; ++axis) places[2 * k + axis] = takes_part ? own[axis] : __builtin_nan("");
            any |= s.distance[rows[k]] <= float(g.linked);
            crowd[k] = k, is_fitted[k] = false;
        }
        const LinkedSpots linked = {places, frame, g.linking, count, 2, heads, next, crowd, {}};
        if (any) spotfit_link_spots(&linked, 0, count);
        for (long long k = 0; k < count; ++k)
            if (state(k) & MAY_BE_TWO) is_fitted[crowd[k]] = true;
        return true;
    }
    bool is_member(long long k) const { return is_fitted[crowd[k]] && (state(k) & TAKES_PART); }

    // Whether all pixels around those that are fitted count.
    bool all_pixels_count() {
        BlockFits& search = *g.search;
        double* const to = const_cast<double*>(search.image->places);
        long long some = 0;
        for (long long k = 0; k < count; ++k) {
            if (!is_member(k)) continue;
            to[2 * some] = s.given[2 * rows[k]], to[2 * some + 1] = s.given[2 * rows[k] + 1];
            heads[some++] = frame[k];
        }
        search.frame = heads, search.spots.count = some;
        return spotfit_fit_block(index, &search, 0, some, g.search_work, PLACE_ROIS) == 0 &&
               spotfit_list_excluded(index, &search, 0, some, rois, g.search_work) == 0;
    }

    // Sorts the candidates, and lists those of each crowd.
    void sort() {
        const auto is_before = [&](long long a, long long b) {
            const double *const p = start(a), *const q = start(b);
            if (frame[a] != frame[b]) return frame[a] < frame[b];
            return p[0] != q[0] ? p[0] < q[0] : p[1] < q[1];
        };
        for (long long k = 0; k < count; ++k) {
            long long to = k;
            for (; to > 0 && is_before(k, order[to - 1]); --to) order[to] = order[to - 1];
            order[to] = k;
        }
        for (long long n = 0; n < count; ++n) {
            const long long k = order[n], i = rows[k];
            frame_in_order[n] = frame[k];
            at[3 * n] = start(k)[1], at[3 * n + 1] = start(k)[0], at[3 * n + 2] = 0;
            light[n] = state(k) & HAS_FIT ? double(g.photons[i] * g.gain / g.unit) : 0;
            moved[n] = __builtin_nan("");
        }
        long long total = 0;
        for (long long c = 0; c < count; ++c) {
            if (!is_fitted[c]) continue;
            first_member[crowds++] = total;
            for (long long n = 0; n < count; ++n)
                if (crowd[order[n]] == c && is_member(order[n])) members[total++] = n;
        }
        first_member[crowds] = total;
    }
    // Fits a crowd; returns whether all of its spots are as many as before.
    bool fit(const JointFits& fits, long long which) {
        const long long size = first_member[which + 1] - first_member[which];
        if (joint.most_spots(size) > MOST_SPOTS || joint.bytes(fits, which, which + 1, nullptr) > g.crowd_bytes)
            return false;
        long long found;
        joint.fit(fits, which, which + 1, g.crowd, spots, MOST_SPOTS, &found);
        for (long long k = 0; k < found; ++k) {
            if (spots[k].candidate < 0) return false;
            const double* const before = start(order[spots[k].candidate]);
            const double y = (spots[k].y - before[0]) / fits.sigma[1], x = (spots[k].x - before[1]) / fits.sigma[0];
            moved[spots[k].candidate] = __builtin_sqrt(y * y + x * x) * g.widest;
        }
        return true;
    }
    // Whether none of them has come near another one.
    bool are_apart() const {
        double farthest = 0;
        for (long long n = 0; n < count; ++n)
            if (moved[n] > farthest) farthest = moved[n];
        for (long long n = 0; n < count; ++n)
            if (double(s.distance[rows[order[n]]]) - moved[n] - farthest <= s.farthest) return false;
        return true;
    }

  public:
    LoneSpots(int set, const LoneFits& given)
        : g(given), s(given.singles), index(set), joint(*instruction_set(set).functions->joint), memory{given.memory} {
        const long long n = g.room;
        long long** const numbers[] = {&rows,  &frame,          &crowd,   &heads,        &next,
                                       &order, &frame_in_order, &members, &first_member, &rois};
        for (long long** own : numbers) *own = memory.take<long long>(n + 1);
        places = memory.take<double>(2 * n), at = memory.take<double>(3 * n);
        light = memory.take<double>(n), moved = memory.take<double>(n);
        is_fitted = memory.take<bool>(n), spots = memory.take<JointSpot>(MOST_SPOTS);
    }
    const unsigned char* end_of_memory() const { return memory.at; }

    LoneOutcome find() {
        if (!find_concerned()) return MAY_CHANGE;
        if (!count) return NONE_IS_CONCERNED;
        if (!link() || !all_pixels_count()) return MAY_CHANGE;
        sort();
        JointFits fits = g.joint;
        fits.frame = frame_in_order, fits.places = at, fits.light = light, fits.count = count;
        fits.members = members, fits.first = first_member;
        for (long long c = 0; c < crowds; ++c)
            if (!fit(fits, c)) return MAY_CHANGE;
        return are_apart() ? ALL_STAY : MAY_CHANGE;
    }
};

}  // namespace

// The memory that this number of positions takes.
SPOTFIT_EXPORT long long spotfit_lone_bytes(int index, const LoneFits* fits) {
    unsigned char none[1];
    LoneFits given = *fits;
    given.memory = none;
    return LoneSpots(index, given).end_of_memory() - none;
}

// Finds which spots overlap, and, where none does, whether joint fits of those that may be two change any: a
// LoneOutcome.
SPOTFIT_EXPORT int spotfit_fit_lone(int index, const LoneFits* fits) {
    spotfit_find_overlaps(&fits->singles, 0, fits->singles.count);
    return LoneSpots(index, *fits).find();
}
