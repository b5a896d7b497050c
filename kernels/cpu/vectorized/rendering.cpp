// Pictures of localisations, a tile at a time. Every pixel sums its light in the order of the index, whatever part of a
// picture is drawn, and in double precision: a bright one still counts each localisation.
#include "../../rendering.h"

#include "../instruction_set.h"
#include "../rendering.h"
#include "../transpose.h"
#include "tables.h"

namespace spotfit::SPOTFIT_ISA {
namespace {

// Sums of a row that are added to at once.
constexpr int AT_ONCE = 8;
using Eight = FloatsOf<AT_ONCE>;
using EightSums = double __attribute__((ext_vector_type(AT_ONCE)));

struct Tile {
    int row, column, end_row, end_column;  // in the picture
};

template <int... I> SPOTFIT_INLINE LaneType::Floats counted(Sequence<I...>) { return {float(I)...}; }
template <int... I> SPOTFIT_INLINE LaneType next_lane(LaneType x, Sequence<I...>) {
    return __builtin_shufflevector(x.v, x.v, (I + 1 < LANES ? I + 1 : I)...);
}

// Writes the light of a part's pixels along an axis; behind the last one are zeros, AT_ONCE at least. All vectors begin
// one pixel before the end of the one before, as a pixel has two edges.
SPOTFIT_INLINE void spread(const LightOnAxis& axis, float* light) {
    const LaneType steps = counted(UpTo<LANES>());
    const int pixels = axis.last - axis.first;
    for (int k = 0; k < pixels; k += LANES - 1) {
        const LaneType up_to = light_up_to(axis.edge(steps + float(axis.first - axis.base + k)));
        const LaneType own = next_lane(up_to, UpTo<LANES>()) - up_to;
        __builtin_memcpy(light + k, &own, sizeof own);
    }
    const Eight none = 0.0f;
    __builtin_memcpy(light + pixels, &none, sizeof none);
}

template <int CHANNELS, bool GAUSSIAN> class TilePainter {
    const CellIndex& s;
    const PicturePart& part;
    const Tile tile;
    double* const sums;

    // A row's sums of one channel.
    SPOTFIT_INLINE double* line(int row, int channel) const {
        return sums + (static_cast<long long>(row - tile.row) * CHANNELS + channel) * RENDER_STRIDE;
    }
    SPOTFIT_INLINE const float* color(unsigned i) const { return s.palette + 3 * s.color[i]; }

    SPOTFIT_INLINE double depth(unsigned i) const { return s.z[i] * part.scale_z; }

    SPOTFIT_INLINE void add_point(double y, double x, unsigned i) const {
        const int row = int(y) - (y < 0), column = int(x) - (x < 0);
        if (s.z != nullptr) {
            const double z = depth(i);
            if (z < part.plane || z >= part.plane + 1) return;
        }
        if (row < tile.row || row >= tile.end_row || column < tile.column || column >= tile.end_column) return;
        for (int channel = 0; channel < CHANNELS; ++channel)
            line(row, channel)[column - tile.column] += CHANNELS == 1 ? 1.0f : color(i)[channel];
    }
    SPOTFIT_INLINE void add_gaussian(double y, double x, unsigned i) const {
        const float wide_y = s.sigma_y[i] * float(part.scale_y), wide_x = s.sigma_x[i] * float(part.scale_x);
        const LightOnAxis along_y(y, higher_of(wide_y, part.least_sigma), tile.row, tile.end_row);
        const LightOnAxis along_x(x, higher_of(wide_x, part.least_sigma), tile.column, tile.end_column);
        if (along_y.first >= along_y.last || along_x.first >= along_x.last) return;
        float light_y[RENDER_TILE + LANES + AT_ONCE], light_x[RENDER_TILE + LANES + AT_ONCE];
        spread(along_y, light_y);
        spread(along_x, light_x);
        if (s.z != nullptr) {
            const float wide_z = higher_of(s.sigma_z[i] * float(part.scale_z), part.least_sigma);
            const LightOnAxis along_z(depth(i), wide_z, part.plane, part.plane + 1);
            if (along_z.first >= along_z.last) return;
            const float light_z = along_z.light(part.plane);
            for (int k = 0; k < along_y.last - along_y.first; ++k) light_y[k] *= light_z;
        }
        const int columns = along_x.last - along_x.first, from = along_x.first - tile.column;
        for (int row = along_y.first; row < along_y.last; ++row)
            for (int k = 0; k < columns; k += AT_ONCE) {
                Eight own;
                __builtin_memcpy(&own, light_x + k, sizeof own);
                own *= light_y[row - along_y.first];
                for (int channel = 0; channel < CHANNELS; ++channel) {
                    double* const place = line(row, channel) + from + k;
                    EightSums sum;
                    __builtin_memcpy(&sum, place, sizeof sum);
                    if (CHANNELS == 1) sum += __builtin_convertvector(own, EightSums);
                    else sum += __builtin_convertvector(own * color(i)[channel], EightSums);
                    __builtin_memcpy(place, &sum, sizeof sum);
                }
            }
    }

  public:
    TilePainter(const CellIndex& index, const PicturePart& picture, const Tile& own, double* memory)
        : s(index), part(picture), tile(own), sums(memory) {
        __builtin_memset(sums, 0, sizeof(double) * CHANNELS * RENDER_STRIDE * RENDER_TILE);
    }

    void add_all() const {
        // In pixels of the camera; a pixel of the picture more, as all is rounded.
        const double finest = part.scale_y < part.scale_x ? part.scale_y : part.scale_x;
        const double least_reach = GAUSSIAN ? (CUT * part.least_sigma + 1) / finest : 1 / finest;
        const auto ranges = [&](float reach) SPOTFIT_INLINE_LAMBDA {
            const double far = reach + least_reach;
            struct {
                CellRange rows, columns;
            } found = {{part.scale_y, s.origin_y, s.side, s.cell_rows, far, tile.row, tile.end_row},
                       {part.scale_x, s.origin_x, s.side, s.cell_columns, far, tile.column, tile.end_column}};
            return found;
        };
        const double step_y = s.step * part.scale_y, step_x = s.step * part.scale_x;
        const double zero_y = (s.origin_y + 0.5) * part.scale_y, zero_x = (s.origin_x + 0.5) * part.scale_x;
        const auto widest = ranges(GAUSSIAN ? s.largest_reach : 0), nearest = ranges(0);
        for (int row = widest.rows.first; row < widest.rows.last; ++row)
            for (int column = widest.columns.first; column < widest.columns.last; ++column) {
                const long long cell = static_cast<long long>(row) * s.cell_columns + column;
                const unsigned begin = s.first[cell], end = s.first[cell + 1];
                if (begin == end) continue;
                const auto in = [](int k, const CellRange& range) { return k >= range.first && k < range.last; };
                if (!in(row, nearest.rows) || !in(column, nearest.columns)) {
                    if (!GAUSSIAN) continue;
                    const auto own = ranges(s.reach[cell]);
                    if (!in(row, own.rows) || !in(column, own.columns)) continue;
                }
                for (unsigned i = begin; i < end; ++i) {
                    if (s.shown != nullptr && !s.shown[i]) continue;
                    const double y = s.y[i] * step_y + zero_y, x = s.x[i] * step_x + zero_x;
                    if (GAUSSIAN) add_gaussian(y, x, i);
                    else add_point(y, x, i);
                }
            }
    }

    void write() const {
        for (int row = tile.row; row < tile.end_row; ++row) {
            float* const to = part.pixels + static_cast<long long>(row - part.first_row) * part.columns * CHANNELS;
            for (int column = tile.column; column < tile.end_column; ++column)
                for (int channel = 0; channel < CHANNELS; ++channel)
                    to[(column - part.first_column) * CHANNELS + channel] =
                        float(line(row, channel)[column - tile.column] * part.unit);
        }
    }
};

template <int CHANNELS, bool GAUSSIAN>
void render(const CellIndex& index, const PicturePart& part, const Tile& tile, double* sums) {
    const TilePainter<CHANNELS, GAUSSIAN> painter(index, part, tile, sums);
    painter.add_all();
    painter.write();
}

void render_tiles(const CellIndex& index, const PicturePart& part, long long first, long long last, double* sums) {
    const SubnormalsAreZero here;
    const int columns = (part.columns + RENDER_TILE - 1) / RENDER_TILE;
    for (long long k = first; k < last; ++k) {
        const int row = static_cast<int>(k / columns) * RENDER_TILE,
                  column = static_cast<int>(k % columns) * RENDER_TILE;
        const int end_row = row + RENDER_TILE < part.rows ? row + RENDER_TILE : part.rows;
        const int end_column = column + RENDER_TILE < part.columns ? column + RENDER_TILE : part.columns;
        const Tile tile = {part.first_row + row, part.first_column + column, part.first_row + end_row,
                           part.first_column + end_column};
        if (index.color != nullptr) (index.sigma_y ? render<3, true> : render<3, false>)(index, part, tile, sums);
        else (index.sigma_y ? render<1, true> : render<1, false>)(index, part, tile, sums);
    }
}

}  // namespace

const RenderFunctions rendering = {render_tiles};

}  // namespace spotfit::SPOTFIT_ISA
