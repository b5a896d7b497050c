"""Fit crowds of spots: hand their candidates to a backend, and take the spots it finds."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..images.arrays import like, to_host
from ..models.columns import IN_PLANE
from ..settings.noise_model import NoiseModel
from ..settings.settings import Settings, electrons_of, noise_of
from .backend import Backend, Block, Positions, lend
from .cpu.block_fits import CpuFitter
from .cpu.layouts import JointFits, PsfLattice
from .cpu.library import load
from .crowds import PSF_ARRAYS, Candidates, Crowds, by_number
from .detection_settings import score_for
from .fit_job import FitJob
from .kernel_arguments import encode_psf, unlike_heights

#: In units of σ: how far the light of a spot counts; spots that are farther apart than the second
#: are fitted apart, each with the pixels that are nearer to it.
_REACH, LINKED = 4.5, 6.0
#: The same of volumes where only what overlaps is fitted together: a plane is the background of
#: that in cells, too, whose texture hides spots from larger crowds.
_REACH_IN_CELLS, _LINKED_IN_CELLS = 3.0, 4.0
#: The same of a measured PSF: out of focus it is wider, and has rings that would look like dim
#: spots.
_REACH_OF_PSF, _LINKED_BY_PSF = 6.5, 8.0
#: How many maxima of noise are linked with one, at most: more would be linked all over the image.
_BY_CHANCE = 1.0
#: Of white noise, a pixel's mean over its deviation.
_WHITE = 1000.0
#: Fewer blocks of an image than this show no line of noise over light.
_FEW_BLOCKS = 8


class Scale(NamedTuple):
    """Conversion of counts to numbers whose variance is their mean: counts / unit + shift."""

    unit: float
    shift: float
    #: The least variance of these numbers, 0 where the line is that of a camera.
    least: float

    @classmethod
    def of(cls, noise: NoiseModel) -> Scale:
        """Return that of pixels with a noise.

        Examples
        --------
        >>> Scale.of(NoiseModel.of_camera(2.0, 100.0, 8.0))
        Scale(unit=2.0, shift=-48.0, least=0.0)
        """
        factor = noise.correlation**2
        slope, intercept = factor * noise.slope, factor * noise.intercept
        least = factor * noise.least
        unit = max(slope, math.sqrt(max(least, 0.0 if slope else intercept)) / _WHITE)
        if unit > slope:  # white noise, or nearly
            intercept = max(intercept, least)
        return cls(unit, intercept / unit**2, least / unit**2 if noise.blocks else 0.0)


@lru_cache(maxsize=16)
def _search(job: FitJob, roi_shape: tuple[int, ...]) -> FitJob:
    """Return the job of ROIs that are searched for pixels to leave out."""
    settings = Settings(neighbours="ignore", threads=1)
    if len(roi_shape) > len(IN_PLANE):
        settings = settings.changed(model="gaussian_3d")
    return FitJob(settings, roi_shape, job.pixel_type, None, job.detection)


@lru_cache(maxsize=64)
def joint_noise(job: FitJob) -> NoiseModel | None:
    """Return the noise of the image or, where that is not known at all levels, the camera's.

    It is more than the camera's where the image has surely more.
    """
    noise, camera = job.noise, noise_of(job.settings)
    if noise is None or not noise.blocks:
        return camera
    if camera is None or not (noise.is_flat or noise.blocks < _FEW_BLOCKS):
        return noise
    # Of a flat image it is known only where it is as bright as most, and spots are not; of a small
    # one, a crowd is most of it.
    return noise.contradicting(camera)


def reaches(job: FitJob) -> tuple[float, float]:
    """Return how far the light of spots counts, and the distance that links them, in σ."""
    if job.model.lattice is not None:
        return _REACH_OF_PSF, _LINKED_BY_PSF
    in_cells = len(job.axes) > len(IN_PLANE) and job.settings.neighbours == "auto"
    return (_REACH_IN_CELLS, _LINKED_IN_CELLS) if in_cells else (_REACH, LINKED)


def false_spots_of(job: FitJob, widths: ArrayLike) -> float:
    """Return how many false spots in 10⁶ pixels joint fits are asked for: no more than few meet.

    ``widths`` are those of spots along each axis.
    """
    _, linked = reaches(job)
    radii = linked * np.ravel(widths)
    near = math.pi * float(radii.prod()) * (1 if len(radii) == len(IN_PLANE) else 4 / 3)
    return min(job.settings.false_spots, 1e6 * _BY_CHANCE / near)


def least_score(false_spots: float, widths: ArrayLike, depth: int) -> float:
    """Return how far a spot stands out of the noise, as a normal deviate, at least.

    Parameters
    ----------
    false_spots : float
        How many false ones there may be in 10⁶ pixels.
    widths : float, or one for each axis
        Widths of spots, in pixels.
    depth : int
        Planes of the volume, if it is one.
    """
    own: list[float] = np.ravel(widths).tolist()
    of_volume = (own[0], depth) if len(own) > len(IN_PLANE) else ()
    return score_for(false_spots, min(max(own[-1], 0.5), 10.0), *of_volume)


def light_reach(job: FitJob, width: float) -> int:
    """Return how far the light of spots of a width counts, in pixels."""
    return int(reaches(job)[0] * width) + 1


def are_alike(block: Block) -> bool:
    """Whether nothing is known of pixels but which are bad."""
    if block.planes is None:
        return True
    usable = values = to_host(block.planes.values)
    if block.bad is not None:
        rows = slice(block.first_row, block.first_row + values.shape[1])
        is_good, known = np.broadcast_arrays(~to_host(block.bad)[:, rows], values)
        usable = known[is_good]
    return bool((usable == usable.flat[:1]).all())


def has_variances(job: FitJob, block: Block) -> bool:
    """Whether pixels have read-out variances of their own, and no weights."""
    estimator = job.settings.estimator_kind
    if estimator.is_likelihood:
        return not are_alike(block)
    return block.variances is not None and not estimator.needs_weights


def _excess_variances(job: FitJob, block: Block) -> NDArray[np.float32]:
    """Return the pixels' read-out variances beyond the usual one, in counts²."""
    if not job.settings.estimator_kind.is_likelihood:
        assert block.variances is not None
        excess = to_host(block.variances.values)
    else:
        assert block.planes is not None
        electrons = electrons_of(job.settings)
        excess = to_host(block.planes.values) * electrons.gain**2 - electrons.variance
    found: NDArray[np.float32] = np.nan_to_num(excess).astype(np.float32)
    return found


class JointFitter:
    """Fits crowds of a block's spots, all of one width.

    Parameters
    ----------
    backend : Backend
        What fits them.
    job : FitJob
        How to fit; its noise is known.
    block : Block
        The pixels.
    sigma : float, or one for each axis
        The width of spots, in pixels.
    widest : float, optional
        The width along x of spots whose light counts as far; by default theirs.
    finds_widths : bool
        Whether crowds may be of spots of another width, all alike.
    """

    def __init__(
        self, backend: Backend, job: FitJob, block: Block, sigma: ArrayLike,
        widest: float | None = None, *, finds_widths: bool = True,
    ) -> None:  # fmt: skip
        has_map = has_variances(job, block)
        # The image's own noise has the variances of its pixels in it.
        is_known = has_map and job.settings.gain is not None
        noise = noise_of(job.settings) if is_known else joint_noise(job)
        assert noise is not None
        #: Along each axis of the image.
        self.widths: list[float] = np.ravel(sigma).tolist() * (len(job.axes) // np.size(sigma))
        self.scale = Scale.of(noise)
        wider = (widest or self.widths[-1]) / self.widths[-1]
        self._reach = [light_reach(job, wider * width) for width in self.widths]
        self._job, self._block, self._backend = job, block, backend
        self._finds_widths = finds_widths and not job.settings.fixed
        # In planes, one side of an edge looks like half a spot.
        in_plane = len(job.axes) == len(IN_PLANE) and job.model.lattice is None
        self._grows = in_plane and job.settings.neighbours == "auto"
        #: Pixels that count in no fit, in rising order, as JointFits has them; and why.
        self.lost, self.reasons = np.empty(0, np.int64), np.empty(0, np.uint8)
        #: Of a measured PSF, which is searched for at some heights.
        self.psf = job.model.lattice
        heights = 1.0
        if self.psf is not None:
            self._reach = [min(reach, self.psf.reach) for reach in self._reach]
            heights = unlike_heights(self.psf)
        self._variances = None
        if has_map:
            own = _excess_variances(job, block) / self.scale.unit**2
            all_pixels = own.shape[:1] + block.pixels.shape[1:]
            self._variances = np.ascontiguousarray(np.broadcast_to(own, all_pixels), np.float32)
        #: How far a spot stands out of the noise, as a normal deviate, at least.
        false_spots = false_spots_of(job, wider * np.array(self.widths)) / heights
        self.least_score = least_score(false_spots, self.widths, block.frame_shape[0])

    def wider(self, factor: float) -> JointFitter:
        """Return what fits spots that are wider by a factor, whose light counts no farther."""
        made = JointFitter(
            self._backend, self._job, self._block, factor * np.array(self.widths), self.widths[-1],
            finds_widths=False,
        )  # fmt: skip
        made.lost, made.reasons = self.lost, self.reasons
        return made

    @property
    def search_job(self) -> FitJob:
        """What ROIs are searched by for pixels to leave out."""
        sides = self._block.pixels.shape[1:]
        own = tuple(
            min(2 * reach + 1, side) for reach, side in zip(self._reach, sides, strict=True)
        )
        return _search(self._job, own)

    def leave_out(self, positions: Positions) -> None:
        """Leave saturated, hot and dead pixels and padding around positions out of all fits."""
        search, idle = lend(CpuFitter, load(), self.search_job)
        self.lost, self.reasons = search.excluded(self._block, positions)
        search.release_maps()
        idle.append(search)

    def lost_around(self, places: NDArray[np.int64], reason: int) -> NDArray[np.bool_]:
        """Return which of the 3×3 pixels around places, in all frames, are left out for a reason.

        ``places`` are frames and (z,) y and x in the image; the middle is the fifth one.
        """
        numbers = self.lost[self.reasons & reason != 0]
        around, is_inside = self._around(places)
        shape = self._block.pixels.shape
        own = np.ravel_multi_index(tuple(np.moveaxis(around, 2, 0)), shape, mode="clip")
        found: NDArray[np.bool_] = np.isin(own, numbers) & is_inside
        return found

    def missing_around(self, places: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return which of the 3×3 pixels around places are no numbers, as :meth:`lost_around`."""
        pixels = self._block.pixels
        if pixels.dtype.kind != "f":
            return np.zeros((len(places), 9), np.bool_)
        around, is_inside = self._around(places)
        last = np.array(pixels.shape) - 1
        index = (like(axis, pixels) for axis in np.moveaxis(np.clip(around, 0, last), 2, 0))
        found: NDArray[np.bool_] = ~np.isfinite(to_host(pixels[tuple(index)])) & is_inside
        return found

    def _around(self, places: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Return the 3×3 pixels around places, counted in the block, and which are inside."""
        first = (0, self._block.first_row, *[0] * (places.shape[1] - 2))
        beside = np.stack(np.divmod(np.arange(9), 3), axis=-1) - 1
        around = np.repeat((places - first)[:, np.newaxis], 9, axis=1)
        around[..., -2:] += beside
        return around, ((around >= 0) & (around < self._block.pixels.shape)).all(axis=2)

    def asked(self, count: int, *, counts_spots: bool) -> JointFits:
        """Return what is asked of fits of this number of candidates, without any address."""
        settings, pixels = self._job.settings, self._block.pixels
        shape = pixels.shape[1:] if self._is_deep else (1, *pixels.shape[1:])
        first_pixel = (self._block.first_row, 0) if self._is_deep else (0, self._block.first_row)
        return JointFits(
            None, *shape, *first_pixel, len(self.widths), None,
            self._variances is not None and len(self._variances) == 1,
            0, settings.pixel == "integrated", 1 / self.scale.unit, self.scale.shift,
            self.scale.least,
            (*reversed(self.widths), *[self.widths[-1]] * (3 - len(self.widths))),
            (*reversed(self._reach), *[0] * (3 - len(self.widths))),
            self.least_score, counts_spots, self._finds_widths, self._grows,
            settings.max_iterations,
            None, None, None, None, None, count, None, PsfLattice(),
            None, len(self.lost), None, None,
        )  # fmt: skip

    @property
    def _is_deep(self) -> bool:
        return len(self.widths) > len(IN_PLANE)

    def fit(
        self, candidates: Candidates, is_fitted: NDArray[np.bool_], *, counts_spots: bool
    ) -> NDArray[np.void]:
        """Return the spots of the crowds that some candidates are, crowd by crowd.

        Parameters
        ----------
        candidates : Candidates
            All candidates, as other crowds have pixels, too.
        is_fitted : ndarray of bool
            Which of them are fitted.
        counts_spots : bool
            Whether spots are added and dropped.
        """
        job, points, order = self._job, candidates.points, candidates.by_place
        members = np.flatnonzero(is_fitted[order])
        crowd = points["crowd"][order[members]]
        members, size = members[by_number(crowd)], np.bincount(crowd)
        crowds = np.flatnonzero(size)
        first = np.concatenate([[0], np.cumsum(size[crowds])])
        how = self.asked(len(order), counts_spots=counts_spots)
        arrays = {
            **candidates.in_order, "members": members, "first": first, "lost": self.lost,
        } | ({} if self._variances is None else {"variances": self._variances})  # fmt: skip
        if self.psf is not None:
            side = 2 * self._reach[0] + 1
            encoded = encode_psf(self.psf, (side, side), 1)
            how.psf = encoded.program
            arrays["heights"] = arrays["places"][:, 2].copy()
            arrays["places"] = arrays["places"] * (1, 1, 0)
            arrays |= dict(zip(PSF_ARRAYS, reversed(encoded.arrays[:2]), strict=True))
        made = self._backend.fit_crowds(self._block, Crowds(how, arrays, job.threads))
        is_known = made["candidate"] >= 0
        made["candidate"][is_known] = points["candidate"][order[made["candidate"][is_known]]]
        made["crowd"] = crowds[made["crowd"]]
        return made
