// From the coefficients of a measured PSF to lines of pixels, on a GPU. What takes time is reading them. So of each
// voxel, its coefficient and the next three along z lie together, and a thread goes along some of its lines at once,
// with the four coefficients in x that their pixels need in registers: each is read once for all of these lines.
#pragma once
#include "../lattice.h"

namespace spotfit::SPOTFIT_ISA {

// How many lines a thread goes along at once. More of them, or loops that are unrolled, are slower: what counts then is
// the memory for code.
constexpr int LINES_TOGETHER = 2;

struct alignas(16) AlongZ { float a, b, c, d; };

template <class Roi> struct LatticeLines<float, Roi> {
    static constexpr int S = MeasuredPsf::SHAPE, OWN = Roi::OWN_LINES;
    static constexpr int TOGETHER = OWN < LINES_TOGETHER ? OWN : LINES_TOGETHER;

    // Of the last four coefficients along x: the value, and its derivatives along y and z.
    struct Line { float value[4], along_y[4], along_z[4]; };

    const PsfLattice& psf;
    const LatticePlace<float> place;
    const int column, row, plane;
    const Taps<float> x, y, z;

    SPOTFIT_INLINE LatticeLines(const Roi& roi, const float (&shape)[S])
        : psf(lattice_of(roi)), place(roi, psf, shape), column(knot_before(place.x)), row(knot_before(place.y)),
          plane(plane_before(psf, place.z)), x(place.x - float(column)), y(place.y - float(row)),
          z(place.z - float(plane)) {}

    template <class Use, class EndLine>
    SPOTFIT_INLINE void for_each_pixel(const Roi& roi, Use use, EndLine end_line) const {
        for (int first = 0; first < OWN && roi.has_line(first); first += TOGETHER) {
            const int begin = (plane * psf.rows + row + roi.first_line() + first) * psf.columns + column;
            const AlongZ* next = reinterpret_cast<const AlongZ*>(psf.coefficients) + begin;
            Line lines[TOGETHER];
            UNROLL
            for (int i = 0; i < 3; ++i) go_on(lines, next++);
            UNROLL_PIXELS
            for (int i = 0; i < roi.own_columns(); ++i) {
                go_on(lines, next++);
                UNROLL
                for (int k = 0; k < TOGETHER; ++k) {
                    if (first + k >= OWN || !roi.has_line(first + k)) break;
                    float d[S];
                    const float f = at(lines[k], d);
                    use(first + k, i, f, d);
                }
            }
            end_line();
        }
    }

  private:
    SPOTFIT_INLINE float at(const Line& line, float (&d)[S]) const {
        const auto along_x = [&](const float (&of)[4])
                                 SPOTFIT_INLINE_LAMBDA { return x.sum(of[0], of[1], of[2], of[3]); };
        d[0] = -x.sum_of_slopes(line.value[0], line.value[1], line.value[2], line.value[3]);
        d[1] = -along_x(line.along_y);
        d[2] = along_x(line.along_z) * psf.planes_per_nm;
        return along_x(line.value);
    }
    // Takes the coefficients of the next column. Of lines that are not there, they are of no use.
    SPOTFIT_INLINE void go_on(Line (&lines)[TOGETHER], const AlongZ* next) const {
        float of_rows[TOGETHER + 3], slopes[TOGETHER + 3];
        UNROLL
        for (int k = 0; k < TOGETHER + 3; ++k) {
            const AlongZ c = next[k * psf.columns];
            of_rows[k] = z.sum(c.a, c.b, c.c, c.d);
            slopes[k] = z.sum_of_slopes(c.a, c.b, c.c, c.d);
        }
        UNROLL
        for (int k = 0; k < TOGETHER; ++k) {
            Line& own = lines[k];
            UNROLL
            for (int i = 0; i < 3; ++i) {
                own.value[i] = own.value[i + 1], own.along_y[i] = own.along_y[i + 1];
                own.along_z[i] = own.along_z[i + 1];
            }
            own.value[3] = y.sum(of_rows[k], of_rows[k + 1], of_rows[k + 2], of_rows[k + 3]);
            own.along_y[3] = y.sum_of_slopes(of_rows[k], of_rows[k + 1], of_rows[k + 2], of_rows[k + 3]);
            own.along_z[3] = y.sum(slopes[k], slopes[k + 1], slopes[k + 2], slopes[k + 3]);
        }
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
