"""Measure the resolution of an image of localisations by Fourier ring correlation."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..engine import threads
from ..models.columns import CHANNEL, IN_PLANE, STOP
from ..results.fit_parts import gathered
from ..results.spot_fits import SpotFits
from .drift import refuse_several_movies
from .linking import frames_of, measured_once, of_one_channel
from .summary import in_field

Floats = NDArray[np.float64]

#: Columns that the resolution depends on.
_NEEDED = ("file", CHANNEL, "frame", *IN_PLANE, STOP)
#: Pixels of a tile along an axis, and most tiles, which are chosen evenly.
_SIDE, _MOST_TILES = 512, 100
#: Most tiles along an axis, with and without localisations.
_MOST_ALONG = 1000
#: Blocks of frames, each in one half of the data, and splits of them into halves.
_BLOCKS, _SPLITS = 50, 4
#: Correlation at the resolution; pixels of a rendered image in it; most trials for these.
_THRESHOLD, _PIXELS, _TRIALS = 1 / 7, 5.0, 6
#: Least number of pixels along the image, below which its outline is all that is there.
_FEWEST = 128
#: Fraction of a tile's side that fades out, first ring, and rings that are averaged.
_FADING, _FIRST, _AVERAGED = 0.25, 3, 7
#: Least number of localisations.
_LEAST = 100


@dataclass(frozen=True, eq=False)
class RingCorrelation:
    """The resolution of localisations, and the correlation that it follows from.

    Threads: any number may share it, as it is immutable.

    Attributes
    ----------
    resolution : float
        Length in pixels below which two halves of the localisations do not agree: the inverse of
        the frequency at which their correlation falls to 1/7.
    resolution_stderr : float
        Standard deviation for different halves; NaN where there is one way to halve the frames.
    frequency : ndarray of float64
        Spatial frequencies in periods per pixel.
    correlation : ndarray of float64
        The correlation of the two halves at each, averaged over the splits.

    Examples
    --------
    >>> import numpy as np
    >>> RingCorrelation(0.3, 0.01, np.array([0.0, 3.3]), np.array([1.0, 1 / 7]))
    RingCorrelation(resolution=0.3, resolution_stderr=0.01)
    """

    resolution: float
    resolution_stderr: float
    frequency: Floats = field(repr=False)
    correlation: Floats = field(repr=False)


class _Tiles(NamedTuple):
    """The localisations of tiles of an image."""

    pixel: NDArray[np.int32]  # in the tile, by tile
    block: NDArray[np.int32]
    ends: NDArray[np.int64]  # of each tile


def fourier_ring_correlation(fits: SpotFits | Iterable[SpotFits]) -> RingCorrelation:
    """Measure the resolution by the correlation of two halves of the localisations.

    Blocks of frames are split into halves at random, several times, and both halves are rendered
    as histograms. Merge blinks and subtract drift before: they count as detail, and as blur.

    Parameters
    ----------
    fits : SpotFits, or iterable of SpotFits
        Fits of one movie and channel. Only good fits are used, or spots that another program has
        found. Of parts, such as of :func:`load_parts`, only frames and positions are in memory.

    Raises
    ------
    ValueError
        If the fits are not of one movie, are too few, all in one place, or their halves do not
        agree on anything.

    Warns
    -----
    UserWarning
        If some fits are far outside of the field of all others, and left out, or are there twice,
        or in frames that were stored twice, and count once.

    Examples
    --------
    >>> import numpy as np
    >>> from napari_spotfit import SpotFits, fourier_ring_correlation
    >>> random = np.random.default_rng(1)
    >>> molecule = random.integers(0, 2000, 40_000)
    >>> y, x = (random.uniform(0, 50, 2000)[molecule] + random.normal(0, 0.1, 40_000) for _ in "yx")
    >>> columns = {"frame": random.integers(0, 1000, 40_000), "y": y, "x": x}
    >>> columns["stop_condition"] = np.full(40_000, 3, np.uint8)
    >>> found = fourier_ring_correlation(SpotFits(columns, ["frame"]))
    >>> bool(abs(found.resolution / (2 * np.pi * 0.1 / np.sqrt(np.log(60))) - 1) < 0.05)
    True
    """
    fits = of_one_channel(gathered(fits, _NEEDED))
    if "frame" not in fits:
        raise ValueError(
            "these fits have no column frame: the halves that are compared are frames of a movie"
        )
    refuse_several_movies(fits)
    known = fits.accepted & measured_once(fits)
    known &= np.isfinite(fits.columns["y"]) & np.isfinite(fits.columns["x"])
    rows = in_field(fits.columns, np.flatnonzero(known))
    if len(rows) < _LEAST:
        raise ValueError(
            f"{len(rows)} of {len(fits)} fits are good and have positions, but at least {_LEAST} "
            "are needed"
        )
    frame = frames_of(fits)[rows]
    span = int(frame.max() - frame.min()) + 1
    if span < 2:
        raise ValueError(f"all fits are of frame {frame[0]}, but its halves are several frames")
    blocks = min(_BLOCKS, span)
    block = ((frame - frame.min()) * blocks // span).astype(np.int32)
    places = [fits.columns[axis][rows] for axis in IN_PLANE]
    size = max(float(np.ptp(axis)) for axis in places)
    if not size > 0:
        raise ValueError("all fits are in one place, so there is no image to resolve")
    rng = np.random.default_rng(0)
    drawn = [rng.permutation(blocks) % 2 for _ in range(_SPLITS)]
    # Of few frames some splits are the same, but for the names of the halves.
    halves: list[NDArray[Any]] = list(np.unique([half ^ half[0] for half in drawn], axis=0))
    pixel = size / (4 * _SIDE)
    for _ in range(_TRIALS):  # with one split
        frequency, curves = _curves(places, block, halves[:1], pixel)
        resolution = _resolution(frequency, curves[0])
        if pixel * _PIXELS / 1.25 < resolution < pixel * _PIXELS / 0.8:
            break
        # Where the halves agree up to the finest detail, or on none, pixels are far from right.
        finest = max(pixel / 8, size / (_MOST_ALONG * _SIDE))
        pixel = float(np.clip(resolution / _PIXELS, finest, min(pixel * 4, size / _FEWEST)))
    else:
        raise ValueError(
            "the two halves of the localisations do not agree on anything: they are too few for "
            "an image"
        )
    frequency, curves = _curves(places, block, halves, pixel)
    found = np.array([_resolution(frequency, curve) for curve in curves])
    resolution = float(found.mean())
    error = float(found.std(ddof=1)) if len(found) > 1 else math.nan
    return RingCorrelation(resolution, error, frequency, np.mean(curves, axis=0))


def _curves(
    places: list[Floats], block: NDArray[np.int32], halves: list[NDArray[Any]], pixel: float
) -> tuple[Floats, list[Floats]]:
    """Return frequencies, and the correlation at each for every split."""
    from scipy import fft  # here, as SciPy takes its time to import

    tiles = _tiles(places, block, pixel)
    radius = np.hypot(
        np.fft.fftfreq(_SIDE)[:, np.newaxis] * _SIDE, np.fft.rfftfreq(_SIDE)[np.newaxis] * _SIDE
    )
    ring = np.rint(radius).astype(np.int64).ravel()
    # All but the first and the last column stand for two.
    twice = np.broadcast_to(np.r_[1, np.full(_SIDE // 2 - 1, 2), 1], radius.shape).ravel()
    # Sides fade out as a cosine.
    place = np.minimum(np.arange(_SIDE), np.arange(_SIDE)[::-1]) / (_FADING / 2 * (_SIDE - 1))
    fading = (0.5 - 0.5 * np.cos(math.pi * np.minimum(place, 1))).astype(np.float32)
    window = fading[:, np.newaxis] * fading
    sums = np.zeros((len(tiles.ends) - 1, len(halves), 3, _SIDE // 2))

    def work(first: int, last: int) -> None:
        for tile in range(first, last):
            own = slice(tiles.ends[tile], tiles.ends[tile + 1])
            for split, half in enumerate(halves):
                index = tiles.pixel[own] + half[tiles.block[own]] * _SIDE**2
                counts = np.bincount(index, minlength=2 * _SIDE**2).reshape(2, _SIDE, _SIDE)
                one, other = fft.rfft2(counts.astype(np.float32) * window).reshape(2, -1)
                for number, product in enumerate(
                    ((one * other.conj()).real, np.abs(one) ** 2, np.abs(other) ** 2)
                ):
                    total = np.bincount(ring, product * twice)
                    sums[tile, split, number] = total[: _SIDE // 2]

    threads.in_pieces(work, len(sums), 1, None)
    both, one, other = sums.sum(axis=0).transpose(1, 0, 2)
    with np.errstate(all="ignore"):
        correlation = both / np.sqrt(one * other)
    frequency = np.arange(_SIDE // 2) / (_SIDE * pixel)
    # A pixel blurs what is common to the halves, but not the noise of counts.
    blur = np.sinc(frequency * pixel / math.sqrt(2)) ** 4
    correlation = correlation / (correlation + (1 - correlation) * blur)
    return frequency, [np.nan_to_num(curve) for curve in correlation]


def _tiles(places: list[Floats], block: NDArray[np.int32], pixel: float) -> _Tiles:
    """Return the pixels of localisations in tiles; of very many, some evenly over the image."""
    down, across = (((axis - axis.min()) / pixel).astype(np.int32) for axis in places)
    wide = int(across.max()) // _SIDE + 1
    tile = (down // _SIDE) * wide + across // _SIDE
    used = np.flatnonzero(np.bincount(tile))
    number = np.full(used[-1] + 1, -1, np.int16)
    if len(used) > _MOST_TILES:
        used = used[np.unique(np.linspace(0, len(used) - 1, _MOST_TILES).astype(np.int64))]
    number[used] = np.arange(len(used))
    tile = number[tile]
    order = np.argsort(tile, kind="stable")
    order = order[np.count_nonzero(tile < 0) :]
    ends = np.concatenate([[0], np.cumsum(np.bincount(tile[order], minlength=len(used)))])
    down, across = down[order] % _SIDE, across[order] % _SIDE
    return _Tiles(down * np.int32(_SIDE) + across, block[order], ends)


def _resolution(frequency: Floats, correlation: Floats) -> float:
    """Return the inverse of the frequency at which the correlation falls to the threshold.

    Infinite if it is never above, and 0 if it is above up to the highest frequency.
    """
    window = np.ones(_AVERAGED) / _AVERAGED
    curve = np.convolve(correlation[_FIRST:], window, mode="valid")
    middle = frequency[_FIRST + _AVERAGED // 2 :][: len(curve)]
    below = np.flatnonzero(curve < _THRESHOLD)
    if not len(below):
        return 0.0
    last = int(below[0])
    if last == 0:
        return math.inf
    part = (curve[last - 1] - _THRESHOLD) / (curve[last - 1] - curve[last])
    return 1 / float(middle[last - 1] + part * (middle[last] - middle[last - 1]))
