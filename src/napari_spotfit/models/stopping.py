"""Where a fit stops: every constant and every stop condition, for both backends."""

from __future__ import annotations

from enum import IntEnum

#: Defaults of the settings of the same names (Fit2DGaussian's).
MAX_ITERATIONS = 20
MAX_ERROR = 0.0
MIN_DELTA = 1e-6
MIN_STEP = 1e-4

#: The damping λ: its first value, its factors after an accepted and a rejected
#: step, and the value above which no further step is tried.
INITIAL_DAMPING = 1e-2
DAMPING_DECREASE = 0.1
DAMPING_INCREASE = 10.0
MAX_DAMPING = 1e4

#: A step is not tried if the linear model expects it to settle the fit and if it is
#: shorter than this along every parameter, in units of σ. The model is believed after a
#: decrease, with a damping of so much at most.
SKIPPED_STEP = 3e-4
SKIPPED_DAMPING = INITIAL_DAMPING

#: Rounding error of a residual in single precision, as a fraction of the ROI's range
#: and of the amplitude.
#: It makes χ² uncertain by twice itself times √χ²: smaller changes are noise of the
#: arithmetic, and bright or noise-free spots would chase it in vain.
ROUNDING = 1e-7
#: Of a fit without noise rounding alone leaves a χ² of about this many times n · ROUNDING².
ROUNDING_FLOOR = 20.0

#: Maximum likelihood begins where least squares has settled to this fraction of χ², ...
LIKELIHOOD_DELTA = 1e-2
#: ... with an amplitude and a background of at least so much of the ROI's mean in
#: photo-electrons; if it is bounded by 0, the background stays above this much of it, so that
#: no pixel becomes impossible.
FIRST_AMPLITUDE, FIRST_BACKGROUND, LEAST_BACKGROUND = 1e-2, 1e-1, 1e-4

#: With more pixels than this, ``min_delta`` is of the χ² of so many of them: the more pixels
#: there are, the smaller a fraction of χ² the parameters' errors make.
MIN_DELTA_PIXELS = 128
#: Rounding errors of more pixels than this average out.
ROUNDING_PIXELS = 1024

#: A step of maximum likelihood is multiplied by what the one before has shown of the true
#: curvature, within these factors, while the damping is low enough to be believed.
SHORTEST_STRETCH, LONGEST_STRETCH = 0.5, 2.5

#: Models from expressions may have parameters that nothing depends on at some places, such as
#: the angle of a spot that gets round. Damped by their own curvature alone, their steps lead
#: anywhere. So at least that curvature counts which would change the model by this share of
#: itself, with the parameter or by 1.
LEAST_CURVATURE = 0.1

#: Below this share of a parameter's own curvature the normal matrix is singular to
#: single precision, and there are no standard errors.
SINGULAR = 1e-6

#: Bounds of σ in pixels where the settings leave them open. Below the lower one
#: a spot is a single pixel and its centre is undefined. The upper one is a
#: multiple of the ROI's longer side: wider spots are flat within the ROI.
SIGMA_MIN = 0.25
SIGMA_MAX_ROI = 1.0


class StopCondition(IntEnum):
    """Why a fit stopped.

    Examples
    --------
    >>> from napari_spotfit import StopCondition
    >>> StopCondition(2).name
    'MIN_DELTA'
    >>> StopCondition.MIN_DELTA.converged
    True
    """

    MAX_ITERATIONS = 0
    MAX_ERROR = 1
    MIN_DELTA = 2
    MIN_STEP = 3
    NO_DECREASE = 4
    INVALID = 5

    @property
    def converged(self) -> bool:
        """Whether the fit ended in its minimum."""
        return self in CONVERGED

    @property
    def explanation(self) -> str:
        """One sentence that says what the condition means."""
        return _EXPLANATIONS[self]

    @property
    def advice(self) -> str:
        """One sentence that says what to do about it."""
        return _ADVICE[self]


#: The conditions under which a fit sits in its minimum; their codes are neighbours.
CONVERGED = (StopCondition.MAX_ERROR, StopCondition.MIN_DELTA, StopCondition.MIN_STEP)

_EXPLANATIONS = {
    StopCondition.MAX_ITERATIONS: "The iterations were used up before the fit settled.",
    StopCondition.MAX_ERROR: "χ² fell below the accepted error.",
    StopCondition.MIN_DELTA: "The last step changed χ², or the next one would, by less than "
    "the smallest change asked for.",
    StopCondition.MIN_STEP: "The last step moved every parameter by less than the smallest step.",
    StopCondition.NO_DECREASE: "No step lowers χ² further, although χ² still changes.",
    StopCondition.INVALID: "The ROI has bad pixels, is constant, or lies outside the image.",
}

_ADVICE = {
    StopCondition.MAX_ITERATIONS: "Allow more iterations; if the fit still does not settle, look "
    "whether there is a spot at all and whether the ROI size suits it.",
    StopCondition.MAX_ERROR: "Nothing to do, if the accepted χ² is the one you want.",
    StopCondition.MIN_DELTA: "Nothing to do.",
    StopCondition.MIN_STEP: "Nothing to do.",
    StopCondition.NO_DECREASE: "If the residual looks like noise the fit can be used; if it has a "
    "shape, try another ROI size.",
    StopCondition.INVALID: "Replace bad pixels, or choose a place where the image has a spot.",
}
