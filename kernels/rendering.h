// A localisation in a picture: a Gaussian of its own width, integrated over the pixels, cut off at CUT widths and
// scaled so that it adds exactly 1.
#pragma once
#include "functions.h"
#include "layouts/rendering.h"

namespace spotfit::SPOTFIT_ISA {

constexpr float CUT = 3.0f;

#if defined(__CUDACC_RTC__)
// Not fused with a difference: the pixels at the edge of a part would be rounded in another way.
SPOTFIT_INLINE float rounded_product(float a, float b) { return __fmul_rn(a, b); }
#else
template <class L> SPOTFIT_INLINE L rounded_product(L a, L b) { return a * b; }
#endif

// The light between the centre and s widths from it: -1/2 at one cut, 1/2 at the other. As pixels are the differences
// between their edges, they add up to 1, and the cut is as far from the centre on either side.
template <class L> SPOTFIT_INLINE L light_up_to(L s) {
    constexpr float NORMAL[] = {0.2283296138048172f,     -0.09308376908302307f,   0.046096544712781906f,
                                -0.020627064630389214f,  0.008044589310884476f,   -0.0027355593629181385f,
                                0.0008157596457749605f,  -0.0002198851143475622f, 5.7932789786718786e-05f,
                                -1.1494546924950555e-05f};
    s = clamp(s, L(-CUT), L(CUT));
    return rounded_product(s, polynomial(NORMAL, multiply_add(s * s, L(2.0f / (CUT * CUT)), L(-1.0f))));
}

// Where the light of a localisation lies along an axis, in pixels of a picture from `base` on.
struct LightOnAxis {
    int base;
    float offset, per_width;
    int first, last;  // pixels of a part

    // Of a centre, in pixels of the picture, with a width, in the part from pixel `from` to `to`.
    SPOTFIT_INLINE LightOnAxis(double centre, float sigma, int from, int to) {
        base = int(centre) - (centre < 0);
        offset = float(centre - base), per_width = 1.0f / sigma;
        const float reach = CUT * sigma;
        first = base + int(offset - reach) - 1, last = base + int(offset + reach) + 1;
        if (first < from) first = from;
        if (last > to) last = to;
    }
    // From the centre to the edge of a pixel, in widths.
    template <class L> SPOTFIT_INLINE L edge(L from_base) const { return (from_base - L(offset)) * L(per_width); }
    SPOTFIT_INLINE float light(int pixel) const {
        return light_up_to(edge(float(pixel + 1 - base))) - light_up_to(edge(float(pixel - base)));
    }
};

// The rows or columns of cells whose light may reach the pixels from `first` to `last`.
struct CellRange {
    int first, last;

    SPOTFIT_INLINE CellRange(double scale, double origin, double side, int cells, double reach, int from, int to) {
        const double low = (from / scale - 0.5 - reach - origin) / side;
        const double high = (to / scale - 0.5 + reach - origin) / side;
        first = low < 0 ? 0 : low < cells ? int(low) : cells;
        last = high < 0 ? 0 : high < cells ? int(high) + 1 : cells;
    }
};

}  // namespace spotfit::SPOTFIT_ISA
