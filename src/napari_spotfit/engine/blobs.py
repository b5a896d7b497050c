"""Which crowds are extended rather than spots: points of a wider PSF explain them as well."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..models.columns import IN_PLANE
from .crowds import Candidates, Members, losses
from .joint_columns import BLOB
from .joint_fits import JointFitter

#: Widths of points, over the PSF's: something extended needs fewer such points. And the most hidden
#: points of a crowd for each that was detected, and the share of the tolerated deviance below which
#: there may be more: random ones at 8 per µm² have three at most, 20 spots within 1.5 σ eight.
_WIDER, _MOST, _WELL = (1.35, 1.5, 2.0), 8, 0.75
#: How far a PSF's width may be off, as a fraction, which the kernels have, too: wide points may be
#: less likely by its square in nats, half of what spots gain by it, for each photo-electron.
_UNLIKE = 0.025
#: Points that make up something extended would rather be wider: by this fraction at least, give or
#: take these errors. Of 431 simulated crowds of such points all were, of 539 of spots a third.
_RATHER_WIDER, _ERRORS = 0.08, 3.0


def find_blobs(
    fitter: JointFitter,
    members: Members,
    candidates: Candidates,
    is_fitted: NDArray[np.bool_],
    spots: NDArray[np.void],
) -> NDArray[np.bool_]:
    """Return which crowds are extended: fewer wide points make the data as likely.

    Those are looked at whose spots were hidden for the greater part, or not good by themselves,
    and would rather be wider.

    Parameters
    ----------
    fitter : JointFitter
        What fitted them.
    members : Members
        The detected spots of the crowds.
    candidates, is_fitted
        What was fitted, as of :meth:`.JointFitter.fit`.
    spots : ndarray of SPOT
        What was found of them.

    Returns
    -------
    ndarray of bool
        By the number of the crowd.
    """
    crowds, one = members.crowds, spots["crowd"]
    hidden = np.bincount(one[spots["candidate"] < 0], minlength=crowds)
    begun = members.number(members.is_there)
    doubtful = members.number(members.is_there & ~members.is_good)
    count = np.bincount(one, minlength=crowds)
    cost = fitter.least_score**2 / 2
    lost = losses(spots, cost, crowds)
    asked = (begun + count > 2) & (count > 0) & ((hidden >= begun) | (2 * doubtful > begun))
    is_explained = spots["deviance"] <= spots["tolerated"]
    found = (hidden >= _MOST * begun) & (hidden > 0)
    found[one[spots["deviance"] <= _WELL * spots["tolerated"]]] = False
    is_narrow = spots["wider"] + _ERRORS * spots["wider_error"] <= _RATHER_WIDER
    asked &= np.bincount(one[~(is_narrow & is_explained)], minlength=crowds) > 0
    # Wide points need not be of exactly the shape of what is there, as spots need not.
    lost += _UNLIKE**2 * np.bincount(one, spots["light"], crowds)
    # What a width is out of the question for by more than all spots cost, others are, too.
    most = lost + cost * count
    most[one[~is_explained]] = np.inf
    for width in _WIDER if fitter.psf is None else ():
        asked &= ~found
        rows = asked[candidates.points["crowd"]] & is_fitted
        if not rows.any():
            break
        wider = fitter.wider(width).fit(candidates, rows, counts_spots=True)
        wide = losses(wider, cost, crowds)
        found |= asked & (wide <= lost)
        asked &= wide < most
    return found


def unexplained_volumes(
    fitter: JointFitter, crowds: int, spots: NDArray[np.void]
) -> NDArray[np.bool_]:
    """Return which of all crowds are of volumes, with a background that no plane explains.

    They have the voxels of many ROIs, and each ROI by itself has a plane of its own.
    """
    found = np.zeros(crowds, np.bool_)
    if len(fitter.widths) > len(IN_PLANE):
        found[spots["crowd"][spots["deviance"] > BLOB * spots["tolerated"]]] = True
    return found
