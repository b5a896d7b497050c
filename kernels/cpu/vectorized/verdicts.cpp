// What is said against fits, a part of their columns at a time.
#include "../verdicts.h"

#include "../../verdict.h"
#include "tables.h"

namespace spotfit::SPOTFIT_ISA {
namespace {

// Fits whose numbers are copied at a time.
constexpr int TILE = 256;

struct Tile {
    double values[SHAPE + MAX_SHAPE][TILE];

    template <class T> static void read(const void* column, long long first, int count, double* values) {
        for (int i = 0; i < count; ++i) values[i] = static_cast<const T*>(column)[first + i];
    }
    // Copies a part of a column; NaN where there is none.
    void copy(const FitColumns& fits, int place, long long first, int count) {
        const void* column = fits.columns[place];
        if (!column)
            for (int i = 0; i < count; ++i) values[place][i] = NOT_A_NUMBER;
        else if (fits.doubles >> place & 1) read<double>(column, first, count, values[place]);
        else if (place == STOP) read<unsigned char>(column, first, count, values[place]);
        else if (place == ROI_Y || place == ROI_X) read<int>(column, first, count, values[place]);
        else read<float>(column, first, count, values[place]);
    }
    void copy_all(const FitColumns& fits, int shape, long long first, int count) {
        for (int place = 0; place < SHAPE + shape; ++place) copy(fits, place, first, count);
        for (int axis = 0; axis < 2 && axis < shape; ++axis)
            if (fits.columns[ROI_Y + axis])
                for (int i = 0; i < count; ++i) values[SHAPE + axis][i] -= values[ROI_Y + axis][i];
    }
    FitNumbers fit(int shape, int i) const {
        FitNumbers fit;
        for (int k = 0; k < shape; ++k) fit.shape[k] = values[SHAPE + k][i];
        fit.amplitude = values[AMPLITUDE][i];
        fit.background = values[BACKGROUND][i];
        fit.photons = values[PHOTONS][i];
        fit.chi_square = values[CHI_SQUARE][i];
        fit.reduced_chi_square = values[REDUCED_CHI_SQUARE][i];
        fit.amplitude_error = values[AMPLITUDE_ERROR][i];
        return fit;
    }
};

Known known(const FitColumns& fits) {
    return {fits.columns[AMPLITUDE] && fits.columns[PHOTONS], fits.columns[AMPLITUDE_ERROR] != nullptr,
            fits.columns[BACKGROUND] != nullptr};
}

void judge(const FitColumns& fits, const VerdictSettings& settings, long long first, long long last, unsigned* flags) {
    Tile tile;
    const Known there = known(fits);
    for (long long start = first; start < last; start += TILE) {
        const int count = last - start < TILE ? static_cast<int>(last - start) : TILE;
        tile.copy_all(fits, settings.shape, start, count);
        for (int i = 0; i < count; ++i)
            flags[start + i] = flags_of_numbers(settings, tile.fit(settings.shape, i), tile.values[STOP][i], there);
    }
}

}  // namespace

const VerdictFunctions verdicts = {judge};

}  // namespace spotfit::SPOTFIT_ISA
