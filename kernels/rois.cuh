// Where the pixels and the start values come from.
struct Rois {
    const PIXEL* frames;
    long long height, width;   // of a frame
    const long long* corners;  // frame, first row and first column, if they are gathered
    const float* start;        // y, x, widths; NaN, or null, asks for the built-in value
};
