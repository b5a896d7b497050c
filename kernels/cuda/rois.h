// Where a ROI's pixels lie in the GPU's memory, and how they become numbers near 0.
#pragma once
#include "../lanes.h"
#include "../layouts/rois.h"

namespace spotfit::SPOTFIT_ISA {

// Compile-time properties of ROIs. GATHER: they are parts of frames; else every frame is a ROI.
template <class Pixel_, bool GATHER_, int DEPTH, int ROWS, int COLUMNS> struct RoiLayout {
    using Pixel = Pixel_;
    static constexpr bool GATHER = GATHER_;
    static constexpr int PIXELS = DEPTH * ROWS * COLUMNS;

    // Where a ROI begins in frames, or in a map that all of them may share; -1 outside of them.
    static SPOTFIT_INLINE long long first_pixel(const RoiSource& source, long long roi, bool shared = false) {
        if (!GATHER) return shared ? 0 : roi * PIXELS;
        const long long* corner = source.corners + (DEPTH > 1 ? 4 : 3) * roi;
        const long long frame = corner[0];
        if (frame < 0) return -1;
        long long plane = shared ? 0 : frame;
        if (DEPTH > 1) plane = plane * source.depth + *++corner;
        return (plane * source.height + corner[1]) * source.width + corner[2];
    }
    static SPOTFIT_INLINE long long row_pitch(const RoiSource& source) { return GATHER ? source.width : COLUMNS; }
    // How far from the first pixel a line begins.
    static SPOTFIT_INLINE long long line_at(const RoiSource& source, int k) {
        if (DEPTH == 1 || !GATHER) return k * row_pitch(source);
        return (k / ROWS * source.height + k % ROWS) * source.width;
    }

    // In double precision where the pixels have that. Small whole numbers become the last bits of
    // a large float, which takes less than to convert them, and is as exact.
    static SPOTFIT_INLINE float difference(Pixel value, Pixel reference) {
        if constexpr (sizeof(Pixel) == 8) return float(value - reference);
        else if constexpr (sizeof(Pixel) == 4) return value - reference;
        else return beside_2_to_23(value) - beside_2_to_23(reference);
    }

  private:
    static SPOTFIT_INLINE float beside_2_to_23(Pixel value) {
        constexpr unsigned MASK = (1u << 8 * sizeof(Pixel)) - 1, SIGN = Pixel(-1) < Pixel(0) ? (MASK + 1) / 2 : 0;
        return from_bits(int(0x4B000000u | ((unsigned(value) & MASK) ^ SIGN)));
    }
};

// A thread's own pixels in memory, in as few pieces as their alignment allows.
template <class Lanes, class Layout> struct PixelRows {
    using Pixel = typename Layout::Pixel;
    static constexpr int BYTES = int(sizeof(Pixel)), OWN = Lanes::OWN_COLUMNS;
    static constexpr int LANES_Y = Lanes::LANES / Lanes::lanes_x;
    // Whether no thread lacks pixels of its rectangle; one without a plane takes none.
    static constexpr bool WHOLE =
        Lanes::OWN_PLANE || (Lanes::OWN_LINES * LANES_Y == Lanes::lines && OWN * Lanes::lanes_x == Lanes::columns);
    // Pieces of 16 bytes, if rows begin where such pieces do.
    static constexpr int PIECE = 16 / BYTES;
    static constexpr bool PIECES = !Layout::GATHER && WHOLE && BYTES < 8 && OWN * BYTES % 16 == 0;
    // Words of two small pixels each, if they all follow one another: they may begin within a word.
    static constexpr int RUN = Lanes::OWN_LINES * OWN;
    static constexpr bool HALVES = !Layout::GATHER && WHOLE && !PIECES && BYTES == 2 && OWN == Lanes::columns;

    struct alignas(16) Piece { unsigned words[4]; };

    const Pixel* first;  // of the thread's own
    long long row_pitch;

    SPOTFIT_INLINE PixelRows(const Pixel* roi, const RoiSource& source)
        : first(roi + Layout::line_at(source, Lanes::first_line()) + Lanes::first_column()),
          row_pitch(Layout::row_pitch(source)) {}

    // Calls use(k, i, pixel) for each that exists.
    template <class Use> SPOTFIT_INLINE void each(Use use) const {
        const unsigned long long address = reinterpret_cast<unsigned long long>(first);
        if constexpr (PIECES) {
            if (address % 16 == 0) return each_of_pieces(use);
        }
        if constexpr (HALVES) {
            each_of_halves(use, unsigned(address % 4));
        } else {
            UNROLL
            for (int k = 0; k < Lanes::OWN_LINES; ++k) {
                UNROLL
                for (int i = 0; i < OWN; ++i)
                    if (Lanes::has_line(k) && Lanes::has_column(i)) use(k, i, first[k * row_pitch + i]);
            }
        }
    }

  private:
    template <class Use> SPOTFIT_INLINE void each_of_pieces(Use use) const {
        UNROLL
        for (int k = 0; k < Lanes::OWN_LINES; ++k) {
            UNROLL
            for (int i = 0; i < OWN; i += PIECE) {
                const Piece piece = *reinterpret_cast<const Piece*>(first + k * Lanes::columns + i);
                UNROLL
                for (int j = 0; j < PIECE; ++j) use(k, i + j, pixel_of(piece.words, j));
            }
        }
    }
    template <class Use> SPOTFIT_INLINE void each_of_halves(Use use, unsigned offset) const {
        const unsigned* words = reinterpret_cast<const unsigned*>(reinterpret_cast<const char*>(first) - offset);
        unsigned two[RUN / 2 + 1];
        UNROLL
        for (int w = 0; w <= RUN / 2; ++w) {
            two[w] = 0;
            if (w < (RUN + 1) / 2 || offset != 0) two[w] = words[w];
        }
        UNROLL
        for (int p = 0; p < RUN; ++p) {
            const unsigned next = p / 2 < RUN / 2 ? two[p / 2 + 1] : 0;
            const unsigned both = unsigned(((unsigned long long)next << 32 | two[p / 2]) >> 8 * offset);
            use(p / OWN, p % OWN, pixel_of(&both, p % 2));
        }
    }
    static SPOTFIT_INLINE Pixel pixel_of(const unsigned* words, int j) {
        if constexpr (BYTES == 4) return __builtin_bit_cast(Pixel, words[j]);
        else return Pixel(words[j * BYTES / 4] >> 8 * BYTES * (j % (4 / BYTES)));
    }
};

}  // namespace spotfit::SPOTFIT_ISA
