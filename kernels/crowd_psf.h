// The light of a spot of a crowd by a measured PSF, and its slopes: maps of pixels, as the PSF is no product of lines.
#pragma once
#include "joint.h"
#include "splines.h"

namespace spotfit::SPOTFIT_ISA {

// Maps of a spot: slopes by x, y and z, and the light itself.
enum PsfMap { LIGHT_MAP = 3, PSF_MAPS };

// Lines of numbers that making maps takes, each with room behind it for what is summed side by side.
constexpr long long lines_of_splines(int rows) { return 5ll * (rows + 3) + 1; }

// Fills the maps of a spot of unit light, or that of its light alone, `rows` lines of `columns` numbers each, `pitch`
// apart. `place` is that of the first pixel among the knots.
template <bool HAS_SLOPES>
SPOTFIT_NOT_INLINE inline void fill_maps(const PsfLattice& psf, const double* place, int rows, int columns, int pitch,
                                         float* spare, float* maps) {
    const int column = knot_before(float(place[X])), row = knot_before(float(place[Y])),
              plane = plane_before(psf, float(place[Z]));
    const Taps<Pixels> x(Pixels(float(place[X] - column))), y(Pixels(float(place[Y] - row))),
        z(Pixels(float(place[Z] - plane)));
    const float unit = 1 / psf.light, per_nm = unit * psf.planes_per_nm;
    const int knots = rows + 3, area = rows * pitch;
    const long long step = static_cast<long long>(knots) * pitch;
    // Of the PSF at the spot's z: values and slopes by z, at knots; then values, slopes by x and by z, at columns.
    float *const at_knots[] = {spare, spare + step}, *const at_columns[] = {spare + 2 * step, spare + 3 * step,
                                                                            spare + 4 * step};
    const float* const first = psf.coefficients + static_cast<long long>(plane) * psf.plane_pitch +
                               static_cast<long long>(row) * psf.row_pitch + column;
    share_lines(knots, [&](int k) {
        const float* const from = first + static_cast<long long>(k) * psf.row_pitch;
        ROLLED
        for (int u = 0; u < columns + 3; u += SIDE_BY_SIDE) {
            Pixels c[4];
            UNROLL
            for (int n = 0; n < 4; ++n) c[n] = load_pixels(from + static_cast<long long>(n) * psf.plane_pitch + u);
            store_pixels(at_knots[0] + k * pitch + u, unit * z.sum(c[0], c[1], c[2], c[3]));
            if (HAS_SLOPES) store_pixels(at_knots[1] + k * pitch + u, per_nm * z.sum_of_slopes(c[0], c[1], c[2], c[3]));
        }
    });
    share_lines(knots, [&](int k) {
        ROLLED
        for (int u = 0; u < columns; u += SIDE_BY_SIDE) {
            Pixels c[2][4];
            UNROLL
            for (int n = 0; n < 4; ++n) {
                c[0][n] = load_pixels(at_knots[0] + k * pitch + u + n);
                if (HAS_SLOPES) c[1][n] = load_pixels(at_knots[1] + k * pitch + u + n);
            }
            store_pixels(at_columns[0] + k * pitch + u, x.sum(c[0][0], c[0][1], c[0][2], c[0][3]));
            if (!HAS_SLOPES) continue;
            store_pixels(at_columns[1] + k * pitch + u, x.sum_of_slopes(c[0][0], c[0][1], c[0][2], c[0][3]));
            store_pixels(at_columns[2] + k * pitch + u, x.sum(c[1][0], c[1][1], c[1][2], c[1][3]));
        }
    });
    share_lines(rows, [&](int k) {
        ROLLED
        for (int u = 0; u < columns; u += SIDE_BY_SIDE) {
            const MaskOf<Pixels> is_there = numbers_of_pixels() < float(columns - u);
            Pixels c[3][4];
            UNROLL
            for (int n = 0; n < 4; ++n) {
                UNROLL
                for (int kind = 0; kind < (HAS_SLOPES ? 3 : 1); ++kind)
                    c[kind][n] = load_pixels(at_columns[kind] + (k + n) * pitch + u);
            }
            if (!HAS_SLOPES) {
                const Pixels light = y.sum(c[0][0], c[0][1], c[0][2], c[0][3]);
                store_pixels(maps + LIGHT_MAP * area + k * pitch + u, select(is_there, light, Pixels(0.0f)));
                continue;
            }
            const Pixels made[] = {
                -y.sum(c[1][0], c[1][1], c[1][2], c[1][3]), -y.sum_of_slopes(c[0][0], c[0][1], c[0][2], c[0][3]),
                y.sum(c[2][0], c[2][1], c[2][2], c[2][3]), y.sum(c[0][0], c[0][1], c[0][2], c[0][3])};
            UNROLL
            for (int map = 0; map < PSF_MAPS; ++map)
                store_pixels(maps + map * area + k * pitch + u, select(is_there, made[map], Pixels(0.0f)));
        }
    });
}

}  // namespace spotfit::SPOTFIT_ISA
