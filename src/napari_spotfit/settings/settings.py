"""All settings of detection and fit, checked together, and what follows from them.

:class:`Settings` defines the arguments of the public functions, the widget's controls and
tooltips, and the values that the widget remembers; each is described in fields.py.
"""

from __future__ import annotations

import math
import typing
from collections.abc import Collection, Mapping
from dataclasses import dataclass, fields
from functools import cache, lru_cache
from types import MappingProxyType
from typing import Any, NamedTuple

from ..models.calibration import Calibration
from ..models.estimators import ESTIMATORS, Estimator
from ..models.profiles import ALL_MODELS, Profile
from .bounds import check_aperture, check_bounds, check_shape_names
from .fields import DEFAULT_FALSE_SPOTS, SettingFields
from .noise_model import NoiseModel, excess_of
from .validation import (
    Parameter,
    check_names,
    check_not_both,
    check_pixel,
    check_roi_size,
    checked,
    checks_names,
    replacing,
)

#: Settings that are checked together.
_OF_THRESHOLD = frozenset({"false_spots", "threshold"})
_OF_PIXEL = frozenset({"model", "pixel"})
_OF_ROI = frozenset({"model", "roi_size"})
_OF_SHAPE = frozenset({"model", "fixed", "bounds"})
_OF_OPTICS = frozenset({"numerical_aperture", "refractive_index"})
_OF_BOUNDS = (
    _OF_SHAPE
    | {f"{name}_{end}" for name in ("sigma", "amplitude", "background") for end in ("min", "max")}
    | {"estimator"}
)
#: Of a slope that is less times the least noise, single precision would lose the light.
_LEAST_SLOPE = 1e-3


@checks_names
@dataclass(frozen=True, kw_only=True)
class Settings(SettingFields):
    """All settings of detection and fit, checked when they are made.

    Threads: it does not change, so that any number may use one.

    Raises
    ------
    TypeError
        If a value has the wrong type.
    ValueError
        If a value is outside its range; the message says what is accepted.

    Examples
    --------
    >>> from napari_spotfit import Settings
    >>> Settings(roi_size=7).roi_shape
    (7, 7)
    >>> Settings(sigma=1.3, estimator="mle")  # what is not as by default
    Settings(sigma=1.3, estimator='mle')
    >>> Settings(roi_size=8)
    Traceback (most recent call last):
    ...
    ValueError: roi_size must be odd, from 5 to 4095 px, so that a pixel is its centre; got 8
    """

    #: The hash, computed at its first use: settings are keys of caches.
    __slots__ = ("__dict__", "__weakref__", "_hash")

    def __post_init__(self) -> None:
        default = _defaults()
        own = {name: value for name, value in vars(self).items() if value is not default[name]}
        self._check(own, besides_defaults=True)

    def __hash__(self) -> int:
        try:
            known: int = object.__getattribute__(self, "_hash")
        except AttributeError:
            known = hash(tuple(vars(self).values()))
            object.__setattr__(self, "_hash", known)
        return known

    def __repr__(self) -> str:
        default = _defaults()
        chosen = (f"{n}={value!r}" for n, value in vars(self).items() if value != default[n])
        return f"Settings({', '.join(chosen)})"

    def __getstate__(self) -> dict[str, Any]:
        return vars(self)  # without the hash, which is another process's

    def _check(self, values: Mapping[str, Any], *, besides_defaults: bool = False) -> None:
        """Check values and the settings that depend on them, and store the values.

        All values are chosen by somebody, or those that are no defaults.
        """
        hints, known = _hints(), parameters()
        for name, value in values.items():
            vars(self)[name] = checked(name, hints[name], known[name], value)
        if isinstance(self.model, Calibration):
            own, default = vars(self), _defaults() if besides_defaults else {}
            chosen = [name for name in values if name not in default or own[name] != default[name]]
            self._take_from_calibration(self.model, chosen)
        if not _OF_THRESHOLD.isdisjoint(values):
            check_not_both(self.false_spots != DEFAULT_FALSE_SPOTS, self.threshold is not None)
        if not _OF_PIXEL.isdisjoint(values):
            check_pixel(self.profile, self.pixel)
        if not _OF_ROI.isdisjoint(values):
            check_roi_size(self.profile, self.roi_size)
        if not _OF_SHAPE.isdisjoint(values):
            check_shape_names(self)
        if not _OF_OPTICS.isdisjoint(values):
            check_aperture(self)
        if not _OF_BOUNDS.isdisjoint(values):
            check_bounds(self)

    def _take_from_calibration(self, model: Calibration, chosen: Collection[str]) -> None:
        """Take the settings of the fits that a calibration is of, where none are given."""
        own, default = vars(self), _defaults()
        if "model" in chosen:
            for name, value in model.settings.items():
                if name not in chosen and own[name] == default[name]:
                    own[name] = value
        given = {name: own[name] for name in own if name in chosen or own[name] != default[name]}
        model.check({name: value for name, value in given.items() if value is not None})

    @property
    def roi_shape(self) -> tuple[int, ...]:
        """ROI size along each axis of the model, such as (rows, columns), in pixels.

        Raises
        ------
        ValueError
            If it is None: it then follows from an image.
        """
        size = self.roi_size
        if size is None:
            raise ValueError(
                "roi_size is None: it follows from an image's PSF; take it from settings of fits"
            )
        return size if isinstance(size, tuple) else (size,) * len(self.profile.axes)

    @property
    def known_sigma(self) -> float:
        """The PSF's σ in pixels.

        Raises
        ------
        ValueError
            If it is None: it is then estimated from an image.
        """
        if self.sigma is None:
            raise ValueError(
                "sigma is None: it is estimated from an image; take it from the settings of fits"
            )
        return self.sigma

    @property
    def known_sigma_z(self) -> float:
        """The PSF's σ along z in planes, as :attr:`known_sigma` is that in pixels."""
        if self.sigma_z is None:
            raise ValueError(
                "sigma_z is None: it is estimated from stacks; take it from the settings of fits"
            )
        return self.sigma_z

    @property
    def known_noise(self) -> NoiseModel:
        """The noise of the pixels.

        Raises
        ------
        ValueError
            If it is None: it then follows from the camera or an image.
        """
        if self.noise is None:
            raise ValueError(
                "noise is None: it is estimated from an image; take it from the settings of fits"
            )
        return self.noise

    @property
    def profile(self) -> Profile:
        """The model itself; of a calibration, what it fits."""
        model = self.model
        if isinstance(model, str):
            return ALL_MODELS[model]
        return model.profile if isinstance(model, Calibration) else model

    @property
    def dimensions(self) -> int:
        """How many spatial axes the spots have."""
        return len(self.profile.axes)

    @property
    def pixels_per_plane(self) -> float | None:
        """How many pixels the planes of a stack are apart; None for images, and if unknown."""
        if self.voxel_size is None or "z" not in self.profile.axes:
            return None
        plane, row, column = self.voxel_size
        return plane / math.sqrt(row * column)

    @property
    def estimator_kind(self) -> Estimator:
        """The estimator itself."""
        return ESTIMATORS[self.estimator]

    @property
    def fitted_parameters(self) -> int:
        """Number of fitted parameters: those of the model that are not fixed."""
        return self.profile.parameter_count - len(self.fixed)

    def changed(self, **options: Any) -> Settings:
        """Return a copy with some settings changed; unknown names raise a TypeError.

        A threshold replaces a number of false spots, and the other way round.
        """
        own = vars(self)
        if not own.keys() >= options.keys():
            check_names(options, own)
        if all(own[name] is value for name, value in options.items()):
            return self
        values = replacing(options, DEFAULT_FALSE_SPOTS)
        made = object.__new__(Settings)
        object.__setattr__(made, "__dict__", own | values)
        made._check(values)  # unchanged values were checked before
        return made

    def to_dict(self) -> dict[str, Any]:
        """Return the settings as a dictionary of plain values."""
        values = {item.name: getattr(self, item.name) for item in fields(self)}
        if not isinstance(self.model, str):
            values["model"] = self.model.to_dict()
        values["fixed"] = dict(self.fixed)
        values["bounds"] = {name: list(ends) for name, ends in self.bounds.items()}
        values["voxel_size"] = None if self.voxel_size is None else list(self.voxel_size)
        values["noise"] = None if self.noise is None else self.noise.to_dict()
        return values


@cache
def _hints() -> Mapping[str, Any]:
    """Return the settings' types, by their names."""
    return typing.get_type_hints(Settings)


@cache
def _defaults() -> Mapping[str, Any]:
    """Return the settings' values by default, by their names."""
    return {item.name: item.default for item in fields(Settings)}


@cache
def parameters() -> Mapping[str, Parameter]:
    """Return the description of each setting, by its name."""
    return MappingProxyType({item.name: item.metadata["parameter"] for item in fields(Settings)})


class Electrons(NamedTuple):
    """Conversion of counts to photo-electrons for maximum likelihood."""

    #: Counts without light, and counts per photo-electron.
    dark: float
    gain: float
    #: The read-out variance of all pixels in counts², without a map of it.
    variance: float = 0.0
    #: How many times the variance of results is that of photo-electrons.
    excess: float = 1.0


def noise_of(settings: Settings) -> NoiseModel | None:
    """Return the noise that standard errors follow: the camera's, else the image's, if known.

    Examples
    --------
    >>> float(noise_of(Settings(gain=2.0, offset=100.0)).variance(150))
    100.0
    """
    if settings.gain is not None:
        return _of_camera(settings.gain, settings.offset, settings.variance or 0.0, settings.emccd)
    return settings.noise if settings.noise is not None and settings.noise.is_known else None


@lru_cache(maxsize=64)
def _of_camera(gain: float, offset: float, variance: float, emccd: bool) -> NoiseModel:
    """Return the noise of a camera, which is asked for several times in each call."""
    return NoiseModel.of_camera(gain, offset, variance, emccd=emccd)


def electrons_of(settings: Settings) -> Electrons:
    """Return the conversion that maximum likelihood uses; without a gain, that of the noise.

    With a gain of the noise's slope, and without light as many counts as have no variance but that
    of the read-out, counts are as noisy as photo-electrons.

    Examples
    --------
    >>> electrons_of(Settings(noise=NoiseModel(2.0, -200.0, 5.0)))
    Electrons(dark=100.0, gain=2.0, variance=0.0, excess=1.0)
    """
    noise, excess = settings.noise, excess_of(settings.emccd)
    known = Electrons(settings.offset, settings.gain or 1.0, settings.variance or 0.0, excess)
    if settings.gain is not None or noise is None or not has_shot_noise(noise):
        return known
    variance, dark = settings.variance or 0.0, settings.offset
    if dark == 0:
        dark = (variance - noise.intercept) / noise.slope
    elif settings.variance is None:
        variance = max(noise.intercept + noise.slope * dark, 0.0)
    return Electrons(dark, noise.slope / excess, variance, excess * noise.correlation**2)


def dark_of_planes(settings: Settings) -> float:
    """Return the counts without light, from which planes of stacks are compared.

    They are what spots have shown, where the camera is not known.
    """
    noise = settings.noise
    if noise is None or noise.dark is None or settings.offset != 0 or settings.gain is not None:
        return electrons_of(settings).dark
    return noise.dark


def has_shot_noise(noise: NoiseModel) -> bool:
    """Whether the noise grows with the light, so that its slope gives the number of electrons."""
    return noise.slope > _LEAST_SLOPE * math.sqrt(noise.least)
