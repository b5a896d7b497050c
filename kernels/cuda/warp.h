// A warp: 32 threads that work side by side and exchange numbers.
#pragma once
#include "../lanes.h"

namespace spotfit::SPOTFIT_ISA {

constexpr int WARP = 32;

#if defined(__CUDACC_RTC__)

struct Warp {
    static constexpr unsigned ALL = 0xffffffffu;

    static SPOTFIT_INLINE int lane() { return int(threadIdx.x % WARP); }
    // The number that the thread has whose own number differs in the bit `distance`.
    template <class T> static SPOTFIT_INLINE T exchange(T x, int distance) { return __shfl_xor_sync(ALL, x, distance); }
    // The number that one of them has.
    template <class T> static SPOTFIT_INLINE T of(T x, int lane) { return T(__shfl_sync(ALL, x, lane)); }
    static SPOTFIT_INLINE bool any(bool mask) { return __any_sync(ALL, mask); }
    // A bit for each thread.
    static SPOTFIT_INLINE unsigned all_of(bool mask) { return __ballot_sync(ALL, mask); }
    static SPOTFIT_INLINE int bits(unsigned some) { return __popc(some); }
    static SPOTFIT_INLINE int zeros_before(unsigned some) { return __clz(int(some)); }
    // What a thread has written before, all others of the warp read afterwards.
    static SPOTFIT_INLINE void wait() { __syncwarp(); }
    // The same of all warps of the block, each of which comes here as often.
    static SPOTFIT_INLINE void wait_for_block() { __syncthreads(); }
    // Waits while something is so for any thread, up to about that number of cycles.
    template <class Function> static SPOTFIT_INLINE void wait_while(long long cycles, Function is_so) {
        const long long begin = clock64();
        while (any(is_so() && clock64() - begin < cycles)) __nanosleep(100);
    }
};

#endif

}  // namespace spotfit::SPOTFIT_ISA
