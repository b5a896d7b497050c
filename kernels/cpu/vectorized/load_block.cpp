#include "../load_block.h"

namespace spotfit::SPOTFIT_ISA {
namespace {

using L = LaneType;
using Doubles = double __attribute__((ext_vector_type(LANES)));

// Where a row of a ROI begins in frames, or in a map that all of them share.
long long first_of_row(const HostRois& s, long long roi, int row, bool shared) {
    const long long none[3] = {roi, 0, 0};
    const long long* c = s.corners ? s.corners + 3 * roi : none;
    return ((shared ? 0 : c[0]) * s.height + c[1] + row) * s.width + c[2];
}

// Lanes with `count` numbers; the others are 0.
template <class T> SPOTFIT_INLINE auto load(const T* from, int count) {
    using Vector = T __attribute__((ext_vector_type(LANES)));
    Vector values = {};
    if (count >= LANES) __builtin_memcpy(&values, from, LANES * sizeof(T));
    else
        for (int lane = 0; lane < count; ++lane) values[lane] = from[lane];
    return values;
}

// In double precision where the pixels have that.
template <class T> SPOTFIT_INLINE L in_unit(const T* from, int count, double level, double scale) {
    const auto values = load(from, count);
    if constexpr (sizeof(T) == 8) {
        const Doubles own = (values - level) * scale;
        return __builtin_convertvector(own, L::Floats);
    } else {
        return (L(__builtin_convertvector(values, L::Floats)) - float(level)) * float(scale);
    }
}

// A pixel's weight, 0 where it does not count.
SPOTFIT_INLINE L weight_of(L given, bool variances, float unit) {
    if (variances) return select(given >= 0.0f, L(1.0f), L(0.0f));
    return select((given > 0.0f) & (given < INFINITE), given * unit, L(0.0f));
}

template <class T>
void load_block_of(const HostRois& s, long long roi, const LargeRequest& request, BlockOfRoi<L>& block) {
    const bool electrons = request.task == DEVIANCE || request.task == FISHER;
    const bool variances = request.planes == VARIANCES;
    const L lanes = lane_numbers<L>();
    for (int k = 0; k < block.rows; ++k) {
        const int row = block.top + k;
        const T* from = static_cast<const T*>(s.frames) + first_of_row(s, roi, row, false);
        const float *plane = nullptr, *variance = nullptr;
        if (request.planes) plane = s.planes.values + first_of_row(s, roi, row, s.planes.shared);
        if (block.variances) variance = s.variance.values + first_of_row(s, roi, row, s.variance.shared);
        for (int i = 0; i < block.vectors; ++i) {
            const int first = (block.left + i) * LANES, count = request.columns - first, place = k * block.vectors + i;
            L g = in_unit(from + first, count, request.level, request.scale);
            MaskOf<L> inside = lanes < float(count);
            L own = electrons ? 0.0f : 1.0f;
            if (electrons) {
                if (plane) own = L(load(plane + first, count)), inside = inside & (own >= 0.0f);
                g = select(inside, higher_of(g + own, L(0.0f)), L(NO_PIXEL));
                own = select(inside, own, L(NO_PIXEL));
            } else {
                if (plane) own = weight_of(L(load(plane + first, count)), variances, request.weight);
                own = select(inside, own, L(0.0f));
                if (plane) inside = own > 0.0f;
                g = select(inside, g, L(request.background));
            }
            block.pixels[place] = g;
            block.planes[place] = own;
            if (variance) block.variances[place] = L(load(variance + first, count));
        }
    }
}

}  // namespace

void load_block(const HostRois& source, long long roi, const LargeRequest& request, BlockOfRoi<L>& block) {
    using Load = void (*)(const HostRois&, long long, const LargeRequest&, BlockOfRoi<L>&);
    constexpr Load LOAD[] = {load_block_of<unsigned char>, load_block_of<unsigned short>, load_block_of<short>,
                             load_block_of<float>, load_block_of<double>};
    LOAD[source.pixel_type](source, roi, request, block);
}

}  // namespace spotfit::SPOTFIT_ISA
