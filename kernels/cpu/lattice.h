// From the coefficients of a measured PSF to lines of pixels, on a CPU. Each lane has its own place among them, at
// which a vector takes a row of them at once; rows of all lanes are then transposed. There are never more than four,
// those that a line of pixels needs.
#pragma once
#include "../lattice.h"
#include "fit_tiles.h"
#include "transpose.h"

namespace spotfit::SPOTFIT_ISA {

// Coefficients along a line of pixels, in whole vectors.
SPOTFIT_INLINE int lattice_nodes(int columns) { return (columns + 3 + LANES - 1) / LANES * LANES; }

// The same columns of a row of each lane, whole vectors of them, from `stage`.
SPOTFIT_INLINE void transpose_rows(const float* stage, int columns, LaneType* to) {
    for (int block = 0; block < columns; block += LANES) transpose(stage + block, columns, to + block);
}

template <> struct LatticeLines<LaneType, TileRoi<LaneType>> {
    using L = LaneType;
    static constexpr int KINDS = 2;  // a coefficient of the plane, and its derivative along z

    const PsfLattice& psf;
    const int columns, nodes;
    float* stage;    // a row of coefficients of each lane
    L *ring, *line;  // the last four rows in lanes; and what they are at a line of pixels, by y and by z
    const LatticePlace<L> place;
    Taps<L> x, y, z;
    const float* first[LANES];

    static SPOTFIT_INLINE L fraction_of(L place) {
        L knots;
        for (int lane = 0; lane < LANES; ++lane) lanes_of(knots)[lane] = float(knot_before(lanes_of(place)[lane]));
        return place - knots;
    }
    SPOTFIT_INLINE LatticeLines(const TileRoi<L>& roi, const L (&shape)[MeasuredPsf::SHAPE])
        : psf(lattice_of(roi)), columns(roi.columns), nodes(lattice_nodes(columns)),
          stage(reinterpret_cast<float*>(roi.numbers)), ring(roi.numbers + 2 * nodes), line(ring + 8 * nodes),
          place(roi, psf, shape), x(fraction_of(place.x)), y(fraction_of(place.y)), z(L(0.0f)) {
        L planes;
        for (int lane = 0; lane < LANES; ++lane) {
            const int plane = plane_before(psf, place.z.v[lane]);
            lanes_of(planes)[lane] = float(plane);
            first[lane] = psf.coefficients + static_cast<long long>(plane) * psf.plane_pitch +
                          knot_before(place.y.v[lane]) * psf.row_pitch + knot_before(place.x.v[lane]);
        }
        z = Taps<L>(place.z - planes);
    }
    SPOTFIT_INLINE void begin_line(int k) {
        if (k == 0)
            for (int row = 0; row < 3; ++row) load_row(row);
        load_row(k + 3);
        const L *a = ring_row(k), *b = ring_row(k + 1), *c = ring_row(k + 2), *d = ring_row(k + 3);
        for (int i = 0; i < columns + 3; ++i) {
            line[i] = y.sum(a[i], b[i], c[i], d[i]);
            line[nodes + i] = y.sum_of_slopes(a[i], b[i], c[i], d[i]);
            line[2 * nodes + i] = y.sum(a[nodes + i], b[nodes + i], c[nodes + i], d[nodes + i]);
        }
    }
    SPOTFIT_INLINE L at(int i, L (&d)[MeasuredPsf::SHAPE]) const {
        const L* own = line + i;
        d[0] = -x.sum_of_slopes(own[0], own[1], own[2], own[3]);
        d[1] = -along_x(own + nodes);
        d[2] = along_x(own + 2 * nodes) * psf.planes_per_nm;
        return along_x(own);
    }

    template <class Use, class EndLine>
    SPOTFIT_INLINE void for_each_pixel(const TileRoi<L>& roi, Use use, EndLine end_line) {
        spotfit::SPOTFIT_ISA::for_each_pixel<MeasuredPsf::SHAPE, L>(roi, *this, use, end_line);
    }

  private:
    SPOTFIT_INLINE L along_x(const L* own) const { return x.sum(own[0], own[1], own[2], own[3]); }
    SPOTFIT_INLINE L* ring_row(int row) const { return ring + row % 4 * 2 * nodes; }

    SPOTFIT_INLINE void load_row(int row) const {
        const long long plane = psf.plane_pitch;
        for (int lane = 0; lane < LANES; ++lane) {
            const float* from = first[lane] + row * psf.row_pitch;
            float* to = stage + lane * KINDS * nodes;
            const auto tap = [lane](const L& of_all) SPOTFIT_INLINE_LAMBDA { return L(of_all.v[lane]); };
            const L v0 = tap(z.value[0]), v1 = tap(z.value[1]), v2 = tap(z.value[2]), v3 = tap(z.value[3]);
            const L s0 = tap(z.slope[0]), s1 = tap(z.slope[1]), s2 = tap(z.slope[2]), s3 = tap(z.slope[3]);
            for (int i = 0; i < nodes; i += LANES) {
                L a, b, c, d;
                __builtin_memcpy(&a, from + i, sizeof(L)), __builtin_memcpy(&b, from + plane + i, sizeof(L));
                __builtin_memcpy(&c, from + 2 * plane + i, sizeof(L)),
                    __builtin_memcpy(&d, from + 3 * plane + i, sizeof(L));
                const L value = multiply_add(v3, d, multiply_add(v2, c, multiply_add(v1, b, v0 * a)));
                __builtin_memcpy(to + i, &value, sizeof(L));
                const L slope = multiply_add(s3, d, multiply_add(s2, c, multiply_add(s1, b, s0 * a)));
                __builtin_memcpy(to + nodes + i, &slope, sizeof(L));
            }
        }
        transpose_rows(stage, KINDS * nodes, ring_row(row));
    }
};

// Three lines of each lane's image at a time, from a pixel before the ROI to one behind it.
template <> struct TemplateLines<LaneType, TileRoi<LaneType>> {
    using L = LaneType;

    const int nodes, pitch;
    float* stage;  // a line of the image of each lane
    L *ring, *line[3];
    const float* first[LANES];

    SPOTFIT_INLINE TemplateLines(const TileRoi<L>& roi, L number, const L (&shape)[MeasuredPsf::SHAPE])
        : nodes(lattice_nodes(roi.columns)), pitch(2 * roi.columns + 1), stage(reinterpret_cast<float*>(roi.numbers)),
          ring(roi.numbers + nodes) {
        for (int lane = 0; lane < LANES; ++lane) {
            const int row = pixel_near(shape[1].v[lane], roi.lines), column = pixel_near(shape[0].v[lane], roi.columns);
            first[lane] = template_image(roi, int(number.v[lane]), row, column) - pitch - 1;
        }
    }
    SPOTFIT_INLINE void begin(int k) {
        if (k == 0) load_line(0), load_line(1);
        load_line(k + 2);
        for (int i = 0; i < 3; ++i) line[i] = ring_line(k + i) + 1;
    }
    SPOTFIT_INLINE L at(int row, int i) const { return line[row + 1][i]; }

  private:
    SPOTFIT_INLINE L* ring_line(int k) const { return ring + k % 3 * nodes; }

    SPOTFIT_INLINE void load_line(int k) const {
        for (int lane = 0; lane < LANES; ++lane)
            for (int i = 0; i < nodes; i += LANES)
                __builtin_memcpy(stage + lane * nodes + i, first[lane] + k * pitch + i, sizeof(L));
        transpose_rows(stage, nodes, ring_line(k));
    }
};

// What ends a search of a tile.
template <class Variant> SPOTFIT_INLINE auto minimizer(const TileRoi<LaneType>& roi, State<LaneType> state) {
    return [&roi, state](Search<LaneType, Variant::N>& search, const FitSettings& settings) {
        TileRows<Variant>::write_search(search, state);
        search_fits<Variant>(roi, state, settings, 0);
        search = TileRows<Variant>::read_search(state);
    };
}

template <class Variant>
__attribute__((noinline)) SearchEnd<Variant, LaneType> search_along_z(TileRoi<LaneType> roi, State<LaneType> state,
                                                                      const LaneType (&given)[Variant::SHAPE],
                                                                      const FitSettings& settings) {
    using Rows = TileRows<Variant>;
    Search<LaneType, Variant::N> search = Rows::read_search(state);
    const SearchEnd<Variant, LaneType> other =
        best_along_z<Variant, false>(roi, state, given, settings, search, minimizer<Variant>(roi, state));
    Rows::write_search(search, state);
    return other;
}

template <class Variant, class Before>
__attribute__((noinline)) void compare_likelihoods(TileRoi<LaneType> roi, State<LaneType> state,
                                                   const SearchEnd<Before, LaneType>& other, LaneType best_chi,
                                                   const FitSettings& settings) {
    using Rows = TileRows<Variant>;
    Search<LaneType, Variant::N> search = Rows::read_search(state);
    better_likelihood<Variant, false>(roi, state, other, best_chi, settings, search, minimizer<Variant>(roi, state));
    Rows::write_search(search, state);
}

}  // namespace spotfit::SPOTFIT_ISA
