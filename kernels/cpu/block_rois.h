// Where the ROIs of a block of frames lie: around positions, and as ROIs of planes.
#pragma once
#include "../layouts/fit_block.h"
#include "fit_rois.h"
#include "inside.h"

namespace spotfit {
namespace {

constexpr double UNKNOWN = __builtin_nan("");
// Of a pixel, by its type.
constexpr int BYTES[] = {1, 2, 2, 4, 8};
constexpr int MOST_PLANES = MOST_SIDE;

// The nearest whole number, the even one of two, as NumPy has it.
double rounded(double x) {
    constexpr double WHOLE = 6755399441055744.0;
    volatile double sum = x + WHOLE;
    return sum - WHOLE;
}

// ROIs of frames as ROIs of planes: those of volumes have several, and their planes follow each other in memory, as
// those of a stack do.
class PlaneRois {
    const BlockFits& b;
    const int axes;

  public:
    const int depth;

    explicit PlaneRois(const BlockFits& fits) : b(fits), axes(axes_of(fits.roi)), depth(fits.roi.depth) {}

    const long long* corner(long long i) const { return b.source.corners + (axes + 1) * i; }
    // First row and column, behind a number that is none of a plane.
    const long long* in_plane(long long i) const { return corner(i) + axes - 2; }
    // Plane, first row and first column of each, with memory for those of volumes; of a map that all frames share,
    // those of the first frame.
    const long long* of(long long first, long long count, long long* memory, bool shared = false) const {
        if (axes == 2 && !shared) return corner(first);
        for (long long n = 0; n < count; ++n) {
            const long long *const at = corner(first + n), *const place = in_plane(first + n);
            const bool there = at[0] >= 0 && (axes == 2 || (at[1] >= 0 && at[1] <= b.source.depth - depth));
            const long long plane = (shared ? 0 : at[0]) * b.source.depth + (axes == 2 ? 0 : at[1]);
            for (int k = 0; k < depth; ++k) {
                long long* const to = memory + 3 * (n * depth + k);
                to[0] = there ? plane + k : -1, to[1] = place[1], to[2] = place[2];
            }
        }
        return memory;
    }
};

// Fetches ROIs, and a pixel around them: a frame fresh from a camera is in no cache, and one row after the other
// comes as late as all at once.
void fetch(const BlockFits& b, long long first, long long last) {
    const long long bytes = BYTES[b.source.pixel_type], row = b.source.width * bytes;
    const char* const frames = static_cast<const char*>(b.source.frames);
    const auto fetch_plane = [&](const long long* corner) {
        if (!is_inside(corner, b.source.height, b.source.width, b.roi.rows, b.roi.columns)) return;
        const char* const frame = frames + corner[0] * b.source.height * row;
        const char* const end = frame + b.source.height * row - 1;
        const long long ends[] = {0, (b.roi.columns + 2) * bytes - 1};
        const char* place = frame + (corner[1] - 1) * row + (corner[2] - 1) * bytes;
        for (int k = 0; k < b.roi.rows + 2; ++k, place += row)
            for (const long long side : ends) {
                const char* const at = place + side;
                if (at >= frame && at <= end) __builtin_prefetch(at);
            }
    };
    const PlaneRois rois(b);
    long long memory[3 * MOST_PLANES];
    for (long long i = first; i < last; ++i) {
        const long long* const planes = rois.of(i, 1, memory);
        for (int k = 0; k < rois.depth; ++k) fetch_plane(planes + 3 * k);
    }
}

// Whether a spot begins where too few planes show its width along z.
bool is_held(const BlockFits& b, long long i) {
    if (!b.held.settings) return false;
    const double z = b.image->places[3 * i];
    return z < b.held.planes || double(b.frame_rows - 1) - z < b.held.planes;
}

// Puts the ROIs around all positions, shifted into the frame; in one that holds none, there are none. Returns whether
// all positions lie in it.
bool place_rois(const BlockFits& b) {
    long long* corner = const_cast<long long*>(b.source.corners);
    float* start = const_cast<float*>(b.source.start);
    const double* place = b.image->places;
    const int axes = axes_of(b.roi), planar = 3 - axes;
    const long long all_sides[] = {b.roi.depth, b.roi.rows, b.roi.columns}, *const sides = all_sides + planar;
    long long all_sizes[] = {b.source.depth, b.source.height, b.source.width}, *const sizes = all_sizes + planar;
    sizes[0] = b.frame_rows;
    const long long firsts[] = {b.first_row, 0, 0};
    for (long long i = 0; i < b.spots.count; ++i, corner += axes + 1, start += b.shape, place += axes) {
        corner[0] = b.frame ? b.frame[i] : 0;
        for (int axis = 0; axis < axes; ++axis) {
            if (!(place[axis] >= -0.5 && place[axis] <= double(sizes[axis]) - 0.5)) return false;
            const long long most = sizes[axis] - sides[axis];
            if (most < 0 || corner[0] >= b.spots.frames) corner[0] = -1;
            long long first = static_cast<long long>(rounded(place[axis])) - sides[axis] / 2;
            first = first < 0 ? 0 : first > most ? most : first;
            corner[1 + axis] = first - firsts[axis];
            start[axis] = float(place[axis] - double(first));
        }
        for (int j = axes; j < b.shape; ++j) start[j] = float(UNKNOWN);
        if (is_held(b, i)) start[b.held.place] = b.held.sigma_z;
        if (b.z) start[b.shape - 1] = b.z[i];
    }
    return true;
}

}  // namespace
}  // namespace spotfit
