"""Regions of images whose crowds are extended, rather than spots: the evidence of all adds up.

One granule is like two spots, and its pixels hardly show which of both it is. Those of many
granules do: each says a little, and they say the same.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

#: The side of regions in σ. They begin every half of it, so that each crowd is in four.
SIDE = 150.0
#: How many regions are in a row of a frame, and rows in a frame: this many bits, at most.
_BITS = 20
#: What one link between spots says at most, in nats. And by how many nats for each link spots must
#: be likelier than a ridge to stay where ridges are.
_MOST, _CLEAR = 4.0, 8.0
#: By how many nats ridges must be likelier, all crowds together, and how many more each of them
#: must add for ridges that may be wider, too: a given σ may be too small.
_LIKELIER, _EACH = 2.5, (0.0, 0.5)
#: Of how many spots crowds are, at most, that may be ridges of another width: where they are more,
#: it is rather the given σ that is too small.
_FEW = 5


class CrowdEvidence(NamedTuple):
    """What each of some crowds says."""

    #: The frame, and the place in units of σ along y and x.
    frame: NDArray[np.int64]
    places: NDArray[np.float64]
    #: How many spots it has, two or more, and whether it is compact: points explain foci and blobs.
    spots: NDArray[np.int64]
    is_focus: NDArray[np.bool_]
    #: How much likelier than spots are a ridge, and a ridge that may be wider, in nats.
    ridges: NDArray[np.float64]

    def links(self) -> NDArray[np.float64]:
        """Return the evidence of both kinds of ridges for each link, one less than spots."""
        links = self.ridges / (self.spots - 1)
        links[1, self.spots > _FEW] = -np.inf
        return links


class ExtendedRegions:
    """Regions in which ridges explain the crowds better than spots do.

    Parameters
    ----------
    crowds : CrowdEvidence
        All crowds of the frames.

    Examples
    --------
    >>> places = np.random.default_rng(1).uniform(0, 150, (12, 2))
    >>> frame, is_focus = np.repeat([0, 1], 6), np.zeros(12, bool)
    >>> ridges = np.array([[1.5], [0.5]]) * np.repeat([1.0, -1.0], 6)
    >>> crowds = CrowdEvidence(frame, places, np.full(12, 2), is_focus, ridges)
    >>> np.bincount(frame, ExtendedRegions(crowds).have(crowds))
    array([6., 0.])
    """

    def __init__(self, crowds: CrowdEvidence) -> None:
        # By the kind of ridge: the numbers of regions that have such.
        self._found: list[NDArray[np.int64]] = []
        for ridge, each in zip(crowds.links(), _EACH, strict=True):
            said = np.where(crowds.is_focus, 0.0, ridge.clip(-_MOST, _MOST) - each)
            if said[said > 0].sum() <= _LIKELIER:
                self._found.append(_regions(crowds)[:0, 0])
                continue
            regions, number = np.unique(_regions(crowds), return_inverse=True)
            number = number.reshape(-1, 4)
            total, balance = (
                np.bincount(number.ravel(), np.repeat(values, 4))
                for values in (said, np.where(crowds.is_focus, -1, 1))
            )
            # Where most crowds are compact, the others are parts of such.
            self._found.append(regions[(total > _LIKELIER) & (balance >= 0)])

    def have(self, crowds: CrowdEvidence) -> NDArray[np.bool_]:
        """Return which crowds are in such regions, and are not clearly of spots."""
        found = np.zeros(len(crowds.frame), np.bool_)
        for ridge, regions in zip(crowds.links(), self._found, strict=True):
            if len(regions):
                is_inside = np.isin(_regions(crowds), regions).any(axis=1)
                found |= is_inside & (ridge > -_CLEAR)
        return found


def _regions(crowds: CrowdEvidence) -> NDArray[np.int64]:
    """Return the numbers of the four regions in which each crowd is."""
    y, x = np.floor(crowds.places.T / (SIDE / 2)).astype(np.int64)
    first = (((crowds.frame << _BITS) + y + 1) << _BITS) + x + 1
    steps = np.array([0, 1, 1 << _BITS, (1 << _BITS) + 1])
    regions: NDArray[np.int64] = first[:, np.newaxis] - steps
    return regions
