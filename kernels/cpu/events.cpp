// Which fits of successive frames are one event of a molecule, and the sums of columns over events. Compiled once for
// all machines.
#include "../layouts/events.h"

#include "interface.h"

using namespace spotfit;

namespace {

constexpr long long NONE = -1;
constexpr double INFINITE = __builtin_inf();

// The events that may go on, and the fits of one frame that may belong to them: items 0 ... open - 1, and from open on.
// Positions of events are running means of their fits by inverse variance, and have that mean's variance.
class Linking {
    const EventFits& s;
    const EventMemory& m;
    const long long room;
    const double reach_by_error;  // of a pair, in units of the larger error of both
    long long open = 0, pairs = 0, number = 0;
    // Cells of the events' and the fits' positions.
    double low_y = 0, low_x = 0, size_y = 0, size_x = 0, per_pixel = 0;
    int down = 1, across = 1;

    // One number of each item: means, sums of inverse variances, and the variances of the means.
    double& mean(int axis, long long k) const { return m.numbers[axis * room + k]; }
    double& weight(int axis, long long e) const { return m.numbers[(3 + axis) * room + e]; }
    double& variance_of(int axis, long long e) const { return m.numbers[(6 + axis) * room + e]; }
    // No fit with a smaller reach is in the gate farther away than this.
    double& reach(long long k) const { return m.numbers[9 * room + k]; }
    // The smallest χ² of an event and of a fit, and what it is reached with.
    double& best(long long k) const { return m.numbers[10 * room + k]; }
    long long& id(long long e) const { return m.indices[e]; }
    long long& last(long long e) const { return m.indices[room + e]; }
    long long& partner(long long k) const { return m.indices[2 * room + k]; }
    int* cell() const { return m.cells; }
    int* by_cell() const { return m.cells + room; }
    // Where the events or the fits of each cell begin in `by_cell`.
    int* starts(bool fits) const { return m.cells + (fits ? 4 : 2) * room; }

    double at(int axis, long long i) const { return axis == 0 ? s.y[i] : axis == 1 ? s.x[i] : s.z[i]; }
    const float* errors(int axis) const { return axis == 0 ? s.y_stderr : axis == 1 ? s.x_stderr : s.z_stderr; }
    int axes() const { return s.z ? 3 : 2; }
    double variance(int axis, long long i) const {
        const float* e = errors(axis);
        return e ? static_cast<double>(e[i]) * static_cast<double>(e[i]) : 1;
    }
    // NaN is near to none, so it is a fit without errors.
    bool has_errors(long long i) const {
        for (int axis = 0; axis < axes(); ++axis)
            if (const float* e = errors(axis); e && !(e[i] > 0)) return false;
        return true;
    }
    static double larger(double a, double b) { return a > b ? a : b; }
    double reach_of_event(long long e) const {
        if (s.radius > 0) return s.radius;
        return reach_by_error / __builtin_sqrt(weight(0, e) < weight(1, e) ? weight(0, e) : weight(1, e));
    }
    double reach_of_fit(long long i) const {
        if (s.radius > 0) return s.radius;
        return reach_by_error * static_cast<double>(s.y_stderr[i] > s.x_stderr[i] ? s.y_stderr[i] : s.x_stderr[i]);
    }

    // The squared distance of an event and a fit, in the unit of the gate; infinite if they are too far apart.
    double distance(long long e, long long i) const {
#pragma clang fp contract(off)
        double sum = 0, depth = 0;
        for (int axis = 0; axis < axes(); ++axis) {
            const double part = at(axis, i) - mean(axis, e);
            if (axis < 2 && s.radius > 0) sum += part * part;
            else if (errors(axis))
                (axis < 2 || !(s.radius > 0) ? sum : depth) += part * part / (variance_of(axis, e) + variance(axis, i));
        }
        if (s.radius > 0) return sum <= s.radius * s.radius && depth <= s.gate ? sum : INFINITE;
        return sum <= s.gate ? sum : INFINITE;
    }

    int along(double x, double low, int count) const {
        const double c = (x - low) * per_pixel;
        return c > 0 ? c < count ? static_cast<int>(c) : count - 1 : 0;
    }
    // Makes about as many cells as there are items.
    void divide(long long all) {
        const double height = size_y, width = size_x, longest = larger(height, width), n = static_cast<double>(all);
        double side = larger(__builtin_sqrt(height * width / n), longest / n);
        if (!(side > 0)) side = 1;
        while ((height / side + 1) * (width / side + 1) > 2 * n && side <= longest) side *= 1.25;
        per_pixel = 1 / side;
        const double rows = 1 + height * per_pixel, columns = 1 + width * per_pixel;
        down = across = 1;
        if (rows * columns < static_cast<double>(2 * room - 1))
            down = static_cast<int>(rows), across = static_cast<int>(columns);
    }
    // Sorts the events or the fits, items first ... end - 1, into cells.
    void sort(bool fits, long long first, long long end) {
        int *begin = starts(fits), *own = cell();
        __builtin_memset(begin, 0, sizeof(int) * static_cast<unsigned long>(down * across + 1));
        for (long long k = first; k < end; ++k)
            ++begin[own[k] = along(mean(0, k), low_y, down) * across + along(mean(1, k), low_x, across)];
        int sum = static_cast<int>(first);
        for (int c = 0; c <= down * across; ++c) sum += begin[c], begin[c] = sum;
        for (long long k = end; k-- > first;) by_cell()[--begin[own[k]]] = static_cast<int>(k);
    }

    // Calls use(k) for the events, or the fits, no farther than the reach from an item along each axis.
    template <class Use> void each_near(bool fits, long long item, Use use) const {
        const double y = mean(0, item), x = mean(1, item), far = reach(item) * (1 + 1e-9);
        const int left = along(x - far, low_x, across), right = along(x + far, low_x, across);
        const int end = along(y + far, low_y, down), *begin = starts(fits);
        for (int row = along(y - far, low_y, down); row <= end; ++row)
            for (int place = begin[row * across + left]; place < begin[row * across + right + 1]; ++place) {
                const int k = by_cell()[place];
                if (__builtin_fabs(mean(0, k) - y) <= far && __builtin_fabs(mean(1, k) - x) <= far) use(k);
            }
    }

    void add_pair(long long e, long long i) {
        const double d = distance(e, i);
        if (!(d < INFINITE)) return;
        if (pairs < m.most_pairs) {
            long long* pair = m.pairs + 3 * pairs;
            // Frames between them: a list of pairs for each gap.
            long long& head = m.heads[s.frame[i] - last(e) - 1];
            pair[0] = e, pair[1] = i, pair[2] = head;
            m.distances[pairs] = d;
            head = pairs;
        }
        ++pairs;
    }

    // Every pair within the gate is found from the one that reaches farther.
    void find_pairs(long long first, long long end) {
        for (long long g = 0; g <= s.max_dark; ++g) m.heads[g] = NONE;
        pairs = 0;
        const long long all = open + end - first;
        double least_of_fits = INFINITE, least_of_events = INFINITE;
        for (long long i = first; i < end; ++i) {
            const long long k = open + i - first;
            mean(0, k) = s.y[i], mean(1, k) = s.x[i], reach(k) = reach_of_fit(i);
            if (reach(k) < least_of_fits) least_of_fits = reach(k);
        }
        for (long long e = 0; e < open; ++e)
            if (reach(e) < least_of_events) least_of_events = reach(e);
        divide(all);
        sort(true, open, all);
        for (long long e = 0; e < open; ++e)
            if (reach(e) >= least_of_fits)
                each_near(true, e, [&](long long k) {
                    if (!(reach(k) > reach(e))) add_pair(e, first + k - open);
                });
        if (s.radius > 0) return;
        sort(false, 0, open);
        for (long long k = open; k < all; ++k)
            if (reach(k) > least_of_events)
                each_near(false, k, [&](long long e) {
                    if (reach(k) > reach(e)) add_pair(e, first + k - open);
                });
    }

    // Whether one position comes before another: of equally near ones the first is taken, whatever their order.
    static bool precedes(double y, double x, double other_y, double other_x) {
        return y != other_y ? y < other_y : x < other_x;
    }

    void put(long long i, long long e) {
        for (int axis = 0; axis < axes(); ++axis) {
            const double own = 1 / variance(axis, i);
            weight(axis, e) += own;
            mean(axis, e) += (at(axis, i) - mean(axis, e)) * (own / weight(axis, e));
            variance_of(axis, e) = 1 / weight(axis, e);
        }
        reach(e) = reach_of_event(e);
        last(e) = s.frame[i];
        s.event[i] = id(e);
        s.last_row[id(e)] = i;
    }

    // Links events and fits that are each other's nearest, of the shortest gap first.
    void link(long long first) {
        const auto fit = [&](long long i) { return open + i - first; };
        for (long long g = 0; g <= s.max_dark; ++g) {
            for (long long p = m.heads[g]; p != NONE; p = m.pairs[3 * p + 2]) {
                const long long e = m.pairs[3 * p], i = m.pairs[3 * p + 1];
                partner(e) = partner(fit(i)) = NONE, best(e) = best(fit(i)) = INFINITE;
            }
            for (long long p = m.heads[g]; p != NONE; p = m.pairs[3 * p + 2]) {
                const long long e = m.pairs[3 * p], i = m.pairs[3 * p + 1];
                if (s.event[i] != NONE) continue;
                const double d = m.distances[p];
                const long long own = partner(e), other = partner(fit(i));
                if (d < best(e) || (d == best(e) && own != NONE && precedes(s.y[i], s.x[i], s.y[own], s.x[own])))
                    best(e) = d, partner(e) = i;
                if (d < best(fit(i)) || (d == best(fit(i)) && other != NONE &&
                                         precedes(mean(0, e), mean(1, e), mean(0, other), mean(1, other))))
                    best(fit(i)) = d, partner(fit(i)) = e;
            }
            for (long long p = m.heads[g]; p != NONE; p = m.pairs[3 * p + 2]) {
                const long long e = m.pairs[3 * p], i = m.pairs[3 * p + 1];
                if (partner(e) == i && partner(fit(i)) == e) partner(fit(i)) = NONE, put(i, e);
            }
        }
    }

  public:
    Linking(const EventFits& fits, const EventMemory& memory, long long most)
        : s(fits), m(memory), room(most), reach_by_error(__builtin_sqrt(2 * fits.gate)) {
        double high_y = low_y = s.y[0], high_x = low_x = s.x[0];
        for (long long i = 1; i < s.count; ++i) {
            const double y = s.y[i], x = s.x[i];
            low_y = y < low_y ? y : low_y, high_y = y > high_y ? y : high_y;
            low_x = x < low_x ? x : low_x, high_x = x > high_x ? x : high_x;
        }
        size_y = high_y - low_y, size_x = high_x - low_x;
    }

    // Returns the number of events, or -1 where too many fits are within each other's reach.
    long long run() {
        for (long long first = 0, end; first < s.count; first = end) {
            const long long now = s.frame[first];
            for (end = first; end < s.count && s.frame[end] == now; ++end) s.event[end] = NONE;
            // Events that are over make room.
            long long kept = 0;
            for (long long e = 0; e < open; ++e) {
                if (now - last(e) - 1 > s.max_dark) continue;
                if (kept < e) {
                    for (int k = 0; k < 10; ++k) m.numbers[k * room + kept] = m.numbers[k * room + e];
                    id(kept) = id(e), last(kept) = last(e);
                }
                ++kept;
            }
            open = kept;
            if (open) {
                find_pairs(first, end);
                if (pairs > m.most_pairs) return NONE;
                link(first);
            }
            for (long long i = first; i < end; ++i) {
                if (s.event[i] != NONE) continue;
                s.first_row[number] = s.last_row[number] = i;
                if (!has_errors(i)) {
                    s.event[i] = number++;
                    continue;
                }
                for (int axis = 0; axis < axes(); ++axis) mean(axis, open) = weight(axis, open) = 0;
                id(open) = number++;
                put(i, open++);
            }
        }
        return number;
    }
};

template <class Value, class Error>
void join(const JoinedColumn& c) {
    const Value* values = static_cast<const Value*>(c.values);
    const Error* errors = static_cast<const Error*>(c.errors);
    for (long long e = 0; e < c.events; ++e) c.joined[e] = c.weights[e] = 0;
    if (errors)
        for (long long e = 0; e < c.events; ++e) c.spread[e] = 0;
    for (long long i = 0; i < c.count; ++i) {
        const long long e = c.event[i];
        const double value = static_cast<double>(values[i]);
        if (value != value || e < 0) continue;
        const double error = errors ? static_cast<double>(errors[i]) : 1;
        if (c.rule != JOIN_WEIGHTED) {
            c.joined[e] += value, c.weights[e] += 1;
            if (errors) c.spread[e] += error * error;
            continue;
        }
        if (!(error > 0 && error < INFINITE)) continue;
        const double own = 1 / (error * error), apart = value - c.joined[e];
        c.weights[e] += own;
        c.joined[e] += apart * (own / c.weights[e]);
        // Of weighted deviations from the running mean.
        if (c.scatter) c.scatter[e] += own * apart * (value - c.joined[e]);
    }
    for (long long e = 0; e < c.events; ++e) {
        const double sum = c.weights[e];
        if (!(sum > 0)) c.joined[e] = __builtin_nan("");
        else if (c.rule == JOIN_MEAN) c.joined[e] /= sum;
        if (!errors) continue;
        if (c.rule == JOIN_WEIGHTED) c.spread[e] = sum > 0 ? 1 / __builtin_sqrt(sum) : __builtin_nan("");
        else c.spread[e] = sum > 0 ? __builtin_sqrt(c.spread[e]) / (c.rule == JOIN_MEAN ? sum : 1) : __builtin_nan("");
    }
}

}  // namespace

// The largest number of fits in frames that one event may span, from an event's last one to a fit's.
SPOTFIT_EXPORT long long spotfit_most_in_window(const EventFits* fits) {
    long long most = 0;
    for (long long first = 0, i = 0; i < fits->count; ++i) {
        while (fits->frame[i] - fits->frame[first] - 1 > fits->max_dark) ++first;
        if (i + 1 - first > most) most = i + 1 - first;
    }
    return most;
}

// Writes the event of each fit, numbered by the order of their first ones; returns how many there are, or -1 where more
// pairs are within reach than there is memory for.
SPOTFIT_EXPORT long long spotfit_link_events(const EventFits* fits, const EventMemory* memory, long long most) {
    return Linking(*fits, *memory, most).run();
}

// The same by the rule of another program, Picasso: an event goes on with the first row within the radius of its last
// fit, and takes it from all events that begin later.
SPOTFIT_EXPORT long long spotfit_link_greedily(const EventFits* fits) {
    const EventFits& s = *fits;
    for (long long i = 0; i < s.count; ++i) s.event[i] = NONE;
    long long number = 0;
    for (long long first = 0; first < s.count; ++first) {
        if (s.event[first] != NONE) continue;
        s.first_row[number] = first;
        for (long long i = first; i != NONE;) {
            s.event[i] = number, s.last_row[number] = i;
            long long next = NONE;
            for (long long j = i + 1; j < s.count && s.frame[j] - s.frame[i] - 1 <= s.max_dark; ++j) {
                if (s.frame[j] == s.frame[i] || s.event[j] != NONE) continue;
                const double down = s.y[i] - s.y[j], across = s.x[i] - s.x[j];
                if (across * across + down * down <= s.radius * s.radius) {
                    next = j;
                    break;
                }
            }
            i = next;
        }
        ++number;
    }
    return number;
}

SPOTFIT_EXPORT void spotfit_join_column(const JoinedColumn* column) {
    const JoinedColumn& c = *column;
    if (c.is_double) c.errors_are_double ? join<double, double>(c) : join<double, float>(c);
    else c.errors_are_double ? join<float, double>(c) : join<float, float>(c);
}
