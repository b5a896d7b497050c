// ROIs on their way from memory to the threads that fit them.
//
// While a warp fits, the ROIs that it takes next are copied to its shared memory, as they
// are, by copies that run beside the computation (from compute capability 8.0 on). A slot of
// the stage holds one ROI, as runs of neighbouring pixels: one run for a cut-out, one per
// row for a ROI that lies in a frame (GATHER). Copies move whole words of 4 bytes, so that
// a run of smaller pixels may begin within its first word, as it does in memory.

#include "rois.cuh"
#include "shape.cuh"
#include "warp.cuh"

#define RUNS (GATHER ? ROWS : 1)
#define RUN_PIXELS (GATHER ? COLUMNS : PIXELS)
#define RUN_BYTES int(RUN_PIXELS * sizeof(PIXEL))
// Whether runs may begin within a word. Cut-outs of whole words all begin with one.
#define SUB_WORD (sizeof(PIXEL) < 4 && (GATHER || RUN_BYTES % 4 != 0))
#define RUN_WORDS (SUB_WORD ? (RUN_BYTES + 3 - int(sizeof(PIXEL))) / 4 + 1 : RUN_BYTES / 4)
// An odd number of words, so that threads that read the same pixel of several ROIs use
// different banks; doubles need an even one.
#define SLOT_WORDS (sizeof(PIXEL) == 8 ? RUNS * RUN_WORDS : (RUNS * RUN_WORDS) | 1)

struct Stage {
    alignas(8) unsigned words[GROUPS * SLOT_WORDS];
    float start[GROUPS * SHAPE];
    const char* address[GROUPS];  // of the first pixel in memory; null outside of the frames
};

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
__device__ __forceinline__ void copy_word(void* shared, const void* global) {
    const unsigned place = (unsigned)__cvta_generic_to_shared(shared);
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(place), "l"(global) : "memory");
}
__device__ __forceinline__ void wait_for_copies() {
    asm volatile("cp.async.wait_all;" ::: "memory");
}
#else
__device__ __forceinline__ void copy_word(void* shared, const void* global) {
    *(unsigned*)shared = *(const unsigned*)global;
}
__device__ __forceinline__ void wait_for_copies() {}
#endif

// Where a ROI's first pixel lies in memory; null outside of the frames.
__device__ __forceinline__ const char* find_roi(const Rois& rois, long long fit) {
    if (!GATHER) return (const char*)(rois.frames + fit * PIXELS);
    const long long* c = rois.corners + 3 * fit;
    const long long place = (c[0] * rois.height + c[1]) * rois.width + c[2];
    return c[0] < 0 ? nullptr : (const char*)(rois.frames + place);
}

// How many words of a slot a thread copies.
#define OWN_WORDS ((RUNS * RUN_WORDS + 31) / 32)

// Begins to copy one ROI to its slot; neighbouring threads copy neighbouring words.
__device__ __forceinline__ void stage_roi(const char* roi, long long row_bytes, unsigned* words) {
    const int lane = lane_number();
#pragma unroll (GATHER || OWN_WORDS > 8 ? 1 : OWN_WORDS)
    for (int m = 0; m < OWN_WORDS; ++m) {
        const int within = lane + 32 * m;
        if (within >= RUNS * RUN_WORDS) continue;
        if (!GATHER && !SUB_WORD) {
            copy_word(words + within, roi + 4 * within);
            continue;
        }
        const char* begin = roi + within / RUN_WORDS * row_bytes;
        // Less than a word before the first pixel lies what belongs to the same word.
        const char* source = begin - (SUB_WORD ? (unsigned long long)begin % 4 : 0);
        source += 4 * (within % RUN_WORDS);
        // Some runs reach into one more word than others.
        const bool more = RUN_WORDS == (RUN_BYTES + 3) / 4 || source < begin + RUN_BYTES;
        if (more) copy_word(words + within, source);
    }
}

// Begins to copy ROIs of neighbouring numbers to their slots. ROIs are counted from
// `origin`; thread j knows where first + j lies.
__device__ __forceinline__ void stage_rois(const Rois& rois, long long origin, int first,
                                           int count, const char* address, Stage& stage) {
    const int lane = lane_number();
    if (lane < count) stage.address[(first + lane) % GROUPS] = address;
    __syncwarp();
#pragma unroll 2
    for (int j = 0; j < count; ++j) {
        const int slot = (first + j) % GROUPS;
        const char* roi = stage.address[slot];
        if (!GATHER || roi != nullptr)
            stage_roi(roi, rois.width * sizeof(PIXEL), &stage.words[slot * SLOT_WORDS]);
    }
    if (rois.start == nullptr) return;
    const float* start = rois.start + SHAPE * (origin + first);
    for (int t = lane; t < SHAPE * count; t += 32)
        copy_word(&stage.start[(first + t / SHAPE) % GROUPS * SHAPE + t % SHAPE], start + t);
}

// A ROI in its slot.
struct Staged {
    const char* words;
    unsigned address, pitch;  // in memory, in bytes; their last two bits tell the alignment
};

__device__ __forceinline__ Staged find_staged(const Rois& rois, const Stage& stage, int slot) {
    return {(const char*)&stage.words[slot * SLOT_WORDS],
            (unsigned)(unsigned long long)stage.address[slot],
            (unsigned)(rois.width * sizeof(PIXEL))};
}

__device__ __forceinline__ const PIXEL* row_of(const Staged& roi, int k) {
    if (!GATHER)
        return (const PIXEL*)(roi.words + (SUB_WORD ? roi.address % 4 : 0)) + k * COLUMNS;
    return (const PIXEL*)(roi.words + 4 * RUN_WORDS * k +
                          (SUB_WORD ? (roi.address + k * roi.pitch) % 4 : 0));
}

// A pixel less the first of its ROI, in double precision where it has that.
__device__ __forceinline__ float less(PIXEL pixel, PIXEL first) {
    return sizeof(PIXEL) == 8 ? float(pixel - first) : float(pixel) - float(first);
}
