// Fits of a movie that are linked over its frames to events of one molecule, and what becomes of a column.
#pragma once

namespace spotfit {

// Fits of one movie, in rising order of their frames.
struct EventFits {
    const long long* frame;
    const double *y, *x, *z;                      // z is null where there is none
    const float *y_stderr, *x_stderr, *z_stderr;  // NaN: stays single; null where unknown
    long long count;
    long long max_dark;               // frames without a fit within an event
    double radius;                    // 0: a gate by the errors
    double gate;                      // of χ² between fit and event; with a radius, along z
    long long* event;                 // is written: the number of each fit's event
    long long *first_row, *last_row;  // are written, of each event
};

// Memory of one thread that links, by the largest number of fits in frames that one event may span.
struct EventMemory {
    double* numbers;     // 11 for each of them
    long long* indices;  // 3 for each
    int* cells;          // 6 for each
    long long *pairs, *heads;
    long long most_pairs;  // 3 numbers each in `pairs`
    double* distances;     // one for each pair
};

// One column of fits, whose values are joined by events.
struct JoinedColumn {
    const void *values, *errors;  // float, or double where is_double; no errors: null
    const long long* event;
    long long count, events;
    int is_double, errors_are_double;
    int rule;                 // JoinRule
    double *joined, *spread;  // one for each event: the value, its standard error where there are errors
    double* scatter;          // Σ(value − mean)²/error² is added; may be null
    double* weights;          // memory, one for each event
};

enum JoinRule { JOIN_MEAN, JOIN_SUM, JOIN_WEIGHTED };

}  // namespace spotfit
