"""Describe settings, and check their names and values."""

from __future__ import annotations

import numbers
import operator
import types
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import field, fields
from functools import wraps
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, TypeVar, get_args, get_origin

from ..models.astigmatism import AstigmatismCalibration as AstigmatismCalibration  # a kind
from ..models.calibration import Calibration
from ..models.columns import AXES, IN_PLANE
from ..models.measured_psf import MeasuredPsf as MeasuredPsf  # a kind
from ..models.number_checks import (
    LARGEST,
    as_float,
    finite,
    is_array,
    nanometres,
    one_of,
    rising,
    shown,
)
from ..models.profiles import ALL_MODELS, Profile
from .noise_model import NoiseModel

#: The groups in the order in which forms have them, with their headings.
GROUPS = {
    "detection": "Detection",
    "fit": "Fit",
    "camera": "Camera",
    "optics": "Optics",
    "bounds": "Bounds",
    "stop": "Stop a fit",
    "run": "Run",
}
_BOTH = (
    "false_spots and threshold were both given, but spots are found by one of them: give "
    "false_spots=…, or threshold=… in counts"
)
Kind = TypeVar("Kind", bound=type)
#: Settings that a camera may have for each pixel.
_MAPS = ("offset", "gain", "variance")
#: Side lengths of a ROI in pixels: the least; the most of ROIs that are fitted side by side; and
#: the most of one that all threads, or the whole GPU, fit together.
ROI_MIN, ROI_MAX, ROI_LARGEST = 4, 32, 4096
#: The least planes of a ROI.
PLANES_MIN = 3


class Parameter(NamedTuple):
    """Description of one setting, for people and for controls.

    Attributes
    ----------
    label, doc, group, unit : str
        Its name for people, what it does, where it belongs, and what it is counted in.
    minimum, maximum : float or None
        The range of a number.
    above_minimum : bool
        Whether the minimum itself is out of it.
    none_means : str
        The meaning of None, in words.
    automatic : float or None
        What stands for a number that is estimated from an image, before it is.
    step : float
        What one click on an arrow adds to a number; 0 adds to its second digit.
    decades : bool
        Whether one click multiplies or divides by ten instead.
    odd : bool
        Whether only odd numbers are accepted.
    words : mapping of str to str
        Names of its words in lists, where they differ.
    shown : str
        Its place in forms: first, folded in its group, or apart, in a form of its own.
    """

    label: str
    doc: str
    group: Literal["detection", "fit", "stop", "bounds", "camera", "optics", "run"]
    unit: str = ""
    minimum: float | None = None
    maximum: float | None = None
    above_minimum: bool = False
    none_means: str = ""
    automatic: float | None = None
    step: float = 1.0
    decades: bool = False
    odd: bool = False
    words: Mapping[str, str] = MappingProxyType({})
    shown: Literal["first", "folded", "apart"] = "folded"


def setting(default: Any, label: str, doc: str, group: str, **rest: Any) -> Any:
    """Return a field of :class:`~.settings.Settings` with its description.

    A new setting needs nothing else: checks, tooltips and the row in the widget's form, in
    its group, follow from it and from the field's type.
    """
    return field(
        default=default,
        metadata={"parameter": Parameter(label, doc, group, **rest)},  # type: ignore[arg-type]
    )


def words_of(hint: Any) -> tuple[str, ...]:
    """Return the words that a type accepts, alone or among other values."""
    kinds = (hint, *get_args(hint))
    return next((get_args(kind) for kind in kinds if get_origin(kind) is Literal), ())


class FrozenMapping(Mapping[str, Any]):
    """A mapping that cannot be changed, so that settings can be shared, and keys of a cache.

    Examples
    --------
    >>> fixed = FrozenMapping({"sigma": 1.5})
    >>> fixed == {"sigma": 1.5}, fixed["sigma"]
    (True, 1.5)
    >>> fixed["sigma"] = 2.0
    Traceback (most recent call last):
    ...
    TypeError: 'FrozenMapping' object does not support item assignment
    """

    __slots__ = ("_items",)
    _items: Mapping[str, Any]

    def __init__(self, items: Mapping[str, Any] | None = None) -> None:
        object.__setattr__(self, "_items", MappingProxyType(dict(items or {})))

    def __getitem__(self, name: str) -> Any:
        return self._items[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)

    def __hash__(self) -> int:
        return hash(frozenset(self._items.items()))

    def __repr__(self) -> str:
        return repr(dict(self._items))

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"{name} cannot be set: this mapping cannot be changed")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"{name} cannot be deleted: this mapping cannot be changed")

    def __reduce__(self) -> tuple[type[FrozenMapping], tuple[dict[str, Any]]]:
        return FrozenMapping, (dict(self._items),)


def check_names(given: Iterable[str], known: Iterable[str]) -> None:
    """Raise a TypeError that names unknown settings."""
    known = tuple(known)
    unknown = sorted(set(given) - set(known))
    if unknown:
        raise TypeError(
            f"unknown setting {', '.join(unknown)}; the settings are {', '.join(known)}"
        )


def checks_names(kind: Kind) -> Kind:
    """Make a dataclass raise the error of :func:`check_names` for unknown arguments."""
    plain: Callable[..., None] = kind.__init__  # type: ignore[misc]
    known = frozenset(item.name for item in fields(kind))

    @wraps(plain)
    def init(self: Any, **values: Any) -> None:
        if not known.issuperset(values):
            check_names(values, (item.name for item in fields(kind)))
        plain(self, **values)

    kind.__init__ = init  # type: ignore[misc]
    return kind


def check_not_both(false_spots: bool, threshold: bool) -> None:
    """Raise a ValueError if both a number of false spots and a threshold are given."""
    if false_spots and threshold:
        raise ValueError(_BOTH)


def replacing(options: Mapping[str, Any], false_spots: float) -> dict[str, Any]:
    """Return changes and their consequence: a threshold replaces false spots, or they replace it.

    Parameters
    ----------
    options : mapping
        What is changed.
    false_spots : float
        Default number of false spots.
    """
    if options.get("threshold") is not None:
        return {"false_spots": false_spots, **options}
    return {"threshold": None, **options} if "false_spots" in options else dict(options)


def checked(name: str, hint: Any, parameter: Parameter, value: Any) -> Any:
    """Return the checked value of a setting, or raise an error that says what is accepted.

    Parameters
    ----------
    name : str
        The setting.
    hint : type
        Its type.
    parameter : Parameter
        Its description.
    value : object
        What was given.

    Raises
    ------
    TypeError
        If the value has the wrong type.
    ValueError
        If it is outside the range.
    """
    if name in _CHECKS:
        return _CHECKS[name](value)
    if get_origin(hint) is Literal:
        one_of(name, value, get_args(hint))
        return value
    kinds = get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
    if value is None:
        if type(None) in kinds:
            return None
        raise TypeError(f"{name} must be {_accepted(hint, parameter)}; got None")
    if bool in kinds:
        if not isinstance(value, bool):
            raise TypeError(f"{name} must be True or False; got {shown(value)}")
        return value
    return _checked_number(name, int in kinds, hint, parameter, value)


def _checked_number(name: str, whole: bool, hint: Any, parameter: Parameter, value: Any) -> Any:
    kind = numbers.Integral if whole else numbers.Real
    if isinstance(value, bool) or not isinstance(value, kind):
        text = f"{name} must be {_accepted(hint, parameter)}; got {shown(value)}"
        if name in _MAPS and is_array(value):
            text += f". A map with the {name} of each pixel is given as camera=Camera({name}=…)"
        raise TypeError(text)
    number: float = operator.index(typing.cast(int, value)) if whole else as_float(value)
    low, high = parameter.minimum, parameter.maximum
    if (
        not abs(number) <= LARGEST
        or (low is not None and (number < low or (parameter.above_minimum and number == low)))
        or (high is not None and number > high)
    ):
        raise ValueError(f"{name} must be {_accepted(hint, parameter)}; got {shown(value)}")
    return number


def _accepted(hint: Any, parameter: Parameter) -> str:
    """Return in words which numbers a setting accepts."""
    kinds = get_args(hint) or (hint,)
    text = "a whole number" if int in kinds else "a finite number"
    if parameter.minimum is not None:
        text += f" {'above' if parameter.above_minimum else 'from'} {parameter.minimum:g}"
    if parameter.maximum is not None:
        text += f" {'and at most' if parameter.above_minimum else 'to'} {parameter.maximum:g}"
    if parameter.unit:
        limited = parameter.minimum is not None or parameter.maximum is not None
        text += f" {parameter.unit}" if limited else f" of {parameter.unit}"
    return text + (f", or None ({parameter.none_means})" if type(None) in kinds else "")


def _checked_model(value: Any) -> Any:
    """Check a model: the name of one, a Profile, a Calibration, or what their to_dict gives."""
    if isinstance(value, Calibration):
        return value
    if isinstance(value, Mapping):
        is_calibration = "calibration" in value
        return Calibration.from_dict(value) if is_calibration else Profile.from_expression(**value)
    if isinstance(value, Profile):
        if value.expression is not None:
            return value
        if ALL_MODELS.get(value.name) == value:
            return value.name
    elif isinstance(value, str) and value in ALL_MODELS:
        return value
    names = ", ".join(map(repr, ALL_MODELS))
    raise ValueError(
        f"model must be {names}, a calibration, as of load_calibration(…), or of "
        f"Profile.from_expression(…); got {shown(value)}"
    )


def _checked_noise(value: Any) -> NoiseModel | None:
    """Check a noise model: one, or what :meth:`NoiseModel.to_dict` gives."""
    if value is None or isinstance(value, NoiseModel):
        return value
    if isinstance(value, Mapping):
        return NoiseModel.of(value)
    raise TypeError(f"noise must be of noise_model(…), or None; got {shown(value)}")


def _checked_fixed(value: Any) -> FrozenMapping:
    """Check fixed values: a finite number, or None for the start value, by name."""
    if not isinstance(value, Mapping):
        raise TypeError(f"fixed must map shape parameters to values; got {shown(value)}")
    return FrozenMapping({name: finite(f"fixed of {name}", fixed) for name, fixed in value.items()})


def _checked_bounds(value: Any) -> FrozenMapping:
    """Check lower and upper ends, None for an open one, by name."""
    if not isinstance(value, Mapping):
        raise TypeError(
            f"bounds must map shape parameters to (lowest, highest); got {shown(value)}"
        )
    return FrozenMapping({name: rising(f"bounds of {name}", ends) for name, ends in value.items()})


def check_pixel(profile: Profile, pixel: str) -> None:
    """Check that a model has a formula averaged over a pixel, if that is asked for."""
    if pixel == "integrated" and profile.integrated is None:
        raise ValueError(
            f"pixel must be 'sampled' for the model {profile.name}, which has no formula averaged "
            "over a pixel; got 'integrated'"
        )


def check_roi_size(profile: Profile, size: Any) -> None:
    """Check that a ROI size has one number, or one for each axis of a model, none too large."""
    if isinstance(size, tuple) and len(size) != len(profile.axes):
        raise TypeError(
            f"roi_size must be a whole number or {len(profile.axes)}, ({profile.sides}), for the "
            f"model {profile.name}; got {size}"
        )
    if len(profile.axes) > len(IN_PLANE) and size is not None:
        sides = size if isinstance(size, tuple) else (size,)
        if max(sides) > ROI_MAX:
            raise ValueError(
                f"roi_size must be {ROI_MAX} at most along each axis for the model {profile.name}; "
                f"got {size}"
            )


def _checked_roi_size(value: Any) -> int | tuple[int, ...] | None:
    """Check a ROI size around a centre pixel: odd, one number or one for each axis.

    Of three, the first is of planes: fewer than rows, and in a thin stack as many as there are.
    """
    if value is None:
        return None
    sizes = tuple(value) if isinstance(value, (tuple, list)) else (value,)
    if not sizes or any(
        isinstance(size, bool) or not isinstance(size, numbers.Integral) for size in sizes
    ):
        raise TypeError(
            f"roi_size must be a whole number, or one for each axis; got {shown(value)}"
        )
    low, high = ROI_MIN + 1, ROI_LARGEST - 1
    planes, in_plane = sizes[:-2][:1], sizes[-2:]
    if any(size % 2 == 0 or not low <= size <= high for size in in_plane):
        raise ValueError(
            f"roi_size must be odd, from {low} to {high} px, so that a pixel is its centre; "
            f"got {shown(value)}"
        )
    if any(not PLANES_MIN <= size <= high for size in planes):
        raise ValueError(f"roi_size must be {PLANES_MIN} planes at least; got {shown(value)}")
    sizes = tuple(int(size) for size in sizes)
    return sizes if isinstance(value, (tuple, list)) else sizes[0]


def _checked_voxel_size(value: Any) -> tuple[float, ...] | None:
    """Check the distances of planes, rows and columns."""
    if value is None:
        return None
    if not isinstance(value, (tuple, list)) or len(value) != len(AXES):
        raise TypeError(f"voxel_size must be three numbers in nm, (z, y, x); got {shown(value)}")
    return tuple(nanometres("voxel_size", size) for size in value)


_CHECKS: dict[str, Callable[[Any], Any]] = {
    "model": _checked_model,
    "fixed": _checked_fixed,
    "bounds": _checked_bounds,
    "roi_size": _checked_roi_size,
    "noise": _checked_noise,
    "voxel_size": _checked_voxel_size,
}
