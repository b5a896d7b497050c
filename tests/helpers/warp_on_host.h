// A GPU's warps on the host, for its kernels: the 32 threads of a warp are fibers that take
// turns, from one exchange of numbers to the next. It comes before the kernel's own text.
#include <math.h>
#include <string.h>
#include <ucontext.h>

#define __global__ extern "C"
#define __shared__ static __attribute__((section("shared_memory")))
#define __launch_bounds__(...)
#define __grid_constant__

struct Index { unsigned x; };
static Index threadIdx, blockIdx, gridDim;

static int __ffs(int bits) { return __builtin_ffs(bits); }
static unsigned atomicOr(unsigned* place, unsigned more) {
    const unsigned before = *place;
    *place |= more;
    return before;
}
static unsigned atomicExch(unsigned* place, unsigned next) {
    const unsigned before = *place;
    *place = next;
    return before;
}
static int atomicAdd(int* place, int more) {
    const int before = *place;
    *place += more;
    return before;
}
static unsigned long long atomicAdd(unsigned long long* place, unsigned long long more) {
    const unsigned long long before = *place;
    *place += more;
    return before;
}
static long long __float2ll_rn(float x) { return llrintf(x); }
static float __fmul_rn(float a, float b) { return a * b; }

namespace host {

constexpr int LANES = 32, STACK = 1 << 18;

static ucontext_t fibers[LANES], outside;
alignas(64) static char stacks[LANES][STACK];
static int current, unfinished, first_thread;
static bool finished[LANES], together;
// How often each thread has waited for the others: equally often, at any time.
static long long waits[LANES];
static double slots[2][LANES];
static void (*work)();

static void go_on() {
    const int from = current;
    if (unfinished == 0) setcontext(&outside);
    do current = (current + 1) % LANES;
    while (finished[current]);
    threadIdx.x = unsigned(first_thread + current);
    if (current != from) swapcontext(&fibers[from], &fibers[current]);
}

static void wait() {
    const int lane = current;
    ++waits[lane];
    go_on();
    for (int other = 0; other < LANES; ++other)
        if (waits[other] < waits[lane] || waits[other] > waits[lane] + 1) together = false;
}

// What another thread has when all have come here.
template <class T> static T of(T x, int other) {
    const int lane = current;
    double (&own)[LANES] = slots[waits[lane] % 2];
    own[lane] = x;
    wait();
    return T(own[other]);
}

// A bit for each thread.
static unsigned all_of(bool mask) {
    const int lane = current;
    double (&own)[LANES] = slots[waits[lane] % 2];
    own[lane] = mask;
    wait();
    unsigned found = 0;
    for (int other = 0; other < LANES; ++other) found |= unsigned(own[other] != 0) << other;
    return found;
}

static void run_fiber() {
    work();
    finished[current] = true;
    --unfinished;
    go_on();
}

// Runs a warp; whether its threads have stayed together.
static bool run_warp(int first) {
    first_thread = first;
    unfinished = LANES;
    together = true;
    for (int lane = 0; lane < LANES; ++lane) {
        finished[lane] = false;
        waits[lane] = 0;
        getcontext(&fibers[lane]);
        fibers[lane].uc_stack.ss_sp = stacks[lane];
        fibers[lane].uc_stack.ss_size = STACK;
        makecontext(&fibers[lane], run_fiber, 0);
    }
    current = 0;
    threadIdx.x = unsigned(first);
    swapcontext(&outside, &fibers[0]);
    for (long long own : waits) together = together && own == waits[0];
    return together;
}

template <int... I> struct Numbers {};
template <class, int... I> using NumbersOf = Numbers<I...>;
template <class T> struct Mutable { using Type = T; };
template <class T> struct Mutable<const T> { using Type = T; };

template <class... T, int... I>
static void call_with(void (*kernel)(T...), const void* const* arguments, Numbers<I...>) {
    kernel(*static_cast<const typename Mutable<T>::Type*>(arguments[I])...);
}

// Calls a kernel with arguments that lie where they are said to, each of the type it declares.
template <class... T> static void call(void (*kernel)(T...), const void* const* arguments) {
    call_with(kernel, arguments, __make_integer_seq<NumbersOf, int, sizeof...(T)>());
}

// What the linker calls the ends of that section.
extern "C" char __start_shared_memory[] __attribute__((weak)), __stop_shared_memory[] __attribute__((weak));

// Runs all blocks of a launch, one after the other; whether all warps have stayed together. Shared
// memory holds what others left there: NaN, were it read as numbers.
static bool run_blocks(unsigned grid, unsigned block) {
    bool all_together = true;
    gridDim.x = grid;
    for (blockIdx.x = 0; blockIdx.x < grid; ++blockIdx.x) {
        for (char* byte = __start_shared_memory; byte < __stop_shared_memory; ++byte) *byte = char(0xFF);
        for (unsigned first = 0; first < block; first += LANES) all_together = run_warp(int(first)) && all_together;
    }
    return all_together;
}

}  // namespace host

namespace spotfit::SPOTFIT_ISA {

struct Warp {
    static int lane() { return host::current; }
    template <class T> static T exchange(T x, int distance) { return host::of(x, lane() ^ distance); }
    template <class T> static T of(T x, int lane) { return host::of(x, lane); }
    static constexpr unsigned ALL = 0xffffffffu;
    static bool any(bool mask) { return host::all_of(mask) != 0; }
    static unsigned all_of(bool mask) { return host::all_of(mask); }
    static int bits(unsigned some) { return __builtin_popcount(some); }
    static int zeros_before(unsigned some) { return __builtin_clz(some); }
    static void wait() { host::wait(); }
    // Warps run one after the other.
    static void wait_for_block() {}
    template <class Function> static void wait_while(long long, Function) {}
};

}  // namespace spotfit::SPOTFIT_ISA
