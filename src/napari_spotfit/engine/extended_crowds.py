"""Crowds of spots that may as well be something extended that points make up."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

#: By which fraction spots would be wider that make up something extended; the least error of that.
_WIDER, _KNOWN = 0.08, 1e-3
#: By how many nats something wider must be likelier than two spots.
_OF_TWO = 2.5
#: Of crowds of this many spots or more: the deviation from a circle around their middle, over its
#: radius, below which they are a ring's; and the share of hidden spots above which they are a
#: thing's if their light is even.
_MANY, _RING, _HIDDEN = 5, 0.2, 0.75
#: The standard deviation of the light of spots over its mean, below which it is even: points that
#: make up something even share its light, while clusters of spots that are too dense to resolve
#: do not.
_EVEN = 0.3


def ridge_evidence(spots: NDArray[np.void], crowds: int) -> NDArray[np.float64]:
    """Return how much likelier than spots a ridge is, and a ridge that may be wider, too.

    The evidence of both adds up.

    Parameters
    ----------
    spots : ndarray of SPOT
        The spots of crowds.
    crowds : int
        How many crowds there are.

    Returns
    -------
    ndarray, shape (2, crowds)
        In nats, by the number of the crowd.
    """
    one = spots["crowd"]
    count = np.bincount(one, minlength=crowds)
    ridge, blunt = (np.bincount(one, spots[name], crowds) for name in ("ridge", "blunt_ridge"))
    either = np.where(count > 2, np.maximum(ridge, blunt), ridge)
    error = np.maximum(spots["wider_error"], _KNOWN)
    wider = np.bincount(one, (spots["wider"] - _WIDER / 2) * _WIDER / error**2, crowds)
    return np.stack([either, either + wider / np.maximum(count, 1)])


def extended_crowds(
    spots: NDArray[np.void],
    likelier: NDArray[np.float64],
    begun: NDArray[np.int64],
    is_focus: NDArray[np.bool_],
    is_chain: NDArray[np.bool_],
    inside: NDArray[np.float64],
) -> NDArray[np.bool_]:
    """Return which crowds of planes are not sure to be of spots.

    Parameters
    ----------
    spots : ndarray of SPOT
        The spots of crowds.
    likelier : ndarray, shape (crowds,)
        How much likelier than the spots of each is a ridge that may be wider, in nats.
    begun, is_focus, is_chain : ndarray, shape (crowds,)
        Of how many detected spots each crowd was made, which are compact, and which are spots in
        line that were long by themselves.
    inside : ndarray, shape (n,)
        How far each spot is inside the image, in units of σ.

    Returns
    -------
    ndarray of bool
        By the number of the crowd.
    """
    crowds, one = len(begun), spots["crowd"]
    count = np.bincount(one, minlength=crowds)
    each = np.maximum(count, 1)

    def mean(values: NDArray[np.float64]) -> NDArray[np.float64]:
        found: NDArray[np.float64] = np.bincount(one, values, crowds) / each
        return found

    light = mean(spots["light"])
    is_even = mean(spots["light"] ** 2) < (1 + _EVEN**2) * light**2
    bar = np.where(count > 2, 0.0, _OF_TWO)
    found: NDArray[np.bool_] = (likelier > bar) & (is_even | ~is_focus)
    y, x = (spots[axis] - mean(spots[axis])[one] for axis in ("y", "x"))
    far = np.hypot(y, x)
    is_ring = mean(far**2) < (1 + _RING**2) * mean(far) ** 2
    hidden = np.bincount(one[spots["candidate"] < 0], minlength=crowds)
    is_thing = (is_ring & (2 * hidden > count)) | (is_even & (hidden >= _HIDDEN * count))
    found |= is_thing & (count >= _MANY)
    # A line that the edge cuts off may go on beyond it, where no ridge is looked for.
    found |= (np.bincount(one, inside < 1, crowds) > 0) & ((begun == 1) | is_chain)
    return found & (count > 1)
