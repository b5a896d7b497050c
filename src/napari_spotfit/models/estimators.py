"""The estimators: what a fit minimises, what it needs of image and camera, and when it stops."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import IntEnum
from typing import Literal

#: The names of :data:`ESTIMATORS`, which editors complete; a test compares the two.
EstimatorName = Literal["lse", "wlse", "mle"]
#: Defaults of the settings of the same names (Fit2DGaussian's, which allows 20 iterations: of dim
#: spots, and of crowded wide ones, a hundredth to a thirtieth needs more).
MAX_ITERATIONS = 50
MAX_ERROR = 0.0
MIN_DELTA = 1e-6
MIN_STEP = 1e-4

#: Rounding error of a residual in single precision, as a fraction of the ROI's range and of the
#: amplitude; as in kernels/stopping.h, where all constants of the search are.
ROUNDING = 1e-7

#: Bounds of σ in pixels where the settings leave them open. Below the lower one
#: a spot is a single pixel and its centre is undefined. The upper one is a
#: multiple of the ROI's longer side: wider spots are flat within the ROI.
SIGMA_MIN = 0.25
SIGMA_MAX_ROI = 1.0


@dataclass(frozen=True)
class Estimator:
    """Properties of an estimator on which code outside of the kernels depends."""

    name: str
    #: Its name for users, and in a sentence what it does and needs.
    words: str
    meaning: str
    #: Whether it is the likelihood of counts of photo-electrons, and not a sum of squares. The
    #: map of numbers for each pixel then holds read-out variances, and not weights.
    is_likelihood: bool = False
    #: Whether it needs a weight for each pixel, or the read-out variance whose inverse that is.
    needs_weights: bool = False
    #: Whether sums along the axes are enough for separable profiles: the fast path.
    is_separable: bool = False
    #: Unit of χ², empty where it has none.
    chi_unit: str = ""
    #: What must be known of image or camera, for messages.
    needs: str = ""

    @property
    def counted(self) -> float:
        """Value of a pixel without a weight or variance of its own, in the map of these."""
        return 0.0 if self.is_likelihood else 1.0

    @property
    def excluded(self) -> float:
        """Value of a pixel that is excluded from the fit, in the same map."""
        return math.nan if self.is_likelihood else 0.0

    @property
    def chi_is_of_residual(self) -> bool:
        """Whether χ² is the sum of the squared residuals in counts², and nothing else."""
        return self.chi_unit == "counts²"

    @property
    def chi_is_judged(self) -> bool:
        """Whether the noise predicts χ²."""
        return self.is_likelihood or self.chi_is_of_residual


ESTIMATORS: dict[str, Estimator] = {
    estimator.name: estimator
    for estimator in (
        Estimator(
            "lse",
            "least squares",
            "least squares, every pixel with the same weight.",
            is_separable=True,
            chi_unit="counts²",
        ),
        Estimator(
            "wlse",
            "weighted least squares",
            "least squares with the weights that are given.",
            needs_weights=True,
            needs="weights=…, one for each pixel, or the variance of the camera's pixels",
        ),
        Estimator(
            "mle",
            "maximum likelihood",
            "maximum likelihood of the photons' Poisson noise, the most precise; it needs the "
            "camera's offset and gain.",
            is_likelihood=True,
            needs="the camera's gain and offset",
        ),
    )
}


class StopCondition(IntEnum):
    """Why a fit stopped; UNKNOWN if another program found the spot and does not say it.

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
    UNKNOWN = 6

    @property
    def converged(self) -> bool:
        """Whether the fit ended in its minimum."""
        return self in CONVERGED

    @property
    def words(self) -> str:
        """The condition in a few words.

        Examples
        --------
        >>> StopCondition.MIN_DELTA.words
        'converged: χ² settled'
        """
        return _WORDS[self]

    @property
    def explanation(self) -> str:
        """The meaning of the condition, in one sentence."""
        return _EXPLANATIONS[self]

    @property
    def advice(self) -> str:
        """Advice on what to do about it, in one sentence."""
        return _ADVICE[self]


#: The conditions by their codes, as tables write them.
STOP_NAMES = tuple(StopCondition.__members__)

#: The conditions under which a fit sits in its minimum; their codes are neighbours.
CONVERGED = (StopCondition.MAX_ERROR, StopCondition.MIN_DELTA, StopCondition.MIN_STEP)

_WORDS = {
    StopCondition.MAX_ITERATIONS: "not converged: iterations used up",
    StopCondition.MAX_ERROR: "converged: χ² small enough",
    StopCondition.MIN_DELTA: "converged: χ² settled",
    StopCondition.MIN_STEP: "converged: parameters settled",
    StopCondition.NO_DECREASE: "not converged: χ² falls no further",
    StopCondition.INVALID: "not fitted",
    StopCondition.UNKNOWN: "found by another program",
}

_EXPLANATIONS = {
    StopCondition.MAX_ITERATIONS: "The iterations were used up before the fit settled.",
    StopCondition.MAX_ERROR: "χ² fell below the accepted error.",
    StopCondition.MIN_DELTA: "The last step changed χ², or the next one would, by less than "
    "the smallest change asked for.",
    StopCondition.MIN_STEP: "The last step moved every parameter by less than the smallest step.",
    StopCondition.NO_DECREASE: "No step lowers χ² further, although χ² still changes.",
    StopCondition.INVALID: (
        "The ROI has bad pixels, or some that are no numbers (NaN), is constant, or lies outside "
        "the image."
    ),
    StopCondition.UNKNOWN: (
        "Its table does not say how the fit ended, and nothing here has judged it."
    ),
}

_ADVICE = {
    StopCondition.MAX_ITERATIONS: "Allow more iterations; if the fit still does not settle, look "
    "whether there is a spot at all and whether the ROI size suits it.",
    StopCondition.MAX_ERROR: "Nothing to do, if the accepted χ² is the one you want.",
    StopCondition.MIN_DELTA: "Nothing to do.",
    StopCondition.MIN_STEP: "Nothing to do.",
    StopCondition.NO_DECREASE: "If the residual looks like noise the fit can be used; if it has a "
    "shape, try another ROI size.",
    StopCondition.INVALID: (
        "Name pixels that are no numbers as bad pixels, or choose a place where the image has a "
        "spot."
    ),
    StopCondition.UNKNOWN: "Fit the image here to have its spots judged.",
}
