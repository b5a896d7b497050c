// Localisations of a movie's segments, which overlap with those of other segments once drift is subtracted.
#pragma once

namespace spotfit {

// Lengths are in units of the localisations' error along each axis, positions along y, x and maybe z.
struct SegmentPoints {
    float *y, *x, *z;  // z is null where there is none
    int* group;        // the segment, and above all segments those of the other half of the field
    long long count;
};

// Square cells of a field.
struct FieldCells {
    float low_y, low_x, per_unit;
    int down, across;
    int* starts;  // points of cell c are starts[c] ... starts[c + 1] - 1; or the last one of each
};

// Where a search for the drift of one segment after the other begins.
struct DriftStart {
    SegmentPoints points;  // by segment; drift is subtracted
    FieldCells cells;
    int segments, queries;  // and how many points of a segment are compared, at most
    int* next;              // memory, one for each point
    float* pairs;           // memory, 3 numbers each
    long long most_pairs;
    float reach;
    double* drift;     // is written: 3 numbers for each segment
    double* pairs_of;  // is written: pairs in the peak, for each segment
};

// Points in the order of cells, and others that they are compared with, by segment; of these some are read at once, so
// memory goes on by OVERLAP_PADDING numbers after the last one.
constexpr int OVERLAP_PADDING = 3;
struct Overlap {
    SegmentPoints points, others;
    FieldCells cells;     // of the others
    const float* shifts;  // 3 numbers for each group, to subtract from its points
    int segments;
    int stride;   // from one point that is compared to the next
    float width;  // of the weight exp(-distance²/4 width²)
};

// What is summed for each group.
enum OverlapSum { PARTNERED, OVERLAP, PULL, SQUARE = 5, OVERLAP_SUMS = 8 };

}  // namespace spotfit
