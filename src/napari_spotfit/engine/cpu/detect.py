"""Detection on the CPU: bright local maxima of the band-passed frames."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...settings.settings import Settings
from .. import threads
from ..detection.band import LEAST_CONTRAST, Band, Layout, make_band
from ..detection.candidates import Candidates, Limits, joined, limits_from, masks_of, nothing
from ..detection.nonmax_suppression import Places, has_plateau, merge_plateaus, one_per_spot
from .bandpass import Filter, Flat, band_pass, band_pass_good, load, make_filter
from .compiled import entry, inner
from .lane_memory import load_difference
from .lanes import WIDTH, count, spread
from .noise import estimate_noise
from .sources import fingerprint

#: Pixels that a thread works on at a time, so that they stay in its core's cache.
_BLOCK_PIXELS = 1 << 17
#: How many of these blocks a thread gets at once.
_BLOCKS = 32
#: With fewer pixels than this, starting threads takes longer than they save.
_THREADS_PIXELS = 1 << 18
_LEAST_CONTRAST = np.float32(LEAST_CONTRAST)
_ZERO, _HIGHEST = np.float32(0), np.finfo(np.float32).max


def detect(
    frames: NDArray[Any], settings: Settings, mask: NDArray[np.bool_] | None = None
) -> Candidates:
    """Detect spots in frames.

    A spot is a local maximum of the band-passed frame that is higher than the threshold.
    NaN and infinite pixels are left out of the band-pass. On the border, where mirrored
    pixels count twice, the noise is higher accordingly.

    Parameters
    ----------
    frames : ndarray, shape (n, Y, X)
        C-contiguous, in native byte order; uint8, uint16, int16, float32 or float64.
    settings : Settings
        ``sigma``, ``threshold``, ``threshold_unit``, ``min_distance`` and ``threads``.
    mask : ndarray of bool, shape (Y, X) or (n, Y, X), optional
        Where to look for spots. The noise is that of the whole frame all the same.

    Returns
    -------
    Candidates
        They depend on neither the number of threads nor the other frames.
    """
    n, height, width = frames.shape
    masks = masks_of(mask, frames.shape)
    parts = {0: nothing()}
    if frames.size > 0:
        flat = frames.reshape(n, height * width).view()
        flat.flags.writeable = False  # Numba would compile for either kind
        band_filter = make_filter(settings.sigma, (height, width))
        band = make_band(settings.sigma, (height, width))

        def work(first: int, last: int) -> None:
            parts[first] = _detect(flat, first, last, band_filter, band, settings, masks)

        cores = settings.threads or threads.available()
        piece = min(-(-n // cores), _BLOCKS * _block(band_filter.layout))
        threads.in_pieces(work, n, piece, cores if frames.size > _THREADS_PIXELS else 1)
    return joined([parts[first] for first in sorted(parts)])


def _block(layout: Layout) -> int:
    """Return how many frames are worked on at a time."""
    return max(1, _BLOCK_PIXELS // (layout.height * layout.stride))


def _detect(
    frames: NDArray[Any],
    first: int,
    last: int,
    band_filter: Filter,
    band: Band,
    settings: Settings,
    masks: NDArray[np.bool_] | None,
) -> Candidates:
    """Detect in the frames first … last - 1, block by block in the same memory."""
    layout = band_filter.layout
    block = min(last - first, _block(layout))
    # A vector may reach past the end of the last row.
    images = np.zeros((block, layout.height * layout.stride + WIDTH), np.float32)
    filtered = np.zeros_like(images)
    bad, noise = np.zeros(block, np.int64), np.zeros(block, np.float64)
    # Of neighbours, one at most is a maximum.
    places = np.empty((block * -(-layout.height // 2) * -(-layout.width // 2), 3), np.int64)
    heights, scores = np.empty((2, len(places)), np.float32)
    limits = limits_from(settings)
    parts = []
    for start in range(first, last, block):
        n = min(block, last - start)
        load(frames[start : start + n], layout, images[:n], bad)
        _band_pass(images[:n], bad[:n], band_filter, filtered[:n])
        estimate_noise(images[:n], filtered[:n], layout, band.row_step, band.gain, noise)
        found = find_maxima(
            images[:n], filtered[:n], layout, start, noise, band.border, band.border_min, limits,
            places, heights, scores,
        )  # fmt: skip
        maxima = places[:found], heights[:found], scores[:found]
        parts.append(_thinned(images[:n], layout, start, limits, masks, *maxima))
    return joined(parts)


def _band_pass(images: Flat, bad: NDArray[np.int64], band: Filter, filtered: Flat) -> None:
    if not bad.any():
        band_pass(images, band, filtered)
        return
    for i, bad_pixels in enumerate(bad):
        if bad_pixels:
            band_pass_good(images[i], band, filtered[i])
        else:
            band_pass(images[i : i + 1], band, filtered[i : i + 1])


def _thinned(
    images: Flat,
    layout: Layout,
    first: int,
    limits: Limits,
    masks: NDArray[np.bool_] | None,
    places: Places,
    heights: Flat,
    scores: Flat,
) -> Candidates:
    """Return one maximum per spot, of those in the mask, in new arrays."""
    keep: Any = slice(None)
    merged = has_plateau(images, layout, first, places)
    if merged:
        left = merge_plateaus(images, layout, first, places, heights, scores)
        keep = np.lexsort(places[:left].T[::-1])
    places, heights, scores = places[keep], heights[keep], scores[keep]
    return one_per_spot(places, heights, scores, masks, limits.distance, merged)


@inner(error_model="numpy")
def _find_maxima(
    images: Flat,
    filtered: Flat,
    layout: Layout,
    first: int,
    noise: NDArray[np.float64],
    border: Flat,
    border_min: float,
    limits: Limits,
    places: Places,
    heights: Flat,
    scores: Flat,
) -> int:
    """Find the maxima that are high enough; return how many they are.

    The first image is frame ``first``.
    """
    found = 0
    for i in range(filtered.shape[0]):
        image, flat = images[i], filtered[i]
        limit = np.float32(max(limits.height, limits.score * noise[i] * border_min))
        for y in range(layout.height):
            inside = 0 < y < layout.height - 1
            for block in range(0, layout.width, WIDTH):
                place = y * layout.stride + block
                if not _may_have_peak(flat, place, layout.stride, inside, limit):
                    continue
                for x in range(block, min(block + WIDTH, layout.width)):
                    place = y * layout.stride + x
                    value = flat[place]
                    if not (value > limit and _is_peak(flat, layout, y, x)):
                        continue
                    score = value / (noise[i] * border[y, x])
                    if score > limits.score and value > _LEAST_CONTRAST * abs(image[place]):
                        places[found, 0], places[found, 1], places[found, 2] = first + i, y, x
                        heights[found] = value
                        scores[found] = min(score, _HIGHEST)
                        found += 1
    return found


@inner(forceinline=True)
def _may_have_peak(flat: Flat, place: int, stride: int, inside: bool, limit: np.float32) -> bool:
    """Whether one of sixteen pixels is above the limit and the peak of its column."""
    values = load_difference(flat, place, _ZERO)
    high = values > spread(limit)
    if count(high) == 0:
        return False
    if not inside:
        return True
    up = load_difference(flat, place - stride, _ZERO)
    down = load_difference(flat, place + stride, _ZERO)
    return bool(count(high & (values > up) & (values >= down)) > 0)


@inner(error_model="numpy")
def _is_peak(flat: Flat, layout: Layout, y: int, x: int) -> bool:
    """Whether no neighbour is higher; of equal neighbours, the first is the peak."""
    place = y * layout.stride + x
    for v in range(max(y - 1, 0), min(y + 2, layout.height)):
        for u in range(max(x - 1, 0), min(x + 2, layout.width)):
            other = v * layout.stride + u
            if flat[other] > flat[place] or (flat[other] == flat[place] and other < place):
                return False
    return True


def _cached(sources: int) -> Any:
    """Return the function that Numba keeps on disk.

    The sources' fingerprint becomes part of the cache's key by being used.
    """

    @entry(cache=True)
    def find_maxima(*arguments: Any) -> int:
        if sources:
            return int(_find_maxima(*arguments))
        return 0

    return find_maxima


find_maxima = _cached(int(fingerprint("detect"), 16))
