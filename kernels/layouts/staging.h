// What a CPU's thread does for a piece of work on a GPU: see kernels/cpu/staging.cpp.
#pragma once

namespace spotfit {

// Functions of CUDA's driver; they return 0 or an error.
struct DeviceCalls {
    int (*send)(unsigned long long there, const void* here, unsigned long long bytes, void* stream);
    int (*receive)(void* here, unsigned long long there, unsigned long long bytes, void* stream);
    int (*launch)(void* kernel, unsigned blocks, unsigned, unsigned, unsigned threads, unsigned, unsigned,
                  unsigned shared, void* stream, void** arguments, void** extra);
    int (*record)(void* event, void* stream);
    int (*wait)(void* event);
    int (*synchronize)(void* stream);
};

// Page-locked memory in parts that are used in turns: what a core has just copied there, the device
// reads from the processor's cache. An event marks when it has read a part.
struct Staging {
    DeviceCalls calls;
    char* memory;
    long long part, parts;
    void* const* events;
    long long used;  // parts, up to now
};

// Bytes that go from one place to another, of the host or the device.
struct Move { unsigned long long to, from, bytes; };

struct Launch {
    void* kernel;
    void** arguments;
    unsigned blocks, threads;
};

// In this order, on one stream.
struct Piece {
    const Move* sent;
    const Launch* launches;
    const Move* received;
    int sent_count, launch_count, received_count;
    int in_place;  // number of uploaded arrays, the first ones, that are in page-locked memory
};

// Numbers of one column that go to other rows, on a CPU or a GPU.
struct ColumnOfRows {
    const void* from;
    void* to;
    long long bytes;  // of each
};

}  // namespace spotfit
