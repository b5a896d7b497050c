"""Find out whether the planes of stacks differ, and correct them, or leave out what is no image."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..caller import warn_caller
from ..engine.backend import Block, Positions
from ..engine.detection_settings import NO_NOISE
from ..engine.fit_job import FitJob
from ..engine.flags import NOT_GOOD
from ..engine.joint_fits import Scale
from ..engine.select import select_backend
from ..engine.uneven_planes import differing_volumes, uneven_volumes
from ..images.arrays import to_host
from ..images.frames import FrameReader
from ..images.pixel_calibration import PixelCalibration
from ..images.plane_light import (
    LEAST_LEFT,
    LOOKED_AT,
    PlaneBlocks,
    PlaneLight,
    middle,
)
from ..images.planes_without_image import planes_without_image
from ..images.reading import without_damage
from ..settings.noise_model import BACKGROUND, LIGHT, NoiseModel
from ..settings.settings import Settings, dark_of_planes, electrons_of, noise_of
from .detection_noise import for_detection
from .plane_offset import LEAST, PlaneSpots, plane_offset

#: How far the background of planes of a thin stack differs, at most, in units of a pixel's noise;
#: how much less it is from one plane to the next at the brighter end of any, and how far away.
_RANGE, _FALL = 0.6, 0.3
#: By how many planes z would be off, in the root mean square, if light followed the background of
#: planes, and spots were fitted as if it did not: from here on spots are asked whether it does.
_OFF = 0.03
#: The slope of the logarithm of spots' light over that of the planes' is 1 or 0. What is above the
#: first of these by this many standard errors is light, where planes differ little; where they
#: differ from one to the next, as by a lamp, what is below the second by as many is none, if it is
#: below the third: spots in a plane of its own light show 0.3 to 1.
_SURELY, _HARDLY, _ERRORS, _LITTLE = 0.4, 0.6, 2.0, 0.2
#: By how many errors the slope is more than 0 where planes differ little: most such stacks are raw,
#: and chance must not change them.
_BEYOND_DOUBT = 4.0
#: Elsewhere the likelier one counts, if the slope's error is below this.
_KNOWN = 1.0
#: What dark blocks of a plane differ from those beside them beyond noise, at least, of the range
#: that the background of planes has, where the light of spots may explain it: up to 0.02 where
#: planes differ, and from 0.6 where dense spots do.
_CLUTTER = 0.15
#: How far the darkest parts of planes differ, of how far the dark ones do, at least, if dense spots
#: are not the reason: of these it is 0.3 at most.
_AS_DARK = 0.5
#: How much a background rises a plane, and in all, at least, in units of a pixel's noise, to shift
#: spots that have light of their own; planes that differ by less in all are left as they are, as
#: the tails of bright spots are up to 0.2.
_RISE, _IN_ALL = 0.03, 0.4
#: How far a plane is off those beside it, of how far it is off those behind them, at least, if the
#: lamp is the reason: a background that is in focus in one plane is off by 0.3 of that. Of how many
#: planes that can be seen.
_SHARP, _LEAST_SPIKE = 0.7, 5
#: By how much the width of spots in planes changes, at most, where their light is corrected: where
#: the noise of dark planes is taken for spots it falls to half.
_AS_WIDE = 0.15
#: By how many planes z may be off, at least, for a warning where spots do not decide; and by how
#: many errors the slope is off the middle where they do.
_FAR_OFF, _DECIDED = 0.1, 1.5
#: Which part of the light of spots may be off by an offset that nobody knows, without a warning.
_LIGHT_OFF = 0.05
_FROM_OFFSET = (
    "the planes of the stack differ in light, which counts from the camera's offset, which is not "
    "known."
)
_MAY_DIFFER = (
    "the planes of the stack seem to differ in background, as where a lamp flickers, and spots lie "
    "so close that it cannot be measured between them: planes are left as they are, and light and "
    "z of spots may be off by more than their errors. Divide each plane by its own light first"
)


class _Stack(NamedTuple):
    """The middle of a stack, corrected for the camera, and its planes that hold an image."""

    pixels: NDArray[Any]
    is_image: NDArray[np.bool_]
    blocks: PlaneBlocks
    level: NDArray[np.float64]
    noise: NoiseModel
    dark: float
    settings: Settings

    @property
    def sigma_z(self) -> float:
        return self.settings.known_sigma_z

    @property
    def block(self) -> tuple[Block, Scale]:
        """The planes that hold an image, and the noise of their pixels."""
        pixels = self.pixels[np.newaxis]
        if not self.is_image.all():
            pixels = pixels[:, self.is_image]
        return Block(pixels, pixels), Scale.of(self.noise)

    @property
    def light(self) -> NDArray[np.float64]:
        """The background of planes that hold an image, less what there is without light."""
        return self.level[self.is_image] - self.dark

    @property
    def is_crowded(self) -> bool:
        """Whether the light of spots may explain how planes differ, as it is everywhere."""
        clutter = self.blocks.of(self.is_image).clutter(self.own_level, self.noise)
        return bool(clutter.max() > _CLUTTER * np.ptp(self.own_level))

    @property
    def differs_in_the_dark(self) -> bool:
        """Whether the darkest parts of planes, which have less light of spots, differ as well."""
        darkest = self.blocks.of(self.is_image).levels(self.noise, darkest=True)
        noise = np.sqrt(np.maximum(self.noise.variance(darkest), 0.0)).mean()
        return bool(np.ptp(darkest) > max(_AS_DARK * np.ptp(self.own_level), _RANGE * noise))

    @property
    def own_level(self) -> NDArray[np.float64]:
        """The background of planes that hold an image."""
        return self.level[self.is_image]

    @property
    def usual_noise(self) -> float:
        """The noise of a pixel of the background of planes."""
        return float(np.sqrt(np.maximum(self.noise.variance(self.own_level), 1e-30)).mean())

    @property
    def may_slope(self) -> bool:
        """Whether there is light that differs from plane to plane by more than a little."""
        level = self.own_level
        if not self.has_light or len(level) < LEAST_LEFT:
            return False
        return not bool(np.ptp(level) < _IN_ALL * self.usual_noise)

    @property
    def has_light(self) -> bool:
        """Whether planes can be divided by their light, for which the offset must be known."""
        light = self.light
        return bool(light.min() > LEAST * light.max() > 0)


def without_copies(
    reader: FrameReader, calibration: PixelCalibration, numbers: NDArray[np.int64]
) -> PixelCalibration:
    """Return a calibration that leaves planes of stacks out that hold no image of their own.

    They are empty, have one value, are copies of others or noise, in each of a few stacks.
    """
    read = partial(reader.read_part, part=middle(reader.frame_shape))
    left_out, is_copy, is_noise = planes_without_image(
        to_host(without_damage(read, numbers[number : number + 1])[1])[0]
        for number in range(min(len(numbers), LOOKED_AT))
    )
    if not left_out.any():
        return calibration
    if (left := int((~left_out).sum())) < LEAST_LEFT:
        if left:
            warn_caller(
                f"only one of the {len(left_out)} planes of the stack has an image of its own, the "
                "others are empty, noise or copies: nothing is known along z. Fit this plane alone"
            )
        return calibration
    for which, what in (
        (is_copy, "are copies of others"), (is_noise, "have far more noise than those beside them")
    ):  # fmt: skip
        if which.any():
            planes = ", ".join(map(str, np.flatnonzero(which)))
            warn_caller(
                f"planes of the stack {what}: {planes}. They count in no fit; z is that of the "
                "stack as it is, with them"
            )
    return calibration.without_planes(left_out)


def with_plane_light(
    reader: FrameReader, given: PixelCalibration, calibration: PixelCalibration,
    numbers: NDArray[np.int64], with_widths: Callable[[PixelCalibration], PixelCalibration],
) -> PixelCalibration:  # fmt: skip
    """Return a calibration that corrects the planes of stacks where they differ.

    Parameters
    ----------
    reader : FrameReader
        The image.
    given : PixelCalibration
        What was known before anything was estimated.
    calibration : PixelCalibration
        The same with the PSF's width and the noise.
    numbers : ndarray of int
        A few stacks; by the first one all are judged.
    with_widths : callable
        Returns a calibration with the PSF's widths, as the image shows them.
    """
    noise, recorded = noise_of(calibration.fitted), given.settings.noise
    if noise is None or noise.is_filtered or (recorded is not None and not recorded.planes):
        return calibration
    part, left_out = middle(reader.frame_shape), given.left_out

    def read(own: int) -> NDArray[Any]:
        one = np.array([own])
        pixels = given.corrected(one, reader.read_part(one, part), part=part)
        corrected: NDArray[Any] = to_host(pixels)[0]
        return corrected

    def corrected_by(
        kind: str, known: PixelCalibration, counts: float | None = None
    ) -> PixelCalibration:
        own = calibration.settings.noise or NO_NOISE
        counts = counts if recorded is None else recorded.dark
        known = known.with_noise(replace(own, planes=kind, dark=counts))
        dark = dark_of_planes(known.fitted) if kind == LIGHT else None
        light = PlaneLight(read, reader.frame_shape, noise, dark, numbers[:LOOKED_AT], left_out)
        return known.with_light(light)

    if recorded is not None:
        return corrected_by(recorded.planes, calibration)
    pixels = read(int(numbers[0]))
    blocks = PlaneBlocks(pixels)
    stack = _Stack(
        pixels, ~left_out, blocks, blocks.levels(noise), noise,
        electrons_of(calibration.fitted).dark, calibration.settings,
    )  # fmt: skip
    if calibration.settings.sigma_z is None:  # of one or two positions
        return calibration
    differs = _differ(stack)
    if not differs and not stack.may_slope:
        return calibration
    if stack.is_crowded:
        if stack.differs_in_the_dark and uneven_volumes(*stack.block).any():
            warn_caller(_MAY_DIFFER)
        return calibration
    if not differs:
        kind = _kind_of_slope(stack)
        dark = _offset_by_spots(kind, given, stack)
        return corrected_by(kind, calibration, dark) if kind else calibration
    calibration = _with_widths_of(corrected_by(BACKGROUND, given), calibration, with_widths)
    stack = stack._replace(settings=calibration.settings)
    kind = _kind(stack)
    # Light that changes smoothly shifts spots, and leaves them as wide.
    if kind == LIGHT and _is_abrupt(stack):
        calibration = _with_widths_of(corrected_by(LIGHT, given), calibration, with_widths)
    dark = _offset_by_spots(kind, given, stack)
    return corrected_by(kind, calibration, dark)


def _with_widths_of(
    corrected: PixelCalibration, calibration: PixelCalibration,
    with_widths: Callable[[PixelCalibration], PixelCalibration],
) -> PixelCalibration:  # fmt: skip
    """Return a calibration with the PSF's widths that corrected planes show, unless given.

    Light of planes leaves spots as wide in them, but the noise of dark ones may be taken for spots.
    """
    if corrected.settings.sigma is not None and corrected.settings.sigma_z is not None:
        return calibration
    own, before = with_widths(corrected).settings, calibration.settings
    is_light = corrected.light is not None and corrected.light.dark is not None
    if is_light and not math.isclose(own.known_sigma, before.known_sigma, rel_tol=_AS_WIDE):
        return calibration
    return calibration.with_settings(sigma=own.sigma, sigma_z=own.sigma_z, roi_size=own.roi_size)


def _offset_by_spots(kind: str, given: PixelCalibration, stack: _Stack) -> float | None:
    """Return the counts without light that spots show, if nobody knows them; warn the caller.

    None where they are those of the noise.
    """
    is_known = given.settings.offset != 0 or given.settings.gain is not None
    if kind != LIGHT or is_known or given.knows_variance:
        return None
    gain = electrons_of(stack.settings).gain
    found = plane_offset(_spots_of(stack), stack.dark, gain) if stack.has_light else None
    if found is None:
        warn_caller(
            f"{_FROM_OFFSET} The noise suggests {stack.dark:.4g}, and with read-out noise there "
            "are more, so that z and light of spots may be far off where there is little light: "
            "set offset, in counts"
        )
        return None
    off, light = found.z_off(stack.own_level, stack.sigma_z), found.light_off(stack.own_level)
    if off >= _OFF or light >= _LIGHT_OFF:
        warn_caller(
            f"{_FROM_OFFSET} Spots and noise suggest {found.dark:.4g}, or {found.low:.4g} to "
            f"{found.high:.4g}: z may be off by {off:.2g} planes, and light by {light:.0%}, "
            "more where there is little light. Set offset, in counts"
        )
    return found.dark


def _kind(stack: _Stack) -> str:
    """Return what of a stack's planes differs, if they do."""
    if not stack.has_light:
        return BACKGROUND
    slope, error = _follows_light(stack)
    is_background = slope < _LITTLE and slope + _ERRORS * error < _HARDLY
    if not _is_abrupt(stack):
        is_background = slope < 0.5 and error < _KNOWN
    return BACKGROUND if is_background else LIGHT


def _is_abrupt(stack: _Stack) -> bool:
    """Whether planes differ from one to the next, or one does from those on both sides."""
    return bool(uneven_volumes(*stack.block).any()) or _has_spike(stack)


def _has_spike(stack: _Stack) -> bool:
    """Whether a plane differs from those beside it as no background does, which is out of focus."""
    level = stack.own_level
    if len(level) < _LEAST_SPIKE:
        return False
    noise = np.sqrt(np.maximum(stack.noise.variance(level), 1e-30))[2:-2]
    inner = level[2:-2]
    beside = np.array([inner - level[1:-3], inner - level[3:-1]])
    farther = np.array([inner - level[:-4], inner - level[4:]])
    sign = np.sign(beside[0])
    is_spike = (sign * beside > np.maximum(_FALL * noise, _SHARP * sign * farther)).all(axis=0)
    return bool(is_spike.any())


def _kind_of_slope(stack: _Stack) -> str:
    """Return what of a stack's planes differs that differ little from those beside them."""
    if not stack.may_slope:
        return ""
    level, noise = stack.own_level, stack.usual_noise
    off = stack.sigma_z**2 * np.gradient(np.log(stack.light))
    is_off = np.sqrt(np.mean(off**2)) >= _OFF
    rise = abs(np.polyfit(np.arange(len(level)), level, 1)[0]) / noise
    rises = rise > _RISE and rise * (len(level) - 1) > _IN_ALL
    if not is_off and not rises:
        return ""
    slope, error = _follows_light(stack)
    if is_off and slope - _ERRORS * error > _SURELY and slope > _BEYOND_DOUBT * error:
        return LIGHT
    is_known = error < _KNOWN
    kind = BACKGROUND if rises and slope < 0.5 and is_known else ""
    # Dense spots, which are why few stacks are corrected, leave the darkest parts as they are.
    if is_off and stack.differs_in_the_dark:
        kind = LIGHT if slope >= 0.5 and is_known else kind
        _warn_if_undecided(kind, slope, error, off)
    return kind


def _warn_if_undecided(kind: str, slope: float, error: float, off: NDArray[np.float64]) -> None:
    """Warn the caller of light of planes that may differ, or not, as spots do not show which."""
    by = float(np.sqrt(np.mean(off**2)))
    if by < _FAR_OFF or (np.isfinite(error) and abs(slope - 0.5) > _DECIDED * error):
        return
    taken = "is taken to" if kind == LIGHT else "is taken not to"
    warn_caller(
        "the background of the stack changes along z. Whether the light of spots does as well "
        f"cannot be seen in them, and {taken}: z may be off by {by:.2g} planes, and light, too. "
        "Divide each plane by its own light first, if it is known"
    )


def _differ(stack: _Stack) -> bool:
    """Whether planes differ so much that false spots are found, or true ones are off."""
    if stack.is_image.sum() < LEAST_LEFT:
        return False
    if differing_volumes(*stack.block, stack.sigma_z).any():
        return True
    level = stack.level[stack.is_image]
    noise = np.sqrt(np.maximum(stack.noise.variance(level), 1e-30))
    away = max(round(1.5 * stack.sigma_z), 1)
    if len(level) <= 2 * away:
        return bool(np.ptp(level) > _RANGE * noise.mean())
    ends = (level[0] - level[away]) / noise[0], (level[-1] - level[-1 - away]) / noise[-1]
    return bool(max(ends) > _FALL * away)


def _follows_light(stack: _Stack) -> tuple[float, float]:
    """Return how the light of spots goes with that of their planes: a slope, and its error."""
    return _spots_of(stack).slope(stack.dark)


def _spots_of(stack: _Stack) -> PlaneSpots:
    """Return good fits of spots in planes of one background."""
    settings = stack.settings.changed(
        neighbours="exclude", estimator="lse", backend="cpu", model="gaussian_3d", fixed={},
        bounds={}, threshold=None, offset=0.0, noise=stack.noise,
    )  # fmt: skip
    pixels = stack.pixels[np.newaxis].astype(np.float32)
    known = PixelCalibration(pixels.shape, settings).without_planes(~stack.is_image)
    light = PlaneLight(
        lambda _: stack.pixels, pixels.shape[1:], stack.noise, None, np.arange(1), ~stack.is_image
    )
    known = known.with_light(light)
    detection, noise_map = for_detection(known)
    block = Block.of(known, np.arange(1), pixels)
    block.noise_map = noise_map
    backend = select_backend(known.settings, False)
    found = backend.detect(block, detection)
    columns = backend.fit(
        FitJob.of(known, pixels.dtype), block, Positions(found.places(), found.frame)
    )
    good = (columns["flags"] & int(NOT_GOOD) == 0) & (columns["photons"] > 0)
    planes = np.flatnonzero(stack.is_image)
    away = (columns["z"][good, np.newaxis] - planes) / stack.sigma_z
    share = np.exp(-(away**2))  # as least squares weights planes, by the square of the profile
    return PlaneSpots(share, np.log(columns["photons"][good]), stack.own_level)
