// A measured PSF as the kernels read it; napari_spotfit/engine/kernel_arguments.py fills it in.
#pragma once

namespace spotfit {

// The coefficients of a cubic B-spline in x, y and z, two more along each axis than there are planes, rows and columns.
// Neighbours along x follow each other, so that a vector has a row of them. Along x and y there are as many as a ROI
// may reach to.
struct PsfLattice {
    const float* coefficients;
    int planes, rows, columns;
    int row_pitch, plane_pitch;
    float x, y, z;        // where the PSF's centre is, from the first pixel and plane
    float planes_per_nm;  // along z
    float light;          // the sum over a plane
    // Templates: z in nm where searches may begin, x and y of the light from the centre there, three numbers each; and
    // the PSF at that z, an image of 2 rows + 1 by 2 columns + 1 pixels of a ROI, centred in its middle.
    const float *template_z, *template_images;
    int template_count, has_lobes;  // whether there is a maximum of the light away from the centre
};

}  // namespace spotfit
