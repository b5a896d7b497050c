"""What is left of a frame without the light of its spots and its local background."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from ..results.model_image import add_light
from ..settings.settings import Settings

Array = NDArray[np.float64]

#: Side of the tiles whose medians are the local background: in σ, and pixels at least.
_SIDE, _LEAST = 12, 16


def residual_of(
    pixels: NDArray[Any], spots: Sequence[tuple[Mapping[str, NDArray[Any]], Settings]]
) -> Generator[tuple[int, int], None, NDArray[np.float32]]:
    """Return a frame without the light of spots and the background around them, in steps.

    The background is the median of tiles of 12 σ, without the spots' light, and between their
    middles the interpolation of these; of volumes that of each plane.

    Parameters
    ----------
    pixels : ndarray
        The frame, a plane or a volume, as it was fitted; what is not finite is no data.
    spots : sequence of (columns, settings)
        The columns of fits of this frame, and what they were made with.

    Yields
    ------
    (int, int)
        How many spots are done, and how many there are.

    Returns
    -------
    ndarray of float32
        Counts; 0 where there is no data.

    Examples
    --------
    >>> from napari_spotfit import localize, simulate_movie
    >>> movie, truth = simulate_movie(1, shape=(64, 64), spots_per_frame=5, seed=1)
    >>> fits = localize(movie)
    >>> steps = residual_of(movie[0], [(fits.columns, fits.settings)])
    >>> while True:
    ...     try:
    ...         done, total = next(steps)
    ...     except StopIteration as end:
    ...         residual = end.value
    ...         break
    >>> bool(abs(np.median(residual)) < 1)
    True
    """
    light = np.zeros(pixels.shape, np.float32)
    total = sum(len(columns["amplitude"]) for columns, _ in spots)
    before = 0
    for columns, settings in spots:
        for done, _ in add_light(light, columns, (), settings):
            yield before + done, total
        before += len(columns["amplitude"])
    rest = np.asarray(pixels, float) - light
    wide = max((settings.known_sigma for _, settings in spots), default=0.0)
    side = max(_LEAST, round(_SIDE * wide))
    planes = rest.reshape(-1, *rest.shape[-2:])
    for plane in planes:
        known = np.isfinite(plane)
        plane -= local_background(plane, known, side)
        plane[~known] = 0
        yield total, total
    return planes.reshape(rest.shape).astype(np.float32)


def local_background(plane: Array, known: NDArray[np.bool_], side: int) -> Array:
    """Return the medians of tiles of a plane, interpolated between the tiles' middles.

    Parameters
    ----------
    plane : ndarray, shape (y, x)
        The counts.
    known : ndarray of bool
        Where there is data.
    side : int
        About how large tiles are.

    Examples
    --------
    >>> import numpy as np
    >>> slope = np.linspace(10, 50, 64)
    >>> found = local_background(np.tile(slope, (64, 1)), np.ones((64, 64), bool), 16)
    >>> bool(np.allclose(found[:, 8:-8], slope[8:-8]))
    True
    """
    if not known.any():
        return np.zeros(plane.shape)
    filled = np.where(known, plane, np.median(plane[known]))
    sides = [min(side, length) for length in plane.shape]
    firsts = [
        np.linspace(0, length - own, -(-length // own)).round().astype(int)
        for length, own in zip(plane.shape, sides, strict=True)
    ]
    tiles = sliding_window_view(filled, sides)[np.ix_(*firsts)]
    levels = np.median(tiles.reshape(*tiles.shape[:2], -1), axis=-1)
    down, across = (
        _shares(length, first + (own - 1) / 2)
        for length, first, own in zip(plane.shape, firsts, sides, strict=True)
    )
    found: Array = down @ levels @ across.T
    return found


def _shares(length: int, middles: Array) -> Array:
    """Return how much each tile counts at each pixel along an axis."""
    pixels = np.arange(length)
    return np.column_stack([np.interp(pixels, middles, one) for one in np.eye(len(middles))])
