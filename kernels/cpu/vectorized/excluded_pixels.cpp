// Which pixels of ROIs are excluded from fits: those nearer to another spot of the frame, saturated ones, and padding.
#include "../excluded_pixels.h"

#include "../../flat_areas.h"
#include "../detection_frame.h"
#include "../inside.h"
#include "tables.h"

namespace spotfit::SPOTFIT_ISA {
namespace {

constexpr int ROWS_OF_BLOCK = 32;

long long within(double x, long long count) {
    return x > 0 ? x < double(count) ? static_cast<long long>(x) : count - 1 : 0;
}

double larger(double a, double b) { return a > b ? a : b; }

// Where a spot lies that takes pixels of a ROI, from the ROI's own spot: those at u with u . d >= half.
// Detections lie on pixels, so that all of this is exact for them.
struct Neighbour { double z, y, x, half; };

// Some rows of a plane of a ROI, or all planes, by how far they reach from its spot; planes count as pixels.
struct Rows {
    double front = 0, back = 0;
    double top, bottom, left, right;

    // Neither of two spots keeps what is halfway between them, unless they are at one place.
    template <bool DEEP> bool loses_to(const Neighbour& n) const {
        double farthest = larger(top * n.y, bottom * n.y) + larger(left * n.x, right * n.x);
        if constexpr (DEEP) farthest += larger(front * n.z, back * n.z);
        return farthest >= n.half && n.half > 0;
    }
    // How far away along an axis a spot may be that takes a pixel, which is at most so far away along this
    // axis and the others. A little more, as all that is rounded.
    static double reach(double along, double beside, double depth) {
        return along + __builtin_sqrt(along * along + beside * beside + depth * depth) + 1e-6;
    }
};

// In the place of the first cell's start: the spots need no cells.
constexpr long long IN_ORDER = -1;

// Spots of planes, or of volumes.
template <int AXES> class Spots {
    static constexpr bool DEEP = AXES == 3;
    const SpotCells& s;

    long long frame(long long i) const { return s.corners[(AXES + 1) * i]; }
    const double* place(long long i) const { return s.places + AXES * i; }
    static double y(const double* place) { return place[AXES - 2]; }
    static double x(const double* place) { return place[AXES - 1]; }
    double depth(const double* place, double from) const { return DEEP ? (place[0] - from) * s.per_plane : 0; }

    long long row_of_cells(long long frame, double y) const {
        return (frame * s.down + within((y - s.top) / s.side, s.down)) * s.across;
    }
    long long cell_of(long long i) const {
        return row_of_cells(frame(i), y(place(i))) + within(x(place(i)) / s.side, s.across);
    }

    // Whether spots lie frame by frame and row by row, as detections do, with few others of the frame in reach along y.
    bool is_in_order() const {
        constexpr double IN_REACH = 8;
        constexpr long long MOST = 1 << 12;
        if (DEEP) return false;
        const double reach = 1.25 * larger(s.roi.rows, s.roi.columns);
        const double most = IN_REACH * double(s.down * s.side) / reach;
        for (long long i = 0, begin = 0; i < s.count; ++i) {
            const long long before = i ? i - 1 : 0;
            if (frame(i) < 0 || frame(i) < frame(before)) return false;
            if (frame(i) != frame(before)) begin = i;
            if (i > begin && !(y(place(i)) >= y(place(before)))) return false;
            if (i - begin >= MOST || double(i - begin) > most) return false;
        }
        return true;
    }

  public:
    explicit Spots(const SpotCells& spots) : s(spots) {}

    // Some rows of a plane of a ROI; or of all planes, from the first on.
    Rows rows(long long i, int plane, int planes, int first, int count) const {
        const long long* const corner = s.corners + (AXES + 1) * i;
        const double* const at = place(i);
        Rows r;
        if (DEEP) {
            r.front = (double(corner[1] + plane) - at[0]) * s.per_plane;
            r.back = r.front + (planes - 1) * s.per_plane;
        }
        r.top = double(corner[AXES - 1] + first) - y(at), r.bottom = r.top + count - 1;
        r.left = double(corner[AXES]) - x(at), r.right = r.left + s.roi.columns - 1;
        return r;
    }

    // Calls take(neighbour) for all that take pixels of a ROI's rows, until it returns true.
    template <class Take> bool any_neighbour(long long i, const Rows& rows, Take take) const {
        const double* const own = place(i);
        const double own_y = y(own), own_x = x(own);
        const double along_y = larger(-rows.top, rows.bottom), along_x = larger(-rows.left, rows.right);
        const double along_z = larger(-rows.front, rows.back);
        const double far_y = Rows::reach(along_y, along_x, along_z), far_x = Rows::reach(along_x, along_y, along_z);
        const long long own_frame = frame(i);
        if (own_frame < 0 || own_frame >= s.frames) return false;
        const auto is_taken = [&](const double* place) SPOTFIT_INLINE_LAMBDA {
            const double back = depth(place, own[0]), down = y(place) - own_y, across = x(place) - own_x;
            const double in_plane = down * down + across * across;
            const Neighbour n{back, down, across, 0.5 * (DEEP ? in_plane + back * back : in_plane)};
            return rows.template loses_to<DEEP>(n) && take(n);
        };
        if (s.starts[0] == IN_ORDER) {
            const auto in_reach = [&](long long j) SPOTFIT_INLINE_LAMBDA {
                return frame(j) == own_frame && __builtin_fabs(y(place(j)) - own_y) <= far_y;
            };
            for (long long j = i; j-- > 0 && in_reach(j);)
                if (is_taken(place(j))) return true;
            for (long long j = i + 1; j < s.count && in_reach(j); ++j)
                if (is_taken(place(j))) return true;
            return false;
        }
        const long long first = within((own_x - far_x) / s.side, s.across);
        const long long last = within((own_x + far_x) / s.side, s.across);
        const long long end = row_of_cells(own_frame, own_y + far_y);
        for (long long row = row_of_cells(own_frame, own_y - far_y); row <= end; row += s.across)
            for (long long at = s.starts[row + first]; at < s.starts[row + last + 1]; ++at)
                if (is_taken(s.by_cell + AXES * at)) return true;
        return false;
    }

    void sort() const {
        if (is_in_order()) {
            s.starts[0] = IN_ORDER;
            return;
        }
        const long long cells = s.frames * s.down * s.across;
        for (long long c = 0; c <= cells; ++c) s.starts[c] = 0;
        for (long long i = 0; i < s.count; ++i)
            if (frame(i) >= 0) ++s.starts[cell_of(i)];
        long long sum = 0;
        for (long long c = 0; c <= cells; ++c) sum += s.starts[c], s.starts[c] = sum;
        for (long long i = s.count; i-- > 0;)
            if (frame(i) >= 0) {
                const long long at = --s.starts[cell_of(i)];
                for (int axis = 0; axis < AXES; ++axis) s.by_cell[AXES * at + axis] = place(i)[axis];
            }
    }

    void find_crowded(long long first, long long last, unsigned char* crowded) const {
        for (long long i = first; i < last; ++i)
            crowded[i] =
                any_neighbour(i, rows(i, 0, s.roi.depth, 0, s.roi.rows), [](const Neighbour&) { return true; });
    }

    // Of one ROI.
    void mark(long long roi, float own, float others, float* planes) const {
        const int columns = s.roi.columns;
        for (int plane = 0; plane < s.roi.depth; ++plane)
            for (int first = 0; first < s.roi.rows; first += ROWS_OF_BLOCK) {
                const int some = s.roi.rows - first < ROWS_OF_BLOCK ? s.roi.rows - first : ROWS_OF_BLOCK;
                const Rows block = rows(roi, plane, 1, first, some);
                // The own pixels of each row lie between two columns, as what is nearest to a spot is convex.
                float after[ROWS_OF_BLOCK], before[ROWS_OF_BLOCK];
                for (int k = 0; k < ROWS_OF_BLOCK; ++k) after[k] = -1.0f, before[k] = float(columns);
                any_neighbour(roi, block, [&](const Neighbour& to) {
                    for (int k = 0; k < some; ++k) {
                        const double half = DEEP ? to.half - block.front * to.z : to.half;
                        const double rest = half - (block.top + k) * to.y;
                        if (to.x == 0) {
                            if (rest <= 0) before[k] = -1.0f;
                            continue;
                        }
                        const float end = float(rest / to.x - block.left);
                        if (to.x > 0) before[k] = end < before[k] ? end : before[k];
                        else after[k] = end > after[k] ? end : after[k];
                    }
                    return false;
                });
                for (int k = 0; k < some; ++k, planes += columns) {
                    const float low = after[k], high = before[k];
                    for (int i = 0; i < columns; ++i) planes[i] = ((float(i) > low) & (float(i) < high)) ? own : others;
                }
            }
    }
};

// Calls use(spots) of as many axes as they have.
template <class Use> void with_axes(const SpotCells& s, Use use) {
    if (axes_of(s.roi) == 3) use(Spots<3>(s));
    else use(Spots<2>(s));
}

void sort(const SpotCells& s) {
    with_axes(s, [](const auto& spots) { spots.sort(); });
}

void find_crowded(const SpotCells& s, long long first, long long last, unsigned char* crowded) {
    with_axes(s, [&](const auto& spots) { spots.find_crowded(first, last, crowded); });
}

void mark(const SpotCells& s, const long long* rois, long long count, float own, float others, float* planes) {
    const long long area = static_cast<long long>(s.roi.depth) * s.roi.rows * s.roi.columns;
    with_axes(s, [&](const auto& spots) {
        for (long long n = 0; n < count; ++n) spots.mark(rois[n], own, others, planes + n * area);
    });
}

template <class T>
void copy_rois(const T* values, long long height, long long width, bool shared, const long long* corners,
               long long count, int rows, int columns, T* rois) {
    for (long long n = 0; n < count; ++n, corners += 3) {
        if (!is_inside(corners, height, width, rows, columns)) {
            for (long long size = rows * columns; size > 0; --size) *rois++ = 0;
            continue;
        }
        const T* from = values + ((shared ? 0 : corners[0]) * height + corners[1]) * width + corners[2];
        for (int k = 0; k < rows; ++k, from += width)
            for (int i = 0; i < columns; ++i) *rois++ = from[i];
    }
}

void cut_out(const void* values, int bytes, long long height, long long width, bool shared, const long long* corners,
             long long count, int rows, int columns, void* rois) {
    const auto as = [&](auto number) {
        using T = decltype(number);
        copy_rois(static_cast<const T*>(values), height, width, shared, corners, count, rows, columns,
                  static_cast<T*>(rois));
    };
    if (bytes == 1) as(static_cast<unsigned char>(0));
    if (bytes == 2) as(static_cast<unsigned short>(0));
    if (bytes == 4) as(0u);
    if (bytes == 8) as(0ull);
}

template <class T> constexpr bool UNSIGNED = !MAY_BE_BAD<T> && T(-1) > T(0);
template <class T> constexpr T LOWEST = T(MAY_BE_BAD<T> ? -3e38f : UNSIGNED<T> ? 0.0f : -32768.0f);
template <class T> constexpr T HIGHEST = MAY_BE_BAD<T> ? T(3e38f) : UNSIGNED<T> ? T(-1) : T(32767);

// Of 3x3 pixels, how many must have one value for a plateau, and the least value of whole numbers there: few counts are
// often equal. Below the last value, the top of a spot may be flat as it is rounded.
constexpr int PLATEAU = 5;
constexpr double LEAST_COUNT = 31, MANY_COUNTS = 255;
// How far the lowest value is below all others, at least: this multiple of what lies between these and their median,
// and this many steps, as the least of their differences is one.
constexpr double GAP = 0.5, STEPS = 4;

// ROIs lie here and there in frames: processors cannot guess where the next ones are.
constexpr long long ROIS_AHEAD = 6;

// Calls work(pixels) for each row of a ROI: with all of its columns, W at a time; the last ones may overlap
// those before. There are W columns at least, and four in all ROIs.
template <int W, class T, class Work>
SPOTFIT_INLINE void by_groups(const T* roi, long long width, int rows, int columns, Work work) {
    using Pixels = T __attribute__((ext_vector_type(W)));
    for (int k = 0; k < rows; ++k, roi += width)
        for (int i = 0; i < columns; i += W) {
            Pixels pixels;
            __builtin_memcpy(&pixels, roi + (i + W <= columns ? i : columns - W), sizeof pixels);
            work(pixels);
        }
}

// NaN is neither the highest pixel nor the lowest. Those that overlap count twice: what is found is looked at more
// closely.
template <int W, class T>
unsigned char flat_areas(const T* roi, long long width, int rows, int columns, const FlatAreaRule& rule) {
    using Pixels = T __attribute__((ext_vector_type(W)));
    Pixels high = LOWEST<T>, low = HIGHEST<T>, none = T(0);
    by_groups<W>(roi, width, rows, columns, [&](Pixels pixels) SPOTFIT_INLINE_LAMBDA {
        high = pixels > high ? pixels : high;
        low = pixels < low ? pixels : low;
        if constexpr (MAY_BE_BAD<T>) none += pixels * T(0);
    });
    bool all_numbers = true;
    for (int j = 0; MAY_BE_BAD<T> && j < W; ++j) all_numbers &= none[j] == T(0);
    T highest = high[0], lowest = low[0];
    for (int j = 1; j < W; ++j) highest = high[j] > highest ? high[j] : highest;
    for (int j = 1; j < W; ++j) lowest = low[j] < lowest ? low[j] : lowest;
    // A comparison is 0 or -1.
    using Counts = int __attribute__((ext_vector_type(W)));
    Counts tops = 0, grounds = 0;
    by_groups<W>(roi, width, rows, columns, [&](Pixels pixels) SPOTFIT_INLINE_LAMBDA {
        tops -= __builtin_convertvector(pixels == Pixels(highest), Counts);
        grounds -= __builtin_convertvector(pixels == Pixels(lowest), Counts);
    });
    int top_count = 0, ground_count = 0;
    for (int j = 0; j < W; ++j) top_count += tops[j], ground_count += grounds[j];
    if constexpr (MAY_BE_BAD<T>) all_numbers &= bool(is_good(float(highest))) && bool(is_good(float(lowest)));
    const bool top = is_flat_top(highest, rule, [&] { return top_count; });
    const bool ground =
        ground_count >= LEAST_GROUND && has_flat_ground(roi, width, rows, columns, lowest, highest, rule);
    return static_cast<unsigned char>((top ? FLAT_TOP : 0) | (ground ? FLAT_GROUND : 0) |
                                      (all_numbers ? 0 : NO_NUMBERS));
}

template <class T>
unsigned char flat_areas(const T* roi, long long width, int rows, int columns, const FlatAreaRule& rule) {
    return columns < 8 ? flat_areas<4>(roi, width, rows, columns, rule)
                       : flat_areas<8>(roi, width, rows, columns, rule);
}

template <class T>
void find_in(const T* frames, long long height, long long width, const long long* corners, long long first,
             long long last, int rows, int columns, const FlatAreaRule& rule, unsigned char* found) {
    const auto place = [&](const long long* at) { return frames + (at[0] * height + at[1]) * width + at[2]; };
    for (long long n = first; n < last; ++n) {
        const long long* at = corners + 3 * n;
        if (n + ROIS_AHEAD < last && at[3 * ROIS_AHEAD] >= 0)
            for (int k = 0; k < rows; ++k) __builtin_prefetch(place(at + 3 * ROIS_AHEAD) + k * width);
        found[n] = is_inside(at, height, width, rows, columns) ? flat_areas(place(at), width, rows, columns, rule) : 0;
    }
}

void find_flat_areas(const void* frames, int pixel_type, long long height, long long width, const long long* corners,
                     long long first, long long last, int rows, int columns, const FlatAreaRule& rule,
                     unsigned char* found) {
    with_pixel_type(pixel_type, [&](auto pixel) {
        using T = typename decltype(pixel)::Type;
        find_in(static_cast<const T*>(frames), height, width, corners, first, last, rows, columns, rule, found);
    });
}

template <class T> double highest_of(const T* values, long long count) {
    constexpr int W = 16;
    using Values = T __attribute__((ext_vector_type(W)));
    T highest = LOWEST<T>;
    long long i = 0;
    if (count >= W) {
        Values high = LOWEST<T>, some;
        for (; i + W <= count; i += W) {
            __builtin_memcpy(&some, values + i, sizeof some);
            high = some > high ? some : high;
        }
        for (int j = 0; j < W; ++j) highest = high[j] > highest ? high[j] : highest;
    }
    for (; i < count; ++i) highest = values[i] > highest ? values[i] : highest;
    return double(highest);
}

double find_highest(const void* values, int pixel_type, long long count) {
    return with_pixel_type(pixel_type, [&](auto pixel) {
        using T = typename decltype(pixel)::Type;
        return highest_of(static_cast<const T*>(values), count);
    });
}

// Calls use(k, value) for the pixels of a ROI.
template <class Use>
void each_pixel(const void* frames, int pixel_type, long long height, long long width, const long long* corner,
                int rows, int columns, Use use) {
    with_pixel_type(pixel_type, [&](auto pixel) {
        using T = typename decltype(pixel)::Type;
        if (!is_inside(corner, height, width, rows, columns)) return;
        const T* roi = static_cast<const T*>(frames) + (corner[0] * height + corner[1]) * width + corner[2];
        for (int k = 0; k < rows; ++k, roi += width)
            for (int i = 0; i < columns; ++i) use(k * columns + i, double(roi[i]));
    });
}

// They have the largest value of the pixels' type. Or that of their frame, if it is that of a plateau: as noise makes
// none, the camera's converter has ended there. A plateau of few counts may be the rounded top of a spot, around which
// as many pixels are one count lower; numbers that are no counts come from a scale that was divided by its end.
bool find_saturated(const void* frames, int pixel_type, long long height, long long width, const long long* corner,
                    int rows, int columns, const FlatAreaRule& rule, double highest, unsigned char* pixels) {
    enum : unsigned char { END = 1, TOP = 2 };
    int tops = 0, below = 0;
    bool all_whole = true;
    each_pixel(frames, pixel_type, height, width, corner, rows, columns, [&](int k, double value) {
        pixels[k] = static_cast<unsigned char>((value >= rule.largest ? END : 0) | (value == highest ? TOP : 0));
        tops += value == highest, below += value == highest - 1;
        all_whole &= value != value || value == __builtin_floor(value);
    });
    const bool is_top = highest >= MANY_COUNTS || !all_whole || (highest >= LEAST_COUNT && 2 * below <= tops);
    const bool may_be_top = highest - highest == 0 && is_top;
    bool is_plateau = false;
    for (int k = 0; k < rows && !is_plateau && may_be_top; ++k)
        for (int i = 0; i < columns && !is_plateau; ++i) {
            int around = 0;
            for (int v = k > 0 ? k - 1 : 0; v <= k + 1 && v < rows; ++v)
                for (int u = i > 0 ? i - 1 : 0; u <= i + 1 && u < columns; ++u)
                    around += (pixels[v * columns + u] & TOP) != 0;
            is_plateau = around >= PLATEAU;
        }
    bool any = false;
    for (int k = 0; k < rows * columns; ++k) {
        pixels[k] = (pixels[k] & END) || (is_plateau && (pixels[k] & TOP));
        any |= pixels[k] != 0;
    }
    return any;
}

// Sorts numbers, none of them NaN.
void sort_numbers(double* x, int count) {
    const auto sink = [&](int i, int end) {
        for (int child; (child = 2 * i + 1) < end; i = child) {
            child += child + 1 < end && x[child + 1] > x[child];
            if (!(x[child] > x[i])) return;
            const double other = x[i];
            x[i] = x[child], x[child] = other;
        }
    };
    for (int i = count / 2; i-- > 0;) sink(i, count);
    for (int end = count; end-- > 1;) {
        const double highest = x[0];
        x[0] = x[end], x[end] = highest;
        sink(0, end);
    }
}

// They have the ROI's lowest value, and nothing lies between them and the others: these begin far above, by what they
// scatter, and by the least of their differences.
bool find_padding(const void* frames, int pixel_type, long long height, long long width, const long long* corners,
                  int planes, int rows, int columns, double* ordered, unsigned char* pixels) {
    const auto each = [&](auto use) {
        for (int plane = 0; plane < planes; ++plane)
            each_pixel(frames, pixel_type, height, width, corners + 3 * plane, rows, columns,
                       [&](int k, double value) { use(plane * rows * columns + k, value); });
    };
    int last = 0;
    each([&](int, double value) {
        if (value == value) ordered[last++] = value;
    });
    sort_numbers(ordered, last);
    int first = 0;
    while (first < last && ordered[first] == ordered[0]) ++first;
    if (first == last) return false;
    double least = __builtin_inf();
    for (int i = first; i + 1 < last; ++i) {
        const double step = ordered[i + 1] - ordered[i];
        least = step > 0 && step < least ? step : least;
    }
    const int count = last - first;
    const double begin = ordered[first], lowest = ordered[0], gap = begin - lowest;
    const double middle = (ordered[first + (count - 1) / 2] + ordered[first + count / 2]) / 2;
    if (!(gap > GAP * (middle - begin) && gap >= STEPS * least)) return false;
    each([&](int k, double value) { pixels[k] = value == lowest; });
    return true;
}

bool add_no_numbers(const void* frames, int pixel_type, long long height, long long width, const long long* corners,
                    int planes, int rows, int columns, unsigned char* pixels) {
    bool any = false;
    for (int plane = 0; plane < planes; ++plane, corners += 3, pixels += rows * columns)
        each_pixel(frames, pixel_type, height, width, corners, rows, columns, [&](int k, double value) {
            const bool is_none = !is_good(float(value));
            pixels[k] |= is_none, any |= is_none;
        });
    return any;
}

}  // namespace

const ExcludedPixelFunctions excluded_pixels = {
    sort, find_crowded, mark, cut_out, find_flat_areas, find_highest, find_saturated, find_padding, add_no_numbers};

}  // namespace spotfit::SPOTFIT_ISA
