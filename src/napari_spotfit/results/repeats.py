"""Find rows that are the same to the bit: duplicates, and those of frames that were stored twice.

Two measurements never agree in every bit of position, light and width, as noise differs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from ..caller import warn_caller
from ..images.arrays import to_host
from ..models.columns import CHANNEL, IN_PLANE, PLANE, STDERR
from .spot_fits import SpotFits, on_host

Keys = NDArray[np.uint64]
Integers = NDArray[np.int64]
Mask = NDArray[np.bool_]

#: Columns that make a measurement, with the first of the next that there is.
_PLACE, _WITH = (*IN_PLANE, "z"), ("photons", "y" + STDERR, "sigma")
#: Odd factors that mix bits, those of the splitmix64 generator.
_FIRST, _SECOND = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_HALF = np.uint64(32)
#: Frames that a warning names, at most.
_NAMED = 8


def without_duplicates(fits: SpotFits) -> SpotFits:
    """Return fits on the host, each row once; warn of duplicates."""
    fits = on_host(fits)
    duplicate = duplicates(fits)
    return fits[~duplicate] if duplicate.any() else fits


def duplicates(fits: SpotFits) -> Mask:
    """Return which rows are the same as one before them, in the same frame; warn of them.

    Examples
    --------
    >>> columns = {"frame": np.array([0, 0, 1]), "y": np.full(3, 0.5), "x": np.full(3, 2.5)}
    >>> duplicates(SpotFits(columns, ["frame"])[1:]).tolist()  # the same, but of other frames
    [False, False]
    """
    return _marked(fits, _alike(fits))


def duplicates_and_repeats(fits: SpotFits, movie: Integers, frame: Integers) -> tuple[Mask, Mask]:
    """Return which rows are duplicates, and which are the same as one in the frame before.

    Both measure nothing new. Warn of duplicates. Those of a repeat are repeats, too.

    Parameters
    ----------
    fits : SpotFits
        Fits of movies.
    movie, frame : ndarray of int64
        The movie of each fit, and its frame.

    Examples
    --------
    >>> columns = {"frame": np.arange(3), "y": np.array([0.5, 0.5, 0.7]), "x": np.full(3, 2.5)}
    >>> fits, movie, frame = SpotFits(columns), np.zeros(3, np.int64), np.arange(3)
    >>> [mask.tolist() for mask in duplicates_and_repeats(fits, movie, frame)]
    [[False, False, False], [False, True, False]]
    """
    found = np.zeros(len(fits), bool)
    rows, keys = alike = _alike(fits)
    duplicate = _marked(fits, alike)
    if not len(rows):
        return duplicate, found
    order = np.lexsort((frame[rows], keys, movie[rows]))
    rows, keys = rows[order], keys[order]
    steps = np.diff(frame[rows])
    same = (np.diff(keys) == 0) & (np.diff(movie[rows]) == 0)
    is_repeat = np.append(False, same & (steps == 1))
    place = np.cumsum(np.append(True, ~(same & (steps == 0)))) - 1
    found[rows] = is_repeat[np.append(True, np.diff(place) > 0)][place]
    return duplicate, found


@dataclass
class FrameRepeats:
    """Frames whose spots are those of the frame before, to the bit, of fits that come in parts.

    Examples
    --------
    >>> columns = {"frame": np.arange(3), "y": np.array([0.5, 0.5, 0.7]), "x": np.full(3, 2.5)}
    >>> seen = FrameRepeats()
    >>> seen.add(SpotFits(columns, ["frame"]))
    >>> seen.frames().tolist()
    [1]
    """

    #: Of each part, the indices of its frames, and the sum of the keys of their rows.
    _indices: list[Integers] = field(default_factory=list)
    _sums: list[Keys] = field(default_factory=list)

    def add(self, fits: SpotFits) -> None:
        """Look at some fits; those of a frame follow each other."""
        names = fits.index_names
        if "frame" not in names or not len(fits):
            return
        # Frames last, after all that there is a movie of.
        names = (*(name for name in names if name != "frame"), "frame")
        index = [to_host(fits.columns[name]) for name in names]
        new = np.logical_or.reduce([one[1:] != one[:-1] for one in index])
        starts = np.append(0, np.flatnonzero(new) + 1)
        keys, measured = _content(fits)
        keys[~measured] = 0
        self._indices.append(np.stack([one[starts] for one in index], axis=1).astype(np.int64))
        self._sums.append(np.add.reduceat(keys, starts))

    def frames(self) -> Integers:
        """Return the frames that are repeats, rising."""
        if not self._indices:
            return np.zeros(0, np.int64)
        # Large frames come in parts of some rows.
        index, place = np.unique(np.concatenate(self._indices), axis=0, return_inverse=True)
        sums = np.zeros(len(index), np.uint64)
        np.add.at(sums, place.ravel(), np.concatenate(self._sums))
        steps = np.diff(index, axis=0)
        follows = (steps[:, :-1] == 0).all(axis=1) & (steps[:, -1] == 1)
        same = np.append(False, follows & (np.diff(sums) == 0) & (sums[1:] != 0))
        # A frame of several planes or channels is a repeat if all are.
        kept = np.unique(index[~same & (sums != 0), -1])
        return np.setdiff1d(index[same, -1], kept)

    def doubts(self) -> str:
        """Return a warning that names them; nothing without."""
        found = self.frames()
        if not len(found):
            return ""
        named = ", ".join(map(str, found[:_NAMED].tolist()))
        more = f" and {len(found) - _NAMED:,} more" if len(found) > _NAMED else ""
        has = "frames have" if len(found) > 1 else "frame has"
        return (
            f"{len(found):,} {has} the same spots as the frame before, to the bit: {named}{more}. "
            "Identical frames count as one measurement, as where a camera fills dropped frames "
            "with the last one: analyses count them once. Tracks run through them, and there are "
            "spots in each: leave them out, frames=…, if that matters"
        )


def _places(fits: SpotFits) -> Sequence[str]:
    """Return the columns that identify the frame of a fit."""
    names = dict.fromkeys(("file", CHANNEL, PLANE, "frame", *fits.index_names))
    return [name for name in names if name in fits]


def _content(fits: SpotFits) -> tuple[Keys, Mask]:
    """Return a number for each row that stands for its measurement, and which rows have one.

    Whole numbers, such as pixels, and unknown ones are none.
    """
    keys, measured = np.zeros(len(fits), np.uint64), np.zeros(len(fits), bool)
    more = next((name for name in _WITH if name in fits), None)
    for name in (*_PLACE, more):
        if name is None or name not in fits or fits.columns[name].dtype.kind not in "iuf":
            continue
        values = to_host(fits.columns[name])
        keys *= _FIRST
        keys += _bits(values)
        if name in IN_PLANE and values.dtype.kind == "f":
            measured |= np.floor(values) != values
    return _mixed(keys), measured & np.isfinite(to_host(fits.columns["y"] + fits.columns["x"]))


def _bits(values: NDArray[np.generic]) -> Keys:
    """Return the bits of numbers; texts by their order."""
    values = to_host(values)
    if values.dtype.kind not in "iufb":
        values = np.unique(values.astype(str), return_inverse=True)[1]
    wide = values.astype(np.float64 if values.dtype.kind == "f" else np.int64)
    return wide.view(np.uint64)


def _mixed(keys: Keys) -> Keys:
    """Return keys whose every bit depends on all bits of the given ones."""
    keys ^= keys >> _HALF
    keys *= _SECOND
    keys ^= keys >> _HALF
    return keys


def _alike(fits: SpotFits) -> tuple[Integers, Keys]:
    """Return the rows whose measurement is there more than once, and its number."""
    keys, measured = _content(fits)
    ordered = np.sort(keys[measured])
    twice = np.unique(ordered[1:][ordered[1:] == ordered[:-1]])
    if not len(twice):
        return np.zeros(0, np.int64), np.zeros(0, np.uint64)
    rows = np.flatnonzero(measured & np.isin(keys, twice))
    return rows, keys[rows]


def _duplicates(fits: SpotFits, rows: Integers, keys: Keys) -> Integers:
    """Return those of some rows that are the same as one before them, in the same frame."""
    keys = keys.copy()
    for name in _places(fits) if len(rows) else ():
        keys *= _FIRST
        keys += _bits(fits.columns[name][rows])
    first = np.unique(_mixed(keys), return_index=True)[1]
    return np.delete(rows, first)


def _marked(fits: SpotFits, alike: tuple[Integers, Keys]) -> Mask:
    """Return which rows are duplicates, of those that are alike; warn of them."""
    found, rows = np.zeros(len(fits), bool), _duplicates(fits, *alike)
    if not len(rows):
        return found
    found[rows] = True
    names = [*_places(fits), *IN_PLANE]
    warn_caller(
        f"{len(rows):,} of {len(fits):,} rows are there before, the same to the bit, as of a table "
        "that was joined with itself: each counts once. To drop them: "
        f"fits[~fits.to_dataframe().duplicated({names}).to_numpy()]"
    )
    return found
