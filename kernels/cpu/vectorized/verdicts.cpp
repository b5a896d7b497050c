// What is said against fits, a part of their columns at a time.
#include "../verdicts.h"

#include "../../filtered_errors.h"
#include "../../verdict.h"
#include "../near.h"
#include "tables.h"

namespace spotfit::SPOTFIT_ISA {
namespace {

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
        else if (place == ROI_Y || place == ROI_X) read<int>(column, first, count, values[place]);
        else read<float>(column, first, count, values[place]);
    }
    void copy_all(const FitColumns& fits, int shape, long long first, int count) {
        for (int place = 0; place < SHAPE + shape; ++place) copy(fits, place, first, count);
        for (int axis = 0; axis < 2 && axis < shape; ++axis)
            if (fits.columns[ROI_Y + axis])
                for (int i = 0; i < count; ++i) values[SHAPE + axis][i] -= values[ROI_Y + axis][i];
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
        tile.copy_all(fits, settings.shape, start, count);
        for (int i = 0; i < count; ++i)
            flags[start + i] = flags_of_numbers(settings, tile.fit(i), tile.values[STOP_CONDITION][i], there);
    }
}

// The flags that follow from pixels of a ROI that no fit has counted, given y and x in the image.
unsigned flags_of_pixels(const VerdictSettings& s, double y, double x, const long long* corner, long long first_row,
                         const unsigned char* saturated, const unsigned char* bad) {
    const long long row = static_cast<long long>(__builtin_rint(y)) - corner[1] - first_row;
    const long long column = static_cast<long long>(__builtin_rint(x)) - corner[2];
    const long long v = within(row, s.rows), u = within(column, s.columns);
    unsigned flags = 0;
    if (saturated && saturated[v * s.columns + u] &&
        marked_around(saturated, s.rows, s.columns, v, u, false) >= FULL_PIXELS)
        flags |= flag::SATURATED;
    if (bad && marked_around(bad, s.rows, s.columns, v, u, false)) flags |= flag::BAD_PIXELS;
    return flags;
}

// The fits of one image, some frames of them.
class InImage {
    const FitColumns& fits;
    const VerdictSettings& s;
    const ImageFits& image;
    const long long first, last;
    double* const moved;
    unsigned char* const asked;
    int* const cells;

    long long frame(long long i) const { return image.corners[3 * i]; }
    // The first fit of a frame that is there, from a row on.
    static long long frame_start(const ImageFits& image, long long i) {
        while (i > 0 && i < image.count && image.corners[3 * i] == image.corners[3 * i - 3]) ++i;
        return i;
    }
    bool is_valid(long long i) const { return !is_nan(image.y[i]); }

    FitPlace place(long long i, double y, double x) const {
        const long long* corner = image.corners + 3 * i;
        const double *start = image.places + 2 * i, roi_y = double(corner[1] + image.first_row),
                     roi_x = double(corner[2]);
        return {start[0], start[1], y + roi_y, x + roi_x, roi_y, roi_x, double(image.height), double(image.width)};
    }
    bool has_bad_middle(long long i) const {
        const unsigned char* bad = image.bad + (image.bad_frames > 1 ? frame(i) : 0) * image.height * image.width;
        const long long row = within(static_cast<long long>(__builtin_rint(image.y[i])), image.height);
        const long long column = within(static_cast<long long>(__builtin_rint(image.x[i])), image.width);
        return marked_around(bad, image.height, image.width, row, column, true) > 0;
    }

    InImage(const FitColumns& columns, const VerdictSettings& settings, const ImageFits& fits_of_image, long long begin,
            long long end, int)
        : fits(columns), s(settings), image(fits_of_image), first(begin), last(end),
          moved(static_cast<double*>(image.work)), asked(nullptr), cells(nullptr) {}

  public:
    InImage(const FitColumns& columns, const VerdictSettings& settings, const ImageFits& fits_of_image, long long begin,
            long long end)
        : fits(columns), s(settings), image(fits_of_image), first(frame_start(fits_of_image, begin)),
          last(frame_start(fits_of_image, end)), moved(static_cast<double*>(image.work)),
          asked(static_cast<unsigned char*>(image.work) + 8 * image.count),
          // Shares of the work end where those of others begin.
          cells(reinterpret_cast<int*>(static_cast<unsigned char*>(image.work) + 16 * image.count) + 4 * first) {}

    // The fits of a range, whatever frames they are of.
    static InImage exactly(const FitColumns& columns, const VerdictSettings& settings, const ImageFits& fits_of_image,
                           long long first, long long last) {
        return {columns, settings, fits_of_image, first, last, 0};
    }

    // What follows from each fit by itself.
    void judge_each(const VerdictSettings& settings) const {
        Tile tile;
        const Known there = known(fits);
        for (long long start = first; start < last; start += TILE) {
            const int count = last - start < TILE ? static_cast<int>(last - start) : TILE;
            if (image.noise)
                for (int i = 0; i < count; ++i) correct_errors(*image.noise, *image.errors, start + i);
            tile.copy_all(fits, settings.shape, start, count);
            for (int k = 0; k < count; ++k) {
                const long long i = start + k;
                const FitNumbers fit = tile.fit(k);
                const FitPlace at = place(i, tile.values[SHAPE][k], tile.values[SHAPE + 1][k]);
                image.y[i] = at.y, image.x[i] = at.x;
                image.roi_y[i] = static_cast<int>(at.roi_y), image.roi_x[i] = static_cast<int>(at.roi_x);
                moved[i] = distance_moved(at);
                unsigned flags = flags_of_numbers(settings, fit, tile.values[STOP_CONDITION][k], there);
                if (tile.values[STOP_CONDITION][k] != STOP_INVALID) {
                    flags |= flags_of_place(settings, fit, at, image.sigma, moved[i]);
                    if (image.bad && is_valid(i) && has_bad_middle(i)) flags |= flag::BAD_PIXELS;
                }
                image.flags[i] |= flags;
            }
        }
    }

    // What follows from other fits of the frame. Two that ended together began as neighbours, or the one that
    // moved more came from afar.
    void judge_together() const {
        const double reach_y = s.rows / 2.0, reach_x = s.columns / 2.0;
        const double known = is_nan(image.sigma) ? 0 : s.same_spot * image.sigma;
        const double same = no_less(known, s.same_spot_px), afar = (no_more(reach_y, reach_x) - same) / 2;
        for (long long start = first, end; start < last; start = end) {
            for (end = start + 1; end < last && frame(end) == frame(start);) ++end;
            const int count = static_cast<int>(end - start);
            if (count < 2) continue;
            const Points begun = {image.places + 2 * start, image.places + 2 * start + 1, 2, count};
            unsigned char* const marked = asked + start;
            mark_near(begun, image.height, image.width, reach_y, reach_x, cells, marked);
            int together_asked = 0;
            for (int i = 0; i < count; ++i) {
                const bool neighbour = marked[i], valid = is_valid(start + i);
                if (neighbour && valid) image.flags[start + i] |= flag::NEIGHBOUR;
                marked[i] = valid && (neighbour || moved[start + i] > afar);
                together_asked += marked[i];
            }
            if (!together_asked) continue;
            const Points ended = {image.y + start, image.x + start, 1, count};
            const NearPoints together(ended, image.height, image.width, same, same, together_asked, cells);
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

const VerdictFunctions verdicts = {judge, judge_each, judge_together, pixel_flags, correct_all_errors, mean_widths};

}  // namespace spotfit::SPOTFIT_ISA
