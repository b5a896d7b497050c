// Spots of two channels that may be partners of each other.
#pragma once

namespace spotfit {

// Spots a and b, each with its place along z, y and x, in units of the radius; only those of one group are partners.
struct PairedSpots {
    const double *a, *b;
    const long long *a_group, *b_group;
    long long a_count, b_count;
    int is_flat;  // whether all lie in one plane
    // Lists of b by the cells that they lie in: the first of each list and the next. Their number is a power of two,
    // and so is that of a group, which follows from the largest one.
    long long lists, lists_of_group;
    long long *heads, *next;
    // The partners within reach of each a, from first[i] to first[i + 1], and the squared distance less 1, which is
    // what the pair costs: is written.
    long long *first, *partners;
    double* costs;
    long long *a_partner, *b_partner;  // are written: -1 for none
    double *prices, *reached;          // memory, one for each b
    long long *heap, *place, *from;
};

}  // namespace spotfit
