// What all kernels of the detection share: their argument, pixels less the level of their
// frame, and sums over the threads of a block.
//
// Compile-time numbers: PIXEL (the pixels' type), THREADS (of a block), MAX_RADIUS (of the
// band-pass, for any sigma), RUN (pixels of a row that a warp filters), SEGMENT (pixels of a
// frame that a block searches for maxima), SPREADS (samples of a frame that its noise is
// estimated from) and the constants of napari_spotfit.engine.detection.band.

#define ALL_LANES 0xffffffffu
#define WARPS (THREADS / 32)
#define SEGMENT_WORDS (SEGMENT / 32)

// A pixel on which a spot was detected; the first one holds the count of all in ``frame``.
struct Candidate {
    int frame, y, x, on_flat_area;
    float height, score;
};

// Frames, what is made of them in turn, and the numbers that decide what is found; as
// napari_spotfit.engine.cuda.detect fills it in.
struct Work {
    const PIXEL* frames;
    const float* weights;  // halves of the narrow and the wide kernel, radius + 1 long each
    const float* border;   // the noise at each pixel over that of the frame

    PIXEL* levels;    // of each frame
    int* bad;         // of each part of each frame: whether it has bad pixels
    float* filtered;  // frames
    float* samples;   // SPREADS of each frame, with room for ``room`` numbers each
    float* spreads;   // of these samples
    unsigned* marks;  // one bit per pixel, SEGMENT_WORDS words per segment
    int* counts;      // of the marks in each segment
    Candidate* candidates;

    float gain;        // of the filter for white noise
    float border_min;  // the lowest of ``border``
    float least_score, least_height;
    int height, width, parts, narrow_radius, radius, row_step, room;
    int fetched;  // of ``candidates``, however many there are

    __device__ __forceinline__ long long first_pixel(int frame) const {
        return (long long)frame * height * width;
    }
};

// Whether pixels can be NaN, infinite or too far from the level: bad.
constexpr bool MAY_BE_BAD = (PIXEL)0.5f > (PIXEL)0;

__device__ __forceinline__ bool is_good(float value) {
    return !MAY_BE_BAD || fabsf(value) < TOO_FAR;
}

// The pixels of a frame, less its level.
struct Pixels {
    const PIXEL* pixels;
    PIXEL level;

    // The difference, rounded after it was taken; it may be bad.
    __device__ __forceinline__ float difference(int place) const {
        if constexpr (sizeof(PIXEL) == 8)
            return float(pixels[place] - level);
        else
            return float(pixels[place]) - float(level);
    }
    // The same, 0 for bad pixels.
    __device__ __forceinline__ float operator[](int place) const {
        const float value = difference(place);
        return is_good(value) ? value : 0.0f;
    }
    // The sum of two of these.
    __device__ __forceinline__ float sum(int one, int other) const {
        if constexpr (MAY_BE_BAD)
            return (*this)[one] + (*this)[other];
        else
            return float(int(pixels[one]) + int(pixels[other]) - 2 * int(level));
    }
};

__device__ __forceinline__ Pixels pixels_of(const Work& work, int frame) {
    return {work.frames + work.first_pixel(frame), work.levels[frame]};
}

template <typename T>
__device__ __forceinline__ T sum_over_warp(T value) {
#pragma unroll
    for (int distance = 16; distance > 0; distance /= 2)
        value += __shfl_xor_sync(ALL_LANES, value, distance);
    return value;
}

// The sum over the block, the same in every thread. Sums that follow each other need
// different places for the warps' own sums.
template <typename T>
__device__ __forceinline__ T sum_over_block(T value, T (&of_warps)[WARPS]) {
    value = sum_over_warp(value);
    if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = value;
    __syncthreads();
    T sum = of_warps[0];
#pragma unroll
    for (int i = 1; i < WARPS; ++i) sum += of_warps[i];
    return sum;
}
