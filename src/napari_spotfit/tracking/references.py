"""Where each fiducial belongs, and how bright it is: what a shift is measured against."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..results.shifts import middle

Floats = NDArray[np.float64]

#: The place of a fiducial is the mean of its places in so many frames, less the displacements;
#: later ones count as the last of so many, so that a slow creep of its own is followed.
_FRAMES = 1000
#: Its light is known from so many, and changes with those that follow.
_LIGHT_FRAMES = 30
#: Light is odd that is off by this share of what it was, and by so many standard errors; for one
#: fiducial or two, of which a lamp may dim all, by that one.
_LIGHT, _LIGHT_ERRORS, _LIGHT_OF_FEW = 0.25, 8.0, 0.6
#: For so many frames on end light may be another one; then it is the fiducial's own from now on.
_PATIENCE = 30


class References:
    """Where fiducials belong, in pixels of the first frame, and the light they have.

    Which of them take part in a frame must not change the displacement: so each is measured from a
    place of its own, which all that have taken part together have agreed about.

    Parameters
    ----------
    places : ndarray of float64, shape (n, 2)
        y and x in the first frame.
    photons : ndarray of float64, shape (n,)
        Their light there; NaN where it is not known.
    """

    def __init__(self, places: Floats, photons: Floats) -> None:
        self.places = places.copy()
        self.photons = photons.copy()
        self._frames = np.ones(len(places))
        self._odd_frames = np.zeros(len(places), np.int64)

    def beside(self, share: float) -> Floats:
        """Return such a share of how far a place is from its reference, for an error of 1."""
        return share * np.sqrt(1.0 + 1.0 / self._frames)[:, np.newaxis]

    def learn(self, residuals: Floats, photons: Floats, taken: NDArray[np.bool_]) -> None:
        """Take a frame into account: where fiducials were beside the displacement, and their light.

        Parameters
        ----------
        residuals : ndarray of float64, shape (n, 2)
            Their shifts less the displacement. By weights, those taken sum up to nothing.
        photons : ndarray of float64, shape (n,)
            Their light.
        taken : ndarray of bool, shape (n,)
            Which of them took part.
        """
        if taken.all():  # in fewer steps
            frames = self._frames = np.minimum(self._frames + 1.0, _FRAMES)
            self.places += residuals / frames[:, np.newaxis]
            known = self.photons
            self.photons = known + (photons - known) / np.minimum(frames, _LIGHT_FRAMES)
            return
        frames = self._frames
        frames[taken] = np.minimum(frames[taken] + 1.0, _FRAMES)
        self.places[taken] += residuals[taken] / frames[taken, np.newaxis]
        step = (photons - self.photons) / np.minimum(frames, _LIGHT_FRAMES)
        self.photons[taken] += step[taken]

    def set(self, number: int, place: Floats, photons: float) -> None:
        """Let a fiducial that was never found before belong where it is now."""
        self.places[number], self.photons[number], self._frames[number] = place, photons, 1

    def light_is_odd(
        self, photons: Floats, errors: Floats, judged: NDArray[np.bool_]
    ) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """Return which have lost light, and which have more than before; a lamp dims all alike.

        Parameters
        ----------
        photons, errors : ndarray of float64, shape (n,)
            Light in this frame, and its standard error.
        judged : ndarray of bool, shape (n,)
            Which have been found.
        """
        known = judged & (self.photons > 0)
        count = int(np.count_nonzero(known))
        if count == 0:
            return known, known
        ratio = np.ones(len(photons))
        np.divide(photons, self.photons, out=ratio, where=known)
        own = ratio if count == len(ratio) else ratio[known]
        # With few others, what a lamp does is not told from what they do.
        common = float(middle(own)) if count > 2 else 1.0
        least = _LIGHT if count > 2 else _LIGHT_OF_FEW
        if common <= 0:
            return known, np.zeros_like(known)
        if own.min() >= (1.0 - least) * common and own.max() <= (1.0 + least) * common:
            self._odd_frames[:] = 0
            nothing = np.zeros_like(known)
            return nothing, nothing
        relative = ratio / common
        room = np.full(len(photons), least)
        np.divide(_LIGHT_ERRORS * errors, self.photons, out=room, where=known)
        room = np.maximum(room, least)
        dim, bright = known & (relative < 1.0 - room), known & (relative > 1.0 + room)
        odd = dim | bright
        self._odd_frames = np.where(odd, self._odd_frames + 1, 0)
        settled = odd & (self._odd_frames > _PATIENCE)
        if settled.any():
            self.photons[settled] = photons[settled] / common
            self._odd_frames[settled] = 0
        return dim, bright
