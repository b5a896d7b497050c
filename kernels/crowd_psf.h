// The light of a spot of a crowd by a measured PSF, and its slopes: maps of pixels, as the PSF is no product of lines.
#pragma once
#include "joint.h"
#include "splines.h"

namespace spotfit::SPOTFIT_ISA {

// Maps of a spot: slopes by x, y and z, and the light itself.
enum PsfMap { LIGHT_MAP = 3, PSF_MAPS };

// Lines of numbers that making maps takes, each with room behind it for what is summed side by side.
constexpr long long lines_of_splines(int rows) { return 3ll * rows + 1; }

// Fills the maps of a spot of unit light, or that of its light alone, `rows` lines of `columns` numbers each, `pitch`
// apart. `place` is that of the first pixel among the knots.
template <bool HAS_SLOPES>
SPOTFIT_NOT_INLINE inline void fill_maps(const PsfLattice& psf, const double* place, int rows, int columns, int pitch,
                                         float* spare, float* maps) {
    constexpr int KINDS = HAS_SLOPES ? 3 : 1;
    const int column = knot_before(float(place[X])), row = knot_before(float(place[Y])),
              plane = plane_before(psf, float(place[Z]));
    const Taps<Pixels> x(Pixels(float(place[X] - column))), y(Pixels(float(place[Y] - row)));
    Taps<Pixels> z(Pixels(float(place[Z] - plane)));
    const float unit = 1 / psf.light, per_nm = unit * psf.planes_per_nm;
    UNROLL
    for (int n = 0; n < 4; ++n) z.value[n] *= unit, z.slope[n] *= per_nm;
    const int area = rows * pitch;
    // Of the PSF at the spot's z and lines of pixels, at knots along x: values, slopes by y and by z.
    float* const at_knots[] = {spare, spare + area, spare + 2 * area};
    const float* const first = psf.coefficients + static_cast<long long>(plane) * psf.plane_pitch +
                               static_cast<long long>(row) * psf.row_pitch + column;
    const int begin = rows * Team::line() / Team::LINES, end = rows * (Team::line() + 1) / Team::LINES;
    Team::wait();
    ROLLED
    for (int u = 0; u < columns + 3; u += SIDE_BY_SIDE) {
        // Of the last three knots along y, at the spot's z.
        Pixels value_a = 0.0f, value_b = 0.0f, value_c = 0.0f, slope_a = 0.0f, slope_b = 0.0f, slope_c = 0.0f;
        ROLLED
        for (int k = begin; k < end + 3; ++k) {
            const float* const from = first + static_cast<long long>(k) * psf.row_pitch + u;
            const Pixels a = load_pixels(from), b = load_pixels(from + psf.plane_pitch),
                         c = load_pixels(from + 2 * psf.plane_pitch), d = load_pixels(from + 3 * psf.plane_pitch);
            const Pixels value = z.sum(a, b, c, d), slope = HAS_SLOPES ? z.sum_of_slopes(a, b, c, d) : Pixels(0.0f);
            if (k >= begin + 3) {
                const int to = (k - 3) * pitch + u;
                store_pixels(at_knots[0] + to, y.sum(value_a, value_b, value_c, value));
                if (HAS_SLOPES) {
                    store_pixels(at_knots[1] + to, y.sum_of_slopes(value_a, value_b, value_c, value));
                    store_pixels(at_knots[2] + to, y.sum(slope_a, slope_b, slope_c, slope));
                }
            }
            value_a = value_b, value_b = value_c, value_c = value;
            slope_a = slope_b, slope_b = slope_c, slope_c = slope;
        }
    }
    share_lines(rows, [&](int k) {
        ROLLED
        for (int u = 0; u < columns; u += SIDE_BY_SIDE) {
            const MaskOf<Pixels> is_there = numbers_of_pixels() < float(columns - u);
            Pixels c[KINDS][4];
            UNROLL
            for (int kind = 0; kind < KINDS; ++kind) {
                UNROLL
                for (int n = 0; n < 4; ++n) c[kind][n] = load_pixels(at_knots[kind] + k * pitch + u + n);
            }
            const auto put = [&](int map, Pixels made) SPOTFIT_INLINE_LAMBDA {
                store_pixels(maps + map * area + k * pitch + u, select(is_there, made, Pixels(0.0f)));
            };
            put(LIGHT_MAP, x.sum(c[0][0], c[0][1], c[0][2], c[0][3]));
            if constexpr (HAS_SLOPES) {
                put(X, -x.sum_of_slopes(c[0][0], c[0][1], c[0][2], c[0][3]));
                put(Y, -x.sum(c[1][0], c[1][1], c[1][2], c[1][3]));
                put(Z, x.sum(c[2][0], c[2][1], c[2][2], c[2][3]));
            }
        }
    });
}

}  // namespace spotfit::SPOTFIT_ISA
