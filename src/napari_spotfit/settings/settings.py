"""Every setting of detection and fit: default, unit, range and explanation.

:class:`Settings` defines the arguments of the public functions, the widget's controls and
tooltips, and the values that the widget remembers.
"""

from __future__ import annotations

import typing
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, fields
from functools import cache
from types import MappingProxyType
from typing import Any, Literal

from ..models import stopping
from ..models.calibration import Calibration
from ..models.columns import PLANES
from ..models.estimators import ESTIMATORS, Estimator, EstimatorName
from ..models.profiles import ALL_MODELS, MODELS, ModelName, Profile, VolumeModelName
from .bounds import check_bounds, check_shape_names
from .noise_model import NoiseModel
from .optics import check_aperture
from .parameter import Parameter, setting
from .validation import (
    ROI_LARGEST,
    FrozenMapping,
    check_names,
    check_not_both,
    check_pixel,
    check_roi_size,
    checked,
    checks_names,
    replacing,
)

Backend = Literal["auto", "cpu", "cuda"]
Pixel = Literal["sampled", "integrated"]
Neighbours = Literal["exclude", "ignore", "joint", "auto"]
Devices = Literal["one", "all"]

#: False spots per 10⁶ pixels by default: as rare as a careful reader of an image accepts.
DEFAULT_FALSE_SPOTS = 10.0

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


def _explained(kinds: Iterable[Estimator | Profile]) -> str:
    """Return the words of a table with their meanings."""
    return " ".join(f"{one.name}: {one.meaning}" for one in kinds)


@checks_names
@dataclass(frozen=True, kw_only=True)
class Settings:
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
    >>> Settings(roi_size=8)
    Traceback (most recent call last):
    ...
    ValueError: roi_size must be odd, from 5 to 4095 px, so that a pixel is its centre; got 8
    """

    #: The hash, computed at its first use: settings are keys of caches.
    __slots__ = ("__dict__", "__weakref__", "_hash")

    sigma: float | None = setting(
        None,
        "PSF σ",
        "Standard deviation of a spot. It matches the band-pass filter of the detection "
        "to the spots; the fit finds each spot's own σ whatever is set here. Unset, it is "
        "estimated once from the image's spots; the result's settings have it.",
        "detection",
        unit="px",
        minimum=0.5,
        maximum=10,
        none_means="estimated from the image",
        automatic=1.3,
        step=0.1,
    )
    sigma_z: float | None = setting(
        None,
        "PSF σz",
        "Standard deviation of a spot along z, in planes, for models of spots in volumes: it "
        "matches the filter of the detection, says which spots are too long along z, and is that "
        "of spots at the ends of the stack, where too few planes show it. Unset, it is estimated "
        "with σ; the result's settings have it.",
        "detection",
        unit=PLANES,
        minimum=0.3,
        maximum=64,
        none_means="estimated from the image",
        step=0.1,
    )
    false_spots: float = setting(
        DEFAULT_FALSE_SPOTS,
        "False spots",
        "How many false spots to expect in a million pixels of noise. Raise it to find dimmer "
        "spots, lower it when noise is taken for spots.",
        "detection",
        unit="per 10⁶ px",
        minimum=0,
        above_minimum=True,
        maximum=100_000,
        step=1e-9,
        decades=True,
        shown="first",
    )
    threshold: float | None = setting(
        None,
        "Threshold",
        "How high a spot must be in the filtered image, instead of a number of false spots: use "
        "it where the same height counts in every image.",
        "detection",
        unit="counts",
        minimum=0,
        none_means="by false spots",
    )
    min_distance: float = setting(
        2.0,
        "Min. distance",
        "Of two spots closer than this, only the brighter is kept. Up to 2 px, all are kept: "
        "the filter shows none closer.",
        "detection",
        unit="px",
        minimum=1,
        maximum=64,
        step=0.5,
    )
    roi_size: int | tuple[int, ...] | None = setting(
        None,
        "ROI size",
        "Side of the square region around a spot that is fitted, or (rows, columns), of spots in "
        "volumes (planes, rows, columns). Unset, it is about 6 σ along each axis, at least 9 px: "
        "smaller loses light, larger takes in neighbours.",
        "fit",
        unit="px",
        minimum=5,
        maximum=ROI_LARGEST - 1,
        none_means="about 6 σ",
        automatic=9,
        step=2,
        odd=True,
    )
    model: ModelName | VolumeModelName | Profile | Calibration = setting(
        "gaussian",
        "Model",
        "The spot's shape on a constant background. " + _explained(MODELS.values()),
        "fit",
        words={model.name: model.words for model in ALL_MODELS.values()},
    )
    pixel: Pixel = setting(
        "sampled",
        "Pixels",
        "sampled: the model at the centre of each pixel. integrated: the model averaged over "
        "each pixel, as a camera sees it, for the σ of the light itself; for Gaussians "
        "that are not rotated.",
        "fit",
    )
    estimator: EstimatorName = setting(
        "lse",
        "Estimator",
        _explained(ESTIMATORS.values()),
        "fit",
        words={estimator.name: estimator.words for estimator in ESTIMATORS.values()},
    )
    neighbours: Neighbours = setting(
        "exclude",
        "Neighbours",
        "exclude: a fit uses only those pixels of the ROI that are nearer to its own spot than to "
        "any other detection or given position of the frame. ignore: it uses all of them, so that "
        "a neighbour's light shifts the centre and changes the width. joint: spots whose light "
        "overlaps are fitted together, hidden ones are added, and those that the data do not need "
        "dropped; for round Gaussians in planes, on the CPU. auto: joint where spots overlap and "
        "the model is one of these, else exclude.",
        "fit",
    )
    fixed: Mapping[str, float | None] = setting(
        FrozenMapping(),
        "Fixed",
        "Shape parameters that are not fitted, by name: a number is their value, that of y and x "
        "counted from the middle of the ROI; with None each spot keeps its own start value.",
        "bounds",
        shown="apart",
    )
    bounds: Mapping[str, tuple[float | None, float | None]] = setting(
        FrozenMapping(),
        "Bounds",
        "Lower and upper bound of shape parameters by name, None for an open end; y and x count "
        "from the middle of the ROI.",
        "bounds",
        shown="apart",
    )
    errors: bool = setting(
        True,
        "Standard errors",
        "Also compute the standard error of every fitted parameter. What ends at one of its "
        "bounds has none, and counts as known for the others.",
        "fit",
    )
    max_iterations: int = setting(
        stopping.MAX_ITERATIONS,
        "Max. iterations",
        "A fit that has not settled after this many iterations has not converged (MAX_ITERATIONS).",
        "stop",
        minimum=1,
        maximum=1000,
    )
    max_error: float = setting(
        stopping.MAX_ERROR,
        "Accepted χ²",
        "A fit whose χ² falls below this has converged (MAX_ERROR); 0 never stops a fit.",
        "stop",
        unit="counts²",
        minimum=0,
    )
    min_delta: float = setting(
        stopping.MIN_DELTA,
        "Min. change of χ²",
        "A fit has converged when a step changes χ² by less than this fraction of it, or when the "
        "next step is expected to (MIN_DELTA).",
        "stop",
        minimum=0,
        maximum=1,
        decades=True,
    )
    min_step: float = setting(
        stopping.MIN_STEP,
        "Min. step",
        "A fit has converged when a step changes every parameter by less than this fraction of "
        "it (MIN_STEP).",
        "stop",
        minimum=0,
        maximum=1,
        decades=True,
    )
    sigma_min: float | None = setting(
        None,
        "σ at least",
        f"Lower bound of the fitted σ; unset, it is {stopping.SIGMA_MIN} px.",
        "bounds",
        unit="px",
        minimum=0,
        above_minimum=True,
        none_means=f"{stopping.SIGMA_MIN} px",
        step=0.1,
        shown="apart",
    )
    sigma_max: float | None = setting(
        None,
        "σ at most",
        "Upper bound of the fitted σ; unset, it is the ROI's longer side.",
        "bounds",
        unit="px",
        minimum=0,
        above_minimum=True,
        none_means="ROI's side",
        step=0.1,
        shown="apart",
    )
    amplitude_min: float | None = setting(
        None,
        "Amplitude at least",
        "Lower bound of the amplitude; unset, dark spots are fitted too.",
        "bounds",
        unit="counts",
        none_means="no bound",
    )
    amplitude_max: float | None = setting(
        None, "Amplitude at most", "Upper bound of the amplitude.", "bounds",
        unit="counts", none_means="no bound",
    )  # fmt: skip
    background_min: float | None = setting(
        None,
        "Background at least",
        "Lower bound of the background above the camera offset. 0 keeps the fit from "
        "negative light and makes σ more precise on dark images.",
        "bounds",
        unit="counts/px",
        none_means="no bound",
    )
    background_max: float | None = setting(
        None, "Background at most", "Upper bound of the background above the camera offset.",
        "bounds", unit="counts/px", none_means="no bound",
    )  # fmt: skip
    offset: float = setting(
        0.0,
        "Camera offset",
        "Counts that the camera gives without light. It is subtracted from the background.",
        "camera",
        unit="counts",
    )
    gain: float | None = setting(
        None,
        "Camera gain",
        "Counts per photo-electron. Known, it turns counts into photons and the standard "
        "errors follow the camera's noise; unknown, light is in counts and the standard errors "
        "follow the noise that the image shows.",
        "camera",
        unit="counts/e⁻",
        minimum=0,
        above_minimum=True,
        none_means="unknown",
        step=0.1,
    )
    variance: float | None = setting(
        None,
        "Read-out variance",
        "Variance of the camera's read-out noise, that of frames without light. Maximum "
        "likelihood adds it to the shot noise; weighted least squares takes its inverse for "
        "weights; with a known gain, the standard errors of least squares count it.",
        "camera",
        unit="counts²",
        minimum=0,
        none_means="0",
    )
    emccd: bool = setting(
        False,
        "EMCCD",
        "Whether the camera multiplies electrons before they are read out, which doubles the "
        "variance of the shot noise. It counts where the gain is known, and for maximum "
        "likelihood.",
        "camera",
    )
    noise: NoiseModel | None = setting(
        None,
        "Noise",
        "The noise of the image's pixels, as noise_model(…) finds it. Unset, it is that of the "
        "camera where gain and read-out variance are known, else measured once in the image; the "
        "result's settings have it. Standard errors follow it, and maximum likelihood without a "
        "gain.",
        "camera",
        none_means="as the camera or the image has it",
        shown="apart",
    )
    voxel_size: tuple[float, float, float] | None = setting(
        None,
        "Voxel size",
        "Distance of planes, rows and columns, (z, y, x). Known, results have z in nm, too, and "
        "the widths of spots follow from the optics.",
        "optics",
        unit="nm",
        minimum=0,
        above_minimum=True,
        none_means="unknown",
        shown="apart",
    )
    numerical_aperture: float | None = setting(
        None,
        "Numerical aperture",
        "That of the objective. With wavelength and voxel size it gives the widths that spots are "
        "expected to have, from which their estimates start.",
        "optics",
        minimum=0.05,
        maximum=1.7,
        none_means="unknown",
        step=0.05,
        shown="apart",
    )
    wavelength: float | None = setting(
        None, "Wavelength", "That of the light that the camera sees, in vacuum.", "optics",
        unit="nm", minimum=200, maximum=2000, none_means="unknown", step=10, shown="apart",
    )  # fmt: skip
    refractive_index: float | None = setting(
        None,
        "Refractive index",
        "That of the objective's immersion.",
        "optics",
        minimum=1,
        maximum=2,
        none_means="that of air, water or oil, by the numerical aperture",
        step=0.01,
        shown="apart",
    )
    backend: Backend = setting(
        "auto",
        "Run on",
        "auto: the GPU where one can be used, else the CPU, and the CPU for a few fits. "
        "cpu: the CPU. cuda: the GPU, or an error that says why it cannot be used.",
        "run",
        words={"auto": "automatic", "cpu": "CPU", "cuda": "CUDA GPU"},
    )
    devices: Devices = setting(
        "one",
        "GPUs",
        "one: the current CUDA device. all: every GPU of this computer shares the work.",
        "run",
    )
    threads: int | None = setting(
        None,
        "Threads",
        "CPU threads to use.",
        "run",
        minimum=1,
        maximum=1024,
        none_means="all cores",
    )

    def __post_init__(self) -> None:
        own, default = vars(self), _defaults()
        values = {name: value for name, value in own.items() if value is not default[name]}
        self._check(values, {name for name, value in values.items() if value != default[name]})

    def __hash__(self) -> int:
        try:
            known: int = object.__getattribute__(self, "_hash")
        except AttributeError:
            known = hash(tuple(vars(self).values()))
            object.__setattr__(self, "_hash", known)
        return known

    def __getstate__(self) -> dict[str, Any]:
        return vars(self)  # without the hash, which is another process's

    def _check(self, values: Mapping[str, Any], given: Collection[str] | None = None) -> None:
        """Check values and the settings that depend on them, and store the values.

        ``given`` are those that somebody has chosen, by default all.
        """
        hints, known = _hints(), parameters()
        for name, value in values.items():
            vars(self)[name] = checked(name, hints[name], known[name], value)
        if isinstance(self.model, Calibration):
            self._take_from_calibration(self.model, values if given is None else given)
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
        if isinstance(self.model, Calibration):
            return self.model.profile
        return self.model if isinstance(self.model, Profile) else ALL_MODELS[self.model]

    @property
    def dimensions(self) -> int:
        """How many spatial axes the spots have."""
        return len(self.profile.axes)

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
