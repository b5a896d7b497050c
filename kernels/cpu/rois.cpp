// ROIs of spots: where they lie, which are fitted together, and where their results go. Compiled once for all
// machines.
#include "../columns.h"
#include "instruction_sets.h"
#include "own_pixels.h"

using namespace spotfit;

namespace {

// To the nearest whole number, of two to the even one, for all that may be a pixel's.
double rounded(double x) {
    constexpr double WHOLE = 6755399441055744.0;  // 1.5 * 2^52
    return (x + WHOLE) - WHOLE;
}

// The first pixel of a ROI along an axis, and how far from it the spot is.
long long first_pixel(double place, long long side, long long size, float& start) {
    long long corner = static_cast<long long>(rounded(place)) - side / 2;
    corner = corner < 0 ? 0 : corner;
    corner = corner > size - side ? size - side : corner;
    start = static_cast<float>(place - static_cast<double>(corner));
    return corner;
}

}  // namespace

SPOTFIT_EXPORT void spotfit_place_spots(const FoundSpots* spots) {
    const FoundSpots& s = *spots;
    for (long long i = 0; i < s.count; ++i) {
        s.number[i] = s.numbers[s.frame[i]];
        s.places[2 * i] = static_cast<double>(s.y[i]);
        s.places[2 * i + 1] = static_cast<double>(s.x[i]);
    }
}

SPOTFIT_EXPORT void spotfit_place_rois(const RoisOfSpots* rois) {
    const RoisOfSpots& r = *rois;
    for (long long i = 0; i < r.count; ++i) {
        long long* const corner = r.corners + 3 * i;
        float* const start = r.start + r.parameters * i;
        corner[0] = r.frame[i];
        corner[1] = first_pixel(r.places[2 * i], r.rows, r.height, start[0]);
        corner[2] = first_pixel(r.places[2 * i + 1], r.columns, r.width, start[1]);
        for (int j = 2; j < r.parameters; ++j) start[j] = __builtin_nanf("");
    }
}

// Returns how many are in the first part; the spots are sorted where neighbours are looked for.
SPOTFIT_EXPORT long long spotfit_part_rois(int index, const SpotCells* spots, const RoiParts* parts) {
    const RoiParts& p = *parts;
    if (p.crowded) {
        const OwnPixelFunctions& functions = *instruction_set(index).functions->own_pixels;
        functions.sort(*spots);
        functions.find_crowded(*spots, 0, p.count, p.crowded);
        for (long long i = 0; i < p.count; ++i) p.second[i] |= p.crowded[i];
    }
    long long place = 0, first = 0;
    for (int part = 0; part < 2; ++part) {
        for (long long i = 0; i < p.count; ++i) {
            if ((p.second[i] != 0) != (part == 1)) continue;
            p.numbers[place] = i;
            for (int j = 0; j < 3; ++j) p.own_corners[3 * place + j] = p.corners[3 * i + j];
            for (int j = 0; p.start && j < p.parameters; ++j)
                p.own_start[p.parameters * place + j] = p.start[p.parameters * i + j];
            ++place;
        }
        if (part == 0) first = place;
    }
    return first;
}

// Writes numbers of columns to their rows; null: to the first ones.
SPOTFIT_EXPORT void spotfit_put_rows(const ColumnOfRows* columns, int column_count, const long long* rows,
                                     long long count) {
    for (int k = 0; k < column_count; ++k)
        if (rows)
            with_numbers(columns[k], [&](const auto* from, auto* to) {
                for (long long i = 0; i < count; ++i) to[rows[i]] = from[i];
            });
        else
            __builtin_memcpy(columns[k].to, columns[k].from, static_cast<unsigned long long>(count * columns[k].bytes));
}
