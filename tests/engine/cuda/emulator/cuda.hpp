// CUDA kernels on the host, for tests without a GPU: each thread of a block is a fiber
// (a context of its own in one operating system thread), and a collective operation
// passes control on until all of its threads have arrived. Slow, but exact in what the
// language promises, and with the host's debugger and sanitizers.
#pragma once

#include <setjmp.h>
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

// After its start, a fiber goes on by longjmp: swapcontext asks the operating system each time.
struct Fiber {
    ucontext_t begin;
    jmp_buf place;
    std::unique_ptr<char[]> stack{new char[STACK]};
    dim3 thread;
    unsigned index = 0;
    bool begun = false, done = false;
};

// Threads that wait for one another: those of a block, or of a warp.
struct Group {
    unsigned arrived = 0, members = 0;
    unsigned long generation = 0;
};

static std::vector<std::unique_ptr<Fiber>> fibers;
static std::vector<Group> warps;
static Group block;
// What threads gave, for one exchange and the next one in turns: nobody is two ahead.
static std::vector<uint64_t> exchanged[2];
static jmp_buf scheduler;
static Fiber* current = nullptr;
static const std::function<void()>* work = nullptr;

static void pass_on() {
    if (_setjmp(current->place) == 0) _longjmp(scheduler, 1);
}

static void resume(Fiber& fiber) {
    current = &fiber;
    threadIdx = fiber.thread;
    if (_setjmp(scheduler) != 0) return;
    if (fiber.begun) _longjmp(fiber.place, 1);
    fiber.begun = true;
    setcontext(&fiber.begin);
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
    _longjmp(scheduler, 1);
}

static Group& own_warp() { return warps[current->index / WARP]; }

// What the lanes of the warp give, by their numbers; 0 of lanes that are not there.
template <typename T>
struct Exchange {
    const uint64_t* given;
    unsigned lanes;

    explicit Exchange(T value) {
        static_assert(sizeof(T) <= sizeof(uint64_t));
        const unsigned first = current->index / WARP * WARP;
        std::vector<uint64_t>& turn = exchanged[own_warp().generation & 1];
        std::memcpy(&turn[current->index], &value, sizeof(T));
        given = &turn[first];
        lanes = std::min(WARP, unsigned(fibers.size()) - first);
        wait(own_warp());
    }
    T operator[](unsigned lane) const {
        T value{};
        if (lane < lanes) std::memcpy(&value, &given[lane], sizeof(T));
        return value;
    }
};

static void launch(dim3 grid, dim3 threads, const std::function<void()>& kernel) {
    gridDim = grid;
    blockDim = threads;
    work = &kernel;
    const unsigned count = threads.x * threads.y * threads.z;
    for (unsigned b = 0; b < grid.x * grid.y * grid.z; ++b) {
        blockIdx = {b % grid.x, b / grid.x % grid.y, b / grid.x / grid.y};
        fibers.resize(count);
        for (auto& turn : exchanged) turn.assign(count, 0);
        warps.assign((count + WARP - 1) / WARP, Group{});
        block = Group{0, count, 0};
        for (unsigned i = 0; i < count; ++i) {
            if (!fibers[i]) fibers[i] = std::make_unique<Fiber>();
            Fiber& fiber = *fibers[i];
            fiber.thread = {i % threads.x, i / threads.x % threads.y, i / threads.x / threads.y};
            fiber.index = i;
            fiber.begun = fiber.done = false;
            ++warps[i / WARP].members;
            getcontext(&fiber.begin);
            fiber.begin.uc_stack.ss_sp = fiber.stack.get();
            fiber.begin.uc_stack.ss_size = STACK;
            fiber.begin.uc_link = nullptr;
            makecontext(&fiber.begin, run, 0);
        }
        for (unsigned left = count; left > 0;) {
            left = 0;
            for (auto& fiber : fibers) {
                if (fiber->done) continue;
                resume(*fiber);
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
    return emulator::Exchange<T>(value)[(emulator::current->index % 32) ^ mask];
}
template <typename T>
static T __shfl_sync(unsigned, T value, int lane) {
    return emulator::Exchange<T>(value)[lane & 31];
}
template <typename T>
static T __shfl_down_sync(unsigned, T value, unsigned delta) {
    const unsigned lane = emulator::current->index % 32;
    return emulator::Exchange<T>(value)[lane + delta < 32 ? lane + delta : lane];
}
template <typename T>
static T __shfl_up_sync(unsigned, T value, unsigned delta) {
    const unsigned lane = emulator::current->index % 32;
    return emulator::Exchange<T>(value)[lane >= delta ? lane - delta : lane];
}
static inline unsigned __ballot_sync(unsigned, int predicate) {
    const emulator::Exchange<unsigned> all(predicate != 0);
    unsigned bits = 0;
    for (unsigned lane = 0; lane < emulator::WARP; ++lane) bits |= all[lane] << lane;
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
