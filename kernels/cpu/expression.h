// A model of one's own on a CPU, as steps that are interpreted. Each step is done for some rows of
// pixels of all lanes at once, so that finding out what to do is not paid for at each pixel. What
// depends on the shape alone, on the column or on the row alone is worked out before,
// once for each trial. A GPU has the same program as C++, compiled when it is first needed.
//
// napari_spotfit/engine/cpu/expression.py makes the steps and places their numbers.
#pragma once
#include "../pixelwise.h"
#include "interface.h"

namespace spotfit::SPOTFIT_ISA {

// What logarithms and divisors take for 0: a derivative that is 0 times infinite at a single place
// is 0 there.
constexpr float NEARLY_ZERO = 1e-30f;

// What a step works on: a number for each place, or the same one for all.
template <class L> struct ForEach {
    const L* at;
    SPOTFIT_INLINE L operator[](int i) const { return at[i]; }
};
template <class L> struct ForAll {
    L same;
    SPOTFIT_INLINE explicit ForAll(const L* at) : same(*at) {}
    SPOTFIT_INLINE L operator[](int) const { return same; }
};
template <class L, class F, class... Operands>
SPOTFIT_INLINE void at_each(L* out, int n, F f, const Operands&... operands) {
    _Pragma("clang loop unroll(disable)") for (int i = 0; i < n; ++i) out[i] = f(operands[i]...);
}

// A step's operands and where its results go. Of two or three operands, at least one varies; of
// three, that is the first. Every operation is a function of its own, lest the constants of all
// are at hand for each.
template <class L> struct StepAt {
    L* out;
    const L *a, *b, *c;
    int n, varies;

    template <class F> __attribute__((noinline)) void unary(F f) const {
        if (varies & 1) at_each(out, n, f, ForEach<L>{a});
        else at_each(out, n, f, ForAll<L>(a));
    }
    template <class F> __attribute__((noinline)) void binary(F f) const {
        if ((varies & 3) == 3) at_each(out, n, f, ForEach<L>{a}, ForEach<L>{b});
        else if (varies & 1) at_each(out, n, f, ForEach<L>{a}, ForAll<L>(b));
        else at_each(out, n, f, ForAll<L>(a), ForEach<L>{b});
    }
    template <class F> __attribute__((noinline)) void ternary(F f) const {
        const ForEach<L> first = {a};
        switch (varies & 6) {
            case 6: return at_each(out, n, f, first, ForEach<L>{b}, ForEach<L>{c});
            case 4: return at_each(out, n, f, first, ForAll<L>(b), ForEach<L>{c});
            case 2: return at_each(out, n, f, first, ForEach<L>{b}, ForAll<L>(c));
            default: return at_each(out, n, f, first, ForAll<L>(b), ForAll<L>(c));
        }
    }
    SPOTFIT_INLINE void run(Operation operation) const {
        switch (operation) {
            case COPY: return unary([](L x) SPOTFIT_INLINE_LAMBDA { return x; });
            case NEGATE: return unary([](L x) SPOTFIT_INLINE_LAMBDA { return -x; });
            case ADD: return binary([](L x, L y) SPOTFIT_INLINE_LAMBDA { return x + y; });
            case SUBTRACT: return binary([](L x, L y) SPOTFIT_INLINE_LAMBDA { return x - y; });
            case MULTIPLY: return binary([](L x, L y) SPOTFIT_INLINE_LAMBDA { return x * y; });
            case DIVIDE: return binary([](L x, L y) SPOTFIT_INLINE_LAMBDA { return x / y; });
            case MULTIPLY_ADD:
                return ternary([](L x, L y, L z) SPOTFIT_INLINE_LAMBDA { return multiply_add(x, y, z); });
            case MULTIPLY_SUBTRACT:
                return ternary([](L x, L y, L z) SPOTFIT_INLINE_LAMBDA { return multiply_add(x, y, -z); });
            case SUBTRACT_PRODUCT:
                return ternary([](L x, L y, L z) SPOTFIT_INLINE_LAMBDA { return multiply_add(-x, y, z); });
            case EXPONENTIAL: return unary([](L x) SPOTFIT_INLINE_LAMBDA { return exponential(x); });
            case LOGARITHM: return unary([](L x) SPOTFIT_INLINE_LAMBDA { return logarithm(x); });
            case SQUARE_ROOT: return unary([](L x) SPOTFIT_INLINE_LAMBDA { return square_root(x); });
            case ABSOLUTE: return unary([](L x) SPOTFIT_INLINE_LAMBDA { return absolute(x); });
            case SIGN: return unary([](L x) SPOTFIT_INLINE_LAMBDA { return select(x < 0.0f, L(-1.0f), L(1.0f)); });
            case NONZERO: return unary([](L x) SPOTFIT_INLINE_LAMBDA { return select(x == 0.0f, L(NEARLY_ZERO), x); });
            case SINE: return unary([](L x) SPOTFIT_INLINE_LAMBDA { return sine(x); });
            case COSINE: return unary([](L x) SPOTFIT_INLINE_LAMBDA { return cosine(x); });
            case TANGENT: return unary([](L x) SPOTFIT_INLINE_LAMBDA { return tangent(x); });
            case HYPERBOLIC_TANGENT: return unary([](L x) SPOTFIT_INLINE_LAMBDA { return hyperbolic_tangent(x); });
            case ERROR_FUNCTION: return unary([](L x) SPOTFIT_INLINE_LAMBDA { return error_function(x); });
            case ARCTANGENT: return binary([](L x, L y) SPOTFIT_INLINE_LAMBDA { return arctangent(x, y); });
        }
    }
};

// Does steps for n places in each of some rows. `memory` has the numbers of an expression.
template <class L>
__attribute__((noinline)) void run_steps(const ExpressionStep* steps, int count, L* memory, int n, int row, int rows) {
    for (int i = 0; i < count; ++i) {
        const ExpressionStep& s = steps[i];
        const auto operation = static_cast<Operation>(s.operation);
        if (!s.by_row && s.varies == s.by_pixel) {  // as if it were one row
            StepAt<L>{memory + s.out, memory + s.a, memory + s.b, memory + s.c, rows * n, s.varies}.run(operation);
            continue;
        }
        for (int k = 0; k < rows; ++k) {
            const auto place = [&](int first, int operand) SPOTFIT_INLINE_LAMBDA {
                const int of_row = s.by_pixel & operand ? k * n : s.by_row & operand ? row + k : 0;
                return memory + first + of_row;
            };
            StepAt<L>{memory + s.out + k * n, place(s.a, 1), place(s.b, 2), place(s.c, 4), n, s.varies}.run(operation);
        }
    }
}

// A program has fewer parameters than SHAPE where no code has exactly its number: the others
// are held, and nothing depends on them.
template <int SHAPE_> struct Interpreted : AtPixels {
    static constexpr int SHAPE = SHAPE_;
    static constexpr bool EXPRESSION = true, INTERPRETED = true;
    static constexpr float INTEGRAL = 1.0f;  // what is integrated is the sum over the ROI
};

template <class Variant, class L, class Roi> struct PixelProfile<Variant, L, Roi, false, true, false> {
    const ExpressionProgram& program;
    L *memory, *results;
    int rows, columns, pitch;

    SPOTFIT_INLINE PixelProfile(Roi& roi, const L (&shape)[Variant::SHAPE], const FitSettings&)
        : program(*static_cast<const ExpressionProgram*>(roi.constants)), memory(roi.numbers), results(nullptr),
          rows(roi.own_lines()), columns(roi.own_columns()), pitch(program.pitch) {
        for (int i = 0; i < program.constant_count; ++i) memory[i] = L(program.constants[i]);
        for (int j = 0; j < program.parameters; ++j) memory[program.constant_count + j] = shape[j];
        for (int i = 0; i < columns; ++i) memory[program.x + i] = column_at<L>(roi, i);
        for (int k = 0; k < rows; ++k) memory[program.y + k] = L(float(roi.first_line() + k));
        for (int i = (1 + program.parameters) * pitch; i < (1 + Variant::SHAPE) * pitch; ++i)
            memory[program.results + i] = L(0.0f);
        const ExpressionStep* steps = program.steps;
        run_steps(steps, program.once, memory, 1, 0, 1);
        run_steps(steps += program.once, program.by_column, memory, columns, 0, 1);
        run_steps(steps + program.by_column, program.by_row, memory, rows, 0, 1);
    }
    SPOTFIT_INLINE void begin_line(int k) {
        const int row = k % program.rows_at_once, left = rows - k;
        results = memory + program.results + row * columns;
        if (row > 0) return;
        const ExpressionStep* steps = program.steps + program.once + program.by_column + program.by_row;
        const int count = left < program.rows_at_once ? left : program.rows_at_once;
        run_steps(steps, program.by_pixel, memory, columns, k, count);
    }
    SPOTFIT_INLINE L at(int i, L (&d)[Variant::SHAPE]) const {
        UNROLL
        for (int j = 0; j < Variant::SHAPE; ++j) d[j] = results[(1 + j) * pitch + i];
        return results[i];
    }
};

}  // namespace spotfit::SPOTFIT_ISA
