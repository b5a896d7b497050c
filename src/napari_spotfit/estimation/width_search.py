"""Search for the width of an image's spots, by fits in a few frames or in parts of them."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..engine.backend import Block, Positions
from ..engine.detection_settings import expected_false_spots
from ..engine.fit_job import FitJob
from ..engine.flags import LEAST_ERRORS, NOT_GOOD, Flag, reasons_in_words
from ..engine.joint import takes_joint_fits
from ..engine.positions import rows_of
from ..engine.select import select_backend
from ..images.pixel_calibration import PixelCalibration
from ..settings.bounds import ROI_SIGMAS, roi_for
from ..settings.noise_model import NoiseModel
from ..settings.settings import Settings
from ..settings.validation import ROI_MAX, ROI_MIN
from .joint_width import JointWidth, is_crowded, joint_width
from .measured_noise import Measured, measured_blocks, noise_by_detail, noise_of
from .noise_line import SIGMA_PER_MAD
from .single_widths import TOO_FEW, of_one_width, of_single_spots
from .spectral_width import SpectralWidth, spectral_width
from .spot_noise import between_is_no_noise, with_noise_of_spots
from .white_floor import white_floor
from .width_samples import Sample

#: How many spots are enough for the width.
ENOUGH = 30
#: The largest standard error, as a fraction of the width, with which a glance is all it takes; that
#: of a median, over that of a mean.
_PRECISE, _OF_MEDIAN = 0.01, math.sqrt(math.pi / 2)
#: Spots are looked for with the first of these widths and, if that is not theirs, with all.
WIDTHS = (1.3, 0.8, 2.2, 3.6)
#: Limits of the settings.
ACCEPTED = (0.5, 10.0)
#: What is found with a width is of that width, within this factor; the widths lie as far apart.
_AGREES = 1.4
#: The width is looked for again with what was found until it changes by less than this
#: fraction, at most this many times.
_SETTLED, _ROUNDS = 0.05, 5
#: By these factors at most, fits of single spots are wider, and narrower, than those of crowds: at
#: 6 spots per µm², they are 1.22 times too wide, of σ 3 px at 1.5 per 100 px² 1.31 times.
_WIDER_ALONE, _CROWDED = 1.4, 1.25
#: By this factor single fits are wider than the spectrum of denser crowds, by the next one where
#: there are few. Where they are by the last one, joint fits are too wide, too, and take long.
_WIDER_IN_CROWDS, _WIDER_IN_FEW, _OVERLAPPING = 1.8, 2.5, 1.25
#: The largest standard error of a width by the spectrum that counts, and by how many of them joint
#: fits are wider that are of pairs, too. With one up to the third, joint fits begin with it, and
#: count if they are within the fourth number of errors of it.
_PRECISE_SPECTRUM, _TOO_WIDE, _GUESSED, _OFF = 0.05, 1.5, 0.12, 3.0
#: This many spots are fitted, those around the middle.
_FITTED = 2000
#: This many where they are fitted together, until the width changes by less than this fraction.
_JOINTLY_FITTED, _REFINED = 150, 0.02
#: Spots count whose errors are at most this many times those of this share, the brightest.
#: Brightness itself would choose the spots that are two.
_BRIGHT, _BRIGHTEST = 2.0, 0.2
#: The largest standard error of a width that counts, as a fraction of it.
_WORST = 0.5
#: Fits of dim spots are narrow, wherever they begin: by this many times the square of their error
#: at least, both as fractions, on the noises of benchmarks/trust.py (by 1.6 on average).
_NARROW = 1.2
#: What speaks against a fit whose width is asked for: all but the width itself.
_DOUBTFUL = NOT_GOOD & ~(Flag.WIDE | Flag.NARROW | Flag.ELONGATED)
#: What fits should not have: the first of these, if then enough are left, or else the next.
_BETTER_WITHOUT = (
    Flag.POOR_FIT | Flag.EDGE | Flag.NEIGHBOUR, Flag.POOR_FIT | Flag.EDGE, Flag.POOR_FIT, Flag(0),
)  # fmt: skip
#: Noise that is skewed, or no camera's own, makes up to this many times more false spots than are
#: expected. Spots stand out of it if it makes as many, and as high ones, less often than once in e
#: to this power, and no more than this share of them.
_MORE_FALSE, _SURPRISE, _FALSE = 5.0, 9.0, 0.25
#: How many of the spots, by their height, are compared with noise.
_COMPARED = 24


class NoWidthError(ValueError):
    """Too few spots are usable to estimate the PSF's width.

    Parameters
    ----------
    why : str
        What was needed, and what was found.
    """

    def __init__(self, why: str) -> None:
        super().__init__(f"{why}. Allow more false spots, choose other frames, or set σ by hand")
        self.why = why


class PsfWidth(NamedTuple):
    """The width of an image's spots."""

    #: Median σ in pixels, and the standard deviation of a single spot's σ around it.
    sigma: float
    scatter: float
    #: How many spots it is estimated from.
    spots: int
    #: The same along z in planes, of spots in volumes.
    sigma_z: float | None = None
    scatter_z: float | None = None


def width_of(
    looked_at: Iterable[Sample], calibration: PixelCalibration, guess: float | None = None
) -> PsfWidth:
    """Return the width of the spots in samples, taking more samples until there are enough.

    Raises
    ------
    NoWidthError
        If fewer than three spots are usable.
    """
    best, why, noise, search = None, "there are no frames", None, None
    first = _accepted(guess or WIDTHS[0])
    for sample in looked_at:
        sides = sample.pixels.shape[1:]
        if min(sides) <= ROI_MIN:
            why = f"no ROI has room in frames of {'×'.join(map(str, sides))} px"
            break
        search = WidthSearch(sample, calibration, noise)
        if sample.is_glance:
            width = search.width_at_a_glance(first)
        else:
            width = search.width(best.sigma if best else first, sure=best is not None)
        if width is not None and (best is None or width.spots > best.spots):
            best = width
        if best is not None and best.spots >= ENOUGH:
            break
        why = search.why
        # A part without light and noise, such as outside of a mask, says nothing about the others.
        noise = search.noise if search.noise is not None and search.noise.blocks else None
    width = None
    if search is not None:
        width = search.width_by_spectrum() if best is None else search.refined(best)
    if width is None:
        raise NoWidthError(f"the PSF's width needs {TOO_FEW} good fits of spots, but {why}")
    return width


def _accepted(sigma: float) -> float:
    return min(max(sigma, ACCEPTED[0]), ACCEPTED[1])


class WidthSearch:
    """The search for the width of the spots in a sample."""

    def __init__(
        self, sample: Sample, calibration: PixelCalibration, noise: NoiseModel | None
    ) -> None:
        known = self._known = calibration.fitted
        # Whatever the spots are fitted with later. The CPU is as quick for so little.
        self._settings = Settings(
            pixel=known.pixel, false_spots=known.false_spots, threshold=known.threshold,
            offset=known.offset, gain=known.gain, variance=known.variance, emccd=known.emccd,
            noise=known.noise or calibration.camera_noise, threads=known.threads, backend="cpu",
        )  # fmt: skip
        self._backend = select_backend(self._settings)
        self._sample = sample
        #: That of the pixels, as far as it was asked for.
        self.noise = self._settings.noise or noise
        self._seen: dict[float, PsfWidth | None] = {}
        #: The width last looked for, and what was found with it.
        self._last: tuple[float, Positions] | None = None
        self.why = "found 0"

    def width_at_a_glance(self, guess: float) -> PsfWidth | None:
        """Return the width of most spots if it is so precise that no more are needed."""
        if self._sample.places is not None and len(self._sample.places) < ENOUGH:
            return None
        width = self._look(guess)
        if width is not None and width.spots >= ENOUGH:
            width = self.width(guess, sure=False)
        if width is None or width.spots < ENOUGH:
            return None
        error = _OF_MEDIAN * width.scatter / math.sqrt(width.spots)
        return width if error <= _PRECISE * width.sigma else None

    def width(self, guess: float, *, sure: bool) -> PsfWidth | None:
        """Return the width of most spots that agree with what they were looked for with.

        It is looked for with the guess and, if that is not sure, with others.
        """
        width = self._look(guess)
        enough = width is not None and (sure or width.spots >= ENOUGH)
        if width is None or not enough or not agree(width.sigma, guess):
            found = {sigma: seen for sigma in (guess, *WIDTHS) if (seen := self._look(sigma))}
            if not found:
                return None
            agreeing = [sigma for sigma, seen in found.items() if agree(seen.sigma, sigma)]
            guess = max(agreeing or found, key=lambda sigma: found[sigma].spots)
            width = found[guess]
        for _ in range(_ROUNDS):
            if abs(width.sigma / guess - 1) < _SETTLED:
                break
            guess = _accepted(width.sigma)
            width = self._look(guess) or width
        return width if agree(width.sigma, guess) else None

    def _look(self, sigma: float) -> PsfWidth | None:
        """Return the width of the spots detected with a width; None with too few."""
        if sigma not in self._seen:
            self._seen[sigma] = self._estimate(*self._fits(sigma))
        return self._seen[sigma]

    def refined(self, width: PsfWidth) -> PsfWidth:
        """Return the width that joint fits and the spectrum show, where most spots overlap."""
        known, sigma = self._known, width.sigma
        least, most = ACCEPTED
        if not (refines_in_crowds(known) and least <= sigma <= most):
            return width
        shape, threads = self._sample.pixels.shape[1:], known.threads
        looked_for, found = self._last or (math.inf, None)  # most images are not crowded
        if found is None or not agree(looked_for, sigma):
            calibration, block = self._prepared(sigma, None)
            found, _ = self._spots(block, calibration.settings, _JOINTLY_FITTED)
        if not is_crowded(found, shape, sigma, threads):
            return width
        spectral = self._spectral(sigma)
        if spectral is None:
            by_fits = self._width_by_fits(width, sigma)
            return width if by_fits is None else width._replace(sigma=by_fits.sigma)
        if spectral.error > _PRECISE_SPECTRUM:
            # It says where joint fits begin, and how far off they may be.
            like = width._replace(sigma=spectral.sigma)
            by_fits = self._width_by_fits(like, spectral.sigma)
            if by_fits is None or abs(by_fits.sigma / spectral.sigma - 1) > _OFF * spectral.error:
                by_fits = self._width_by_fits(width, sigma)
            return width if by_fits is None else width._replace(sigma=by_fits.sigma)
        if width.sigma <= _OVERLAPPING * spectral.sigma:
            by_fits = self._width_by_fits(width, spectral.sigma)
            most = (1 + _TOO_WIDE * spectral.error) * spectral.sigma
            if by_fits is not None and (by_fits.are_apart or by_fits.sigma <= most):
                return width._replace(sigma=by_fits.sigma)
        return width._replace(sigma=spectral.sigma)

    def width_by_spectrum(self) -> PsfWidth | None:
        """Return the width that the spectrum shows where fits of single spots show none.

        Crowds may be as dense as that. All of the spectrum must be that of spots over white noise,
        as filtered noise may look like theirs where they have most light.
        """
        is_bare = self.noise is None or not self.noise.blocks
        is_other = not refines_in_crowds(self._known)
        if is_bare or is_other or not self._crowd_of(_accepted(WIDTHS[0])):
            return None
        floor = white_floor(self._sample.pixels)
        if floor is None or not floor.is_white:
            return None
        spectral = self._spectral(_accepted(floor.sigma))
        if spectral is None or spectral.error > _PRECISE_SPECTRUM:
            return None
        if not (count := self._crowd_of(spectral.sigma)):
            return None
        return PsfWidth(spectral.sigma, spectral.error * spectral.sigma, count)

    def _crowd_of(self, sigma: float) -> int:
        """Return how many spots of a width are detected, if these are a crowd; otherwise 0."""
        calibration, block = self._prepared(sigma, None)
        found, real = self._spots(block, calibration.settings)
        shape, count = self._sample.pixels.shape[1:], int(real.sum())
        crowded = count >= TOO_FEW and is_crowded(found, shape, sigma, self._known.threads)
        return count if crowded else 0

    def _width_by_fits(self, width: PsfWidth, sigma: float) -> JointWidth | None:
        """Return the width by joint fits that begin with σ; None if they show none."""
        known, (least, most) = self._known, ACCEPTED
        shape, found = self._sample.pixels.shape[1:], None
        for _ in range(_ROUNDS):
            calibration, block = self._prepared(sigma, None)
            positions, _ = self._spots(block, calibration.settings, _JOINTLY_FITTED)
            calibration = calibration.with_settings(
                model=known.model, bounds=known.bounds, fixed=known.fixed, neighbours="auto"
            )
            job, before = self._job(calibration), sigma
            crowded = is_crowded(positions, shape, sigma, known.threads)
            if not crowded or not takes_joint_fits(job, block) or self._is_filtered(calibration):
                break
            columns = self._backend.fit(job, block, positions)
            found = joint_width(self._backend, job, block, positions, columns)
            sigma = found.sigma
            is_like = 1 / _WIDER_ALONE <= sigma / width.sigma <= _CROWDED
            if not (is_like and least <= sigma <= most):
                return None  # what is fitted are no spots
            if abs(sigma / before - 1) < _REFINED:
                break
        return found

    def _spectral(self, sigma: float) -> SpectralWidth | None:
        """Return the width that the spectrum shows, if that is of spots at random places."""
        sample, (least, most) = self._sample, ACCEPTED
        if sample.mask is not None or sample.places is not None:
            return None
        found = spectral_width(
            sample.pixels, sigma, is_integrated=self._settings.pixel == "integrated", bad=sample.bad
        )
        if found is None or found.error > _GUESSED or found.is_bent:
            return None
        wider = _WIDER_IN_CROWDS if found.error <= _PRECISE_SPECTRUM else _WIDER_IN_FEW
        is_like = 1 / wider <= found.sigma / sigma <= _CROWDED
        return found if is_like and least <= found.sigma <= most else None

    def _fits(
        self, sigma: float, sigma_z: float | None = None
    ) -> tuple[dict[str, NDArray[Any]], NDArray[np.bool_]]:
        """Return the fits of spots detected with a width, and which stand out of the noise."""
        calibration, block = self._prepared(sigma, sigma_z)
        positions, real = self._spots(block, calibration.settings)
        job = self._job(calibration)
        if sigma_z is None:
            self._last = sigma, positions
        fits = self._backend.fit(job, block, positions)
        rows_of(job, fits)
        return fits, real

    def _prepared(self, sigma: float, sigma_z: float | None) -> tuple[PixelCalibration, Block]:
        """Return what is known of the pixels, and these, to look for spots with a width."""
        count, *frame_shape = self._sample.pixels.shape
        roi = roi_for(min(sigma, (ROI_MAX - 1) / ROI_SIGMAS), tuple(frame_shape), sigma_z)
        settings = self._settings.changed(sigma=sigma, sigma_z=sigma_z, roi_size=roi)
        if self.noise is None or self.noise.is_filtered:
            self.noise = self._settings.noise or self._measured(settings)
        bad = self._sample.bad
        calibration = PixelCalibration(
            self._sample.pixels.shape, settings.changed(noise=self.noise),
            bad_pixels=bad[0] if bad is not None and len(bad) == 1 else bad,
        )  # fmt: skip
        block = Block.of(calibration, np.arange(count), self._sample.pixels)
        block.mask = self._sample.mask
        return calibration, block

    def _is_filtered(self, calibration: PixelCalibration) -> bool:
        """Whether spots of a width, as that is now, show that the image was filtered."""
        if self._settings.noise is not None:
            return self._settings.noise.is_filtered
        return noise_of(self._blocks(calibration.settings), calibration.settings).is_filtered

    def _job(self, calibration: PixelCalibration) -> FitJob:
        return FitJob.of(calibration, self._sample.pixels.dtype)

    def _measured(self, settings: Settings) -> NoiseModel:
        measured = self._blocks(settings)
        noise = noise_by_detail(measured, settings)
        is_bare = self._sample.pixels.ndim == 3 and between_is_no_noise(noise)
        return with_noise_of_spots(noise, measured, settings) if is_bare else noise

    def _blocks(self, settings: Settings) -> Measured:
        pixels = self._sample.pixels
        if self._sample.bad is not None:
            pixels = np.where(self._sample.bad, np.nan, pixels).astype(np.float32)
        return measured_blocks(pixels.reshape(-1, *pixels.shape[-2:]), settings)

    def _spots(
        self, block: Block, settings: Settings, most: int = _FITTED
    ) -> tuple[Positions, NDArray[np.bool_]]:
        """Return the positions of the spots around the middle, with all their neighbours.

        And which of them noise hardly makes.
        """
        if self._sample.places is None:
            found = self._backend.detect(block, settings)
            frame, places = found.frame, found.places()
            real = np.ones(len(frame), bool)
            if settings.threshold is None:
                stack = () if found.z is None else (settings.sigma_z, block.pixels.shape[1])
                real = found.score >= standing_out(
                    found.score, settings.known_sigma, self._pixels(), *stack
                )
        else:
            frame = self._sample.places[:, 0].astype(np.int64)
            places = self._sample.places[:, 1:]
            real = np.ones(len(frame), bool)
        if len(places) > most:
            middle = (np.array(block.pixels.shape[1:]) - 1) / 2
            away = abs(places - middle).max(axis=1)
            near = np.sort(np.argsort(away, kind="stable")[:most])
            frame, places, real = frame[near], places[near], real[near]
        return Positions(places, frame), real

    def _pixels(self) -> int:
        """Return the number of pixels that are searched."""
        searched = np.ones(self._sample.pixels.shape, bool)
        if self._sample.mask is not None:
            searched &= self._sample.mask
        if self._sample.bad is not None:
            searched &= ~self._sample.bad
        return int(searched.sum())

    def _estimate(
        self, fits: dict[str, NDArray[Any]], real: NDArray[np.bool_], name: str = "sigma"
    ) -> PsfWidth | None:
        """Return the width that most of the bright, good fits have."""
        flags, sigma = fits["flags"], fits[name].astype(float)
        with np.errstate(invalid="ignore", divide="ignore"):
            error = fits[f"{name}_stderr"] / sigma
            good = real & ((flags & int(_DOUBTFUL)) == 0) & (error < _WORST)
            # Of so few photons that their own noise hides the amplitude, some that lie close make
            # a narrow spot, whose error looks small.
            usable = good & (fits["amplitude"] > LEAST_ERRORS * fits["amplitude_stderr"])
        count = int(usable.sum())
        if count < TOO_FEW and real.sum() < TOO_FEW <= len(real):
            self.why = f"found {len(real)}, which noise alone may make"
            return None
        if count < TOO_FEW:
            judged = f"; of their fits, {reasons_in_words(flags)}" if len(flags) else ""
            self.why = f"found {len(flags)}{judged}"
            return None
        for doubt in _BETTER_WITHOUT:
            rows = np.flatnonzero(usable & ((flags & int(doubt)) == 0))
            if len(rows) >= max(min(ENOUGH, count / 2), TOO_FEW):
                break
        if len(rows) > ENOUGH:
            rows = rows[error[rows] <= _BRIGHT * np.quantile(error[rows], _BRIGHTEST)]
        near = of_one_width(sigma[rows], error[rows])
        if name == "sigma_z":
            near = of_single_spots(near, sigma[rows], error[rows])
        if len(near) < TOO_FEW:
            self.why = f"the widths of {count} differ"
            return None
        middle = float(np.median(near))
        scatter = float(SIGMA_PER_MAD * np.median(abs(near - middle)))
        # That holds for fits without selection; and light of neighbours makes them wide.
        alone = float(np.mean((flags[usable] & int(Flag.NEIGHBOUR)) == 0))
        narrow = alone * (float(np.median(error[rows])) * count / int(good.sum())) ** 2
        return PsfWidth(middle * (1 + _NARROW * narrow), scatter, len(near))


def refines_in_crowds(settings: Settings) -> bool:
    """Whether the width of spots that overlap is to be that of their joint fits."""
    return settings.neighbours in ("auto", "joint") and not settings.fixed.get("sigma")


def standing_out(
    scores: NDArray[np.float32],
    sigma: float,
    pixels: int,
    sigma_z: float | None = None,
    depth: int = 1,
) -> float:
    """Return the score from which on noise hardly makes as many spots; infinite if it may.

    The bound is Chernoff's, for the number of false spots in that many pixels.

    Examples
    --------
    >>> standing_out(np.array([4.4, 4.6, 4.8]), 1.3, 10**6)
    inf
    >>> standing_out(np.array([4.4, 9.0, 9.0, 9.0]), 1.3, 10**6)
    9.0
    """
    ordered = np.sort(scores)[::-1]
    ranks = np.unique(np.geomspace(TOO_FEW, max(len(ordered), TOO_FEW), _COMPARED).astype(int))
    for rank in ranks[ranks <= len(ordered)][::-1]:
        score = float(ordered[rank - 1])
        false = max(
            _MORE_FALSE * expected_false_spots(score, sigma, sigma_z, depth) * pixels / 1e6, 1e-300
        )
        surprise = rank * math.log(rank / false) - rank + false
        if false < _FALSE * rank and surprise > _SURPRISE:
            return score
    return math.inf


def agree(one: float, other: float) -> bool:
    """Whether what was found with a width is of that width."""
    return 1 / _AGREES < one / other < _AGREES
