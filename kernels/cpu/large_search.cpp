// The searches in large ROIs, compiled once for all machines: the pixels are the others' work.
#define SPOTFIT_ISA any_machine
// Decisions are written for masks of many lanes; here a mask is one bool.
#pragma clang diagnostic ignored "-Wbitwise-instead-of-logical"
#include "../lanes.h"
// Many parameters, few fits: loops stay loops, and functions functions.
#undef SPOTFIT_INLINE
#undef SPOTFIT_INLINE_LAMBDA
#undef UNROLL
#undef UNROLL_MATRIX
#define SPOTFIT_INLINE inline
#define SPOTFIT_INLINE_LAMBDA
#define UNROLL
#define UNROLL_MATRIX(N)
#include "fit_rois.h"
#include "inside.h"
#include "instruction_sets.h"
#include "large_search.h"

using namespace spotfit;
using namespace spotfit::any_machine;

namespace {

bool is_finite(double x) { return x - x == 0; }

// A pixel that counts, less which others are exact in single precision; NaN outside of the frames.
template <class T> double first_pixel(const HostRois& s, int planes, long long roi, int rows, int columns) {
    const long long none[3] = {roi, 0, 0};
    const long long* c = s.corners ? s.corners + 3 * roi : none;
    if (!is_inside(c, s.height, s.width, rows, columns)) return double(NOT_A_NUMBER);
    for (long long row = c[1]; row < c[1] + rows; ++row)
        for (long long column = c[2]; column < c[2] + columns; ++column) {
            const double value = double(static_cast<const T*>(s.frames)[(c[0] * s.height + row) * s.width + column]);
            const long long place = ((s.planes.shared ? 0 : c[0]) * s.height + row) * s.width + column;
            const float known = s.planes.values ? s.planes.values[place] : 1.0f;
            if (is_finite(value) && (planes == WEIGHTS ? known > 0.0f : known >= 0.0f)) return value;
        }
    return 0.0;
}

double level_near(const HostRois& s, int planes, long long roi, int rows, int columns) {
    using First = double (*)(const HostRois&, int, long long, int, int);
    constexpr First FIRST[] = {first_pixel<unsigned char>, first_pixel<unsigned short>, first_pixel<short>,
                               first_pixel<float>, first_pixel<double>};
    return FIRST[s.pixel_type](s, planes, roi, rows, columns);
}

struct Start {
    int rows, columns;
    const FitSettings* settings;
    int likelihood, planes, fixed_origin;
    const float* start;
    double level;
};

template <class Profile> LargeFit<Profile>& fit_in(void* memory) { return *static_cast<LargeFit<Profile>*>(memory); }

template <class Profile> struct Search {
    static void begin(void* memory, const Start& s) {
        fit_in<Profile>(memory).begin(s.rows, s.columns, *s.settings, s.likelihood, s.planes, s.fixed_origin, s.start,
                                      s.level);
    }
    static void take(void* memory, const double* numbers, int pieces) { fit_in<Profile>(memory).take(numbers, pieces); }

    // Columns of the results as in outputs.h.
    static void write(void* memory, long long roi, int errors, const FitResults& results) {
        const LargeFit<Profile>& fit = fit_in<Profile>(memory);
        for (int axis = 0; axis < 2; ++axis) results.positions[axis * results.length + roi] = fit.values[axis];
        results.stop_condition[roi] = static_cast<unsigned char>(fit.stop);
        results.iterations[roi] = static_cast<unsigned short>(fit.iterations);
        float* column = results.values + roi;
        for (int c = 2; c < fit.VALUES; ++c, column += results.length) *column = float(fit.values[c]);
        for (int c = 0; errors && c < fit.ERRORS; ++c, column += results.length) *column = float(fit.errors[c]);
    }
};

struct SearchFunctions {
    int shape;
    long long bytes;
    void (*begin)(void*, const Start&);
    void (*take)(void*, const double*, int);
    void (*write)(void*, long long, int, const FitResults&);
};
// Volumes have none.
template <class P> constexpr SearchFunctions functions_of() {
    if constexpr (P::AXES == 2)
        return {P::SHAPE, sizeof(LargeFit<P>), Search<P>::begin, Search<P>::take, Search<P>::write};
    else return {};
}
template <class P> constexpr SearchFunctions FUNCTIONS = functions_of<P>();

// What the search knows of an expression: how many shape parameters there are.
template <int SHAPE_> struct OwnProfile : AtPixels {
    static constexpr int SHAPE = SHAPE_;
    static constexpr bool EXPRESSION = true;
    static constexpr float INTEGRAL = 1.0f;
};

// Of the built-in profiles, and of expressions of 3 shape parameters and more.
struct Searches { SearchFunctions of[BuiltIn::COUNT + MAX_SHAPE - 2]; };
template <class... Profiles> constexpr Searches searches_of(ProfileList<Profiles...>) {
    return {{FUNCTIONS<Profiles>..., FUNCTIONS<OwnProfile<3>>, FUNCTIONS<OwnProfile<4>>, FUNCTIONS<OwnProfile<5>>,
             FUNCTIONS<OwnProfile<6>>, FUNCTIONS<OwnProfile<7>>, FUNCTIONS<OwnProfile<8>>, FUNCTIONS<OwnProfile<9>>,
             FUNCTIONS<OwnProfile<10>>, FUNCTIONS<OwnProfile<11>>, FUNCTIONS<OwnProfile<12>>}};
}
constexpr Searches SEARCHES = searches_of(BuiltIn());

long long aligned(long long bytes) { return (bytes + 63) / 64 * 64; }

constexpr long long NUMBER_BYTES = 8LL * NUMBERS_OF_CELL * MOST_CELLS;

}  // namespace

// Puts a fit, in memory of spotfit_large_fit_bytes(), before its first request. `planes` is a
// LargePlanes, `fixed_origin` whether the profile depends on where it is, `start` the caller's start
// values or null, and `level` a number near the pixels; NaN: there are none, nor is anything asked for.
SPOTFIT_EXPORT void spotfit_large_begin(int profile, void* fit, int rows, int columns, const FitSettings* settings,
                                        int likelihood, int planes, int fixed_origin, const float* start,
                                        double level) {
    SEARCHES.of[profile].begin(fit, {rows, columns, settings, likelihood, planes, fixed_origin, start, level});
}

// A fit's memory begins with its request.
SPOTFIT_EXPORT long long spotfit_large_fit_bytes(int profile) { return aligned(SEARCHES.of[profile].bytes); }

SPOTFIT_EXPORT long long spotfit_large_work_bytes(int index, int columns, int expression_lanes) {
    return instruction_set(index).functions->large_bytes(columns, expression_lanes);
}

SPOTFIT_EXPORT double spotfit_large_level(const HostRois* source, int planes, long long roi, int rows, int columns) {
    return level_near(*source, planes, roi, rows, columns);
}

// The numbers of one piece of a request.
SPOTFIT_EXPORT void spotfit_large_sums(int index, int profile, const HostRois* source, long long roi, const void* fit,
                                       const FitSettings* settings, int piece, void* work, double* numbers) {
    const LargeRequest& request = *static_cast<const LargeRequest*>(fit);
    const LargeSums sums = instruction_set(index).functions->large_sums[profile];
    sums(*source, roi, request, *settings, piece, work, numbers);
}

SPOTFIT_EXPORT void spotfit_large_take(int profile, void* fit, const double* numbers, int pieces) {
    SEARCHES.of[profile].take(fit, numbers, pieces);
}

SPOTFIT_EXPORT void spotfit_large_write(int profile, void* fit, long long roi, int errors, const FitResults* results) {
    SEARCHES.of[profile].write(fit, roi, errors, *results);
}

long long spotfit::large_fit_bytes(const Functions& functions, int profile, int columns, int expression_lanes) {
    return spotfit_large_fit_bytes(profile) + NUMBER_BYTES + functions.large_bytes(columns, expression_lanes);
}

void spotfit::fit_large_rois(const Functions& functions, int profile, int estimator, const HostRois& source,
                             long long first, long long last, const RoiShape& sides, const FitSettings& settings,
                             void* memory, const FitResults& results) {
    const SearchFunctions& search = SEARCHES.of[profile];
    const int likelihood = estimator / 2, planes = estimator % 2 == 0 ? NO_PLANES : likelihood ? VARIANCES : WEIGHTS;
    const int fixed_origin = program_of(source) && program_of(source)->fixed_origin;
    char* fit = static_cast<char*>(memory);
    double* numbers = reinterpret_cast<double*>(fit + spotfit_large_fit_bytes(profile));
    char* work = reinterpret_cast<char*>(numbers) + NUMBER_BYTES;
    const LargeSums sums = functions.large_sums[profile];
    const LargeRequest& request = *reinterpret_cast<const LargeRequest*>(fit);
    for (long long roi = first; roi < last; ++roi) {
        const double level = level_near(source, planes, roi, sides.rows, sides.columns);
        const float* start = source.start ? source.start + search.shape * roi : nullptr;
        search.begin(fit, {sides.rows, sides.columns, &settings, likelihood, planes, fixed_origin, start, level});
        while (request.task != NOTHING) {
            for (int piece = 0; piece < request.pieces; ++piece)
                sums(source, roi, request, settings, piece, work, numbers);
            search.take(fit, numbers, request.pieces);
        }
        search.write(fit, roi, settings.errors, results);
    }
}
