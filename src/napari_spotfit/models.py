"""The models: the names, units and meaning of their shape parameters, and their formulas."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

Array = NDArray[np.float64]
#: f at rows y and columns x, for shape parameters by name.
Formula = Callable[[Array, Array, Mapping[str, float]], Array]


@dataclass(frozen=True)
class ShapeParameter:
    """One parameter that the fit iterates."""

    name: str
    unit: str
    meaning: str


@dataclass(frozen=True)
class Profile:
    """The form f of a spot in the model h = amplitude · f(shape) + background.

    Amplitude and background are implicit in every least-squares fit (variable
    projection), so a profile knows its shape parameters alone.
    """

    name: str
    #: Centre y and x first, then what makes the width and the form.
    shape: tuple[ShapeParameter, ...]
    #: f at the pixels' centres, and averaged over each pixel where there is a formula for it.
    sampled: Formula = field(repr=False, compare=False)
    integrated: Formula | None = field(default=None, repr=False, compare=False)
    #: Whether f(x, y) = u(x)·v(y), which makes fits fast.
    separable: bool = True

    @property
    def parameter_count(self) -> int:
        """Number of fitted parameters, amplitude and background included."""
        return len(self.shape) + 2

    @property
    def widths(self) -> tuple[str, ...]:
        """Names of the shape parameters other than the centre."""
        return tuple(parameter.name for parameter in self.shape[2:])

    def evaluate(
        self, y: Array, x: Array, parameters: Mapping[str, float], pixel: str = "sampled"
    ) -> Array:
        """Return h at rows and columns in pixels, which may lie between the pixels' centres.

        Parameters
        ----------
        y, x : ndarray
            Where, in pixels; they are broadcast against each other.
        parameters : mapping of str to float
            The shape parameters, ``amplitude`` and ``background``, by name.
        pixel : {"sampled", "integrated"}
            f at these places, or averaged over a pixel around each.

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
        profile = self.integrated if pixel == "integrated" else self.sampled
        if profile is None:
            raise ValueError(f"the model {self.name} has no formula averaged over a pixel")
        return parameters["amplitude"] * profile(y, x, parameters) + parameters["background"]


def _along(distance: Array, sigma: float) -> Array:
    return np.asarray(np.exp(-0.5 * (distance / sigma) ** 2))


def _averaged(distance: Array, sigma: float) -> Array:
    """Return a Gaussian averaged over one pixel."""
    above, below = (distance + 0.5) / sigma, (distance - 0.5) / sigma
    return np.asarray(math.sqrt(2 * math.pi) * sigma * (ndtr(above) - ndtr(below)))


def _round(y: Array, x: Array, p: Mapping[str, float]) -> Array:
    return _along(y - p["y"], p["sigma"]) * _along(x - p["x"], p["sigma"])


def _round_averaged(y: Array, x: Array, p: Mapping[str, float]) -> Array:
    return _averaged(y - p["y"], p["sigma"]) * _averaged(x - p["x"], p["sigma"])


def _elliptical(y: Array, x: Array, p: Mapping[str, float]) -> Array:
    return _along(y - p["y"], p["sigma_y"]) * _along(x - p["x"], p["sigma_x"])


def _elliptical_averaged(y: Array, x: Array, p: Mapping[str, float]) -> Array:
    return _averaged(y - p["y"], p["sigma_y"]) * _averaged(x - p["x"], p["sigma_x"])


def _rotated(y: Array, x: Array, p: Mapping[str, float]) -> Array:
    angle = math.radians(p["angle"])
    dx, dy = x - p["x"], y - p["y"]
    along = dx * math.cos(angle) + dy * math.sin(angle)
    across = dy * math.cos(angle) - dx * math.sin(angle)
    return _along(along, p["sigma_x"]) * _along(across, p["sigma_y"])


def _lorentzian(y: Array, x: Array, p: Mapping[str, float]) -> Array:
    u, v = (x - p["x"]) / p["width"], (y - p["y"]) / p["width"]
    return np.asarray(1 / ((1 + u * u) * (1 + v * v)))


CENTER = (
    ShapeParameter("y", "px", "centre along the image's rows axis"),
    ShapeParameter("x", "px", "centre along the image's columns axis"),
)
_SIGMAS = (
    ShapeParameter("sigma_x", "px", "standard deviation along x"),
    ShapeParameter("sigma_y", "px", "standard deviation along y"),
)
_TURNED_SIGMAS = (
    ShapeParameter("sigma_x", "px", "standard deviation along the axis next to x"),
    ShapeParameter("sigma_y", "px", "standard deviation across it"),
    ShapeParameter("angle", "°", "from the x axis to that axis, positive towards y"),
)

#: f = exp(-((x - x̄)² + (y - ȳ)²) / 2σ²).
GAUSSIAN = Profile(
    "gaussian",
    (*CENTER, ShapeParameter("sigma", "px", "standard deviation of the spot")),
    _round,
    _round_averaged,
)
#: f = exp(-(x - x̄)² / 2σx² - (y - ȳ)² / 2σy²).
GAUSSIAN_ELLIPTICAL = Profile(
    "gaussian_elliptical", (*CENTER, *_SIGMAS), _elliptical, _elliptical_averaged
)
#: The same in axes turned by the angle.
GAUSSIAN_ROTATED = Profile(
    "gaussian_rotated", (*CENTER, *_TURNED_SIGMAS), _rotated, separable=False
)
#: f = 1 / ((1 + (x - x̄)²/w²) (1 + (y - ȳ)²/w²)).
LORENTZIAN = Profile(
    "lorentzian",
    (*CENTER, ShapeParameter("width", "px", "half width at half maximum along either axis")),
    _lorentzian,
)

MODELS = {
    model.name: model for model in (GAUSSIAN, GAUSSIAN_ELLIPTICAL, GAUSSIAN_ROTATED, LORENTZIAN)
}
