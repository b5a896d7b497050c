#include "../load_rows.h"
#include "tables.h"

namespace spotfit::SPOTFIT_ISA {
namespace {

using L = LaneType;
using Doubles = double __attribute__((ext_vector_type(LANES)));

// So many vectors are added up in single precision.
constexpr int VECTORS_AT_ONCE = 256;
// An axis is exact over so many pixels, as in a small ROI.
constexpr int STRIP = 32;

// A sum in double precision.
struct WideSum {
    Doubles lanes = {};
    SPOTFIT_INLINE void add(L x) { lanes += __builtin_convertvector(x.v, Doubles); }
    SPOTFIT_INLINE double total() const {
        double sum = 0.0;
        for (int lane = 0; lane < LANES; ++lane) sum += lanes[lane];
        return sum;
    }
};

SPOTFIT_INLINE int vectors_of(int columns) { return (columns + LANES - 1) / LANES; }

// What columns of pixels tell of cells.
struct ColumnSums { L count, low, high, total, weight; };

// A thread's memory.
struct LargeWork {
    L *pixels, *planes, *variances;
    AxisProfile<L>* along_x;
    ColumnSums* column_sums;
    int rows;  // that fit in

    static long long needed(int columns) {
        const int vectors = vectors_of(columns);
        const int room = vectors > VECTORS_AT_ONCE ? vectors : VECTORS_AT_ONCE;
        return (3LL * room + 8LL * vectors) * static_cast<long long>(sizeof(L)) + 64;
    }
    LargeWork(void* memory, int columns) {
        L* m = reinterpret_cast<L*>((reinterpret_cast<unsigned long long>(memory) + 63) / 64 * 64);
        const int vectors = vectors_of(columns), room = vectors > VECTORS_AT_ONCE ? vectors : VECTORS_AT_ONCE;
        pixels = m, m += room;
        planes = m, m += room;
        variances = m, m += room;
        along_x = reinterpret_cast<AxisProfile<L>*>(m), m += 3 * vectors;
        column_sums = reinterpret_cast<ColumnSums*>(m);
        rows = room / vectors;
    }
};

RowBlock<L> block_of(const LargeRequest& request, const RoiSource& source, const LargeWork& work) {
    const bool variances = request.task == NOISE && source.variance.values;
    return {0, 0, vectors_of(request.columns), request.origin_x, request.origin_y, work.pixels, work.planes,
            variances ? work.variances : nullptr, work.along_x, source.program};
}

// Calls use(block) with blocks of a piece's rows, loaded.
template <class Use>
SPOTFIT_INLINE void over_blocks(const RoiSource& source, long long roi, const LargeRequest& request, int piece,
                                const LargeWork& work, int most, Use use) {
    const long long rows = request.end_row - request.first_row;
    const int first = request.first_row + int(rows * piece / request.pieces);
    const int end = request.first_row + int(rows * (piece + 1) / request.pieces);
    RowBlock<L> block = block_of(request, source, work);
    if (most > work.rows) most = work.rows;
    for (block.top = first; block.top < end; block.top += block.rows) {
        block.rows = end - block.top < most ? end - block.top : most;
        load_rows(source, roi, request, block);
        use(block);
    }
}

// The profile along x, 0 beyond the ROI. Lanes work on strips of neighbouring columns.
template <class Profile> AxisSums<double> fill_along_x(const LargeRequest& request, AxisProfile<L>* along_x) {
    const int columns = request.columns, padded = vectors_of(columns) * LANES;
    float* to = reinterpret_cast<float*>(along_x);
    AxisSums<double> total = {};
    const L strip = lane_numbers<L>() * float(STRIP);
    for (int first = 0; first < padded; first += LANES * STRIP) {
        const L center = request.shape[0] - strip;
        typename Profile::template Axis<L> axis(float(first - request.origin_x), center, request.shape[Profile::WIDTH_X]);
        for (int i = 0; i < STRIP; ++i) {
            const AxisProfile<L> u = axis.at(i);
            for (int lane = 0; lane < LANES; ++lane) {
                const int column = first + lane * STRIP + i;
                if (column >= padded) break;
                const bool inside = column < columns;
                const AxisProfile<float> own = {inside ? u.value.v[lane] : 0.0f, inside ? u.center.v[lane] : 0.0f,
                                                inside ? u.width.v[lane] : 0.0f};
                float* place = to + column / LANES * 3 * LANES + column % LANES;
                place[0] = own.value, place[LANES] = own.center, place[2 * LANES] = own.width;
                total.add({double(own.value), double(own.center), double(own.width)});
            }
        }
    }
    return total;
}

template <class Variant> void write(const PixelSums<Variant, double>& sums, double chi, double* numbers) {
    for (double sum : sums.s.a) *numbers++ = sum;
    for (double sum : sums.s.b) *numbers++ = sum;
    *numbers = chi;
}

// ---- sums along the axes ----

template <class Profile>
void sums_along_axes(const RoiSource& source, long long roi, const LargeRequest& request, int piece,
                     const LargeWork& work, double* numbers) {
    using Variant = LargeSquares<Profile>;
    constexpr int S = Variant::SHAPE;
    const AxisSums<double> along_x = fill_along_x<Profile>(request, work.along_x);
    AxisSums<double> along_y = {};
    WideSum f, p[S], residual, chi;
    double rows = 0.0;
    over_blocks(source, roi, request, piece, work, STRIP, [&](const RowBlock<L>& block) {
        typename Profile::template Axis<L> y(float(block.first_row()), request.shape[1], request.shape[Profile::WIDTH_Y]);
        AxisSums<L> own_y = {};
        ResidualSums<Variant, L> own = {};
        over_rows(block, [&](auto rows_at_once, int k) SPOTFIT_INLINE_LAMBDA {
            add_residual_rows<decltype(rows_at_once)::value>(block, k, y, L(request.amplitude), L(request.background),
                                                             own_y, own);
        });
        const auto first = [](L x) { return double(x.v[0]); };
        along_y = {along_y.u + first(own_y.u), along_y.c + first(own_y.c), along_y.s + first(own_y.s),
                   along_y.uu + first(own_y.uu), along_y.uc + first(own_y.uc), along_y.us + first(own_y.us),
                   along_y.cc + first(own_y.cc), along_y.cs + first(own_y.cs), along_y.ss + first(own_y.ss)};
        f.add(own.data.f);
        for (int j = 0; j < S; ++j) p[j].add(own.data.p[j]);
        residual.add(own.residual);
        chi.add(own.chi);
        rows += block.rows;
    });
    ResidualSums<Variant, double> own;
    own.data.f = f.total(), own.residual = residual.total();
    for (int j = 0; j < S; ++j) own.data.p[j] = p[j].total();
    PixelSums<Variant, double> sums;
    sums_from_axes(along_x, along_y, rows * request.columns, own, sums);
    write(sums, chi.total(), numbers);
}

// ---- sums over the pixels ----

template <class Profile>
void sums_over_pixels(const RoiSource& source, long long roi, const LargeRequest& request, const FitSettings& settings,
                      int piece, const LargeWork& work, double* numbers) {
    using Variant = LargeSquares<Profile>;
    constexpr int COUNT = sums_of_shape(Variant::SHAPE), MATRIX = COUNT - Variant::ALL - 1;
    if constexpr (Profile::SEPARABLE) fill_along_x<Profile>(request, work.along_x);
    FitSettings own_settings = settings;
    own_settings.turns = request.turns;
    WideSum total[COUNT];
    over_blocks(source, roi, request, piece, work, Profile::SEPARABLE ? STRIP : VECTORS_AT_ONCE, [&](RowBlock<L>& block) {
        PixelSums<Variant, L> sums;
        const L chi = sums_of_block<Profile>(request.task, block, request, own_settings, sums);
        for (int j = 0; j < MATRIX; ++j) total[j].add(sums.s.a[j]);
        for (int j = 0; j < Variant::ALL; ++j) total[MATRIX + j].add(sums.s.b[j]);
        total[COUNT - 1].add(chi);
    });
    for (int j = 0; j < COUNT; ++j) numbers[j] = total[j].total();
}

// ---- cells ----

void clear(ColumnSums* columns, int count) {
    for (int i = 0; i < count; ++i) columns[i] = {L(0.0f), L(INFINITE), L(-INFINITE), L(0.0f), L(0.0f)};
}

void add_rows_to_columns(const RowBlock<L>& block, ColumnSums* columns) {
    for (int i = 0; i < block.vectors; ++i) {
        ColumnSums own = columns[i];
        for (int k = 0; k < block.rows; ++k) {
            const L g = block.at(k, i), w = block.plane(k, i);
            const MaskOf<L> counts = w > 0.0f;
            own.count += select(counts, L(1.0f), L(0.0f));
            own.low = select(counts, lower_of(g, own.low), own.low);
            own.high = select(counts, higher_of(g, own.high), own.high);
            own.total += select(counts, g, L(0.0f));
            own.weight += w;
        }
        columns[i] = own;
    }
}

// The number of pixels that count, the lowest, highest and mean, and weights, of a row of cells.
void write_cells(const LargeRequest& request, const ColumnSums* columns, double* cells) {
    const float* numbers = reinterpret_cast<const float*>(columns);
    for (int c = 0; c < request.cell_columns; ++c, cells += NUMBERS_OF_CELL) {
        const int first = request.left + c * request.cell, end = first + request.cell;
        double count = 0.0, low = INFINITE, high = -INFINITE, total = 0.0, weight = 0.0;
        for (int column = first; column < end && column < request.columns; ++column) {
            const float* own = numbers + column / LANES * 5 * LANES + column % LANES;
            count += own[0];
            low = lower_of(double(own[LANES]), low);
            high = higher_of(double(own[2 * LANES]), high);
            total += own[3 * LANES];
            weight += own[4 * LANES];
        }
        cells[0] = count, cells[1] = low, cells[2] = high, cells[3] = count > 0.0 ? total / count : 0.0;
        cells[4] = weight;
    }
}

void fill_cells(const RoiSource& source, long long roi, const LargeRequest& request, int row, const LargeWork& work,
                double* cells) {
    RowBlock<L> block = block_of(request, source, work);
    const int first = request.top + row * request.cell;
    const int end = first + request.cell < request.rows ? first + request.cell : request.rows;
    clear(work.column_sums, block.vectors);
    for (block.top = first; block.top < end; block.top += block.rows) {
        block.rows = end - block.top < work.rows ? end - block.top : work.rows;
        load_rows(source, roi, request, block);
        add_rows_to_columns(block, work.column_sums);
    }
    write_cells(request, work.column_sums, cells);
}

template <class Profile>
void large_sums(const RoiSource& source, long long roi, const LargeRequest& request, const FitSettings& settings,
                int piece, void* memory, double* numbers) {
    const SubnormalsAreZero during_this_call;
    const LargeWork work(memory, request.columns);
    if (request.task == CELLS) {
        const int first = request.cell_rows * piece / request.pieces, end = request.cell_rows * (piece + 1) / request.pieces;
        for (int row = first; row < end; ++row)
            fill_cells(source, roi, request, row, work, numbers + NUMBERS_OF_CELL * row * request.cell_columns);
        return;
    }
    numbers += piece * sums_of_shape(Profile::SHAPE);
    if constexpr (Profile::SEPARABLE) {
        if (request.task == RESIDUALS && !request.planes)
            return sums_along_axes<Profile>(source, roi, request, piece, work, numbers);
    }
    sums_over_pixels<Profile>(source, roi, request, settings, piece, work, numbers);
}

}  // namespace

long long large_bytes(int columns) { return LargeWork::needed(columns); }

const LargeSums large_gaussian = large_sums<Round<Gaussian>>;
const LargeSums large_gaussian_elliptical = large_sums<Elliptical<Gaussian>>;
const LargeSums large_gaussian_integrated = large_sums<Round<IntegratedGaussian>>;
const LargeSums large_gaussian_elliptical_integrated = large_sums<Elliptical<IntegratedGaussian>>;
const LargeSums large_gaussian_rotated = large_sums<RotatedGaussian>;
const LargeSums large_moffat = large_sums<Moffat>;
const LargeSums large_lorentzian = large_sums<Round<Lorentzian>>;

}  // namespace spotfit::SPOTFIT_ISA
