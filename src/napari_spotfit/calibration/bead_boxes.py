"""Beads of a z-stack: found on its maximum projection, and cut out with all planes."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..engine.flags import times
from ..images.arrays import to_host
from ..images.camera import Camera
from ..localization.centers import checked_places
from ..localization.detect_spots import detect_spots
from ..models.measured_psf import PsfBead
from ..settings.settings import Settings
from .bead_stack import cut_off, why_left_out

Array = NDArray[np.float64]

#: Beads that are this many times dimmer or brighter than the median are left out; neighbours so
#: many times dimmer than most do not count.
_RATIO = 3.0
#: Of the beads' box, the σ by which they are found: light of one bead is one spot, whatever its
#: shape.
_PER_SIGMA = 8.0
#: Pixels on each side of a bead's middle among which its highest one is.
_CORE = 3
#: Pixels around a bead's box that show its background, at least.
_FEWEST_AROUND = 50


@dataclass(frozen=True)
class BeadBoxes:
    """Beads cut out of a stack with all planes, in photo-electrons without background."""

    #: Every bead that was found.
    beads: tuple[PsfBead, ...]
    #: Which of them are in the boxes.
    used: NDArray[np.int64]
    #: (n, planes, side, side); the background that was taken off each box; and the pixel in the
    #: middle of each, as (y, x).
    boxes: NDArray[np.float32]
    background: Array
    middle: NDArray[np.int64]


def cut_beads(
    stack: NDArray[Any],
    side: int,
    camera: Camera | None,
    settings: Settings,
    beads: ArrayLike | None,
) -> BeadBoxes:
    """Find the beads of a stack, and cut out those that can be used.

    Raises
    ------
    ValueError
        If there is none; the message says why.
    """
    sigma, projection = max(side / _PER_SIGMA, 1.0), stack.max(axis=0)
    if beads is None:
        # The highest of many planes has another noise than the camera's.
        found = detect_spots(
            projection, sigma=sigma, false_spots=settings.false_spots, threads=settings.threads
        )
    else:
        found = checked_places(beads, 2)
    half, corners = side // 2, np.array(stack.shape[1:]) - 1
    middles = [_middle(projection, place.astype(int), half // 2) for place in found]
    # Maxima of one bead have one middle.
    middle = np.array(list(dict.fromkeys(middles)), np.int64).reshape(-1, 2)
    offset, gain = (
        _map(getattr(camera, name, None), getattr(settings, name), stack.shape[1:])
        for name in ("offset", "gain")
    )
    heights, photons, boxes, levels = [], [], [], []
    inside = np.all((middle >= half) & (middle <= corners - half), axis=1)
    for (y, x), is_inside in zip(middle, inside, strict=True):
        window = np.s_[max(y - half, 0) : y + half + 1, max(x - half, 0) : x + half + 1]
        box = stack[(slice(None), *window)].astype(np.float32)
        box = (box - offset[window]) / gain[window]
        level = _background(stack, offset, gain, middle, (y, x), half)
        box -= level
        sums = box.sum(axis=(1, 2))
        boxes.append(box)
        levels.append(level)
        photons.append(float(sums.max()) if is_inside else math.nan)
        core = np.s_[max(y - _CORE, 0) : y + _CORE + 1, max(x - _CORE, 0) : x + _CORE + 1]
        heights.append(float(projection[core].max()) - float(np.median(projection[window])))
    reasons = _reasons(stack, middle, inside, np.array(heights), np.array(photons), side)
    known = tuple(
        PsfBead(float(y), float(x), math.nan, light, not reason, reason or "used")
        for (y, x), light, reason in zip(middle, photons, reasons, strict=True)
    )
    used = np.flatnonzero(np.array([not reason for reason in reasons], bool))
    if not len(used):
        raise ValueError(_none_left(reasons, middle, side))
    return BeadBoxes(
        known, used, np.stack([boxes[i] for i in used]),
        np.array([levels[i] for i in used]), middle[used],
    )  # fmt: skip


def _background(
    stack: NDArray[Any],
    offset: NDArray[np.float32],
    gain: NDArray[np.float32],
    middle: NDArray[np.int64],
    place: tuple[int, int],
    half: int,
) -> float:
    """Return the level around a bead's box: its own border has some of its light.

    It is the median over all planes, because a PSF's tails change with z.
    """
    y, x = place
    window = np.s_[max(y - 2 * half, 0) : y + 2 * half + 1, max(x - 2 * half, 0) : x + 2 * half + 1]
    rows, columns = np.ogrid[: stack.shape[1], : stack.shape[2]]
    free = np.ones(stack.shape[1:], bool)[window]
    for other_y, other_x in middle:
        near = (np.abs(rows - other_y) <= half) & (np.abs(columns - other_x) <= half)
        free &= ~near[window]
    if free.sum() < _FEWEST_AROUND:  # the border is better than nothing
        free = np.maximum(np.abs(rows - y), np.abs(columns - x))[window] == half
        free |= ~free.any()  # nor is there one in an image as small as the box
    around = (stack[(slice(None), *window)][:, free] - offset[window][free]) / gain[window][free]
    return float(np.median(around))


def _middle(projection: NDArray[Any], place: NDArray[np.int64], half: int) -> tuple[int, int]:
    """Return the pixel in the middle of the light around a place."""
    for _ in range(3):
        y, x = place
        window = projection[max(y - half, 0) : y + half + 1, max(x - half, 0) : x + half + 1]
        light = window.astype(float) - np.median(window)
        light[light < 0.2 * light.max()] = 0
        rows, columns = np.indices(light.shape)
        moved = np.array(
            [
                round(float((light * rows).sum() / light.sum()) + max(y - half, 0)),
                round(float((light * columns).sum() / light.sum()) + max(x - half, 0)),
            ]
        )
        if (moved == place).all():
            break
        place = moved
    return int(place[0]), int(place[1])


def _map(of_camera: Any, of_all: float | None, shape: tuple[int, ...]) -> NDArray[np.float32]:
    """Return the offset or the gain of each pixel; 1 where the gain is unknown."""
    value = of_all if of_camera is None else of_camera
    known = np.asarray(1.0 if value is None else to_host(value), np.float32)
    return np.broadcast_to(known, shape)


def _reasons(
    stack: NDArray[Any],
    middle: NDArray[np.int64],
    inside: NDArray[np.bool_],
    heights: Array,
    photons: Array,
    side: int,
) -> list[str]:
    """Return why each bead is left out; nothing for those that are used."""
    if not len(middle):
        return []
    # Neither specks nor a few bright ones say how high beads are, and how much light they have.
    light = np.minimum(photons, _RATIO * float(np.nanmedian(photons)) if inside.any() else 1.0)
    height, usual = _usual(heights, light), _usual(photons, light)
    half, reasons = side // 2, []
    cut = cut_off(
        [
            stack[:, max(y - half, 0) : y + half + 1, max(x - half, 0) : x + half + 1]
            for y, x in middle
        ]
    )
    for i, (y, x) in enumerate(middle):
        apart = np.abs(middle - (y, x)).max(axis=1)
        apart[i] = side
        near = np.flatnonzero((apart < side) & (heights >= height / _RATIO))
        if not inside[i]:
            reason = "too near to the edge of the image"
        elif cut[i]:
            reason = "saturated: its highest pixels all have the same value"
        elif len(near):
            reason = f"overlapping: another bead is {apart[near].min()} px away, within {side} px"
        elif not usual / _RATIO <= photons[i] <= usual * _RATIO:
            kind = "bright" if photons[i] > usual else "dim"
            reason = f"{kind}: {times(photons[i] / usual)} times as much light as the usual bead"
        else:
            reason = ""
        reasons.append(reason)
    return reasons


def _usual(values: Array, photons: Array) -> float:
    """Return the value that half of the light is in beads above."""
    order = np.argsort(values)
    light = np.cumsum(np.nan_to_num(np.maximum(photons, 0))[order])
    return float(values[order][np.searchsorted(light, light[-1] / 2)])


def _none_left(reasons: list[str], places: NDArray[np.int64], side: int) -> str:
    """Return an error that says what to do."""
    if not reasons:
        return (
            "no beads were found in the maximum projection of the stack: are they brighter than "
            "its background, and is it a stack of single beads? Give false_spots=… to find dimmer "
            "ones"
        )
    return (
        f"none of {len(reasons)} beads can be used: {why_left_out(reasons, places)}. Record "
        f"sparser beads, at least {side} px apart, with less light if they are saturated, or give "
        "a smaller roi_size"
    )
