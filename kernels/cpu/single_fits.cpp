// Which spots of a frame overlap with others, and how far each is from the next one. Compiled once for all machines.
#include "../layouts/groups.h"
#include "interface.h"

using namespace spotfit;

namespace {

constexpr long long NONE = -1;
const float UNKNOWN = __builtin_nanf("");

bool is_finite(double x) { return x - x == 0; }

bool is_wider(const SingleFits& s, const float* width, const float* errors, double psf, long long i) {
    if (!width) return false;
    const float error = errors ? errors[i] : 0;
    const double off = error > 0 ? s.errors * double(error) : 0, uneven = s.uneven * psf;
    return double(width[i]) > psf + __builtin_sqrt(off * off + uneven * uneven);
}

// What is known of a spot by its own fit.
void begin(const SingleFits& s, long long i) {
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
    // Pixels that are missing in its ROI may be those of another one.
    if ((can_move || s.takes_invalid) && !(flags & s.left_out)) {
        state |= TAKES_PART;
        const bool is_wide = is_wider(s, s.sigma, s.sigma_error, s.psf_sigma, i) ||
                             is_wider(s, s.sigma_z, s.sigma_z_error, s.psf_sigma_z, i);
        if ((flags & s.doubtful) || is_wide) state |= MAY_BE_TWO;
    }
    s.state[i] = static_cast<unsigned char>(state);
    const float score = s.amplitude_error ? s.amplitude[i] / s.amplitude_error[i] : UNKNOWN;
    s.evidence[i] = score * score / 2;
}

// The spots of a frame, in lists by cells of its last two axes that are as large as a reach at least, so that time
// follows their number.
template <int AXES> class Frame {
    const SingleFits& s;
    const long long first, end;
    double low[2] = {}, high[2] = {}, reach, per_pixel;
    long long counts[2], count = 0;  // of cells, and of spots that are sorted

    double at(long long i, int axis) const { return s.places[AXES * i + axis]; }
    // Along one of the last two.
    double in_plane(long long i, int k) const { return at(i, AXES - 2 + k); }
    long long along(long long i, int k) const {
        const double c = (in_plane(i, k) - low[k]) * per_pixel;
        return c < static_cast<double>(counts[k]) ? static_cast<long long>(c) : counts[k] - 1;
    }
    bool is_there(long long i) const {
        for (int axis = 0; axis < AXES; ++axis)
            if (!is_finite(at(i, axis))) return false;
        return true;
    }
    long long root_of(long long i) const {
        long long* const root = s.root - first;
        while (root[i] != i) i = root[i] = root[root[i]];
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
    // Sorts the spots by cells.
    void sort(double within) {
        reach = within;
        divide();
        const long long cells = counts[0] * counts[1], across = counts[1];
        long long *const ends = s.ends, *const cell = s.cell - first;
        for (long long c = 0; c < cells; ++c) ends[c] = 0;
        for (long long i = first; i < end; ++i) {
            cell[i] = is_there(i) ? along(i, 0) * across + along(i, 1) : NONE;
            if (cell[i] != NONE) ++ends[cell[i]];
        }
        for (long long c = 1; c < cells; ++c) ends[c] += ends[c - 1];
        count = ends[cells - 1];
        for (long long i = end; i-- > first;) {
            if (cell[i] == NONE) continue;
            const long long k = --ends[cell[i]];  // the beginning of the cell in the end
            s.spot[k] = i;
            for (int axis = 0; axis < AXES; ++axis) s.sorted[AXES * k + axis] = at(i, axis) / s.pixels[axis];
        }
    }
    // Calls use(j, last) for two runs of sorted spots: those behind one in its row of cells, and those in the next row.
    template <class Use> void each_run(long long k, Use use) const {
        const long long across = counts[1], cells = counts[0] * across;
        const auto begin_of = [&](long long c) { return c < cells ? s.ends[c] : count; };
        const long long c = s.cell[s.spot[k] - first], x = c % across;
        const long long left = c - (x > 0), right = c + (x + 1 < across) + 1;
        use(k + 1, begin_of(right));
        use(begin_of(left + across), begin_of(right + across));
    }
    double square_of_distance(long long k, long long j) const {
#pragma clang fp contract(off)
        double sum = 0;
        for (int axis = 0; axis < AXES; ++axis) {
            const double part = s.sorted[AXES * k + axis] - s.sorted[AXES * j + axis];
            sum += part * part;
        }
        return sum;
    }
    bool overlap(long long i, long long j) const {
        double sum = 0;
        for (int axis = 0; axis < AXES; ++axis) {
            const double part = (at(i, axis) - at(j, axis)) / s.overlap[axis];
            sum += part * part;
        }
        return sum <= 1;
    }
    // Calls use(i, j) for all pairs within a reach.
    template <class Use> void each_pair(double within, Use use) {
        sort(within);
        for (long long k = 0; k < count; ++k)
            each_run(k, [&](long long j, long long last) {
                for (; j < last; ++j)
                    if (square_of_distance(k, j) <= reach * reach) use(s.spot[k], s.spot[j]);
            });
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
        sort(s.near);
        float* const nearest = s.nearest;
        for (long long k = 0; k < count; ++k) nearest[k] = __builtin_inff();
        // No branch depends on a distance: few of them could be foreseen.
        for (long long k = 0; k < count; ++k)
            each_run(k, [&](long long j, long long last) {
                float least = nearest[k];
                for (; j < last; ++j) {
                    const float square = static_cast<float>(square_of_distance(k, j));
                    least = square < least ? square : least;
                    nearest[j] = square < nearest[j] ? square : nearest[j];
                }
                nearest[k] = least;
            });
        bool any = false;
        for (long long i = first; i < end; ++i) s.distance[i] = UNKNOWN;
        for (long long k = 0; k < count; ++k) {
            const float apart = __builtin_sqrtf(nearest[k]);
            s.distance[s.spot[k]] = apart <= static_cast<float>(s.near) ? apart : UNKNOWN;
            any |= apart <= static_cast<float>(1.001 * s.farthest);
        }
        if (!any || !s.state) return;
        each_pair(1.001 * s.farthest, [this](long long i, long long j) {
            if ((s.state[i] & s.state[j] & TAKES_PART) && overlap(i, j)) s.state[i] |= OVERLAPS, s.state[j] |= OVERLAPS;
        });
    }
    // Finds what fits together concern: spots that may have to do with one that is not alone.
    void find_concerned() {
        const int begins = s.takes_all ? TAKES_PART : OVERLAPS | MAY_BE_TWO;
        bool any = false;
        for (long long i = first; i < end; ++i) s.root[i - first] = i, any |= (s.state[i] & begins) != 0;
        if (!any) return;
        each_pair(s.reach, [this](long long i, long long j) {
            // The earlier one is the root, so that the result depends on no order.
            const long long a = root_of(i), b = root_of(j);
            if (a < b) s.root[b - first] = a;
            else s.root[a - first] = b;
        });
        for (long long i = first; i < end; ++i)
            if (s.state[i] & begins) s.state[root_of(i)] |= IS_CONCERNED;
        for (long long i = first; i < end; ++i)
            if (s.state[root_of(i)] & IS_CONCERNED) s.state[i] |= IS_CONCERNED;
    }
};

template <int AXES> void find_overlaps(const SingleFits& s, long long first, long long last) {
    const auto is_within = [&](long long i) { return i > 0 && i < s.count && s.frame[i] == s.frame[i - 1]; };
    while (is_within(first)) ++first;
    for (long long end; first < last; first = end) {
        begin(s, first);
        for (end = first + 1; is_within(end); ++end) begin(s, end);
        Frame<AXES> frame(s, first, end);
        frame.find_neighbours();
        if (s.state) frame.find_concerned();
    }
}

}  // namespace

// Of the frames that begin among the positions first ... last - 1.
SPOTFIT_EXPORT void spotfit_find_overlaps(const SingleFits* fits, long long first, long long last) {
    fits->axes == 3 ? find_overlaps<3>(*fits, first, last) : find_overlaps<2>(*fits, first, last);
}
