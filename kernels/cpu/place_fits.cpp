// A few spots at given places of one frame, which a GPU fits: what it is sent, in three calls between which it works.
#include "../layouts/place_fits.h"

#include "detection_functions.h"
#include "instruction_sets.h"
#include "own_pixels.h"

using namespace spotfit;

namespace {

constexpr double UNKNOWN = __builtin_nan("");
// Of a pixel, by its type.
constexpr int BYTES[] = {1, 2, 2, 4, 8};

// The nearest whole number, the even one of two, as NumPy has it.
double rounded(double x) {
    constexpr double WHOLE = 6755399441055744.0;
    volatile double sum = x + WHOLE;
    return sum - WHOLE;
}

struct Work {
    PlaceFits& p;
    const Functions& functions;

    long long area() const { return static_cast<long long>(p.rows) * p.columns; }

    // Puts the ROIs around the places, shifted into the frame; returns whether all places lie in it.
    bool put_rois() const {
        long long* corners = const_cast<long long*>(p.source.corners);
        float* start = const_cast<float*>(p.source.start);
        const long long sides[] = {p.rows, p.columns}, sizes[] = {p.source.height, p.source.width};
        for (long long i = 0; i < p.spots.count; ++i) {
            corners[3 * i] = 0;
            for (int axis = 0; axis < 2; ++axis) {
                const double place = p.spots.places[2 * i + axis];
                if (!(place >= -0.5 && place <= double(sizes[axis]) - 0.5)) return false;
                const long long most = sizes[axis] - sides[axis];
                long long corner = static_cast<long long>(rounded(place)) - sides[axis] / 2;
                corner = corner < 0 ? 0 : corner > most ? most : corner;
                corners[3 * i + 1 + axis] = corner;
                start[p.shape * i + axis] = float(place - double(corner));
            }
            for (int j = 2; j < p.shape; ++j) start[p.shape * i + j] = float(UNKNOWN);
        }
        fetch();
        return true;
    }

    // Fetches the ROIs, and a pixel around them: a frame fresh from a camera is in no cache, and one row after the
    // other comes as late as all at once.
    void fetch() const {
        const long long bytes = BYTES[p.source.pixel_type], row = p.source.width * bytes;
        const char* const frame = static_cast<const char*>(p.source.frames);
        const char* const last = frame + p.source.height * row - 1;
        for (long long i = 0; i < p.spots.count; ++i) {
            const long long top = p.source.corners[3 * i + 1], left = p.source.corners[3 * i + 2];
            const long long ends[] = {0, (p.columns + 2) * bytes - 1};
            const char* place = frame + (top - 1) * row + (left - 1) * bytes;
            for (int k = 0; k < p.rows + 2; ++k, place += row)
                for (const long long end : ends) {
                    const char* const at = place + end;
                    if (at >= frame && at <= last) __builtin_prefetch(at);
                }
        }
    }

    // Whether pixels of any ROI may be saturated, or no data.
    bool any_flat_area() const {
        const long long n = p.spots.count;
        functions.own_pixels->find_flat_areas(p.taken, p.taken_type, p.source.height, p.source.width, p.source.corners,
                                              0, n, p.rows, p.columns, p.areas, p.crowded);
        for (long long i = 0; i < n; ++i)
            if (p.crowded[i]) return true;
        return false;
    }

    // Lists the ROIs with pixels that do not count; returns how many there are.
    long long find_cut() const {
        const long long n = p.spots.count;
        const bool crowds = p.spots.down > 0 && n > 1;
        if (crowds) {
            functions.own_pixels->sort(p.spots);
            functions.own_pixels->find_crowded(p.spots, 0, n, p.crowded);
        }
        if (p.detection)
            functions.detection->find_lone_pixels(*p.detection, p.source.corners, 0, n, p.rows, p.columns, p.lone,
                                                  nullptr);
        long long count = 0;
        p.lone_count = 0;
        for (long long i = 0; i < n; ++i) {
            if (!p.detection) p.lone[i] = 0;
            p.lone_count += p.lone[i];
            if (p.lone[i] || (crowds && p.crowded[i])) p.cut[count++] = i;
        }
        return count;
    }

    // Cuts out what there is of a map at one ROI.
    void cut_out(const void* values, int bytes, bool shared, const long long* corner, void* to) const {
        functions.own_pixels->cut_out(values, bytes, p.source.height, p.source.width, shared, corner, 1, p.rows,
                                      p.columns, to);
    }

    // Makes ready what the fit of a ROI without some of its pixels reads.
    void prepare(long long place, int bytes) const {
        const long long i = p.cut[place];
        const long long* corner = p.source.corners + 3 * i;
        const bool likelihood = p.estimator >= 2;
        const float kept = likelihood ? 0.0f : 1.0f, lost = likelihood ? float(UNKNOWN) : 0.0f;
        float* own = p.own + place * area();
        cut_out(p.source.frames, bytes, false, corner, p.pixels + place * area() * bytes);
        if (p.spots.down > 0 && p.spots.count > 1) functions.own_pixels->mark(p.spots, &i, 1, kept, lost, own);
        else
            for (long long k = 0; k < area(); ++k) own[k] = kept;
        unsigned char* lone = p.lone_pixels + place * area();
        if (p.lone[i]) {
            unsigned char found;
            functions.detection->find_lone_pixels(*p.detection, corner, 0, 1, p.rows, p.columns, &found, lone);
            for (long long k = 0; k < area(); ++k) own[k] = lone[k] ? lost : own[k];
        }
        if (p.source.planes.values) {
            cut_out(p.source.planes.values, sizeof(float), p.source.planes.shared, corner, p.planes);
            for (long long k = 0; k < area(); ++k) own[k] = likelihood ? own[k] + p.planes[k] : own[k] * p.planes[k];
        }
        if (p.source.variance.values)
            cut_out(p.source.variance.values, sizeof(float), p.source.variance.shared, corner,
                    p.variances + place * area());
        for (int j = 0; j < p.shape; ++j) p.start[place * p.shape + j] = p.source.start[i * p.shape + j];
    }

    // Makes ready what the fits of all listed ROIs read.
    void prepare_cut(long long count) const {
        for (long long place = 0; place < count; ++place) prepare(place, BYTES[p.source.pixel_type]);
    }

    // Puts the results of the listed ROIs in their rows.
    void put_cut(long long count) const {
        const FitResults &from = p.cut_results, &to = p.results;
        for (long long place = 0; place < count; ++place) {
            const long long i = p.cut[place];
            for (int axis = 0; axis < 2; ++axis)
                to.positions[axis * to.length + i] = from.positions[axis * from.length + place];
            for (int j = 0; j < p.numbers; ++j) to.values[j * to.length + i] = from.values[j * from.length + place];
            to.iterations[i] = from.iterations[place], to.stop_condition[i] = from.stop_condition[place];
        }
    }
};

}  // namespace

// All ROIs are cut out; returns -1 where some place is outside.
SPOTFIT_EXPORT int spotfit_cut_places(int index, PlaceFits* fits) {
    const Work work{*fits, *instruction_set(index).functions};
    if (!work.put_rois()) return -1;
    const HostRois& source = fits->source;
    work.functions.own_pixels->cut_out(source.frames, BYTES[source.pixel_type], source.height, source.width, false,
                                       source.corners, fits->spots.count, fits->rows, fits->columns, fits->whole);
    return 0;
}

// Finds the ROIs with pixels that do not count, and makes ready what their fits read; returns how many there are,
// or -1 if some pixels may be saturated or no data.
SPOTFIT_EXPORT long long spotfit_prepare_cut_places(int index, PlaceFits* fits) {
    const Work work{*fits, *instruction_set(index).functions};
    if (work.any_flat_area()) return -1;
    const long long cut = work.find_cut();
    work.prepare_cut(cut);
    return cut;
}

// Puts the results of these in their rows.
SPOTFIT_EXPORT void spotfit_put_cut_places(int index, PlaceFits* fits, long long cut) {
    Work{*fits, *instruction_set(index).functions}.put_cut(cut);
}
