#!/usr/bin/env bash
# Runs the engine's tests with a CPU library under clang's AddressSanitizer and
# UndefinedBehaviorSanitizer: they find access beyond an array's end, use after free, overflow of
# integers and shifts, and misaligned pointers.
#
# usage: tools/sanitize_library.sh PYTHON [pytest's options]; CLANG=clang++ chooses the compiler
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

python=$1
shift
clang=${CLANG:-clang++-19}
command -v "$clang" >/dev/null || {
    echo "$clang was not found; please run: apt-get install clang-19 libclang-rt-19-dev" >&2
    exit 1
}
runtime=$("$clang" -print-file-name="libclang_rt.asan-$(uname -m).so")

# Without checks of every access that find no more than crashes or other checks.
checks="-fsanitize=address,undefined -fno-sanitize=null,object-size,pointer-overflow,function"
checks+=" -fno-sanitize-recover=all"
CXX=$clang CXXFLAGS="-O1 -g -fno-omit-frame-pointer -Werror $checks" \
    LDFLAGS="$checks -shared-libsan" \
    "$python" tools/build_library.py --output build/sanitized

# Python itself never frees all of its memory.
NAPARI_SPOTFIT_LIBRARY=$PWD/build/sanitized/libspotfit.so LD_PRELOAD=$runtime \
    ASAN_OPTIONS=detect_leaks=0 UBSAN_OPTIONS=print_stacktrace=1 \
    "$python" -m pytest -p no:cacheprovider "$@" tests/engine --ignore tests/engine/cuda
