"""Which pixels of a spot's region its fit has excluded, and why."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...engine.block import Block, Positions
from ...engine.excluded import excluded_pixels
from ...engine.fit_job import FitJob
from ...settings.settings import Settings

Mask = NDArray[np.bool_]


class LeftOut(NamedTuple):
    """Pixels that a fit has not counted, each under one reason."""

    bad: Mask
    saturated: Mask
    lone: Mask
    padding: Mask
    neighbours: Mask
    #: How many more there are whose place is unknown.
    unknown: int

    @property
    def pixels(self) -> Mask:
        """All that are known."""
        return self.bad | self.saturated | self.lone | self.padding | self.neighbours

    @property
    def words(self) -> str:
        """How many there are and why, in words; nothing where all pixels have counted."""
        reasons = {
            "nearer to a neighbour": int(self.neighbours.sum()) or self.unknown,
            "saturated": int(self.saturated.sum()),
            "lone, hot or dead": int(self.lone.sum()),
            "no data but padding": int(self.padding.sum()),
            "bad": int(self.bad.sum()),
        }
        parts = [f"{count} px {reason}" for reason, count in reasons.items() if count]
        if not parts:
            return ""
        hidden = " (which these are is not known here)" if self.unknown else ""
        return f"Not fitted: {', '.join(parts).replace('neighbour', f'neighbour{hidden}')}"


class Frame(NamedTuple):
    """A spot's frame, shape (Y, X), and the settings that find lone pixels in it."""

    #: As the camera took it, and as fits did: bad pixels are NaN.
    taken: NDArray[Any]
    fitted: NDArray[Any]
    #: Without σ or noise, no lone pixels are found.
    detection: Settings


def left_out(
    corner: tuple[int, int],
    frame: Frame,
    bad: Mask,
    places: NDArray[np.float64],
    counted: int,
) -> LeftOut:
    """Return the pixels of a region that a fit has left out.

    Parameters
    ----------
    corner : (int, int)
        Its first row and column.
    frame : Frame
        Where it lies.
    bad : ndarray of bool, shape (rows, columns)
        Which pixels of the region are bad.
    places : ndarray, shape (n, 2)
        y and x where this fit and those of the frame's other spots began, as far as is known; the
        first is this one's.
    counted : int
        How many pixels have counted in the fit. Where the places do not explain it, others have
        taken pixels.
    """
    detection = frame.detection
    known = None if detection.sigma is None or detection.noise is None else detection
    fitted = frame.fitted[np.newaxis]
    block = Block(fitted, fitted if frame.fitted is frame.taken else frame.taken[np.newaxis])
    job = FitJob(detection, (bad.shape[0], bad.shape[1]), "f8", detection.sigma, known)
    found = excluded_pixels(job, block, Positions(places), corner, bad)
    saturated, padding, lone, none = found.saturated, found.padding, found.hot, np.zeros_like(bad)
    missing = int((~bad & ~saturated & ~padding & ~lone).sum()) - counted
    # The fit is of a time when they counted.
    if missing < 0 and lone.any():
        missing, lone = missing + int(lone.sum()), none
    if missing < 0 and padding.any():
        missing, padding = missing + int(padding.sum()), none
    is_known = missing > 0 and int(found.neighbour.sum()) == missing
    neighbours = found.neighbour if is_known else none
    return LeftOut(bad, saturated, lone, padding, neighbours, 0 if is_known else max(missing, 0))
