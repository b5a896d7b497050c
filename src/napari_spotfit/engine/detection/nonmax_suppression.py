"""Which maxima of a frame are one spot: those on one plateau, and those too close.

``places`` holds frame, y and x of each maximum, in this order. The functions drop rows
of ``places``, ``heights`` and ``scores`` in place and return how many maxima are left.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from .band import Layout
from .candidates import Candidates

Places = NDArray[np.int64]
Flat = NDArray[np.float32]


def one_per_spot(
    places: Places,
    heights: Flat,
    scores: Flat,
    masks: NDArray[np.bool_] | None,
    distance: float,
    merged: bool,
) -> Candidates:
    """Return the maxima that are in the mask, less those too close, in new arrays.

    ``merged`` says whether plateaus were merged.
    """
    if masks is not None:
        frame, y, x = places.T
        inside = masks[np.minimum(frame, len(masks) - 1), y, x]
        places, heights, scores = places[inside], heights[inside], scores[inside]
    left = len(places)
    # Maxima are never closer than 2 pixels, but the middles of plateaus may be.
    if distance > 2 or merged:
        places = np.ascontiguousarray(places)
        left = drop_neighbours(places, heights, scores, distance)
    frame, y, x = places[:left].T.copy()
    return Candidates(frame, y, x, scores[:left].copy(), heights[:left].copy())


@njit(nogil=True, cache=True, error_model="numpy")
def has_plateau(images: Flat, layout: Layout, first: int, places: Places) -> bool:
    """Whether a maximum is on a flat area of its image; the first image is frame ``first``."""
    for i in range(len(places)):
        if _is_flat(images[places[i, 0] - first], layout, _place(places, i, layout)):
            return True
    return False


@njit(nogil=True, cache=True, error_model="numpy")
def merge_plateaus(
    images: Flat, layout: Layout, first: int, places: Places, heights: Flat, scores: Flat
) -> int:
    """Make the maxima on a flat area of an image one, in the middle of the area.

    The band-pass of a saturated spot is highest along the edge of what is saturated. The
    maxima are no longer in order afterwards.
    """
    found = len(places)
    plateau = np.zeros(images.shape, np.int32)  # the number of the plateau, from 1
    pixels = np.empty(images.shape[1], np.int64)
    middle = np.empty((found, 2), np.int64)
    plateaus = 0
    for i in range(found):
        frame, place = places[i, 0] - first, _place(places, i, layout)
        if plateau[frame, place] == 0 and _is_flat(images[frame], layout, place):
            plateaus += 1
            size = _flood(images[frame], plateau[frame], plateaus, layout, place, pixels)
            middle[plateaus - 1, 0], middle[plateaus - 1, 1] = _middle(pixels[:size], layout.stride)
    spot = np.full(plateaus, -1, np.int64)
    left = 0
    for i in range(found):
        number = plateau[places[i, 0] - first, _place(places, i, layout)] - 1
        if number >= 0 and spot[number] >= 0:
            same = spot[number]
            heights[same] = max(heights[same], heights[i])
            scores[same] = max(scores[same], scores[i])
            continue
        _move(places, heights, scores, i, left)
        if number >= 0:
            spot[number] = left
            places[left, 1], places[left, 2] = middle[number, 0], middle[number, 1]
        left += 1
    return left


@njit(forceinline=True)
def _place(places: Places, i: int, layout: Layout) -> int:
    return int(places[i, 1] * layout.stride + places[i, 2])


@njit(nogil=True, error_model="numpy")
def _is_flat(image: Flat, layout: Layout, place: int) -> bool:
    """Whether a pixel equals the four next to it, as in a saturated spot."""
    y, x = place // layout.stride, place % layout.stride
    for v, u in ((y - 1, x), (y, x - 1), (y, x + 1), (y + 1, x)):
        inside = 0 <= v < layout.height and 0 <= u < layout.width
        if inside and image[v * layout.stride + u] != image[place]:
            return False
    return True


@njit(nogil=True, error_model="numpy")
def _flood(
    image: Flat, plateau: NDArray[np.int32], number: int, layout: Layout, place: int, pixels: Places
) -> int:
    """Give a number to the pixels that are equal and connected to one; list them."""
    plateau[place] = number
    pixels[0] = place
    size, done = 1, 0
    while done < size:
        here = pixels[done]
        done += 1
        y, x = here // layout.stride, here % layout.stride
        for to, inside in (
            (here - layout.stride, y > 0),
            (here - 1, x > 0),
            (here + 1, x < layout.width - 1),
            (here + layout.stride, y < layout.height - 1),
        ):
            if inside and plateau[to] == 0 and image[to] == image[here]:
                plateau[to] = number
                pixels[size] = to
                size += 1
    return size


@njit(nogil=True, error_model="numpy")
def _middle(pixels: Places, stride: int) -> tuple[int, int]:
    """Return row and column of the pixel that is nearest to the mean place of all."""
    y_sum, x_sum = 0, 0
    for place in pixels:
        y_sum += place // stride
        x_sum += place % stride
    y_mean, x_mean = y_sum / pixels.size, x_sum / pixels.size
    nearest, least = pixels[0], np.inf
    for place in pixels:
        distance = (place // stride - y_mean) ** 2 + (place % stride - x_mean) ** 2
        if distance < least:
            nearest, least = place, distance
    return nearest // stride, nearest % stride


@njit(nogil=True, cache=True, error_model="numpy")
def drop_neighbours(places: Places, heights: Flat, scores: Flat, distance: float) -> int:
    """Drop maxima that are too close to a higher one that stays; of equal ones, the later."""
    found = len(places)
    fate = np.zeros(found, np.uint8)  # 0: not known yet, 1: stays, 2: is dropped
    unknown = found
    while unknown > 0:
        low = 0
        for i in range(found):
            while not _may_be_close(places, low, i, distance):
                low += 1
            if fate[i] == 0 and _is_highest(places, heights, fate, low, i, distance):
                fate[i] = 1
                unknown -= 1
                for j in range(low, found):
                    if not _may_be_close(places, min(i, j), max(i, j), distance):
                        break
                    if fate[j] == 0 and _are_close(places, i, j, distance):
                        fate[j] = 2
                        unknown -= 1
    left = 0
    for i in range(found):
        if fate[i] == 1:
            _move(places, heights, scores, i, left)
            left += 1
    return left


@njit(nogil=True, error_model="numpy")
def _is_highest(
    places: Places, heights: Flat, fate: NDArray[np.uint8], low: int, i: int, distance: float
) -> bool:
    """Whether a maximum is the highest of those close to it that are not dropped."""
    for j in range(low, len(places)):
        if not _may_be_close(places, min(i, j), max(i, j), distance):
            break
        if (
            fate[j] == 0
            and (heights[j] > heights[i] or (heights[j] == heights[i] and j < i))
            and _are_close(places, i, j, distance)
        ):
            return False
    return True


@njit(forceinline=True)
def _may_be_close(places: Places, i: int, j: int, distance: float) -> bool:
    """Whether a maximum is in the frame of an earlier one and close enough along y."""
    return bool(places[i, 0] == places[j, 0] and places[j, 1] - places[i, 1] < distance)


@njit(forceinline=True)
def _are_close(places: Places, i: int, j: int, distance: float) -> bool:
    y, x = places[i, 1] - places[j, 1], places[i, 2] - places[j, 2]
    return bool(y * y + x * x < distance * distance)


@njit(forceinline=True)
def _move(places: Places, heights: Flat, scores: Flat, i: int, to: int) -> None:
    for column in range(3):
        places[to, column] = places[i, column]
    heights[to], scores[to] = heights[i], scores[i]
