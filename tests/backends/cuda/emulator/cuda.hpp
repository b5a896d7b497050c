// CUDA kernels on the host, for tests without a GPU: each thread of a block is a fiber
// (a context of its own in one operating system thread), and a collective operation
// passes control on until all of its threads have arrived. Slow, but exact in what the
// language promises, and with the host's debugger and sanitizers.
#pragma once

#include <ucontext.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <vector>

#define __global__
#define __device__
#define __constant__ static
#define __shared__ static
#define __forceinline__ inline
#define __restrict__
#define __launch_bounds__(...)
#define __align__(n) alignas(n)

struct dim3 {
    unsigned x = 1, y = 1, z = 1;
};

static dim3 threadIdx, blockIdx, blockDim, gridDim;

namespace emulator {

constexpr unsigned WARP = 32;
constexpr size_t STACK = 256 << 10;

struct Fiber {
    ucontext_t context;
    std::unique_ptr<char[]> stack{new char[STACK]};
    dim3 thread;
    unsigned index = 0;
    bool done = false;
};

// Threads that wait for one another: those of a block, or of a warp.
struct Group {
    unsigned arrived = 0, members = 0;
    unsigned long generation = 0;
};

static std::vector<std::unique_ptr<Fiber>> fibers;
static std::vector<Group> warps;
static Group block;
static std::vector<uint64_t> exchanged;
static ucontext_t scheduler;
static Fiber* current = nullptr;
static const std::function<void()>* work = nullptr;

static void pass_on() {
    Fiber* self = current;
    swapcontext(&self->context, &scheduler);
}

static void wait(Group& group) {
    const unsigned long generation = group.generation;
    if (++group.arrived == group.members) {
        group.arrived = 0;
        ++group.generation;
        return;
    }
    while (group.generation == generation) pass_on();
}

// A thread that has returned is waited for no longer.
static void leave(Group& group) {
    if (--group.members > 0 && group.arrived == group.members) {
        group.arrived = 0;
        ++group.generation;
    }
}

static void run() {
    (*work)();
    current->done = true;
    leave(warps[current->index / WARP]);
    leave(block);
    swapcontext(&current->context, &scheduler);
}

static Group& own_warp() { return warps[current->index / WARP]; }

// What every lane of the warp gave, by its number.
template <typename T>
static std::vector<T> exchange(T value) {
    static_assert(sizeof(T) <= sizeof(uint64_t));
    const unsigned first = current->index / WARP * WARP;
    std::memcpy(&exchanged[current->index], &value, sizeof(T));
    wait(own_warp());
    std::vector<T> values(WARP);
    for (unsigned lane = 0; lane < WARP && first + lane < fibers.size(); ++lane)
        std::memcpy(&values[lane], &exchanged[first + lane], sizeof(T));
    wait(own_warp());
    return values;
}

static void launch(dim3 grid, dim3 threads, const std::function<void()>& kernel) {
    gridDim = grid;
    blockDim = threads;
    work = &kernel;
    const unsigned count = threads.x * threads.y * threads.z;
    for (unsigned b = 0; b < grid.x * grid.y * grid.z; ++b) {
        blockIdx = {b % grid.x, b / grid.x % grid.y, b / grid.x / grid.y};
        fibers.resize(count);
        exchanged.assign(count, 0);
        warps.assign((count + WARP - 1) / WARP, Group{});
        block = Group{0, count, 0};
        for (unsigned i = 0; i < count; ++i) {
            if (!fibers[i]) fibers[i] = std::make_unique<Fiber>();
            Fiber& fiber = *fibers[i];
            fiber.thread = {i % threads.x, i / threads.x % threads.y, i / threads.x / threads.y};
            fiber.index = i;
            fiber.done = false;
            ++warps[i / WARP].members;
            getcontext(&fiber.context);
            fiber.context.uc_stack.ss_sp = fiber.stack.get();
            fiber.context.uc_stack.ss_size = STACK;
            fiber.context.uc_link = nullptr;
            makecontext(&fiber.context, run, 0);
        }
        for (unsigned left = count; left > 0;) {
            left = 0;
            for (auto& fiber : fibers) {
                if (fiber->done) continue;
                current = fiber.get();
                threadIdx = fiber->thread;
                swapcontext(&scheduler, &fiber->context);
                left += !fiber->done;
            }
        }
    }
}

}  // namespace emulator

static inline void __syncthreads() { emulator::wait(emulator::block); }
static inline void __syncwarp(unsigned = ~0u) { emulator::wait(emulator::own_warp()); }
static inline void __threadfence_block() {}
static inline void __threadfence() {}

template <typename T>
static T __shfl_xor_sync(unsigned, T value, int mask) {
    return emulator::exchange(value)[(emulator::current->index % 32) ^ mask];
}
template <typename T>
static T __shfl_sync(unsigned, T value, int lane) {
    return emulator::exchange(value)[lane & 31];
}
template <typename T>
static T __shfl_down_sync(unsigned, T value, unsigned delta) {
    const unsigned lane = emulator::current->index % 32;
    return emulator::exchange(value)[lane + delta < 32 ? lane + delta : lane];
}
template <typename T>
static T __shfl_up_sync(unsigned, T value, unsigned delta) {
    const unsigned lane = emulator::current->index % 32;
    return emulator::exchange(value)[lane >= delta ? lane - delta : lane];
}
static inline unsigned __ballot_sync(unsigned, int predicate) {
    unsigned bits = 0, lane = 0;
    for (int value : emulator::exchange(int(predicate != 0))) bits |= unsigned(value) << lane++;
    return bits;
}
static inline int __any_sync(unsigned mask, int predicate) {
    return __ballot_sync(mask, predicate) != 0;
}
static inline int __popc(unsigned bits) { return __builtin_popcount(bits); }
static inline int __ffs(int bits) { return __builtin_ffs(bits); }

// Threads take turns only at collectives, so that plain operations are atomic.
template <typename T>
static T atomicAdd(T* place, T value) {
    const T old = *place;
    *place += value;
    return old;
}
template <typename T>
static T atomicMax(T* place, T value) {
    const T old = *place;
    *place = std::max(old, value);
    return old;
}
template <typename T>
static T atomicMin(T* place, T value) {
    const T old = *place;
    *place = std::min(old, value);
    return old;
}
template <typename T>
static T __ldg(const T* place) {
    return *place;
}
static inline float __int_as_float(int bits) {
    float value;
    std::memcpy(&value, &bits, 4);
    return value;
}
static inline int __float_as_int(float value) {
    int bits;
    std::memcpy(&bits, &value, 4);
    return bits;
}
static inline void sincospif(float turns, float* s, float* c) {
    const double angle = std::remainder(double(turns), 2.0) * 3.14159265358979323846;
    *s = float(std::sin(angle));
    *c = float(std::cos(angle));
}
using std::max;
using std::min;
