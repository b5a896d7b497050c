"""The models: the names, units and meaning of their shape parameters, and their formulas."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .columns import AXES, COLUMNS, IN_PLANE, Column

if TYPE_CHECKING:
    from .expressions.custom import Expression
    from .lattice import Lattice

#: The names of :data:`MODELS`, and of those of spots in volumes, which editors complete; a test
#: compares them.
ModelName = Literal["gaussian", "gaussian_elliptical", "gaussian_rotated", "lorentzian", "moffat"]
VolumeModelName = Literal["gaussian_3d", "gaussian_3d_elliptical"]

Array = NDArray[np.float64]
#: f at places along each axis, such as rows y and columns x, for shape parameters by name.
Formula = Callable[..., Array]


class ShapeParameter(NamedTuple):
    """One parameter that the fit iterates."""

    #: Its column in the results.
    column: Column
    #: Where it starts, unless the caller says: a constant, and a multiple of the σ that is
    #: estimated from the data.
    start: tuple[float, float] = (0.0, 1.0)
    #: Its own bounds, for where the settings have none.
    low: float | None = None
    high: float | None = None

    @property
    def name(self) -> str:
        """Its name, which is the column's."""
        return self.column.name

    @property
    def unit(self) -> str:
        """Its unit; nothing if it has none."""
        return self.column.unit


@dataclass(frozen=True)
class Profile:
    """The form f of a spot in the model h = amplitude · f(shape) + background.

    Amplitude and background are implicit in every least-squares fit (variable
    projection), so a profile knows its shape parameters alone.

    Threads: it does not change, so that any number may use one.

    Examples
    --------
    >>> from napari_spotfit import Profile, fit_spots, simulate_spots
    >>> ring = Profile.from_expression(
    ...     "((x-x0)**2 + (y-y0)**2) * exp(-((x-x0)**2 + (y-y0)**2) / (2*s**2))",
    ...     start={"s": "sigma"},
    ... )
    >>> spots, truth = simulate_spots(5, seed=1)
    >>> fit_spots(spots, model=ring).columns["s"].shape
    (5,)
    """

    name: str
    #: The centre first, along each axis of the array, then what makes the width and the form.
    shape: tuple[ShapeParameter, ...]
    #: f at the pixels' centres, and averaged over each pixel where there is a formula for it.
    sampled: Formula = field(repr=False, compare=False)
    integrated: Formula | None = field(default=None, repr=False, compare=False)
    #: The places of both in the list BuiltIn of kernels/profiles.h.
    places: tuple[int, ...] = ()
    #: Whether f(x, y) = u(x)·v(y), which makes fits fast.
    separable: bool = True
    #: The expression of a custom model.
    expression: Expression | None = None
    #: The spline of a measured PSF.
    lattice: Lattice | None = None
    #: f in mathematical notation, for files.
    formula: str = field(default="", repr=False, compare=False)
    #: Its name for users, and a short description.
    words: str = field(default="", repr=False, compare=False)
    meaning: str = field(default="", repr=False, compare=False)

    @classmethod
    def from_expression(
        cls,
        expression: str,
        parameters: Sequence[str] | None = None,
        *,
        start: Mapping[str, float | str],
        center: tuple[str, str] = ("y0", "x0"),
        bounds: Mapping[str, tuple[float | None, float | None]] | None = None,
        name: str = "custom",
    ) -> Profile:
        """Make a model from an expression, for every estimator and both backends.

        Amplitude and background are no part of it: every fit is of
        amplitude · expression + background. Derivatives are made from the expression.

        Parameters
        ----------
        expression : str
            f in terms of ``x`` and ``y``, the pixel's column and row counted from the ROI's
            first pixel, and the parameters, made of numbers, ``+ - * / **``, parentheses,
            ``pi`` and the functions exp, log, sqrt, abs, sin, cos, tan, tanh and erf. It is
            read by a parser of its own, and never run as Python.
        parameters : sequence of str, optional
            Names of all parameters; by default those of ``center`` and ``start``. At most
            twelve, the centre among them.
        start : mapping of str to float or str
            Where each parameter besides the centre begins: a number, or a text in
            ``sigma``, such as "sigma" or "2*sigma + 1": the width that is estimated from
            each spot's data. Parameters that begin at a multiple of σ are in pixels.
        center : (str, str)
            Names of the centre's y and x in the expression; it starts at the spot's maximum.
            In the results it is called ``y`` and ``x``.
        bounds : mapping of str to (float or None, float or None), optional
            Lower and upper bounds of parameters besides the centre.
        name : str
            Name of the model.

        Raises
        ------
        TypeError, ValueError
            If the expression has anything else in it, if it is too long or too deep, if it is
            not finite where fits begin, or if a parameter has no influence, or only that of
            others; the message says what and where.

        Examples
        --------
        A round Gaussian with a free exponent ("super-Gaussian"):

        >>> from napari_spotfit.models.profiles import Profile
        >>> flat_top = Profile.from_expression(
        ...     "exp(-(((x-x0)**2 + (y-y0)**2) / (2*s**2))**q)",
        ...     start={"s": "sigma", "q": 1},
        ...     bounds={"q": (0.2, 5)},
        ... )
        >>> flat_top.widths
        ('s', 'q')
        """
        from .expressions.custom import checked_expression, start_of

        own = checked_expression(expression, parameters, center, start, bounds)
        shape = [*YX]
        for parameter, begin, (low, high) in zip(own.names, own.start, own.bounds, strict=True):
            constant, per_sigma = start_of(begin)
            unit = "px" if per_sigma and not constant else ""
            column = Column(parameter, unit, f"Parameter {parameter} of {expression}.")
            shape.append(ShapeParameter(column, (constant, per_sigma), low, high))
        return cls(name, tuple(shape), own, separable=False, expression=own, formula=own.text)

    def __repr__(self) -> str:
        parameters = ", ".join(parameter.name for parameter in self.shape)
        text = f"; {self.expression.text}" if self.expression else ""
        return f"<Profile {self.name}: {parameters}{text}>"

    def to_dict(self) -> dict[str, Any]:
        """Return a custom model as the arguments of :meth:`from_expression`."""
        if self.expression is None:
            raise ValueError(f"the model {self.name} was not made from an expression")
        return self.expression.to_dict() | {"name": self.name}

    def place(self, pixel: str) -> int:
        """Return the place of its formula in the list BuiltIn of kernels/profiles.h.

        Parameters
        ----------
        pixel : {"sampled", "integrated"}
            At the pixels' centres, or averaged over each pixel.
        """
        return self.places[("sampled", "integrated").index(pixel)]

    @property
    def parameter_count(self) -> int:
        """Number of fitted parameters, amplitude and background included."""
        return len(self.shape) + 2

    @cached_property
    def axes(self) -> tuple[str, ...]:
        """The spatial axes of its spots, in the order of an image's array.

        Examples
        --------
        >>> from napari_spotfit.models.profiles import GAUSSIAN
        >>> GAUSSIAN.axes
        ('y', 'x')
        """
        names = [parameter.name for parameter in self.shape]
        return tuple(names[: names.index("x") + 1])

    @property
    def sides(self) -> str:
        """What the axes of a ROI count, in words."""
        return ", ".join(f"{AXES[axis]}s" for axis in self.axes)

    @property
    def has_widths(self) -> bool:
        """Whether its widths are those of spots, as those of the built-in models are."""
        return self.expression is None and self.lattice is None

    @cached_property
    def widths(self) -> tuple[str, ...]:
        """Names of the shape parameters other than the centre."""
        return tuple(parameter.name for parameter in self.shape[len(self.axes) :])

    def evaluate(
        self, places: Iterable[Any], parameters: Mapping[str, float], pixel: str = "sampled"
    ) -> Array:
        """Return h at places in pixels, which may lie between the pixels' centres.

        Parameters
        ----------
        places : iterable of ndarray
            Where along each axis, in pixels, such as ``numpy.indices`` has it for a whole ROI;
            they are broadcast against each other.
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
        >>> from napari_spotfit.models.profiles import GAUSSIAN
        >>> top = {"y": 3, "x": 4, "sigma": 1.3, "amplitude": 50, "background": 7}
        >>> float(GAUSSIAN.evaluate((3.0, 4.0), top))
        57.0
        """
        profile = self.integrated if pixel == "integrated" else self.sampled
        if profile is None:
            raise ValueError(f"the model {self.name} has no formula averaged over a pixel")
        return parameters["amplitude"] * profile(*places, parameters) + parameters["background"]


def _along(distance: Array, sigma: float) -> Array:
    return np.asarray(np.exp(-0.5 * (distance / sigma) ** 2))


def _averaged(distance: Array, sigma: float) -> Array:
    """Return a Gaussian averaged over one pixel."""
    from scipy.special import ndtr  # here, as SciPy takes its time to import

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
    angle = np.radians(p["angle"])
    dx, dy = x - p["x"], y - p["y"]
    along = dx * np.cos(angle) + dy * np.sin(angle)
    across = dy * np.cos(angle) - dx * np.sin(angle)
    return _along(along, p["sigma_x"]) * _along(across, p["sigma_y"])


def _lorentzian(y: Array, x: Array, p: Mapping[str, float]) -> Array:
    u, v = (x - p["x"]) / p["width"], (y - p["y"]) / p["width"]
    return np.asarray(1 / ((1 + u * u) * (1 + v * v)))


def _moffat(y: Array, x: Array, p: Mapping[str, float]) -> Array:
    square = ((x - p["x"]) ** 2 + (y - p["y"]) ** 2) / p["width"] ** 2
    return np.asarray((1 + square) ** -p["exponent"])


def _in_volume(planar: Formula, z: Array, y: Array, x: Array, p: Mapping[str, float]) -> Array:
    """Return a formula of planes times a Gaussian along z, where no pixel adds up light."""
    return _along(z - p["z"], p["sigma_z"]) * planar(y, x, p)


CENTER = {axis: ShapeParameter(COLUMNS[axis]) for axis in AXES}
YX = tuple(CENTER[axis] for axis in IN_PLANE)
_SIGMAS = (ShapeParameter(COLUMNS["sigma_x"]), ShapeParameter(COLUMNS["sigma_y"]))
_ROTATED_SIGMAS = (
    ShapeParameter(
        replace(COLUMNS["sigma_x"], meaning="Standard deviation along the axis next to x.", axis="")
    ),
    ShapeParameter(replace(COLUMNS["sigma_y"], meaning="Standard deviation across it.", axis="")),
    ShapeParameter(COLUMNS["angle"], (0.0, 0.0)),
)

GAUSSIAN = Profile(
    "gaussian",
    (*YX, ShapeParameter(COLUMNS["sigma"])),
    _round,
    _round_averaged,
    places=(0, 2),
    formula="exp(-((x - x̄)² + (y - ȳ)²) / 2σ²)",
    words="Gaussian",
    meaning="round.",
)
GAUSSIAN_ELLIPTICAL = Profile(
    "gaussian_elliptical",
    (*YX, *_SIGMAS),
    _elliptical,
    _elliptical_averaged,
    places=(1, 3),
    formula="exp(-(x - x̄)² / 2σx² - (y - ȳ)² / 2σy²)",
    words="elliptical Gaussian",
    meaning="with one σ along x and one along y.",
)
GAUSSIAN_ROTATED = Profile(
    "gaussian_rotated",
    (*YX, *_ROTATED_SIGMAS),
    _rotated,
    places=(4,),
    separable=False,
    formula="exp(-u² / 2σx² - v² / 2σy²), where u = (x - x̄) cos α + (y - ȳ) sin α and "
    "v = (y - ȳ) cos α - (x - x̄) sin α",
    words="rotated Gaussian",
    meaning="elliptical and rotated by an angle.",
)
LORENTZIAN = Profile(
    "lorentzian",
    (
        *YX,
        ShapeParameter(
            replace(COLUMNS["width"], meaning="Half width at half maximum along either axis."),
            (0.0, 1.18),
        ),
    ),
    _lorentzian,
    places=(5,),
    formula="1 / ((1 + (x - x̄)²/w²) (1 + (y - ȳ)²/w²))",
    words="Lorentzian",
    meaning="with wide wings.",
)
#: Moffat 1969.
MOFFAT = Profile(
    "moffat",
    (
        *YX,
        ShapeParameter(
            replace(
                COLUMNS["width"],
                meaning="Distance at which the profile is 2^-exponent of its height.",
            ),
            (0.0, 2.4),
        ),
        # The integral exists above 1; from 100 on, a Gaussian is no different.
        ShapeParameter(COLUMNS["exponent"], (3.0, 0.0), 1.01, 100.0),
    ),
    _moffat,
    places=(6,),
    separable=False,
    formula="(1 + ((x - x̄)² + (y - ȳ)²)/w²)^-exponent",
    words="Moffat",
    meaning="round, with wings as wide as they are.",
)

GAUSSIAN_3D = Profile(
    "gaussian_3d",
    (*CENTER.values(), ShapeParameter(COLUMNS["sigma"]), ShapeParameter(COLUMNS["sigma_z"])),
    partial(_in_volume, _round),
    partial(_in_volume, _round_averaged),
    places=(7, 9),
    formula="exp(-((x - x̄)² + (y - ȳ)²) / 2σ² - (z - z̄)² / 2σz²)",
    words="Gaussian in 3-D",
    meaning="round in the plane, with a σ of its own along z, in planes.",
)
GAUSSIAN_3D_ELLIPTICAL = Profile(
    "gaussian_3d_elliptical",
    (*CENTER.values(), *_SIGMAS, ShapeParameter(COLUMNS["sigma_z"])),
    partial(_in_volume, _elliptical),
    partial(_in_volume, _elliptical_averaged),
    places=(8, 10),
    formula="exp(-(x - x̄)² / 2σx² - (y - ȳ)² / 2σy² - (z - z̄)² / 2σz²)",
    words="elliptical Gaussian in 3-D",
    meaning="with a σ of its own along each axis, that of z in planes.",
)

#: Models of spots in planes, and all, with those of spots in volumes.
MODELS = {
    model.name: model
    for model in (GAUSSIAN, GAUSSIAN_ELLIPTICAL, GAUSSIAN_ROTATED, LORENTZIAN, MOFFAT)
}
ALL_MODELS = MODELS | {model.name: model for model in (GAUSSIAN_3D, GAUSSIAN_3D_ELLIPTICAL)}
