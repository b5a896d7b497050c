// A symmetric positive matrix of spots that are sorted: each meets those near it, and all meet the background.
#pragma once

namespace spotfit::SPOTFIT_ISA {

// The sum of products of `count` numbers, some side by side.
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

// Rows from the diagonal to the last column that is not zero; the last columns, of the border, are full. The rows of a
// spot, and the border's, end together, at or behind the end of those before.
struct BandedMatrix {
    double* rows;  // of `room` numbers each
    int* end;      // behind the last column of each, without the border
    int size, border, room;
    int block;  // rows of a spot, 3 or 4

    double& at(int i, int j) const { return rows[static_cast<long long>(i) * room + j]; }
    int inner() const { return size - border; }

    // Its factor U of U'U, in place, with the inverse of each number on the diagonal; false if it is not positive.
    bool factor() const { return block == 3 ? factor_of<3>() : factor_of<4>(); }
    // Solves U'U v = v.
    void solve(double* v) const {
        forward(v, 0);
        for (int i = size - 1; i >= 0; --i) {
            const double* const row = &at(i, 0);
            const int last = end[i] > i ? end[i] : i + 1, first = i < inner() ? inner() : i + 1;
            const double sum =
                v[i] - dot(row + i + 1, v + i + 1, last - i - 1) - dot(row + first, v + first, size - first);
            v[i] = sum * row[i];
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

  private:
    template <class Function> void over_row(int i, int first, Function each) const {
        for (int j = first; j < end[i]; ++j) each(j);
        for (int j = first > inner() ? first : inner(); j < size; ++j) each(j);
    }
    template <int BLOCK> bool factor_of() const {
        for (int k = 0; k < size;) {
            const int next = k < inner() ? k + BLOCK : size;
            const double* above[4];  // of the border, too
            for (int i = k; i < next; ++i) {
                double* const row = &at(i, 0);
                if (!(row[i] > 0)) return false;
                const double inverse = 1 / __builtin_sqrt(row[i]);
                row[i] = inverse;
                over_row(i, i + 1, [&](int j) { row[j] *= inverse; });
                for (int below = i + 1; below < next; ++below) {
                    double* const other = &at(below, 0);
                    const double times = row[below];
                    over_row(i, below, [&](int j) { other[j] -= times * row[j]; });
                }
                above[i - k] = row;
            }
            for (int i = next; i < end[k]; ++i) take_block<BLOCK>(i, k, above);
            for (int i = next > inner() ? next : inner(); i < size; ++i) take_block<BLOCK>(i, k, above);
            k = next;
        }
        return true;
    }
    // Takes from a row what the rows of a block, from k on, have in common with it.
    template <int BLOCK> void take_block(int i, int k, const double* const* above) const {
        double* __restrict const to = &at(i, 0);
        const double *const a = above[0], *const b = above[1], *const c = above[2], *const d = above[BLOCK - 1];
        const double u = a[i], v = b[i], w = c[i], t = d[i];
        const auto take = [&](int j) {
            const double three = u * a[j] + v * b[j] + w * c[j];
            to[j] -= BLOCK == 3 ? three : three + t * d[j];
        };
        for (int j = i; j < end[k]; ++j) take(j);
        for (int j = i > inner() ? i : inner(); j < size; ++j) take(j);
    }
    // Solves U' v = v, from a row on before which v is 0.
    void forward(double* v, int first) const {
        for (int i = first; i < size; ++i) {
            const double* const row = &at(i, 0);
            const double own = v[i] *= row[i];
            over_row(i, i + 1, [&](int j) { v[j] -= row[j] * own; });
        }
    }
};

}  // namespace spotfit::SPOTFIT_ISA
