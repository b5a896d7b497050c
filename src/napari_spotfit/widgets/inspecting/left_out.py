"""Which pixels of a spot's region its fit has left out, and why."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...engine.own_pixels import Spots
from ...engine.saturation import saturated_pixels
from ...images.frames import to_native

Mask = NDArray[np.bool_]


class LeftOut(NamedTuple):
    """Pixels that a fit has not counted, each under one reason."""

    bad: Mask
    saturated: Mask
    neighbours: Mask
    #: How many more there are, of which it is not known which they are.
    unknown: int

    @property
    def pixels(self) -> Mask:
        """All that are known."""
        return self.bad | self.saturated | self.neighbours

    @property
    def words(self) -> str:
        """How many there are and why, in words; nothing where all pixels have counted."""
        reasons = {
            "nearer to a neighbour": int(self.neighbours.sum()) or self.unknown,
            "saturated": int(self.saturated.sum()),
            "bad": int(self.bad.sum()),
        }
        parts = [f"{count} px {reason}" for reason, count in reasons.items() if count]
        if not parts:
            return ""
        hidden = " (which these are is not known here)" if self.unknown else ""
        return f"Not fitted: {', '.join(parts).replace('neighbour', f'neighbour{hidden}')}"


def left_out(
    corner: tuple[int, int],
    taken: NDArray[Any],
    bad: Mask,
    places: NDArray[np.float64],
    counted: int,
) -> LeftOut:
    """Return the pixels of a region that a fit has left out.

    Parameters
    ----------
    corner : (int, int)
        Its first row and column.
    taken : ndarray, shape (Y, X)
        The frame as the camera took it.
    bad : ndarray of bool, shape (rows, columns)
        Which pixels of the region are bad.
    places : ndarray, shape (n, 2)
        y and x where this fit and those of the frame's other spots began, as far as is known; the
        first is this one's.
    counted : int
        How many pixels have counted in the fit. Where the places do not explain it, others have
        taken pixels.
    """
    shape = (bad.shape[0], bad.shape[1])
    corners = np.array([[0, *corner]], np.int64)
    lost = saturated_pixels(to_native(taken)[np.newaxis], corners, shape, 1)
    saturated = (np.zeros(shape, bool) if lost is None else lost.pixels[0]) & ~bad
    rest = bad | saturated
    none = np.zeros(shape, bool)
    missing = int(bad.size - rest.sum()) - counted
    if missing <= 0:
        return LeftOut(bad, saturated, none, 0)
    spots = Spots(np.repeat(corners, len(places), axis=0), places, shape)
    others = (spots.own_pixels(np.array([0]))[0] == 0) & ~rest
    if int(others.sum()) != missing:
        return LeftOut(bad, saturated, none, missing)
    return LeftOut(bad, saturated, others, 0)
