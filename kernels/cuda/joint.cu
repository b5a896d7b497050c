// Joint fits of crowds: each by a warp, which takes the next one when it is done.
//
// Compile-time numbers: SPOT_AXES (along which spots move), SPOT_HAS_PSF (whether they have a measured PSF), THREADS
// (of a block), BLOCKS (of a multiprocessor).
#include "../crowd.h"

namespace spotfit::SPOTFIT_ISA {

// Crowds by number, in the order in which they are taken: the n-th warp begins with the n-th one. The spots of a crowd
// follow each other; where those of crowd crowds[k] begin, and how many they are, is in places[2 * k] and behind it.
// Spots for which there is no room are not written. `taken` are two numbers: of crowds, first that of warps, and of
// spots, first 0. The memory of each warp begins at memory + begins[n].
extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS)
    fit_crowds(const __grid_constant__ JointFits fits, const long long* crowds, long long count,
               unsigned long long* taken, unsigned char* memory, const long long* begins, JointSpot* spots,
               long long room, long long* places) {
    alignas(16) __shared__ unsigned char objects[THREADS / WARP][sizeof(Crowd)];
    const int of_block = int(threadIdx.x) / WARP, own_warp = int(blockIdx.x) * (THREADS / WARP) + of_block;
    Crowd* const crowd = reinterpret_cast<Crowd*>(objects[of_block]);
    unsigned char* const own = memory + begins[own_warp];
    const auto take = [&](unsigned long long* from, unsigned long long some) {
        unsigned long long before = 0;
        if (Team::lane() == 0) before = atomicAdd(from, some);
        return static_cast<long long>(Warp::of(before, 0));
    };
    meeting.begin();
    for (long long k = own_warp; k < count; k = take(taken, 1)) {
        meeting.come_to_next_crowd();
        alone([&] { new (crowd) Crowd(fits, crowds[k], own); });
        const int found = crowd->fit();
        const long long first = take(taken + 1, static_cast<unsigned long long>(found));
        if (first + found <= room) crowd->put(spots + first);
        alone([&] { places[2 * k] = first, places[2 * k + 1] = found; });
    }
    meeting.leave();
}

}  // namespace spotfit::SPOTFIT_ISA
