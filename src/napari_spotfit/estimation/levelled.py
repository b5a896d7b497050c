"""Tell images whose darkest value is that of every place, as top hats and rolling balls leave them.

What is taken away there is the lowest of the pixels around, so that each window as large as the
filter has a pixel of the lowest value of all, however bright the place was and however noisy. Where
a camera has many such pixels, in the dark, chance puts them: some windows have none. Nor has it any
where there is several times the noise, as there is so much more light.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

#: Side of areas in pixels, and how many there are at least; and the share of areas with the lowest
#: value, at least, in areas of twice that side.
_SIDE, _FEWEST, _AREAS = 16, 16, 0.9
#: Sides of the parts of a frame that are looked at first, and then; and of areas in which such
#: pixels are counted.
_GLANCE, _PART, _LARGE = 64, 256, 64
#: Most pixels have another value. Values are the same that differ by less than this part of all.
_MOST, _ROUNDED = 0.65, 2e-7
#: Windows are so large that, by chance, this share of pixels is in the middle of one without the
#: lowest value, in this many places at least; and this part of them is what chance may leave.
_EMPTY, _LEAST_EMPTY, _FAR_FEWER = 5e-4, 20.0, 0.12
#: And so small that areas which have few of these pixels by chance make up to e to this power times
#: as many.
_OF_CHANCE = 1.0
#: How far away pixels are compared: those beside others of the lowest value are nearly as bright as
#: those farther away. In the dark they are darker.
_BESIDE, _FARTHER, _AS_BRIGHT = 1, 3, 0.5
#: Areas without edges and spots, whose pixels differ no more times as much as neighbours do where
#: they are so far apart; the share of these with the least noise, and with the most; how many times
#: as strong that is, and the least there is, in steps between values.
_MOST_APART, _SHARE, _TIMES, _STEPS = 1.2, 0.25, 2.5, 1.5
#: Of pixels in calm areas, this share at least and at most has the lowest value, and the next part
#: of it in noisy ones, in this share of them: the noise of photons, with that of read-out, leaves
#: 0.05 times as many. Usual pixels there are no more deviations above the lowest value than the
#: next, and those beside pixels of this are at least the last part as bright: they lie in no dark.
_LOWEST, _OF_CALM, _IN_AREAS, _NEAR, _AS_USUAL = (0.01, 0.4), 0.08, 0.4, 5.0, 0.5
#: The deviation of noise over the usual difference of two pixels.
_DEVIATION = 1.4826 / 2**0.5


def is_levelled(frame: NDArray[Any], step: float = 0.0) -> bool:
    """Whether the lowest value is everywhere, and more evenly than by chance, or amid any noise.

    Parameters
    ----------
    frame : ndarray, shape (Y, X)
        Pixels; NaN where they are bad.
    step : float, default 0
        The step between values; 0 if there is none.

    Examples
    --------
    >>> from scipy import ndimage
    >>> counts = np.random.default_rng(1).poisson(20.0, (128, 128))
    >>> is_levelled(counts), is_levelled(ndimage.white_tophat(counts, 9))
    (False, True)
    """
    # Most images show in a small part that they have few such areas.
    for part, share in ((_middle(frame, _GLANCE), _AREAS / 2), (_middle(frame, _PART), _AREAS)):
        least = _cut(part, _SIDE).min(axis=(1, 3))
        least = least[np.isfinite(least)]
        if len(least) < _FEWEST:
            return False
        lowest = least.min()
        # What was added and taken away again is rounded.
        highest = lowest + _ROUNDED * (np.fmax.reduce(part, axis=None) - lowest)
        if np.mean(least <= highest) < share / 2:
            return False
    at = part <= highest
    is_there = _cut(at, 2 * _SIDE).any(axis=(1, 3))
    if is_there.mean() < _AREAS or np.mean(at) > _MOST:
        return False
    above = np.where(at, 0, part - lowest)
    if _are_even(at | ~np.isfinite(part)):
        return _is_in_noise(above, at)
    return _are_amid_noise(above, step)


def _middle(frame: NDArray[Any], side: int) -> NDArray[Any]:
    y, x = (max(size - side, 0) // 2 for size in frame.shape)
    return frame[y : y + side, x : x + side]


def _cut(frame: NDArray[Any], side: int) -> NDArray[Any]:
    rows, columns = (size // side for size in frame.shape)
    return frame[: rows * side, : columns * side].reshape(rows, side, columns, side)


def _are_even(at: NDArray[np.bool_]) -> bool:
    """Whether far fewer windows than by chance have no such pixel."""
    side = min(_LARGE, *at.shape)
    share = _cut(at, side).mean(axis=(1, 3))
    # Of larger windows, by chance, those areas have most that have few of such pixels by chance.
    usual, sides = float(share.mean()), np.arange(1, _LARGE // 2, 2)
    most = (side * side * _OF_CHANCE / usual) ** 0.25
    by_chance = np.array([np.mean((1 - share) ** (own * own)) for own in sides])
    # Windows overlap: how many there are that do not.
    places = by_chance * at.size * np.minimum(usual * sides, 1.0) ** 2
    chosen = np.flatnonzero((by_chance > _EMPTY) & (places > _LEAST_EMPTY) & (sides < most))
    if not len(chosen):
        return False
    side, expected = sides[chosen[-1]], by_chance[chosen[-1]]
    counts = np.pad(at, ((1, 0), (1, 0))).cumsum(axis=0, dtype=np.int32).cumsum(axis=1)
    across = counts[side:] - counts[:-side]
    empty = float(np.mean(across[:, side:] == across[:, :-side]))
    return bool(empty < _FAR_FEWER * expected)


def _are_amid_noise(above: NDArray[Any], step: float) -> bool:
    """Whether such pixels are in areas of several times the noise as well, and not in the dark."""
    areas = _cut(above, _SIDE).swapaxes(1, 2)
    areas = areas.reshape(-1, *areas.shape[2:]).astype(np.float32)
    areas = areas[np.isfinite(areas).all(axis=(1, 2))]
    noise = _differences(areas, _BESIDE)
    is_white = _differences(areas, _FARTHER) < _MOST_APART * noise
    areas, noise = areas[is_white], noise[is_white]
    count = int(_SHARE * len(areas))
    if count < _FEWEST:
        return False
    ordered = np.argsort(noise, kind="stable")
    calm, noisy = areas[ordered[:count]], areas[ordered[-count:]]
    least, most = (float(np.median(noise[own])) for own in (ordered[:count], ordered[-count:]))
    if not (least > _STEPS * step and most > _TIMES * least > 0):
        return False
    at = noisy == 0
    share, usual = float(np.mean(calm == 0)), float(np.median(noisy))
    if not (
        _LOWEST[0] < share < _LOWEST[1]
        and at.mean() > _OF_CALM * share
        and at.any(axis=(1, 2)).mean() > _IN_AREAS
        and usual < _NEAR * most
    ):
        return False
    beside = float(np.median(noisy[:, :, _FARTHER:][at[:, :, :-_FARTHER]]))
    return beside > _AS_USUAL * usual


def _differences(areas: NDArray[Any], apart: int) -> NDArray[Any]:
    """Return the deviation of noise in each area, by how much pixels so far apart differ."""
    differences: NDArray[Any] = np.median(
        abs(areas[:, :, apart:] - areas[:, :, :-apart]), axis=(1, 2)
    )
    return differences * _DEVIATION


def _is_in_noise(above: NDArray[Any], at: NDArray[np.bool_]) -> bool:
    """Whether pixels beside such ones are as bright as those farther away."""
    beside, farther = (
        float(np.nanmedian(above[:, apart:][at[:, :-apart]])) for apart in (_BESIDE, _FARTHER)
    )
    return bool(beside >= _AS_BRIGHT * farther > 0)
