"""Estimate the PSF's width from an image, of stacks in the plane and along z."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, Literal, NamedTuple, Unpack

import numpy as np
from numpy.typing import NDArray

from ..caller import warn_caller
from ..engine.fit_job import FitJob
from ..engine.flags import Flag
from ..images.camera import Camera, PerPixel
from ..images.channels import Maps, channel_of
from ..images.frames import FrameReader, FrameSelection
from ..images.pixel_calibration import PixelCalibration, detection_calibration
from ..settings.bounds import expected_widths, roi_for
from ..settings.fields import DEFAULT_FALSE_SPOTS
from ..settings.noise_model import NoiseModel
from ..settings.options import Options, in_dimensions, merged, takes_settings
from ..settings.settings import Settings
from ..settings.validation import PLANES_MIN
from .single_widths import TOO_FEW
from .width_samples import Sample, samples
from .width_search import (
    ACCEPTED,
    ENOUGH,
    WIDTHS,
    NoWidthError,
    PsfWidth,
    WidthSearch,
    agree,
    width_of,
)

#: Spots are looked for with the first of these widths along z, in planes, and then with others.
_DEPTHS = (1.5, 0.7, 3.0, 6.0)
#: What is found with a width along z is of that width, within this factor.
_AGREES = 1.5
#: The widths are looked for again with what was found until neither changes by more than this
#: fraction, at most this many times.
_SETTLED, _ROUNDS = 0.05, 6
#: Number of planes, those with the brightest spots, from which the width in the plane is guessed.
_BRIGHTEST_PLANES = 6
#: Depth in widths below which a stack has no spot away from both of its ends.
_THIN = 6.0
#: Limits of the setting.
_SIGMA_Z = (0.3, 64.0)
__all__ = ["PsfWidth", "estimate_sigma", "with_psf"]

#: Used where they cannot be estimated from an image, nor follow from the optics.
FALLBACK_SIGMA, FALLBACK_SIGMA_Z = 1.3, 1.5


def volume_width_of(
    looked_at: Iterable[Sample], calibration: PixelCalibration, given: Settings
) -> PsfWidth:
    """Return the widths of the spots in samples of stacks, taking more until there are enough.

    Parameters
    ----------
    looked_at : iterable of Sample
        Parts of stacks, the small ones first.
    calibration : PixelCalibration
        What is known of their pixels.
    given : Settings
        ``sigma``, ``sigma_z`` and the optics are first guesses.

    Raises
    ------
    NoWidthError
        If fewer than three spots are usable.
    """
    best, why, noise = None, "there are no stacks", None
    for sample in looked_at:
        depth = sample.pixels.shape[1]
        if depth < PLANES_MIN:
            raise NoWidthError(
                f"the width along z needs {PLANES_MIN} planes at least, and the stack has {depth}"
            )
        search = _Search(sample, calibration, noise)
        width = search.widths(_first_guess(given, best))
        if width is not None and (best is None or width.spots > best.spots):
            best = width
        if best is not None and best.spots >= ENOUGH:
            break
        why, noise = search.why, search.noise
        if noise is not None and not noise.blocks:
            noise = None
    if best is None:
        raise NoWidthError(f"the PSF's widths need {TOO_FEW} good fits of spots, but {why}")
    return best


class Guess(NamedTuple):
    """Widths in the plane and along z, as far as they are known."""

    sigma: float | None = None
    sigma_z: float | None = None

    def filled(self, other: Guess) -> Guess:
        """Return the same, with those of another one where they are unknown."""
        return Guess(*(b if a is None else a for a, b in zip(self, other, strict=True)))

    def in_words(self, is_volume: bool) -> str:
        """Say which of them are taken."""
        if not is_volume:
            return f"{self.sigma:g} px is taken"
        return f"{self.sigma:g} px and {self.sigma_z:g} planes are taken"


def within_limits(widths: Guess) -> Guess:
    """Return widths as settings take them."""
    limits = zip(widths, (ACCEPTED, _SIGMA_Z), strict=True)
    return Guess(*(
        None if value is None else round(min(max(value, low), high), 3)
        for value, (low, high) in limits
    ))  # fmt: skip


def _first_guess(given: Settings, best: PsfWidth | None) -> Guess:
    """Return the widths to begin with, as far as they are known."""
    if best is not None:
        return Guess(best.sigma, best.sigma_z)
    return Guess(given.sigma, given.sigma_z).filled(Guess(*(expected_widths(given) or ())))


class _Search(WidthSearch):
    """The search for both widths of the spots in a sample of stacks."""

    def __init__(
        self, sample: Sample, calibration: PixelCalibration, noise: NoiseModel | None
    ) -> None:
        super().__init__(sample, calibration, noise)
        self._in_planes = Sample(*_brightest_planes(sample), None, False), calibration
        self._settings = self._settings.changed(model="gaussian_3d")
        self._found: dict[tuple[float, float], PsfWidth | None] = {}

    def widths(self, guess: Guess) -> PsfWidth | None:
        """Return the widths of most spots that agree with what they were looked for with."""
        sigmas: tuple[float, ...] = WIDTHS
        if guess.sigma is not None:
            sigmas = (guess.sigma,)
        elif self._sample.places is None:
            in_plane = WidthSearch(*self._in_planes, self.noise).width(WIDTHS[0], sure=False)
            if in_plane is not None:
                sigmas = (in_plane.sigma,)
        depths = _DEPTHS if guess.sigma_z is None else (guess.sigma_z, *_DEPTHS)
        found: dict[tuple[float, float], PsfWidth] = {}
        for pair in ((sigma, depth) for sigma in sigmas for depth in depths):
            seen = self._look_at(pair)
            if seen is None:
                continue
            found[pair] = seen
            if seen.spots >= ENOUGH and _are_those(seen, pair):
                break
        if not found:
            return None
        agreeing = [pair for pair, seen in found.items() if _are_those(seen, pair)]
        pair = max(agreeing or found, key=lambda one: found[one].spots)
        width = found[pair]
        for _ in range(_ROUNDS):
            now = within_limits(Guess(width.sigma, width.sigma_z))
            assert now.sigma is not None
            assert now.sigma_z is not None
            changes = now.sigma / pair[0], now.sigma_z / pair[1]
            if all(abs(change - 1) < _SETTLED for change in changes):
                break
            pair = now.sigma, now.sigma_z
            width = self._look_at(pair) or width
        return width if _are_those(width, pair) else None

    def _look_at(self, pair: tuple[float, float]) -> PsfWidth | None:
        """Return the widths of the spots detected with a pair of them; None with too few."""
        pair = (round(pair[0], 4), round(pair[1], 4))
        if pair not in self._found:
            fits, real = self._fits(*pair)
            in_plane = self._estimate(fits, real)
            free = real & (fits["flags"] & int(Flag.SIGMA_Z_HELD) == 0)
            along_z = in_plane and self._estimate(fits, free, "sigma_z")
            self._found[pair] = None
            if in_plane is not None and along_z is not None:
                self._found[pair] = in_plane._replace(
                    spots=min(in_plane.spots, along_z.spots),
                    sigma_z=along_z.sigma, scatter_z=along_z.scatter,
                )  # fmt: skip
        return self._found[pair]

    def _job(self, calibration: PixelCalibration) -> FitJob:
        job, depth = super()._job(calibration), self._sample.pixels.shape[1]
        if job.sigma_z is not None and depth < _THIN * job.sigma_z:
            return replace(job, sigma_z=None)  # else all fits would hold it
        return job


def _are_those(width: PsfWidth, pair: tuple[float, float]) -> bool:
    """Whether widths are those that the spots were looked for with."""
    assert width.sigma_z is not None
    return agree(width.sigma, pair[0]) and 1 / _AGREES < width.sigma_z / pair[1] < _AGREES


def _brightest_planes(
    sample: Sample,
) -> tuple[NDArray[Any], NDArray[np.bool_] | None, NDArray[np.bool_] | None]:
    """Return the planes with the brightest spots, and which of their pixels are bad, or searched.

    Out of focus, spots are wider.
    """
    shape = sample.pixels.shape

    def planes(values: NDArray[Any] | None) -> NDArray[Any] | None:
        return None if values is None else np.broadcast_to(values, shape).reshape(-1, *shape[2:])

    pixels = planes(sample.pixels)
    assert pixels is not None
    every = pixels.reshape(len(pixels), -1)[:, :: max(pixels[0].size >> 16, 1) | 1]
    height, known = np.zeros(len(every)), np.isfinite(every).any(axis=1)
    if known.any():
        middle, high = np.nanpercentile(every[known].astype(float), (50, 99.9), axis=1)
        height[known] = np.nan_to_num(high - middle)
    rows = np.sort(np.argsort(-height)[:_BRIGHTEST_PLANES])
    bad, mask = planes(sample.bad), planes(sample.mask)
    return (
        np.ascontiguousarray(pixels[rows]),
        None if bad is None else bad[rows],
        None if mask is None else mask[rows],
    )


@takes_settings("detection", "camera", "optics", "run", also=("model",), volumes=True)
def estimate_sigma(
    image: Any,
    *,
    dimensions: Literal[2, 3] | None = None,
    frames: FrameSelection = None,
    channel: int | str | None = None,
    mask: Any = None,
    bad_pixels: Any = None,
    camera: Camera | None = None,
    settings: Settings | None = None,
    **options: Unpack[Options],
) -> PsfWidth:
    """Estimate the PSF's width by fits of bright spots.

    It is the width that the round Gaussian has in the fits: that of the light with
    ``pixel="integrated"``, and with the default, ``"sampled"``, √(σ² + 1/12 px²) of it, as pixels
    widen what they sample. Spots that stand alone show it or, in a crowd, fits that leave out the
    pixels of neighbours. Those that are not good or are of several spots do not count.

    It is measured in frames evenly spread over the image: as many as make a quarter of a million
    pixels or, of a larger frame, its middle. Where 30 such spots do not show it to within 1 %
    there, in as many as make a million and, where these show fewer than 30, 4 million.

    Spots in volumes have a second width, along z in planes. Both are measured by fits of Gaussians
    in three dimensions to spots that are not at an end of their stack, where too few planes show
    it, in all planes of 16 times as many pixels.

    Parameters
    ----------
    image : array, shape (…, Y, X) or (…, Z, Y, X), or path
        NumPy, CuPy, Dask or Zarr array of any real number type, or an image file, see
        :func:`~napari_spotfit.open_image`.
    dimensions : int, optional
        3 for spots in volumes; by default those of the model.
    frames : slice, int or indices, or a tuple of these, optional
        Which frames to choose from; by default all.
    channel : int or str, optional
        Number or name of the channel, where the image has an axis c of several.
    mask : array of bool, shape (Y, X) or (…, Y, X), optional
        Where to search.
    bad_pixels : array of bool, shape (Y, X) or (…, Y, X), optional
        True where a pixel is not used, and where no spots are found.
    camera : Camera, optional
        Offset and gain, of all pixels or of each.
    settings : Settings, optional
        All settings at once; ``options`` change single ones. ``sigma`` and ``sigma_z`` are first
        guesses, which need not be near; voxel size, aperture and wavelength give others.

    Returns
    -------
    PsfWidth
        The median ``sigma`` and its ``scatter`` from spot to spot in pixels, and the
        number of ``spots``; in volumes ``sigma_z`` and ``scatter_z`` in planes, too.

    Raises
    ------
    TypeError, ValueError
        If the image, the mask or the settings are not of the kind above, if fewer than three spots
        are usable, or if a stack has fewer than three planes.

    Examples
    --------
    >>> from napari_spotfit import estimate_sigma, simulate_movie
    >>> movie, truth = simulate_movie(5, sigma=1.8, photons=5000, spots_per_frame=10, seed=1)
    >>> abs(estimate_sigma(movie).sigma - 1.8) < 0.05
    True
    """
    settings = in_dimensions(merged(settings, options, estimate_sigma), dimensions, options)
    one = channel_of(image, channel, Maps(mask, None, bad_pixels, camera))
    reader, maps = FrameReader(one.image, spatial=settings.dimensions), one.maps
    calibration = detection_calibration(reader.shape, settings, maps.bad_pixels, maps.camera)
    masks = PerPixel.of_mask(maps.mask, reader)
    read_mask = None if masks is None else masks.read
    looked_at = samples(reader, calibration, reader.select(frames), read_mask=read_mask)
    if settings.dimensions > 2:
        return volume_width_of(looked_at, calibration, settings)
    return width_of(looked_at, calibration, settings.sigma)


def with_psf(
    reader: FrameReader,
    calibration: PixelCalibration,
    *,
    places: NDArray[np.float64] | None = None,
    warn: bool | Callable[[str], object] = True,
) -> PixelCalibration:
    """Return a calibration whose settings hold the PSF's σ and the ROI's size.

    They are what the settings say, or else estimated in a few frames evenly spread over the whole
    image, whichever of them, and wherever, is fitted and whatever spots are asked for.

    Parameters
    ----------
    reader : FrameReader
        The image.
    calibration : PixelCalibration
        What is known of its pixels, and the settings.
    places : ndarray, shape (n, 1 + axes), optional
        Number of the frame, and the position in it, of all spots. Without a width of theirs, σ
        stays None: only detection needs one.
    warn : bool or callable, default True
        Warn if it cannot be estimated; a function is called with the sentence instead.
    """
    settings, shape = calibration.settings, reader.frame_shape
    is_volume = len(shape) > 2
    widths = Guess(settings.sigma, settings.sigma_z)
    is_open = widths.sigma is None or (is_volume and widths.sigma_z is None)
    changed: dict[str, Any] = {}
    if is_volume and settings.roi_size is not None and settings.roi_shape[0] > shape[0]:
        changed["roi_size"] = shape[0], *settings.roi_shape[1:]  # a thin stack
    if not is_open and settings.roi_size is not None:
        return calibration.with_settings(**changed) if changed else calibration
    if is_open:
        numbers = np.arange(reader.count) if reader.held is None else np.array([reader.held])
        if places is not None:
            numbers = np.unique(places[:, 0]).astype(np.int64)
        try:
            plain = calibration.with_settings(false_spots=DEFAULT_FALSE_SPOTS, threshold=None)
            found = _estimated(reader, plain, numbers, places)
            widths = widths.filled(within_limits(found))
            if warn and found.sigma is not None and found.sigma > ACCEPTED[1]:
                (warn_caller if warn is True else warn)(
                    f"what stands out of the image is wider, σ {found.sigma:.3g} px, than spots "
                    f"that are fitted, {ACCEPTED[1]:g} px, as a background is, or what a filter "
                    "has left of one: set σ by hand if there are spots, or add up neighbouring "
                    "pixels if it is they that are so wide"
                )
        except NoWidthError as error:
            if places is None:
                widths = widths.filled(_usual(settings))
            # One or two spots are not asked for their width.
            if warn and len(numbers) and (places is None or len(places) >= TOO_FEW):
                taken = widths.in_words(is_volume) if places is None else "widths are not judged"
                named = "σ and σz" if is_volume else "σ"
                text = (
                    f"the image does not show the PSF's {named}, so that {taken}: {error.why}; set "
                    f"{named} by hand if you know {'them' if is_volume else 'it'}"
                )
                (warn_caller if warn is True else warn)(text)
    changed["sigma"] = widths.sigma
    if is_volume:
        changed["sigma_z"] = widths.sigma_z
    if settings.roi_size is None:
        sigma, sigma_z = widths.filled(_usual(settings))
        changed["roi_size"] = roi_for(
            sigma or FALLBACK_SIGMA, shape, sigma_z if is_volume else None
        )
    return calibration.with_settings(**changed)


def _usual(settings: Settings) -> Guess:
    """Return what is taken for unknown widths: those of the optics, where they are known."""
    optics = expected_widths(settings) if settings.dimensions > 2 else None
    if optics is None:
        return Guess(FALLBACK_SIGMA, FALLBACK_SIGMA_Z)
    return within_limits(Guess(*optics))


def _estimated(
    reader: FrameReader,
    calibration: PixelCalibration,
    numbers: NDArray[np.int64],
    places: NDArray[np.float64] | None,
) -> Guess:
    if places is not None and len(places) < TOO_FEW:
        raise NoWidthError(f"{TOO_FEW} spots are needed")
    looked_at = samples(reader, calibration, numbers, places=places)
    if calibration.settings.dimensions == 2:
        return Guess(width_of(looked_at, calibration).sigma)
    width = volume_width_of(looked_at, calibration, calibration.settings)
    return Guess(width.sigma, width.sigma_z)
