// Cubic B-splines: measured PSFs are sums of them.
#pragma once
#include "functions.h"
#include "layouts/psf_lattice.h"

namespace spotfit::SPOTFIT_ISA {

// The four B-splines that are not 0 at a fraction t behind a knot, and their derivatives.
template <class L> struct Taps {
    L value[4], slope[4];

    SPOTFIT_INLINE explicit Taps(L t) {
        const L s = 1.0f - t, tt = t * t, ss = s * s;
        value[0] = ss * s * (1.0f / 6.0f), value[3] = tt * t * (1.0f / 6.0f);
        value[1] = multiply_add(tt, multiply_add(t, L(0.5f), L(-1.0f)), L(2.0f / 3.0f));
        value[2] = multiply_add(ss, multiply_add(s, L(0.5f), L(-1.0f)), L(2.0f / 3.0f));
        slope[0] = ss * -0.5f, slope[3] = tt * 0.5f;
        slope[1] = t * multiply_add(t, L(1.5f), L(-2.0f));
        slope[2] = s * multiply_add(s, L(-1.5f), L(2.0f));
    }
    SPOTFIT_INLINE L sum(L a, L b, L c, L d) const {
        return multiply_add(value[3], d, multiply_add(value[2], c, multiply_add(value[1], b, value[0] * a)));
    }
    SPOTFIT_INLINE L sum_of_slopes(L a, L b, L c, L d) const {
        return multiply_add(slope[3], d, multiply_add(slope[2], c, multiply_add(slope[1], b, slope[0] * a)));
    }
};

// The knot before a place; that of no number is the first one.
SPOTFIT_INLINE int knot_before(float place) { return place > 0.0f ? int(place) : 0; }
SPOTFIT_INLINE int plane_before(const PsfLattice& psf, float place) {
    const int knot = knot_before(place);
    return knot < psf.planes - 4 ? knot : psf.planes - 4;
}

}  // namespace spotfit::SPOTFIT_ISA
