"""The models: the names, units and meaning of their shape parameters."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
#: f at rows y and columns x, for shape parameters by name.
Profile = Callable[[Array, Array, Mapping[str, float]], Array]


@dataclass(frozen=True)
class ShapeParameter:
    """One parameter that the fit iterates."""

    name: str
    unit: str
    meaning: str


@dataclass(frozen=True)
class Model:
    """A spot model h = amplitude · f(shape) + background.

    Amplitude and background are implicit in every least-squares fit (variable
    projection), so a model is told apart by its shape parameters alone.
    """

    name: str
    shape: tuple[ShapeParameter, ...]
    profile: Profile

    @property
    def parameter_count(self) -> int:
        """Number of fitted parameters, amplitude and background included."""
        return len(self.shape) + 2

    def evaluate(self, y: Array, x: Array, parameters: Mapping[str, float]) -> Array:
        """Return h at rows and columns in pixels, which may lie between the pixels' centres.

        Parameters
        ----------
        y, x : ndarray
            Where, in pixels; they are broadcast against each other.
        parameters : mapping of str to float
            The shape parameters, ``amplitude`` and ``background``, by name.

        Returns
        -------
        ndarray of float64
            h in counts, without the camera offset.

        Examples
        --------
        >>> from napari_spotfit.models import GAUSSIAN
        >>> top = {"y": 3, "x": 4, "sigma": 1.3, "amplitude": 50, "background": 7}
        >>> float(GAUSSIAN.evaluate(3.0, 4.0, top))
        57.0
        """
        return parameters["amplitude"] * self.profile(y, x, parameters) + parameters["background"]


CENTER = (
    ShapeParameter("y", "px", "centre along the image's rows axis"),
    ShapeParameter("x", "px", "centre along the image's columns axis"),
)


def _gaussian(y: Array, x: Array, parameters: Mapping[str, float]) -> Array:
    square = (y - parameters["y"]) ** 2 + (x - parameters["x"]) ** 2
    return np.asarray(np.exp(-square / (2 * parameters["sigma"] ** 2)))


#: f = exp(-((x - x̄)² + (y - ȳ)²) / 2σ²), sampled at the pixel centres.
GAUSSIAN = Model(
    "gaussian",
    (*CENTER, ShapeParameter("sigma", "px", "standard deviation of the spot")),
    _gaussian,
)

MODELS = {model.name: model for model in (GAUSSIAN,)}
