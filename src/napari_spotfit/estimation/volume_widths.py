"""Search for the widths of spots in stacks, in the plane and along z, by fits in a few of them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..engine.fit_job import FitJob
from ..engine.flags import Flag
from ..images.pixel_calibration import PixelCalibration
from ..settings.noise_model import NoiseModel
from ..settings.optics import expected_widths
from ..settings.settings import Settings
from ..settings.validation import PLANES_MIN
from .width_search import (
    ENOUGH,
    TOO_FEW,
    WIDTHS,
    NoWidthError,
    PsfWidth,
    Sample,
    WidthSearch,
    agree,
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
#: Limits of the settings.
_SIGMA, _SIGMA_Z = (0.5, 10.0), (0.3, 64.0)


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
    limits = zip(widths, (_SIGMA, _SIGMA_Z), strict=True)
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
    with np.errstate(invalid="ignore"):
        middle, high = np.nanpercentile(every.astype(float), (50, 99.9), axis=1)
    rows = np.sort(np.argsort(-np.nan_to_num(high - middle))[:_BRIGHTEST_PLANES])
    bad, mask = planes(sample.bad), planes(sample.mask)
    return (
        np.ascontiguousarray(pixels[rows]),
        None if bad is None else bad[rows],
        None if mask is None else mask[rows],
    )
