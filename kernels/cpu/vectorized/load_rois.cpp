#include "../load_rois.h"

#include "../../pixels.h"
#include "../inside.h"
#include "../transpose.h"

namespace spotfit::SPOTFIT_ISA {
namespace {

using L = LaneType;
constexpr int W = LANES;

// Where a ROI begins in frames, or in a map that all of them share; -1 outside of them.
long long first_pixel(const HostRois& s, const RoiShape& shape, long long roi, bool shared) {
    if (!s.corners) return shared ? 0 : roi * s.depth * s.height * s.width;
    const long long* c = s.corners + (s.depth > 1 ? 4 : 3) * roi;
    if (c[0] < 0) return -1;
    long long line = shared ? 0 : c[0];
    if (s.depth > 1) {
        if (*++c < 0 || *c > s.depth - shape.depth) return -1;
        line = line * s.depth + *c;
    }
    if (!is_inside(c, s.height, s.width, shape.rows, shape.columns)) return -1;
    return (line * s.height + c[1]) * s.width + c[2];
}

// How far from there a line of pixels begins.
SPOTFIT_INLINE long long line_at(const HostRois& s, const RoiShape& shape, int k) {
    if (shape.depth == 1) return k * s.width;
    return (k / shape.rows * s.height + k % shape.rows) * s.width;
}

SPOTFIT_INLINE bool is_finite(double x) { return x - x == 0; }

// A pixel that counts: a number, with a weight above 0 or a variance. NaN counts for nothing.
template <class T>
T reference_of(const HostRois& s, bool variances, const T* pixels, long long roi, const RoiShape& shape) {
    const float* planes = s.planes.values;
    if (planes) planes += first_pixel(s, shape, roi, s.planes.shared);
    for (int k = 0; k < lines_of(shape); ++k)
        for (int i = 0; i < shape.columns; ++i) {
            const long long place = line_at(s, shape, k) + i;
            const float plane = planes ? planes[place] : 1.0f;
            const bool counts = variances ? plane >= 0.0f : plane > 0.0f;
            if (counts && is_finite(double(pixels[place]))) return pixels[place];
        }
    return T(0);
}

template <class T>
void copy_roi(const HostRois& s, const T* from, const RoiShape& shape, T reference, float* to) {
    int lines = lines_of(shape), columns = shape.columns;
    if (columns == s.width && (shape.depth == 1 || shape.rows == s.height)) columns *= lines, lines = 1;
    for (int k = 0; k < lines; ++k) {
        const T* const line = from + line_at(s, shape, k);
        for (int i = 0; i < columns; ++i) to[k * columns + i] = difference(line[i], reference);
    }
}

template <class T, bool PIXELS>
void load(const HostRois& source, bool variances, const T* all, bool shared, const long long* rois, int count,
          const RoiShape& shape, float* stage, L* tile, float* level) {
    const int pixels = pixels_of(shape), stride = padded(pixels);
    for (int lane = 0; lane < W; ++lane) {
        float* to = stage + lane * stride;
        const long long first = lane < count ? first_pixel(source, shape, rois[lane], shared) : -1;
        T reference = T(0);
        if (first < 0) {
            for (int i = 0; i < pixels; ++i) to[i] = NOT_A_NUMBER;
        } else {
            if (PIXELS) reference = reference_of(source, variances, all + first, rois[lane], shape);
            copy_roi(source, all + first, shape, reference, to);
        }
        if (PIXELS) level[lane] = float(reference);
    }
    for (int block = 0; block < stride; block += W) transpose(stage + block, stride, tile + block);
}

template <class T>
void load_as(const HostRois& source, bool variances, const long long* rois, int count, const RoiShape& shape,
             float* stage, L* tile, float* level) {
    load<T, true>(source, variances, static_cast<const T*>(source.frames), false, rois, count, shape, stage, tile,
                  level);
}

}  // namespace

void load_pixels(const HostRois& source, bool variances, const long long* rois, int count, const RoiShape& shape,
                 float* stage, L* tile, float* level) {
    using Load = void (*)(const HostRois&, bool, const long long*, int, const RoiShape&, float*, L*, float*);
    constexpr Load LOAD[] = {load_as<unsigned char>, load_as<unsigned short>, load_as<short>, load_as<float>,
                             load_as<double>};
    LOAD[source.pixel_type](source, variances, rois, count, shape, stage, tile, level);
}

void load_map(const HostRois& source, const PixelMap& map, const long long* rois, int count, const RoiShape& shape,
              float* stage, L* tile) {
    load<float, false>(source, false, map.values, map.shared, rois, count, shape, stage, tile, nullptr);
}

}  // namespace spotfit::SPOTFIT_ISA
