"""Fiducials in a frame: found at first, and found again after a jump."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..engine.quality.flags import Flag
from ..localization.localize import localize
from ..results.spot_fits import SpotFits
from ..settings.settings import Settings

Floats = NDArray[np.float64]

#: Of those found, so many of the brightest; none has less light than this share of the brightest
#: tenth's.
_MOST, _LEAST_LIGHT = 50, 0.25
#: A jump is told where so many of the fiducials, and this share of them, agree within so many
#: pixels.
_AGREE, _SHARE, _NEAR = 2, 0.3, 2.0
#: Spots that are compared after a jump: so many of the brightest, for each fiducial.
_SPOTS = 4

_DOUBTFUL = Flag.EDGE | Flag.SATURATED | Flag.NEIGHBOUR


def find_fiducials(frame: Any, settings: Settings) -> SpotFits:
    """Return bright spots of a frame that stand alone, as fiducials do.

    Parameters
    ----------
    frame : array, shape (Y, X)
        The frame.
    settings : Settings
        How to find and fit.

    Returns
    -------
    SpotFits
        Good fits, with their settings; the brightest first.

    Raises
    ------
    ValueError
        If there is none.
    """
    fits = localize(frame, settings=settings)
    light = np.where(fits.good & ((fits.flags & int(_DOUBTFUL)) == 0), fits.photons, 0.0)
    if not light.any():
        raise ValueError(
            f"no fiducials are found: of {len(fits)} spots in this frame none is good, alone, away "
            "from the border and not saturated; say where they are"
        )
    bright = np.quantile(light[light > 0], 0.9)
    order = np.argsort(-light, kind="stable")
    chosen = order[light[order] >= _LEAST_LIGHT * bright][:_MOST]
    return fits[chosen]


def shift_after_jump(frame: Any, references: Floats, settings: Settings) -> Floats | None:
    """Return by how much all fiducials have moved, to a pixel or two; None if that is not told.

    Of all differences between a spot and a fiducial, those of the right pairs agree.

    Parameters
    ----------
    frame : array, shape (Y, X)
        The frame after the jump.
    references : ndarray of float64, shape (n, 2)
        Where the fiducials were, y and x.
    settings : Settings
        How to find spots.
    """
    fits = localize(frame, settings=settings)
    fits = fits[fits.good]
    if not len(fits):
        return None
    brightest = np.argsort(-fits.photons, kind="stable")[: _SPOTS * len(references)]
    places = np.column_stack([fits.y, fits.x])[brightest]
    if len(references) == 1:
        return np.asarray(places[0] - references[0])
    differences = (places[np.newaxis] - references[:, np.newaxis]).reshape(-1, 2)
    own = np.repeat(np.arange(len(references)), len(places))
    near = _most_alike(differences)
    # No fiducial counts twice.
    if len(np.unique(own[near])) < max(_AGREE, _SHARE * len(references)):
        return None
    return np.asarray(np.median(differences[near], axis=0))


def _most_alike(differences: Floats) -> NDArray[np.bool_]:
    """Return which of many differences lie where most of them do."""
    cells = np.floor(differences / _NEAR).astype(np.int64)
    cells -= cells.min(axis=0)
    counts = np.zeros(cells.max(axis=0) + 2, np.int64)
    np.add.at(counts, tuple(cells.T), 1)
    # Those on both sides of a cell's border count together.
    both = counts[:-1, :-1] + counts[1:, :-1] + counts[:-1, 1:] + counts[1:, 1:]
    best = np.array(np.unravel_index(np.argmax(both), both.shape))
    within = ((cells >= best) & (cells <= best + 1)).all(axis=1)
    middle = np.median(differences[within], axis=0)
    return np.asarray((np.abs(differences - middle) <= _NEAR).all(axis=1))
