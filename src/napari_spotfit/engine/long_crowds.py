"""Which crowds are lines, granules or other extended things, for ridges are about as likely."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..models.columns import IN_PLANE
from .crowds import Members
from .extended_crowds import extended_crowds, ridge_evidence
from .extended_regions import CrowdEvidence, ExtendedRegions
from .fit_job import FitJob

#: The least number, and the least share, of a line's spots that are long by themselves.
_LINE, _LONG = 3, 2 / 3
#: By how many nats a ridge must be likelier than two spots, and by how many less for each further
#: one; less likely it may be where half of a crowd's detections are long by themselves, or spots
#: are in line and even: their root mean square off it, in σ, half as much with "joint", and their
#: skewness. And the extent of foci.
_LIKELIER, _EACH_OF_ANY, _UNLIKELIER, _EACH = 2.5, 2.0, -0.5, 3.0
_CROOKED, _SKEW, _FOCUS = 0.4, 0.35, 2.6
#: The first of these in volumes, where no others around say the same: of 36 pairs 1.75 σ apart, of
#: 2000 photons each, two are beyond 2.5, and none is beyond 3.5.
_BY_ITSELF = 6.0


class LongCrowds:
    """The search for extended crowds: each by itself, and by all around it.

    In volumes, that is a PSF which is longer than it is wide, or tilted.

    Parameters
    ----------
    job : FitJob
        How they are fitted.
    widths : ndarray
        The PSF's, along each axis, in pixels.
    shape : tuple of int
        That of frames.
    """

    def __init__(self, job: FitJob, widths: NDArray[np.float64], shape: tuple[int, ...]) -> None:
        self._axes, self._widths, self._shape = job.axes, widths, shape
        self._is_auto = job.settings.neighbours == "auto"
        self._is_plane, self._has_psf = len(widths) == len(IN_PLANE), job.model.lattice is not None
        #: Where crowds are rather extended than spots: as first looked at.
        self._regions: ExtendedRegions | None = None

    def find(
        self, members: Members, spots: NDArray[np.void], is_blob: NDArray[np.bool_]
    ) -> NDArray[np.bool_]:
        """Return which crowds are elongated: a ridge is about as likely as their spots.

        Parameters
        ----------
        members : Members
            The detected spots of the crowds.
        spots : ndarray of SPOT
            What was found of them.
        is_blob : ndarray of bool
            Which of all crowds are blobs.

        Returns
        -------
        ndarray of bool
            By the number of the crowd.
        """
        crowds, one = members.crowds, spots["crowd"]
        if self._has_psf or not len(one):
            return np.zeros(crowds, np.bool_)
        if not self._is_plane:
            return self._find_in_volumes(members, spots, is_blob)
        count, begun = np.bincount(one, minlength=crowds), members.number(members.is_there)
        most_are_long = 2 * members.number(members.is_there & members.is_long) >= begun
        is_straight, is_straighter, is_even, is_compact = self._outlines(spots, crowds)
        is_focus = (count > 2) & ~is_straight & is_compact
        ridge, blunt = (np.bincount(one, spots[name], crowds) for name in ("ridge", "blunt_ridge"))
        # With "joint", spots that are no granule would be lost.
        is_granule = is_straighter & is_even & (count > 2)
        is_granule |= most_are_long & is_straight
        if self._is_auto:
            is_granule |= most_are_long | (is_straight & is_even & (count > 2))
        found: NDArray[np.bool_] = is_granule & (ridge > _UNLIKELIER - _EACH * (count - 2))
        found |= (count == 2) & (ridge > _LIKELIER)
        if self._is_auto:
            # These have the fits of single spots then, where spots are about as likely, too.
            bar = _LIKELIER - _EACH_OF_ANY * (count - 2)
            found |= ((blunt > _LIKELIER) | (ridge > bar)) & ~is_focus
            likelier = ridge_evidence(spots, crowds)
            is_chain, inside = is_straight & most_are_long, self._inside(spots)
            found |= extended_crowds(spots, likelier[1], begun, is_focus, is_chain, inside)
            found |= self._in_regions(members, spots, likelier, is_focus, is_blob)
        return found & (count > 1)

    def _find_in_volumes(
        self, members: Members, spots: NDArray[np.void], is_blob: NDArray[np.bool_]
    ) -> NDArray[np.bool_]:
        """Return what :meth:`find` does of crowds of volumes."""
        crowds, one = members.crowds, spots["crowd"]
        count, likelier = np.bincount(one, minlength=crowds), ridge_evidence(spots, crowds)
        is_focus = (count > 2) & self._are_foci(spots, crowds)
        found: NDArray[np.bool_] = self._in_regions(members, spots, likelier, is_focus, is_blob)
        if not self._is_auto:  # spots of crowds would be lost
            found &= (count == 2) & (likelier[0] > _LIKELIER)
        found |= (count == 2) & (likelier[0] > _BY_ITSELF)
        return found & (count > 1)

    def _are_foci(self, spots: NDArray[np.void], crowds: int) -> NDArray[np.bool_]:
        """Return which crowds of volumes are compact, and not straight."""
        one, light = spots["crowd"], np.bincount(spots["crowd"], spots["light"], crowds)
        light += np.bincount(one, minlength=crowds) == 0
        places = np.column_stack([spots[axis] for axis in self._axes]) / self._widths

        def mean(values: NDArray[np.float64]) -> NDArray[np.float64]:
            found: NDArray[np.float64] = np.bincount(one, spots["light"] * values, crowds) / light
            return found

        off = places - np.column_stack([mean(axis) for axis in places.T])[one]
        products = [[mean(a * b) for b in off.T] for a in off.T]
        squares = np.linalg.eigvalsh(np.moveaxis(np.array(products), 2, 0))
        is_compact: NDArray[np.bool_] = squares.sum(axis=1) < _FOCUS**2
        return is_compact & (squares[:, 1] >= _CROOKED**2)

    def _outlines(self, spots: NDArray[np.void], crowds: int) -> Any:
        """Return which crowds are straight, twice as straight, even along it, and compact."""
        one = spots["crowd"]
        light = np.bincount(one, spots["light"], crowds)
        light += np.bincount(one, minlength=crowds) == 0

        def mean(values: NDArray[np.float64]) -> NDArray[np.float64]:
            found: NDArray[np.float64] = np.bincount(one, spots["light"] * values, crowds) / light
            return found

        y, x = ((at - mean(at)[one]) / self._widths.max() for at in (spots["y"], spots["x"]))
        yy, xy, xx = mean(y * y), mean(x * y), mean(x * x)
        angle, apart = np.arctan2(2 * xy, xx - yy) / 2, np.hypot(xx - yy, 2 * xy)
        across = yy + xx - apart
        along = x * np.cos(angle)[one] + y * np.sin(angle)[one]
        squares = along * along
        is_even = abs(mean(squares * along)) < _SKEW * mean(squares) ** 1.5
        is_straight, is_straighter = across < 2 * _CROOKED**2, across < _CROOKED**2 / 2
        return is_straight, is_straighter, is_even, yy + xx < _FOCUS**2

    def _inside(self, spots: NDArray[np.void]) -> NDArray[np.float64]:
        """Return how far spots are inside the image, in σ."""
        edges = [
            np.minimum(spots[axis] + 0.5, side - 0.5 - spots[axis])
            for axis, side in zip(self._axes, self._shape, strict=True)
        ]
        inside: NDArray[np.float64] = np.min(edges, axis=0) / self._widths.max()
        return inside

    def _in_regions(
        self, members: Members, spots: NDArray[np.void], likelier: NDArray[np.float64],
        is_focus: NDArray[np.bool_], is_blob: NDArray[np.bool_],
    ) -> NDArray[np.bool_]:  # fmt: skip
        """Return which crowds may be extended, as most are around them; the first time is decisive.

        ``likelier`` is the evidence of ridges in favour of each crowd.
        """
        count = np.bincount(spots["crowd"], minlength=members.crowds)
        own = np.flatnonzero((count > 1) & ~is_blob)
        size = count * self._widths.max()
        sums = [np.bincount(spots["crowd"], spots[axis], len(count)) for axis in IN_PLANE]
        places = np.column_stack([of_axis[own] / size[own] for of_axis in sums])
        crowds = CrowdEvidence(
            members.frame[own], places, count[own], is_focus[own], likelier[:, own]
        )
        if self._regions is None:
            self._regions = ExtendedRegions(crowds)
        found = np.zeros(len(count), np.bool_)
        found[own] = self._regions.have(crowds)
        return found


def find_lines(members: Members) -> NDArray[np.bool_]:
    """Return which crowds are lines: of several spots, most were long by themselves.

    Parameters
    ----------
    members : Members
        The detected spots of the crowds.

    Returns
    -------
    ndarray of bool
        By the number of the crowd.

    Examples
    --------
    >>> crowd, is_long = np.repeat([0, 1], 4), np.arange(8) < 5
    >>> find_lines(Members(crowd, np.zeros(2, int), *np.ones((2, 8), bool), is_long))
    array([ True, False])
    """
    long = members.number(members.is_there & members.is_long)
    return (long >= _LINE) & (long >= _LONG * members.number(members.is_there))
