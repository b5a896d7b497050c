// The pixels of a crowd: those around its candidates that are nearer to them than to those of any other crowd.
#pragma once
#include "../joint.h"
#include "../layouts/joint_fits.h"

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

struct Memory {
    unsigned char* at;
    template <class T> T* take(long long count) {
        T* const own = reinterpret_cast<T*>(at);
        at += (count * static_cast<long long>(sizeof(T)) + 63) / 64 * 64;
        return own;
    }
};

class CrowdPixels {
  protected:
    static constexpr float LOWEST = 0.05f;  // mean of a pixel

    const JointFits& f;
    const long long begin, end;  // its candidates
    const int reach;             // of a spot's light
    long long top, left;         // of its box in the frame
    int rows, columns;
    long long stride, margin;  // of lines of pixels, whose numbers beside the box are 0
    Memory memory;
    float *data, *counts;  // pixels, and 1 where they count
    float *mean, *base, *trial, *weight, *pull, *other;

    float* at(float* plane, long long y) const { return plane + y * stride + margin; }
    long long area() const { return rows * stride; }

    CrowdPixels(const JointFits& fits, long long which, void* work)
        : f(fits), begin(fits.first[which]), end(fits.first[which + 1]), reach(fits.reach),
          memory{static_cast<unsigned char*>(work)} {
        find_box();
        float** const planes[] = {&data, &counts, &mean, &base, &trial, &weight, &pull, &other};
        for (float** plane : planes) *plane = memory.take<float>(area());
    }

    void find_pixels() {
        const float most_far = float(square_of(reach + 0.5));
        for (long long k = 0; k < area(); ++k) {
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
        for (long long k = 0; k < area(); ++k) {
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
        double most_value = INFINITE, value = LOWEST;
        for (int n = 0; n < 3; ++n) {
            Pixels sum = 0.0f, number = 0.0f;
            for (long long k = 0; k < area(); k += SIDE_BY_SIDE) {
                const Pixels own = load_pixels(data + k);
                const Pixels there = select(own < float(most_value), load_pixels(counts + k), Pixels(0.0f));
                sum += own * there, number += there;
            }
            if (!(sum_of(number) > 0)) break;
            value = double(sum_of(sum)) / sum_of(number);
            most_value = value + __builtin_sqrt(larger(value, 1));
        }
        return larger(value, LOWEST);
    }

  private:
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
        margin = padded(reach + 1);
        stride = margin + padded(columns) + margin + SIDE_BY_SIDE;
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
};

}  // namespace spotfit::SPOTFIT_ISA
