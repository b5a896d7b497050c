// Which spots of two channels are pairs: within reach of each other, and of all ways to pair them the cheapest.
// Compiled once for all machines.
#include "../layouts/pairs.h"

#include "interface.h"

using namespace spotfit;

namespace {

constexpr long long NONE = -1;
// Cells are a little larger than the reach, as all that is rounded; farther away than this, they are one.
constexpr double SIDE = 1.001, FAR_AWAY = 1e15;

struct Cell { long long at[3]; };

inline long long along(double x) {
    const double side = x * (1 / SIDE);
    const long long cell = static_cast<long long>(side > FAR_AWAY ? FAR_AWAY : side < -FAR_AWAY ? -FAR_AWAY : side);
    return cell - (static_cast<double>(cell) > side);
}

inline Cell cell_of(const double* place) { return {{along(place[0]), along(place[1]), along(place[2])}}; }

// The spots b in lists by their cells: those of cells side by side lie side by side, too.
class Lists {
    const PairedSpots& s;

    // Those of a group lie side by side, as far as it has spots, and those of a line in it.
    long long& head(long long group, long long z, long long y, long long x) const {
        using Number = unsigned long long;
        const Number own = static_cast<Number>(s.lists_of_group - 1), all = static_cast<Number>(s.lists - 1);
        const Number plane = static_cast<Number>(z) * 0xC2B2AE3D27D4EB4Fu;
        const Number line = plane + static_cast<Number>(y) * 0x165667B19E3779F9u;
        const Number place = (line + static_cast<Number>(x)) & own;
        return s.heads[(static_cast<Number>(group) * static_cast<Number>(s.lists_of_group) + place) & all];
    }

  public:
    explicit Lists(const PairedSpots& spots) : s(spots) {}

    void fill() const {
        for (long long k = 0; k < s.lists; ++k) s.heads[k] = NONE;
        for (long long j = s.b_count; j-- > 0;) {
            const Cell own = cell_of(s.b + 3 * j);
            long long& first = head(s.b_group[j], own.at[0], own.at[1], own.at[2]);
            s.next[j] = first, first = j;
        }
    }

    // Calls `found` with each b that is within reach of an a, and its squared distance.
    template <class Found>
    void visit(long long i, Found found) const {
        const double* place = s.a + 3 * i;
        const Cell own = cell_of(place);
        const long long beside = s.is_flat ? 0 : 1;
        for (long long z = own.at[0] - beside; z <= own.at[0] + beside; ++z)
            for (long long y = own.at[1] - 1; y <= own.at[1] + 1; ++y)
                for (long long x = own.at[2] - 1; x <= own.at[2] + 1; ++x)
                    for (long long j = head(s.a_group[i], z, y, x); j != NONE; j = s.next[j]) {
                        double square = 0;
                        for (int axis = 0; axis < 3; ++axis) {
                            const double part = s.b[3 * j + axis] - place[axis];
                            square += part * part;
                        }
                        if (square > 1 || s.b_group[j] != s.a_group[i]) continue;
                        // Another cell may have the same list.
                        const Cell cell = cell_of(s.b + 3 * j);
                        if (cell.at[0] == z && cell.at[1] == y && cell.at[2] == x) found(j, square);
                    }
    }
};

// Gives one a after the other its partner, or none, by the cheapest way to change those before: every b has a price,
// by which no a would rather have another one.
class Assignment {
    const PairedSpots& s;
    long long waiting = 0;  // in the heap

    bool is_before(long long one, long long other) const { return s.reached[one] < s.reached[other]; }
    void set(long long k, long long j) const { s.heap[k] = j, s.place[j] = k; }
    void rise(long long k, long long j) const {
        for (; k > 0 && is_before(j, s.heap[(k - 1) / 2]); k = (k - 1) / 2) set(k, s.heap[(k - 1) / 2]);
        set(k, j);
    }
    void push(long long j) { rise(s.place[j] == NONE ? waiting++ : s.place[j], j); }
    long long pop() {
        const long long top = s.heap[0], last = s.heap[--waiting];
        long long k = 0;
        for (long long child; (child = 2 * k + 1) < waiting; k = child) {
            if (child + 1 < waiting && is_before(s.heap[child + 1], s.heap[child])) ++child;
            if (!is_before(s.heap[child], last)) break;
            set(k, s.heap[child]);
        }
        if (waiting > 0) set(k, last);
        return top;
    }
    double cost(long long i, long long j) const {
        long long k = s.first[i];
        while (s.partners[k] != j) ++k;
        return s.costs[k];
    }

  public:
    explicit Assignment(const PairedSpots& spots) : s(spots) {
        for (long long i = 0; i < s.a_count; ++i) s.a_partner[i] = NONE;
        for (long long j = 0; j < s.b_count; ++j) s.b_partner[j] = s.place[j] = NONE, s.prices[j] = 0;
    }

    void add(long long source) {
        // The end of the way: a b that is free, or an a that goes without; at no cost, if the new one does.
        double best = 0;
        long long free_b = NONE, left = source, done = s.b_count;
        waiting = 0;
        long long i = source;
        for (double base = 0;;) {
            for (long long k = s.first[i]; k < s.first[i + 1]; ++k) {
                const long long j = s.partners[k];
                const double way = base + s.costs[k] - s.prices[j];
                const bool is_known = s.place[j] != NONE;
                // The heap's memory has, from its end on, those that are done, whose place is behind all others.
                if (way > best || (is_known && (s.place[j] >= s.b_count || !(way < s.reached[j])))) continue;
                s.from[j] = i, s.reached[j] = way;
                if (s.b_partner[j] == NONE) best = way, free_b = j, left = NONE;
                else push(j);
            }
            if (waiting == 0 || !(s.reached[s.heap[0]] < best)) break;
            const long long j = pop();
            s.heap[--done] = j, s.place[j] = s.b_count;
            i = s.b_partner[j];
            base = s.reached[j] - (cost(i, j) - s.prices[j]);
            if (base < best) best = base, free_b = NONE, left = i;
        }
        for (long long k = done; k < s.b_count; ++k) {
            const long long j = s.heap[k];
            s.prices[j] += s.reached[j] - best, s.place[j] = NONE;
        }
        while (waiting > 0) s.place[s.heap[--waiting]] = NONE;
        // Back along the way: each takes what it was reached by.
        long long j = free_b == NONE ? s.a_partner[left] : free_b;
        if (free_b == NONE) s.a_partner[left] = NONE;
        while (left != source && j != NONE) {
            const long long owner = s.from[j], before = s.a_partner[owner];
            s.a_partner[owner] = j, s.b_partner[j] = owner;
            if (owner == source) break;
            j = before;
        }
    }
};

}  // namespace

// Writes the partners within reach of each a, as far as there is room for them; returns how many there are in all, or
// -1 if these are more than `most`.
SPOTFIT_EXPORT long long spotfit_find_partners(const PairedSpots* spots, long long room, long long most) {
    const PairedSpots& s = *spots;
    const Lists lists(s);
    lists.fill();
    long long count = s.first[0] = 0;
    for (long long i = 0; i < s.a_count && count <= most; ++i) {
        lists.visit(i, [&](long long j, double square) {
            if (count < room) s.partners[count] = j, s.costs[count] = square - 1;
            ++count;
        });
        s.first[i + 1] = count;
    }
    return count <= most ? count : NONE;
}

// Pairs the spots after all their partners have been found: the sum of all squared distances, each less that of the
// reach, is as low as it can be.
SPOTFIT_EXPORT void spotfit_pair_spots(const PairedSpots* spots) {
    Assignment assignment(*spots);
    for (long long i = 0; i < spots->a_count; ++i) assignment.add(i);
}
