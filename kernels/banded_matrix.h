// A symmetric positive matrix of spots that are sorted: each meets those near it, and all meet the background.
#pragma once
#include "joint.h"

namespace spotfit::SPOTFIT_ISA {

// Rows from the diagonal to the last column that is not zero; the last columns, of the border, are full. The rows of a
// spot, and the border's, end together, at or behind the end of those before.
struct BandedMatrix {
    double* rows;  // of `room` numbers each
    int* end;      // behind the last column of each, without the border
    int size, border, room;
    int block;  // rows of a spot, 3 or 4

    double& at(int i, int j) const { return rows[i * room + j]; }
    int inner() const { return size - border; }

    // A row's numbers from a column on, by those who have the columns `own`, `own` + `apart`, ...
    template <class Function> void over_row(int row_end, int first, int own, int apart, Function each) const {
        over_two_ranges(first, row_end, first > inner() ? first : inner(), size, own, apart, each);
    }
    // Its factor U of U'U / D, in place, with D that of the diagonal of U, whose inverse is there; false if it is not
    // positive.
    bool factor() const { return has_three() ? factor_of<3>() : factor_of<4>(); }
    // Solves U'U v / D = v.
    SPOTFIT_NOT_INLINE void solve(double* v) const {
        forward(v, 0);
        if constexpr (Team::LANES > 1) by_columns(v);
        else by_rows(v);
    }
    // A number of the inverse's diagonal, by memory for a column.
    SPOTFIT_NOT_INLINE double variance(int i, double* v) const {
        share(size - i, [&](int k) { v[i + k] = k == 0; });
        return forward(v, i);
    }

  private:
    bool has_three() const { return axes_of(block - 1) + is_measured_psf(false) == 2; }
    double forward(double* v, int first) const {
        return has_three() ? forward_of<3>(v, first) : forward_of<4>(v, first);
    }
    template <class Function> void share_row(int i, int first, Function each) const {
        over_row(end[i], first, Team::lane(), Team::LANES, each);
    }
    template <int BLOCK> SPOTFIT_NOT_INLINE bool factor_of() const {
        const BandedMatrix m = *this;
        int first = 0;
        if constexpr (Team::LANES == 1) {
            for (; first < m.inner(); first += BLOCK)
                if (!m.factor_block<BLOCK>(first)) return false;
        }
        return m.factor_rows<BLOCK>(first);
    }
    template <int BLOCK> SPOTFIT_INLINE bool factor_rows(int first) const {
        ROLLED
        for (int k = first; k < size;) {
            const int next = k < inner() ? k + BLOCK : size;
            const double* above[4];  // of the border, too
            ROLLED
            for (int i = k; i < next; ++i) {
                double* const row = &at(i, 0);
                Team::wait();
                const double diagonal = row[i];
                if (!(diagonal > 0)) return false;
                const double inverse = 1 / diagonal;
                set(row[i], inverse);
                ROLLED
                for (int below = i + 1; below < next; ++below) {
                    double* const other = &at(below, 0);
                    const double times = row[below] * inverse;
                    share_row(i, below, [&](int j) { other[j] -= times * row[j]; });
                }
                above[i - k] = row;
            }
            const int band = end[k] > next ? end[k] - next : 0, border_first = next > inner() ? next : inner();
            share_lines(band, [&](int i) { take_block<BLOCK>(next + i, k, above); });
            share_lines(size - border_first, [&](int i) { take_block<BLOCK>(border_first + i, k, above); });
            k = next;
        }
        return true;
    }
    // Takes from a row what the rows of a block, from k on, have in common with it.
    template <int BLOCK> void take_block(int i, int k, const double* const* above) const {
        double* __restrict const to = &at(i, 0);
        const double *const a = above[0], *const b = above[1], *const c = above[2], *const d = above[BLOCK - 1];
        const double u = a[i] * a[k], v = b[i] * b[k + 1], w = c[i] * c[k + 2], t = d[i] * d[k + BLOCK - 1];
        over_row(end[k], i, Team::column(), Team::COLUMNS, [&](int j) {
            const double three = u * a[j] + v * b[j] + w * c[j];
            to[j] -= BLOCK == 3 ? three : three + t * d[j];
        });
    }
    // Solves U' v / D = v, from a row on before which v is 0; returns v'v / D.
    template <int BLOCK> SPOTFIT_NOT_INLINE double forward_of(double* v, int first) const {
        const BandedMatrix m = *this;
        double sum = 0;
        ROLLED
        for (int i = first; i < m.size; ++i) {
            if constexpr (Team::LANES == 1) {
                for (; i < m.inner() && i % BLOCK == 0; i += BLOCK) m.forward_block<BLOCK>(v, i, sum);
                if (i == m.size) break;
            }
            const double* const row = &m.at(i, 0);
            Team::wait();
            const double own = v[i] * row[i];
            sum += v[i] * own;
            m.share_row(i, i + 1, [&](int j) { v[j] -= row[j] * own; });
        }
        Team::wait();
        return sum;
    }

    // The same of the rows of a spot at once, as one thread would wait for the numbers of a row that it has just
    // stored: each number is calculated as row by row.
    template <int BLOCK> bool factor_block(int k) const {
        double *own[BLOCK], times[BLOCK][BLOCK];
        UNROLL
        for (int i = 0; i < BLOCK; ++i) own[i] = &at(k + i, 0);
        UNROLL
        for (int i = 0; i < BLOCK; ++i) {
            double* const row = own[i] + k;
            if (!(row[i] > 0)) return false;
            row[i] = 1 / row[i];
            UNROLL
            for (int below = i + 1; below < BLOCK; ++below) {
                times[i][below] = row[below] * row[i];
                UNROLL
                for (int j = below; j < BLOCK; ++j) own[below][k + j] -= times[i][below] * row[j];
            }
        }
        const int next = k + BLOCK, last = end[k], border_first = next > inner() ? next : inner();
        reduce_rows<BLOCK>(own, times, next, last), reduce_rows<BLOCK>(own, times, border_first, size);
        const auto take = [&](int i) {
            double factors[BLOCK];
            UNROLL
            for (int n = 0; n < BLOCK; ++n) factors[n] = own[n][i] * own[n][k + n];
            take_rows<BLOCK>(&at(i, 0), own, factors, i, last);
            take_rows<BLOCK>(&at(i, 0), own, factors, i > border_first ? i : border_first, size);
        };
        for (int i = next; i < last; ++i) take(i);
        for (int i = border_first; i < size; ++i) take(i);
        return true;
    }
    // Takes from the rows of a block, from some columns, what those above in the block have in common with them.
    template <int BLOCK>
    static void reduce_rows(double* const* own, const double (&times)[BLOCK][BLOCK], int first, int last) {
        double* __restrict const a = own[0], * __restrict const b = own[1], * __restrict const c = own[2];
        SHORT_ROW
        for (int j = first; j < last; ++j) {
            b[j] -= times[0][1] * a[j];
            c[j] -= times[0][2] * a[j];
            c[j] -= times[1][2] * b[j];
        }
        if constexpr (BLOCK > 3) {
            double* __restrict const d = own[3];
            SHORT_ROW
            for (int j = first; j < last; ++j) {
                d[j] -= times[0][3] * a[j];
                d[j] -= times[1][3] * b[j];
                d[j] -= times[2][3] * c[j];
            }
        }
    }
    // As take_block.
    template <int BLOCK>
    static void take_rows(double* __restrict to, const double* const* own, const double* factors, int first, int last) {
        const double *const a = own[0], *const b = own[1], *const c = own[2], *const d = own[BLOCK - 1];
        const double u = factors[0], v = factors[1], w = factors[2], t = factors[BLOCK - 1];
        SHORT_ROW
        for (int j = first; j < last; ++j) {
            const double three = u * a[j] + v * b[j] + w * c[j];
            to[j] -= BLOCK == 3 ? three : three + t * d[j];
        }
    }
    template <int BLOCK> void forward_block(double* v, int i, double& sum) const {
        const double* rows_here[BLOCK];
        double own[BLOCK];
        UNROLL
        for (int n = 0; n < BLOCK; ++n) {
            const double* const row = rows_here[n] = &at(i + n, 0);
            own[n] = v[i + n] * row[i + n];
            sum += v[i + n] * own[n];
            UNROLL
            for (int below = n + 1; below < BLOCK; ++below) v[i + below] -= row[i + below] * own[n];
        }
        const int next = i + BLOCK, last = end[i], border_first = next > inner() ? next : inner();
        const auto take = [&](int first, int behind) {
            double* __restrict const to = v;
            SHORT_ROW
            for (int j = first; j < behind; ++j) {
                UNROLL
                for (int n = 0; n < BLOCK; ++n) to[j] -= rows_here[n][j] * own[n];
            }
        };
        take(next, last), take(border_first, size);
    }
    // Solve U v = v; by columns, lanes need not add up what they have of a row.
    void by_rows(double* v) const {
        ROLLED
        for (int i = size - 1; i >= 0; --i) {
            const double* const row = &at(i, 0);
            const int last = end[i] > i ? end[i] : i + 1, first = i < inner() ? inner() : i + 1;
            const double part =
                part_of_dot(row + i + 1, v + i + 1, last - i - 1) + part_of_dot(row + first, v + first, size - first);
            set(v[i], (v[i] - Team::sum(part)) * row[i]);
        }
    }
    void by_columns(double* v) const {
        const BandedMatrix m = *this;
        ROLLED
        for (int i = m.size - 1; i >= 0; --i) {
            Team::wait();
            const double own = v[i] * m.at(i, i);
            Team::wait();
            ROLLED
            for (int k = Team::lane(); k < i; k += Team::LANES)
                if (i >= m.inner() || m.end[k] > i) v[k] -= m.at(k, i) * own;
            if (Team::lane() == 0) v[i] = own;
        }
        Team::wait();
    }
};

}  // namespace spotfit::SPOTFIT_ISA
