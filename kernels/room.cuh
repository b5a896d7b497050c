// A warp's ROIs in its shared memory, for fits that visit every pixel.
//
// Each lane has its own rows of its fit's pixels in a segment of its own. Where pixels are
// weighted (PLANES), their weights, or for maximum likelihood the read-out noise, lie in a
// second one. Pixels that do not count have the value 0 and no weight.

#include "pointwise.cuh"
#include "rois.cuh"
#include "search.cuh"

// What is known of each pixel: one plane for all frames, or, where there are more, each its
// own.
struct Planes {
    const float* values;
    int more;
};

// An odd number, so that lanes that read the same pixel of several fits use different banks.
#define SEGMENT (OWN_ROWS * COLUMNS | 1)

// The read-out noise of a pixel that does not count.
#define NO_PIXEL -1.0f

struct Room {
    float pixels[32][SEGMENT];
#if PLANES
    float planes[32][SEGMENT];
#endif
};

// What a fit's lanes know of its pixels together.
struct Data {
    Total weights;
    float valid;   // number of pixels that count
    float weight;  // that a weight of 1 stands for
};

__device__ __forceinline__ float plane_of(const Room& room, int place) {
#if PLANES
    return room.planes[lane_number()][place];
#else
    return LIKELIHOOD ? 0.0f : 1.0f;
#endif
}

// The weight of one of the lane's own pixels in least squares.
__device__ __forceinline__ float weight_of(const Room& room, int place) {
#if PLANES
    const float plane = room.planes[lane_number()][place];
    return LIKELIHOOD ? (plane >= 0.0f ? 1.0f : 0.0f) : plane;
#else
    return 1.0f;
#endif
}

// A pixel of the lane's fit, in whichever segment.
__device__ __forceinline__ float pixel_of(const Room& room, int row, int column) {
    const int lane = lane_number() / LANES * LANES + row / OWN_ROWS;
    return room.pixels[lane][row % OWN_ROWS * COLUMNS + column];
}

// Calls `use` with place, row and column of each of the lane's own pixels.
template <typename Use>
__device__ __forceinline__ void over_own_pixels(Use use) {
    const int top = first_own_row();
#pragma unroll 1
    for (int k = 0; k < OWN_ROWS; ++k) {
        if (!has_row(k)) break;
#pragma unroll 4
        for (int i = 0; i < COLUMNS; ++i) use(k * COLUMNS + i, top + k, i);
    }
}

// Where a ROI's first pixel lies in its frames; -1 outside of them.
__device__ __forceinline__ long long find_roi(const Rois& rois, long long fit) {
    if (!GATHER) return fit * PIXELS;
    const long long* c = rois.corners + 3 * fit;
    return c[0] < 0 ? -1 : (c[0] * rois.height + c[1]) * rois.width + c[2];
}

// The same in the planes.
__device__ __forceinline__ long long find_plane(const Rois& rois, const Planes& planes,
                                                long long fit) {
    if (!GATHER) return planes.more ? fit * PIXELS : 0;
    const long long* c = rois.corners + 3 * fit;
    return ((planes.more ? c[0] * rois.height : 0) + c[1]) * rois.width + c[2];
}

// Whether a pixel counts, by what is known of it. NaN counts for nothing.
__device__ __forceinline__ bool counts(float plane) {
    return LIKELIHOOD ? plane == plane : plane > 0.0f;
}

// What pixels are reckoned in until their level is taken off: in double precision where they
// have that.
typedef decltype((PIXEL)0 + 0.0f) Real;

__device__ __forceinline__ float less(PIXEL pixel, Real reference) {
    return float(Real(pixel) - reference);
}

// The first number among a ROI's pixels that count, so that the others are near it.
__device__ __forceinline__ Real reference_of(const Rois& rois, const Planes& planes,
                                             long long roi, long long plane) {
#pragma unroll 1
    for (int first = 0; first < PIXELS; first += 32) {
        const int t = first + lane_number();
        const long long place = t / COLUMNS * rois.width + t % COLUMNS;
        const Real pixel = t < PIXELS ? Real(rois.frames[roi + place]) : Real(0);
        const bool good = t < PIXELS && fabsf(float(pixel)) < INFINITE &&
                          (!PLANES || counts(planes.values[plane + place]));
        const unsigned found = __ballot_sync(ALL_LANES, good);
        if (found) return __shfl_sync(ALL_LANES, pixel, __ffs(found) - 1);
    }
    return Real(0);
}

// Fetches the ROIs of the warp's fits, from `first` on; returns the reference that was taken
// off the pixels of the lane's own one. Neighbouring threads fetch neighbouring pixels.
__device__ __forceinline__ Real fetch(const Rois& rois, const Planes& planes, long long first,
                                      int count, Room& room) {
    Real own = Real(0);
#pragma unroll 1
    for (int j = 0; j < count; ++j) {
        const long long roi = find_roi(rois, first + j);
        if (roi < 0) continue;
        const long long plane = PLANES ? find_plane(rois, planes, first + j) : 0;
        const Real reference = reference_of(rois, planes, roi, plane);
        if (lane_number() / LANES == j) own = reference;
#pragma unroll 4
        for (int t = lane_number(); t < PIXELS; t += 32) {
            const int row = t / COLUMNS, column = t % COLUMNS;
            const long long place = row * rois.width + column;
            const int lane = j * LANES + row / OWN_ROWS;
            float& pixel = room.pixels[lane][row % OWN_ROWS * COLUMNS + column];
            pixel = less(rois.frames[roi + place], reference);
#if PLANES
            const float known = planes.values[plane + place];
            if (!counts(known)) pixel = 0.0f;
            room.planes[lane][row % OWN_ROWS * COLUMNS + column] =
                counts(known) ? known : LIKELIHOOD ? NO_PIXEL : 0.0f;
#endif
        }
    }
    __syncwarp();
    return own;
}
