// Which positions of a frame belong together: those that are linked, step by step. Compiled once for all machines.
#include "../layouts/groups.h"

#include "interface.h"

using namespace spotfit;

namespace {

constexpr long long NONE = -1;
// In units of the reach: what is farther away need not be distinguished, nor be a number.
constexpr double FAR = 1e15;

// The positions of one frame that have no group yet, in lists by cells of its last two axes, which are as large as the
// reach at least. So the time follows the number of positions where few are in each other's reach, and, as one that has
// a group is in no list, where many are.
class Ungrouped {
    const LinkedSpots& s;
    const long long first;
    double low[2], per_pixel[2];
    long long counts[2];

    double at(long long i, int axis) const { return s.places[i * s.axes + axis]; }
    // The cell along one of the two axes.
    long long along(long long i, int k) const {
        const double c = (at(i, s.axes - 2 + k) - low[k]) * per_pixel[k];
        return c < static_cast<double>(counts[k]) ? static_cast<long long>(c) : counts[k] - 1;
    }
    bool is_linked(long long i, long long j) const {
#pragma clang fp contract(off)
        double sum = 0;
        for (int axis = 0; axis < s.axes; ++axis) {
            const double part = (at(i, axis) - at(j, axis)) / s.reach[axis];
            sum += part * part;
        }
        return sum <= 1;
    }

  public:
    Ungrouped(const LinkedSpots& spots, long long begin, long long end) : s(spots), first(begin) {
        double sizes[2], side = 1.001;  // in units of the reach; a little more, as all that is rounded
        for (int k = 0; k < 2; ++k) {
            const int axis = s.axes - 2 + k;
            double high = low[k] = 0;
            bool is_first = true;
            for (long long i = first; i < end; ++i) {
                if (!is_there(i)) continue;
                const double x = at(i, axis);
                if (is_first || x < low[k]) low[k] = x;
                if (is_first || x > high) high = x;
                is_first = false;
            }
            sizes[k] = (high - low[k]) / s.reach[axis];
            if (!(sizes[k] < FAR)) sizes[k] = FAR;
        }
        const double area = __builtin_sqrt((sizes[0] + 1) * (sizes[1] + 1) / static_cast<double>(end - first));
        if (area > side) side = area;
        // No more cells than positions.
        while ((sizes[0] / side + 1) * (sizes[1] / side + 1) > static_cast<double>(end - first) &&
               (sizes[0] >= side || sizes[1] >= side))
            side *= 1.125;
        for (int k = 0; k < 2; ++k) {
            counts[k] = 1 + static_cast<long long>(sizes[k] / side);
            per_pixel[k] = 1 / (side * s.reach[s.axes - 2 + k]);
        }
        for (long long c = 0; c < counts[0] * counts[1]; ++c) s.heads[first + c] = NONE;
        for (long long i = end; i-- > first;) {
            if (!is_there(i)) continue;
            long long& head = s.heads[first + along(i, 0) * counts[1] + along(i, 1)];
            s.next[i] = head, head = i;
        }
    }
    bool is_there(long long i) const {
        for (int axis = 0; axis < s.axes; ++axis) {
            const double x = at(i, axis), side = s.shape[axis];
            if (x - x != 0 || (side > 0 && !(x >= -0.5 && x <= side - 0.5))) return false;
        }
        return true;
    }
    // Gives all that are linked to a position, and to these, its group. What leaves its list waits in another one,
    // from `top` on, for its own neighbours.
    void put_in_group(long long member) const {
        const long long group = member;
        for (long long top = NONE; member != NONE; member = top, top = top == NONE ? NONE : s.next[top]) {
            const long long y = along(member, 0), x = along(member, 1);
            for (long long v = y > 0 ? y - 1 : 0; v <= y + 1 && v < counts[0]; ++v)
                for (long long u = x > 0 ? x - 1 : 0; u <= x + 1 && u < counts[1]; ++u)
                    for (long long* place = &s.heads[first + v * counts[1] + u]; *place != NONE;) {
                        const long long other = *place;
                        if (other != member && !is_linked(member, other)) {
                            place = &s.next[other];
                            continue;
                        }
                        *place = s.next[other];
                        s.group[other] = group;
                        if (other != member) s.next[other] = top, top = other;
                    }
        }
    }
};

}  // namespace

// Of the frames that begin among the positions first ... last - 1: the first position of each one's group.
SPOTFIT_EXPORT void spotfit_link_spots(const LinkedSpots* spots, long long first, long long last) {
    const LinkedSpots& s = *spots;
    const auto next_frame = [&](long long i) {
        while (i > 0 && i < s.count && s.frame[i] == s.frame[i - 1]) ++i;
        return i;
    };
    first = next_frame(first), last = next_frame(last);
    for (long long end; first < last; first = end) {
        end = next_frame(first + 1);
        for (long long i = first; i < end; ++i) s.group[i] = NONE;
        const Ungrouped ungrouped(s, first, end);
        for (long long i = first; i < end; ++i) {
            if (s.group[i] != NONE) continue;
            s.group[i] = i;
            if (ungrouped.is_there(i)) ungrouped.put_in_group(i);
        }
    }
}

// Replaces the first position of each group by the group's number, in the order of these.
SPOTFIT_EXPORT void spotfit_number_groups(const LinkedSpots* spots) {
    const LinkedSpots& s = *spots;
    long long number = 0;
    for (long long i = 0; i < s.count; ++i) s.next[i] = s.group[i] == i ? number++ : s.next[s.group[i]];
    for (long long i = 0; i < s.count; ++i) s.group[i] = s.next[i];
}
