"""Calibrate an image's pixels: weights, bad pixels, and the camera's offset, gain and variance.

Backends accept one offset, one gain, and one value per pixel (weight or variance). Frames with maps
of offset or gain are corrected before.
"""

from __future__ import annotations

import copy
import math
from dataclasses import replace
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..models.calibration import Calibration
from ..models.number_checks import is_wrong
from ..settings.noise_model import NoiseModel
from ..settings.settings import Settings, electrons_of, noise_of
from .arrays import is_on_device, to_host
from .bright_rois import BrightRois
from .camera import Camera, PerPixel
from .frames import Part
from .pixel_checks import check_counts_of, check_map, check_together
from .plane_light import PlaneLight

_NO_CAMERA = Camera()
#: Number of ROIs whose counts are checked.
_CHECKED = 64


class Planes(NamedTuple):
    """Per-pixel weights or read-out variances.

    The array is in single precision, of shape (1, …, Y, X) if all frames share it, or else of the
    shape of the frames. For least squares it holds weights, 0 for bad pixels; for maximum
    likelihood the read-out variance in photo-electrons², NaN for bad pixels.
    """

    values: Any


class PixelCalibration:
    """The calibration of an image's pixels, prepared for the backends.

    Parameters
    ----------
    shape : tuple of int
        The image's shape (…, Y, X), or that of cut-outs.
    settings : Settings
        The settings of the fit.
    weights, bad_pixels : array, shape (Y, X) or that of the image, optional
        Weights for ``wlse``, and True for bad pixels.
    camera : Camera, optional
        The camera, with maps of the same shapes.

    Attributes
    ----------
    settings : Settings
        The settings for the results, with the camera's mean offset and gain.
    fitted : Settings
        The settings for fits of corrected frames.
    light : PlaneLight or None
        What corrects the planes of volumes that differ in light or background.

    Raises
    ------
    TypeError, ValueError
        If types, shapes or values are wrong, or arguments contradict each other.
    """

    def __init__(
        self,
        shape: tuple[int, ...],
        settings: Settings,
        *,
        weights: Any = None,
        bad_pixels: Any = None,
        camera: Camera | None = None,
    ) -> None:
        if not (camera is None or isinstance(camera, Camera)):
            raise TypeError(f"camera must be a Camera(offset, gain, variance); got {camera!r}")
        camera = camera or _NO_CAMERA
        check_together(settings, weights is not None, camera)
        if settings.variance is not None:
            camera = replace(camera, variance=settings.variance)
        spatial = settings.dimensions
        self._shape, self._count = shape[-spatial:], math.prod(shape[:-spatial])
        self._estimator, self._parameters = settings.estimator_kind, settings.fitted_parameters
        self._maps: dict[str, PerPixel] = {}
        self._numbers: dict[str, float] = {}
        for name in ("offset", "gain", "variance"):
            value = getattr(camera, name)
            if isinstance(value, float):
                self._numbers[name] = value
            elif value is not None:
                self._maps[name] = PerPixel(value, shape, f"the camera's {name}", "", spatial)
                self._numbers[name] = _mean(name, value)
        if weights is not None:
            self._maps["weights"] = PerPixel(weights, shape, "weights", "", spatial)
        if bad_pixels is not None:
            self._maps["bad_pixels"] = PerPixel(
                bad_pixels, shape, "bad_pixels", "where a pixel is not used", spatial
            )
        #: Where fits find z, the spots by which the camera's orientation is checked.
        self.bright = BrightRois() if isinstance(settings.model, Calibration) else None
        #: Of volumes whose planes differ: what corrects them, and which are left out, (1, Z, Y, X).
        self.light: PlaneLight | None = None
        self._left_out: NDArray[np.bool_] | None = None
        self._corrects = "offset" in self._maps or "gain" in self._maps
        self._same_for_all = all(one.shared for one in self._maps.values())
        self._take(settings.changed(**self._numbers))

    def _take(self, settings: Settings) -> None:
        """Store the settings with the camera's mean values, and derive what depends on them."""
        self.settings = settings
        self.fitted = settings.changed(offset=0.0) if self._corrects else settings
        self._electrons = electrons_of(self.fitted)
        # If the dark level was estimated from the noise, counts need no check.
        self._counts_checked = self._electrons.dark != self.fitted.offset
        known = self._maps or self._numbers or self._electrons.variance > 0
        known = known or self.light is not None or self._left_out is not None
        alike = self._same_for_all and not self._differs_by_frame
        self._plane = self._values(np.arange(1), np) if alike and known else None
        # Maximum likelihood has the variance in its planes.
        follows = (
            settings.errors and not self._estimator.is_likelihood and noise_of(settings) is not None
        )
        differs = "variance" in self._maps or ("gain" in self._maps and "variance" in self._numbers)
        self._has_variances = follows and (differs or self.light is not None)

    def with_noise(self, noise: NoiseModel | None) -> PixelCalibration:
        """Return a copy with the noise of corrected frames in its settings."""
        return self.with_settings(noise=noise)

    def with_settings(self, **options: Any) -> PixelCalibration:
        """Return a copy with changed settings, other than those of the camera."""
        known = copy.copy(self)
        known._take(self.settings.changed(**options))
        return known

    def without_planes(self, left_out: NDArray[np.bool_]) -> PixelCalibration:
        """Return a copy that leaves planes of volumes, of shape (Z,), out of all fits."""
        if not left_out.any():
            return self
        known = copy.copy(self)
        everywhere = np.broadcast_to(left_out[:, np.newaxis, np.newaxis], self._shape)
        known._left_out = np.ascontiguousarray(everywhere)[np.newaxis]
        known._take(self.settings)
        return known

    @property
    def left_out(self) -> NDArray[np.bool_]:
        """Which planes of volumes are left out."""
        if self._left_out is None:
            return np.zeros(self._shape[0], np.bool_)
        return self._left_out[0, :, 0, 0]

    def with_light(self, light: PlaneLight | None) -> PixelCalibration:
        """Return a copy that corrects the planes of volumes, or leaves them as they are."""
        if light is self.light:
            return self
        known = copy.copy(self)
        known.light = light
        known._take(self.settings)
        return known

    @property
    def _differs_by_frame(self) -> bool:
        return self.light is not None and self._count > 1

    @property
    def by_frame(self) -> bool:
        """Whether frames need arrays of their own size, for corrections or maps per frame."""
        return self._corrects or self.light is not None or not self._same_for_all

    @property
    def _has_bad(self) -> bool:
        return "bad_pixels" in self._maps or self._left_out is not None

    def has_pixels_of(self, other: PixelCalibration) -> bool:
        """Whether both correct pixels alike: one was made of the other, with the same PSF."""
        return self._maps is other._maps and self.settings.sigma == other.settings.sigma

    @property
    def has_maps(self) -> bool:
        """Whether there are per-pixel maps."""
        return bool(self._maps)

    @property
    def is_weighted(self) -> bool:
        """Whether weights or bad pixels are given."""
        return "weights" in self._maps or self._has_bad

    @property
    def camera_noise(self) -> NoiseModel | None:
        """The noise of corrected frames by the camera's calibration; None without a gain."""
        settings = self.fitted
        if settings.gain is None:
            return None
        variance = self._usual_variance()
        if variance == settings.variance:
            return noise_of(settings)
        return noise_of(settings.changed(variance=variance))

    @property
    def knows_variance(self) -> bool:
        """Whether the camera's read-out variance is known."""
        return "variance" in self._numbers

    def variance_map(self) -> NDArray[np.float32] | None:
        """Return the map of read-out variances of corrected frames, in counts².

        Shape (Y, X), on the host, 0 for invalid values; None without a map, or with one per frame.
        What planes that differ have more is not in it.
        """
        if "variance" not in self._maps or not self._same_for_all:
            return None
        first = np.arange(1)
        with np.errstate(all="ignore"):  # bad pixels may have any values
            values = self._read("variance", first, np)
            if "gain" in self._maps:
                values = values * (self._numbers["gain"] / self._read("gain", first, np)) ** 2
        return np.ascontiguousarray(
            np.where(is_wrong("variance", values), 0, values)[0], np.float32
        )

    def _usual_variance(self) -> float | None:
        """Return the read-out variance, or the median of its map."""
        if "variance" not in self._maps:
            return self._numbers.get("variance")
        values = to_host(self._maps["variance"].read(np.arange(1)))
        right = values[~is_wrong("variance", values)]
        return float(np.median(right)) if right.size else None

    def corrected(
        self,
        block: NDArray[np.int64],
        pixels: Any,
        *,
        mark_bad: bool = False,
        part: Part | None = None,
    ) -> Any:
        """Correct frames to those of a camera with the same offset and gain in all pixels.

        Parameters
        ----------
        block : ndarray of int
            The frames' numbers.
        pixels : array, shape (n, …, Y, X)
            The frames, which are not modified.
        mark_bad : bool, default False
            Whether to set bad pixels to NaN, so that no spots are detected there.
        part : tuple of slice, optional
            The part of the frames that `pixels` contains; by default all.
        """

        def known(name: str, otherwise: float = math.nan) -> Any:
            values = self._read(name, block, numbers, otherwise)
            return values if part is None or name not in self._maps else values[(..., *part)]

        mark_bad = mark_bad and self._has_bad
        if not (self._corrects or mark_bad or self.light):
            return pixels
        numbers = _module_of(pixels)
        frames = pixels.astype(np.float64 if pixels.dtype == np.float64 else np.float32)
        if self._corrects:
            with np.errstate(all="ignore"):  # bad pixels may have any offset and gain
                frames -= known("offset", self.settings.offset)
                if "gain" in self._maps:
                    frames *= self._numbers["gain"] / known("gain")
            frames = frames.astype(np.float32)
        if self.light is not None:
            frames = self.light.corrected(block, frames, numbers, part).astype(np.float32)
        if mark_bad:
            bad = self._bad(block, numbers)
            bad = bad if part is None else bad[(..., *part)]
            frames = numbers.where(bad, frames.dtype.type(math.nan), frames)
        return frames

    def corrected_type(self, pixel_type: np.dtype[Any]) -> np.dtype[Any]:
        """Return the pixel type of corrected frames with marked bad pixels."""
        corrects = self._corrects or self.light is not None
        if not (corrects or self._has_bad):
            return pixel_type
        is_double = pixel_type == np.float64 and not corrects
        return np.dtype(np.float64 if is_double else np.float32)

    def bad_pixels(self, block: NDArray[np.int64]) -> Any:
        """Return the bad pixels of frames, (1, …) if all share them; None without any."""
        if self._left_out is None:
            return self._maps["bad_pixels"].read(block) if "bad_pixels" in self._maps else None
        on_device = "bad_pixels" in self._maps and self._maps["bad_pixels"].on_device
        return self._bad(block, _cupy() if on_device else np)

    def _bad(self, block: NDArray[np.int64], numbers: ModuleType) -> Any:
        """Return the bad pixels of frames, where there are any, and those of planes left out."""
        given = self._read("bad_pixels", block, numbers) if "bad_pixels" in self._maps else None
        if self._left_out is None:
            return given
        own = numbers.asarray(self._left_out)
        return own if given is None else own | given

    def planes(self, block: NDArray[np.int64], pixels: Any) -> Planes | None:
        """Return weights or variances of frames; None if all pixels are equivalent.

        They lie on the host, unless both maps and frames are on a GPU.
        """
        values = self._plane
        if not self._same_for_all or self._differs_by_frame:
            on_device = any(one.on_device for one in self._maps.values())
            values = self._values(block, _module_of(pixels) if on_device else np)
        return None if values is None else Planes(values)

    def variances(self, block: NDArray[np.int64], pixels: Any) -> Planes | None:
        """Return the pixels' excess of read-out variance over the usual one, in counts².

        Standard errors of least squares account for it if the noise is known. None if they do not,
        or if all pixels have the same variance. The usual variance is that of ``fitted`` if the
        gain is known, and the median of the map if the noise was estimated from the image.
        """
        if not self._has_variances:
            return None
        on_device = any(one.on_device for one in self._maps.values())
        numbers = _module_of(pixels) if on_device else np
        with np.errstate(all="ignore"):  # bad pixels may have any values
            values = self._read("variance", block, numbers)
            if "gain" in self._maps:
                values = values * (self._numbers["gain"] / self._read("gain", block, numbers)) ** 2
        known = self.settings.gain is not None
        usual = self.settings.variance if known else self._usual_variance()
        if "variance" not in self._numbers:
            values = usual = 0.0
        plane = (values - (usual or 0.0)) + numbers.zeros((1, *self._shape), np.float32)
        if self.light is not None:
            plane = plane + numbers.asarray(self.light.excess(block))
        return Planes(numbers.ascontiguousarray(plane, np.float32))

    @property
    def counts_are_open(self) -> bool:
        """Whether :meth:`check_counts` has not been called yet."""
        return self._estimator.is_likelihood and not self._counts_checked

    def check_counts(self, pixels: Any, corners: NDArray[np.int64] | None) -> None:
        """Check that counts above the offset can be photons, as maximum likelihood requires.

        Called once per run, with its first ROIs.

        Parameters
        ----------
        pixels : array, shape (n, …, Y, X)
            Corrected frames.
        corners : ndarray of int, shape (n, 1 + axes), or None
            Frame and first pixel of each ROI; None if each frame is a ROI.

        Raises
        ------
        ValueError
            If most are negative, so that there is no likelihood.
        """
        count = len(pixels) if corners is None else len(corners)
        if not self.counts_are_open or not count:
            return
        self._counts_checked = True
        step = -(-count // _CHECKED)
        if corners is None:
            counts = to_host(pixels[::step])
        else:
            sides = self.settings.roi_shape
            rois = [
                pixels[(one[0], *map(slice, one[1:], one[1:] + sides))] for one in corners[::step]
            ]
            counts = np.stack([to_host(roi) for roi in rois])
        check_counts_of(counts, self.fitted.offset, self._estimator)

    def _values(self, block: NDArray[np.int64], numbers: ModuleType) -> Any:
        """Return weights or, for maximum likelihood, variances in photo-electrons²."""
        bad = self._bad(block, numbers) if self._has_bad else None
        for name in self._maps:
            if name != "bad_pixels":
                check_map(name, self._read(name, block, numbers), bad, len(self._shape))
        with np.errstate(all="ignore"):  # bad pixels may have any values
            values = self._known(block, numbers)
        if values is None and bad is None:
            return None
        own = self._estimator.counted if values is None else values
        plane = own + numbers.zeros((1, *self._shape), np.float32)
        if bad is not None:
            plane = numbers.where(bad, self._estimator.excluded, plane)
        self._check_rest(plane, len(block) == self._count or self._same_for_all)
        return numbers.ascontiguousarray(plane, np.float32)

    def _known(self, block: NDArray[np.int64], numbers: ModuleType) -> Any:
        """Return weights or variances without regard to bad pixels, one number for all, or None."""
        if "weights" in self._maps:
            return self._read("weights", block, numbers)
        if self._estimator.is_likelihood:
            own = self._electrons
            if not ("variance" in self._numbers or own.variance > 0 or self.light):
                return None
            gain = self._read("gain", block, numbers, own.gain)
            values = self._read("variance", block, numbers, own.variance) / gain**2
            if self.light is not None:
                excess = numbers.asarray(np.maximum(self.light.excess(block), 0.0))
                values = values + excess / own.gain**2
            return values
        if "variance" not in self._numbers or not self._estimator.needs_weights:
            return None
        gain = self._read("gain", block, numbers, self.settings.gain or 1.0)
        return 1 / (
            self._read("variance", block, numbers) / gain**2 * (self.settings.gain or 1.0) ** 2
        )

    def _check_rest(self, plane: Any, all_there_is: bool) -> None:
        """Check that weights are finite, and that some frame has enough pixels for a fit."""
        if self._estimator.needs_weights and not bool((plane < math.inf).all()):
            raise ValueError(
                "the camera's variance must be above 0 counts² in every pixel that is used, as "
                "its inverse is the weight; give weights=… otherwise"
            )
        used = plane >= 0 if self._estimator.is_likelihood else plane > 0
        within = tuple(range(1, used.ndim))
        most = int(used.sum(axis=within).max()) if all_there_is and len(plane) else None
        if most is not None and most <= self._parameters:
            raise ValueError(
                f"bad pixels and weights of 0 leave {most} pixels; a fit of {self._parameters} "
                f"parameters needs {self._parameters + 1} or more"
            )

    def _read(
        self, name: str, block: NDArray[np.int64], numbers: ModuleType, otherwise: float = math.nan
    ) -> Any:
        """Return the map for some frames as an array of NumPy or CuPy, or one number."""
        if name not in self._maps:
            return np.float64(self._numbers.get(name, otherwise))
        values = self._maps[name].read(block)
        return to_host(values) if numbers is np else numbers.asarray(values)


def detection_calibration(
    shape: tuple[int, ...], settings: Settings, bad_pixels: Any, camera: Camera | None
) -> PixelCalibration:
    """Return the calibration for detection, which is independent of the estimator."""
    if isinstance(settings.model, Calibration):
        settings = settings.changed(model="gaussian", fixed={}, bounds={})
    plain = settings.changed(estimator="lse")
    return PixelCalibration(shape, plain, bad_pixels=bad_pixels, camera=camera)


def _mean(name: str, values: Any) -> float:
    """Return the mean of a map's valid values."""
    right = values[~is_wrong(name, values)]
    return float(right.mean()) if right.size else 1.0


def _module_of(array: Any) -> ModuleType:
    """Return NumPy, or CuPy for an array on a GPU."""
    return _cupy() if is_on_device(array) else np


def _cupy() -> ModuleType:
    import cupy

    module: ModuleType = cupy
    return module
