"""Choose the frames in which noise and the PSF's width are measured, so that no period fools them.

Light that is strobed, or alternates, makes frames of two kinds, and only one has spots. A few
pixels of many frames sort them by brightness, and frames of each kind are looked at, the
bright and the dark. They are chosen in steps of the golden ratio, which no period goes along with.
"""

from __future__ import annotations

import math
from typing import NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from ..images.frames import FrameReader
from ..images.reading import evenly_spread

Numbers = NDArray[np.int64]

#: The number of frames that are glanced at; of images that are read from files, one in this many.
_GLANCES, _IN_FILES = 128, 50
#: The distance of two kinds over the standard deviation of frames of one kind.
_APART = 4.0
#: The least number of frames of a kind, among those that were glanced at, and its least share.
_LEAST, _LEAST_SHARE = 2, 0.015
#: This many frames, or fewer, have no period that counts.
_FEW = 16
_GOLDEN = (math.sqrt(5) - 1) / 2


class Kinds(NamedTuple):
    """Frames of an image, by brightness."""

    dark: Numbers
    bright: Numbers


#: What was found of images that are in use.
_FOUND: WeakKeyDictionary[FrameReader, Kinds | None] = WeakKeyDictionary()


def golden_steps(count: int, size: int) -> Numbers:
    """Return a count of different numbers below a size, in steps of the golden ratio.

    Examples
    --------
    >>> golden_steps(4, 200)
    array([ 61, 185, 109,  32])
    """
    if count >= size:
        return np.arange(size)
    steps = np.arange(4 * count)
    places = ((steps + 0.5) * _GOLDEN % 1 * size).astype(np.int64)
    _, first = np.unique(places, return_index=True)
    chosen = places[np.sort(first)][:count]
    if len(chosen) < count:
        others = np.setdiff1d(np.arange(size), chosen)
        chosen = np.concatenate([chosen, others[: count - len(chosen)]])
    return chosen


def frames_of_each_kind(reader: FrameReader, chosen: Numbers, count: int) -> Numbers:
    """Return rising numbers of some of the chosen frames; where there are two kinds, of each.

    Frames that are copies of others, as of a camera that repeats the last one, show nothing new.
    """
    return _without_copies(reader, _of_each_kind(reader, chosen, count))


def _without_copies(reader: FrameReader, numbers: Numbers) -> Numbers:
    """Return numbers of frames but for those that are copies of one before."""
    pixels = reader.glance(numbers) if len(numbers) > 1 else None
    if pixels is None:
        return numbers
    first: dict[bytes, int] = {}
    of_each = np.array([first.setdefault(own.tobytes(), k) for k, own in enumerate(pixels)])
    if len(first) == len(numbers):
        return numbers
    is_copy = np.zeros(len(numbers), np.bool_)
    for place in np.flatnonzero(of_each != np.arange(len(numbers))).tolist():
        try:
            pair = reader.read_to_host(numbers[[of_each[place], place]])
        except Exception:  # where the frame is needed, it is reported
            continue
        is_copy[place] = np.array_equal(*pair) and np.ptp(pair[0]) > 0
    return numbers[~is_copy]


def _of_each_kind(reader: FrameReader, chosen: Numbers, count: int) -> Numbers:
    """Return rising numbers of some of the chosen frames; where there are two kinds, of each."""
    if count >= len(chosen):
        return chosen
    kinds = _kinds(reader)
    if kinds is not None:
        own = [np.intersect1d(kind, chosen) for kind in kinds]
        if all(map(len, own)):
            each = max(count // 2, 1)
            return np.sort(np.concatenate([kind[golden_steps(each, len(kind))] for kind in own]))
    steps = evenly_spread if len(chosen) <= _FEW else golden_steps
    return np.sort(chosen[steps(count, len(chosen))])


def _kinds(reader: FrameReader) -> Kinds | None:
    """Return the kinds of frames; None where all are of one, as far as a glance shows."""
    if reader not in _FOUND:
        _FOUND[reader] = _by_brightness(reader)
    return _FOUND[reader]


def _by_brightness(reader: FrameReader) -> Kinds | None:
    count = _GLANCES if not reader.is_lazy else min(_GLANCES, reader.count // _IN_FILES)
    if count < 2 * _LEAST:
        return None
    numbers = np.sort(golden_steps(count, reader.count))
    pixels = reader.glance(numbers)
    if pixels is None:
        return None
    levels = pixels.mean(axis=1)
    order = np.argsort(levels, kind="stable")
    rising = levels[order]
    least = max(_LEAST, math.ceil(_LEAST_SHARE * len(numbers)))
    gaps = np.diff(rising)[least - 1 : len(rising) - least]
    if not len(gaps) or not np.isfinite(gaps).all():
        return None
    end = int(np.argmax(gaps)) + least
    dark, bright = rising[:end], rising[end:]
    # Frames that are there several times differ by less than their noise.
    chance = float(np.median(pixels.std(axis=1))) / math.sqrt(pixels.shape[1])
    apart = max(float(np.std(dark)), float(np.std(bright)), chance)
    if not rising[end] - rising[end - 1] > _APART * apart:
        return None
    return Kinds(np.sort(numbers[order[:end]]), np.sort(numbers[order[end:]]))
