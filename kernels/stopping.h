// Every constant that decides where a fit stops, and the codes of why it did. The limits that a
// user sets (iterations, smallest change, smallest step) come as settings.
#pragma once

namespace spotfit::SPOTFIT_ISA {

// In the order of napari_spotfit.StopCondition; a fit under way has none.
constexpr float STOP_RUNNING = -1.0f, STOP_MAX_ITERATIONS = 0.0f, STOP_MAX_ERROR = 1.0f, STOP_MIN_DELTA = 2.0f,
                STOP_MIN_STEP = 3.0f, STOP_NO_DECREASE = 4.0f, STOP_INVALID = 5.0f;

// The damping: its first value, its factors after an accepted and a rejected step, and the
// value above which no further step is tried.
constexpr float INITIAL_DAMPING = 1e-2f, DAMPING_DECREASE = 0.1f, DAMPING_INCREASE = 10.0f, MAX_DAMPING = 1e4f;

// A step is not tried if the linear model expects it to settle the fit and if it is shorter than
// this along every parameter, in units of sigma. The model is believed after a decrease, with a
// damping of so much at most.
constexpr float SKIPPED_STEP = 3e-4f, SKIPPED_DAMPING = INITIAL_DAMPING;

// Rounding error of a residual in single precision, as a fraction of the ROI's range and of the
// amplitude. It makes chi-square uncertain by twice itself times the root of chi-square: smaller
// changes are noise of the arithmetic, and bright or noise-free spots would chase it in vain. Of
// a fit without noise rounding alone leaves a chi-square of about FLOOR n ROUNDING^2.
constexpr float ROUNDING = 1e-7f, ROUNDING_FLOOR = 20.0f;

// Maximum likelihood begins where least squares has settled to this fraction of chi-square, with
// an amplitude and a background of at least so much of the ROI's mean in photo-electrons; if it
// is bounded by 0, the background stays above this much of it, so that no pixel becomes
// impossible.
constexpr float LIKELIHOOD_DELTA = 1e-2f, FIRST_AMPLITUDE = 1e-2f, FIRST_BACKGROUND = 1e-1f, LEAST_BACKGROUND = 1e-4f;

// Of a measured PSF, a step along z goes no further than a part of the depth, and maximum likelihood knows no pixel
// with less light, in photo-electrons: splines ring below 0 where there is next to none.
constexpr float DEPTH_OF_STEP = 1.0f / 3.0f, LEAST_LIGHT = 1e-3f;

// A step of maximum likelihood is multiplied by what the one before has shown of the true
// curvature, within these factors, while the damping is low enough to be believed.
constexpr float SHORTEST_STRETCH = 0.5f, LONGEST_STRETCH = 2.5f;

// Own expressions may have parameters that nothing depends on at some places, such as the angle
// of a spot that gets round. Damped by their own curvature alone, their steps lead anywhere. So
// at least that curvature counts which would change the model by this share of itself, with the
// parameter or by 1.
constexpr float LEAST_CURVATURE = 0.1f;

// Below this share of a parameter's own curvature the normal matrix is singular to single
// precision: the parameter stays where it is, and there are no standard errors.
constexpr float SINGULAR = 1e-6f;

// With more pixels than this, the smallest change of chi-square that counts is that of this number
// of them: the more pixels there are, the smaller a fraction of chi-square the parameters'
// errors make. Rounding errors of more pixels than the second number average out.
constexpr float MIN_DELTA_PIXELS = 128.0f, ROUNDING_PIXELS = 1024.0f;

}  // namespace spotfit::SPOTFIT_ISA
