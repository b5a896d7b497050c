"""What the place of a fit in an image says against it: where it began, ended, and what is near."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..engine.near import has_near
from ..models.stopping import StopCondition
from ..results import flags
from ..results.flags import Flag
from ..results.widths import mean_sigma
from ..settings.settings import Settings


class Origin(NamedTuple):
    """Where in an image fits began, and what is known of that."""

    #: Numbers of the frames, all of whose fits are there, from 0 on.
    frame: NDArray[np.int64]
    #: y and x from which each fit began, in pixels.
    places: NDArray[np.float64]
    #: Rows and columns of a frame.
    shape: tuple[int, int]
    #: The PSF's σ; None where nobody has said it.
    sigma: float | None


def place_flags(
    columns: Mapping[str, Any], settings: Settings, origin: Origin
) -> NDArray[np.uint32]:
    """Return the flags of fits that need an image: MOVED, WIDE, NARROW, NEIGHBOUR, DUPLICATE, EDGE.

    Parameters
    ----------
    columns : mapping of str to ndarray
        The fits' columns, with ``roi_y`` and ``roi_x``.
    settings : Settings
        What the fits were made with.
    origin : Origin
        Where the fits began.
    """
    y, x = columns["y"], columns["x"]
    valid = columns["stop_condition"] != int(StopCondition.INVALID)
    found = np.zeros(len(y), np.uint32)

    def put(flag: Flag, mask: NDArray[np.bool_]) -> None:
        np.bitwise_or(found, mask * np.uint32(flag), out=found)

    with np.errstate(invalid="ignore", over="ignore"):
        width = mean_sigma(columns, settings.gain or 1.0)
        scale = width if origin.sigma is None else origin.sigma
        start_y, start_x = (np.ascontiguousarray(along) for along in origin.places.T)
        moved = np.hypot(y - start_y, x - start_x)
        put(Flag.MOVED, moved > flags.FARTHEST * scale)
        held = {*settings.profile.widths} & {*settings.fixed}
        if origin.sigma is not None and not held and settings.profile.expression is None:
            put(Flag.WIDE, width > flags.WIDEST * origin.sigma)
            put(Flag.NARROW, width < flags.NARROWEST * origin.sigma)
        half_side = settings.roi_shape[0] / 2, settings.roi_shape[1] / 2
        neighbour = has_near(origin.frame, start_y, start_x, origin.shape, half_side)
        put(Flag.NEIGHBOUR, neighbour)
        same = max(flags.SAME_SPOT_PX, flags.SAME_SPOT * (origin.sigma or 0.0))
        # Two fits that ended together began as neighbours, or the one that moved more came from
        # afar.
        asked = neighbour | (moved > (min(half_side) - same) / 2)
        put(
            Flag.DUPLICATE,
            has_near(origin.frame, y, x, origin.shape, (same, same), moved, asked),
        )
        for axis, (name, start) in enumerate((("y", start_y), ("x", start_x))):
            middle = columns[f"roi_{name}"] + settings.roi_shape[axis] // 2
            put(Flag.EDGE, abs(start - middle) > 0.5)
            place, size = columns[name], origin.shape[axis]
            put(Flag.EDGE, np.minimum(place + 0.5, size - 0.5 - place) < scale)
    found *= valid
    return found
