// Detection in volumes: the bands, noise and shape of detection.h along z as well.
//
// Volumes are mirrored at their first and last planes. Where there are few planes, all of them are near one: noise
// and shape are those of each plane. Hot pixels are those of a plane, as a camera has the same ones in all planes.
#pragma once
#include "detection.h"

namespace spotfit::SPOTFIT_ISA {

// Whether none of 26 neighbours is higher; of equal ones the first is the maximum. `at(w, v, u)` is w planes after,
// v rows below and u columns to the right, and -INFINITE outside of the volume.
template <class L, class At> SPOTFIT_INLINE MaskOf<L> is_maximum_in_volume(L value, At at) {
    MaskOf<L> highest = is_maximum(value, [&](int v, int u) SPOTFIT_INLINE_LAMBDA { return at(0, v, u); });
    UNROLL
    for (int v = -1; v <= 1; ++v) {
        UNROLL
        for (int u = -1; u <= 1; ++u) highest = highest & (value > at(-1, v, u)) & (value >= at(1, v, u));
    }
    return highest;
}

// The variance of a band's noise at a voxel for one of voxels of 1.
SPOTFIT_INLINE double noise_gain(const DetectionSettings& s, int band, long long z, long long y, long long x) {
    const double *by_z = s.volume->bands[band].gain_z + z, *by_y = s.bands[band].gain_y + y;
    const double* by_x = s.bands[band].gain_x + x;
    const double variance = by_z[0] * by_y[0] * by_x[0] - 2.0 * by_z[s.depth] * by_y[s.height] * by_x[s.width] +
                            by_z[2 * s.depth] * by_y[2 * s.height] * by_x[2 * s.width];
    return higher_of(variance, 0.0);
}

// The same of the map of variances.
SPOTFIT_INLINE double mapped_variance(const DetectionSettings& s, int band, long long z, long long y, long long x) {
    if (s.variance_map == nullptr) return 0.0;
    const int inner = band == WIDE_BAND ? OWN : NARROW, outer = band == WIDE_BAND ? WIDE : OWN;
    const VolumeSettings& volume = *s.volume;
    const auto weight = [&](int width, int w, int v, int u) SPOTFIT_INLINE_LAMBDA {
        if (w > volume.radius[width] || v > s.radius[width] || u > s.radius[width]) return 0.0f;
        return volume.kernels[width][w] * s.kernels[width][v] * s.kernels[width][u];
    };
    const int along_z = volume.radius[outer], along = s.radius[outer];
    double sum = 0.0;
    for (int w = -along_z; w <= along_z; ++w) {
        const float* plane = s.variance_map + mirrored<long long>(z + w, s.depth) * s.height * s.width;
        for (int v = -along; v <= along; ++v) {
            const float* row = plane + mirrored<long long>(y + v, s.height) * s.width;
            for (int u = -along; u <= along; ++u) {
                const int far[3] = {w < 0 ? -w : w, v < 0 ? -v : v, u < 0 ? -u : u};
                const float own = weight(inner, far[0], far[1], far[2]) - weight(outer, far[0], far[1], far[2]);
                sum += double(own * own * row[mirrored<long long>(x + u, s.width)]);
            }
        }
    }
    return sum;
}

// A spot's curvature over what it should be, at least: the less noise it has, the more; how much more on a slope as
// high as the spot; and there, its score in the narrow band, where textures of cells are weaker than in the wide one.
constexpr double LEAST_CURVATURE = 0.2, SURE_CURVATURE = 0.4, CURVATURE = 0.6, DEVIATIONS = 1.6;
constexpr double ON_SLOPE = 0.3, NARROW_ON_SLOPE = 6.0;
// Two spots too near for two maxima are curved by a third of one spot's along the line between them. The score in the
// narrow band that textures do not reach, slopes less than an edge's, and the curvature that lines and sheets do not
// reach by noise, in the wide band and in the narrow one.
constexpr double CLEAR_IN_NARROW = 8.0, NO_EDGE = 0.95, TWO_IN_WIDE = 0.22, TWO_IN_NARROW = 0.34;

// Whether a maximum has a spot's shape: neither an edge, nor a line, nor a sheet, along which there is no curvature.
// `at(w, v, u)` is its band, `mean_at(w, v, u)` the mean around; `deviation` is the band's noise, `narrow` the score
// in the narrow band.
template <class At, class MeanAt>
SPOTFIT_INLINE bool has_spots_shape(const DetectionSettings& s, int band, int z, double deviation, double narrow, At at,
                                    MeanAt mean_at) {
    const VolumeSettings& volume = *s.volume;
    const double height = double(at(0, 0, 0));
    double curvature = double(HIGHEST), rise = 0.0;
    for (int d = 0; d < VOLUME_DIRECTIONS; ++d) {
        const int w = volume.reach[d][0], v = volume.reach[d][1], u = volume.reach[d][2];
        if (d < 3 && w + v + u > 0) {  // along z, where there are planes, y and x
            const double step = double(mean_at(w, v, u)) - double(mean_at(-w, -v, -u));
            rise += square(step * double(d == 0 ? volume.sigma_z : s.sigma) / double(2 * (w + v + u)));
        }
        const double usual = double(volume.bands[band].curvature[z * VOLUME_DIRECTIONS + d]);
        if (!(usual > 0.0)) continue;
        const double second = height - 0.5 * (double(at(w, v, u)) + double(at(-w, -v, -u)));
        curvature = lower_of(curvature, second / (usual * height));
    }
    const double slope = lower_of(square_root(rise) / (height * volume.bands[band].in_wide), 1.0);
    const double noise = volume.bands[band].curvature_noise * deviation / height;
    const double of_two = band == WIDE_BAND ? TWO_IN_WIDE : TWO_IN_NARROW;
    if (narrow > CLEAR_IN_NARROW && slope < NO_EDGE && curvature > of_two) return true;
    const double least = lower_of(higher_of(CURVATURE - DEVIATIONS * noise, LEAST_CURVATURE), SURE_CURVATURE);
    return curvature > least + ON_SLOPE * slope && narrow > NARROW_ON_SLOPE * slope;
}

// Whether a voxel is on a plateau, or right above or below one.
template <class T, class Int>
SPOTFIT_INLINE bool is_flat(const Frame<T>& plane, const DetectionSettings& s, const Neighbours& n, Int z, Int y,
                            Int x) {
    bool flat = is_flat(n);
    UNROLL
    for (int w = -1; w <= 1; w += 2) {
        if (z + w < 0 || z + w >= Int(s.depth)) continue;
        const Frame<T> frame = {plane.pixels + w * s.height * s.width, plane.level};
        const Neighbours beside(frame, s, y, x);
        if (beside.pixel > n.pixel) return false;
        int equal = beside.pixel == n.pixel;
        UNROLL
        for (const float one : beside.around) {
            if (one > n.pixel) return false;
            equal += one == n.pixel;
        }
        flat |= equal >= 6;
    }
    if (!flat) return false;
    for (const float one : n.around)
        if (one > n.pixel) return false;
    return true;
}

// Whether a maximum of a band is a spot's, and if so, its score and height. `plane` is the frame that it is in,
// `at(kind, w, v, u)` what was filtered: a band's numbers, or the means after them.
template <class T, class Int, class At>
SPOTFIT_INLINE bool is_spot_in_volume(const DetectionSettings& s, int band, const PixelVariance& variance,
                                      const Frame<T>& plane, Int z, Int y, Int x, At at, Maximum& maximum) {
    const float height = at(band, 0, 0, 0);
    const double voxel_variance = double(variance(at(BANDS, 0, 0, 0)));
    const double noise = noise_gain(s, band, z, y, x) * voxel_variance + mapped_variance(s, band, z, y, x);
    const double deviation = square_root(noise);
    const double skewness = double(s.volume->bands[band].skewness[z]) * s.own_slope / deviation;
    const NormalScore score(double(height), deviation, skewness);
    if (!(score > s.least_score)) return false;
    const double narrow_noise =
        noise_gain(s, NARROW_BAND, z, y, x) * voxel_variance + mapped_variance(s, NARROW_BAND, z, y, x);
    const bool has_shape = has_spots_shape(
        s, band, int(z), deviation, double(at(NARROW_BAND, 0, 0, 0)) / square_root(narrow_noise),
        [&](int w, int v, int u) SPOTFIT_INLINE_LAMBDA { return at(band, w, v, u); },
        [&](int w, int v, int u) SPOTFIT_INLINE_LAMBDA { return at(BANDS, w, v, u); });
    const Neighbours pixels(plane, s, y, x);
    if (!is_no_rounding(height, pixels)) return false;
    maximum.on_flat_area = is_flat(plane, s, pixels, z, y, x);
    if (!has_shape && !maximum.on_flat_area) return false;
    maximum.height = higher_of(at(WIDE_BAND, 0, 0, 0), LEAST_CONTRAST * height);
    maximum.score = float(lower_of(score.value(), double(HIGHEST)));
    return true;
}

}  // namespace spotfit::SPOTFIT_ISA
