// Pictures of localisations on a GPU: those of a row of cells are shared by a few blocks, and each is drawn by LANES
// threads, columns side by side. Pixels sum whole numbers, so that the order of the additions does not matter: parts of
// a picture equal the whole to the bit here, too.
//
// Compile-time numbers: THREADS (of a block), LANES (threads of a localisation), BLOCKS (that share a row of cells),
// CHANNELS, GAUSSIAN.
#include "../rendering.h"

namespace spotfit::SPOTFIT_ISA {

// What a localisation adds is counted in this.
constexpr float COUNTS = 4294967296.0f;

SPOTFIT_INLINE void add(unsigned long long* place, float light) {
    atomicAdd(place, static_cast<unsigned long long>(__float2ll_rn(light * COUNTS)));
}

// Draws the localisations of a row of cells as far as they reach the part.
extern "C" __global__ void __launch_bounds__(THREADS, 4)
    render_spots(CellIndex s, PicturePart part, unsigned long long* sums) {
    const int end_row = part.first_row + part.rows, end_column = part.first_column + part.columns;
    const double finest = part.scale_y < part.scale_x ? part.scale_y : part.scale_x;
    const double far = GAUSSIAN ? s.largest_reach + (CUT * part.least_sigma + 1) / finest : 1 / finest;
    const CellRange rows(part.scale_y, s.origin_y, s.side, s.cell_rows, far, part.first_row, end_row);
    const CellRange columns(part.scale_x, s.origin_x, s.side, s.cell_columns, far, part.first_column, end_column);
    const int cell_row = blockIdx.x / BLOCKS;
    if (cell_row < rows.first || cell_row >= rows.last || columns.first >= columns.last) return;
    const unsigned* const cells = s.first + static_cast<long long>(cell_row) * s.cell_columns;
    const unsigned begin = cells[columns.first], end = cells[columns.last];
    const double step_y = s.step * part.scale_y, step_x = s.step * part.scale_x;
    const double zero_y = (s.origin_y + 0.5) * part.scale_y, zero_x = (s.origin_x + 0.5) * part.scale_x;
    const int lane = threadIdx.x % LANES;
    constexpr unsigned AT_ONCE = THREADS / LANES;
    for (unsigned i = begin + blockIdx.x % BLOCKS * AT_ONCE + threadIdx.x / LANES; i < end; i += BLOCKS * AT_ONCE) {
        if (s.shown != nullptr && !s.shown[i]) continue;
        const double y = s.y[i] * step_y + zero_y, x = s.x[i] * step_x + zero_x;
        const float* const color = CHANNELS == 1 ? nullptr : s.palette + 3 * s.color[i];
        const auto place = [&](int row, int column) {
            return sums + (static_cast<long long>(row - part.first_row) * part.columns + column - part.first_column) *
                              CHANNELS;
        };
        const double z = s.z != nullptr ? s.z[i] * part.scale_z : 0;
        if (!GAUSSIAN) {
            const int row = int(y) - (y < 0), column = int(x) - (x < 0);
            if (lane != 0 || row < part.first_row || row >= end_row || column < part.first_column ||
                column >= end_column || (s.z != nullptr && (z < part.plane || z >= part.plane + 1)))
                continue;
            UNROLL
            for (int channel = 0; channel < CHANNELS; ++channel)
                add(place(row, column) + channel, CHANNELS == 1 ? 1.0f : color[channel]);
            continue;
        }
        const float wide_y = s.sigma_y[i] * float(part.scale_y), wide_x = s.sigma_x[i] * float(part.scale_x);
        const LightOnAxis along_y(y, higher_of(wide_y, part.least_sigma), part.first_row, end_row);
        const LightOnAxis along_x(x, higher_of(wide_x, part.least_sigma), part.first_column, end_column);
        float whole = 1.0f;
        if (s.z != nullptr) {
            const float wide_z = higher_of(s.sigma_z[i] * float(part.scale_z), part.least_sigma);
            const LightOnAxis along_z(z, wide_z, part.plane, part.plane + 1);
            if (along_z.first >= along_z.last) continue;
            whole = along_z.light(part.plane);
        }
        for (int column = along_x.first + lane; column < along_x.last; column += LANES) {
            const float light_x = whole * along_x.light(column);
            float from = light_up_to(along_y.edge(float(along_y.first - along_y.base)));
            for (int row = along_y.first; row < along_y.last; ++row) {
                const float to = light_up_to(along_y.edge(float(row + 1 - along_y.base)));
                const float light = (to - from) * light_x;
                from = to;
                UNROLL
                for (int channel = 0; channel < CHANNELS; ++channel)
                    add(place(row, column) + channel, CHANNELS == 1 ? light : light * color[channel]);
            }
        }
    }
}

// Writes the pixels, and leaves the sums at 0 for the next picture.
extern "C" __global__ void __launch_bounds__(THREADS)
    write_picture(unsigned long long* sums, long long count, float unit, float* pixels) {
    const long long k = static_cast<long long>(blockIdx.x) * THREADS + threadIdx.x;
    if (k >= count) return;
    pixels[k] = float(static_cast<long long>(sums[k]) * (1.0 / COUNTS) * unit);
    sums[k] = 0;
}

}  // namespace spotfit::SPOTFIT_ISA
