#include "../expression.h"
#include "../load_block.h"
#include "tables.h"

namespace spotfit::SPOTFIT_ISA {
namespace {

using L = LaneType;
using Doubles = double __attribute__((ext_vector_type(LANES)));

// Largest number of vectors in a block, and in a row: over those, squares are added up in
// single precision. Equal terms have equal rounding errors, the larger the longer a sum is.
constexpr int VECTORS_OF_BLOCK = 256, VECTORS_OF_ROW = 32;
// Number of pixels over which an axis is exact, as in a small ROI.
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

// What columns of pixels add to cells.
struct ColumnSums { L count, low, high, total, weight; };

// A thread's memory.
struct LargeWork {
    L *pixels, *planes, *variances;
    AxisProfile<L>* along_x;
    ColumnSums* column_sums;
    L* numbers;  // an expression's

    static long long needed(int columns, int expression_lanes) {
        return (3LL * VECTORS_OF_BLOCK + 8LL * vectors_of(columns) + expression_lanes) *
                   static_cast<long long>(sizeof(L)) +
               64;
    }
    LargeWork(void* memory, int columns) {
        L* m = reinterpret_cast<L*>((reinterpret_cast<unsigned long long>(memory) + 63) / 64 * 64);
        pixels = m, m += VECTORS_OF_BLOCK;
        planes = m, m += VECTORS_OF_BLOCK;
        variances = m, m += VECTORS_OF_BLOCK;
        along_x = reinterpret_cast<AxisProfile<L>*>(m), m += 3 * vectors_of(columns);
        column_sums = reinterpret_cast<ColumnSums*>(m), m += 5 * vectors_of(columns);
        numbers = m;
    }
};

// Calls use(block) with blocks of some rows, loaded; those side by side one after the other.
template <class Use>
SPOTFIT_INLINE void over_blocks(const HostRois& source, long long roi, const LargeRequest& request, int first, int end,
                                const LargeWork& work, Use use) {
    const bool variances = request.task == NOISE && source.variance.values;
    const int vectors = vectors_of(request.columns), widest = vectors < VECTORS_OF_ROW ? vectors : VECTORS_OF_ROW;
    const int fit_in = VECTORS_OF_BLOCK / widest, most = fit_in < STRIP ? fit_in : STRIP;
    BlockOfRoi<L> block = {first,
                           0,
                           0,
                           0,
                           request.origin_x,
                           request.origin_y,
                           work.pixels,
                           work.planes,
                           variances ? work.variances : nullptr,
                           work.along_x,
                           source.constants,
                           work.numbers};
    for (; block.top < end; block.top += block.rows) {
        block.rows = end - block.top < most ? end - block.top : most;
        for (block.left = 0; block.left < vectors; block.left += block.vectors) {
            block.vectors = vectors - block.left < widest ? vectors - block.left : widest;
            load_block(source, roi, request, block);
            use(block);
        }
    }
}

// Those of a piece of the work.
struct Rows { int first, end; };
Rows rows_of_piece(const LargeRequest& request, int piece) {
    const long long rows = request.end_row - request.first_row;
    return {request.first_row + int(rows * piece / request.pieces),
            request.first_row + int(rows * (piece + 1) / request.pieces)};
}

// The profile along x, 0 beyond the ROI. Lanes work on strips of neighbouring columns.
template <class Profile> AxisSums<double> fill_along_x(const LargeRequest& request, AxisProfile<L>* along_x) {
    const int columns = request.columns, padded = vectors_of(columns) * LANES;
    float* to = reinterpret_cast<float*>(along_x);
    AxisSums<double> total = {};
    const L strip = lane_numbers<L>() * float(STRIP);
    for (int first = 0; first < padded; first += LANES * STRIP) {
        const L center = request.shape[0] - strip;
        AxisOf<LargeSquares<Profile>, L, 0> axis(float(first - request.origin_x), center,
                                                 request.shape[Profile::width(0)]);
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

// The shape parameters that a model has: code for expressions may be made for more.
template <class Profile> int shape_count(const HostRois& source) {
    return Profile::EXPRESSION ? program_of(source)->parameters : Profile::SHAPE;
}

template <class Variant> void write(const PixelSums<Variant, double>& sums, double chi, double* numbers) {
    for (double sum : sums.s.a) *numbers++ = sum;
    for (double sum : sums.s.b) *numbers++ = sum;
    *numbers = chi;
}

// ---- sums along the axes ----

template <class Profile>
void sums_along_axes(const HostRois& source, long long roi, const LargeRequest& request, int piece,
                     const LargeWork& work, double* numbers) {
    using Variant = LargeSquares<Profile>;
    constexpr int S = Variant::SHAPE;
    const AxisSums<double> along_x = fill_along_x<Profile>(request, work.along_x);
    AxisSums<double> along_y = {};
    WideSum f, p[S], residual, chi;
    const Rows rows = rows_of_piece(request, piece);
    over_blocks(source, roi, request, rows.first, rows.end, work, [&](const BlockOfRoi<L>& block) {
        AxisOf<Variant, L, 1> y(float(block.first_line()), request.shape[1], request.shape[Profile::width(1)]);
        AxisSums<L> own_y = {};
        ResidualSums<Variant, L> own = {};
        over_lines(block, 0, block.own_lines(), [&](auto lines_at_once, int k) SPOTFIT_INLINE_LAMBDA {
            add_residual_lines<decltype(lines_at_once)::value>(block, k, y, L(request.amplitude), L(request.background),
                                                               own_y, own);
        });
        const auto first = [](L x) { return double(x.v[0]); };
        if (block.left == 0)
            along_y = {along_y.u + first(own_y.u),   along_y.c + first(own_y.c),   along_y.s + first(own_y.s),
                       along_y.uu + first(own_y.uu), along_y.uc + first(own_y.uc), along_y.us + first(own_y.us),
                       along_y.cc + first(own_y.cc), along_y.cs + first(own_y.cs), along_y.ss + first(own_y.ss)};
        f.add(own.data.f);
        for (int j = 0; j < S; ++j) p[j].add(own.data.p[j]);
        residual.add(own.residual);
        chi.add(own.chi);
    });
    ResidualSums<Variant, double> own;
    own.data.f = f.total(), own.residual = residual.total();
    for (int j = 0; j < S; ++j) own.data.p[j] = p[j].total();
    PixelSums<Variant, double> sums;
    sums_from_axes(along_x, along_y, 1.0 * (rows.end - rows.first) * request.columns, own, sums);
    write(sums, chi.total(), numbers);
}

// ---- sums over the pixels ----

template <class Profile>
void sums_over_pixels(const HostRois& source, long long roi, const LargeRequest& request, const FitSettings& settings,
                      int piece, const LargeWork& work, double* numbers) {
    using Variant = LargeSquares<Profile>;
    constexpr int COUNT = sums_of_shape(Variant::SHAPE), MATRIX = COUNT - Variant::ALL - 1;
    if constexpr (Profile::SEPARABLE) fill_along_x<Profile>(request, work.along_x);
    FitSettings own_settings = settings;
    own_settings.angle_convention = request.angle_convention;
    WideSum total[COUNT];
    const Rows rows = rows_of_piece(request, piece);
    over_blocks(source, roi, request, rows.first, rows.end, work, [&](BlockOfRoi<L>& block) {
        PixelSums<Variant, L> sums;
        const L chi = sums_of_block<Profile>(request.task, block, request, own_settings, sums);
        for (int j = 0; j < MATRIX; ++j) total[j].add(sums.s.a[j]);
        for (int j = 0; j < Variant::ALL; ++j) total[MATRIX + j].add(sums.s.b[j]);
        total[COUNT - 1].add(chi);
    });
    const int own = shape_count<Profile>(source);
    const auto is_there = [own](int j) { return j < own || j >= Variant::SHAPE; };
    const WideSum* next = total;
    for (int i = 0; i < Variant::ALL; ++i)
        for (int j = i; j < Variant::ALL; ++j, ++next)
            if (is_there(i) && is_there(j)) *numbers++ = next->total();
    for (int j = 0; j < Variant::ALL; ++j, ++next)
        if (is_there(j)) *numbers++ = next->total();
    *numbers = next->total();
}

// ---- cells ----

void clear(ColumnSums* columns, int count) {
    for (int i = 0; i < count; ++i) columns[i] = {L(0.0f), L(INFINITE), L(-INFINITE), L(0.0f), L(0.0f)};
}

void add_to_columns(const BlockOfRoi<L>& block, ColumnSums* columns) {
    for (int i = 0; i < block.vectors; ++i) {
        ColumnSums own = columns[block.left + i];
        for (int k = 0; k < block.rows; ++k) {
            const L g = block.at(k, i), w = block.plane(k, i);
            const MaskOf<L> counts = w > 0.0f;
            own.count += select(counts, L(1.0f), L(0.0f));
            own.low = select(counts, lower_of(g, own.low), own.low);
            own.high = select(counts, higher_of(g, own.high), own.high);
            own.total += select(counts, g, L(0.0f));
            own.weight += w;
        }
        columns[block.left + i] = own;
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

void fill_cells(const HostRois& source, long long roi, const LargeRequest& request, int row, const LargeWork& work,
                double* cells) {
    const int first = request.top + row * request.cell;
    const int end = first + request.cell < request.rows ? first + request.cell : request.rows;
    clear(work.column_sums, vectors_of(request.columns));
    over_blocks(source, roi, request, first, end, work,
                [&](const BlockOfRoi<L>& block) { add_to_columns(block, work.column_sums); });
    write_cells(request, work.column_sums, cells);
}

template <class Profile>
void large_sums(const HostRois& source, long long roi, const LargeRequest& request, const FitSettings& settings,
                int piece, void* memory, double* numbers) {
    const SubnormalsAreZero during_this_call;
    const LargeWork work(memory, request.columns);
    if (request.task == CELLS) {
        const int first = request.cell_rows * piece / request.pieces,
                  end = request.cell_rows * (piece + 1) / request.pieces;
        for (int row = first; row < end; ++row)
            fill_cells(source, roi, request, row, work, numbers + NUMBERS_OF_CELL * row * request.cell_columns);
        return;
    }
    numbers += piece * sums_of_shape(shape_count<Profile>(source));
    if constexpr (Profile::SEPARABLE) {
        if (request.task == RESIDUALS && !request.planes)
            return sums_along_axes<Profile>(source, roi, request, piece, work, numbers);
    }
    sums_over_pixels<Profile>(source, roi, request, settings, piece, work, numbers);
}

}  // namespace

long long large_bytes(int columns, int expression_lanes) { return LargeWork::needed(columns, expression_lanes); }

// Volumes have none.
template <class Profile> constexpr LargeSums planar_sums() {
    if constexpr (Profile::AXES == 2) return large_sums<Profile>;
    else return nullptr;
}
template <class... Profiles> constexpr SumsOfLarge sums_of(ProfileList<Profiles...>) {
    return {{planar_sums<Profiles>()..., large_sums<Interpreted<3>>, large_sums<Interpreted<4>>,
             large_sums<Interpreted<5>>, large_sums<Interpreted<6>>, large_sums<Interpreted<8>>,
             large_sums<Interpreted<8>>, large_sums<Interpreted<12>>, large_sums<Interpreted<12>>,
             large_sums<Interpreted<12>>, large_sums<Interpreted<12>>}};
}
const SumsOfLarge sums_of_large = sums_of(BuiltIn());

}  // namespace spotfit::SPOTFIT_ISA
