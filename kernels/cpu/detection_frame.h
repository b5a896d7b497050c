// A frame as detection sees it, and what works on frames of any type of pixels.
#pragma once
#include "../detection.h"
#include "detection_functions.h"

namespace spotfit::SPOTFIT_ISA {

SPOTFIT_INLINE long long least(long long a, long long b) { return a < b ? a : b; }
SPOTFIT_INLINE long long most(long long a, long long b) { return a > b ? a : b; }

template <class T> SPOTFIT_INLINE Frame<T> frame_of(const DetectionSource& source, long long frame) {
    const DetectionSettings& s = *source.settings;
    const T* const all = static_cast<const T*>(source.frames);
    const T *pixels = all + frame * s.height * s.width, *volume = pixels - frame % s.depth * s.height * s.width;
    if (s.height * s.width == 0) return {pixels, T(0)};
    if (s.level_known) return {pixels, T(s.level)};
    T sample[LEVEL_SAMPLES];
    for (int i = 0; i < LEVEL_SAMPLES; ++i) sample[i] = level_sample(s, volume, i);
    for (int i = 0; i < LEVEL_SAMPLES; ++i)
        if (is_level(sample, i)) return {pixels, sample[i]};
    return {pixels, T(0)};
}

template <class T> struct Pixel { using Type = T; };

// Calls work(Pixel<T>) for the type of pixels with this number.
template <class Function> SPOTFIT_INLINE auto with_pixel_type(int type, Function work) {
    switch (type) {
        case UINT8: return work(Pixel<unsigned char>());
        case UINT16: return work(Pixel<unsigned short>());
        case INT16: return work(Pixel<short>());
        case FLOAT32: return work(Pixel<float>());
        default: return work(Pixel<double>());
    }
}

// In volume_detection.cpp: memory that a thread needs, and the maxima of a strip of all planes of a volume.
long long slab_bytes(const DetectionSettings&);
long long find_in_slab(const DetectionSource&, long long volume, long long strip, void* work, Maximum* found);

// In noise.cpp.
long long noise_bytes(const DetectionSettings&);
long long noise_block_count(const DetectionSettings&, long long step);
void measure_noise_blocks(const DetectionSource&, long long frame, long long step, void*, BlockNoise*);

long long sample_size(const DetectionSettings&);
void sample_ratios(const DetectionSource&, long long frame, long long step, void*, float*);
double clipped_deviation(const float*, long long size);

// In hot_pixels.cpp.
void find_hot_pixels(const DetectionSource&, const long long* corners, long long first, long long last, int rows,
                     int columns, unsigned char* found, unsigned char* pixels);

// In nonmax_suppression.cpp.
void order_maxima(const Maximum*, long long, long long*, long long, Maximum*);
void join_bands(const DetectionSettings&, Maximum*, long long, long long*, int*, int);
long long merge_plateaus(const DetectionSource&, Maximum*, long long, long long*, unsigned long long*, long long*,
                         long long, Maximum*);
long long choose_spots(const SpotChoice&, Maximum*, long long);

}  // namespace spotfit::SPOTFIT_ISA
