// Localisations sorted into cells, for pictures. Compiled once for all machines.
#include "../layouts/rendering.h"
#include "interface.h"

using namespace spotfit;

namespace {

// Calls `found` with each row that lies within the index, its cell and its steps along both axes.
template <class Found>
void each_row(const CellIndex& index, const IndexedRows& rows, long long first, long long last, Found found) {
    const double per_step = 1 / index.step, per_side = index.step / index.side;
    for (long long i = first; i < last; ++i) {
        const double y = rows.y[i], x = rows.x[i];
        if (!(y >= rows.first_y && y <= rows.last_y && x >= rows.first_x && x <= rows.last_x)) continue;
        // Rounded to the nearest step; the cell is that of the steps.
        const unsigned step_y = static_cast<unsigned>((y - index.origin_y) * per_step + 0.5);
        const unsigned step_x = static_cast<unsigned>((x - index.origin_x) * per_step + 0.5);
        const long long row = static_cast<long long>(step_y * per_side);
        found(i, row * index.cell_columns + static_cast<long long>(step_x * per_side), step_y, step_x);
    }
}

float width(const float* sigma, float most, long long i) { return sigma[i] < most ? sigma[i] : most; }

}  // namespace

// Counts the rows first ... last - 1 by their cells.
SPOTFIT_EXPORT void spotfit_count_in_cells(const CellIndex* index, const IndexedRows* rows, long long first,
                                           long long last, unsigned* counts) {
    each_row(*index, *rows, first, last, [&](long long, long long cell, unsigned, unsigned) { ++counts[cell]; });
}

// Puts the rows first ... last - 1 where the next one of its cell belongs, which moves on; raises the reach of cells.
SPOTFIT_EXPORT void spotfit_sort_into_cells(const CellIndex* index, const IndexedRows* rows, long long first,
                                            long long last, unsigned* next) {
    const IndexedRows& s = *rows;
    each_row(*index, s, first, last, [&](long long i, long long cell, unsigned step_y, unsigned step_x) {
        const unsigned to = next[cell]++;
        s.to_y[to] = step_y, s.to_x[to] = step_x, s.row[to] = static_cast<unsigned>(i);
        if (s.z != nullptr) s.to_z[to] = static_cast<float>(s.z[i]);
        if (s.sigma_y == nullptr) return;
        s.to_sigma_y[to] = width(s.sigma_y, s.most_y, i), s.to_sigma_x[to] = width(s.sigma_x, s.most_x, i);
        if (s.z != nullptr) s.to_sigma_z[to] = width(s.sigma_z, s.most_z, i);
    });
}

// Finds how far the light of each cell's localisations goes, in the cells first ... last - 1.
SPOTFIT_EXPORT void spotfit_reach_of_cells(const CellIndex* index, double cut, long long first, long long last,
                                           float* reach) {
    for (long long cell = first; cell < last; ++cell) {
        float widest = 0;
        for (unsigned i = index->first[cell]; i < index->first[cell + 1]; ++i) {
            const float wider = index->sigma_y[i] > index->sigma_x[i] ? index->sigma_y[i] : index->sigma_x[i];
            widest = wider > widest ? wider : widest;
        }
        reach[cell] = static_cast<float>(cut) * widest;
    }
}
