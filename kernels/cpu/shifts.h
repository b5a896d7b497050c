// One displacement of many shifts: their weighted mean, robust against some that are wrong.
#pragma once
#include "../layouts/fiducials.h"

namespace {

using spotfit::Shifts;

// Shifts count that lie within this many of their standard errors of the others, which include a little for what
// no error covers: a few thousandths of a pixel.
constexpr double SHIFTS_WITHIN = 4.0, SHIFT_BESIDES = 0.003;
// From this number on the mean of all is tried first.
constexpr long long MANY_SHIFTS = 8;
// Medians are not as precise as means: so much more is allowed for at first.
constexpr double OF_MEDIAN = 1.25;

// The median of some numbers, of two in the middle the upper one; they are put in another order.
inline double upper_median(double* values, long long count) {
    const long long middle = count / 2;
    long long first = 0, last = count - 1;
    while (first < last) {
        const double pivot = values[first + (last - first) / 2];
        long long i = first, j = last;
        while (i <= j) {
            while (values[i] < pivot) ++i;
            while (values[j] > pivot) --j;
            if (i > j) break;
            const double one = values[i];
            values[i++] = values[j], values[j--] = one;
        }
        if (middle <= j) last = j;
        else if (middle >= i) first = i;
        else break;
    }
    return values[middle];
}

class RobustMean {
    const Shifts& s;

    // Whether a candidate lies so near to a place along all axes.
    bool is_near(long long i, const double* center, double times, const double* more) const {
        for (int axis = 0; axis < s.axes; ++axis) {
            const double error = s.errors[s.axes * i + axis];
            const double allowed = SHIFTS_WITHIN * __builtin_sqrt(error * error + SHIFT_BESIDES * SHIFT_BESIDES);
            if (!(__builtin_fabs(s.shifts[s.axes * i + axis] - center[axis]) <= times * allowed + more[axis]))
                return false;
        }
        return true;
    }

    // Takes the candidates that are near to a place, unless none is; returns how many are.
    long long take_near(const double* center, double times, const double* more) const {
        long long near = 0;
        for (long long i = 0; i < s.count; ++i) near += s.candidates[i] && is_near(i, center, times, more);
        for (long long i = 0; near > 0 && i < s.count; ++i)
            s.taken[i] = s.candidates[i] && is_near(i, center, times, more);
        return near;
    }

    void mean_of_taken() const {
        for (int axis = 0; axis < s.axes; ++axis) {
            double sum = 0, total = 0;
            for (long long i = 0; i < s.count; ++i)
                if (s.taken[i]) {
                    const double error = s.errors[s.axes * i + axis];
                    const double weight = 1 / (error * error);
                    total += weight, sum += weight * s.shifts[s.axes * i + axis];
                }
            s.mean[axis] = sum / total, s.mean_errors[axis] = 1 / __builtin_sqrt(total);
        }
    }

    // Of two that do not agree the sharper one stays, as either may be wrong.
    void keep_sharper() const {
        long long both[2], n = 0;
        for (long long i = 0; i < s.count; ++i)
            if (s.candidates[i]) both[n++] = i;
        const double *one = s.errors + s.axes * both[0], *other = s.errors + s.axes * both[1];
        double errors[2] = {};  // of both, the sum over the axes
        bool agree = true;
        for (int axis = 0; axis < s.axes; ++axis) {
            const double step = s.shifts[s.axes * both[0] + axis] - s.shifts[s.axes * both[1] + axis];
            const double variance = one[axis] * one[axis] + other[axis] * other[axis] + SHIFT_BESIDES * SHIFT_BESIDES;
            errors[0] += one[axis], errors[1] += other[axis];
            agree = agree && __builtin_fabs(step) <= SHIFTS_WITHIN * __builtin_sqrt(variance);
        }
        if (!agree) s.taken[both[errors[1] <= errors[0] ? 0 : 1]] = 0;
    }

    // The median along an axis, and that of the distances from it.
    void middle(int axis, double& center, double& spread) const {
        long long n = 0;
        for (long long i = 0; i < s.count; ++i)
            if (s.candidates[i]) s.work[n++] = s.shifts[s.axes * i + axis];
        center = upper_median(s.work, n);
        for (long long k = 0; k < n; ++k) s.work[k] = __builtin_fabs(s.work[k] - center);
        spread = upper_median(s.work, n);
    }

  public:
    explicit RobustMean(const Shifts& shifts) : s(shifts) {}

    // Writes what has counted and its mean, NaN where nothing may; returns how many have counted.
    long long find() const {
        long long candidates = 0, taken = 0;
        for (long long i = 0; i < s.count; ++i) candidates += s.taken[i] = s.candidates[i];
        if (candidates == 2) keep_sharper();
        mean_of_taken();
        if (candidates == 0)
            for (int axis = 0; axis < s.axes; ++axis) s.mean[axis] = s.mean_errors[axis] = __builtin_nan("");
        const double nothing[2] = {};
        // None of many that lies apart can hide by drawing their mean to itself.
        const bool agree = candidates >= MANY_SHIFTS && take_near(s.mean, 1, nothing) == candidates;
        if (candidates > 2 && !agree) {
            double center[2], spread[2];
            for (int axis = 0; axis < s.axes; ++axis) middle(axis, center[axis], spread[axis]);
            for (long long i = 0; i < s.count; ++i) s.taken[i] = s.candidates[i];
            if (take_near(center, OF_MEDIAN, spread)) {
                mean_of_taken();
                take_near(s.mean, 1, nothing);
            }
            mean_of_taken();
        }
        for (long long i = 0; i < s.count; ++i) taken += s.taken[i];
        return taken;
    }
};

}  // namespace
