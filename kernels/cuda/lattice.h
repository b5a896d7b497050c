// From the coefficients of a measured PSF to lines of pixels, on a GPU. A thread goes along its lines, with the four
// coefficients in x that a pixel needs in registers. Of each voxel, its coefficient and the next three along z lie
// together, so that they are read at once.
#pragma once
#include "../lattice.h"

namespace spotfit::SPOTFIT_ISA {

struct alignas(16) AlongZ { float a, b, c, d; };

template <class Roi> struct LatticeLines<float, Roi> {
    static constexpr int S = MeasuredPsf::SHAPE;

    const PsfLattice& psf;
    const LatticePlace<float> place;
    const int column, row, plane;
    const Taps<float> x, y, z;
    const int first_line;
    const AlongZ* line;  // where the next coefficients are
    // Of the last four coefficients along x: the value, and its derivatives along y and z.
    float value[4], along_y[4], along_z[4];

    SPOTFIT_INLINE LatticeLines(const Roi& roi, const float (&shape)[S])
        : psf(lattice_of(roi)), place(roi, psf, shape), column(knot_before(place.x)), row(knot_before(place.y)),
          plane(plane_before(psf, place.z)), x(place.x - float(column)), y(place.y - float(row)),
          z(place.z - float(plane)), first_line(roi.first_line()), line(nullptr) {}

    SPOTFIT_INLINE void begin(int k) {
        const int first = ((row + first_line + k) * psf.columns + column) * cells() + plane;
        line = reinterpret_cast<const AlongZ*>(psf.coefficients) + first;
        UNROLL
        for (int i = 0; i < 3; ++i) next();
    }
    // For each pixel of the line in turn.
    SPOTFIT_INLINE float at(int, float (&d)[S]) {
        next();
        d[0] = -x.sum_of_slopes(value[0], value[1], value[2], value[3]);
        d[1] = -x.sum(along_y[0], along_y[1], along_y[2], along_y[3]);
        d[2] = x.sum(along_z[0], along_z[1], along_z[2], along_z[3]) * psf.planes_per_nm;
        return x.sum(value[0], value[1], value[2], value[3]);
    }

  private:
    SPOTFIT_INLINE int cells() const { return psf.planes - 3; }

    SPOTFIT_INLINE void next() {
        UNROLL
        for (int i = 0; i < 3; ++i) {
            value[i] = value[i + 1], along_y[i] = along_y[i + 1], along_z[i] = along_z[i + 1];
        }
        float of_rows[4], slopes[4];
        UNROLL
        for (int i = 0; i < 4; ++i) {
            const AlongZ c = line[i * psf.columns * cells()];
            of_rows[i] = z.sum(c.a, c.b, c.c, c.d);
            slopes[i] = z.sum_of_slopes(c.a, c.b, c.c, c.d);
        }
        value[3] = y.sum(of_rows[0], of_rows[1], of_rows[2], of_rows[3]);
        along_y[3] = y.sum_of_slopes(of_rows[0], of_rows[1], of_rows[2], of_rows[3]);
        along_z[3] = y.sum(slopes[0], slopes[1], slopes[2], slopes[3]);
        line += cells();
    }
};

template <class Roi> struct TemplateLines<float, Roi> {
    const int pitch;
    const float *first, *line;

    SPOTFIT_INLINE TemplateLines(const Roi& roi, float number, const float (&shape)[MeasuredPsf::SHAPE])
        : pitch(2 * roi.columns + 1),
          first(template_image(roi, int(number), pixel_near(shape[1], roi.lines), pixel_near(shape[0], roi.columns))),
          line(nullptr) {
        first += roi.first_line() * pitch;
    }
    SPOTFIT_INLINE void begin(int k) { line = first + k * pitch; }
    SPOTFIT_INLINE float at(int row, int i) const { return line[row * pitch + i]; }
};

}  // namespace spotfit::SPOTFIT_ISA
