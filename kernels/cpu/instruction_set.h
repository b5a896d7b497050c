// What the compiler writes for: how many lanes there are, how many rows are summed side
// by side, and how subnormal numbers are made to count as zero.
#pragma once
#include "../lanes.h"

namespace spotfit::SPOTFIT_ISA {

// NEON, which has 32 registers of 4 numbers, has two for each vector: loops are half as many.
#if defined(__AVX512F__)
constexpr int LANES = 16, LINES_AT_ONCE = 4;
#elif defined(__AVX2__)
constexpr int LANES = 8, LINES_AT_ONCE = 4;
#elif defined(__SSE2__)
constexpr int LANES = 4, LINES_AT_ONCE = 4;
#else
constexpr int LANES = 8, LINES_AT_ONCE = 2;
#endif

using LaneType = Lanes<LANES>;

// Subnormal numbers in a profile's tail take some processors a hundred times as long; they count
// as zero while this lives, as on a GPU.
class SubnormalsAreZero {
#if defined(__SSE2__)
    unsigned before = __builtin_ia32_stmxcsr();

  public:
    SubnormalsAreZero() { __builtin_ia32_ldmxcsr(before | 0x8040); }
    ~SubnormalsAreZero() { __builtin_ia32_ldmxcsr(before); }
#elif defined(__aarch64__)
    unsigned long long before;

  public:
    SubnormalsAreZero() {
        __asm__ volatile("mrs %0, fpcr" : "=r"(before));
        __asm__ volatile("msr fpcr, %0" ::"r"(before | 1ull << 24));
    }
    ~SubnormalsAreZero() { __asm__ volatile("msr fpcr, %0" ::"r"(before)); }
#endif
    SubnormalsAreZero(const SubnormalsAreZero&) = delete;
};

}  // namespace spotfit::SPOTFIT_ISA
