// Pixels of one value in a ROI, on every machine: what makes the highest ones suspect of being saturated, and the
// lowest ones of being no data, but what an image was padded or masked with.
#pragma once
#include "layouts/flat_areas.h"

namespace spotfit {

// Least number of pixels of padding in a ROI.
constexpr int LEAST_GROUND = 5;

namespace SPOTFIT_ISA {

// Whether a ROI's highest value is suspect; count() returns how many pixels have it.
template <class T, class Count> inline bool is_flat_top(T highest, const FlatAreaRule& rule, Count count) {
    if (double(highest) >= rule.largest) return true;
    return double(highest) >= rule.least && count() >= rule.count;
}

// Whether the pixels of a ROI that have its lowest value are an area of its own, and no more than three quarters of
// it: of the sides that they turn to other pixels there are no more than three for two of them, nor than one and a half
// times the ROI's own. Single pixels here and there, as few counts have them, turn four sides to others.
template <class T> inline bool is_area(const T* roi, long long width, int rows, int columns, T lowest) {
    int count = 0;
    for (int y = 0; y < rows; ++y)
        for (int x = 0; x < columns; ++x) count += roi[y * width + x] == lowest;
    if (count < LEAST_GROUND || 4 * count > 3 * rows * columns) return false;
    int sides = 0;
    for (int y = 0; y < rows; ++y)
        for (int x = 0; x < columns; ++x) {
            const bool here = roi[y * width + x] == lowest;
            if (x + 1 < columns) sides += here != (roi[y * width + x + 1] == lowest);
            if (y + 1 < rows) sides += here != (roi[(y + 1) * width + x] == lowest);
        }
    return 2 * sides <= 3 * count && 2 * sides <= 3 * (rows + columns);
}

// Whether they are far enough below the others to be looked at more closely: half of these are no farther up.
template <class T>
inline bool is_far_below(const T* roi, long long width, int rows, int columns, T lowest, const FlatAreaRule& rule) {
    const auto each_other = [&](auto use) {
        for (int y = 0; y < rows; ++y)
            for (int x = 0; x < columns; ++x)
                if (roi[y * width + x] > lowest) use(double(roi[y * width + x]));
    };
    double next = 0;
    int others = 0, near = 0;
    each_other([&](double pixel) { next = others++ && next < pixel ? next : pixel; });
    const double gap = next - double(lowest);
    each_other([&](double pixel) { near += rule.times * (pixel - next) < gap; });
    return gap >= rule.gap && near > 0 && 2 * near >= others;
}

template <class T>
inline bool has_flat_ground(const T* roi, long long width, int rows, int columns, T lowest, T highest,
                            const FlatAreaRule& rule) {
    if (lowest == highest) return rule.planes > 1;
    return is_area(roi, width, rows, columns, lowest) && is_far_below(roi, width, rows, columns, lowest, rule);
}

}  // namespace SPOTFIT_ISA
}  // namespace spotfit
