// Memory that is divided up.
#pragma once

namespace spotfit {
namespace {

struct Memory {
    unsigned char* at;
    // Begins at a multiple of a cache line's 64 bytes from the start.
    template <class T> T* take(long long count) {
        T* const own = reinterpret_cast<T*>(at);
        at += (count * static_cast<long long>(sizeof(T)) + 63) / 64 * 64;
        return own;
    }
};

}  // namespace
}  // namespace spotfit
