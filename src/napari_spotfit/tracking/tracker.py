"""Measure the displacement of a sample by following fiducials from frame to frame."""

from __future__ import annotations

import math
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Iterator
from itertools import repeat
from typing import Any, Unpack

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..analysis.shifts import Similarity, similarity
from ..images.arrays import as_array, to_host
from ..localization.fitter import Fitter
from ..models.calibration import Calibration
from ..models.number_checks import as_numbers
from ..results.spot_fits import SpotFits
from ..settings.options import Options, takes_settings, with_roi
from ..settings.settings import Settings
from .displacement import Displacement, Heights, Rise
from .fiducials import NOT_FOUND, Fiducials, Scatter, closer_than, find_fiducials, shift_after_jump

Floats = NDArray[np.float64]

#: Distance in σ below which fiducials shift each other's fits.
_TOO_NEAR = 5.0
#: Interval in frames of the check for such fiducials.
_LOOK_AGAIN = 100
#: Fraction of fiducials below which all are searched in the whole frame, and frames between
#: searches.
_FEW, _SEARCH_AGAIN = 0.5, 10
#: Pixels and nm by which fits of a calibration move between frames: where they begin farther away,
#: they may end at another place with another z, as a lobe looks like a spot of its own.
_JUMPS = (1.0, 1.0, 100.0)


class FrameError(ValueError):
    """A frame has no displacement, and `stop` was set."""


class Tracker:
    """Follows fiducials and measures their common displacement.

    Each frame is fitted at the expected positions of the fiducials. Their shifts are averaged with
    weights by standard errors, without fiducials that are lost, blink, bleach, saturate, are too
    close to another, or move apart; the selection does not change the displacement. Lost ones are
    searched at their expected positions, and after a common jump in the whole frame. With a
    calibration as the model, z is measured, too; fiducials beyond its range do not count for z, nor
    those with less than 0.4 of their light, or a fit that is poor as it was not before. Once they
    have left the range, z is unknown until they come back by the same limit.

    Parameters
    ----------
    fiducials : SpotFits, array of shape (n, 2), or None
        Fits in one frame, or y and x in pixels. By default the bright, isolated spots of the first
        frame.
    roi_size : int or tuple of int, optional
        Side of the ROI, or rows and columns; odd. By default about 6 σ, at least 9.
    rotation, scale : bool, default False
        Whether to fit a rotation or a change of magnification, too; needs at least two fiducials.
    stop : bool, default False
        Whether a frame without a displacement raises an error. Otherwise its displacement is NaN,
        and ``problem`` says why.
    settings : Settings, optional
        All settings at once; ``options`` change single ones, those of :func:`fit_at`. By default
        those of the fits, if fiducials are fits.

    Attributes
    ----------
    positions : ndarray of float64, shape (n, 2)
        Last positions found or expected, y and x in pixels.
    health : ndarray of uint8, shape (n,)
        :class:`Health` of each in the last frame.
    settings : Settings or None
        The settings of the fits; None before the first frame if fiducials are found there.

    Raises
    ------
    TypeError, ValueError
        If fiducials or settings are invalid.

    Notes
    -----
    Threads: one at a time. The first frame is the reference, with displacement 0.

    Examples
    --------
    >>> from napari_spotfit import Tracker, simulate_movie
    >>> movie, truth = simulate_movie(2, shape=(64, 64), spots_per_frame=4, photons=5000, seed=3)
    >>> frame = movie[0]
    >>> with Tracker(sigma=1.3) as tracker:
    ...     _ = tracker.update(frame)
    ...     moved = tracker.update(np.roll(frame, 1, axis=1))
    >>> round(moved.y, 2) + 0.0, round(moved.x, 2)
    (0.0, 1.0)
    """

    @takes_settings("fit", "stop", "bounds", "camera", "run", also=("sigma",))
    def __init__(
        self,
        fiducials: SpotFits | ArrayLike | None = None,
        *,
        roi_size: int | tuple[int, ...] | None = None,
        rotation: bool = False,
        scale: bool = False,
        stop: bool = False,
        settings: Settings | None = None,
        **options: Unpack[Options],
    ) -> None:
        if isinstance(fiducials, SpotFits) and settings is None:
            settings = fiducials.settings
        self._given = with_roi(settings, roi_size, options, Tracker.__init__)
        self._rotation, self._scale, self._stop = rotation, scale, stop
        self._start = None if fiducials is None else _checked(fiducials)
        self._fitter: Fitter | None = None
        self._all: Fiducials | None = None
        self._scatter, self._heights, self._z = Scatter(), Heights(0), 0.0
        self._count, self._since_search = 0, _SEARCH_AGAIN
        self._time: float | None = None
        self._row, self._pixels = 0, np.empty(0)
        self._kind: tuple[tuple[int, ...], Any] | None = None
        self.positions: Floats = np.empty((0, 2)) if self._start is None else self._start
        self.health = np.zeros(len(self.positions), np.uint8)

    @property
    def settings(self) -> Settings | None:
        """The settings of the fits; None before the first frame."""
        return None if self._fitter is None else self._fitter.settings

    @property
    def measures_z(self) -> bool:
        """Whether displacements have a z."""
        return isinstance(self._given.model, Calibration)

    def update(self, frame: Any, time: float | None = None) -> Displacement:
        """Return the displacement of the fiducials in a frame.

        Parameters
        ----------
        frame : array, shape (Y, X)
            The frame, of NumPy or CuPy; all must have the same shape and type.
        time : float, optional
            Its time in seconds, which reveals repeated and late frames.

        Returns
        -------
        Displacement
            In pixels since the first frame, z in nm, with standard errors.

        Raises
        ------
        FrameError
            If the frame has no displacement, and `stop` was set.
        ValueError
            If no fiducial is found in the first frame.
        """
        frame = as_array(frame)
        problem = self._problem_of(frame, time)
        if problem:
            return self._nothing(problem, time)
        self._time = self._time if time is None else time
        if self._all is None:
            return self._begin(frame, time)
        if self._is_as_before(frame):
            return self._nothing("the frame is the previous one again", time)
        before = self._all.shift.tolist()
        found = self._displacement(self._fits(frame, self._all.expected()), time)
        self._since_search += 1
        jumps, few = False, found.used < _FEW * len(self.positions)
        if self.measures_z:
            few |= not found.z_used
            step = np.abs(np.subtract((found.y, found.x, found.z), (*before, self._z)))
            jumps = bool((step > _JUMPS).any())
        if jumps or (few and self._since_search > _SEARCH_AGAIN):
            found = self._after_jump(frame, time) or found
        self._z = found.z if found.z_used else self._z
        self._count += 1
        if not found.used:
            return self._nothing(_none_left(found), time, found)
        return found

    def close(self) -> None:
        """Free all memory."""
        if self._fitter is not None:
            self._fitter.close()

    def __enter__(self) -> Tracker:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _problem_of(self, frame: Any, time: float | None) -> str:
        """Return why a frame cannot be used, as far as known without its pixels; else empty."""
        kind = tuple(frame.shape), frame.dtype
        if self._kind is None:
            if len(frame.shape) != 2:
                raise ValueError(f"a frame must have the shape (rows, columns); got {kind[0]}")
            self._kind = kind
        if kind != self._kind:
            return (
                f"the frame has the shape {kind[0]} and dtype {kind[1]}, those before "
                f"{self._kind[0]} and {self._kind[1]}; make another Tracker for these"
            )
        if time is not None and self._time is not None and time <= self._time:
            which = "has the time of the one before" if time == self._time else "comes too late"
            return f"the frame {which}: {time:g} s after one of {self._time:g} s"
        return ""

    def _is_as_before(self, frame: Any) -> bool:
        """Whether a row of pixels is identical to that of the previous frame, including noise."""
        before, self._pixels = self._pixels, to_host(frame[self._row]).copy()
        return np.array_equal(before, self._pixels)

    def _nothing(
        self, problem: str, time: float | None, found: Displacement | None = None
    ) -> Displacement:
        """Return an unknown displacement with the reason, or raise it."""
        if self._stop:
            raise FrameError(problem)
        health = self.health if found is None else found.health
        return Displacement(
            self._count, time, health=health, positions=self.positions.copy(), problem=problem
        )

    def _begin(self, frame: Any, time: float | None) -> Displacement:
        """Set a frame as the reference."""
        settings = self._given
        if self._start is None:
            fits = find_fiducials(frame, settings)
            assert fits.settings is not None
            settings, self._start = fits.settings, fits.points()
        self._fitter = Fitter(settings=settings)
        fits = self._fits(frame, self._start)
        places = fits.points()
        found = (fits.flags & NOT_FOUND) == 0
        if not found.any():
            raise ValueError(
                f"none of the {len(found)} fiducials is found in the first frame; check their "
                "positions"
            )
        places[~found] = self._start[~found]
        photons = np.where(found, fits.photons, math.nan).astype(float)
        self.positions = places
        self._all = Fiducials(places, photons, found, frame.shape)
        ends = settings.model.range if isinstance(settings.model, Calibration) else None
        self._heights = Heights(len(places), ends)
        self._row = int(np.clip(np.rint(self._start[0, 0]), 0, frame.shape[0] - 1))
        self._is_as_before(frame)
        first = self._displacement(fits, time)
        self._count += 1
        return first

    def _fits(self, frame: Any, places: Floats) -> SpotFits:
        assert self._fitter is not None
        return self._fitter.fit_at(frame, places)

    def _displacement(
        self, fits: SpotFits, time: float | None, *, again: bool = False
    ) -> Displacement:
        """Return the common displacement of the fits, and update the fiducials."""
        fiducials = self._all
        assert fiducials is not None
        if self._count % _LOOK_AGAIN == 0:
            fiducials.crowded[:] = self._crowded(fiducials.places)
        fiducials.judge(fits.columns, self._scatter.factor)
        turning = self._rotation or self._scale
        if turning and np.count_nonzero(fiducials.candidates) > 2:
            self._similarity(fiducials, fiducials.candidates)
        used = fiducials.move()
        common = Similarity(fiducials.mean, fiducials.mean_errors)
        if turning and used > 1:
            common = self._similarity(fiducials, fiducials.taken)
        shift, spread = common.shift.tolist(), common.errors.tolist()
        self._learn(fiducials, used, shift)
        self.health, self.positions = fiducials.health.copy(), fiducials.positions.copy()
        rise = Rise()
        if self.measures_z:
            factor = self._scatter.factor
            rise = self._heights.measure(fits.columns, self.health, factor, again=again)
        return Displacement(
            self._count, time, shift[0], shift[1], rise.z, spread[0], spread[1], rise.error,
            *common[2:], used, rise.used, self.health, self.positions,
        )  # fmt: skip

    def _learn(self, fiducials: Fiducials, used: int, shift: list[float]) -> None:
        """Update the reference positions of the fiducials, and the factor of their errors."""
        if used:
            fiducials.shift[:] = shift
        free = 1.0 - (2 + self._rotation + self._scale) / (2 * used) if used else 0.0
        beyond = fiducials.learn(used, math.sqrt(max(free, 0.0)))
        if self._count and free > 0:
            self._scatter.learn(beyond, 2 * used)

    def _similarity(self, fiducials: Fiducials, taken: NDArray[np.bool_]) -> Similarity:
        """Fit shift, rotation and scale, and store them for the next frame."""
        places = fiducials.places
        common = similarity(
            fiducials.shifts[taken], fiducials.errors[taken], places[taken], places.mean(axis=0),
            rotation=self._rotation, scale=self._scale,
        )  # fmt: skip
        angle = math.radians(common.rotation) if self._rotation else 0.0
        grown = common.scale - 1.0 if self._scale else 0.0
        fiducials.bent[:] = [[grown, angle], [-angle, grown]]
        return common

    def _crowded(self, places: Floats) -> NDArray[np.bool_]:
        """Return which fiducials are too close to another one; distances do not change."""
        sigma = (self.settings.sigma if self.settings is not None else None) or 1.3
        return closer_than(_TOO_NEAR * sigma, places)

    def _after_jump(self, frame: Any, time: float | None) -> Displacement | None:
        """Search the whole frame for the fiducials; None if they are not found."""
        self._since_search = 0  # search only now and then, as it takes long
        fiducials, settings = self._all, self.settings
        assert fiducials is not None
        assert settings is not None
        shift = shift_after_jump(frame, fiducials.places, settings)
        if shift is None:
            return None
        before = fiducials.shift.copy()
        fiducials.shift[:] = shift
        found = self._displacement(self._fits(frame, fiducials.expected()), time, again=True)
        if not found.used:
            fiducials.shift[:] = before
            return None
        self._since_search = _SEARCH_AGAIN
        return found


def _checked(fiducials: SpotFits | ArrayLike) -> Floats:
    """Check positions of fiducials, and return them."""
    if isinstance(fiducials, SpotFits):
        places = fiducials.points()[:, len(fiducials.index_names) :]
    else:
        places = as_numbers("fiducials", fiducials).copy()
    if places.ndim != 2 or places.shape[1] != 2 or not len(places):
        raise ValueError(
            "fiducials must be fits of one frame or have the shape (n, 2), y and x of one at "
            f"least; got {places.shape}"
        )
    if not np.isfinite(places).all():
        raise ValueError("all places of fiducials must be finite numbers")
    return places


def _none_left(found: Displacement) -> str:
    reasons = list(found.left_out.values())
    common = max(set(reasons), key=reasons.count) if reasons else "was never found"
    return f"no fiducial is left ({reasons.count(common)} of {len(found.health)}: {common})"


def track(
    frames: Iterable[Any],
    fiducials: SpotFits | ArrayLike | None = None,
    *,
    times: Iterable[float] | None = None,
    callback: Callable[[Displacement], object] | None = None,
    **options: Any,
) -> Iterator[Displacement]:
    """Follow fiducials through frames, and yield their displacement in each.

    Parameters
    ----------
    frames : iterable of array, shape (Y, X)
        A movie, or any iterator of frames.
    fiducials : SpotFits, array of shape (n, 2), or None
        As for :class:`~napari_spotfit.Tracker`; by default found in the first frame.
    times : iterable of float, optional
        Time of each frame in seconds.
    callback : callable, optional
        Called with each displacement before it is yielded.
    **options
        Further arguments of :class:`~napari_spotfit.Tracker`.

    Yields
    ------
    Displacement
        In pixels since the first frame.

    Examples
    --------
    >>> import numpy as np
    >>> from napari_spotfit import simulate_movie, track
    >>> movie, truth = simulate_movie(1, shape=(64, 64), spots_per_frame=4, photons=5000, seed=3)
    >>> frames = [np.roll(movie[0], shift, axis=0) for shift in (0, 1)]
    >>> [round(one.y, 1) for one in track(frames, sigma=1.3)]
    [0.0, 1.0]
    """
    seconds = iter(times) if times is not None else repeat(None)
    with Tracker(fiducials, **options) as tracker:
        for frame in frames:
            found = tracker.update(frame, next(seconds))
            if callback is not None:
                callback(found)
            yield found


async def track_async(
    frames: AsyncIterable[Any], fiducials: SpotFits | ArrayLike | None = None, **options: Any
) -> AsyncIterator[Displacement]:
    """Follow fiducials through frames of an asynchronous iterator, like :func:`track`.

    Parameters
    ----------
    frames : asynchronous iterable of array, shape (Y, X)
        The frames.
    fiducials : SpotFits, array of shape (n, 2), or None
        As for :class:`~napari_spotfit.Tracker`; by default found in the first frame.
    **options
        Further arguments of :class:`~napari_spotfit.Tracker`.

    Yields
    ------
    Displacement
        In pixels since the first frame.

    Examples
    --------
    >>> import asyncio
    >>> import numpy as np
    >>> from napari_spotfit import simulate_movie, track_async
    >>> movie, truth = simulate_movie(1, shape=(64, 64), spots_per_frame=4, photons=5000, seed=3)
    >>> async def frames():
    ...     for shift in (0, 1):
    ...         yield np.roll(movie[0], shift, axis=0)
    >>> async def follow():
    ...     return [round(moved.y, 1) async for moved in track_async(frames(), sigma=1.3)]
    >>> asyncio.run(follow())
    [0.0, 1.0]
    """
    with Tracker(fiducials, **options) as tracker:
        async for frame in frames:
            yield tracker.update(frame)
