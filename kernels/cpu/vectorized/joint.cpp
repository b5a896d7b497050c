// Joint fits of a crowd: its pixels are those around its candidates that are nearer to it than to any other. Spots are
// moved until the likelihood is highest; what the residual shows is added, and what the data do not need dropped.
#include "../joint.h"

#include "../../joint.h"
#include "../instruction_set.h"
#include "tables.h"

namespace spotfit::SPOTFIT_ISA {
namespace {

// In units of the spots' width: how far their light counts; how large the cells are in which the spots of a large
// crowd move together; spots nearer to each other are one; how far apart the halves of one that is split are put; how
// far around a spot that is dropped the others stay until they were fitted without it.
constexpr double REACH = 4.5, CELL = 16, ONE_SPOT = 0.6, HALF_APART = 0.6, APART = 3;
// Spots that move together at most, hidden ones that a crowd may have, and so many for each candidate.
constexpr int TOGETHER = 96, HIDDEN = 24, HIDDEN_EACH = 3;
// The lowest mean of a pixel; the longest step in pixels; changes of the logarithm of the likelihood below which spots
// rest while they are counted, in the end, and in a large crowd.
constexpr float LOWEST = 0.05f;
constexpr double LONGEST = 0.7, ROUGH = 0.02, FINE = 1e-4, SLOW = 0.2;
constexpr int ROUGH_STEPS = 12, STEPS_WITHOUT = 20, DROPS = 3, SWEEPS = 6, LAST_SWEEPS = 20;
// Evidence, in units of the least, above which a spot is needed beyond doubt.
constexpr double SURE = 5;
// A spot is split to see whether it is two from this score on: twice the logarithm of a likelihood, of a quadrupole.
constexpr float QUADRUPOLE = 11;
// Spots whose score is above the least by so much are added before others; how often spots are added.
constexpr double CLEAR = 2;
constexpr int ROUNDS = 4;
constexpr double SHAPE = 0.05, DEVIATIONS = 5;  // how far the shape may be off, and the deviance, to be no blob

constexpr long long padded(long long count) { return (count + SIDE_BY_SIDE - 1) / SIDE_BY_SIDE * SIDE_BY_SIDE; }
double larger(double a, double b) { return a > b ? a : b; }
double smaller(double a, double b) { return a < b ? a : b; }
double square_of(double a) { return a * a; }
// To the nearest whole number, upwards from halves.
long long whole(double x) {
    const long long cut = static_cast<long long>(x + 0.5);
    return cut - (double(cut) > x + 0.5);
}

struct Memory {
    unsigned char* at;
    template <class T> T* take(long long count) {
        T* const own = reinterpret_cast<T*>(at);
        at += (count * static_cast<long long>(sizeof(T)) + 63) / 64 * 64;
        return own;
    }
};

// What is the product of a line along y and one along x: a spot of unit light, or a cell's share of the background.
struct Product {
    int top, left, rows, columns;
    float *y, *slope_y, *x, *slope_x;
};

struct Spot {
    double y, x, light;  // from the first pixel of the crowd's box
    double kept_y, kept_x, kept_light;
    double errors[3], before[3];  // of x, y and light
    double evidence;
    long long candidate;
    Product shape;
    bool is_dropped, is_tested, rests;
};

class Crowd {
    const JointFits& f;
    const long long number, begin, end;  // its candidates
    const int reach, line;               // of a spot's light, and numbers of a line of it
    long long top, left;                 // of its box in the frame
    int rows, columns, cells_down, cells_across;
    double cell_rows, cell_columns;
    long long stride, margin, most;
    Memory memory;
    float *data, *counts, *mean, *base, *trial, *weight, *pull, *other;
    float *cell_y, *cell_x;    // the background's shares, line by line of cells
    float *slope_y, *slope_x;  // its slopes, where there is one cell
    float* lines_of_spots;
    double *level, *level_errors;
    Spot* spots;
    int count = 0;
    // Of spots that move together.
    int* together;
    int moving = 0;
    bool is_shifted = false;  // by half a cell
    Product ground[3];
    Envelope normal, factor;
    double *gradient, *step;

    float* at(float* plane, long long y) const { return plane + y * stride + margin; }

    void find_box() {
        double low[2], high[2];
        for (long long k = begin; k < end; ++k)
            for (int axis = 0; axis < 2; ++axis) {
                const double x = f.places[2 * f.members[k] + axis];
                if (k == begin || x < low[axis]) low[axis] = x;
                if (k == begin || x > high[axis]) high[axis] = x;
            }
        const long long least[] = {f.first_row, 0}, ends[] = {f.first_row + f.height, f.width};
        long long first[2], size[2];
        for (int axis = 0; axis < 2; ++axis) {
            const long long a = whole(low[axis]) - reach, b = whole(high[axis]) + reach + 1;
            first[axis] = a > least[axis] ? a : least[axis];
            size[axis] = (b < ends[axis] ? b : ends[axis]) - first[axis];
        }
        top = first[0], left = first[1];
        rows = static_cast<int>(size[0]), columns = static_cast<int>(size[1]);
        const double side = CELL * f.sigma;
        cells_down = rows > 2 * side ? static_cast<int>(rows / side) : 1;
        cells_across = columns > 2 * side ? static_cast<int>(columns / side) : 1;
        cell_rows = double(rows) / cells_down, cell_columns = double(columns) / cells_across;
        margin = padded(reach + 1);
        stride = margin + padded(columns) + margin + SIDE_BY_SIDE;
    }
    int cells() const { return cells_down * cells_across; }
    // Numbers of the background that move with the spots of a cell.
    int levels() const { return cells() == 1 ? 3 : 1; }

    void divide() {
        const long long area = rows * stride;
        float** const planes[] = {&data, &counts, &mean, &base, &trial, &weight, &pull, &other};
        for (float** plane : planes) *plane = memory.take<float>(area);
        const long long along_x = padded(columns) + SIDE_BY_SIDE, along_y = padded(rows) + SIDE_BY_SIDE;
        cell_y = memory.take<float>(along_y * (cells_down + 1));
        cell_x = memory.take<float>(along_x * (cells_across + 1));
        slope_y = memory.take<float>(along_y), slope_x = memory.take<float>(along_x);
        level = memory.take<double>(cells() + 2), level_errors = memory.take<double>(cells());
        spots = memory.take<Spot>(most);
        lines_of_spots = memory.take<float>(4 * line * most);
        const int size = 3 * (most < TOGETHER ? static_cast<int>(most) : TOGETHER) + 3;
        together = memory.take<int>(most);
        Envelope* const matrices[] = {&normal, &factor};
        for (Envelope* matrix : matrices) {
            matrix->room = size;
            matrix->rows = memory.take<double>(static_cast<long long>(size) * size);
            matrix->begin = memory.take<int>(size);
        }
        gradient = memory.take<double>(size), step = memory.take<double>(size);
    }

    // The share of a cell in the background at each place along an axis: all of it in its middle, none in the next
    // cell's. Behind those of the last cell is a line of none, which stands for their slopes.
    static void fill_shares(float* share, long long stride, int cells, double side, int size) {
        for (int c = 0; c <= cells; ++c)
            for (long long k = 0; k < stride; ++k) share[c * stride + k] = 0;
        for (int k = 0; k < size; ++k) {
            const double place = (k + 0.5) / side - 0.5;
            int low = place > 0 ? static_cast<int>(place) : 0;
            if (low > cells - 1) low = cells - 1;
            double rest = place - low;
            rest = rest < 0 ? 0 : rest > 1 ? 1 : rest;
            if (low == cells - 1) rest = 0;
            share[low * stride + k] = float(1 - rest), share[(low + 1) * stride + k] = float(rest);
        }
    }

    // From -1 to 1.
    static void fill_slope(float* slope, long long stride, int size) {
        for (long long k = 0; k < stride; ++k) slope[k] = k < size ? float((2.0 * double(k) + 1) / size - 1) : 0;
    }

    template <class T> void load(const T* frame) {
        for (int y = 0; y < rows; ++y) {
            const T* const from = frame + (top - f.first_row + y) * f.width + left;
            float *const to = at(data, y), *const own = at(counts, y);
            for (int x = 0; x < columns; ++x) {
                const double value = double(from[x]) * f.scale + f.shift;
                const bool is_good = value - value == 0;
                to[x] = is_good ? float(value) : 0;
                if (!is_good) own[x] = 0;
            }
        }
    }

    // Marks the pixels around places that are nearer to them than what is there.
    void mark_near(float* distances, double y, double x) const {
        const long long low_y = whole(y) - reach - top, low_x = whole(x) - reach - left;
        for (long long v = low_y < 0 ? 0 : low_y; v <= low_y + 2 * reach && v < rows; ++v)
            for (long long u = low_x < 0 ? 0 : low_x; u <= low_x + 2 * reach && u < columns; ++u) {
                const float far = float(square_of(double(v + top) - y) + square_of(double(u + left) - x));
                float& own = at(distances, v)[u];
                if (far < own) own = far;
            }
    }

    void find_pixels() {
        const long long area = rows * stride;
        const float most_far = float(square_of(reach + 0.5));
        for (long long k = 0; k < area; ++k) {
            counts[k] = data[k] = base[k] = weight[k] = pull[k] = 0, mean[k] = 1;
            trial[k] = other[k] = INFINITE;
        }
        for (long long k = begin; k < end; ++k)
            mark_near(trial, f.places[2 * f.members[k]], f.places[2 * f.members[k] + 1]);
        const long long frame = f.frame[f.members[begin]];
        long long low = 0, high = f.count;
        while (low < high) {
            const long long middle = (low + high) / 2;
            const bool is_before =
                f.frame[middle] < frame || (f.frame[middle] == frame && f.places[2 * middle] < double(top - reach - 1));
            if (is_before) low = middle + 1;
            else high = middle;
        }
        for (long long i = low, k = begin; i < f.count && f.frame[i] == frame; ++i) {
            const double y = f.places[2 * i], x = f.places[2 * i + 1];
            if (y > double(top + rows + reach + 1)) break;
            while (k < end && f.members[k] < i) ++k;
            if (k < end && f.members[k] == i) continue;
            if (x > double(left - reach - 1) && x < double(left + columns + reach + 1)) mark_near(other, y, x);
        }
        for (long long k = 0; k < area; ++k) {
            counts[k] = trial[k] <= most_far && trial[k] < other[k];
            trial[k] = 1, other[k] = 0;
        }
        const long long first = frame * f.height * f.width;
        switch (f.pixel_type) {
            case 0: load(static_cast<const unsigned char*>(f.frames) + first); break;
            case 1: load(static_cast<const unsigned short*>(f.frames) + first); break;
            case 2: load(static_cast<const short*>(f.frames) + first); break;
            case 3: load(static_cast<const float*>(f.frames) + first); break;
            default: load(static_cast<const double*>(f.frames) + first);
        }
    }

    // The mean of the pixels without those that are far above it, time and again.
    double lowest_level() const {
        double sum = 0, most_value = 1e300, value = LOWEST;
        for (int k = 0; k < 3; ++k) {
            long long n = 0;
            sum = 0;
            for (int y = 0; y < rows; ++y)
                for (int x = 0; x < columns; ++x) {
                    const float own = at(data, y)[x];
                    if (at(counts, y)[x] > 0 && own < most_value) sum += own, ++n;
                }
            if (!n) break;
            value = sum / double(n);
            most_value = value + __builtin_sqrt(larger(value, 1));
        }
        return larger(value, LOWEST);
    }

    double least_light(double ground) const {
        return f.least_score * __builtin_sqrt(4 * double(PI) * larger(ground, 1)) * f.sigma;
    }

    void shape(Spot& s) const {
        s.shape.top = static_cast<int>(whole(s.y)) - reach, s.shape.left = static_cast<int>(whole(s.x)) - reach;
        const int side = 2 * reach + 1;
        profile_line(s.y - s.shape.top, f.sigma, f.is_integrated, side, line, s.shape.y, s.shape.slope_y);
        profile_line(s.x - s.shape.left, f.sigma, f.is_integrated, side, line, s.shape.x, s.shape.slope_x);
    }
    void add(double y, double x, double light, long long candidate) {
        Spot& s = spots[count];
        s = {};
        give_lines(count);
        s.y = y, s.x = x, s.light = light, s.candidate = candidate;
        shape(s);
        ++count;
    }
    void give_lines(int i) {
        float* const own = lines_of_spots + 4ll * line * i;
        spots[i].shape = {0, 0, 2 * reach + 1, 2 * reach + 1, own, own + line, own + 2 * line, own + 3 * line};
    }

    // ---- the likelihood of spots that move together ----
    // Whether a spot would be at, or beside, a pixel that counts.
    bool has_pixels(double y, double x) const {
        const int v = static_cast<int>(whole(y)), u = static_cast<int>(whole(x));
        for (int k = v > 0 ? v - 1 : 0; k <= v + 1 && k < rows; ++k)
            for (int i = u - 1; i <= u + 1; ++i)
                if (at(counts, k)[i] > 0) return true;
        return false;
    }
    // The part of the box in which their mean changes.
    int first_row, last_row, first_column, last_column;
    double least_y, most_y, least_x, most_x;  // where the spots may move

    static void add_product(const Crowd& c, const Product& p, float factor, float* plane) {
        const int begin = p.top > c.first_row ? p.top : c.first_row;
        const int end = p.top + p.rows < c.last_row ? p.top + p.rows : c.last_row;
        for (int y = begin; y < end; ++y) {
            const Pixels height = factor * p.y[y - p.top];
            float* const to = c.at(plane, y) + p.left;
            for (int x = 0; x < p.columns; x += SIDE_BY_SIDE)
                store_pixels(to + x, multiply_add(load_pixels(p.x + x), height, load_pixels(to + x)));
        }
    }

    void choose(int cell, int from) {
        moving = 0;
        double low[2] = {1e300, 1e300}, high[2] = {-1e300, -1e300};
        for (int i = 0, seen = 0; i < count && moving < TOGETHER; ++i)
            if (cells() == 1 || cell_of(spots[i]) == cell) {
                if (seen++ < from) continue;
                together[moving++] = i;
                const Spot& s = spots[i];
                low[0] = smaller(low[0], s.y), high[0] = larger(high[0], s.y);
                low[1] = smaller(low[1], s.x), high[1] = larger(high[1], s.x);
            }
        find_ground(cell);
        const int v = cell / cells_across, u = cell % cells_across;
        first_row = first_column = 0, last_row = rows, last_column = static_cast<int>(padded(columns));
        least_y = least_x = -0.5, most_y = rows - 0.5, most_x = columns - 0.5;
        if (cells() == 1) return;
        // Where the cell's share of the background is, and a step's length around the spots.
        const auto clip = [](double x, int most) { return x < 0 ? 0 : x > most ? most : static_cast<int>(x); };
        low[0] = smaller(low[0] - reach - 3, (v - 0.5) * cell_rows - 1),
        high[0] = larger(high[0] + reach + 4, (v + 1.5) * cell_rows + 2);
        low[1] = smaller(low[1] - reach - 3, (u - 0.5) * cell_columns - 1),
        high[1] = larger(high[1] + reach + 4, (u + 1.5) * cell_columns + 2);
        first_row = clip(low[0], rows), last_row = clip(high[0], rows);
        first_column = clip(low[1], columns) / SIDE_BY_SIDE * SIDE_BY_SIDE;
        last_column = static_cast<int>(padded(clip(high[1], columns)));
        if (first_row > 0) least_y = first_row + reach + 0.5;
        if (last_row < rows) most_y = last_row - reach - 1.5;
        if (first_column > 0) least_x = first_column + reach + 0.5;
        if (last_column < columns) most_x = last_column - reach - 1.5;
    }
    void find_ground(int cell) {
        const long long along_x = padded(columns) + SIDE_BY_SIDE, along_y = padded(rows) + SIDE_BY_SIDE;
        float *const y = cell_y + cell / cells_across * along_y, *const x = cell_x + cell % cells_across * along_x;
        float *const none_y = cell_y + cells_down * along_y, *const none_x = cell_x + cells_across * along_x;
        ground[0] = {0, 0, rows, columns, y, none_y, x, none_x};
        ground[1] = {0, 0, rows, columns, slope_y, none_y, x, none_x};
        ground[2] = {0, 0, rows, columns, y, none_y, slope_x, none_x};
    }
    int cell_of(const Spot& s) const {
        const double shift = is_shifted ? 0.5 : 0;
        int v = static_cast<int>(larger((s.y + 0.5) / cell_rows + shift, 0));
        int u = static_cast<int>(larger((s.x + 0.5) / cell_columns + shift, 0));
        if (v >= cells_down) v = cells_down - 1;
        if (u >= cells_across) u = cells_across - 1;
        return v * cells_across + u;
    }

    template <class Function> void over_part(Function each) const {
        for (int y = first_row; y < last_row; ++y)
            for (int x = first_column; x < last_column; x += SIDE_BY_SIDE) each(y * stride + margin + x);
    }

    // Light that does not move.
    void find_base(int cell) {
        over_part([&](long long k) { store_pixels(base + k, load_pixels(mean + k)); });
        for (int i = 0; i < moving; ++i)
            add_product(*this, spots[together[i]].shape, -float(spots[together[i]].light), base);
        for (int k = 0; k < levels(); ++k) add_product(*this, ground[k], -float(level[cell + k]), base);
    }
    void keep_mean() {
        over_part([&](long long k) { store_pixels(mean + k, load_pixels(trial + k)); });
    }

    // The mean of the pixels into `trial`, with their weights and the residual's; returns the deviance / 2.
    double evaluate(int cell) {
        over_part([&](long long k) { store_pixels(trial + k, load_pixels(base + k)); });
        for (int k = 0; k < levels(); ++k) add_product(*this, ground[k], float(level[cell + k]), trial);
        for (int i = 0; i < moving; ++i)
            add_product(*this, spots[together[i]].shape, float(spots[together[i]].light), trial);
        double sum = 0;
        for (int y = first_row; y < last_row; ++y) {
            Pixels of_row = 0.0f;
            for (int x = first_column; x < last_column; x += SIDE_BY_SIDE) {
                const long long k = y * stride + margin + x;
                const Pixels own = load_pixels(data + k), is_there = load_pixels(counts + k);
                const Pixels expected = higher_of(load_pixels(trial + k), Pixels(LOWEST));
                const Pixels w = is_there / expected;
                store_pixels(trial + k, expected), store_pixels(weight + k, w);
                store_pixels(pull + k, w * (own - expected));
                of_row = multiply_add(is_there, deviance(own, expected), of_row);
            }
            sum += sum_of(of_row);
        }
        return sum / 2;
    }

    // The part of the box that two products share.
    struct Shared { int begin, bottom, first, last; };
    Shared shared(const Product& a, const Product& b) const {
        Shared s;
        s.begin = a.top > b.top ? a.top : b.top, s.first = a.left > b.left ? a.left : b.left;
        const int bottom_a = a.top + a.rows, bottom_b = b.top + b.rows;
        const int end_a = a.left + a.columns, end_b = b.left + b.columns;
        s.bottom = bottom_a < bottom_b ? bottom_a : bottom_b, s.last = end_a < end_b ? end_a : end_b;
        if (s.begin < first_row) s.begin = first_row;
        if (s.bottom > last_row) s.bottom = last_row;
        return s;
    }
    PairSums sums(const Product& a, const Product& b) const {
        PairSums s;
        const Shared part = shared(a, b);
        for (int x = part.first; x < part.last; x += SIDE_BY_SIDE) {
            const Pixels xa = load_pixels(a.x + (x - a.left)), da = load_pixels(a.slope_x + (x - a.left));
            const Pixels xb = load_pixels(b.x + (x - b.left)), db = load_pixels(b.slope_x + (x - b.left));
            const Pixels ee = xa * xb, ed = xa * db, de = da * xb, dd = da * db;
            for (int y = part.begin; y < part.bottom; ++y) {
                const Pixels w = load_pixels(at(weight, y) + x);
                s.add(ee * w, ed * w, de * w, dd * w, a.y[y - a.top], a.slope_y[y - a.top], b.y[y - b.top],
                      b.slope_y[y - b.top]);
            }
        }
        return s;
    }
    // The same of light, x and y of a spot, or of light, with one number of the background.
    struct GroundSums { double light, x, y; };
    GroundSums sums_with_ground(const Product& a, const Product& b) const {
        const Shared part = shared(a, b);
        Pixels light = 0.0f, along_x = 0.0f, along_y = 0.0f;
        for (int x = part.first; x < part.last; x += SIDE_BY_SIDE) {
            const Pixels xb = load_pixels(b.x + (x - b.left));
            const Pixels ee = xb * load_pixels(a.x + (x - a.left)), de = xb * load_pixels(a.slope_x + (x - a.left));
            for (int y = part.begin; y < part.bottom; ++y) {
                const Pixels w = load_pixels(at(weight, y) + x), e = ee * w;
                const float both = a.y[y - a.top] * b.y[y - b.top], slope = a.slope_y[y - a.top] * b.y[y - b.top];
                light = multiply_add(e, Pixels(both), light), along_y = multiply_add(e, Pixels(slope), along_y);
                along_x = multiply_add(de * w, Pixels(both), along_x);
            }
        }
        return {sum_of(light), sum_of(along_x), sum_of(along_y)};
    }
    // What the residual pulls at light, x and y.
    void pulls(const Product& p, double* by_light, double* by_x, double* by_y) const {
        Pixels light = 0.0f, along_x = 0.0f, along_y = 0.0f;
        const int begin = p.top > first_row ? p.top : first_row;
        const int bottom = p.top + p.rows < last_row ? p.top + p.rows : last_row;
        for (int y = begin; y < bottom; ++y) {
            const Pixels e = p.y[y - p.top], d = p.slope_y[y - p.top];
            const float* const row = at(pull, y) + p.left;
            for (int x = 0; x < p.columns; x += SIDE_BY_SIDE) {
                const Pixels g = load_pixels(row + x), value = load_pixels(p.x + x) * g;
                light = multiply_add(value, e, light), along_y = multiply_add(value, d, along_y);
                along_x = multiply_add(load_pixels(p.slope_x + x) * g, e, along_x);
            }
        }
        *by_light = sum_of(light), *by_x = sum_of(along_x), *by_y = sum_of(along_y);
    }
    bool overlap(const Product& a, const Product& b) const {
        const int y = a.top - b.top, x = a.left - b.left, side = 2 * reach;
        return y <= side && -y <= side && x <= side && -x <= side;
    }

    // The Fisher information of the spots that move, and the likelihood's gradient: x, y and light of each, then the
    // cell's background.
    void find_normal() {
        const int first = 3 * moving;
        normal.size = factor.size = first + levels();
        for (int a = 0; a < moving; ++a) {
            const Spot& s = spots[together[a]];
            int begin = a;
            for (int b = 0; b <= a; ++b)
                if (overlap(s.shape, spots[together[b]].shape)) {
                    begin = b;
                    break;
                }
            for (int i = 3 * a; i < 3 * a + 3; ++i) {
                normal.begin[i] = factor.begin[i] = 3 * begin;
                for (int j = 3 * begin; j < 3 * a + 3; ++j) normal.at(i, j) = 0;
            }
            for (int b = begin; b <= a; ++b) {
                const Spot& o = spots[together[b]];
                if (!overlap(s.shape, o.shape)) continue;
                const PairSums p = sums(s.shape, o.shape);
                double v[9];
                for (int k = 0; k < 9; ++k) v[k] = sum_of(p.of[k]);
                const double both = s.light * o.light;
                const double block[3][3] = {{both * v[4], both * v[5], s.light * v[3]},
                                            {both * v[7], both * v[8], s.light * v[6]},
                                            {o.light * v[1], o.light * v[2], v[0]}};
                for (int i = 0; i < 3; ++i)
                    for (int j = 0; j < 3; ++j) normal.at(3 * a + i, 3 * b + j) = block[i][j];
            }
            for (int k = 0; k < levels(); ++k) {
                const GroundSums p = sums_with_ground(s.shape, ground[k]);
                normal.at(first + k, 3 * a) = s.light * p.x;
                normal.at(first + k, 3 * a + 1) = s.light * p.y;
                normal.at(first + k, 3 * a + 2) = p.light;
            }
            double* const g = gradient + 3 * a;
            pulls(s.shape, g + 2, g, g + 1);
            g[0] *= s.light, g[1] *= s.light;
        }
        for (int k = 0; k < levels(); ++k) {
            normal.begin[first + k] = factor.begin[first + k] = 0;
            for (int i = 0; i <= k; ++i) normal.at(first + k, first + i) = sums_with_ground(ground[k], ground[i]).light;
            double none;
            pulls(ground[k], gradient + first + k, &none, &none);
        }
    }
    bool find_factor(double damping) {
        for (int i = 0; i < normal.size; ++i) {
            for (int j = normal.begin[i]; j < i; ++j) factor.at(i, j) = normal.at(i, j);
            factor.at(i, i) = normal.at(i, i) * (1 + damping) + 1e-12;
        }
        return factor.factor();
    }

    // Levenberg-Marquardt of the spots that move; returns the deviance / 2, and how much it fell.
    struct Moved {
        double deviance, gained;
        bool rests;
    };
    struct Levels { double of[3]; };
    Levels levels_of(int cell) const {
        Levels now = {};
        for (int k = 0; k < levels(); ++k) now.of[k] = level[cell + k];
        return now;
    }
    void restore(int cell, const Levels& before) const {
        for (int k = 0; k < levels(); ++k) level[cell + k] = before.of[k];
    }
    Moved move(int cell, int most_steps, double rest) {
        double now = evaluate(cell), damping = 1e-2, gained = 0;
        bool rests = false, is_current = true;
        for (int n = 0; n < most_steps && !rests; ++n) {
            ++iterations;
            find_normal();
            bool is_better = false;
            const Levels before = levels_of(cell);
            for (int attempt = 0; attempt < 8 && !is_better; ++attempt) {
                if (!find_factor(damping)) {
                    damping *= 10;
                    continue;
                }
                for (int i = 0; i < normal.size; ++i) step[i] = gradient[i];
                factor.solve(step);
                for (int a = 0; a < moving; ++a) {
                    Spot& s = spots[together[a]];
                    const auto clip = [](double x, double low, double high) {
                        return x < low ? low : x > high ? high : x;
                    };
                    s.kept_x = s.x, s.kept_y = s.y, s.kept_light = s.light;
                    s.x = clip(s.x + clip(step[3 * a], -LONGEST, LONGEST), least_x, most_x);
                    s.y = clip(s.y + clip(step[3 * a + 1], -LONGEST, LONGEST), least_y, most_y);
                    if (!has_pixels(s.y, s.x)) s.x = s.kept_x, s.y = s.kept_y;
                    s.light = larger(s.light + step[3 * a + 2], 0.05 * least_light(before.of[0]));
                    shape(s);
                }
                for (int k = 0; k < levels(); ++k) level[cell + k] = before.of[k] + step[3 * moving + k];
                level[cell] = larger(level[cell], LOWEST);
                const double then = evaluate(cell);
                is_better = is_current = then <= now * (1 + 3e-7) + 1e-6;
                if (is_better) {
                    rests = now - then < rest;
                    gained += now - then, now = then;
                    damping = larger(damping / 10, 1e-5);
                } else {
                    for (int a = 0; a < moving; ++a) {
                        Spot& s = spots[together[a]];
                        s.x = s.kept_x, s.y = s.kept_y, s.light = s.kept_light;
                        shape(s);
                    }
                    restore(cell, before);
                    damping *= 10;
                }
            }
            if (!is_better) rests = true;  // no step is better: it is the best there is
        }
        if (!is_current) evaluate(cell);
        keep_mean();
        return {now, gained, rests};
    }

    template <class Function> void over_cells(Function each) {
        for (int cell = 0; cell < cells(); ++cell) {
            int from = 0;
            do {
                choose(cell, from);
                each(cell);
                from += moving;
            } while (moving == TOGETHER);
        }
    }
    // Moves the spots of one cell after the other, until none of them moves those of others.
    void move_all(int most_steps, double rest, int most_sweeps = SWEEPS) {
        sort();
        find_mean();
        bool rests = false;
        for (int sweep = 0; sweep < most_sweeps && !rests; ++sweep) {
            rests = true;
            // Spots on both sides of a border of cells would take long to come to rest.
            is_shifted = sweep % 2;
            over_cells([&](int cell) {
                find_base(cell);
                const Moved own = move(cell, most_steps, rest);
                const bool rest_here = cells() == 1 ? own.rests : own.gained < ROUGH;
                const bool settled = cells() == 1 ? own.rests : own.gained < SLOW;
                for (int a = 0; a < moving; ++a) spots[together[a]].rests = settled;
                rests &= rest_here;
            });
            if (cells() == 1) break;
        }
        is_shifted = false;
    }
    // In the order of y and x, whatever they were added in.
    void sort() {
        for (int i = 1; i < count; ++i) {
            const Spot own = spots[i];
            int k = i;
            for (; k > 0 && (own.y < spots[k - 1].y || (own.y == spots[k - 1].y && own.x < spots[k - 1].x)); --k)
                spots[k] = spots[k - 1];
            spots[k] = own;
        }
    }
    // The mean of all pixels.
    void find_mean() {
        first_row = first_column = 0, last_row = rows, last_column = static_cast<int>(padded(columns));
        over_part([&](long long k) { store_pixels(mean + k, Pixels(0.0f)); });
        for (int cell = 0; cell < cells(); ++cell) {
            find_ground(cell);
            for (int k = 0; k < levels(); ++k) add_product(*this, ground[k], float(level[cell + k]), mean);
        }
        for (int i = 0; i < count; ++i) add_product(*this, spots[i].shape, float(spots[i].light), mean);
        over_part([&](long long k) { store_pixels(mean + k, higher_of(load_pixels(mean + k), Pixels(LOWEST))); });
    }

    // ---- how many there are ----
    // Of light alone, or of all.
    void find_errors(bool of_all) {
        over_cells([&](int cell) {
            find_base(cell);
            evaluate(cell);
            find_normal();
            const bool is_known = find_factor(1e-9);
            for (int a = 0; a < moving; ++a) {
                Spot& s = spots[together[a]];
                for (int k = of_all ? 0 : 2; k < 3; ++k)
                    s.errors[k] = is_known ? __builtin_sqrt(factor.variance(3 * a + k, step)) : double(INFINITE);
                s.is_dropped = s.is_tested = false;
                s.evidence = square_of(s.light / s.errors[2]) / 2;
            }
            if (of_all)
                level_errors[cell] = is_known ? __builtin_sqrt(factor.variance(3 * moving, step)) : double(INFINITE);
        });
    }
    void remove_dropped() {
        int kept = 0;
        for (int i = 0; i < count; ++i) {
            if (spots[i].is_dropped) continue;
            spots[kept] = spots[i];
            give_lines(kept++);
        }
        count = kept;
        for (int i = 0; i < count; ++i) shape(spots[i]);
    }
    // Whether the data are as much likelier with a spot as they must be, its neighbours fitted without it, too.
    bool is_needed(int i) {
        Spot& own = spots[i];
        const int cell = cell_of(own);
        choose(cell, 0);
        moving = 0;
        int heir = -1;
        double nearest = square_of(APART * f.sigma);
        for (int j = 0; j < count && moving < TOGETHER - 1; ++j) {
            const Spot& s = spots[j];
            const double far = square_of(s.x - own.x) + square_of(s.y - own.y);
            if (j == i || s.is_dropped || far > square_of(APART * f.sigma)) continue;
            if (s.x < least_x || s.x > most_x || s.y < least_y || s.y > most_y) continue;
            together[moving++] = j;
            if (far < nearest) nearest = far, heir = j;
        }
        together[moving++] = i;
        find_base(cell);
        const double with = evaluate(cell);
        const Levels before = levels_of(cell);
        for (int k = 0; k < moving; ++k) {
            Spot& s = spots[together[k]];
            s.before[0] = s.x, s.before[1] = s.y, s.before[2] = s.light;
        }
        --moving;
        if (heir >= 0 && nearest < square_of(2 * f.sigma)) take_over(spots[heir], own);
        const double without = move(cell, STEPS_WITHOUT, ROUGH / 10).deviance;
        own.evidence = without - with;
        if (own.evidence < square_of(f.least_score) / 2) {
            own.is_dropped = true, own.light = 0;
            return false;
        }
        ++moving;
        for (int k = 0; k < moving; ++k) {
            Spot& s = spots[together[k]];
            s.x = s.before[0], s.y = s.before[1], s.light = s.before[2];
            shape(s);
        }
        restore(cell, before);
        evaluate(cell);
        keep_mean();
        return true;
    }
    // Gives a spot the light of another one, and a place between both.
    void take_over(Spot& a, const Spot& b) const {
        const double sum = a.light + b.light;
        a.x = (a.x * a.light + b.x * b.light) / sum, a.y = (a.y * a.light + b.y * b.light) / sum;
        a.light = sum;
        shape(a);
    }
    // Drops what is not needed, the weakest first.
    bool drop() {
        bool any = false;
        for (;;) {
            int weakest = -1;
            double least = SURE * square_of(f.least_score) / 2;
            for (int i = 0; i < count; ++i)
                if (!spots[i].is_tested && spots[i].evidence < least) weakest = i, least = spots[i].evidence;
            if (weakest < 0) break;
            spots[weakest].is_tested = true;
            any |= !is_needed(weakest);
        }
        if (any) remove_dropped();
        return any;
    }
    // Joins spots that are nearer to each other than two can be told apart.
    bool merge() {
        bool any = false;
        for (int i = 0; i < count; ++i) spots[i].is_dropped = false;
        for (int i = 0; i < count; ++i)
            for (int j = 0; j < i; ++j) {
                Spot &a = spots[j], &b = spots[i];
                if (a.is_dropped || b.is_dropped) continue;
                if (square_of(a.x - b.x) + square_of(a.y - b.y) >= square_of(ONE_SPOT * f.sigma)) continue;
                take_over(a, b);
                if (a.candidate < 0 || (b.candidate >= 0 && b.candidate < a.candidate)) a.candidate = b.candidate;
                b.is_dropped = any = true;
            }
        if (any) remove_dropped();
        return any;
    }

    void convolve(const float* kernel, const float* from, float* to) const {
        // Along x, then along y in place of a third plane: rows that are done are not needed again.
        for (int y = 0; y < rows; ++y)
            for (int x = 0; x < columns; x += SIDE_BY_SIDE) {
                const float* const row = from + y * stride + margin + x;
                Pixels sum = 0.0f;
                for (int k = -reach; k <= reach; ++k)
                    sum = multiply_add(load_pixels(row + k), Pixels(kernel[k + reach]), sum);
                store_pixels(at(base, y) + x, sum);
            }
        for (int y = 0; y < rows; ++y)
            for (int x = 0; x < columns; x += SIDE_BY_SIDE) {
                Pixels sum = 0.0f;
                for (int k = -reach; k <= reach; ++k)
                    if (y + k >= 0 && y + k < rows)
                        sum = multiply_add(load_pixels(at(base, y + k) + x), Pixels(kernel[k + reach]), sum);
                store_pixels(at(to, y) + x, sum);
            }
    }

    void find_residual() {
        find_mean();
        over_part([&](long long k) {
            const Pixels expected = load_pixels(mean + k), w = load_pixels(counts + k) / expected;
            store_pixels(weight + k, w), store_pixels(pull + k, w * (load_pixels(data + k) - expected));
        });
    }
    void clear_base() {
        const long long area = rows * stride;
        for (long long k = 0; k < area; ++k) base[k] = 0;
    }
    bool is_near_spot(double y, double x) const {
        for (int i = 0; i < count; ++i)
            if (square_of(spots[i].x - x) + square_of(spots[i].y - y) < square_of(ONE_SPOT * f.sigma)) return true;
        return false;
    }

    // Adds spots where the residual stands out of the noise as one does.
    bool add_hidden() {
        find_residual();
        float kernel[2 * 64 + 1 + SIDE_BY_SIDE * 2], slope[2 * 64 + 1 + SIDE_BY_SIDE * 2];
        const int side = 2 * reach + 1;
        profile_line(reach, f.sigma, f.is_integrated, side, static_cast<int>(padded(side)), kernel, slope);
        convolve(kernel, pull, trial);
        for (int k = 0; k < side; ++k) kernel[k] *= kernel[k];
        convolve(kernel, weight, other);
        clear_base();
        const int before = count;
        const auto score = [&](int y, int x) {
            const float error = at(other, y)[x];
            return error > 0 ? at(trial, y)[x] / __builtin_sqrtf(error) : -INFINITE;
        };
        for (double least = f.least_score + CLEAR; count == before && least >= f.least_score; least -= CLEAR)
            for (int y = 0; y < rows; ++y)
                for (int x = 0; x < columns; ++x) {
                    const float light = at(trial, y)[x];
                    if (!(light > 0 && light * light > 0.9f * float(square_of(least)) * at(other, y)[x] &&
                          at(counts, y)[x] > 0))
                        continue;
                    const float own = score(y, x);
                    if (!(own > least)) continue;
                    bool is_highest = true;
                    for (int v = y > 0 ? y - 1 : 0; v <= y + 1 && v < rows; ++v)
                        for (int u = x > 0 ? x - 1 : 0; u <= x + 1 && u < columns; ++u) {
                            const bool is_earlier = v < y || (v == y && u < x);
                            if ((v != y || u != x) && at(counts, v)[u] > 0)
                                is_highest &= is_earlier ? score(v, u) < own : score(v, u) <= own;
                        }
                    if (is_highest && count < most && !is_near_spot(y, x))
                        add(y, x, at(trial, y)[x] / at(other, y)[x], -1);
                }
        return count > before;
    }

    // Splits spots whose residual is that of two.
    bool split() {
        find_residual();
        const int before = count;
        for (int i = 0; i < before && count < most; ++i) {
            const Spot& s = spots[i];
            const Product& p = s.shape;
            double sums[4] = {};
            for (int y = p.top > 0 ? p.top : 0; y < p.top + p.rows && y < rows; ++y) {
                const double dy = y - s.y, ey = p.y[y - p.top];
                for (int x = p.left > 0 ? p.left : 0; x < p.left + p.columns && x < columns; ++x) {
                    const double dx = x - s.x, e = ey * p.x[x - p.left];
                    const double along = e * (dx * dx - dy * dy), across = e * 2 * dx * dy;
                    const double w = at(weight, y)[x], g = at(pull, y)[x];
                    sums[0] += g * along, sums[1] += g * across, sums[2] += w * along * along,
                        sums[3] += w * across * across;
                }
            }
            if (!(sums[2] > 0 && sums[3] > 0)) continue;
            const double a = sums[0] / __builtin_sqrt(sums[2]), b = sums[1] / __builtin_sqrt(sums[3]);
            const double size = a * a + b * b;
            if (!(size > QUADRUPOLE)) continue;
            const double cosine = a / __builtin_sqrt(size), half = HALF_APART * f.sigma;
            const double dx = half * __builtin_sqrt((1 + cosine) / 2);
            const double dy = (b < 0 ? -half : half) * __builtin_sqrt((1 - cosine) / 2);
            add(s.y - dy, s.x - dx, s.light / 2, -1);
            Spot& own = spots[i];
            own.y += dy, own.x += dx, own.light /= 2;
            shape(own);
        }
        return count > before;
    }

  public:
    int iterations = 0;

    Crowd(const JointFits& fits, long long which, void* work)
        : f(fits), number(which), begin(fits.first[which]), end(fits.first[which + 1]),
          reach(static_cast<int>(REACH * fits.sigma) + 1), line(static_cast<int>(padded(2 * reach + 1)) + SIDE_BY_SIDE),
          most((end - begin) * HIDDEN_EACH + HIDDEN), memory{static_cast<unsigned char*>(work)} {
        find_box();
        divide();
    }
    const unsigned char* end_of_memory() const { return memory.at; }

    long long fit(JointSpot* found) {
        find_pixels();
        fill_shares(cell_y, padded(rows) + SIDE_BY_SIDE, cells_down, cell_rows, rows);
        fill_shares(cell_x, padded(columns) + SIDE_BY_SIDE, cells_across, cell_columns, columns);
        const double lowest = lowest_level(), least = least_light(lowest);
        level[1] = level[2] = 0;
        for (int cell = 0; cell < cells(); ++cell) level[cell] = lowest;
        fill_slope(slope_y, padded(rows) + SIDE_BY_SIDE, rows),
            fill_slope(slope_x, padded(columns) + SIDE_BY_SIDE, columns);
        for (long long k = begin; k < end; ++k) {
            const long long i = f.members[k];
            const double light = f.light[i];
            add(f.places[2 * i] - double(top), f.places[2 * i + 1] - double(left), light > least ? light : least, i);
        }
        move_all(ROUGH_STEPS, ROUGH);
        bool is_new = true;
        for (int k = 0; f.counts_spots && is_new && k < ROUNDS; ++k) {
            is_new = add_hidden();
            if (is_new) move_all(ROUGH_STEPS, ROUGH);
            if (split()) is_new = true, move_all(ROUGH_STEPS, ROUGH);
            for (int n = 0; (is_new || !k) && n < DROPS; ++n) {
                if (merge()) move_all(ROUGH_STEPS, ROUGH);
                find_errors(false);
                if (!drop()) break;
                move_all(ROUGH_STEPS, ROUGH);
            }
        }
        for (int n = 0; n < DROPS; ++n) {
            move_all(f.max_iterations, FINE, LAST_SWEEPS);
            const bool is_last = !f.counts_spots || n + 1 == DROPS;
            if (!is_last && merge()) continue;
            find_errors(true);
            if (is_last || !drop()) break;
        }
        return put(found);
    }

    long long put(JointSpot* found) {
        clear_base();
        find_mean();
        for (int i = 0; i < count; ++i) add_product(*this, spots[i].shape, float(spots[i].light), base);
        double sum = 0, tolerated = 0, squares = 0;
        long long pixels = 0;
        for (int y = 0; y < rows; ++y)
            for (int x = 0; x < columns; x += SIDE_BY_SIDE) {
                const Pixels own = load_pixels(at(data, y) + x), expected = load_pixels(at(mean, y) + x);
                const Pixels is_there = load_pixels(at(counts, y) + x);
                sum += sum_of(is_there * deviance(own, expected)), pixels += static_cast<long long>(sum_of(is_there));
                squares += sum_of(is_there * square(own - expected));
                const Pixels off = float(SHAPE) * load_pixels(at(base, y) + x);
                tolerated += sum_of(is_there * off * off / expected);
            }
        const auto level_at = [&](double y, double x) {
            const auto share = [](const float* lines, long long stride, int cell, double place, int size) {
                const int k = place < 0 ? 0 : place > size - 1 ? size - 1 : static_cast<int>(place + 0.5);
                return double(lines[cell * stride + k]);
            };
            double value = 0;
            for (int cell = 0; cell < cells(); ++cell)
                value += level[cell] * share(cell_y, padded(rows) + SIDE_BY_SIDE, cell / cells_across, y, rows) *
                         share(cell_x, padded(columns) + SIDE_BY_SIDE, cell % cells_across, x, columns);
            if (cells() == 1)
                value += level[1] * share(slope_y, 0, 0, y, rows) + level[2] * share(slope_x, 0, 0, x, columns);
            return value;
        };
        const double degrees = larger(double(pixels - 3 * count - (cells() == 1 ? levels() : cells())), 1);
        tolerated += degrees + DEVIATIONS * __builtin_sqrt(2 * degrees);
        for (int i = 0; i < count; ++i) {
            const Spot& s = spots[i];
            found[i] = {s.y + double(top),
                        s.x + double(left),
                        s.light,
                        level_at(s.y, s.x),
                        s.errors[1],
                        s.errors[0],
                        s.errors[2],
                        level_errors[cell_of(s)],
                        s.evidence,
                        sum,
                        tolerated,
                        squares,
                        pixels,
                        count,
                        number,
                        s.candidate,
                        iterations,
                        s.rests};
        }
        return count;
    }
};

long long bytes(const JointFits& fits, long long first, long long last) {
    unsigned char none[1];
    long long most = 0;
    for (long long c = first; c < last; ++c) {
        const long long own = Crowd(fits, c, none).end_of_memory() - none;
        if (own > most) most = own;
    }
    return most + 64;
}

long long most_spots(long long candidates) { return candidates * HIDDEN_EACH + HIDDEN; }

long long fit(const JointFits& fits, long long first, long long last, void* work, JointSpot* spots, long long room,
              long long* count) {
    const SubnormalsAreZero during_this_call;
    *count = 0;
    for (; first < last; ++first) {
        if (*count + most_spots(fits.first[first + 1] - fits.first[first]) > room) break;
        *count += Crowd(fits, first, work).fit(spots + *count);
    }
    return first;
}

}  // namespace

const JointFunctions joint = {bytes, fit, most_spots};

}  // namespace spotfit::SPOTFIT_ISA
