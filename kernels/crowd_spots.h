// The spots of a crowd, in the order of y, each with the lines of its light, or with maps of a measured PSF.
#pragma once
#include "crowd_pixels.h"
#include "crowd_psf.h"

namespace spotfit::SPOTFIT_ISA {

struct Spot {
    double at[ALL_AXES], light;  // from the first pixel of the crowd's box
    double kept_at[ALL_AXES], kept_light;
    double errors[ALL_AXES + 1];    // of its parameters
    double wider, wider_error;      // than `sigma` spots are that moved together, as a fraction
    double ridge, blunt_ridge;      // this one's share of how much likelier ridges are than they are, in nats
    double blurred, blurred_error;  // the share of the light around it that would rather be wider
    double evidence;
    double deviance, tolerated;  // of the pixels that are nearest to it
    long long candidate;
    Footprint shape;
    double strength;  // its evidence, in units of the least
    bool is_dropped, rests, moves;
    int stirred;   // the sweep that last moved it, or added or changed it
    int half;      // which spot was split into it and another one, from 1 on
    bool is_sure;  // it was tried without it, with its neighbour at other heights
    bool is_one;   // it was split, and the data did not need both halves
    bool is_held;  // it does not move, but its light does
};

class CrowdSpots : protected CrowdPixels {
  protected:
    // The most spots of a crowd: for each candidate, and besides. No crowd of the densest simulations came to half of
    // that. Where candidates are few, more than MANY for each are something extended.
    static constexpr int HIDDEN_EACH = 3, HIDDEN = 24, MANY = 9;
    // Up to how many widths of a spot from one that was stirred others move, too, where steps take long.
    static constexpr double WAITS = 3;
    // How far spots may have moved along y since they were sorted, in pixels: what moves farther may be overlooked.
    static constexpr double SLACK = 3;

    const int line;  // numbers of a line of a spot's light, with as many zeros as are summed side by side behind them
    const long long most;
    Spot* spots;
    int count = 0;
    float* spare_lines;                    // for one more
    double stretch[ALL_AXES] = {1, 1, 1};  // how many times as wide spots are as the PSF
    int sweep = 0;                         // the number of the last one
    bool is_evaluated = false;             // whether the mean of all pixels, their weights and pulls are the spots'
    bool has_normal = false;               // whether their Fisher information is known then, too, in their order

    CrowdSpots(const JointFits& fits, long long which, void* work)
        : CrowdPixels(fits, which, work), line(longest_line(fits)), most(most_spots(end - begin)) {
        spots = memory.take<Spot>(most);
        plane = memory.take<float>(2), spare_lines = memory.take<float>(numbers_of_spot());
        ones = has_psf() ? memory.take<float>(2 * f.reach[Y] + 1) : nullptr;
        splines = has_psf() ? memory.take<float>(lines_of_splines(2 * f.reach[Y] + 1) * line) : nullptr;
        lines_of_spots = memory.take<float>(numbers_of_spot() * most);
    }
    static long long most_spots(long long candidates) {
        const long long few = candidates * (MANY + 1), many = candidates * HIDDEN_EACH + HIDDEN;
        return few < many ? few : many;
    }
    // Numbers of a spot's place: with a measured PSF, z in nm is one of them in planes, too.
    int places() const { return axes() + has_psf(); }
    // Numbers of a spot: its place and its light, the last one.
    int parameters() const { return places() + 1; }

    SPOTFIT_NOT_INLINE void begin_lines() {
        alone([&] { plane[0] = 1, plane[1] = 0; });
        if (has_psf()) share(2 * f.reach[Y] + 1, [&](int k) { ones[k] = 1; });
    }
    // The light of spots where they are: of one, or of the k-th of some.
    void shape(Spot& s) const { shape_each(&s, nullptr, 1); }
    SPOTFIT_NOT_INLINE void shape_each(Spot* all, const int* which, int some) const {
        const auto spot = [&](int k) -> Spot& { return all[which ? which[k] : k]; };
        share(some, [&](int k) {
            Spot& s = spot(k);
            ROLLED
            for (int axis = X; axis < axes(); ++axis)
                s.shape.first[axis] = static_cast<int>(whole(s.at[axis])) - f.reach[axis];
        });
        if (has_psf()) {
            ROLLED
            for (int k = 0; k < some; ++k) fill_psf<true>(spot(k).shape, spot(k).at);
            return;
        }
        share_lines(some * axes(), [&](int k) {
            const Spot& s = spot(k / axes());
            fill_line(s.shape, s.at, k % axes(), 1);
        });
    }
    template <bool HAS_SLOPES> SPOTFIT_NOT_INLINE void fill_psf(const Footprint& p, const double* place) const {
        const double among_knots[] = {f.psf.x + p.first[X] - place[X], f.psf.y + p.first[Y] - place[Y],
                                      f.psf.z + place[Z] * f.psf.planes_per_nm};
        fill_maps<HAS_SLOPES>(f.psf, among_knots, p.size[Y], p.size[X], line, splines, p.slope[X]);
    }
    // A footprint of its own, in `spare_lines`, for most of the light of a spot at a place.
    Footprint spare_shape(const double* place) const {
        Footprint p = spots[0].shape;
        ROLLED
        for (int axis = X; axis < axes(); ++axis)
            p.first[axis] = static_cast<int>(whole(place[axis])) - core(axis), p.size[axis] = 2 * core(axis) + 1;
        p.slope[X] = spare_lines, p.value[X] = map_of(p, LIGHT_MAP);
        return p;
    }
    static float* map_of(const Footprint& p, int map) { return p.slope[X] + map * p.size[Y] * p.pitch; }
    // The line along an axis of a spot that is wider than others by a factor.
    void fill_line(const Footprint& p, const double* place, int axis, double wider) const {
        profile_line(place[axis] - p.first[axis], f.sigma[axis] * wider * stretch[axis], f.is_integrated, p.size[axis],
                     line - SIDE_BY_SIDE, p.value[axis], p.slope[axis]);
    }
    SPOTFIT_NOT_INLINE void add(const double* place, double light, long long candidate) {
        Spot& s = spots[count];
        const bool is_first = count == given;
        alone([&] {
            const Footprint lines = is_first ? lines_of(count) : s.shape;
            s = {};
            s.shape = lines;
            ROLLED
            for (int axis = X; axis < ALL_AXES; ++axis) s.at[axis] = place[axis];
            s.light = light, s.candidate = candidate, s.stirred = sweep + 1;
            is_evaluated = false, given += is_first;
        });
        float* const own = has_psf() ? s.shape.slope[X] : s.shape.value[X];
        if (is_first) share(numbers_of_spot(), [&](long long k) { own[k] = 0; });
        shape(s);
        set(count, count + 1);
    }
    // Whether there were any.
    SPOTFIT_NOT_INLINE bool remove_dropped() {
        if (Team::last_of(0, count, [&](int i) { return spots[i].is_dropped; }) < 0) return false;
        alone([&] {
            int kept = 0, kept_sorted = 0;
            ROLLED
            for (int i = 0; i < count; ++i) {
                if (spots[i].is_dropped) continue;
                // Those that come later have the lines of what is dropped.
                const Footprint lines = spots[kept].shape;
                if (i > kept) spots[kept] = spots[i], spots[i].shape = lines;
                ++kept;
                if (i < sorted) kept_sorted = kept;
            }
            count = kept, sorted = kept_sorted, is_evaluated = false;
        });
        return true;
    }
    // In the order of y, x and z, whatever they were added in.
    SPOTFIT_NOT_INLINE void sort() {
        const auto is_before = [](const Spot& a, const Spot& b) {
            if (a.at[Y] != b.at[Y]) return a.at[Y] < b.at[Y];
            return a.at[X] < b.at[X] || (a.at[X] == b.at[X] && a.at[Z] < b.at[Z]);
        };
        alone([&] {
            ROLLED
            for (int i = 1; i < count; ++i) {
                if (!is_before(spots[i], spots[i - 1])) continue;
                const Spot own = spots[i];
                int k = i;
                ROLLED
                for (; k > 0 && is_before(own, spots[k - 1]); --k) spots[k] = spots[k - 1];
                spots[k] = own;
                has_normal = false;
            }
            sorted = count;
        });
    }
    // Whether something is true of any spot that may be within a distance of a place along y.
    template <class Function> SPOTFIT_INLINE bool any_near(double y, double far, Function is_true) const {
        ROLLED
        for (int j = first_near(y, far); j < count; ++j) {
            if (j < sorted && spots[j].at[Y] > y + far + SLACK) j = sorted - 1;
            else if (is_true(j)) return true;
        }
        return false;
    }
    // Whether a spot, or one near it, has been stirred since a sweep: a step of a measured PSF takes long, so that
    // others wait until the end.
    SPOTFIT_NOT_INLINE bool is_near_stirred(int i, int since, double widths = WAITS) const {
        const double far = widths * f.sigma[X];
        return any_near(spots[i].at[Y], far, [&](int j) {
            return spots[j].stirred >= since && square_between(spots[j].at, spots[i].at) < square_of(far);
        });
    }

  private:
    int sorted = 0;                 // spots, the first ones, others have been added since
    int given = 0;                  // the most spots that there have been, each with its lines
    float *plane, *lines_of_spots;  // along z, of spots in planes: 1, and its slope
    float *ones, *splines;          // along y, of a measured PSF; and what making its maps takes

    // The first of them that may be within a distance of a place along y: they have moved a little.
    SPOTFIT_NOT_INLINE int first_near(double y, double far) const {
        int low = 0, high = sorted;
        ROLLED
        while (low < high) {
            const int middle = (low + high) / 2;
            if (spots[middle].at[Y] < y - far - SLACK) low = middle + 1;
            else high = middle;
        }
        return low;
    }
    static int longest_line(const JointFits& fits) {
        int longest = 0;
        ROLLED
        for (const int reach : fits.reach) longest = reach > longest ? reach : longest;
        return static_cast<int>(padded(2 * longest + 1)) + SIDE_BY_SIDE;
    }
    // Of all lines of a spot.
    long long numbers_of_spot() const {
        return has_psf() ? static_cast<long long>(PSF_MAPS) * (2 * f.reach[Y] + 1) * line : 2ll * axes() * line;
    }
    Footprint lines_of(int i) const {
        float* own = lines_of_spots + numbers_of_spot() * i;
        Footprint p = {};
        ROLLED
        for (int axis = X; axis < ALL_AXES; ++axis) p.first[axis] = 0, p.size[axis] = 2 * f.reach[axis] + 1;
        p.value[Z] = plane, p.slope[Z] = plane + 1;
        if (has_psf()) {
            p.pitch = line, p.slope[X] = own, p.value[X] = map_of(p, LIGHT_MAP), p.value[Y] = p.slope[Y] = ones;
            return p;
        }
        ROLLED
        for (int axis = X; axis < axes(); ++axis, own += 2 * line) p.value[axis] = own, p.slope[axis] = own + line;
        return p;
    }
};

}  // namespace spotfit::SPOTFIT_ISA
