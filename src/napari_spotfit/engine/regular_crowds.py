"""Which crowds are regular patterns, such as stripes and lattices, and none of spots."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

#: The side of a bin of places in σ, and of windows in which waves are looked for, in bins: every
#: half of a side there is one.
_BIN, _SIDE = 0.5, 48
#: How many waves are in a window: spots that are farther apart than the longest hardly overlap.
_WAVES = (3.0, 13.0)
#: A window is regular if this share of its places is in phase with a wave, and as many as random
#: ones are with one wave in 8000. Of fewer places than the last, nothing follows.
_IN_PHASE, _LEAST, _FEWEST = 0.62, 9.0, 12.0
#: The share of the windows of a crowd that are regular if it is. Of 5200 crowds of 20 to 230 random
#: places that were as far apart as detected spots are, one was.
_MOST = 0.5
#: Crowds of fewer places have no window of that many. Windows at once: a bound of memory.
_FEW, _AT_ONCE = 20, 256


def regular_crowds(places: NDArray[np.float64], crowd: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return which crowds are regular: in most parts of each, most places are in phase with a wave.

    Parameters
    ----------
    places : ndarray, shape (n, 2)
        Where detected spots are, in units of σ.
    crowd : ndarray of int, shape (n,)
        The number of the crowd of each.

    Examples
    --------
    >>> lattice = 4.0 * np.indices((16, 16)).reshape(2, -1).T
    >>> random = np.random.default_rng(1).uniform(0, 64, (256, 2))
    >>> regular_crowds(np.concatenate([lattice, random]), np.repeat([0, 1], 256))
    array([ True, False])
    """
    size = np.bincount(crowd)
    found = np.zeros(len(size), np.bool_)
    which = np.flatnonzero(size[crowd] >= _FEW)
    if not len(which):
        return found
    own = crowd[which]
    first = np.full((len(size), 2), np.inf)
    np.minimum.at(first, own, places[which])
    windows, in_window, bins = _windows(((places[which] - first[own]) / _BIN).astype(np.int64), own)
    rise = np.hanning(_SIDE + 1)[:_SIDE]
    taper = rise[bins[:, 0]] * rise[bins[:, 1]]
    squares = np.bincount(in_window, taper**2)
    effective = np.bincount(in_window, taper) ** 2 / np.maximum(squares, 1e-9)
    asked = np.flatnonzero(effective >= _FEWEST)
    number = np.full(len(windows), -1)
    number[asked] = np.arange(len(asked))
    is_wave = np.empty(len(asked), np.bool_)
    for begin in range(0, len(asked), _AT_ONCE):
        some = asked[begin : begin + _AT_ONCE]
        at = number[in_window] - begin
        here = np.flatnonzero((at >= 0) & (at < len(some)))
        pixels = np.zeros((len(some), _SIDE, _SIDE))
        np.add.at(pixels, (at[here], *bins[here].T), taper[here])
        highest = _highest_wave(pixels) / squares[some]
        least = np.maximum(_IN_PHASE * effective[some], _LEAST)
        is_wave[begin : begin + _AT_ONCE] = highest > least
    of_crowd = windows[asked, 0]
    waves = np.bincount(of_crowd, is_wave, len(size))
    found[:] = waves > _MOST * np.bincount(of_crowd, minlength=len(size))
    return found


def _windows(
    bins: NDArray[np.int64], crowd: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Return windows by crowd, row and column; the window of places, and their bins there.

    Each place is in four windows.
    """
    half = _SIDE // 2
    cell, within = np.divmod(bins, half)
    keys, inside = [], []
    for down in (0, 1):
        for across in (0, 1):
            keys.append(np.column_stack([crowd, cell[:, 0] - down, cell[:, 1] - across]))
            inside.append(within + half * np.array([down, across]))
    windows, in_window = np.unique(np.concatenate(keys), axis=0, return_inverse=True)
    return windows, in_window.ravel(), np.concatenate(inside)


def _highest_wave(pixels: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the power of the strongest wave in each window."""
    from scipy.fft import rfft2  # takes longer to import than many fits

    waves = np.hypot(np.fft.fftfreq(_SIDE, 1 / _SIDE)[:, np.newaxis], np.arange(_SIDE // 2 + 1))
    is_asked = (waves >= _WAVES[0]) & (waves <= _WAVES[1])
    highest: NDArray[np.float64] = (abs(rfft2(pixels)[:, is_asked]) ** 2).max(axis=1)
    return highest
