"""The settings as keyword arguments of the public functions: typed, shown, and merged."""

from __future__ import annotations

import inspect
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import fields
from functools import lru_cache
from typing import Any, TypedDict, TypeVar

from ..models.calibration import Calibration
from ..models.estimators import EstimatorName
from ..models.profiles import ModelName, Profile, VolumeModelName
from .fields import Backend, Devices, Neighbours, Pixel
from .noise_model import NoiseModel
from .settings import Settings, parameters
from .validation import check_not_both

_DEFAULTS = Settings()
Function = TypeVar("Function", bound=Callable[..., Any])


class Options(TypedDict, total=False):
    """The settings as keyword arguments; kept equal to :class:`Settings` by a test.

    The ROI's size is missing: functions that need it have an argument of its own.
    """

    sigma: float | None
    sigma_z: float | None
    false_spots: float
    threshold: float | None
    min_distance: float
    model: ModelName | VolumeModelName | Profile | Calibration
    pixel: Pixel
    estimator: EstimatorName
    neighbours: Neighbours
    fixed: Mapping[str, float | None]
    bounds: Mapping[str, tuple[float | None, float | None]]
    errors: bool
    max_iterations: int
    max_error: float
    min_delta: float
    min_step: float
    sigma_min: float | None
    sigma_max: float | None
    amplitude_min: float | None
    amplitude_max: float | None
    background_min: float | None
    background_max: float | None
    offset: float
    gain: float | None
    variance: float | None
    emccd: bool
    noise: NoiseModel | None
    voxel_size: tuple[float, float, float] | None
    numerical_aperture: float | None
    wavelength: float | None
    refractive_index: float | None
    backend: Backend
    devices: Devices
    threads: int | None


def takes_settings(
    *groups: str, without: tuple[str, ...] = (), also: tuple[str, ...] = (), volumes: bool = False
) -> Callable[[Function], Function]:
    """Show the settings of some groups, and others, as a function's own keyword arguments.

    Its signature, which consoles complete, and its docstring then name each with its
    default, so that none is written twice. :func:`merged` rejects the others, and models of
    spots in volumes unless the function takes them.
    """

    def show(function: Function) -> Function:
        shown = [
            item
            for item in fields(Settings)
            if (item.metadata["parameter"].group in groups and item.name not in without)
            or item.name in also
            if volumes or item.name != "sigma_z"
        ]
        signature = inspect.signature(function)
        own = [p for p in signature.parameters.values() if p.kind is not p.VAR_KEYWORD]
        added = [
            inspect.Parameter(item.name, inspect.Parameter.KEYWORD_ONLY, default=item.default)
            for item in shown
            if item.name not in signature.parameters
        ]
        function.__signature__ = signature.replace(parameters=own + added)  # type: ignore[attr-defined]
        function.__dict__["volumes"] = volumes
        function.__dict__["settings"] = tuple(item.name for item in shown)
        function.__doc__ = _with_parameters(function.__doc__ or "", added)
        return function

    return show


def _with_parameters(doc: str, added: list[inspect.Parameter]) -> str:
    """Insert the section "Other Parameters" before the section "Returns" of a docstring."""
    lines = ["Other Parameters", "----------------"]
    for parameter in added:
        about = parameters()[parameter.name]
        unit = f" in {about.unit}" if about.unit else ""
        lines += [f"{parameter.name}{unit}, default {parameter.default!r}", f"    {about.doc}"]
    doc = inspect.cleandoc(doc)
    return doc.replace("Returns\n-------", "\n".join(lines) + "\n\nReturns\n-------", 1)


def merged(
    settings: Settings | None, options: Mapping[str, Any], function: Callable[..., Any]
) -> Settings:
    """Return settings, by default the defaults, changed by keyword arguments.

    Parameters
    ----------
    settings : Settings or None
        What a public function was given.
    options : mapping
        Its keyword arguments.
    function : callable
        The function itself; :func:`takes_settings` has listed its settings.

    Raises
    ------
    TypeError
        If the settings are none, or if the function does not take one of the options.
    ValueError
        If the options do not go together.
    """
    if settings is None:
        settings = _DEFAULTS
    elif not isinstance(settings, Settings):
        example = ": Settings(**settings) makes them of it" if isinstance(settings, dict) else ""
        raise TypeError(f"settings must be Settings(…); got a {type(settings).__name__}{example}")
    if not options:
        return _checked_axes(settings, function)
    try:
        hash(tuple(options.values()))
    except TypeError:  # a dictionary, most often
        return _changed.__wrapped__(function, settings, **options)
    return _changed(function, settings, **options)


#: Models of spots in planes, and those of the same spots in volumes.
IN_VOLUMES = {"gaussian": "gaussian_3d", "gaussian_elliptical": "gaussian_3d_elliptical"}


def in_dimensions(settings: Settings, dimensions: int | None, given: Mapping[str, Any]) -> Settings:
    """Return settings for spots in planes or in volumes, as a function's ``dimensions`` says.

    Parameters
    ----------
    settings : Settings
        As :func:`merged` returns them.
    dimensions : int or None
        2, 3, or None for those of the model.
    given : mapping
        The settings among the function's keyword arguments.

    Raises
    ------
    ValueError
        If they do not suit the model, or if a width along z is given for spots in planes.

    Examples
    --------
    >>> in_dimensions(Settings(), 3, {}).model
    'gaussian_3d'
    """
    model, own = settings.profile.name, settings.dimensions
    if dimensions not in (None, 2, 3):
        raise ValueError(f"dimensions must be 2, 3 or None; got {dimensions!r}")
    if dimensions == 3 and own == 2 and model in IN_VOLUMES:
        return settings.changed(model=IN_VOLUMES[model])
    if dimensions not in (None, own):
        where = "planes" if own == 2 else "volumes"
        raise ValueError(
            f"the model {model} is of spots in {where}, but dimensions={dimensions}; give a model "
            "of such spots, or leave one of them out"
        )
    if own == 2 and given.get("sigma_z") is not None:
        raise ValueError(
            f"sigma_z is of spots in volumes, and the model {model} of spots in planes: give the "
            "model 'gaussian_3d', or leave it out"
        )
    return settings


@lru_cache(maxsize=128, typed=True)
def _changed(function: Callable[..., Any], settings: Settings, /, **options: Any) -> Settings:
    """Return changed settings, cached: the next call most often changes the same ones."""
    check_not_both("false_spots" in options, options.get("threshold") is not None)
    taken = function.__dict__["settings"]
    for name in options:
        if name not in taken and name in parameters():
            called = function.__qualname__.removesuffix(".__init__")
            raise TypeError(
                f"{name} has no effect in {called}; its settings are {', '.join(taken)}"
            )
    return _checked_axes(settings.changed(**options), function)


def _checked_axes(settings: Settings, function: Callable[..., Any]) -> Settings:
    """Return settings whose model is of spots as a function takes them."""
    if len(settings.profile.axes) > 2 and not function.__dict__["volumes"]:
        called = function.__qualname__.removesuffix(".__init__")
        raise ValueError(
            f"the model {settings.profile.name} is of spots in volumes, which localize, fit_at and "
            f"fit_spots fit; {called} works on planes: give a model of these, such as 'gaussian'"
        )
    return settings


def with_roi(
    settings: Settings | None,
    roi_size: int | tuple[int, ...] | None,
    options: Mapping[str, Any],
    function: Callable[..., Any],
) -> Settings:
    """Merge as :func:`merged` does, for functions with an argument for the ROI size."""
    given = options if roi_size is None else {**options, "roi_size": roi_size}
    return in_dimensions(merged(settings, given, function), None, given)


#: The last mappings of plain values, and the settings that they are.
_RECENT: deque[tuple[Mapping[str, Any], Settings]] = deque(maxlen=8)


def settings_from(values: Mapping[str, Any]) -> Settings:
    """Return the settings of plain values, which are checked once for the same mapping.

    All spots of a layer refer to one mapping, and to check it takes longer than to read a spot.
    """
    for known, settings in tuple(_RECENT):
        if known is values:
            return settings
    made = Settings(**values)
    _RECENT.appendleft((values, made))
    return made
