// Pixels of one value in a ROI, on every machine: what makes the highest ones suspect of being saturated, and the
// lowest ones of being no data, but what an image was padded or masked with.
#pragma once

namespace spotfit {

// What a ROI is suspected of: bits.
constexpr unsigned char FLAT_TOP = 1, FLAT_GROUND = 2;

// The largest value of the pixels' type, or so many of one value, no less than another.
struct FlatTops {
    double largest, least;
    int count;
};

// Whether a ROI's highest value is suspect; count() says how many pixels have it, if it is asked for.
template <class T, class Count> inline bool is_flat_top(T highest, const FlatTops& rule, Count count) {
    if (double(highest) >= rule.largest) return true;
    return double(highest) >= rule.least && count() >= rule.count;
}

// Padding has so many pixels of a ROI at least.
constexpr int LEAST_GROUND = 5;

// Whether the pixels of a ROI that have its lowest value are an area of its own, and no more than three quarters of
// it: of the sides that they turn to other pixels there are no more than three for two of them, nor than one and a half
// times the ROI's own. Single pixels here and there, as few counts have them, turn four sides to others.
template <class T> inline bool has_flat_ground(const T* roi, long long width, int rows, int columns, T lowest) {
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

}  // namespace spotfit
