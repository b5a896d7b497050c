"""Measure the noise of frames in the compiled library."""

from __future__ import annotations

import ctypes
import math
from dataclasses import replace
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..engine import threads
from ..engine.bands import make_bands
from ..engine.cpu.layouts import DetectionSource
from ..engine.cpu.library import load
from ..engine.detection_settings import (
    NO_NOISE,
    detection_source,
    make_detection_settings,
    score_for,
)
from ..engine.filtered_noise import with_filter
from ..engine.kernel_arguments import address
from ..settings.fields import DEFAULT_FALSE_SPOTS
from ..settings.noise_model import NoiseModel, Process
from ..settings.settings import Settings
from .band_noise import BandAreas, some_parts
from .band_passed import is_band_passed
from .blue_noise import has_checkerboard
from .brightest import is_brightest_of_many
from .calm_pixels import calm_noise
from .constant_areas import without_constant_areas
from .cut_alike import is_cut_alike
from .dark_maxima import times_as_strong
from .few_values import has_few_independent_values
from .lattices import has_lattice
from .levelled import is_levelled
from .noise_by_place import is_filtered_by_place
from .noise_choice import chosen_noise
from .noise_line import is_usable, median
from .photon_transfer import (
    BLOCK_NOISE,
    LEAST_PSF,
    detail_along,
    fine_detail,
    noise_line_of,
    spectral_correlation,
    usual_over_line,
    without_spots,
)
from .pixel_values import (
    SENSELESS,
    check_scale,
    has_copied_lines,
    has_jpeg_blocks,
    is_rounded_away,
    is_thresholded,
    usual_is_lowest,
    value_step,
)
from .raw_detail import hides_noise, is_surely_blue, is_usual, looks_raw
from .repeated_values import repeats_neighbours
from .small_frames import with_line_of_pixels
from .transformed import noise_falls
from .white_floor import noise_below_light

#: About this many blocks are enough to measure the noise.
_ENOUGH_BLOCKS = 4096
#: About this many pixels are enough for the scatter of filtered frames.
_ENOUGH_PIXELS = 1 << 19
#: Side of a block, and how far around it pixels count in its detail, as in kernels/noise.h.
BLOCK, _REACH = 16, 6
#: Fewer blocks without spots do not show the noise; those with spots count, too.
_FEW_BLOCKS = 32
#: Steps between values that are surely no rounding of smooth noise.
_ABOVE_ROUNDING = 2.0
#: With less than this part of a step's square nearly all pixels of the dark have one value.
_ROUNDED_AWAY = 0.01
#: Noise that is stronger in coarse detail is looked at again: that may be the light of spots.
_COARSE = 1.03
#: Side of the part of a frame in which noise that looks white is compared with that of the band.
_MIDDLE = 128
#: Of pixels in the band, this share may by chance be so many deviations below what is around; and
#: beside spots this many times the share of those that are as many above it as the next number.
#: With more of these than the last, there are spots everywhere.
_FEW, _DEEP, _OVER_HIGH, _HIGH, _MANY = 6e-4, 4.0, 2.0, 8.0, 0.12
#: Compression and crowds of spots look like these, too.
_MAY_BE_OTHERS = (Process.NONE, Process.FILTERED, Process.DENOISED, Process.DECONVOLVED)
#: Copies of lines look like these, too.
_BY_DETAIL = (*_MAY_BE_OTHERS, Process.LEVELLED, Process.CUT, Process.MOSAIC)
#: And single points, as which noise far below a step between values is left, like these.
_OF_POINTS = (Process.FILTERED, Process.DENOISED, Process.DECONVOLVED, Process.COMPRESSED)
#: Detail along one axis of raw images, beside light of spots on a lattice, over that along both.
_OF_RAW = 1.6
#: Noise that is more times as strong leaves so little fine detail that rounded values are equal.
_SMOOTH = 8.0
#: From here on it is looked whether noise goes by light at all.
_MAY_BE_UNEVEN = 1.15
#: Of pixels whose variance is 1.
_UNIT = NoiseModel(0.0, 1.0, 1.0)


class Measured(NamedTuple):
    """Frames, and what was measured in their blocks."""

    recorded: NDArray[Any]
    #: Without constant areas; those that are smaller than a block, mirrored.
    frames: NDArray[Any]
    blocks: NDArray[np.void]
    #: The step between values; 0 if there is none.
    step: float

    @property
    def level(self) -> float:
        """The brightness of most blocks."""
        return median(self.blocks["mean"][is_usable(self.blocks)])


def measured_blocks(frames: NDArray[Any], settings: Settings) -> Measured:
    """Return what is measured in the blocks of frames, for :func:`measure_noise`."""
    check_scale(frames)
    if frames.dtype.kind == "f" and not (ordinary := abs(frames) < SENSELESS).all():
        frames = np.where(ordinary, frames, frames.dtype.type(np.nan))
    clean = _large_enough(frames)
    return Measured(
        frames, clean, _blocks_of(clean, frames.shape[1:], settings), value_step(frames)
    )


def measure_noise(frames: NDArray[Any], settings: Settings) -> NoiseModel:
    """Return the noise model of frames, taken together.

    Parameters
    ----------
    frames : ndarray, shape (n, Y, X)
        C-contiguous, in native byte order; uint8, uint16, int16, float32 or float64. Those that
        are smaller than a block of 16×16 pixels are mirrored.
    settings : Settings
        ``sigma`` and ``threads`` count.
    """
    return noise_of(measured_blocks(frames, settings), settings) if frames.size else NO_NOISE


def noise_of(measured: Measured, settings: Settings) -> NoiseModel:
    """Return the noise model of what was measured in frames."""
    noise = _with_process(measured, settings)
    middle = measured.recorded[len(measured.recorded) // 2]
    if noise.process in _BY_DETAIL and has_copied_lines(middle):
        return replace(noise, process=Process.ENLARGED.value)
    seems_filtered = noise.process in _OF_POINTS or (noise.correlation > 1 and not noise.process)
    if seems_filtered and has_few_independent_values(middle, measured.step):
        return replace(
            noise, process=Process.NONE.value, correlation=1.0, blur=0.0, unfiltered=1.0, uneven=1.0
        )
    if seems_filtered and _is_light_of_lattice(measured):
        line = noise_line_of(measured.blocks, measured.step, settings.known_sigma)
        return line if line.blocks else noise
    if noise.process or noise.is_uneven:
        return noise
    if noise.is_filtered:
        areas = BandAreas(some_parts(measured.frames), settings.known_sigma)
        if is_filtered_by_place(areas, noise.variance(areas.level)):
            return replace(noise, process=Process.FILTERED.value)
    middle = measured.frames[len(measured.frames) // 2]
    if noise.correlation < _SMOOTH and repeats_neighbours(middle, measured.step):
        return replace(noise, process=Process.DENOISED.value)
    return noise


def _is_light_of_lattice(measured: Measured) -> bool:
    """Whether a frame has spots on a lattice, and detail that is as fine as that of raw images."""
    if max(detail_along(measured.blocks, measured.step)) > _OF_RAW:
        return False
    return has_lattice(measured.frames[len(measured.frames) // 2])


def _with_process(measured: Measured, settings: Settings) -> NoiseModel:
    """Return the noise, and what was probably done by fine detail, dark maxima and values."""
    noise, steep = _by_detail(measured, settings)
    middle = len(measured.frames) // 2
    if noise.process in (Process.NONE, Process.FILTERED, Process.DENOISED) and is_cut_alike(
        measured.recorded[middle], measured.step
    ):
        return replace(noise, process=Process.LEVELLED.value)
    if noise.process:
        return noise
    falls = noise_falls(measured.blocks, measured.recorded)
    if steep is not None:
        times = times_as_strong(measured.frames, noise, settings.known_sigma, steep)
        if times > 1:
            process = Process.TRANSFORMED if falls else Process.FILTERED
            if has_jpeg_blocks(measured.recorded[0]):
                process = Process.COMPRESSED
            return replace(noise, correlation=noise.correlation * times, process=process.value)
    if is_levelled(measured.frames[middle], measured.step):
        return replace(noise, process=Process.LEVELLED.value)
    if noise.is_uneven:
        return noise
    if falls:
        return replace(noise, process=Process.TRANSFORMED.value)
    if noise.uneven > _MAY_BE_UNEVEN and is_band_passed(
        BandAreas(some_parts(measured.frames), settings.known_sigma)
    ):
        return replace(noise, process=Process.FILTERED.value)
    if noise.gain is not None and is_brightest_of_many(measured.blocks, noise):
        return replace(noise, process=Process.PROJECTED.value)
    return noise


def noise_by_detail(measured: Measured, settings: Settings) -> NoiseModel:
    """Return the noise model of what was measured, without a look at dark maxima."""
    return _by_detail(measured, settings)[0]


def _by_detail(measured: Measured, settings: Settings) -> tuple[NoiseModel, float | None]:
    """Return the noise model, and the share of pixels far below what is around.

    Where dark maxima show nothing, that is None.
    """
    recorded, frames, blocks, step = measured
    shape = recorded.shape[1:]
    model = noise_line_of(blocks, step, settings.known_sigma)
    spectral = spectral_correlation(blocks, step)
    # A spot that is cut and mirrored has detail of its own.
    if model.blocks and frames.shape[1:] != shape:
        return model, None
    # Noise that rounding has taken away is on no line.
    if model.blocks and float(model.variance(measured.level)) > _ROUNDED_AWAY * step**2:
        model = with_line_of_pixels(model, frames, settings.known_sigma)
    detail = fine_detail(blocks, model, step)
    if is_surely_blue(detail) and has_checkerboard(frames):
        detail = detail._replace(lower=(0.0, math.inf))
    is_raw, coarse, steep = looks_raw(detail), 1.0, 0.0
    if model.blocks:
        middle = _middle_of(frames)
        ratios, gain = _ratios(middle, settings, settings.known_sigma, model)
        coarse = _deviation(ratios) / gain
        steep = _share_below(ratios, -_DEEP * gain)
        of_band = middle, coarse, ratios
        is_raw = is_raw and not hides_noise(frames, settings.known_sigma, model, detail, of_band)
        if is_raw and spectral <= 1:
            high = _share_below(-ratios, -_HIGH * gain)
            shows = not is_usual(coarse) and _FEW + _OVER_HIGH * high < steep and high < _MANY
            return model, steep if shows else None

    def scatter_at(sigma: float) -> float:
        return _scatter(frames, settings, sigma, model if model.blocks else _UNIT)

    # What is coarse may be structure: no more than the filtered frame's own scatter counts. Where
    # there is no block without bad pixels, this is all there is.
    scatter = scatter_at(settings.known_sigma)
    if not model.blocks:
        variance, process = max(scatter**2, model.least), Process.NONE
        if is_rounded_away(recorded[0], step):
            variance = _of_rounding(step, settings)
            # Of spots without a background, the usual value is the lowest.
            if not usual_is_lowest(recorded[0]):
                process = Process.FILTERED
        elif is_thresholded(recorded):
            process = Process.THRESHOLDED
        elif (calm := calm_noise(some_parts(frames))) is not None and calm.is_white:
            variance = max(min(variance, median(calm.variance)), model.least)
        if process in _MAY_BE_OTHERS and has_jpeg_blocks(recorded[0]):
            process = Process.COMPRESSED
        flat = NoiseModel(0.0, variance, variance, process=process)
        if process is Process.NONE:
            flat = with_line_of_pixels(flat, frames, settings.known_sigma)
        return flat, None
    noise = replace(model, correlation=max(1.0, min(spectral, scatter)))
    if not is_raw or noise.correlation > _COARSE:
        noise = chosen_noise(frames, settings.known_sigma, noise, detail, coarse)
        if noise.process in _MAY_BE_OTHERS and has_jpeg_blocks(recorded[0]):
            noise = replace(noise, process=Process.COMPRESSED)
    line = replace(noise, correlation=1.0)
    if model.blocks and noise.correlation > 1:
        steep = _share_below(ratios, -_DEEP * gain * noise.correlation)
    noise = with_filter(
        noise, settings.known_sigma, lambda sigma: _scatter(frames, settings, sigma, line)
    )
    # Light of spots is of no one frequency, but beside sharp ones, whose detail is fine.
    is_light = noise.process != Process.DECONVOLVED or not looks_raw(detail)
    if noise.is_filtered and noise.process in _MAY_BE_OTHERS and is_light:
        below = noise_below_light(frames, model, detail)
        if below is not None:
            return below, None
    return noise, steep


def _share_below(ratios: NDArray[np.float32], least: float) -> float:
    return np.count_nonzero(ratios < least) / max(len(ratios), 1)


def _middle_of(frames: NDArray[Any]) -> NDArray[Any]:
    """Return the middle of the middle frame: enough to see noise that differs several times."""
    y, x = (max(size - _MIDDLE, 0) // 2 for size in frames.shape[1:])
    first = len(frames) // 2
    return np.ascontiguousarray(frames[first : first + 1, y : y + _MIDDLE, x : x + _MIDDLE])


def _of_rounding(step: float, settings: Settings) -> float:
    """Return the variance with which spots stand out that are two steps of values high, or more.

    Where smooth noise is less than rounding, it makes spots of one step.
    """
    band = make_bands(settings.known_sigma, (1, 1)).bands[0]
    height = _ABOVE_ROUNDING * step * band.response
    return (height / band.gain / score_for(DEFAULT_FALSE_SPOTS, settings.known_sigma)) ** 2


def noise_over_line(blocks: NDArray[np.void], settings: Settings, noise: NoiseModel) -> float:
    """Return the variance of blocks without spots over a model's; NaN with too few blocks."""
    flat = without_spots(blocks)
    few = np.count_nonzero(is_usable(flat)) < _FEW_BLOCKS
    return usual_over_line(blocks if few and settings.known_sigma >= LEAST_PSF else flat, noise)


def _large_enough(frames: NDArray[Any]) -> NDArray[Any]:
    """Return frames without their constant areas; those that are smaller than a block, mirrored."""
    missing = [max(BLOCK - side, 0) for side in frames.shape[1:]]
    if any(missing):
        frames = np.pad(frames, [(0, 0), *((0, more) for more in missing)], mode="reflect")
    return without_constant_areas(frames)


def _blocks_of(
    frames: NDArray[Any], shape: tuple[int, ...], settings: Settings
) -> NDArray[np.void]:
    """Return brightness and detail of the blocks of each frame, by row and column.

    The frames had this shape before the mirror.
    """
    bands = make_bands(settings.known_sigma, frames.shape[1:])
    given = make_detection_settings(settings, bands, address, NO_NOISE)
    source, functions, index = detection_source(frames, given), load().functions, load().index
    in_frame = functions.spotfit_noise_block_count(index, source.settings, 1)
    step = max(in_frame * len(frames) // _ENOUGH_BLOCKS, 1)
    blocks = _measured(
        frames, source, "spotfit_measure_noise_blocks", BLOCK_NOISE,
        functions.spotfit_noise_block_count(index, source.settings, step),
        functions.spotfit_noise_bytes(index, source.settings), step, settings,
    )  # fmt: skip
    if min(shape) < BLOCK + 2 * _REACH:
        for name, fine in (("both", "yx"), ("rise", "yx"), ("along_x", "x"), ("along_y", "y")):
            for axis, side in zip("yx", shape, strict=True):
                blocks[name] /= _mirrored(side, axis in fine)
    return blocks.reshape(len(frames), -1, _columns(shape))


def _scatter(frames: NDArray[Any], settings: Settings, sigma: float, noise: NoiseModel) -> float:
    """Return the scatter of filtered frames over what white noise of this model makes."""
    ratios, gain = _ratios(frames, settings, sigma, noise)
    return _deviation(ratios) / gain


def _deviation(ratios: NDArray[np.float32]) -> float:
    functions, index = load().functions, load().index
    return float(functions.spotfit_deviation(index, address(ratios), len(ratios)))


def _ratios(
    frames: NDArray[Any], settings: Settings, sigma: float, noise: NoiseModel
) -> tuple[NDArray[np.float32], float]:
    """Return filtered pixels over the noise of their brightness, and how large white noise is."""
    bands = make_bands(sigma, frames.shape[1:])
    given = make_detection_settings(settings, bands, address, noise)
    source, functions, index = detection_source(frames, given), load().functions, load().index
    ratios = _measured(
        frames, source, "spotfit_sample_ratios", np.float32,
        functions.spotfit_sample_size(index, source.settings),
        functions.spotfit_detection_bytes(index, source.settings),
        max(frames.size // _ENOUGH_PIXELS, 1) | 1,  # odd: not always the same side of frames
        settings,
    )  # fmt: skip
    return ratios[ratios != 0], float(bands.bands[0].gain)


def _measured(
    frames: NDArray[Any],
    source: DetectionSource,
    name: str,
    dtype: Any,
    count: int,
    memory_bytes: int,
    step: int,
    settings: Settings,
) -> NDArray[Any]:
    """Return the numbers that a function of the library finds in frames, one after the other."""
    numbers, library = np.zeros((len(frames), count), dtype), load()
    measure, workers = getattr(library.functions, name), settings.threads or threads.available()

    def work(first: int, last: int) -> None:
        memory = np.empty(memory_bytes, np.uint8)
        for i in range(first, last):
            measure(
                library.index, ctypes.byref(source), i, step, address(memory), address(numbers[i])
            )

    threads.in_pieces(work, len(frames), -(-len(frames) // workers), workers)
    return numbers.ravel()


def _columns(shape: tuple[int, ...]) -> int:
    """Return how many blocks are in a row of them, as kernels/noise.h has it."""
    margin = _REACH if min(shape) >= BLOCK + 2 * _REACH else 0
    return (max(shape[1], BLOCK) - 2 * margin) // BLOCK


@lru_cache(maxsize=256)
def _mirrored(side: int, fine: bool) -> float:
    """Return how much stronger white noise is where borders are mirrored, along one axis.

    Where there is no room for a border, pixels beside it count several times in detail of the
    blocks: in fine detail, whose signs alternate, as in coarse one.
    """
    distance = np.arange(-_REACH, _REACH + 1)
    taps = np.exp(-(distance**2) / 8.0)
    taps /= np.sqrt(np.sum(taps**2))
    if fine:
        taps = taps * (-1.0) ** distance
    # Away from both borders there is nothing of that: a few blocks stand for those of a long side.
    blocks = max(side // BLOCK, 1)
    side = min(side, side % BLOCK + 2 * BLOCK)
    padded = max(side, BLOCK)
    where = np.pad(np.arange(side), (0, padded - side), mode="reflect")
    there = np.pad(where, _REACH, mode="reflect")
    looked_at = padded // BLOCK * BLOCK
    power = float(blocks * BLOCK - looked_at)
    for middle in range(looked_at):
        weights = np.bincount(there[middle : middle + 2 * _REACH + 1], taps, side)
        power += float(np.sum(weights**2))
    return power / (blocks * BLOCK)
