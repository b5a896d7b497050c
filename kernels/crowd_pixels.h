// The pixels of a crowd: those around its candidates that are nearer to them than to those of any other crowd.
#pragma once
#include "joint.h"
#include "layouts/joint_fits.h"
#include "memory.h"

namespace spotfit::SPOTFIT_ISA {

constexpr long long padded(long long count) { return (count + SIDE_BY_SIDE - 1) / SIDE_BY_SIDE * SIDE_BY_SIDE; }
inline double larger(double a, double b) { return a > b ? a : b; }
inline double smaller(double a, double b) { return a < b ? a : b; }
inline double square_of(double a) { return a * a; }
// To the nearest whole number, upwards from halves.
inline long long whole(double x) {
    const long long cut = static_cast<long long>(x + 0.5);
    return cut - (double(cut) > x + 0.5);
}

class CrowdPixels {
  protected:
    // The least mean of a pixel, in photo-electrons, so that its inverse is finite.
    static constexpr float LOWEST = 0.05f;
    // In widths: the core of a spot, and how far from a candidate a crowd has most pixels around a place.
    static constexpr double CORE = 3.5, BESIDE = 3;

    const JointFits f;
    const long long begin, end;  // its candidates
    double scale[ALL_AXES];      // of lengths, by which spots are as wide along all axes as along x
    long long corner[ALL_AXES];  // the first pixel of its box in the frame
    int columns, rows, depth;    // of the box
    int stride, margin;          // of lines of pixels; what is between the box and the next line is 0
    double lowest, lift = 0;     // the lowest level of the pixels, and what was added to them
    Memory memory;
    float *data, *counts;  // pixels, and 1 where they count
    float* variances;      // that are added to the data and to their mean, or null
    float *mean, *base, *trial, *weight, *pull, *other;

    float* at(float* plane, int z, int y) const { return plane + ((z * rows + y) * stride + margin); }
    long long area() const { return static_cast<long long>(depth) * rows * stride + margin; }
    int size(int axis) const { return axis == X ? columns : axis == Y ? rows : depth; }
    // The square of a distance in units of pixels along x.
    double square_between(const double* a, const double* b) const {
        return square_of(a[X] - b[X]) + square_of((a[Y] - b[Y]) * scale[Y]) + square_of((a[Z] - b[Z]) * scale[Z]);
    }

    CrowdPixels(const JointFits& fits, long long which, void* work)
        : f(fits), begin(fits.first[which]), end(fits.first[which + 1]), memory{static_cast<unsigned char*>(work)} {
        ROLLED
        for (int axis = X; axis < ALL_AXES; ++axis) scale[axis] = f.sigma[X] / f.sigma[axis];
        // Spots with a measured PSF are as near to each other whatever their z.
        if (has_psf()) scale[Z] = 0;
        find_box();
        float** const planes[] = {&data, &counts, &mean, &base, &trial, &weight, &pull, &other};
        ROLLED
        for (float** plane : planes) *plane = memory.take<float>(area());
        variances = f.variances ? memory.take<float>(area()) : nullptr;
    }

    int axes() const { return axes_of(f.axes); }
    // How far most of a spot's light reaches: farther out, a measured PSF is rings, that are of a spot but say little.
    int core(int axis) const {
        const int most = static_cast<int>(CORE * f.sigma[axis]);
        return has_psf() && most < f.reach[axis] ? most : f.reach[axis];
    }
    bool has_psf() const { return is_measured_psf(f.heights != nullptr); }

    SPOTFIT_NOT_INLINE void find_pixels() {
        const float most_far = float(square_of(f.reach[X] + 0.5));
        share(area(), [&](long long k) {
            counts[k] = data[k] = base[k] = weight[k] = pull[k] = 0, mean[k] = 1;
            trial[k] = other[k] = INFINITE;
        });
        ROLLED
        for (long long k = begin; k < end; ++k) mark_near(trial, place_of(f.members[k]));
        const long long frame = f.frame[f.members[begin]];
        long long low = 0, high = f.count;
        const long long reach = f.reach[Y] + 1;
        while (low < high) {
            const long long middle = (low + high) / 2;
            const bool is_before = f.frame[middle] < frame ||
                                   (f.frame[middle] == frame && place_of(middle)[Y] < double(corner[Y] - reach));
            if (is_before) low = middle + 1;
            else high = middle;
        }
        ROLLED
        for (long long i = low, k = begin; i < f.count && f.frame[i] == frame; ++i) {
            const double y = place_of(i)[Y], x = place_of(i)[X], side = double(f.reach[X] + 1);
            if (y > double(corner[Y] + rows + reach)) break;
            while (k < end && f.members[k] < i) ++k;
            if (k < end && f.members[k] == i) continue;
            if (x > double(corner[X]) - side && x < double(corner[X] + columns) + side) mark_near(other, place_of(i));
        }
        share(area(), [&](long long k) {
            counts[k] = trial[k] <= most_far && trial[k] < other[k];
            trial[k] = 1, other[k] = 0;
        });
        const long long first = frame * f.depth * f.height * f.width;
        if (variances) add_variances(f.variances + (f.is_shared ? 0 : first));
        switch (f.pixel_type) {
            case 0: load(static_cast<const unsigned char*>(f.frames) + first); break;
            case 1: load(static_cast<const unsigned short*>(f.frames) + first); break;
            case 2: load(static_cast<const short*>(f.frames) + first); break;
            case 3: load(static_cast<const float*>(f.frames) + first); break;
            default: load(static_cast<const double*>(f.frames) + first);
        }
        if (f.lost_count) leave_out(first);
        lift_pixels();
    }

    // Calls each(number of the pixel, square of the distance) for those around a place in the frame.
    template <class Function> SPOTFIT_INLINE void over_near(const double* place, Function each) const {
        long long low[ALL_AXES], high[ALL_AXES];
        ROLLED
        for (int axis = X; axis < ALL_AXES; ++axis) {
            const long long middle = whole(place[axis]) - corner[axis], last = middle + f.reach[axis] + 1;
            low[axis] = middle > f.reach[axis] ? middle - f.reach[axis] : 0;
            high[axis] = last < size(axis) ? last : size(axis);
        }
        const int lines = static_cast<int>(high[Y] - low[Y]), planes = static_cast<int>(high[Z] - low[Z]);
        share_lines(lines > 0 ? lines * planes : 0, [&](int k) {
            const int w = static_cast<int>(low[Z]) + k / lines, v = static_cast<int>(low[Y]) + k % lines;
            const double of_line = square_of((double(v + corner[Y]) - place[Y]) * scale[Y]) +
                                   square_of((double(w + corner[Z]) - place[Z]) * scale[Z]);
            const long long first = at(data, w, v) - data;
            ROLLED
            for (long long u = low[X] + Team::column(); u < high[X]; u += Team::COLUMNS)
                each(first + u, float(of_line + square_of(double(u + corner[X]) - place[X])));
        });
    }

    // All pixels, and those beside the box, side by side.
    template <class Function> SPOTFIT_INLINE void over_area(Function each) const {
        Team::wait();
        ROLLED
        for (long long k = Team::line() * SIDE_BY_SIDE; k < area(); k += Team::LINES * SIDE_BY_SIDE) each(k);
        Team::wait();
    }

    double lowest_level() const { return larger(lowest, LOWEST); }
    const double* place_of(long long candidate) const { return f.places + ALL_AXES * candidate; }
    bool was_hidden(long long candidate) const { return f.grows && f.hidden && f.hidden[candidate]; }
    SPOTFIT_NOT_INLINE int number_detected() const {
        int detected = 0;
        ROLLED
        for (long long k = begin; k < end; ++k) detected += !was_hidden(f.members[k]);
        return detected;
    }
    // Whether a place in the box is far from all candidates of the crowd.
    SPOTFIT_NOT_INLINE bool is_apart(const double* at) const {
        double place[ALL_AXES];
        ROLLED
        for (int axis = X; axis < ALL_AXES; ++axis) place[axis] = at[axis] + double(corner[axis]);
        const double far_y = BESIDE * f.sigma[Y];
        long long low = begin, high = end;
        while (low < high) {
            const long long middle = (low + high) / 2;
            if (place_of(f.members[middle])[Y] < place[Y] - far_y) low = middle + 1;
            else high = middle;
        }
        ROLLED
        for (; low < end && place_of(f.members[low])[Y] <= place[Y] + far_y; ++low)
            if (square_between(place_of(f.members[low]), place) < square_of(BESIDE * f.sigma[X])) return false;
        return true;
    }

  private:
    // A level is below what noise says it is if it is less than this share of it.
    static constexpr double TOO_LOW = 0.5;
    // How often bright pixels are left out: few times are enough for where fits begin.
    static constexpr int FEW_ROUNDS = 3, MANY_ROUNDS = 12;

    // The mean of the pixels without those that are far above it, time and again.
    SPOTFIT_NOT_INLINE double level_of_pixels(int rounds) const {
        double most_value = INFINITE, value = LOWEST;
        ROLLED
        for (int n = 0; n < rounds; ++n) {
            Pixels sums[] = {0.0f, 0.0f};
            over_area([&](long long k) SPOTFIT_INLINE_LAMBDA {
                Pixels own = load_pixels(data + k);
                if (variances) own = own - load_pixels(variances + k);
                const Pixels there = select(own < float(most_value), load_pixels(counts + k), Pixels(0.0f));
                sums[0] += own * there, sums[1] += there;
            });
            const float sum = sum_of(sums[0]), number = sum_of(sums[1]);
            if (!(number > 0)) break;
            value = double(sum) / number;
            most_value = value + square_root(larger(value, 1));
        }
        return value;
    }
    // A line of noise over light that is known by bright spots may be below 0 where there is hardly any light.
    SPOTFIT_NOT_INLINE void lift_pixels() {
        const double own = level_of_pixels(FEW_ROUNDS);
        const double level = f.least_noise > 0 ? level_of_pixels(MANY_ROUNDS) : 0;
        const double added = level < TOO_LOW * f.least_noise ? f.least_noise - level : 0;
        alone([&] { lowest = own + added, lift = added; });
        if (added > 0)
            over_area([&](long long k) SPOTFIT_INLINE_LAMBDA {
                store_pixels(data + k,
                             multiply_add(load_pixels(counts + k), Pixels(float(added)), load_pixels(data + k)));
            });
    }
    SPOTFIT_NOT_INLINE void find_box() {
        const long long least[] = {0, f.first_row, f.first_plane};
        const long long ends[] = {f.width, f.first_row + f.height, f.first_plane + f.depth};
        int sizes[ALL_AXES];
        ROLLED
        for (int axis = X; axis < ALL_AXES; ++axis) {
            double low = 0, high = 0;
            ROLLED
            for (long long k = begin; k < end; ++k) {
                const double x = place_of(f.members[k])[axis];
                if (k == begin || x < low) low = x;
                if (k == begin || x > high) high = x;
            }
            const long long a = whole(low) - f.reach[axis], b = whole(high) + f.reach[axis] + 1;
            corner[axis] = a > least[axis] ? a : least[axis];
            sizes[axis] = static_cast<int>((b < ends[axis] ? b : ends[axis]) - corner[axis]);
        }
        columns = sizes[X], rows = sizes[Y], depth = sizes[Z];
        // A spot at the edge reaches as far to the left, and all that is summed side by side to the right.
        const long long left = f.reach[X] + 1, right = padded(2 * f.reach[X] + 1) - f.reach[X];
        margin = static_cast<int>(padded(left > right ? left : right));
        stride = margin + static_cast<int>(padded(columns));
    }
    // The line of the box in the numbers of a frame.
    template <class T> const T* line_of(const T* frame, int z, int y) const { return frame + number_of_line(z, y); }
    long long number_of_line(int z, int y) const {
        const long long line = (corner[Z] - f.first_plane + z) * f.height + corner[Y] - f.first_row + y;
        return line * f.width + corner[X];
    }
    // The pixels of a frame that count in no fit, given the number of its first one.
    SPOTFIT_NOT_INLINE void leave_out(long long frame) {
        share_lines(depth * rows, [&](int k) {
            const int z = k / rows, y = k % rows;
            const long long first = frame + number_of_line(z, y);
            long long low = 0, high = f.lost_count;
            while (low < high) {
                const long long middle = (low + high) / 2;
                if (f.lost[middle] < first) low = middle + 1;
                else high = middle;
            }
            ROLLED
            for (; low < f.lost_count && f.lost[low] < first + columns; ++low) {
                const int x = static_cast<int>(f.lost[low] - first);
                if (x % Team::COLUMNS == Team::column()) at(data, z, y)[x] = at(counts, z, y)[x] = 0;
            }
        });
    }
    template <class T> SPOTFIT_NOT_INLINE void load(const T* frame) {
        share_lines(depth * rows, [&](int k) {
            const int z = k / rows, y = k % rows;
            const T* const from = line_of(frame, z, y);
            float *const to = at(data, z, y), *const own = at(counts, z, y);
            ROLLED
            for (int x = Team::column(); x < columns; x += Team::COLUMNS) {
                const double value = double(from[x]) * f.scale + f.shift;
                const bool is_good = value - value == 0;
                to[x] = is_good ? to[x] + float(value) : 0;
                own[x] = is_good ? own[x] : 0;
            }
        });
    }
    void add_variances(const float* frame) {
        share(area(), [&](long long k) { variances[k] = 0; });
        share_lines(depth * rows, [&](int k) {
            const int z = k / rows, y = k % rows;
            const float* const from = line_of(frame, z, y);
            float *const to = at(data, z, y), *const own = at(variances, z, y);
            ROLLED
            for (int x = Team::column(); x < columns; x += Team::COLUMNS) to[x] = own[x] = from[x];
        });
    }

    // Marks the pixels around places that are nearer to them than what is there.
    SPOTFIT_NOT_INLINE void mark_near(float* distances, const double* place) const {
        over_near(place, [&](long long k, float far) {
            distances[k] = far < distances[k] ? far : distances[k];  // not only where it is: so lanes work side by side
        });
    }
};

}  // namespace spotfit::SPOTFIT_ISA
