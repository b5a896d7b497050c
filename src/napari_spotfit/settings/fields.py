"""Every setting of detection and fit: default, unit, range and explanation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from ..models import estimators
from ..models.calibration import Calibration
from ..models.columns import PLANES
from ..models.estimators import ESTIMATORS, Estimator, EstimatorName
from ..models.profiles import ALL_MODELS, MODELS, ModelName, Profile, VolumeModelName
from .noise_model import NoiseModel
from .validation import ROI_LARGEST, FrozenMapping, setting

Backend = Literal["auto", "cpu", "cuda"]
Pixel = Literal["sampled", "integrated"]
Neighbours = Literal["auto", "joint", "exclude", "ignore"]
Devices = Literal["one", "all"]

#: False spots per 10⁶ pixels by default: as rare as a careful reader of an image accepts.
DEFAULT_FALSE_SPOTS = 10.0


def _one_of(
    named: Mapping[str, Estimator | Profile], default: str, label: str, doc: str, *explained: str
) -> Any:
    """Return the field of a name in a table, which explains some of the names, by default all."""
    meanings = " ".join(f"{name}: {named[name].meaning}" for name in explained or named)
    words = {name: one.words for name, one in named.items()}
    return setting(default, label, doc + meanings, "fit", words=words)


@dataclass(frozen=True, kw_only=True, eq=False)
class SettingFields:
    """The fields of :class:`~napari_spotfit.Settings`."""

    __slots__ = ()

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
    model: ModelName | VolumeModelName | Profile | Calibration = _one_of(
        ALL_MODELS, "gaussian", "Model", "The spot's shape on a constant background. ", *MODELS
    )
    pixel: Pixel = setting(
        "sampled",
        "Pixels",
        "sampled: the model at the centre of each pixel. integrated: the model averaged over "
        "each pixel, as a camera sees it, for the σ of the light itself; for Gaussians "
        "that are not rotated.",
        "fit",
    )
    estimator: EstimatorName = _one_of(ESTIMATORS, "lse", "Estimator", "")
    neighbours: Neighbours = setting(
        "auto",
        "Neighbours",
        "auto: where spots overlap, joint if the model can, else exclude. joint: spots whose light "
        "overlaps are fitted together, hidden ones are added, and those that the data do not need "
        "dropped; for Gaussians of known width, round or elliptical, in planes and volumes, and "
        "for measured PSFs. exclude: a fit uses only those pixels of the ROI that are nearer to "
        "its own spot than to any other detection or given position of the frame. ignore: it uses "
        "all of them, so that a neighbour's light shifts the centre and changes the width. Where "
        "spots stand apart, auto takes up to 3 % longer than exclude; at 1 spot per 100 px², about "
        "twice as long, at 2, eight times.",
        "fit",
        words={
            "auto": "auto (slow in crowds)",
            "joint": "joint (slow)",
            "exclude": "exclude (fast)",
            "ignore": "ignore (fast, biased)",
        },
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
        estimators.MAX_ITERATIONS,
        "Max. iterations",
        "A fit that has not settled after this many iterations has not converged (MAX_ITERATIONS).",
        "stop",
        minimum=1,
        maximum=1000,
    )
    max_error: float = setting(
        estimators.MAX_ERROR,
        "Accepted χ²",
        "A fit whose χ² falls below this has converged (MAX_ERROR); 0 never stops a fit.",
        "stop",
        unit="counts²",
        minimum=0,
    )
    min_delta: float = setting(
        estimators.MIN_DELTA,
        "Min. change of χ²",
        "A fit has converged when a step changes χ² by less than this fraction of it, or when the "
        "next step is expected to (MIN_DELTA).",
        "stop",
        minimum=0,
        maximum=1,
        decades=True,
    )
    min_step: float = setting(
        estimators.MIN_STEP,
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
        f"Lower bound of the fitted σ; unset, it is {estimators.SIGMA_MIN} px.",
        "bounds",
        unit="px",
        minimum=0,
        above_minimum=True,
        none_means=f"{estimators.SIGMA_MIN} px",
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
    )
    wavelength: float | None = setting(
        None, "Wavelength", "That of the light that the camera sees, in vacuum.", "optics",
        unit="nm", minimum=200, maximum=2000, none_means="unknown", step=10,
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
