// Localisations that are drawn into pictures.
#pragma once

namespace spotfit {

// Pixels along the sides of a tile, which one thread draws at a time, and how many sums lie in a row of it: those
// that are drawn beyond its right side are not used.
constexpr int RENDER_TILE = 128;
constexpr int RENDER_STRIDE = 136;

// Localisations by the cells that they lie in, row by row of cells; those of a cell are in the order of the table.
// Positions count from an origin in pixels of the camera, in steps.
struct CellIndex {
    double origin_y, origin_x, step;
    double side;  // of a cell, in pixels of the camera
    int cell_rows, cell_columns;
    const unsigned* first;  // the first localisation of each cell, and one more number
    const float* reach;     // how far the light of a cell's localisations goes, in pixels of the camera
    float largest_reach;
    const unsigned *y, *x;
    const float *sigma_y, *sigma_x;  // in pixels of the camera; null: each lies in one pixel
    const float *z, *sigma_z;        // of volumes, else null; from the first plane's side on
    const unsigned char* shown;      // null: all are
    const unsigned char* color;      // of each, a row of the palette; null: pictures have one channel
    const float* palette;            // red, green and blue
};

// Rows of a table that are sorted into cells.
struct IndexedRows {
    const double *y, *x;
    const double* z;                           // null for pictures
    const float *sigma_y, *sigma_x, *sigma_z;  // may be null
    float most_y, most_x, most_z;              // the largest widths; others are made as narrow
    // Those within are sorted, others left out.
    double first_y, last_y, first_x, last_x;
    unsigned *to_y, *to_x;  // are written, as `row`, the row that each came from
    float *to_sigma_y, *to_sigma_x, *to_z, *to_sigma_z;
    unsigned* row;
};

// A part of a picture, or of a plane of a volume. Its pixel (0, 0) begins at the corner of the camera's first one.
struct PicturePart {
    double scale_y, scale_x;  // pixels of the picture per pixel of the camera
    double scale_z;           // planes per unit of z
    int plane;
    int first_row, first_column, rows, columns;
    float least_sigma;  // in pixels of the picture
    float unit;         // what the sum of a pixel is multiplied by
    float* pixels;      // are written
};

}  // namespace spotfit
