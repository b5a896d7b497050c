// Quality flags of fits, a part of their columns at a time.
#include "../verdicts.h"

#include "../../elongation.h"
#include "../../far_light.h"
#include "../../filtered_errors.h"
#include "../../flat_areas.h"
#include "../../verdict.h"
#include "../detection_frame.h"
#include "../inside.h"
#include "../instruction_set.h"
#include "../near.h"
#include "tables.h"

namespace spotfit::SPOTFIT_ISA {
namespace {

// Among the flags while they are set: pixels around the spot are padding, and do not show whether it is long.
constexpr unsigned BESIDE_PADDING = 1u << 31;
// The numbers of such fits mean nothing for the length of a spot.
constexpr unsigned NO_SPOT = flag::NOT_CONVERGED | flag::AT_BOUND | flag::WEAK | flag::NEGATIVE | BESIDE_PADDING;
// Fits whose numbers are copied at a time.
constexpr int TILE = 256;

struct Tile {
    double values[SHAPE + MAX_SHAPE][TILE];

    template <class T> static void read(const void* column, long long first, int count, double* values) {
        for (int i = 0; i < count; ++i) values[i] = static_cast<const T*>(column)[first + i];
    }
    // Copies a part of a column; NaN where there is none.
    void copy(const FitColumns& fits, int place, long long first, int count) {
        const void* column = fits.columns[place];
        if (!column)
            for (int i = 0; i < count; ++i) values[place][i] = NOT_A_NUMBER;
        else if (fits.doubles >> place & 1) read<double>(column, first, count, values[place]);
        else if (place == STOP_CONDITION) read<unsigned char>(column, first, count, values[place]);
        else if (place >= ROI_Z && place <= ROI_X) read<int>(column, first, count, values[place]);
        else read<float>(column, first, count, values[place]);
    }
    void copy_all(const FitColumns& fits, const VerdictSettings& s, long long first, int count) {
        for (int place = 0; place < SHAPE + s.shape; ++place) copy(fits, place, first, count);
        const int axes = axes_of(s.roi), corner = ROI_X + 1 - axes;
        for (int axis = 0; axis < axes && axis < s.shape; ++axis)
            if (fits.columns[corner + axis])
                for (int i = 0; i < count; ++i) values[SHAPE + axis][i] -= values[corner + axis][i];
    }
    FitNumbers light_and_shape(int i) const {
        const double none = NOT_A_NUMBER;
        return {
            &values[SHAPE][i], TILE, values[AMPLITUDE][i], values[BACKGROUND][i], values[PHOTONS][i], none, none, none};
    }
    FitNumbers fit(int i) const {
        return {&values[SHAPE][i],
                TILE,
                values[AMPLITUDE][i],
                values[BACKGROUND][i],
                values[PHOTONS][i],
                values[CHI_SQUARE][i],
                values[REDUCED_CHI_SQUARE][i],
                values[AMPLITUDE_STDERR][i]};
    }
};

Known known(const FitColumns& fits) {
    return {fits.columns[AMPLITUDE] && fits.columns[PHOTONS], fits.columns[AMPLITUDE_STDERR] != nullptr,
            fits.columns[BACKGROUND] != nullptr};
}

void judge(const FitColumns& fits, const VerdictSettings& settings, long long first, long long last, unsigned* flags) {
    Tile tile;
    const Known there = known(fits);
    for (long long start = first; start < last; start += TILE) {
        const int count = last - start < TILE ? static_cast<int>(last - start) : TILE;
        tile.copy_all(fits, settings, start, count);
        for (int i = 0; i < count; ++i)
            flags[start + i] = flags_of_numbers(settings, tile.fit(i), tile.values[STOP_CONDITION][i], there);
    }
}

// The flags that follow from pixels of a plane of a ROI that no fit has counted, given y and x in the image.
unsigned flags_of_pixels(const VerdictSettings& s, double y, double x, const long long* corner, long long first_row,
                         const unsigned char* saturated, const unsigned char* bad) {
    const long long row = static_cast<long long>(__builtin_rint(y)) - corner[1] - first_row;
    const long long column = static_cast<long long>(__builtin_rint(x)) - corner[2];
    const int rows = s.roi.rows, columns = s.roi.columns;
    const long long v = within(row, rows), u = within(column, columns);
    unsigned flags = 0;
    if (saturated && saturated[v * columns + u] && marked_around(saturated, rows, columns, v, u, false) >= FULL_PIXELS)
        flags |= flag::SATURATED;
    if (bad && marked_around(bad, rows, columns, v, u, false)) flags |= flag::BAD_PIXELS;
    int lost = 0;
    for (int k = 0; bad && k < rows * columns; ++k) lost += bad[k] != 0;
    if (lost >= LEAST_GROUND) flags |= BESIDE_PADDING;
    return flags;
}

// The fits of one image, some frames of them.
class InImage {
    const FitColumns& fits;
    const VerdictSettings& s;
    const ImageFits& image;
    const int axes;
    const long long first, last;
    double* const moved;
    unsigned char* const asked;
    int* const cells;

    long long frame(long long i) const { return image.corners[(axes + 1) * i]; }
    // The first fit of a frame that is there, from a row on.
    long long frame_start(long long i) const {
        while (i > 0 && i < image.count && frame(i) == frame(i - 1)) ++i;
        return i;
    }
    bool is_valid(long long i) const { return !is_nan(image.at[0][i]); }
    // Of a range: where fits began, and where they ended.
    Points begun(long long start, int count) const {
        const double* const y = image.places + axes * start + axes - 2;
        return {y, y + 1, axes, count, axes > 2 ? y - 1 : nullptr, image.per_plane};
    }
    Points ended(long long start, int count) const {
        const double *const y = image.at[axes - 2] + start, *const x = image.at[axes - 1] + start;
        return {y, x, 1, count, axes > 2 ? image.at[0] + start : nullptr, image.per_plane};
    }

    // Along an axis, given where a fit ended in its ROI.
    PlaceAlong along(long long i, int axis, double end, long long size) const {
        const long long corner = image.corners[(axes + 1) * i + 1 + axis];
        const double first = double(axis ? corner : corner + image.first);
        return {image.places[axes * i + axis], end + first, first, double(size)};
    }
    FitPlace place(long long i, const Tile& tile, int k) const {
        const double (&ends)[SHAPE + MAX_SHAPE][TILE] = tile.values;
        FitPlace place = {};
        place.y = along(i, axes - 2, ends[SHAPE + axes - 2][k], image.height);
        place.x = along(i, axes - 1, ends[SHAPE + axes - 1][k], image.width);
        if (axes > 2) place.z = along(i, 0, ends[SHAPE][k], image.depth), place.per_plane = image.per_plane;
        return place;
    }
    long long nearest(long long i, int axis, long long size) const {
        return within(static_cast<long long>(__builtin_rint(image.at[axis][i])), size);
    }
    bool has_bad_middle(long long i) const {
        const unsigned char* bad = image.bad;
        if (image.bad_frames > 1) bad += frame(i) * image.depth * image.height * image.width;
        if (axes > 2) bad += nearest(i, 0, image.depth) * image.height * image.width;
        const long long row = nearest(i, axes - 2, image.height), column = nearest(i, axes - 1, image.width);
        return marked_around(bad, image.height, image.width, row, column, true) > 0;
    }

    InImage(const FitColumns& columns, const VerdictSettings& settings, const ImageFits& fits_of_image, long long begin,
            long long end, int)
        : fits(columns), s(settings), image(fits_of_image), axes(axes_of(settings.roi)), first(begin), last(end),
          moved(static_cast<double*>(image.work)), asked(nullptr), cells(nullptr) {}

  public:
    InImage(const FitColumns& columns, const VerdictSettings& settings, const ImageFits& fits_of_image, long long begin,
            long long end)
        : fits(columns), s(settings), image(fits_of_image), axes(axes_of(settings.roi)), first(frame_start(begin)),
          last(frame_start(end)), moved(static_cast<double*>(image.work)),
          asked(static_cast<unsigned char*>(image.work) + 8 * image.count),
          // Shares of the work end where those of others begin.
          cells(reinterpret_cast<int*>(static_cast<unsigned char*>(image.work) + 16 * image.count) + 4 * first) {}

    // The fits of a range, whatever frames they are of.
    static InImage exactly(const FitColumns& columns, const VerdictSettings& settings, const ImageFits& fits_of_image,
                           long long first, long long last) {
        return {columns, settings, fits_of_image, first, last, 0};
    }

    // Puts a fit in its place along an axis.
    void put(long long i, int axis, const PlaceAlong& place) const {
        image.at[axis][i] = place.end, image.roi[axis][i] = static_cast<int>(place.first);
    }

    // What follows from each fit by itself.
    void judge_each(const VerdictSettings& settings) const {
        Tile tile;
        const Known there = known(fits);
        for (long long start = first; start < last; start += TILE) {
            const int count = last - start < TILE ? static_cast<int>(last - start) : TILE;
            if (image.noise)
                for (int i = 0; i < count; ++i) correct_errors(*image.noise, *image.errors, start + i);
            tile.copy_all(fits, settings, start, count);
            for (int k = 0; k < count; ++k) {
                const long long i = start + k;
                const FitNumbers fit = tile.fit(k);
                const FitPlace at = place(i, tile, k);
                put(i, axes - 2, at.y), put(i, axes - 1, at.x);
                if (axes > 2) put(i, 0, at.z);
                moved[i] = distance_moved(at);
                unsigned flags = flags_of_numbers(settings, fit, tile.values[STOP_CONDITION][k], there);
                if (tile.values[STOP_CONDITION][k] != STOP_INVALID) {
                    flags |= flags_of_place(settings, fit, at, image.sigma, moved[i]);
                    const bool held = image.flags[i] & flag::SIGMA_Z_HELD;
                    if (axes > 2) flags |= flags_of_depth(settings, fit, at.z, image.sigma_z, held);
                    if (image.bad && is_valid(i) && has_bad_middle(i)) flags |= flag::BAD_PIXELS;
                }
                image.flags[i] |= flags;
            }
        }
    }

    // Takes ELONGATED from the long spots of a frame's crowds, where few around are long.
    void spare_crowds(long long start, int count, unsigned char* spared) const {
        const auto has = [&](int i, unsigned bits) { return (image.flags[start + i] & bits) != 0; };
        int long_spots = 0;
        for (int i = 0; i < count; ++i) long_spots += has(i, flag::ELONGATED);
        if (!long_spots) return;
        const double reach = s.crowd * image.sigma;
        const NearPoints near(ended(start, count), image.height, image.width, reach, reach, long_spots, cells);
        for (int i = 0; i < count; ++i) {
            spared[i] = 0;
            if (!has(i, flag::ELONGATED)) continue;
            int spots = 0, are_long = 0;
            near.each_within(i, reach, [&](int j) {
                spots += !has(j, NO_SPOT);
                are_long += has(j, flag::ELONGATED);
            });
            const int least = has(i, LONG_BESIDE) ? 1 : ROUND_AROUND;
            spared[i] = are_long < LONG_AROUND * spots && spots - are_long >= least;
        }
        for (int i = 0; i < count; ++i)
            if (spared[i]) image.flags[start + i] &= ~flag::ELONGATED;
    }

    // Flags fits that are lobes of one spot beyond a calibration's range: of a measured PSF those near the end at which
    // another fit in their ROI stayed; of a lens, those that are twins.
    void flag_lobes(long long start, int count) const {
        if (s.around != AROUND_FAR_LIGHT) return;
        const auto column = [&](int at) {
            const void* values = at < 0 ? nullptr : fits.columns[at];
            return values ? static_cast<const float*>(values) + start : nullptr;
        };
        const auto width_at = [&](WidthParameter name) { return s.width_at[name] < 0 ? -1 : SHAPE + s.width_at[name]; };
        if (const float* const z = column(s.depth_at < 0 ? -1 : SHAPE + s.depth_at)) {
            const double low = s.low[s.depth_at], high = s.high[s.depth_at], last = LOBES_WITHIN * (high - low);
            flag_pairs(start, count, [&](int i, int j) {
                return (z[i] < low + last && z[j] <= low) || (z[i] > high - last && z[j] >= high);
            });
            return;
        }
        const float *const along = column(width_at(SIGMA_X)), *const across = column(width_at(SIGMA_Y));
        const float* const light = column(PHOTONS);
        if (!along || !across || !light) return;
        const Points points = ended(start, count);
        flag_pairs(start, count, [&](int i, int j) {
            const double down = points.at_y(j) - points.at_y(i), right = points.at_x(j) - points.at_x(i);
            return is_alike(along[i], along[j], TWIN_WIDTHS) && is_alike(across[i], across[j], TWIN_WIDTHS) &&
                   is_alike(light[i], light[j], TWIN_LIGHT) &&
                   are_on_axis(right * s.lens_x + down * s.lens_y, down * s.lens_x - right * s.lens_y);
        });
    }
    template <class Takes> void flag_pairs(long long start, int count, Takes takes) const {
        const double reach_y = s.roi.rows / 2.0, reach_x = s.roi.columns / 2.0;
        const Points points = ended(start, count);
        const NearPoints near(points, image.height, image.width, reach_y, reach_x, count, cells);
        for (int i = 0; i < count; ++i)
            if (near.any(i, [&](int j) { return points.is_near(i, j, reach_y, reach_x, 0) && takes(i, j); }))
                image.flags[start + i] |= flag::Z_AT_LIMIT;
    }

    // What follows from other fits of the frame. Two that ended together began as neighbours, or the one that
    // moved more came from afar.
    void judge_together() const {
        const double reach_y = s.roi.rows / 2.0, reach_x = s.roi.columns / 2.0;
        const double reach_z = image.per_plane * s.roi.depth / 2.0;
        const double known = is_nan(image.sigma) ? 0 : s.same_spot * image.sigma;
        const double same = no_less(known, s.same_spot_px), afar = (no_more(reach_y, reach_x) - same) / 2;
        for (long long start = first, end; start < last; start = end) {
            for (end = start + 1; end < last && frame(end) == frame(start);) ++end;
            const int count = static_cast<int>(end - start);
            spare_crowds(start, count, asked + start);
            for (long long i = start; i < end; ++i) image.flags[i] &= ~(BESIDE_PADDING | LONG_BESIDE);
            if (count < 2) continue;
            unsigned char* const marked = asked + start;
            flag_lobes(start, count);
            mark_near(begun(start, count), image.height, image.width, reach_y, reach_x, reach_z, cells, marked);
            int together_asked = 0;
            for (int i = 0; i < count; ++i) {
                const bool neighbour = marked[i], valid = is_valid(start + i);
                if (neighbour && valid) image.flags[start + i] |= flag::NEIGHBOUR;
                marked[i] = valid && (neighbour || moved[start + i] > afar);
                together_asked += marked[i];
            }
            if (!together_asked) continue;
            const NearPoints together(ended(start, count), image.height, image.width, same, same, together_asked,
                                      cells);
            for (int i = 0; i < count; ++i)
                if (marked[i] && together.has_lower(i, same, moved + start)) image.flags[start + i] |= flag::DUPLICATE;
        }
    }
};

unsigned pixel_flags(const VerdictSettings& s, double y, double x, const long long* corner, long long first_row,
                     const unsigned char* saturated, const unsigned char* bad) {
    if (is_nan(y)) return 0;
    return flags_of_pixels(s, y + double(corner[1] + first_row), x + double(corner[2]), corner, first_row, saturated,
                           bad);
}

void judge_each(const FitColumns& fits, const VerdictSettings& settings, const ImageFits& image, long long first,
                long long last) {
    InImage::exactly(fits, settings, image, first, last).judge_each(settings);
}

// A level to be taken from pixels, in double precision where these have it.
template <class T> auto in_precision(double level) {
    if constexpr (sizeof(T) == 8) return level;
    else return float(level);
}

// Pixels around a spot, as rows of one half and the opposite ones of the other.
class SpotWindow {
    using L = LaneType;
    static constexpr int WIDTH = sizeof(LaneType) / sizeof(float);
    static constexpr int PITCH = (2 * LARGEST_REACH + WIDTH) / WIDTH * WIDTH, PLACES = (LARGEST_REACH + 1) * PITCH;

    const double sigma;
    const float curvature_of_psf;
    int reach = 0, pitch = 0;
    alignas(64) float one[PLACES], other[PLACES], along[PITCH], against[PITCH], down[PITCH];

    static L lanes(const float* at) {
        L found = 0.0f;
        __builtin_memcpy(&found, at, sizeof(L));
        return found;
    }
    static float total(L lanes) {
        float values[WIDTH], sum = 0;
        __builtin_memcpy(values, &lanes, sizeof(L));
        for (float value : values) sum += value;
        return sum;
    }
    // Calls use(pair, x, y) for the pixels of each row, several at a time.
    template <class Use> void each_pair(const FittedSpot& spot, Use use) const {
        L first = 0.0f;
        for (int i = 0; i < WIDTH; ++i) reinterpret_cast<float*>(&first)[i] = float(i - reach);
        for (int row = 0; row <= reach; ++row)
            for (int i = 0; i < pitch; i += WIDTH) {
                const int k = row * pitch + i;
                const L f = lanes(along + i) * down[reach + row], g = lanes(against + i) * down[reach - row];
                use(Opposite<L>(spot, lanes(one + k), lanes(other + k), f, g), first + float(i), L(float(row)));
            }
    }
    template <class Add> DirectionSums<float> sums(const FittedSpot& spot, Add add) const {
        DirectionSums<L> own = {0.0f, 0.0f, 0.0f, 0.0f};
        each_pair(spot, [&](const Opposite<L>& pair, L x, L y)
                            SPOTFIT_INLINE_LAMBDA { add(own, pair, direction(x, y, curvature_of_psf)); });
        return {total(own.difference), total(own.product), spot.coarse * total(own.variance), total(own.square)};
    }

    // The profile along each axis, from the middle pixel's offset on.
    void put_profile(float off_y, float off_x, float curvature) {
        for (int i = 0; i < pitch; i += WIDTH) {
            L place = 0.0f;
            for (int k = 0; k < WIDTH; ++k) reinterpret_cast<float*>(&place)[k] = float(i + k - reach);
            const L u = place - off_x, w = place + off_x, v = place - off_y;
            const L a = exponential(u * u * (-0.5f * curvature)), b = exponential(w * w * (-0.5f * curvature));
            const L c = exponential(v * v * (-0.5f * curvature));
            __builtin_memcpy(along + i, &a, sizeof(L));
            __builtin_memcpy(against + i, &b, sizeof(L));
            __builtin_memcpy(down + i, &c, sizeof(L));
        }
    }
    template <class T>
    void put_pixels(const T* pixels, long long height, long long width, long long y, long long x, double background) {
        const auto level = in_precision<T>(background);
        const int side = 2 * reach + 1;
        const bool inside = y >= reach && y + reach < height && x >= reach && x + reach < width;
        for (int row = 0; row <= reach; ++row) {
            float *const a = one + row * pitch, *const b = other + row * pitch;
            const T *const upper = pixels + (y + row) * width + x - reach, *const lower =
                                                                               pixels + (y - row) * width + x + reach;
            if (inside)
                for (int i = 0; i < side; ++i) a[i] = float(upper[i] - level), b[i] = float(lower[-i] - level);
            else
                for (int i = 0; i < side; ++i) {
                    const long long u = x + i - reach, w = x - i + reach;
                    const bool has_one = y + row < height && u >= 0 && u < width;
                    const bool has_other = y - row >= 0 && w >= 0 && w < width;
                    a[i] = has_one ? float(upper[i] - level) : float(NOT_A_NUMBER);
                    b[i] = has_other ? float(lower[-i] - level) : float(NOT_A_NUMBER);
                }
            // Of the row through the middle one half has both; beyond the window there is nothing.
            for (int i = 0; !row && i <= reach; ++i) a[i] = b[i] = float(NOT_A_NUMBER);
            for (int i = side; i < pitch; ++i) a[i] = b[i] = float(NOT_A_NUMBER);
        }
    }

  public:
    SpotWindow(double sigma_of_psf) : sigma(sigma_of_psf), curvature_of_psf(float(1 / (sigma_of_psf * sigma_of_psf))) {}

    // Takes the pixels of a frame around a spot, within a number of sigma.
    template <class T>
    void take(const T* pixels, long long height, long long width, const FittedSpot& spot, double times) {
        reach = window_reach(sigma, times), pitch = (2 * reach + WIDTH) / WIDTH * WIDTH;
        const long long y = static_cast<long long>(__builtin_rint(spot.y));
        const long long x = static_cast<long long>(__builtin_rint(spot.x));
        put_profile(float(spot.y - double(y)), float(spot.x - double(x)), spot.curvature);
        put_pixels(pixels, height, width, y, x, spot.level);
    }
    Elongation own(const FittedSpot& spot) const {
        const auto add = [&](DirectionSums<L>& sums, const Opposite<L>& pair, const Direction<L>& at)
                             SPOTFIT_INLINE_LAMBDA { sums.add_own(spot, pair, at); };
        return own_elongation(sums(spot, add), spot.height);
    }
    bool has_line(const FittedSpot& spot) const {
        const auto add = [&](DirectionSums<L>& sums, const Opposite<L>& pair, const Direction<L>& at)
                             SPOTFIT_INLINE_LAMBDA { sums.add_wide(spot, pair, at); };
        const DirectionSums<float> wide = sums(spot, add);
        if (!goes_on(wide)) return false;
        const float length = length_of(wide), cosine = wide.difference / length, sine = wide.product / length;
        L line = 0.0f;
        each_pair(spot, [&](const Opposite<L>& pair, L x, L y) SPOTFIT_INLINE_LAMBDA {
            line += line_of_pair(spot, pair, direction(x, y, curvature_of_psf), x * x + y * y, cosine, sine);
        });
        return is_line(wide, total(line));
    }
};

// Calls use(spot) for the fits around which is looked.
template <class Use>
void each_spot(const FitColumns& fits, const VerdictSettings& s, const ImageFits& image, long long first,
               long long last, Use use) {
    if (s.around == AROUND_NOTHING || !(image.sigma > 0)) return;
    Tile tile;
    for (long long start = first; start < last; start += TILE) {
        const int count = last - start < TILE ? static_cast<int>(last - start) : TILE;
        for (int place = AMPLITUDE; place <= PHOTONS; ++place) tile.copy(fits, place, start, count);
        for (int j = 2; j < s.shape; ++j) tile.copy(fits, SHAPE + j, start, count);
        for (int k = 0; k < count; ++k) {
            const long long i = start + k;
            if ((image.flags[i] & NO_SPOT) || is_nan(image.at[0][i])) continue;
            const FitNumbers fit = tile.light_and_shape(k);
            const double own_width = mean_width(s, fit), dark = dark_variance(s, fit.background);
            // Filtered noise is less in fine detail, which the line is of, than in a pixel.
            const double brightest = s.coarse * (dark + s.slope * fit.amplitude);
            use(FittedSpot{i, image.corners[3 * i], image.at[0][i] - double(image.first), image.at[1][i],
                           fit.background + s.offset, float(fit.amplitude), float(1 / (own_width * own_width)),
                           float(dark), float(s.slope), float(-DEAD * square_root(brightest)), float(s.coarse)});
        }
    }
}

long long list_spots(const FitColumns& fits, const VerdictSettings& settings, const ImageFits& image, long long first,
                     long long last, FittedSpot* spots) {
    long long count = 0;
    each_spot(fits, settings, image, first, last, [&](const FittedSpot& spot) { spots[count++] = spot; });
    return count;
}

void flag_around(const FitColumns& fits, const VerdictSettings& settings, const ImageFits& image, const void* frames,
                 int pixel_type, long long height, long long width, long long first, long long last) {
    SpotWindow window(image.sigma);
    with_pixel_type(pixel_type, [&](auto kind) {
        using T = typename decltype(kind)::Type;
        each_spot(fits, settings, image, first, last, [&](const FittedSpot& spot) {
            const T* const pixels = static_cast<const T*>(frames) + spot.frame * height * width;
            if (settings.around == AROUND_FAR_LIGHT) {
                const auto pixel = [&](long long y, long long x) {
                    if (y < 0 || y >= height || x < 0 || x >= width) return float(NOT_A_NUMBER);
                    return float(pixels[y * width + x] - in_precision<T>(spot.level));
                };
                image.flags[spot.fit] |= far_light_flags(spot, settings.roi, pixel);
                return;
            }
            window.take(pixels, height, width, spot, OWN_REACH);
            const Elongation found = window.own(spot);
            if (found == IS_LONG) image.flags[spot.fit] |= flag::ELONGATED;
            if (found != IS_UNSURE) return;
            window.take(pixels, height, width, spot, WIDE_REACH);
            if (window.has_line(spot)) image.flags[spot.fit] |= flag::ELONGATED | LONG_BESIDE;
        });
    });
}

void judge_together(const FitColumns& fits, const VerdictSettings& settings, const ImageFits& image, long long first,
                    long long last) {
    InImage(fits, settings, image, first, last).judge_together();
}

void correct_all_errors(const FilteredNoise& noise, const ErrorColumns& fits, long long first, long long last) {
    for (long long i = first; i < last; ++i) correct_errors(noise, fits, i);
}

void mean_widths(const double* columns, long long count, double* widths) {
    for (long long i = 0; i < count; ++i) {
        const double *amplitude = columns + WIDTH_PARAMETERS * count, *light = amplitude + count;
        const auto width = [&](WidthParameter name) { return columns[name * count + i]; };
        widths[i] = mean_width(width, amplitude[i], light[i]);
    }
}

}  // namespace

const VerdictFunctions verdicts = {judge,       judge_each, judge_together,     pixel_flags,
                                   flag_around, list_spots, correct_all_errors, mean_widths};

}  // namespace spotfit::SPOTFIT_ISA
