#include "instruction_sets.h"

#if defined(__x86_64__)

#include <cpuid.h>

namespace spotfit {

namespace sse42 {
extern const Functions functions;
}
namespace avx2 {
extern const Functions functions;
}
namespace avx512 {
extern const Functions functions;
}

namespace {

struct Registers { unsigned a, b, c, d; };

Registers cpuid(unsigned leaf) {
    Registers found{};  // stays empty where the processor does not know the leaf
    __get_cpuid_count(leaf, 0, &found.a, &found.b, &found.c, &found.d);
    return found;
}

bool has(unsigned found, unsigned wanted) { return (found & wanted) == wanted; }

// Whether the operating system keeps these registers when it switches threads (bits of XCR0).
bool system_keeps(unsigned registers) {
    if (!has(cpuid(1).c, bit_OSXSAVE)) return false;
    unsigned low, high;
    __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return has(low, registers);
}

constexpr unsigned VECTORS_256 = 1u << 1 | 1u << 2;                          // XMM, YMM
constexpr unsigned VECTORS_512 = VECTORS_256 | 1u << 5 | 1u << 6 | 1u << 7;  // masks, ZMM

// All that the compiler may use at the levels that tools/build_library.py names:
// x86-64-v2, -v3 and -v4 of the System V ABI for AMD64.

bool supports_sse42() {
    return has(cpuid(1).c, bit_SSE3 | bit_SSSE3 | bit_SSE41 | bit_SSE42 | bit_POPCNT | bit_CMPXCHG16B) &&
           has(cpuid(0x80000001).c, bit_LAHF_LM);
}

bool supports_avx2() {
    return supports_sse42() && has(cpuid(1).c, bit_AVX | bit_F16C | bit_FMA | bit_MOVBE) &&
           has(cpuid(7).b, bit_AVX2 | bit_BMI | bit_BMI2) && has(cpuid(0x80000001).c, bit_LZCNT) &&
           system_keeps(VECTORS_256);
}

bool supports_avx512() {
    return supports_avx2() &&
           has(cpuid(7).b, bit_AVX512F | bit_AVX512BW | bit_AVX512CD | bit_AVX512DQ | bit_AVX512VL) &&
           system_keeps(VECTORS_512);
}

constexpr InstructionSet INSTRUCTION_SETS[] = {
    {"sse42", supports_sse42, &sse42::functions},
    {"avx2", supports_avx2, &avx2::functions},
    {"avx512", supports_avx512, &avx512::functions},
};

}  // namespace
}  // namespace spotfit

#elif defined(__aarch64__)

namespace spotfit {

namespace neon {
extern const Functions functions;
}

namespace {

constexpr InstructionSet INSTRUCTION_SETS[] = {
    {"neon", [] { return true; }, &neon::functions},  // every arm64 processor has it
};

}  // namespace
}  // namespace spotfit

#endif

namespace spotfit {

int instruction_set_count() { return sizeof INSTRUCTION_SETS / sizeof *INSTRUCTION_SETS; }

const InstructionSet& instruction_set(int index) { return INSTRUCTION_SETS[index]; }

}  // namespace spotfit
