"""By how much a sample has moved, and what became of each fiducial."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from ..engine.cpu import layouts


class Health(IntEnum):
    """What is the matter with a fiducial; of several things, the first."""

    GOOD = layouts.Health.GOOD
    OUTSIDE = layouts.Health.OUTSIDE
    LOST = layouts.Health.LOST
    SATURATED = layouts.Health.SATURATED
    CROWDED = layouts.Health.CROWDED
    DIM = layouts.Health.DIM
    BRIGHT = layouts.Health.BRIGHT
    APART = layouts.Health.APART


#: What a person is told of each.
WORDS = {
    Health.GOOD: "takes part",
    Health.OUTSIDE: "is at the frame's border or past it",
    Health.LOST: "is not found where it should be, and is searched for",
    Health.SATURATED: "is saturated",
    Health.CROWDED: "is too close to another",
    Health.DIM: "has lost light, as if it blinked",
    Health.BRIGHT: "has more light than before, as if another passed by",
    Health.APART: "has moved apart from the others",
}

_NO_FIDUCIALS = np.empty(0, np.uint8)
_NO_POSITIONS = np.empty((0, 2))


@dataclass(frozen=True, slots=True)
class Displacement:
    """By how much a sample has moved since the reference, in one frame.

    Attributes
    ----------
    frame : int
        How many frames came before.
    time : float or None
        Seconds, as :meth:`Tracker.update` was told.
    y, x, z : float
        Displacement in pixels, NaN where it is not known: z without a calibrated model, and all
        of them where no fiducial took part.
    y_stderr, x_stderr, z_stderr : float
        Standard errors of these, in pixels.
    rotation, rotation_stderr : float
        Degrees from x towards y; NaN unless it was asked for.
    scale, scale_stderr : float
        Magnification since the reference; NaN unless it was asked for.
    used : int
        How many fiducials took part.
    health : ndarray of uint8, shape (n,)
        :class:`Health` of each fiducial.
    positions : ndarray of float64, shape (n, 2)
        Where each one was found, y and x in pixels; where it should be if it was not.
    problem : str
        Why nothing should be concluded from this frame; empty if something may.
    """

    frame: int
    time: float | None = None
    y: float = math.nan
    x: float = math.nan
    z: float = math.nan
    y_stderr: float = math.nan
    x_stderr: float = math.nan
    z_stderr: float = math.nan
    rotation: float = math.nan
    rotation_stderr: float = math.nan
    scale: float = math.nan
    scale_stderr: float = math.nan
    used: int = 0
    health: NDArray[np.uint8] = field(default_factory=lambda: _NO_FIDUCIALS)
    positions: NDArray[np.float64] = field(default_factory=lambda: _NO_POSITIONS)
    problem: str = ""

    @property
    def left_out(self) -> dict[int, str]:
        """Which fiducials took no part, by their numbers, and why.

        Examples
        --------
        >>> Displacement(0, health=np.array([0, 5], np.uint8)).left_out
        {1: 'has lost light, as if it blinked'}
        """
        return {int(i): WORDS[Health(self.health[i])] for i in np.flatnonzero(self.health)}
