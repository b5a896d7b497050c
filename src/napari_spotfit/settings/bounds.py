"""Bounds of parameters, and the widths and ROIs that optics let expect."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

from ..models.columns import PLANES
from ..models.estimators import ESTIMATORS, SIGMA_MAX_ROI, SIGMA_MIN
from ..models.number_checks import check_names
from ..models.profiles import CENTER, Profile, ShapeParameter
from .validation import PLANES_MIN, ROI_MAX, ROI_MIN

#: The ROI's side in σ, and the least one in pixels and in planes, where there are as many.
ROI_SIGMAS, _ROI_LEAST, _ROI_PLANES = 6.0, 9, 5
#: Refractive indices of immersions, and the highest aperture of usual objectives for each.
_IMMERSIONS = ((1.0, 0.95), (1.333, 1.27), (1.518, 1.49))


class HasBounds(Protocol):
    """The settings that fix and bound parameters, such as :class:`~.settings.Settings`."""

    @property
    def profile(self) -> Profile:
        """The model."""

    @property
    def estimator(self) -> str:
        """What is minimised."""

    @property
    def fixed(self) -> Mapping[str, Any]:
        """Values of fixed parameters, by name."""

    @property
    def bounds(self) -> Mapping[str, Any]:
        """Lower and upper ends, by name."""

    @property
    def sigma_min(self) -> float | None:
        """The least σ."""

    @property
    def sigma_max(self) -> float | None:
        """The largest σ."""


class End(NamedTuple):
    """One end of an interval, and what to call it."""

    value: float
    text: str

    @classmethod
    def of(cls, name: str, value: float, unit: str = "") -> End:
        """Return an end that a setting has set."""
        return cls(value, f"{name} = {value:g}{unit and f' {unit}'}")


_LOWEST, _HIGHEST = End(-math.inf, "no bound"), End(math.inf, "no bound")


def shape_ends(settings: HasBounds, name: str) -> tuple[End, End]:
    """Return the ends of a fitted shape parameter, as far as they do not depend on the ROI.

    Examples
    --------
    >>> from napari_spotfit import Settings
    >>> low, high = shape_ends(Settings(sigma_max=3), "sigma")
    >>> low.text, high.text
    ('the least width, 0.25 px', 'sigma_max = 3 px')
    """
    parameter = next(one for one in settings.profile.shape if one.name == name)
    low, high = _built_in(settings, parameter)
    given = settings.bounds.get(name, (None, None))
    if settings.profile.expression is not None and name in settings.bounds:
        low, high = _LOWEST, _HIGHEST  # these replace the bounds of a custom model
    if given[0] is not None:
        low = End.of(f"the lower bound of {name}", given[0], parameter.unit)
    if given[1] is not None:
        high = End.of(f"the upper bound of {name}", given[1], parameter.unit)
    return low, high


def bounds_of(name: str, settings: HasBounds, roi_shape: tuple[int, ...]) -> tuple[float, float]:
    """Return the bounds of a shape parameter in pixels of the ROI, or in its own unit.

    Raises
    ------
    ValueError
        If the interval is empty in a ROI of this shape; the message names both ends.
    """
    fixed, axes = settings.fixed.get(name), settings.profile.axes
    if name in axes:
        return _center_bounds(name, settings, roi_shape[axes.index(name)])
    if fixed is not None:
        return fixed, fixed
    low, high = shape_ends(settings, name)
    parameter = next(shape for shape in settings.profile.shape if shape.name == name)
    if high.value == math.inf and _is_width(settings, parameter):
        side = SIGMA_MAX_ROI * max(roi_shape)
        high = End(side, f"the ROI's longer side, {side:g} {parameter.unit},")
    check_rising(low, high)
    return low.value, high.value


def light_ends(settings: HasBounds, name: str) -> tuple[End, End]:
    """Return the ends of amplitude or background, which maximum likelihood keeps from 0 on."""
    low, high = getattr(settings, f"{name}_min"), getattr(settings, f"{name}_max")
    lowest = _LOWEST
    if ESTIMATORS[settings.estimator].is_likelihood:
        lowest = End(0.0, "0, as maximum likelihood needs light that is not negative")
    return (
        lowest if low is None else End.of(f"{name}_min", low, "counts"),
        _HIGHEST if high is None else End.of(f"{name}_max", high, "counts"),
    )


def check_bounds(settings: HasBounds) -> None:
    """Check that every lower bound is below its upper bound.

    Raises
    ------
    ValueError
        If one is not; the message names both.
    """
    if settings.sigma_min is not None and settings.sigma_max is not None:
        check_rising(
            End.of("sigma_min", settings.sigma_min, "px"),
            End.of("sigma_max", settings.sigma_max, "px"),
        )
    for parameter in settings.profile.shape:
        if settings.fixed.get(parameter.name) is None:
            check_rising(*shape_ends(settings, parameter.name))
    for name in ("amplitude", "background"):
        check_rising(*light_ends(settings, name))


def check_rising(low: End, high: End) -> None:
    """Check that one end is below the other."""
    if not low.value < high.value:
        raise ValueError(f"{high.text} must be above {low.text}")


def check_shape_names(settings: HasBounds) -> None:
    """Check that fixed and bounded parameters are shape parameters of the model, and none is both.

    Raises
    ------
    ValueError
        If there is no such parameter, if one is both, or if none is left to be fitted.
    """
    profile, fixed, bounds = settings.profile, settings.fixed, settings.bounds
    names = [parameter.name for parameter in profile.shape]
    for setting, given in (("fixed", fixed), ("bounds", bounds)):
        check_names(setting, given, f"shape parameters of the model {profile.name}", names)
    both = sorted(set(fixed) & set(bounds))
    if both:
        raise ValueError(f"{both[0]} cannot be fixed and bounded at once; leave one out")
    if len(fixed) == len(names):
        raise ValueError(f"fixed must leave one of {', '.join(names)} to be fitted")
    for name in profile.widths:
        low = fixed.get(name) if name in fixed else bounds.get(name, (None, None))[0]
        if low is not None and low <= 0 and name != "angle" and profile.has_widths:
            raise ValueError(f"{name} must be above 0; got {low:g}")


def _center_bounds(name: str, settings: HasBounds, size: int) -> tuple[float, float]:
    """Return the bounds of a centre along an axis: those of the settings, within the ROI."""
    middle, unit = (size - 1) / 2, CENTER[name].unit
    first, last = (
        End(-0.5, f"the ROI's first edge, {-size / 2:g} {unit}"),
        End(size - 0.5, f"the ROI's last edge, {size / 2:g} {unit},"),
    )
    fixed = settings.fixed.get(name)
    if fixed is not None:
        if not abs(fixed) <= size / 2:
            raise ValueError(
                f"{name} is fixed at {fixed:g} {unit} from the middle of the ROI, which ends at "
                f"{size / 2:g} {unit}"
            )
        return middle + fixed, middle + fixed
    low, high = shape_ends(settings, name)
    low, high = low._replace(value=middle + low.value), high._replace(value=middle + high.value)
    lowest, highest = max(first, low, key=_value), min(last, high, key=_value)
    check_rising(lowest, highest)
    return lowest.value, highest.value


def _value(end: End) -> float:
    return end.value


def _built_in(settings: HasBounds, parameter: ShapeParameter) -> tuple[End, End]:
    """Return the ends where ``bounds`` has none: the settings for σ, then the model's own."""
    name, unit = parameter.name, parameter.unit
    low = high = None
    if name.startswith("sigma") and unit == "px" and settings.profile.expression is None:
        low = settings.sigma_min and End.of("sigma_min", settings.sigma_min, unit)
        high = settings.sigma_max and End.of("sigma_max", settings.sigma_max, unit)
    if not low and parameter.low is not None:
        low = End(parameter.low, f"the least {name} of the model, {parameter.low:g}")
    if not high and parameter.high is not None:
        high = End(parameter.high, f"the largest {name} of the model, {parameter.high:g}")
    if not low and _is_width(settings, parameter):
        low = End(SIGMA_MIN, f"the least width, {SIGMA_MIN:g} {unit}")
    return low or _LOWEST, high or _HIGHEST


def _is_width(settings: HasBounds, parameter: ShapeParameter) -> bool:
    """Whether a shape parameter is a length that the least width and the ROI bound."""
    profile = settings.profile
    is_length = parameter.name in profile.widths and parameter.unit in ("px", PLANES)
    return is_length and profile.expression is None


class HasOptics(Protocol):
    """The settings of the optics, such as :class:`~.settings.Settings`."""

    @property
    def voxel_size(self) -> tuple[float, float, float] | None:
        """Distance of planes, rows and columns in nm."""

    @property
    def numerical_aperture(self) -> float | None:
        """That of the objective."""

    @property
    def wavelength(self) -> float | None:
        """That of the light in nm."""

    @property
    def refractive_index(self) -> float | None:
        """That of the immersion."""


class Widths(NamedTuple):
    """Standard deviations of a spot: in the plane in pixels, along z in planes."""

    sigma: float
    sigma_z: float


def check_aperture(settings: HasOptics) -> None:
    """Raise a ValueError if an aperture is as high as the refractive index or higher."""
    aperture, index = settings.numerical_aperture, settings.refractive_index
    if aperture is not None and index is not None and aperture >= index:
        raise ValueError(
            f"numerical_aperture must be below the refractive_index, {index:g}; got {aperture:g}"
        )


def optics_of(settings: HasOptics) -> tuple[float, float, float] | None:
    """Return aperture, wavelength and refractive index, if known; by default the usual index."""
    aperture, wavelength = settings.numerical_aperture, settings.wavelength
    if aperture is None or wavelength is None:
        return None
    index = settings.refractive_index or _immersion(aperture)
    return aperture, wavelength, index


def expected_widths(settings: HasOptics) -> Widths | None:
    """Return the widths of a point in a widefield microscope; None where too little is known.

    They are those of the Gaussian with the image's curvature at its top, without the paraxial
    approximation (Zhang, Zerubia and Olivo-Marin 2007).

    Examples
    --------
    >>> from napari_spotfit import Settings
    >>> oil = Settings(voxel_size=(254, 93, 93), numerical_aperture=1.4, wavelength=600)
    >>> [round(width, 2) for width in expected_widths(oil)]
    [1.0, 1.0]
    """
    voxel, optics = settings.voxel_size, optics_of(settings)
    if voxel is None or optics is None:
        return None
    aperture, wavelength, index = optics
    c, wave = math.sqrt(1 - (aperture / index) ** 2), 2 * math.pi * index / wavelength
    s = c**1.5
    lateral = math.sqrt(7 * (1 - s) / (4 - 7 * s + 3 * c**3.5)) / wave
    curvature = 4 * c**5 - 25 * c**3.5 + 42 * c**2.5 - 25 * s + 4
    axial = 5 * math.sqrt(7 / (6 * curvature)) * (1 - s) / wave
    return Widths(lateral / math.sqrt(voxel[1] * voxel[2]), axial / voxel[0])


def _immersion(aperture: float) -> float:
    """Return the refractive index of the usual immersion of an objective."""
    known = (index for index, highest in _IMMERSIONS if aperture <= highest)
    return next(known, 1.05 * aperture)


def roi_for(
    sigma: float, shape: tuple[int, ...], sigma_z: float | None = None
) -> int | tuple[int, ...]:
    """Return the ROI's size that suits spots of a width, as far as frames of a shape hold it.

    Examples
    --------
    >>> roi_for(1.3, (512, 512)), roi_for(3.0, (512, 512)), roi_for(3.0, (14, 512))
    (9, 19, (13, 19))
    >>> roi_for(1.3, (40, 512, 512), 1.5), roi_for(1.3, (6, 512, 512), 1.5)
    ((9, 9, 9), (6, 9, 9))
    """
    if sigma_z is not None:
        most = (ROI_MAX - 1) // 2 * 2 + 1
        in_plane = roi_for(sigma, tuple(min(side, most) for side in shape[1:]))
        planes = max(2 * int(ROI_SIGMAS * sigma_z / 2) + 1, _ROI_PLANES)
        planes = max(min(planes, shape[0], ROI_MAX), PLANES_MIN)
        return (planes, *(in_plane if isinstance(in_plane, tuple) else (in_plane, in_plane)))
    side = max(2 * int(ROI_SIGMAS * sigma / 2) + 1, _ROI_LEAST)
    sides = tuple(max(min(side, (n - 1) // 2 * 2 + 1), ROI_MIN + 1) for n in shape)
    return sides[0] if len(set(sides)) == 1 else sides
