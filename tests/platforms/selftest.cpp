// Runs cases with the library of another platform, where no Python is at hand.
//
//   selftest LIBRARY                                  prints the instruction sets that can be used
//   selftest LIBRARY INSTRUCTION_SET CASES RESULTS    runs the cases of one file into another
//
// Both files are blocks: a length of 8 bytes, then that many bytes. A case is a block with its
// name, which is that of a function below, and the blocks that the function reads. check.py
// writes the cases and compares the results.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../kernels/cpu/interface.h"

#ifdef _WIN32
// Not <windows.h>, which has names of its own for types of pixels.
extern "C" __declspec(dllimport) void* LoadLibraryA(const char*);
extern "C" __declspec(dllimport) void* GetProcAddress(void*, const char*);
static void* open_library(const char* path) { return LoadLibraryA(path); }
static void* find(void* library, const char* name) { return GetProcAddress(library, name); }
#else
#include <dlfcn.h>
static void* open_library(const char* path) { return dlopen(path, RTLD_NOW); }
static void* find(void* library, const char* name) { return dlsym(library, name); }
#endif

using namespace spotfit;

namespace {

[[noreturn]] void fail(const char* what, const char* name = "") {
    fputs(what, stderr);
    fputs(name, stderr);
    fputs("\n", stderr);
    exit(1);
}

template <class Function> Function* function(void* library, const char* name) {
    void* found = find(library, name);
    if (!found) fail("no function ", name);
    return (Function*)found;
}

// Bytes of a file, freed by nobody: the program soon ends.
struct Block {
    long long length;
    char* bytes;  // a 0 follows them; null at the end of the file

    // The numbers it holds; null where it is empty.
    template <class Number> const Number* as() const { return length ? (const Number*)bytes : nullptr; }
};

Block read_block(FILE* file) {
    Block block{};
    if (fread(&block.length, sizeof block.length, 1, file) != 1) return block;
    block.bytes = (char*)calloc(block.length + 1, 1);
    const size_t length = block.length;
    if (!block.bytes || fread(block.bytes, 1, length, file) != length) fail("a cut file");
    return block;
}

template <class Number> void write_block(FILE* file, const Number* numbers, long long count) {
    const long long length = count * sizeof(Number);
    fwrite(&length, sizeof length, 1, file);
    fwrite(numbers, 1, length, file);
}

template <class Number> Number* new_array(long long count) { return (Number*)calloc(count, sizeof(Number)); }

// Which library and instruction set, and where cases come from and results go.
struct Run {
    void* library;
    int instruction_set;
    FILE *cases, *results;
};

struct FitNumbers { long long profile, estimator, count, rows, columns, pixel_type, shared_planes, values; };

// Fits of frames that are ROIs: FitNumbers, frames, planes or nothing, FitSettings.
void fit(const Run& run) {
    const FitNumbers numbers = *read_block(run.cases).as<FitNumbers>();
    const Block frames = read_block(run.cases), planes = read_block(run.cases);
    const auto* settings = read_block(run.cases).as<FitSettings>();
    const int rows = numbers.rows, columns = numbers.columns;
    const long long n = numbers.count;
    HostRois source{};
    source.frames = frames.bytes;
    source.depth = 1;
    source.height = rows;
    source.width = columns;
    source.planes = {planes.as<float>(), (int)numbers.shared_planes};
    source.pixel_type = numbers.pixel_type;
    const FitResults results{n, new_array<double>(2 * n), new_array<float>(numbers.values * n),
                             new_array<unsigned short>(n), new_array<unsigned char>(n)};
    const RoiShape roi{1, rows, columns};
    const long long bytes =
        function<long long(int, const RoiShape*, int)>(run.library, "spotfit_fit_bytes")(run.instruction_set, &roi, 0);
    function<void(int, int, int, const HostRois*, long long, long long, const RoiShape*, const FitSettings*, void*,
                  const FitResults*)>(run.library, "spotfit_fit")(run.instruction_set, numbers.profile,
                                                                  numbers.estimator, &source, 0, n, &roi, settings,
                                                                  new_array<char>(bytes), &results);
    write_block(run.results, results.positions, 2 * n);
    write_block(run.results, results.values, numbers.values * n);
    write_block(run.results, results.iterations, n);
    write_block(run.results, results.stop_condition, n);
}

constexpr struct {
    const char* name;
    void (*run)(const Run&);
} CASES[] = {{"fit", fit}};

void run_case(const char* name, const Run& run) {
    for (const auto& known : CASES) {
        if (!strcmp(known.name, name)) return known.run(run);
    }
    fail("no case ", name);
}

}  // namespace

int main(int count, char** arguments) {
    void* library = count > 1 ? open_library(arguments[1]) : nullptr;
    if (!library) fail("cannot open ", count > 1 ? arguments[1] : "nothing");
    const auto name_of = function<const char*(int)>(library, "spotfit_instruction_set_name");
    const auto supported = function<int(int)>(library, "spotfit_instruction_set_supported");
    int chosen = -1;
    for (int i = 0; i < function<int()>(library, "spotfit_instruction_set_count")(); ++i) {
        if (count == 2 && supported(i)) puts(name_of(i));
        if (count == 5 && supported(i) && !strcmp(name_of(i), arguments[2])) chosen = i;
    }
    if (count == 2) return 0;
    if (chosen < 0) fail("no instruction set ", count > 2 ? arguments[2] : "");
    const Run run{library, chosen, fopen(arguments[3], "rb"), fopen(arguments[4], "wb")};
    if (!run.cases || !run.results) fail("cannot open the files of cases and results");
    for (Block name; (name = read_block(run.cases)).bytes;) run_case(name.bytes, run);
    fclose(run.cases);
    return fclose(run.results);
}

#ifdef _WIN32
// Windows' own C library needs no start-up code, which would have to be compiled first.
extern "C" {
int _configure_narrow_argv(int mode);
void __main() {}
void start() {
    _configure_narrow_argv(1);
    exit(main(*__p___argc(), *__p___argv()));
}
}
#endif
