// What makes the highest pixels of a ROI suspect of being saturated, on every machine.
#pragma once

namespace spotfit {

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

}  // namespace spotfit
