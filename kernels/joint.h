// Joint fits: spots of one width whose light overlaps, by maximum likelihood. Pixels are scaled so that their variance
// is their mean; then J'WJ with W = 1 / mean is the Fisher information, and W (data - mean) the residual's weight.
#pragma once
#include "functions.h"

namespace spotfit::SPOTFIT_ISA {

// Pixels of a line that are summed side by side, whatever the instruction set.
constexpr int SIDE_BY_SIDE = 16;
using Pixels = Lanes<SIDE_BY_SIDE>;

SPOTFIT_INLINE Pixels load_pixels(const float* from) {
    Pixels p;
    __builtin_memcpy(&p, from, sizeof p);
    return p;
}
SPOTFIT_INLINE void store_pixels(float* to, Pixels p) { __builtin_memcpy(to, &p, sizeof p); }
// In the same order whatever the instruction set.
SPOTFIT_INLINE float sum_of(Pixels p) {
    const auto half = p.v.lo + p.v.hi;
    const auto quarter = half.lo + half.hi;
    const auto two = quarter.lo + quarter.hi;
    return two.x + two.y;
}

// Twice the logarithm of how much likelier the data are than given the mean. A series where they are near each other:
// single precision would lose the difference.
SPOTFIT_INLINE Pixels deviance(Pixels data, Pixels mean) {
    constexpr float SERIES[] = {1.0f, -1.0f / 3, 1.0f / 6, -1.0f / 10, 1.0f / 15};
    const Pixels off = (data - mean) / mean, size = higher_of(absolute(data), Pixels(1e-20f));
    const Pixels far = 2.0f * ((mean - data) + data * logarithm(size / mean));
    return select(absolute(off) < 0.1f, mean * off * off * polynomial(SERIES, off), far);
}

// The profile of unit light along one axis, and its derivative by the centre, at pixels 0 ... count - 1; zero behind.
inline void profile_line(double center, double sigma, bool is_integrated, int count, int padded, float* value,
                         float* slope) {
    const float c = float(center), s = float(1 / sigma);
    const float root = 0.70710678118654752f * s, height = s / ROOT_TWO_PI;
    Pixels x;
    for (int k = 0; k < SIDE_BY_SIDE; ++k) x.v[k] = float(k);
    for (int k = 0; k < padded; k += SIDE_BY_SIDE, x += float(SIDE_BY_SIDE)) {
        const MaskOf<Pixels> is_there = x < float(count);
        const Pixels u = x - c;
        Pixels e, d;
        if (is_integrated) {
            const Pixels low = (u - 0.5f) * root, high = (u + 0.5f) * root;
            const Pixels at_low = exponential(-(low * low)), at_high = exponential(-(high * high));
            e = 0.5f * (error_function(high, at_high) - error_function(low, at_low));
            d = (at_low - at_high) * height;
        } else {
            e = exponential(u * u * (-0.5f * s * s)) * height;
            d = e * u * (s * s);
        }
        store_pixels(value + k, select(is_there, e, Pixels(0.0f)));
        store_pixels(slope + k, select(is_there, d, Pixels(0.0f)));
    }
}

// Sums over the pixels that two spots share of weights times the products of (value, slope along x) of both along x.
// Spots' parameters are x, y and light; what is along y comes line by line.
struct PairSums {
    Pixels of[9];  // light light, light x, light y, x light, x x, x y, y light, y x, y y: first spot, second spot

    PairSums() {
        for (Pixels& sum : of) sum = 0.0f;
    }
    SPOTFIT_INLINE void add(Pixels ee, Pixels ed, Pixels de, Pixels dd, float e1, float d1, float e2, float d2) {
        const float both = e1 * e2, second = e1 * d2, first = d1 * e2;
        of[0] = multiply_add(ee, Pixels(both), of[0]);
        of[1] = multiply_add(ed, Pixels(both), of[1]);
        of[2] = multiply_add(ee, Pixels(second), of[2]);
        of[3] = multiply_add(de, Pixels(both), of[3]);
        of[4] = multiply_add(dd, Pixels(both), of[4]);
        of[5] = multiply_add(de, Pixels(second), of[5]);
        of[6] = multiply_add(ee, Pixels(first), of[6]);
        of[7] = multiply_add(ed, Pixels(first), of[7]);
        of[8] = multiply_add(ee, Pixels(d1 * d2), of[8]);
    }
};

// The sum of products of so many numbers, some side by side.
inline double dot(const double* a, const double* b, int count) {
    using Doubles = double __attribute__((ext_vector_type(8)));
    Doubles sum = 0.0;
    int k = 0;
    for (; k + 8 <= count; k += 8) {
        Doubles x, y;
        __builtin_memcpy(&x, a + k, sizeof x), __builtin_memcpy(&y, b + k, sizeof y);
        sum += x * y;
    }
    double rest = 0;
    for (; k < count; ++k) rest += a[k] * b[k];
    const auto half = sum.lo + sum.hi;
    const auto two = half.lo + half.hi;
    return rest + (two.x + two.y);
}

// A symmetric positive matrix by rows, of which each has numbers from some column on, to its diagonal.
struct Envelope {
    double* rows;  // of `size` numbers each
    int* begin;    // the first column of each
    int size, room;

    double& at(int i, int j) const { return rows[static_cast<long long>(i) * room + j]; }

    // Cholesky's factor, in place; false if it is not positive.
    bool factor() const {
        for (int i = 0; i < size; ++i) {
            double* const row = &at(i, 0);
            for (int j = begin[i]; j <= i; ++j) {
                const double* const other = &at(j, 0);
                const int first = begin[i] > begin[j] ? begin[i] : begin[j];
                const double sum = row[j] - dot(row + first, other + first, j - first);
                if (j < i) row[j] = sum / other[j];
                else if (!(sum > 0)) return false;
                else row[i] = __builtin_sqrt(sum);
            }
        }
        return true;
    }
    // Solves L v = v, from a row on before which v is 0.
    void forward(double* v, int first) const {
        for (int i = first; i < size; ++i) {
            const int low = begin[i] > first ? begin[i] : first;
            v[i] = (v[i] - dot(&at(i, low), v + low, i - low)) / at(i, i);
        }
    }
    void solve(double* v) const {
        forward(v, 0);
        for (int i = size - 1; i >= 0; --i) {
            v[i] /= at(i, i);
            for (int k = begin[i]; k < i; ++k) v[k] -= at(i, k) * v[i];
        }
    }
    // A number of the inverse's diagonal, by memory for a column.
    double variance(int i, double* v) const {
        for (int k = i; k < size; ++k) v[k] = k == i;
        forward(v, i);
        double sum = 0;
        for (int k = i; k < size; ++k) sum += v[k] * v[k];
        return sum;
    }
};

}  // namespace spotfit::SPOTFIT_ISA
