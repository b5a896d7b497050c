"""The estimators: what a fit minimises, and what it needs of image and camera."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

#: The names of :data:`ESTIMATORS`, which editors complete; a test compares the two.
EstimatorName = Literal["lse", "wlse", "mle"]


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
