// The search in one large ROI, on the host and in double precision: from the sums that others make
// of its pixels to the next request, by the same steps and rules as in many small ROIs at once.
//
// It begins with a look at the pixels in cells, in which initial_values.h finds the spot; where that
// is small, with another look around it.
#pragma once
#include "../large_roi.h"
#include "roi.h"

namespace spotfit::SPOTFIT_ISA {

// A spot that shows in fewer cells is looked at more closely, within at least this many of its
// sigmas and pixels.
constexpr double ENOUGH_CELLS = 80.0, SIGMAS_AROUND = 5.0, PIXELS_AROUND = 12.0;

// Rounding error of chi-square, or of the deviance, as a share of it. Where a model is flat, pixels
// with equal counts have equal rounding errors, which do not average out.
constexpr double HIDDEN = 4.0 * ROUNDING;

// Number of rows around the spot that the first amplitudes come from.
constexpr int ROWS_OF_GUESS = 64;

// Sums of rows that are one piece of work for a CPU; always the same, however many threads there are.
constexpr int PIECE_PIXELS = 1 << 16;

// Where a profile without pixels has its integral.
struct NoPixels {};

template <class Profile> struct LargeFit {
    using Squares = LargeSquares<Profile>;
    using Likelihood = LargeLikelihood<Profile>;
    using Sums = PixelSums<Squares, double>;
    static constexpr int S = Profile::SHAPE, N = S + 2, F = S, ONE = S + 1;
    static constexpr int VALUES = S + 5, ERRORS = N + 1;

    LargeRequest request;
    double values[VALUES], errors[ERRORS];  // results, in the order of outputs.h
    double stop, iterations;

  private:
    enum Phase { LOOKING, GUESSING, SQUARES, LIKELIHOOD, INTEGRATING, INFORMING, SPREADING } phase;
    FitSettings settings, squares_settings;
    bool likelihood, fixed_origin, looked;
    double rows_of_state[StateRows<Likelihood>::COUNT];
    Search<double, S> squares;
    Search<double, N> likeliest;
    double given[S], start[S];  // the caller's start, NaN where there is none; and the search's
    double mean_light;          // of a pixel, in photo-electrons
    double shift;               // the mean of the pixels, in their own unit
    double chi, integral, slopes[S];
    Matrix<double, N> information;  // A of standard_errors.h, of the best point
    int planes;
    float cells[2 * MOST_CELLS];

    State<double> state() { return {rows_of_state}; }

  public:
    // `own_start` are the shape parameters in the array's order, or null; `level` a number near the pixels, NaN of a
    // ROI outside of the frames.
    void begin(int rows, int columns, const FitSettings& all, bool is_likelihood, int planes_are,
               bool origin_is_first_pixel, const float* own_start, double level) {
        settings = all;
        likelihood = is_likelihood, fixed_origin = origin_is_first_pixel, looked = false;
        request = {};
        request.rows = rows, request.columns = columns, request.planes = planes_are;
        request.level = level, request.scale = 1.0, request.weight = 1.0f;
        for (int j = 0; j < S; ++j) given[j] = own_start ? own_start[other_order<Profile>(j)] : NOT_A_NUMBER;
        if constexpr (Profile::ROTATED) given[Profile::ANGLE] /= DEGREES;
        for (int j = 0; j < S; ++j)  // held at a number
            if (is_held<Squares>(settings, j) && settings.low[j] == settings.high[j]) given[j] = settings.low[j];
        stop = STOP_INVALID, iterations = 0.0;
        for (double& value : values) value = NOT_A_NUMBER;
        for (double& error : errors) error = NOT_A_NUMBER;
        phase = LOOKING;
        if (level == level) ask_for_cells(0, 0, rows, columns);
    }

    // Takes the numbers that were asked for, and asks for the next ones.
    void take(const double* numbers, int pieces) {
        if (phase == LOOKING) return look(numbers);
        Sums sums = {};
        double total = 0.0;
        for (int piece = 0; piece < pieces; ++piece, numbers += sums_of_shape(S)) add(numbers, sums, total);
        switch (phase) {
            case GUESSING: return guess(sums);
            case SQUARES: return step(sums, total);
            case LIKELIHOOD: return step_likelihood(sums, total);
            case INTEGRATING: return integrate(sums);
            case INFORMING: return write_errors_from(sums);
            default: return spread(sums);
        }
    }

  private:
    static void add(const double* numbers, Sums& sums, double& total) {
        for (double& sum : sums.s.a) sum += *numbers++;
        for (double& sum : sums.s.b) sum += *numbers++;
        total += *numbers;
    }

    // For the sums of some rows; the pieces are never empty.
    void ask(LargeTask task, int first_row, int end_row) {
        request.task = task;
        request.first_row = first_row, request.end_row = end_row;
        request.pieces = pieces_of(end_row - first_row, request.columns);
        request.numbers = request.pieces * sums_of_shape(S);
    }
    static int pieces_of(int rows, int columns) {
        const long long pieces = (1LL * rows * columns + PIECE_PIXELS - 1) / PIECE_PIXELS;
        return pieces < rows ? int(pieces) : rows;
    }

    void ask_for_cells(int top, int left, int rows, int columns) {
        const int longer = rows > columns ? rows : columns, shorter = rows > columns ? columns : rows;
        int cell = (longer + CELLS_ALONG - 1) / CELLS_ALONG;
        if (cell > shorter / LEAST_CELLS) cell = shorter / LEAST_CELLS > 0 ? shorter / LEAST_CELLS : 1;
        request.task = CELLS;
        request.top = top, request.left = left, request.cell = cell;
        request.cell_rows = (rows + cell - 1) / cell, request.cell_columns = (columns + cell - 1) / cell;
        const int pieces = pieces_of(rows, columns);
        request.pieces = pieces < request.cell_rows ? pieces : request.cell_rows;
        request.numbers = request.cell_rows * request.cell_columns * NUMBERS_OF_CELL;
    }

    // Asks for sums at a point, about some amplitudes.
    void ask_at(LargeTask task, const double* shape, double amplitude, double background) {
        ask(task, 0, request.rows);
        request.angle_convention = settings.angle_convention;
        request.origin_x = fixed_origin ? 0 : int(nearest(shape[0]));
        request.origin_y = fixed_origin ? 0 : int(nearest(shape[1]));
        for (int j = 0; j < S; ++j) request.shape[j] = float(shape[j]);
        request.shape[0] = float(shape[0] - request.origin_x), request.shape[1] = float(shape[1] - request.origin_y);
        request.amplitude = float(amplitude), request.background = float(background + shift);
    }

    // ---- initial values ----

    void look(const double* numbers) {
        if (!looked && !measure(numbers)) return end();
        looked = true;
        const int count = request.cell_rows * request.cell_columns, cell = request.cell;
        for (int c = 0; c < count; ++c) {
            const bool counts = numbers[c * NUMBERS_OF_CELL] > 0;
            cells[c] = counts ? float(numbers[c * NUMBERS_OF_CELL + 3] * state()[SCALE]) : 0.0f;
            cells[MOST_CELLS + c] = counts ? 1.0f : 0.0f;
        }
        TileRoi<float> roi = {request.cell_rows,
                              request.cell_rows,
                              request.cell_columns,
                              cells,
                              cells + MOST_CELLS,
                              nullptr,
                              nullptr,
                              nullptr,
                              nullptr,
                              nullptr,
                              nullptr,
                              nullptr,
                              false};
        float cell_rows[POINT] = {};
        const PixelSummary<float> seen = normalise_pixels<Squares, float>(roi, State<float>{cell_rows});
        const double half = 0.5 * (cell - 1), unit[] = {1.0, 1.0 / cell};
        float own[S];
        for (int j = 0; j < S; ++j) own[j] = float(given[j] * unit[is_length(j)]);
        own[0] = float((given[0] - request.left - half) / cell), own[1] = float((given[1] - request.top - half) / cell);
        if (is_nan(own[0]) || is_nan(own[1])) {
            float place[2];
            brightest_pixel(roi, place);
            for (int axis = 0; axis < 2; ++axis)
                if (is_nan(own[axis])) own[axis] = place[axis];
        }
        const double sigma = square_root(double(seen.bright) / PI);
        const double x = request.left + half + cell * double(own[0]), y = request.top + half + cell * double(own[1]);
        if (cell > 1 && seen.bright < ENOUGH_CELLS && look_closer(x, y, sigma * cell)) return;
        if constexpr (Profile::ROTATED) rotated_start<Squares>(roi, seen.lowest, float(sigma), settings, own);
        begin_at(x, y, sigma * cell, own);
    }

    static bool is_length(int j) {
        if constexpr (Profile::ROTATED) return j == Profile::ALONG || j == Profile::ACROSS;
        else return false;
    }

    // Level, range and number of pixels, from the cells; whether they can be fitted.
    bool measure(const double* numbers) {
        double count = 0.0, low = INFINITE, high = -INFINITE, total = 0.0, weights = 0.0;
        for (int c = 0; c < request.cell_rows * request.cell_columns; ++c, numbers += NUMBERS_OF_CELL) {
            count += numbers[0];
            low = lower_of(numbers[1], low);
            high = higher_of(numbers[2], high);
            if (numbers[0] > 0.0) total += numbers[0] * numbers[3];
            weights += numbers[4];
        }
        const double mean = total / count, scale = 1.0 / (high - low);
        const State<double> s = state();
        s[SCALE] = scale, s[LEVEL] = request.level + mean;
        s[VALID] = count, s[WEIGHT] = likelihood ? 1.0 : count / weights;
        s[FLOOR] = s[NORM] = 0.0;
        const double dark = request.level - settings.dark;
        mean_light = higher_of(mean + dark, (high + dark) / count) / settings.gain;
        settings.min_delta *= float(lower_of(1.0, MIN_DELTA_PIXELS / count));
        squares_settings = settings;
        if (likelihood) {
            squares_settings.max_error = 0.0f;
            squares_settings.min_delta = higher_of(settings.min_delta, LIKELIHOOD_DELTA);
        }
        return count > settings.fitted && scale > 0.0 && scale < INFINITE && absolute(mean) < INFINITE &&
               (!likelihood || mean_light > 0.0);
    }

    // Asks for a part of the pixels around a small spot, if that is a part.
    bool look_closer(double x, double y, double sigma) {
        const int before = request.cell;
        const double reach = higher_of(SIGMAS_AROUND * sigma, PIXELS_AROUND);
        const int top = int(clamp(y - reach, 0.0, double(request.rows - 1)));
        const int left = int(clamp(x - reach, 0.0, double(request.columns - 1)));
        const int bottom = int(clamp(y + reach + 1.0, top + 1.0, double(request.rows)));
        const int right = int(clamp(x + reach + 1.0, left + 1.0, double(request.columns)));
        const LargeRequest kept = request;
        ask_for_cells(top, left, bottom - top, right - left);
        if (request.cell < before && request.cell_rows >= LEAST_CELLS && request.cell_columns >= LEAST_CELLS)
            return true;
        request = kept;
        return false;
    }

    void begin_at(double x, double y, double sigma, const float (&own)[S]) {
        const double cell = request.cell;
        for (int j = 0; j < S; ++j) {
            start[j] = is_length(j) ? own[j] * cell : own[j];
            if (is_nan(start[j])) start[j] = sigma * settings.start_per_sigma[j] + settings.start[j];
        }
        start[0] = is_nan(given[0]) ? x : given[0], start[1] = is_nan(given[1]) ? y : given[1];
        for (int j = 0; j < S; ++j) start[j] = clamp(start[j], double(settings.low[j]), double(settings.high[j]));
        request.level = state()[LEVEL], request.scale = state()[SCALE], request.weight = float(state()[WEIGHT]);
        // The centre may be thousands of pixels from the first one: no larger a share of that is a small
        // step than of the spot's width.
        const float share = float(lower_of(1.0, sigma / higher_of(absolute(start[0]), absolute(start[1]))));
        settings.min_step *= share, squares_settings.min_step *= share;
        shift = 0.0;
        phase = GUESSING;
        ask_at(RESIDUALS, start, 0.0, 0.0);
        const int most = request.rows < ROWS_OF_GUESS ? request.rows : ROWS_OF_GUESS;
        const int first = int(clamp(start[1] - most / 2, 0.0, double(request.rows - most)));
        ask(RESIDUALS, first, first + most);
    }

    // ---- least squares ----

    // Sums of w g d, where the mean of g is 0, from those of residuals.
    void to_data(Sums& sums) const {
        const double amplitude = request.amplitude, background = request.background - shift;
        for (int i = 0; i <= ONE; ++i) {
            const double with_f = i <= F ? sums.s.at(i, F) : sums.s.at(F, ONE);
            sums.s.b[i] += amplitude * with_f + background * sums.s.at(i, ONE);
        }
    }

    // The first amplitudes, about which residuals are taken: these need not be the best ones.
    void guess(const Sums& sums) {
        const double n = sums.s.at(ONE, ONE), f = sums.s.at(F, ONE), mean = sums.s.b[ONE] / n;
        const Amplitudes<double> a = free_amplitudes(n, f, sums.s.at(F, F), sums.s.b[F] - mean * f);
        start_search<Squares>(squares, state(), start, true);
        const bool known = absolute(a.amplitude) < INFINITE && absolute(a.background) < INFINITE;
        state()[POINT + S] = known ? a.amplitude : 0.0;
        state()[POINT + S + 1] = known ? a.background + mean : 0.0;
        phase = SQUARES;
        ask_for_trial();
    }

    // All pixels make their mean.
    void find_shift(const Sums& sums) {
        const double n = sums.s.at(ONE, ONE);
        shift = (sums.s.b[ONE] + request.amplitude * sums.s.at(F, ONE)) / n + request.background;
        state()[LEVEL] += shift / state()[SCALE];
    }

    void ask_for_trial() { ask_at(RESIDUALS, squares.trial, state()[POINT + S], state()[POINT + S + 1]); }

    void step(Sums& sums, double total) {
        const double n = sums.s.at(ONE, ONE), f = sums.s.at(F, ONE), ff = sums.s.at(F, F);
        const double r_f = sums.s.b[F], r = sums.s.b[ONE], before = squares.chi;
        if (squares.iterations < 0.0) find_shift(sums);
        to_data(sums);
        const Amplitudes<double> a = amplitudes_of(n, f, ff, sums.s.b[F], state(), squares_settings);
        // Chi-square of the best amplitudes from that of those before.
        const double by_a = a.amplitude - request.amplitude, by_b = a.background - (request.background - shift);
        const double chi_square = total + by_a * (by_a * ff - 2.0 * r_f) + by_b * (by_b * n - 2.0 * r + 2.0 * by_a * f);
        Equations<double, S> equations;
        weighted_equations<Squares>(sums, a, squares_settings, equations);
        const Outcome<double> trial = {believed(higher_of(chi_square, 0.0), squares),
                                       a.amplitude,
                                       a.background,
                                       a.amplitude * a.amplitude,
                                       rounding_error<Squares>(a.amplitude, a.background),
                                       counted_pixels(),
                                       squares_settings.max_error * square(state()[SCALE]) * state()[WEIGHT],
                                       ff};
        accept_or_reject<Squares>(squares, state(), squares_settings, bounds_of_all<Squares>(state(), settings), trial,
                                  equations);
        if (squares.chi < before) fill_matrix<Squares>(sums, information);
        if (squares.stop < 0.0) return ask_for_trial();
        stop = squares.stop, iterations = squares.iterations, chi = squares.chi;
        if (likelihood) return begin_likelihood();
        finish();
    }

    // Chi-square of a trial. Where rounding hides what its step changes, the step is believed: it comes
    // from gradients, which do not suffer from that.
    template <int M> static double believed(double trial, const Search<double, M>& search) {
        const double hidden = HIDDEN * search.chi;
        const bool is_hidden = search.iterations >= 0.0 && absolute(trial - search.chi) <= hidden &&
                               search.expected > 0.0 && search.expected <= hidden;
        return is_hidden ? search.chi - search.expected : trial;
    }

    // Rounding errors of more pixels average out.
    double counted_pixels() { return lower_of(state()[VALID], double(ROUNDING_PIXELS)); }

    // ---- maximum likelihood ----

    void begin_likelihood() {
        start_likelihood<Likelihood>(state(), mean_light, stop, settings, likeliest);
        shift = 0.0;
        request.level = settings.dark, request.scale = state()[SCALE];
        phase = LIKELIHOOD;
        if (likeliest.stop >= 0.0) return end_likelihood();
        ask_for_likelihood();
    }

    void ask_for_likelihood() { ask_at(DEVIANCE, likeliest.trial, likeliest.trial[S], likeliest.trial[S + 1]); }

    void step_likelihood(const Sums& sums, double deviance) {
        PixelSums<Likelihood, double> own;
        own.s = sums.s;
        Equations<double, N> equations;
        const Outcome<double> trial = likelihood_outcome<Likelihood>(
            own, believed(deviance, likeliest), likeliest.trial, counted_pixels(), settings, equations);
        accept_or_reject<Likelihood>(likeliest, state(), settings, bounds_of_all<Likelihood>(state(), settings), trial,
                                     equations);
        if (likeliest.stop < 0.0) return ask_for_likelihood();
        end_likelihood();
    }

    void end_likelihood() {
        stop = likeliest.stop, iterations = likeliest.iterations, chi = likeliest.chi;
        finish();
    }

    // ---- results ----

    void end() { request.task = NOTHING; }

    void finish() {
        if (stop >= STOP_INVALID) return end();
        if constexpr (Profile::ROTATED) turn_information();
        if constexpr (Profile::EXPRESSION) {
            phase = INTEGRATING;
            ask_at(RESIDUALS, &state()[POINT], 0.0, 0.0);
            planes = request.planes, request.planes = 0;
        } else {
            const NoPixels none;
            double shape[S];
            for (int j = 0; j < S; ++j) shape[j] = state()[POINT + j];
            integral = profile_integral<Squares>(none, shape, settings, slopes);
            write();
        }
    }

    // Gives the axes their names in the results, and makes the derivative by a shear one by the angle.
    void turn_information() {
        constexpr int X = Profile::ALONG, Y = Profile::ACROSS, ANGLE = Profile::ANGLE;
        const double along = state()[POINT + X], across = state()[POINT + Y];
        if (settings.angle_convention == 2)
            for (int j = 0; j < N; ++j) {
                information[ANGLE][j] *= along - across;
                information[j][ANGLE] *= along - across;
            }
        make_canonical<Squares>(state(), settings);
        if (state()[POINT + X] != along)
            for (int j = 0; j < N; ++j) exchange(information[X][j], information[Y][j]);
        if (state()[POINT + X] != along)
            for (int j = 0; j < N; ++j) exchange(information[j][X], information[j][Y]);
        if (settings.angle_convention == 2) settings.angle_convention = 1;
    }
    static void exchange(double& a, double& b) {
        const double kept = a;
        a = b, b = kept;
    }

    void integrate(const Sums& sums) {
        request.planes = planes;
        integral = sums.s.at(F, ONE);
        for (int j = 0; j < S; ++j) slopes[j] = sums.s.at(j, ONE) / integral;
        write();
    }

    double freedom() { return higher_of(state()[VALID] - settings.fitted, 1.0); }

    void write() {
        if (likelihood) values_of<Likelihood>(state(), chi, stop, integral, freedom(), settings, values);
        else values_of<Squares>(state(), chi, stop, integral, freedom(), settings, values);
        if (!settings.errors) return end();
        if (!likelihood) return inform();
        phase = INFORMING;
        ask_at(FISHER, &state()[POINT], state()[POINT + S], state()[POINT + S + 1]);
    }

    void inform() {
        if (!settings.noise_known) return write_errors(Matrix<double, N>{});
        const PixelNoise<double> noise = pixel_noise<Squares>(state(), settings);
        phase = SPREADING;
        ask_at(NOISE, &state()[POINT], state()[POINT + S], state()[POINT + S + 1]);
        request.peak = float(noise.peak), request.flat = float(noise.flat);
        request.scale_squared = float(noise.scale_squared);
    }

    void spread(const Sums& sums) {
        Matrix<double, N> noise;
        fill_matrix<Squares>(sums, noise);
        write_errors(noise);
    }

    void write_errors_from(const Sums& fisher) {
        fill_matrix<Squares>(fisher, information);
        write_errors(Matrix<double, N>{});
    }

    void write_errors(const Matrix<double, N>& noise) {
        const bool sandwich = settings.noise_known && !likelihood;
        if (likelihood)
            errors_of<Likelihood>(state(), chi, stop, information, noise, false, integral, slopes, freedom(), settings,
                                  errors);
        else
            errors_of<Squares>(state(), chi, stop, information, noise, sandwich, integral, slopes, freedom(), settings,
                               errors);
        end();
    }
};

}  // namespace spotfit::SPOTFIT_ISA
