// Positions of spots, and where results go. Compiled once for all machines.
#include "../columns.h"
#include "../layouts/spots.h"
#include "interface.h"

using namespace spotfit;

SPOTFIT_EXPORT void spotfit_place_spots(const FoundSpots* spots) {
    const FoundSpots& s = *spots;
    for (long long i = 0; i < s.count; ++i) {
        s.number[i] = s.numbers[s.frame[i]];
        s.places[2 * i] = static_cast<double>(s.y[i]);
        s.places[2 * i + 1] = static_cast<double>(s.x[i]);
    }
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
