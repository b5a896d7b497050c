// What a thread does for a piece of work on a device without Python: bytes go there, kernels begin,
// results come back. Compiled once for all machines.
#include "../layouts/staging.h"

#include "interface.h"

using namespace spotfit;

namespace {

void* host(unsigned long long address) { return reinterpret_cast<void*>(address); }

int send_staged(Staging& s, const Move& move, void* stream) {
    const unsigned long long part = static_cast<unsigned long long>(s.part);
    for (unsigned long long first = 0; first < move.bytes; first += part) {
        const unsigned long long size = move.bytes - first < part ? move.bytes - first : part;
        const long long place = s.used % s.parts;
        if (s.used >= s.parts)
            if (const int error = s.calls.wait(s.events[place])) return error;
        char* const memory = s.memory + place * s.part;
        __builtin_memcpy(memory, host(move.from + first), size);
        if (const int error = s.calls.send(move.to + first, memory, size, stream)) return error;
        if (const int error = s.calls.record(s.events[place], stream)) return error;
        ++s.used;
    }
    return 0;
}

int begin(Staging& s, const Piece& p, void* stream) {
    for (int i = 0; i < p.sent_count; ++i) {
        const Move& move = p.sent[i];
        if (const int error = i < p.in_place ? s.calls.send(move.to, host(move.from), move.bytes, stream)
                                             : send_staged(s, move, stream))
            return error;
    }
    for (const Launch* l = p.launches; l < p.launches + p.launch_count; ++l)
        if (const int error =
                s.calls.launch(l->kernel, l->blocks, 1, 1, l->threads, 1, 1, 0, stream, l->arguments, nullptr))
            return error;
    for (const Move* move = p.received; move < p.received + p.received_count; ++move)
        if (const int error = s.calls.receive(host(move->to), move->from, move->bytes, stream)) return error;
    return 0;
}

}  // namespace

// Begins to send bytes, which may change afterwards; returns the driver's error.
SPOTFIT_EXPORT int spotfit_send(Staging* staging, const Move* move, void* stream) {
    return send_staged(*staging, *move, stream);
}

// Waits for the last piece of a stream and copies what it brought to where it belongs, if there was
// one (done_count is not negative); then begins the next piece, if there is one.
SPOTFIT_EXPORT int spotfit_feed(Staging* staging, void* stream, const Move* done, int done_count, const Piece* next) {
    if (done_count >= 0)
        if (const int error = staging->calls.synchronize(stream)) return error;
    for (const Move* move = done; move < done + done_count; ++move)
        __builtin_memcpy(host(move->to), host(move->from), move->bytes);
    return next ? begin(*staging, *next, stream) : 0;
}

// Begins a piece of work; if brought_count is not negative, waits for it and copies what it brought to
// where it belongs.
SPOTFIT_EXPORT int spotfit_run_commands(Staging* staging, void* stream, const Piece* piece, const Move* brought,
                                        int brought_count) {
    if (const int error = begin(*staging, *piece, stream)) return error;
    return spotfit_feed(staging, stream, brought, brought_count, nullptr);
}

// Writes a byte into every page of new memory, so that it is there.
SPOTFIT_EXPORT void spotfit_touch(char* memory, long long bytes) {
    for (long long i = 0; i < bytes; i += 4096) memory[i] = 0;
}
