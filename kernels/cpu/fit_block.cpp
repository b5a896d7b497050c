// Fits of ROIs in a block of frames. A pixel is excluded from a fit where it is nearer to another spot, hot or dead,
// saturated, or no data. ROIs with excluded pixels are cut out and fitted apart, with a mask each.
#include "../layouts/fit_block.h"

#include "../memory.h"
#include "block_rois.h"
#include "detection_functions.h"
#include "excluded_pixels.h"
#include "fit_rois.h"
#include "instruction_sets.h"
#include "verdicts.h"

using namespace spotfit;

namespace {

// ROIs that are looked at together, cut out at most, and pixels of those; where fewer than one small ROI in FEW is cut
// out, the others are not put together for that.
constexpr long long BATCH = 256, MOST_PIXELS = 1 << 15, LANES_AT_MOST = 16, FEW = 8;
// What becomes of a ROI of a batch.
enum : unsigned char { IS_WHOLE, IS_CUT, NOT_NOW };

// Results of some fits that go to rows of others.
struct Apart {
    long long* rows;  // which they are
    FitResults results;
    int axes;

    // One column after the other, as Python divides them, too.
    void take(Memory& memory, long long room, int own_axes, int numbers) {
        axes = own_axes;
        rows = memory.take<long long>(room);
        results.length = room;
        results.positions = memory.take<double>(room * (axes + 2 + numbers));
        results.values = reinterpret_cast<float*>(results.positions + axes * room);
        results.iterations = reinterpret_cast<unsigned short*>(results.values + room * numbers);
        results.stop_condition = reinterpret_cast<unsigned char*>(results.iterations + room);
    }
    void put(long long count, int numbers, const FitResults& to) const {
        const FitResults& from = results;
        for (long long k = 0; k < count; ++k) {
            const long long i = rows[k];
            for (int axis = 0; axis < axes; ++axis)
                to.positions[axis * to.length + i] = from.positions[axis * from.length + k];
            to.iterations[i] = from.iterations[k], to.stop_condition[i] = from.stop_condition[k];
        }
        for (int j = 0; j < numbers; ++j) {
            float* const column = to.values + j * to.length;
            const float* const values = from.values + j * from.length;
            for (long long k = 0; k < count; ++k) column[rows[k]] = values[k];
        }
    }
};

bool masks_neighbours(const SpotCells& spots) { return spots.down * spots.across > 0 && spots.count > 1; }

class Range {
    BlockFits& b;
    const Functions& functions;
    const PlaneRois rois;
    const long long area;  // pixels of a ROI
    const bool large;
    const long long room;
    Memory memory;
    void* fit_work;
    // Of a batch: what ROIs are suspected of, whether they have neighbours, hot pixels, and are cut out.
    unsigned char *suspected, *crowded, *hot, *is_cut, *of_planes;
    // Whether ROIs are fitted that hold sigma along z, or the others.
    bool held = false;
    // The others of a batch, and the ROIs that are cut out, until there are enough to be fitted.
    Apart whole, cut = {};
    long long *whole_corners = nullptr, *plane_corners = nullptr, cut_count = 0;
    double* numbers = nullptr;
    float *whole_start, *start = nullptr, *own = nullptr, *planes, *variances = nullptr;
    unsigned char *pixels = nullptr, *hot_of_one, *top_of_one, *ground_of_one, *saturated, *padding;

    const long long* corner(long long i) const { return rois.corner(i); }
    bool masks_neighbours() const { return ::masks_neighbours(b.spots); }
    bool is_held(long long i) const { return ::is_held(b, i); }

    void fit(const HostRois& source, int estimator, long long first, long long last, const FitResults& results) const {
        fit_rois(functions, b.profile, estimator, source, first, last, b.roi, held ? *b.held.settings : *b.settings,
                 fit_work, results);
    }

    double highest_of(long long frame) const {
        double& known = b.highest[frame];
        if (known != known) {
            const long long size = b.source.depth * b.source.height * b.source.width;
            const char* const pixels_of_all = static_cast<const char*>(b.taken);
            known = functions.excluded_pixels->highest(pixels_of_all + frame * size * BYTES[b.taken_type], b.taken_type,
                                                       size);
        }
        return known;
    }

    void clear(unsigned char* mask) const { __builtin_memset(mask, 0, static_cast<unsigned long>(area)); }

    // Marks saturated pixels of a ROI, and such as are no data, if it is suspected of some; returns whether any are.
    bool has_flat_area(long long i, unsigned char what, unsigned char* top, unsigned char* ground) const {
        bool found = false;
        clear(top), clear(ground);
        if (!what) return found;
        const bool there = !b.taken;
        long long memory[3 * MOST_PLANES];
        const long long* const at = there ? memory : rois.of(i, 1, memory);
        for (int k = 0; there && k < rois.depth; ++k)
            memory[3 * k] = b.device->place[i] * rois.depth + k, memory[3 * k + 1] = memory[3 * k + 2] = 0;
        const void* const frames = there ? b.device->pixels : b.taken;
        const long long height = there ? b.roi.rows : b.source.height, width = there ? b.roi.columns : b.source.width;
        if (what & FLAT_TOP) {
            const double highest = highest_of(corner(i)[0]);
            bool any = false;
            for (int k = 0; k < rois.depth; ++k)
                any |= functions.excluded_pixels->find_saturated(frames, b.taken_type, height, width, at + 3 * k,
                                                                 b.roi.rows, b.roi.columns, b.areas, highest,
                                                                 top + k * b.roi.rows * b.roi.columns);
            if (any && highest < b.areas.largest) b.saturated = 1;
            found |= any;
        }
        if (what & FLAT_GROUND)
            found |= functions.excluded_pixels->find_padding(frames, b.taken_type, height, width, at, rois.depth,
                                                             b.roi.rows, b.roi.columns, numbers, ground);
        if (what & NO_NUMBERS)
            found |= functions.excluded_pixels->add_no_numbers(frames, b.taken_type, height, width, at, rois.depth,
                                                               b.roi.rows, b.roi.columns, ground);
        return found;
    }

    // Adds the hot pixels of a ROI to a mask.
    void add_hot(long long i, unsigned char* mask) const {
        const unsigned char* own = hot_of_one;
        unsigned char found[MOST_PLANES];
        long long at[3 * MOST_PLANES];
        if (b.device) own = b.device->hot_pixels + b.device->place[i] * area;
        else
            functions.detection->find_hot_pixels(*b.detection, rois.of(i, 1, at), 0, rois.depth, b.roi.rows,
                                                 b.roi.columns, found, hot_of_one);
        for (long long k = 0; k < area; ++k) mask[k] |= own[k];
    }

    // Weights or variances of the pixels of a ROI, without those that are nearer to another spot,
    // and without saturated and bad ones if there are any.
    void mark(long long i, bool any, const unsigned char* top, const unsigned char* bad, float* mask) const {
        const bool likelihood = b.estimator >= 2;
        const float kept = likelihood ? 0.0f : 1.0f, lost = likelihood ? float(UNKNOWN) : 0.0f;
        if (masks_neighbours()) functions.excluded_pixels->mark(b.spots, &i, 1, kept, lost, mask);
        else
            for (long long k = 0; k < area; ++k) mask[k] = kept;
        for (long long k = 0; any && k < area; ++k) mask[k] = (top[k] | bad[k]) ? lost : mask[k];
    }

    // Cuts out what there is of frames, or of a map, at one ROI.
    void cut_out(const void* values, int bytes, bool shared, long long i, void* to) const {
        long long at[3 * MOST_PLANES];
        functions.excluded_pixels->cut_out(values, bytes, b.source.height, b.source.width, false,
                                           rois.of(i, 1, at, shared), rois.depth, b.roi.rows, b.roi.columns, to);
    }

    // Makes ready what the fit of a ROI without some of its pixels reads; those in flat areas are known.
    void add_cut(long long i, bool has_hot, bool has_flat) {
        const long long place = cut_count++;
        const bool likelihood = b.estimator >= 2;
        const int bytes = BYTES[b.source.pixel_type];
        float* const mask = own + place * area;
        cut.rows[place] = i;
        cut_out(b.source.frames, bytes, false, i, pixels + place * area * bytes);
        if (has_hot) add_hot(i, padding + place * area);
        mark(i, has_hot || has_flat, saturated + place * area, padding + place * area, mask);
        if (b.source.planes.values) {
            cut_out(b.source.planes.values, sizeof(float), b.source.planes.shared, i, planes);
            for (long long k = 0; k < area; ++k) mask[k] = likelihood ? mask[k] + planes[k] : mask[k] * planes[k];
        }
        if (b.source.variance.values)
            cut_out(b.source.variance.values, sizeof(float), b.source.variance.shared, i, variances + place * area);
        for (int j = 0; j < b.shape; ++j) start[place * b.shape + j] = b.source.start[i * b.shape + j];
    }

    HostRois cut_source() const {
        HostRois source = b.source;
        source.frames = pixels;
        source.depth = b.roi.depth, source.height = b.roi.rows, source.width = b.roi.columns;
        source.corners = nullptr, source.start = start;
        source.planes = {own, 0};
        if (source.variance.values) source.variance = {variances, 0};
        return source;
    }

    // Fits the ROIs that are cut out.
    void fit_cut() {
        if (!cut_count) return;
        fit(cut_source(), b.estimator | 1, 0, cut_count, cut.results);
        put_cut();
    }
    // Flags of a fit that excluded pixels in the plane of its spot set.
    unsigned flags_of_pixels(long long i, const FitResults& results, long long row, const unsigned char* top,
                             const unsigned char* ground) const {
        const double* position = results.positions + row;
        long long plane = 0;
        if (rois.depth > 1) {
            if (*position != *position) return 0;
            plane = static_cast<long long>(rounded(*position)), position += results.length;
            plane = plane < 0 ? 0 : plane < rois.depth ? plane : rois.depth - 1;
        }
        const long long before = plane * b.roi.rows * b.roi.columns;
        return functions.verdicts->pixel_flags(*b.quality, position[0], position[results.length], rois.in_plane(i),
                                               rois.depth > 1 ? 0 : b.first_row, top + before, ground + before);
    }
    // Puts their results in their rows.
    void put_cut() {
        for (long long k = 0; k < cut_count; ++k)
            b.image->flags[cut.rows[k]] |=
                flags_of_pixels(cut.rows[k], cut.results, k, saturated + k * area, padding + k * area);
        cut.put(cut_count, b.numbers, b.results);
        cut_count = 0;
    }

    // Fits those of a batch that are fitted where they lie; the few that are not are fitted all the same.
    void fit_whole(long long first, long long last, long long without) const {
        if (without == last - first) return;
        if (!without || (!large && !b.held.settings && without * FEW <= last - first)) {
            fit(b.source, b.estimator, first, last, b.results);
            return;
        }
        const int sides = axes_of(b.roi) + 1;
        long long count = 0;
        for (long long i = first; i < last; ++i) {
            if (is_cut[i - first]) continue;
            whole.rows[count] = i;
            for (int j = 0; j < sides; ++j) whole_corners[sides * count + j] = corner(i)[j];
            for (int j = 0; j < b.shape; ++j) whole_start[b.shape * count + j] = b.source.start[b.shape * i + j];
            ++count;
        }
        HostRois source = b.source;
        source.corners = whole_corners, source.start = whole_start;
        fit(source, b.estimator, 0, count, whole.results);
        whole.put(count, b.numbers, b.results);
    }

    // What the planes of each ROI have together.
    void join_planes(long long count, unsigned char* joined) const {
        if (rois.depth == 1) return;
        for (long long k = 0; k < count; ++k) {
            joined[k] = of_planes[k * rois.depth];
            for (int plane = 1; plane < rois.depth; ++plane) joined[k] |= of_planes[k * rois.depth + plane];
        }
    }

    // Finds out which of a batch are cut out, or not fitted now; returns how many.
    long long find_cut(long long first, long long last) const {
        const ExcludedPixelFunctions& look = *functions.excluded_pixels;
        const long long count = last - first;
        // Of many, the search for flat areas fetches a few ahead.
        if (b.spots.count <= BATCH && !b.whole && !b.device) fetch(b, first, last);
        const long long *const planes = rois.of(first, count, plane_corners), plane_count = count * rois.depth;
        if (b.taken) {
            look.find_flat_areas(b.taken, b.taken_type, b.source.height, b.source.width, planes, 0, plane_count,
                                 b.roi.rows, b.roi.columns, b.areas, rois.depth > 1 ? of_planes : suspected);
            join_planes(count, suspected);
        }
        if (masks_neighbours()) look.find_crowded(b.spots, first, last, crowded - first);
        if (b.detection && !b.device) {
            functions.detection->find_hot_pixels(*b.detection, planes, 0, plane_count, b.roi.rows, b.roi.columns,
                                                 rois.depth > 1 ? of_planes : hot, nullptr);
            join_planes(count, hot);
        }
        long long without = 0;
        for (long long k = 0; k < count; ++k) {
            if (b.device) hot[k] = b.device->hot[first + k];
            else if (!b.detection) hot[k] = 0;
            if (!b.taken) suspected[k] = b.device->areas[first + k];
            // No padding is looked for in large ROIs: most of a laser beam's image is of one value.
            if (large) suspected[k] &= FLAT_TOP;
            if (b.device) b.device->areas[first + k] = suspected[k];
            is_cut[k] = hot[k] || (masks_neighbours() && crowded[k]) ||
                        (suspected[k] && has_flat_area(first + k, suspected[k], top_of_one, ground_of_one));
            if (is_held(first + k) != held) is_cut[k] = NOT_NOW;
            else b.image->flags[first + k] = held ? unsigned(flag::SIGMA_Z_HELD) : 0;
            without += is_cut[k] != 0;
        }
        return without;
    }
    // Cuts them out, and fits them whenever there is no more room.
    void add_cuts(long long first, long long last) {
        for (long long k = 0; k < last - first; ++k) {
            if (is_cut[k] != IS_CUT) continue;
            if (cut_count == room) fit_cut();
            unsigned char *const top = saturated + cut_count * area, *const ground = padding + cut_count * area;
            const bool has_flat = has_flat_area(first + k, suspected[k], top, ground);
            add_cut(first + k, hot[k], has_flat);
        }
    }

    // Calls use(begin, end, how many of them are cut out) for all batches of a range.
    template <class Use> void over_batches(long long first, long long last, Use use) {
        for (long long begin = first; begin < last; begin += BATCH) {
            const long long end = begin + BATCH < last ? begin + BATCH : last, without = find_cut(begin, end);
            use(begin, end, without);
            if (without) add_cuts(begin, end);
        }
    }

    // What follows from each fit by itself.
    void finish(long long first, long long last) const {
        if (b.source.corners) {
            functions.verdicts->judge_each(*b.fits, *b.quality, *b.image, first, last);
            if (!b.device && b.source.frames)
                functions.verdicts->flag_around(*b.fits, *b.quality, *b.image, b.source.frames, b.source.pixel_type,
                                                b.source.height, b.source.width, first, last);
        } else if (b.noise) functions.verdicts->correct_errors(*b.noise, *b.errors, first, last);
    }

    // As many are cut out together as there are room and lanes for; of large ones, one.
    long long own_room() const {
        const long long fitting = MOST_PIXELS / area / LANES_AT_MOST * LANES_AT_MOST;
        if (large) return 1;
        return fitting < LANES_AT_MOST ? LANES_AT_MOST : fitting > BATCH ? BATCH : fitting;
    }

    // Lists the ROIs of a range in two parts.
    void list(long long first, long long last) {
        const DeviceLooks& device = *b.device;
        const long long count = last - first, sides = axes_of(b.roi) + 1;
        long long wholes = 0, without = 0;
        for (long long begin = first; begin < last; begin += BATCH) {
            const long long end = begin + BATCH < last ? begin + BATCH : last;
            find_cut(begin, end);
            for (long long i = begin; i < end; ++i)
                if (is_cut[i - begin] == IS_CUT) device.rois[count - ++without] = i;
                else if (is_cut[i - begin] == IS_WHOLE) device.rois[wholes++] = i;
        }
        b.cut_count = without, b.listed_count = wholes + without;
        // Those that are cut out lie at the end, the last one first.
        for (long long *low = device.rois + count - without, *high = device.rois + count - 1; low < high;) {
            const long long other = *low;
            *low++ = *high, *high-- = other;
        }
        for (long long n = 0; n < without; ++n) device.rois[wholes + n] = device.rois[count - without + n];
        for (long long n = 0; n < b.listed_count; ++n) {
            for (int j = 0; j < sides; ++j) device.corners[sides * n + j] = corner(device.rois[n])[j];
            for (int j = 0; j < b.shape; ++j)
                device.start[n * b.shape + j] = b.source.start[device.rois[n] * b.shape + j];
        }
    }

    // Marks saturated pixels of a ROI that is on a device, and bad ones.
    void look_again(long long i) {
        has_flat_area(i, b.device->areas[i], top_of_one, ground_of_one);
        if (b.device->hot[i]) add_hot(i, ground_of_one);
    }

    // Sets the flags of excluded pixels for ROIs on a device.
    void flag_pixels(long long first, long long last) {
        for (long long i = first; i < last; ++i) {
            if (!b.device->areas[i] && !b.device->hot[i]) continue;
            look_again(i);
            b.image->flags[i] |= flags_of_pixels(i, b.results, i, top_of_one, ground_of_one);
        }
    }

    // Divides up the memory.
    void divide() {
        suspected = memory.take<unsigned char>(BATCH), crowded = memory.take<unsigned char>(BATCH);
        hot = memory.take<unsigned char>(BATCH), is_cut = memory.take<unsigned char>(BATCH);
        of_planes = memory.take<unsigned char>(BATCH * rois.depth);
        const int axes = axes_of(b.roi);
        whole.take(memory, BATCH, axes, b.numbers), cut.take(memory, room, axes, b.numbers);
        whole_corners = memory.take<long long>((axes + 1) * BATCH);
        plane_corners = memory.take<long long>(3 * BATCH * rois.depth);
        numbers = memory.take<double>(large ? 0 : area);
        whole_start = memory.take<float>(b.shape * BATCH), start = memory.take<float>(b.shape * room);
        own = memory.take<float>(area * room), planes = memory.take<float>(area);
        variances = memory.take<float>(area * room);
        pixels = memory.take<unsigned char>(area * room * BYTES[b.source.pixel_type]);
        hot_of_one = memory.take<unsigned char>(area), top_of_one = memory.take<unsigned char>(area);
        ground_of_one = memory.take<unsigned char>(area);
        saturated = memory.take<unsigned char>(area * room), padding = memory.take<unsigned char>(area * room);
    }

  public:
    Range(BlockFits& fits, const Functions& own_functions, void* work, bool holds = false)
        : b(fits), functions(own_functions), rois(fits),
          area(static_cast<long long>(fits.roi.depth) * fits.roi.rows * fits.roi.columns), large(is_large(fits.roi)),
          room(fits.room ? fits.room : own_room()), memory{static_cast<unsigned char*>(work)} {
        held = holds;
        fit_work = memory.take<unsigned char>(b.fit_bytes);
        if (b.source.corners) divide();
    }

    // Behind all of its memory.
    const unsigned char* end() const { return memory.at; }

    void run(long long first, long long last) {
        if (!b.source.corners) fit(b.source, b.estimator, first, last, b.results);
        else
            for (int pass = 0; pass < (b.held.settings ? 2 : 1); ++pass) {
                held = pass != 0;
                over_batches(first, last, [&](long long begin, long long end, long long without) {
                    fit_whole(begin, end, without);
                });
                fit_cut();
            }
        finish(first, last);
    }
    void exclude(long long first, long long last) {
        if (b.device) return list(first, last);
        if (b.source.corners) over_batches(first, last, [](long long, long long, long long) {});
        b.cut_count = cut_count, b.cut = cut_source(), b.cut_results = cut.results;
    }
    void join(long long first, long long last) {
        if (b.device) flag_pixels(first, last);
        else if ((cut_count = b.cut_count)) put_cut();
        finish(first, last);
    }
    // The weights or variances of the pixels of some listed ROIs.
    void mark_listed(long long first, long long last, float* masks) {
        for (long long n = first; n < last; ++n, masks += area) {
            look_again(b.device->rois[n]);
            mark(b.device->rois[n], true, top_of_one, ground_of_one, masks);
        }
    }

    // Lists the ROIs of a range some of whose pixels are excluded; returns how many.
    long long list_excluded(long long first, long long last, long long* listed) const {
        long long count = 0;
        for (long long begin = first; begin < last; begin += BATCH) {
            const long long end = begin + BATCH < last ? begin + BATCH : last;
            find_cut(begin, end);
            for (long long i = begin; i < end; ++i)
                if (is_cut[i - begin] == IS_CUT) listed[count++] = i;
        }
        return count;
    }
    // Why each pixel of a ROI is excluded.
    void explain(long long i, unsigned char* reasons) {
        find_cut(i, i + 1);
        has_flat_area(i, suspected[0], saturated, padding);
        clear(top_of_one);
        if (hot[0]) add_hot(i, top_of_one);
        for (long long k = 0; k < area; ++k) own[k] = 0;
        if (masks_neighbours()) functions.excluded_pixels->mark(b.spots, &i, 1, 0.0f, 1.0f, own);
        for (long long k = 0; k < area; ++k)
            reasons[k] = static_cast<unsigned char>(saturated[k] * SATURATED_PIXEL | top_of_one[k] * HOT_PIXEL |
                                                    padding[k] * PADDING_PIXEL | (own[k] != 0) * NEIGHBOUR_PIXEL);
    }
};

}  // namespace

// The memory that a range takes.
SPOTFIT_EXPORT long long spotfit_block_bytes(int index, BlockFits* fits) {
    unsigned char none[1];
    return Range(*fits, *instruction_set(index).functions, none).end() - none;
}

// Does some steps for the fits first ... last - 1; returns -1 without any of them if a position is outside of its
// frame.
SPOTFIT_EXPORT int spotfit_fit_block(int index, BlockFits* fits, long long first, long long last, void* work,
                                     int steps) {
    const Functions& functions = *instruction_set(index).functions;
    if (steps & PLACE_ROIS) {
        if (!place_rois(*fits)) return -1;
        if (masks_neighbours(fits->spots)) functions.excluded_pixels->sort(fits->spots);
        if (fits->whole) {
            const HostRois& source = fits->source;
            fetch(*fits, 0, fits->spots.count);
            functions.excluded_pixels->cut_out(source.frames, BYTES[source.pixel_type], source.height, source.width,
                                               false, source.corners, fits->spots.count, fits->roi.rows,
                                               fits->roi.columns, fits->whole);
        }
    }
    if (steps & FIT_RANGE) Range(*fits, functions, work).run(first, last);
    if (steps & EXCLUDE) Range(*fits, functions, work, (steps & HELD) != 0).exclude(first, last);
    if (steps & JOIN) Range(*fits, functions, work).join(first, last);
    if (steps & FLAG_TOGETHER)
        functions.verdicts->judge_together(*fits->fits, *fits->quality, *fits->image, first, last);
    return 0;
}

// The weights or variances of the pixels of some ROIs, which are listed by EXCLUDE on a device.
SPOTFIT_EXPORT void spotfit_mark_rois(int index, BlockFits* fits, long long first, long long last, float* masks,
                                      void* work) {
    Range(*fits, *instruction_set(index).functions, work).mark_listed(first, last, masks);
}

// Lists the ROIs of a range some of whose pixels are excluded; returns how many.
SPOTFIT_EXPORT long long spotfit_list_excluded(int index, BlockFits* fits, long long first, long long last,
                                               long long* rois, void* work) {
    return Range(*fits, *instruction_set(index).functions, work).list_excluded(first, last, rois);
}

// Why the pixels of a ROI are excluded from its fit.
SPOTFIT_EXPORT void spotfit_explain(int index, BlockFits* fits, long long roi, unsigned char* reasons, void* work) {
    Range(*fits, *instruction_set(index).functions, work).explain(roi, reasons);
}

// Lists the spots among the fits of a range whose pixels show whether they are long; returns how many there are.
SPOTFIT_EXPORT long long spotfit_list_spots(int index, BlockFits* fits, long long first, long long last,
                                            FittedSpot* spots) {
    const VerdictFunctions& verdicts = *instruction_set(index).functions->verdicts;
    return verdicts.list_spots(*fits->fits, *fits->quality, *fits->image, first, last, spots);
}
