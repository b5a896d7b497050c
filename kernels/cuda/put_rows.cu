// Results on a GPU that go to the rows where they belong: a thread for each of them.
//
// Compile-time numbers: THREADS (of a block).
#include "../columns.h"
#include "../lanes.h"

namespace spotfit::SPOTFIT_ISA {

extern "C" __global__ void __launch_bounds__(THREADS)
    put_rows(const ColumnOfRows* columns, int column_count, const long long* rows, long long count) {
    const long long i = static_cast<long long>(blockIdx.x) * THREADS + threadIdx.x;
    if (i >= count) return;
    const long long row = rows[i];
    for (int k = 0; k < column_count; ++k)
        with_numbers(columns[k], [&](const auto* from, auto* to) { to[row] = from[i]; });
}

}  // namespace spotfit::SPOTFIT_ISA
