// Fiducials followed from frame to frame: the displacement of each in a frame, that of all together, and what
// is learnt from them. Compiled once for all machines.
#include "interface.h"
#include "shifts.h"

using namespace spotfit;
using namespace spotfit::health;

namespace {

// Pixels from the border in which a fiducial does not count.
constexpr double MARGIN = 3.0;
// The place of a fiducial is the mean of its places in this many frames, less the displacements; later ones count as
// the last of this many, so that a slow creep of its own is followed. Its light is known from the second number.
constexpr double PLACE_FRAMES = 1000, LIGHT_FRAMES = 30;
// Light is odd that is off by this share of what it was, and by this many standard errors; for one fiducial or two, of
// which a lamp may dim all, by that one. After the last number of successive frames it becomes the fiducial's own.
constexpr double ODD_LIGHT = 0.25, ODD_LIGHT_ERRORS = 8.0, ODD_LIGHT_OF_FEW = 0.6;
constexpr long long PATIENCE = 30;
// Half of all normal deviates are within this.
constexpr double HALF_OF_DEVIATES = 0.6744897502;

double lower(double a, double b) { return a < b ? a : b; }

struct Following {
    Fiducials& f;

    bool is_bent() const { return f.bent[0] != 0 || f.bent[1] != 0 || f.bent[2] != 0 || f.bent[3] != 0; }

    // Calls use(i, by) with how much the place of each moves besides.
    template <class Use> void each_bend(Use use) const {
        double middle[2] = {};
        if (is_bent())
            for (long long i = 0; i < 2 * f.count; ++i) middle[i % 2] += f.places[i] / double(f.count);
        for (long long i = 0; i < f.count; ++i) {
            const double y = f.places[2 * i] - middle[0], x = f.places[2 * i + 1] - middle[1];
            const double by[2] = {f.bent[0] * y + f.bent[1] * x, f.bent[2] * y + f.bent[3] * x};
            use(i, by);
        }
    }

    void expect() const {
        each_bend([&](long long i, const double* by) {
            for (int axis = 0; axis < 2; ++axis)
                f.expected[2 * i + axis] = f.places[2 * i + axis] + f.shift[axis] + by[axis];
        });
    }

    bool is_lost(long long i) const { return f.health[i] == LOST; }
    double relative_light(long long i) const { return double(f.light[i]) / f.photons[i]; }
    // Whether the light of one is known, now and before.
    bool has_light(long long i) const { return !is_lost(i) && f.photons[i] > 0 && f.light[i] == f.light[i]; }

    // By how much all light has changed, as a lamp changes it, and from which share on more is odd. With few others,
    // what a lamp does is not separated from what they do.
    void lamp(double& common, double& least) const {
        long long n = 0;
        for (long long i = 0; i < f.count; ++i)
            if (has_light(i)) f.work[n++] = relative_light(i);
        common = n > 2 ? upper_median(f.work, n) : 1.0;
        least = n > 2 ? ODD_LIGHT : ODD_LIGHT_OF_FEW;
    }

    // Returns DIM or BRIGHT for a fiducial whose light is odd, else GOOD.
    Health judge_light(long long i, double common, double least) const {
        Health found = GOOD;
        if (!(common > 0)) return has_light(i) ? DIM : GOOD;
        if (has_light(i)) {
            const double room = ODD_LIGHT_ERRORS * double(f.light_stderr[i]) / f.photons[i];
            const double allowed = room < least ? least : room, ratio = relative_light(i) / common;
            found = ratio < 1 - allowed ? DIM : ratio > 1 + allowed ? BRIGHT : GOOD;
        }
        f.odd_frames[i] = found == GOOD ? 0 : f.odd_frames[i] + 1;
        if (f.odd_frames[i] > PATIENCE) f.photons[i] = double(f.light[i]) / common, f.odd_frames[i] = 0;
        return found;
    }

    bool is_outside(long long i) const {
        const double y = f.expected[2 * i], x = f.expected[2 * i + 1];
        return y < MARGIN || x < MARGIN || y > f.rows - 1 - MARGIN || x > f.columns - 1 - MARGIN;
    }

    // What a frame shows of each fiducial by itself.
    void judge() const {
        for (long long i = 0; i < f.count; ++i) {
            const float stderrs[2] = {f.y_stderr[i], f.x_stderr[i]};
            for (int axis = 0; axis < 2; ++axis)
                f.errors[2 * i + axis] = stderrs[axis] > 0 ? f.scatter * double(stderrs[axis]) : __builtin_nan("");
            f.shifts[2 * i] = f.y[i] - f.places[2 * i], f.shifts[2 * i + 1] = f.x[i] - f.places[2 * i + 1];
            const double known = f.errors[2 * i] + f.errors[2 * i + 1];
            f.health[i] = (f.flags[i] & unsigned(f.not_found)) != 0 || known != known ? LOST : GOOD;
        }
        double common, least;
        lamp(common, least);
        for (long long i = 0; i < f.count; ++i) {
            const Health light = judge_light(i, common, least);
            f.health[i] = is_outside(i)                               ? OUTSIDE
                          : is_lost(i)                                ? LOST
                          : (f.flags[i] & unsigned(f.saturated)) != 0 ? SATURATED
                          : f.crowded[i]                              ? CROWDED
                                                                      : light;
            f.candidates[i] = f.health[i] == GOOD && f.found_once[i];
        }
    }

    // What the candidates show together; returns how many of them have counted.
    long long find_mean() const {
        each_bend([&](long long i, const double* by) {
            for (int axis = 0; axis < 2; ++axis) f.unbent[2 * i + axis] = f.shifts[2 * i + axis] - by[axis];
        });
        const Shifts all = {f.unbent, f.errors, f.candidates, f.count, 2, f.work, f.taken, f.mean, f.mean_errors};
        const long long used = RobustMean(all).find();
        for (long long i = 0; i < f.count; ++i)
            if (f.candidates[i] && !f.taken[i]) f.health[i] = APART;
        return used;
    }

    // Learns where those that have counted belong, and their light; one that is found for the first time belongs where
    // it is. A deviate of 1 is this many standard errors, as the displacement follows from the same shifts.
    void learn(double usual) const {
        f.beyond = 0;
        each_bend([&](long long i, const double* by) {
            const bool is_new = f.health[i] == GOOD && !f.found_once[i];
            if (!f.taken[i] && !is_new) return;
            if (is_new) f.frames[i] = 0, f.photons[i] = 0, f.found_once[i] = 1;
            const double own = usual * __builtin_sqrt(1 + 1 / f.frames[i]);
            const double frames = lower(f.frames[i] + 1, PLACE_FRAMES);
            for (int axis = 0; axis < 2; ++axis) {
                const double residual = f.shifts[2 * i + axis] - f.shift[axis] - by[axis];
                const double most = HALF_OF_DEVIATES * own * f.errors[2 * i + axis];
                f.beyond += !is_new && __builtin_fabs(residual) > most;
                f.places[2 * i + axis] += residual / frames;
            }
            f.photons[i] += (double(f.light[i]) - f.photons[i]) / lower(frames, LIGHT_FRAMES);
            f.frames[i] = frames;
        });
    }

    // Where fiducials are: as they were found, or where they should be.
    void put_positions() const {
        expect();
        for (long long i = 0; i < f.count; ++i) {
            const unsigned char how = f.health[i];
            const bool seen = how == GOOD || how == SATURATED || how == DIM || how == BRIGHT;
            f.positions[2 * i] = seen ? f.y[i] : f.expected[2 * i];
            f.positions[2 * i + 1] = seen ? f.x[i] : f.expected[2 * i + 1];
        }
    }
};

}  // namespace

SPOTFIT_EXPORT long long spotfit_robust_mean(const Shifts* shifts) { return RobustMean(*shifts).find(); }

// Predicts where the fiducials are.
SPOTFIT_EXPORT void spotfit_expect_fiducials(Fiducials* all) { Following{*all}.expect(); }

SPOTFIT_EXPORT void spotfit_judge_fiducials(Fiducials* all) { Following{*all}.judge(); }

SPOTFIT_EXPORT long long spotfit_move_fiducials(Fiducials* all) { return Following{*all}.find_mean(); }

// Learns from a frame, if any have counted, and returns where the fiducials are.
SPOTFIT_EXPORT void spotfit_learn_fiducials(Fiducials* all, int used, double usual) {
    const Following following{*all};
    if (used) following.learn(usual);
    following.put_positions();
}
