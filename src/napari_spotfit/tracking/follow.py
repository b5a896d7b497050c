"""Displacements of many frames, one after the other, as they come."""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Iterator
from typing import Any

from numpy.typing import ArrayLike

from ..results.spot_fits import SpotFits
from .displacement import Displacement
from .tracker import Tracker


def track(
    frames: Iterable[Any],
    fiducials: SpotFits | ArrayLike | None = None,
    *,
    times: Iterable[float] | None = None,
    callback: Callable[[Displacement], object] | None = None,
    **options: Any,
) -> Iterator[Displacement]:
    """Follow fiducials through frames, and yield by how much they have moved in each.

    Parameters
    ----------
    frames : iterable of array, shape (Y, X)
        A movie, or whatever yields frames as they come.
    fiducials : SpotFits, array of shape (n, 2), or None
        As :class:`~napari_spotfit.Tracker` takes them; by default those of the first frame.
    times : iterable of float, optional
        When each frame was taken, in seconds.
    callback : callable, optional
        Called with each displacement before it is yielded.
    **options
        What :class:`~napari_spotfit.Tracker` takes besides.

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
    told = iter(times) if times is not None else None
    with Tracker(fiducials, **options) as tracker:
        for frame in frames:
            found = tracker.update(frame, next(told) if told is not None else None)
            if callback is not None:
                callback(found)
            yield found


async def track_async(
    frames: AsyncIterable[Any], fiducials: SpotFits | ArrayLike | None = None, **options: Any
) -> AsyncIterator[Displacement]:
    """Do what :func:`track` does for frames that come asynchronously.

    Parameters
    ----------
    frames : asynchronous iterable of array, shape (Y, X)
        What yields frames as they come.
    fiducials : SpotFits, array of shape (n, 2), or None
        As :class:`~napari_spotfit.Tracker` takes them; by default those of the first frame.
    **options
        What :class:`~napari_spotfit.Tracker` takes besides.

    Yields
    ------
    Displacement
        In pixels since the first frame.
    """
    with Tracker(fiducials, **options) as tracker:
        async for frame in frames:
            yield tracker.update(frame)
