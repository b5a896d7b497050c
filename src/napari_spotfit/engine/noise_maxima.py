"""Which detections are maxima of noise, with which no joint fit begins.

A threshold may be so low, or a number of false spots so high, that noise has maxima all over the
image. Linked as spots are, all of them would be one crowd, whose fit takes a hundred times as long
as those of single spots, and drops them.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from .backend import Positions
from .fit_job import FitJob
from .joint_fits import false_spots_of, least_score

#: Where a threshold is given, which share of the score that joint fits ask for a spot has at least:
#: beside others, some seem dimmer than they are. That leaves one maximum of noise in 700 pixels.
_SHARE = 0.75


def noise_maxima(
    job: FitJob, positions: Positions, widths: NDArray[np.float64], depth: int
) -> NDArray[np.bool_]:
    """Return which positions stand out of the noise less than any spot of a joint fit does.

    Where positions are given, or spots are searched for by a number of false ones so small that few
    of these meet, none do.

    Parameters
    ----------
    job : FitJob
        How spots are fitted.
    positions : Positions
        Where they were detected, with their scores.
    widths : ndarray
        The spots' widths along each axis.
    depth : int
        Planes of the volume, of which planes need no number.
    """
    by_height, most = job.settings.threshold is not None, false_spots_of(job, widths)
    if positions.score is None or not (by_height or most < job.settings.false_spots):
        return np.zeros(len(positions.places), np.bool_)
    return positions.score < least_score(most, widths, depth) * (_SHARE if by_height else 1.0)
