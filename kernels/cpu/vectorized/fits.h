// The fits of the built-in profiles, file by file.
#pragma once
#include "../fit_tiles.h"
#include "tables.h"

namespace spotfit::SPOTFIT_ISA {

template <int PLACE> constexpr void put_fits(FitsOfFile& file) {
    if constexpr (PLACE < BuiltIn::COUNT) {
        file.of[PLACE / FIT_FILES] = FITS_OF<typename ProfileAt<PLACE>::Type>;
        put_fits<PLACE + FIT_FILES>(file);
    }
}
template <int FIRST> constexpr FitsOfFile fits_from() {
    FitsOfFile file = {};
    put_fits<FIRST>(file);
    return file;
}

}  // namespace spotfit::SPOTFIT_ISA
