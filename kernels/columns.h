// Columns of numbers that go to other rows, of the host and of GPUs.
#pragma once
#include "layouts/staging.h"

namespace spotfit {

// Calls put(from, to) with the memory of a column's numbers, as whole ones of their size.
template <class Put> inline void with_numbers(const ColumnOfRows& column, Put put) {
    const auto as = [&](auto number) {
        using T = decltype(number);
        put(static_cast<const T*>(column.from), static_cast<T*>(column.to));
    };
    if (column.bytes == 1) as(static_cast<unsigned char>(0));
    if (column.bytes == 2) as(static_cast<unsigned short>(0));
    if (column.bytes == 4) as(0u);
    if (column.bytes == 8) as(0ull);
}

}  // namespace spotfit
