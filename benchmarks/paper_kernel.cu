// The fit as Leutenegger and Weber describe it, to be compared with: one block per spot,
// one thread per pixel, sums over the pixels by trees in shared memory. An iteration is
// two evaluations, the gradient with its full Jacobian and then a trial, which is repeated
// with more damping until it lowers χ². ROWS, COLUMNS, and the constants that decide where
// a fit stops, are macros.

constexpr int PIXELS = ROWS * COLUMNS;
constexpr int THREADS = (PIXELS + 31) / 32 * 32;
constexpr int SUMS = 9;
constexpr float SIGMA_LEAST = 0.25f, SIGMA_MOST = ROWS > COLUMNS ? ROWS : COLUMNS;

struct Shape {
    float x, y, sigma;
};

// The profile in this thread's pixel, and what follows from it for the whole ROI.
struct Point {
    Shape shape;
    float f, F, FF, FG, D, amplitude, background, residual, chi_square;
};

__device__ constexpr int half_of(int threads) {
    int half = 16;
    while (2 * half < threads) half *= 2;
    return half;
}

// Replaces each value by its sum over the block.
template <int COUNT>
__device__ void sum(float (&value)[COUNT], float (&shared)[SUMS][THREADS]) {
    static_assert(COUNT <= SUMS, "there is room for no more");
    const int i = threadIdx.x;
    for (int k = 0; k < COUNT; ++k) shared[k][i] = value[k];
    __syncthreads();
    for (int half = half_of(THREADS); half >= 32; half /= 2) {
        if (i < half && i + half < THREADS)
            for (int k = 0; k < COUNT; ++k) shared[k][i] += shared[k][i + half];
        __syncthreads();
    }
    if (i < 32)
        for (int half = 16; half > 0; half /= 2) {
            if (i < half)
                for (int k = 0; k < COUNT; ++k) shared[k][i] += shared[k][i + half];
            __syncwarp();
        }
    __syncthreads();
    for (int k = 0; k < COUNT; ++k) value[k] = shared[k][0];
    __syncthreads();
}

// The data's mean is 0, so that the terms with G = Σg drop out.
__device__ Point evaluate(Shape shape, float g, bool inside, float (&shared)[SUMS][THREADS]) {
    Point p;
    p.shape = shape;
    const float dx = threadIdx.x % COLUMNS - shape.x, dy = threadIdx.x / COLUMNS - shape.y;
    p.f = inside ? expf(-(dx * dx + dy * dy) / (2 * shape.sigma * shape.sigma)) : 0.0f;
    float sums[3] = {p.f, p.f * p.f, p.f * g};
    sum(sums, shared);
    p.F = sums[0], p.FF = sums[1], p.FG = sums[2];
    p.D = PIXELS * p.FF - p.F * p.F;
    p.amplitude = PIXELS * p.FG / p.D;
    p.background = -p.F * p.FG / p.D;
    p.residual = inside ? g - p.amplitude * p.f - p.background : 0.0f;
    float square[1] = {p.residual * p.residual};
    sum(square, shared);
    p.chi_square = square[0];
    return p;
}

// JᵀJ (xx, xy, xσ, yy, yσ, σσ) and then Jᵀr (x, y, σ).
__device__ void differentiate(const Point& p, float g, bool inside, float (&result)[9],
                              float (&shared)[SUMS][THREADS]) {
    const float dx = threadIdx.x % COLUMNS - p.shape.x, dy = threadIdx.x / COLUMNS - p.shape.y;
    const float weight = 1 / (p.shape.sigma * p.shape.sigma);
    const float f[3] = {p.f * dx * weight, p.f * dy * weight,
                        p.f * (dx * dx + dy * dy) * weight / p.shape.sigma};
    float sums[9];
    for (int j = 0; j < 3; ++j) {
        sums[j] = f[j];
        sums[3 + j] = 2 * p.f * f[j];
        sums[6 + j] = g * f[j];
    }
    sum(sums, shared);
    float J[3];
    for (int j = 0; j < 3; ++j) {
        const float F = sums[j], FF = sums[3 + j], FG = sums[6 + j];
        const float gamma = PIXELS * FF - 2 * p.F * F;
        const float amplitude = (PIXELS * FG - p.amplitude * gamma) / p.D;
        const float background = (-p.FG * F - p.F * FG - p.background * gamma) / p.D;
        J[j] = inside ? p.amplitude * f[j] + amplitude * p.f + background : 0.0f;
    }
    int k = 0;
    for (int i = 0; i < 3; ++i) {
        for (int j = i; j < 3; ++j) result[k++] = J[i] * J[j];
        result[6 + i] = J[i] * p.residual;
    }
    sum(result, shared);
}

// Solves (JᵀJ + λ diag JᵀJ) δ = Jᵀr by its LDLᵀ factors.
__device__ Shape damped_step(const float (&a)[9], float damping) {
    const float raised = 1 + damping;
    const float i_x = 1 / (a[0] * raised);
    const float l_y = a[1] * i_x, l_s = a[2] * i_x;
    const float i_y = 1 / (a[3] * raised - l_y * a[1]);
    const float m = a[4] - l_y * a[2], l_ys = m * i_y;
    const float i_s = 1 / (a[5] * raised - l_s * a[2] - l_ys * m);
    const float z_y = a[7] - l_y * a[6];
    const float sigma = (a[8] - l_s * a[6] - l_ys * z_y) * i_s;
    const float y = z_y * i_y - l_ys * sigma;
    return {a[6] * i_x - l_y * y - l_s * sigma, y, sigma};
}

__device__ float limited(float value, float low, float high) {
    return value < low ? low : value > high ? high : value;
}

__device__ Shape limited(Shape shape) {
    return {limited(shape.x, -0.5f, COLUMNS - 0.5f), limited(shape.y, -0.5f, ROWS - 0.5f),
            limited(shape.sigma, SIGMA_LEAST, SIGMA_MOST)};
}

__device__ bool is_small(Shape from, Shape to, float share) {
    return fabsf(to.x - from.x) < share * fabsf(from.x) &&
           fabsf(to.y - from.y) < share * fabsf(from.y) &&
           fabsf(to.sigma - from.sigma) < share * from.sigma;
}

// Results are columns of `count` values: y, x, σ, amplitude, background, χ².
template <typename Pixel>
__device__ void fit(const Pixel* spots, const float* start, int count, int max_iterations,
                    float min_delta, float min_step, float* results, unsigned short* iterations,
                    unsigned char* stop, float (&shared)[SUMS][THREADS]) {
    const long long spot = blockIdx.x;
    const bool inside = threadIdx.x < PIXELS;
    const float pixel = inside ? float(spots[spot * PIXELS + threadIdx.x]) : 0.0f;
    float mean[1] = {pixel};
    sum(mean, shared);
    mean[0] /= PIXELS;
    const float g = inside ? pixel - mean[0] : 0.0f;

    const Shape first = {start[3 * spot + 1], start[3 * spot], start[3 * spot + 2]};
    Point point = evaluate(limited(first), g, inside, shared);
    float damping = INITIAL_DAMPING;
    int iteration = 0, why = point.chi_square < 1e38f ? -1 : STOP_INVALID;
    while (why < 0) {
        ++iteration;
        float equations[9];
        differentiate(point, g, inside, equations, shared);
        Point trial;
        for (;;) {
            const Shape step = damped_step(equations, damping);
            trial = evaluate(limited({point.shape.x + step.x, point.shape.y + step.y,
                                      point.shape.sigma + step.sigma}),
                             g, inside, shared);
            if (trial.chi_square < point.chi_square) break;
            damping *= DAMPING_INCREASE;
            if (!(damping <= MAX_DAMPING)) {
                why = STOP_NO_DECREASE;
                break;
            }
        }
        if (why >= 0) break;
        damping *= DAMPING_DECREASE;
        if (point.chi_square - trial.chi_square < min_delta * point.chi_square)
            why = STOP_MIN_DELTA;
        else if (is_small(point.shape, trial.shape, min_step))
            why = STOP_MIN_STEP;
        else if (iteration >= max_iterations)
            why = STOP_MAX_ITERATIONS;
        point = trial;
    }
    if (threadIdx.x > 0) return;
    const float row[6] = {point.shape.y,   point.shape.x,
                          point.shape.sigma, point.amplitude,
                          point.background + mean[0], point.chi_square};
    for (int k = 0; k < 6; ++k) results[k * static_cast<long long>(count) + spot] = row[k];
    iterations[spot] = iteration;
    stop[spot] = why;
}

#define KERNEL(name, Pixel)                                                                    \
    extern "C" __global__ void __launch_bounds__(THREADS)                                      \
        name(const Pixel* spots, const float* start, int count, int max_iterations,            \
             float min_delta, float min_step, float* results, unsigned short* iterations,      \
             unsigned char* stop) {                                                            \
        __shared__ float shared[SUMS][THREADS];                                                \
        fit(spots, start, count, max_iterations, min_delta, min_step, results, iterations,     \
            stop, shared);                                                                     \
    }

KERNEL(fit_uint16, unsigned short)
KERNEL(fit_float32, float)
