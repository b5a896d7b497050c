#include "tables.h"

namespace spotfit::SPOTFIT_ISA {

namespace {

#if defined(__AVX512F__)
constexpr int LANE_WIDTH = 16;
#elif defined(__AVX2__)
constexpr int LANE_WIDTH = 8;
#else
constexpr int LANE_WIDTH = 4;
#endif

}  // namespace

const Functions functions = {LANE_WIDTH};

}  // namespace spotfit::SPOTFIT_ISA
