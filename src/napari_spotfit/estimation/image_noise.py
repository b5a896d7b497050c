"""Estimate the noise of an image, and warn where one camera cannot have made it."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple, Unpack
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from ..caller import warn_caller
from ..engine.detection_settings import NO_NOISE
from ..engine.flags import times
from ..images.arrays import to_host
from ..images.camera import Camera
from ..images.channels import Maps, channel_of
from ..images.frames import FrameReader
from ..images.pixel_calibration import PixelCalibration, detection_calibration
from ..images.reading import evenly_spread, without_damage
from ..models.calibration import Calibration
from ..settings.noise_model import FILTERED, UNLIKE, NoiseModel, Process
from ..settings.options import Options, merged, takes_settings
from ..settings.settings import Settings
from . import lone_pixels
from .coarse_steps import (
    OF_STEPS,
    hides_noise,
    of_camera_in_steps,
    of_hidden_noise,
    with_noise_of_steps,
)
from .constant_areas import without_constant_areas
from .content import dark_spots, depth_correlation, hides_light, stripes, with_stripes
from .few_spots import has_few_blocks, with_noise_of_few_spots
from .frame_sample import frames_of_each_kind
from .measured_noise import Measured, measured_blocks, noise_of, noise_over_line
from .noise_line import is_usable, median, quantiles
from .one_axis import LineNoise, is_one_sided, lines_of_noise, only_lines_of_noise
from .pixel_values import has_copied_lines
from .psf_width import FALLBACK_SIGMA, with_psf
from .small_frames import detail_over_noise
from .spot_noise import as_white, with_noise_of_spots

#: Noise is measured in frames with this many pixels in all; their least and largest number.
_PIXELS, _LEAST_FRAMES, _MOST_FRAMES = 1 << 20, 4, 64
#: In frames with more pixels than this it is measured in squares: number along each axis, side.
_LARGE, _ACROSS, _SIDE = 1 << 26, 3, 512
#: Noise of raw images is up to 1.25 times as strong where it is coarse as in fine detail.
_WEAKLY = 1.6
#: Pixels whose percentiles are looked at, about.
_ENOUGH = 1 << 16


@takes_settings("camera", "run", without=("noise",), volumes=True)
def noise_model(
    image: Any,
    *,
    channel: int | str | None = None,
    bad_pixels: Any = None,
    camera: Camera | None = None,
    settings: Settings | None = None,
    **options: Unpack[Options],
) -> NoiseModel:
    """Estimate an image's noise: the variance of a pixel by its brightness.

    It is measured in detail as fine as the pixels, which no spot has, in frames spread over the
    image, of each kind where light is strobed: as many as make a million pixels, from 4 to 64; of
    frames of more than 67 million pixels, in nine squares of 512×512. Fine detail over brightness,
    in blocks of 16×16 pixels, is a line whose slope is the camera's gain, as are the residuals of
    bright spots over their light. Noise that is stronger where it is coarse shows that the image
    was filtered. Frames that are smaller than a block are mirrored, and show less.

    Parameters
    ----------
    image : array, shape (…, Y, X), or path
        NumPy, CuPy, Dask or Zarr array of any real number type, or an image file, see
        :func:`~napari_spotfit.open_image`.
    channel : int or str, optional
        Number or name of the channel, where the image has an axis c of several.
    bad_pixels : array of bool, shape (Y, X) or (…, Y, X), optional
        True where a pixel is not used.
    camera : Camera, optional
        Maps of offset and gain, for which the frames are corrected.
    settings : Settings, optional
        All settings at once; ``options`` change single ones.

    Returns
    -------
    NoiseModel
        Its text states what the image shows, and what it cannot.

    Raises
    ------
    TypeError, ValueError
        If the image is not of the kind above.

    Examples
    --------
    >>> from napari_spotfit import noise_model, simulate_movie
    >>> movie, truth = simulate_movie(4, spots_per_frame=300, photons=3000, seed=1)
    >>> noise = noise_model(movie)
    >>> noise.is_filtered, abs(noise.gain - 1) < 0.2
    (False, True)
    """
    settings = merged(settings, options, noise_model)
    one = channel_of(image, channel, Maps(bad_pixels=bad_pixels, camera=camera))
    reader, maps = FrameReader(one.image, spatial=settings.dimensions), one.maps
    calibration = detection_calibration(reader.shape, settings, maps.bad_pixels, maps.camera)
    return measured_noise(reader, with_psf(reader, calibration, warn=False))


class _Sample(NamedTuple):
    """What was measured in a sample of an image, without its pixels."""

    calibration: PixelCalibration
    #: The settings by which it was, and what there is in blocks; None without any frame.
    settings: Settings
    blocks: NDArray[np.void] | None
    #: What a sixth, and half of the pixels are below.
    darker_half: tuple[float, float]
    #: The step between values, and the share of hot pixels.
    step: float
    hot: float


#: The last sample of images that are in use.
_SAMPLES: WeakKeyDictionary[FrameReader, _Sample] = WeakKeyDictionary()


def measured_noise(reader: FrameReader, calibration: PixelCalibration) -> NoiseModel:
    """Return the noise in a few frames of an image, corrected for the camera."""
    measured, settings, period = _measured(reader, calibration)
    if measured is None:
        return NO_NOISE
    noise = _of_sample(measured, settings, period, reader, calibration)
    seems_filtered = noise.process == Process.FILTERED or (noise.is_filtered and not noise.process)
    if seems_filtered and not period and (lines := only_lines_of_noise(measured.frames)):
        _warn_of_lines(lines)
        return as_white(replace(noise, process=Process.NONE.value))
    if noise.process:
        return noise
    if noise.is_filtered:
        one_sided = not period and is_one_sided(measured)
        is_filter = one_sided or hides_light(measured.frames, noise)
    elif period:
        is_filter = False
    elif lines := lines_of_noise(measured):
        _warn_of_lines(lines)
        is_filter = False
    else:
        in_plane = len(reader.frame_shape) == 2  # a stack's planes may be alike
        is_filter = in_plane and noise.correlation > _WEAKLY
    return replace(noise, process=Process.FILTERED.value) if is_filter else noise


def _of_sample(
    measured: Measured,
    settings: Settings,
    period: float,
    reader: FrameReader,
    calibration: PixelCalibration,
) -> NoiseModel:
    """Return the noise of what was measured in a sample."""
    noise = noise_of(measured, settings)
    if hides_noise(measured):
        noise = with_noise_of_steps(noise, measured)
        if settings.gain is None:
            warn_caller(of_hidden_noise(measured.step))
    if period:
        noise = with_stripes(noise, measured, settings)
    else:
        _warn_of_dark_spots(measured, noise, settings)
    if settings.gain is None and (hot := _hot_pixels(measured, fixed=True)):
        warn_caller(lone_pixels.in_words(hot))
    has_gain = settings.gain is not None
    is_small = not period and has_few_blocks(measured, noise)
    # By the camera that is known, it counts only whether the image was filtered.
    if is_small and (noise.process or noise.correlation > 1 or not has_gain):
        noise = with_noise_of_few_spots(noise, measured, settings)
    is_small = is_small and not has_gain
    if len(reader.frame_shape) > 2:
        deep = depth_correlation(reader, calibration, sample_frames(reader), settings.known_sigma)
        noise = replace(noise, correlation=noise.correlation * deep)
    if is_small or (has_gain and not (noise.is_flat and noise.blocks >= _ENOUGH_BLOCKS)):
        return noise
    # Spots out of focus are no Gaussians of one width, and stripes are noise to residuals.
    in_depth = len(reader.frame_shape) > 2 or isinstance(settings.model, Calibration)
    by_spots = noise if in_depth or period else with_noise_of_spots(noise, measured, settings)
    if not has_gain:
        return by_spots
    # Errors go by the gain, and joint fits by that or by the image.
    slope = None if by_spots is noise else by_spots.slope
    return replace(noise, level=measured.level, slope_of_spots=slope)


def _measured(
    reader: FrameReader, calibration: PixelCalibration
) -> tuple[Measured | None, Settings, float]:
    """Return what is measured in a sample, the settings by which it is, and the period of stripes.

    Without stripes it is 0.
    """
    pixels, settings = _sample(reader, calibration)
    if pixels.size and pixels.dtype.kind == "f" and not np.isfinite(pixels).any():
        warn_caller(
            "all pixels in which the noise is measured are NaN, or bad, so that there are no "
            "spots: check bad_pixels, and how the image was made"
        )
    measured = measured_blocks(pixels, settings) if pixels.size else None
    period = stripes(measured.recorded) if measured else 0.0
    if period:
        warn_caller(
            f"the image has stripes, one in {period:.2g} pixels: spots are found only where they "
            "stand out of them, and standard errors are larger. Take the stripes away first, as by "
            "the median of each row or column"
        )
    if calibration.camera_noise is not None:  # there may be doubts
        blocks = None if measured is None else measured.blocks
        step = 0.0 if measured is None else measured.step
        fixed = settings.emccd or len(pixels) > 1
        hot = 0.0 if measured is None else _hot_pixels(measured, fixed=fixed)
        half = _darker_half(pixels)
        _SAMPLES[reader] = _Sample(calibration, settings, blocks, half, step, hot)
    return measured, settings, period


def _hot_pixels(measured: Measured, *, fixed: bool) -> float:
    """Return the share of hot pixels where they are taken for noise."""
    usual = measured.blocks["both"][is_usable(measured.blocks)]
    if not len(usual):
        return 0.0
    return lone_pixels.lone_pixels(measured.frames, median(usual), fixed=fixed)


def _warn_of_dark_spots(measured: Measured, noise: NoiseModel, settings: Settings) -> None:
    """Warn the caller of an image whose spots are darker than what is around them."""
    if count := dark_spots(measured, noise, settings):
        warn_caller(
            f"the image has dark spots, {count} in the parts that were looked at, and hardly any "
            "bright ones, which are what is looked for. If they are meant, as with absorbance or "
            "an inverted lookup table, invert the image: image.max() - image"
        )


def _warn_of_lines(lines: LineNoise) -> None:
    """Warn the caller of noise that all pixels of a row or a column share."""
    line = lines.line
    warn_caller(
        f"the image has noise that all pixels of a {line} share: its standard deviation is "
        f"{times(lines.share)} times that of a pixel's own. Standard errors are too small, and "
        f"with a given variance of the camera spots are found in it. Subtract from each {line} by "
        "how much its median differs from the image's"
    )


def _sample(reader: FrameReader, calibration: PixelCalibration) -> tuple[NDArray[Any], Settings]:
    """Return the frames in which noise is measured, and the settings by which it is."""
    numbers, plane = sample_frames(reader), reader.frame_shape[-2:]
    if not len(numbers):
        return np.empty((0, *plane), np.float32), calibration.fitted
    if len(reader.frame_shape) > len(plane) or math.prod(plane) > _LARGE:
        _, pixels = without_damage(partial(_windows, reader, calibration), numbers)
    else:
        numbers, taken = without_damage(reader.read_to_host, numbers)
        pixels = to_host(calibration.corrected(numbers, taken, mark_bad=True))
    settings = calibration.fitted
    if settings.sigma is None:
        settings = settings.changed(sigma=FALLBACK_SIGMA)
    return np.ascontiguousarray(pixels.reshape(-1, *pixels.shape[-2:])), settings


def _windows(
    reader: FrameReader, calibration: PixelCalibration, numbers: NDArray[np.int64]
) -> NDArray[Any]:
    """Return squares of large frames, and of planes of volumes, as separate frames.

    They are evenly spread over each; of planes that are not as large, they are whole planes.
    """
    *depth, height, width = reader.frame_shape
    side, across = [height, width], 1
    if height * width > _LARGE:
        side, across = 2 * [min(_SIDE, height, width)], _ACROSS
    corners = [
        evenly_spread(across, size - own).tolist()
        for own, size in zip(side, (height, width), strict=True)
    ]
    planes = -(-_wanted(height * width) // len(numbers))
    corners[:0] = [evenly_spread(min(planes, size), size).tolist() for size in depth]
    sides = [*len(depth) * [1], *side]
    found = []
    for number in numbers:
        for corner in itertools.product(*corners):
            own = np.array([number])
            part = tuple(
                slice(first, first + size) for first, size in zip(corner, sides, strict=True)
            )
            pixels = reader.read_part(own, part)
            found.append(calibration.corrected(own, pixels, mark_bad=True, part=part))
    return np.concatenate(found)


def sample_frames(reader: FrameReader) -> NDArray[np.int64]:
    """Return the numbers of the frames that the noise is measured in, some of each kind."""
    if reader.held is not None:
        return np.array([reader.held])
    wanted = _wanted(math.prod(reader.frame_shape))
    return frames_of_each_kind(reader, np.arange(reader.count), wanted)


def _wanted(pixels: int) -> int:
    """Return the number of frames in which the noise is measured, by their size in pixels."""
    return min(max(_PIXELS // pixels, _LEAST_FRAMES), _MOST_FRAMES)


#: Of narrower spots some of the light is taken for noise: of σ 0.6 px and 5000 photons six times as
#: much as there is, of 0.7 px less than twice.
_NARROW = 0.7


def warn_of_noise(reader: FrameReader, calibration: PixelCalibration, given: Settings) -> None:
    """Warn the caller of doubts about the noise."""
    if doubts := noise_doubts(reader, calibration, given):
        warn_caller(doubts)


def noise_doubts(reader: FrameReader, calibration: PixelCalibration, given: Settings) -> str:
    """Return a warning of noise that no camera makes, or not the given one.

    Parameters
    ----------
    reader : FrameReader
        The image.
    calibration : PixelCalibration
        Its pixels, with the noise that all goes by.
    given : Settings
        Those before anything was estimated. If they hold a noise, as those of results do, there
        was a warning before.

    Returns
    -------
    str
        Nothing where there is no doubt.
    """
    calibration = calibration.with_light(None)  # the noise is that of planes as they are
    noise, camera = calibration.settings.noise, calibration.camera_noise
    if given.noise is not None or noise is None:
        return ""
    if noise.process:
        return _of_process(noise)
    if camera is None:
        return _of_parts(noise) if noise.is_uneven else _of_narrow_spots(calibration, noise)
    sample = _SAMPLES.get(reader)
    if sample is None or not calibration.has_pixels_of(sample.calibration):
        measured, own, period = _measured(reader, calibration)
        if measured is not None:
            if has_copied_lines(measured.recorded[len(measured.recorded) // 2]):
                return _of_process(replace(camera, process=Process.ENLARGED.value))
            _warn_of_dark_spots(measured, camera, own)
            if not period and (lines := lines_of_noise(measured)):
                _warn_of_lines(lines)
        sample = _SAMPLES[reader]
    if sample.hot:
        return lone_pixels.in_words(sample.hot)
    (low, middle), settings = sample.darker_half, calibration.fitted
    if middle + _ROUNDING + _OF_NOISE * (middle - low) < settings.offset:
        return (
            f"most pixels of the image have fewer counts, about {middle:.4g}, than the camera has "
            f"without light, offset={settings.offset:.4g}: there is no light below 0. Measure the "
            "offset with the shutter closed; standard errors and photons go by it"
        )
    if settings.gain is not None:
        given_variance = camera.intercept + camera.slope * settings.offset
        doubts = of_camera_in_steps(
            sample.step, camera, max(middle, settings.offset), settings.gain, given_variance
        )
        if doubts:
            return doubts
    known = calibration.knows_variance
    names = _in_words(calibration.fitted, camera.least if known else 0.0)
    ratio, is_more = math.nan, False
    if sample.blocks is not None:
        ratio = noise_over_line(sample.blocks, sample.settings, camera)
        if known and ratio > UNLIKE:
            rounding = OF_STEPS * sample.step**2
            rounded = replace(
                camera, intercept=camera.intercept + rounding, least=camera.least + rounding
            )
            is_more = noise_over_line(sample.blocks, sample.settings, rounded) > UNLIKE
    if (ratio < 1 / UNLIKE or is_more) and _is_in_all_pixels(reader, calibration, ratio):
        return _of_camera(f"{times(ratio)} times the noise that a camera of {names} has", "")
    if not known and not noise.is_filtered and noise.blocks >= _ENOUGH_BLOCKS:
        left = float(noise.variance(middle)) - float(camera.variance(middle))
        electrons = math.sqrt(max(left, 0.0)) / (settings.gain or 1.0)
        if electrons > _MOST_READ_OUT:
            return _of_camera(
                f"noise that a camera of {names} has only with a read-out noise of "
                f"{electrons:.2g} electrons, which none has", "",
            )  # fmt: skip
    # Of an unknown read-out variance, noise may have any; not its slope.
    if known or noise.gain is None or 1 / UNLIKE < noise.gain / camera.slope < UNLIKE:
        return ""
    return _of_camera(
        f"noise that grows {times(noise.gain / camera.slope)} times as fast with the light as that "
        f"of a camera of {names}",
        f": it suggests {noise.gain:.3g} counts per electron",
    )


def _is_in_all_pixels(reader: FrameReader, calibration: PixelCalibration, ratio: float) -> bool:
    """Whether pixels have more, or less, noise than a camera has, as blocks say.

    Those of a bright spot are no measure of it: it is in a few of their pixels.
    """
    camera, pixels = calibration.camera_noise, _sample(reader, calibration)[0]
    if camera is None:
        return True
    found = detail_over_noise(without_constant_areas(pixels), camera)
    return not (found > 1 / _CONFIRMED if ratio < 1 else found < _CONFIRMED)


#: By this factor at least, all pixels must have more noise than a camera, or less, if blocks do.
_CONFIRMED = 1.25
#: The image may be darker than its offset by this many counts, as the median of counts is a whole
#: number, and by this fraction of its noise.
_ROUNDING, _OF_NOISE = 0.5, 0.2
#: The read-out noise of cameras in electrons, at most.
_MOST_READ_OUT = 50.0
#: Blocks in which the noise is measured; of fewer it is not sure enough to say so.
_ENOUGH_BLOCKS = 32


def _darker_half(pixels: NDArray[Any]) -> tuple[float, float]:
    """Return what a sixth, and half of the pixels of frames are below; NaN without pixels."""
    known = pixels.ravel()[:: max(pixels.size // _ENOUGH, 1) | 1]
    known = known[np.isfinite(known)]
    if not known.size:
        return math.nan, math.nan
    low, middle = quantiles(known, 0.16, 0.5)
    return float(low), float(middle)


def _of_process(noise: NoiseModel) -> str:
    done, instead = noise.process_in_words
    missed = "dim spots may be missed"
    if noise.correlation > FILTERED:
        missed = (
            f"{missed}, as the threshold goes by noise that is {times(noise.correlation)} times "
            "that of the finest detail"
        )
    return (
        f"the image probably {done}. Photons and standard errors mean little, and {missed}. "
        f"{instead}"
    )


def _of_parts(noise: NoiseModel) -> str:
    return (
        f"parts of the image have {times(noise.uneven)} times the noise of others that are as "
        "bright, as channels have, and frames that were scaled: false spots and standard errors go "
        "by one noise for all. Fit them one by one, as image[:, 1], and as the camera took them"
    )


def _of_narrow_spots(calibration: PixelCalibration, noise: NoiseModel) -> str:
    sigma, error = calibration.settings.sigma, noise.slope_error
    if sigma is None or sigma >= _NARROW or error is None or error < noise.slope:
        return ""
    return (
        f"spots of σ {sigma:.2g} px have detail as fine as noise has, so that the image does not "
        "show how noisy light is: standard errors may be several times too large, and dim spots "
        "missed. Give the camera's gain and offset"
    )


def _of_camera(found: str, suggested: str) -> str:
    return (
        f"the image has {found}{suggested}. False spots and standard errors go by that camera: the "
        "gain is in counts per electron, not electrons per count, the offset is the counts without "
        "light, and the image should be as the camera took it"
    )


def _in_words(settings: Settings, variance: float) -> str:
    numbers = {"gain": settings.gain, "offset": settings.offset, "variance": variance}
    return ", ".join(f"{name} {number:.4g}" for name, number in numbers.items() if number)
