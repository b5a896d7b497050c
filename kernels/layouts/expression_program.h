// A model given as an expression, as the steps that a CPU does; napari_spotfit/engine/cpu/expression.py makes them.
#pragma once

namespace spotfit {

// Numbers of shape parameters that code is compiled for; an expression runs that of the next size. Their numbers as
// profiles come after those of the built-in ones.
constexpr int EXPRESSION_SIZES[] = {3, 4, 5, 6, 8, 12};

enum Operation : unsigned char {
    COPY,
    NEGATE,
    ADD,
    SUBTRACT,
    MULTIPLY,
    DIVIDE,
    MULTIPLY_ADD,
    MULTIPLY_SUBTRACT,
    SUBTRACT_PRODUCT,
    EXPONENTIAL,
    LOGARITHM,
    SQUARE_ROOT,
    ABSOLUTE,
    SIGN,
    NONZERO,
    SINE,
    COSINE,
    TANGENT,
    HYPERBOLIC_TANGENT,
    ERROR_FUNCTION,
    ARCTANGENT
};

// One step of an expression's program. Its numbers are in the memory of the expression, at places
// in units of lanes. An operand is the same for all pixels, or it has numbers for columns, rows or
// pixels; bits 1, 2 and 4 are for the operands a, b and c.
struct ExpressionStep {
    unsigned char operation;  // an Operation
    unsigned char varies;     // those with a number for each place that the step is done for
    unsigned char by_row;     // of a step for pixels: those with a number for each row
    unsigned char by_pixel;   // of a step for pixels: those with a number for each pixel
    int out, a, b, c;
};

// An expression and its derivatives, for ROIs of one size. Constants come first in its memory, then
// the shape parameters.
struct ExpressionProgram {
    const ExpressionStep* steps;  // done once, for all columns, for all rows, for pixels
    int once, by_column, by_row, by_pixel;
    const float* constants;
    int constant_count, parameters;
    int x, y;     // where the columns' and the rows' numbers are
    int results;  // f at the pixels of some rows, and its derivatives behind
    int rows_at_once;
    int pitch;         // how far the results are apart
    int fixed_origin;  // whether it depends on where it is in a ROI, not only on how far from the centre
};

}  // namespace spotfit
