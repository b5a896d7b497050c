// A measured PSF as the kernels read it; napari_spotfit/engine/lattice.py makes it.
#pragma once

namespace spotfit {

// Where a search for a spot of a measured PSF may begin: in nm along z, and how far the middle of its light lies from
// its centre there, in pixels.
struct PsfTemplate { float z, x, y; };

// The coefficients of a cubic B-spline in x, y and z, two more along each axis than there are planes, rows and columns.
// Neighbours along x follow each other, so that a vector has a row of them. Along x and y there are as many as a ROI
// may reach to.
struct PsfLattice {
    const float* coefficients;
    int planes, rows, columns;
    int row_pitch, plane_pitch;
    float x, y, z;                 // where the PSF's centre is, from the first pixel and plane
    float planes_per_nm;           // along z
    float light;                   // the sum over a plane
    const PsfTemplate* templates;  // by z
    int template_count;
};

}  // namespace spotfit
