// What the library shows through C, and what its parts, compiled apart, know of each other.
// Python's side of it is src/napari_spotfit/engine/cpu/.
#pragma once

#if defined(_WIN32)
#define SPOTFIT_EXPORT extern "C" __declspec(dllexport)
#else
#define SPOTFIT_EXPORT extern "C" __attribute__((visibility("default")))
#endif

namespace spotfit {

// What is compiled once for each instruction set, in vectorized/, and called through this table.
struct Functions {
    int lane_width;  // fits side by side in one vector
};

}  // namespace spotfit
