// Which spots of a frame overlap with others, and how far each is from the next one. Compiled once for all machines.
#include "../layouts/groups.h"
#include "interface.h"

using namespace spotfit;

namespace {

constexpr long long NONE = -1;
const float UNKNOWN = __builtin_nanf("");

bool is_finite(double x) { return x - x == 0; }

// What is known of a spot by its own fit.
void begin(const SingleFits& s, long long i) {
    s.distance[i] = __builtin_inff();
    double* const place = s.places + s.axes * i;
    for (int axis = 0; axis < s.axes; ++axis) place[axis] = s.given[s.axes * i + axis];
    if (!s.state) return;
    const unsigned flags = s.flags[i];
    const bool can_move = s.stop[i] != s.invalid;
    unsigned state = 0;
    if (can_move && !(flags & s.not_good)) {
        state |= HAS_FIT;
        for (int axis = 0; axis < s.axes; ++axis) place[axis] = s.fitted[axis][i];
    }
    if (can_move && !(flags & s.left_out)) {
        state |= TAKES_PART;
        const float error = s.sigma_error ? s.sigma_error[i] : 0;
        const double wide = s.widest + (error > 0 ? s.errors * double(error) : 0);
        if ((flags & s.doubtful) || (s.sigma && double(s.sigma[i]) > wide)) state |= MAY_BE_TWO;
    }
    s.state[i] = static_cast<unsigned char>(state);
    const float score = s.amplitude_error ? s.amplitude[i] / s.amplitude_error[i] : UNKNOWN;
    s.evidence[i] = score * score / 2;
}

// The spots of a frame, in lists by cells of its last two axes that are as large as a reach at least, so that time
// follows their number.
class Frame {
    const SingleFits& s;
    const long long first, end;
    double low[2] = {}, high[2] = {}, reach, per_pixel;
    long long counts[2];

    double at(long long i, int axis) const { return s.places[s.axes * i + axis]; }
    // Along one of the last two.
    double in_plane(long long i, int k) const { return at(i, s.axes - 2 + k); }
    long long along(long long i, int k) const {
        const double c = (in_plane(i, k) - low[k]) * per_pixel;
        return c < static_cast<double>(counts[k]) ? static_cast<long long>(c) : counts[k] - 1;
    }
    bool is_there(long long i) const {
        for (int axis = 0; axis < s.axes; ++axis)
            if (!is_finite(at(i, axis))) return false;
        return true;
    }
    // The square of the distance of two spots, in some unit along each axis.
    double square_between(long long i, long long j, const double* units) const {
#pragma clang fp contract(off)
        double sum = 0;
        for (int axis = 0; axis < s.axes; ++axis) {
            const double part = (at(i, axis) - at(j, axis)) / units[axis];
            sum += part * part;
        }
        return sum;
    }
    long long root_of(long long i) const {
        while (s.root[i] != i) i = s.root[i] = s.root[s.root[i]];
        return i;
    }
    void divide() {
        // No more cells than spots.
        double side = reach;
        const double most = static_cast<double>(end - first);
        while (((high[0] - low[0]) / side + 1) * ((high[1] - low[1]) / side + 1) > most && side < 1e300) side *= 1.25;
        for (int axis = 0; axis < 2; ++axis) counts[axis] = 1 + static_cast<long long>((high[axis] - low[axis]) / side);
        per_pixel = 1 / side;
    }
    // Calls use(i, j, square of the distance) for all pairs within the reach.
    template <class Use> void each_pair(double within, Use use) {
        reach = within;
        divide();
        for (long long c = 0; c < counts[0] * counts[1]; ++c) s.heads[first + c] = NONE;
        for (long long i = first; i < end; ++i) {
            if (!is_there(i)) continue;
            const long long y = along(i, 0), x = along(i, 1);
            for (long long v = y > 0 ? y - 1 : 0; v <= y + 1 && v < counts[0]; ++v)
                for (long long u = x > 0 ? x - 1 : 0; u <= x + 1 && u < counts[1]; ++u)
                    for (long long j = s.heads[first + v * counts[1] + u]; j != NONE; j = s.next[j]) {
                        const double square = square_between(i, j, s.pixels);
                        if (square <= reach * reach) use(i, j, square);
                    }
            long long& head = s.heads[first + y * counts[1] + x];
            s.next[i] = head, head = i;
        }
    }

  public:
    Frame(const SingleFits& fits, long long begin, long long stop) : s(fits), first(begin), end(stop) {
        bool is_first = true;
        for (long long i = first; i < end; ++i) {
            if (!is_there(i)) continue;
            for (int k = 0; k < 2; ++k) {
                if (is_first || in_plane(i, k) < low[k]) low[k] = in_plane(i, k);
                if (is_first || in_plane(i, k) > high[k]) high[k] = in_plane(i, k);
            }
            is_first = false;
        }
    }
    void find_neighbours() {
        each_pair(s.near, [this](long long i, long long j, double square) {
            const float apart = static_cast<float>(square);
            if (apart < s.distance[i]) s.distance[i] = apart;
            if (apart < s.distance[j]) s.distance[j] = apart;
            if (!s.state || !(s.state[i] & s.state[j] & TAKES_PART)) return;
            if (square_between(i, j, s.overlap) <= 1) s.state[i] |= OVERLAPS, s.state[j] |= OVERLAPS;
        });
        for (long long i = first; i < end; ++i)
            s.distance[i] = s.distance[i] < __builtin_inff() ? __builtin_sqrtf(s.distance[i]) : UNKNOWN;
    }
    // How many spots fits together concern: those that may have to do with one that is not alone.
    long long find_concerned() {
        const int begins = s.takes_all ? TAKES_PART : OVERLAPS | MAY_BE_TWO;
        bool any = false;
        for (long long i = first; i < end; ++i) s.root[i] = i, any |= (s.state[i] & begins) != 0;
        if (!any) return 0;
        each_pair(s.reach, [this](long long i, long long j, double) {
            // The earlier one is the root, so that the result depends on no order.
            const long long a = root_of(i), b = root_of(j);
            if (a < b) s.root[b] = a;
            else s.root[a] = b;
        });
        for (long long i = first; i < end; ++i)
            if (s.state[i] & begins) s.state[root_of(i)] |= IS_CONCERNED;
        long long count = 0;
        for (long long i = first; i < end; ++i)
            if (s.state[root_of(i)] & IS_CONCERNED) s.state[i] |= IS_CONCERNED, ++count;
        return count;
    }
};

}  // namespace

// How many of the spots fits together concern.
SPOTFIT_EXPORT long long spotfit_find_overlaps(const SingleFits* fits) {
    const SingleFits& s = *fits;
    long long concerned = 0;
    for (long long first = 0, end; first < s.count; first = end) {
        for (end = first; end < s.count && s.frame[end] == s.frame[first]; ++end) begin(s, end);
        Frame frame(s, first, end);
        frame.find_neighbours();
        if (s.state) concerned += frame.find_concerned();
    }
    return concerned;
}
