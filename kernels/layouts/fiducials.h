// What a tracker knows of its fiducials, and the shifts that it makes one displacement of.
#pragma once

namespace spotfit {

// Shifts along y and x, or one axis alone; those of all axes lie beside each other.
struct Shifts {
    const double *shifts, *errors;    // of each, and its standard errors
    const unsigned char* candidates;  // which may count; what they have is known
    long long count;
    int axes;              // 1 or 2
    double* work;          // memory for as many numbers
    unsigned char* taken;  // which have counted: is written
    double *mean, *mean_errors;
};

namespace health {
// What is the matter with a fiducial; of several things, the first.
enum Health : unsigned char { GOOD, OUTSIDE, LOST, SATURATED, CROWDED, DIM, BRIGHT, APART };
}  // namespace health

// All fiducials; of pairs of numbers the first is along y, the second along x.
struct Fiducials {
    long long count;
    // Where each belongs, and its light; of how many frames both are known; in how many on end its light has been
    // odd; whether it was ever found, and whether it is too close to another.
    double *places, *photons, *frames;
    long long* odd_frames;
    unsigned char *found_once, *crowded;
    // The displacement, and by how much places move besides, by their way from the middle of all, row by row.
    double shift[2], bent[4];
    double scatter;            // what standard errors have to be multiplied by
    double rows, columns;      // of a frame
    int not_found, saturated;  // flags of fits
    // The fits of a frame.
    const double *y, *x;
    const float *y_stderr, *x_stderr, *light, *light_stderr;
    const unsigned* flags;
    // The results: where fiducials should be and are; by how much they have moved, the same without what they move
    // besides, and with which errors; how they are; which could count, and which have.
    double *expected, *positions, *shifts, *unbent, *errors, *work;
    unsigned char *health, *candidates, *taken;  // a Health of each
    double mean[2], mean_errors[2];
    // How many deviates of those that have counted are larger than half of all should be.
    long long beyond;
};

}  // namespace spotfit
