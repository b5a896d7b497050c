"""How often a spot looks more like a measured PSF at another height than at its own."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from ..models.measured_psf import MeasuredPsf

Array = NDArray[np.float64]

#: Heights nearer than this, in nm, are confused by noise and not by being alike.
_FAR = 150.0
#: Heights of spots, and those that each is compared with.
_OWN, _OTHERS = 24, 120


def share_mirrored(psf: MeasuredPsf, photons: float, background: float) -> float:
    """Return the share of spots, over the range, that are fitted better at a height far away.

    With D the least χ² between a spot's image without noise and what is fitted to it at another
    height, noise prefers the latter with the probability Φ(-√D / 2). Of heights far away, those
    count where D has a minimum along z: there, fits end.

    Parameters
    ----------
    psf : MeasuredPsf
        The PSF.
    photons, background : float
        Photons of a spot, and of the background in a pixel.
    """
    z, heights = np.linspace(*psf.range, _OTHERS), np.linspace(*psf.range, _OWN)
    at = np.arange(psf.roi_size) - (psf.roi_size - 1) / 2
    place = z[:, None, None], at[:, None], at
    light = np.maximum(psf.lattice.sample(*place), 0)
    # The other spot may have another amplitude, background, y and x.
    free = [light, np.ones_like(light), *(psf.lattice.sample(*place, axis) for axis in "yx")]
    others = np.stack(free, axis=-1).reshape(_OTHERS, -1, len(free))
    images = photons * np.maximum(psf.lattice.sample(heights[:, None, None], at[:, None], at), 0)
    shares = []
    for own, image in zip(heights, images.reshape(_OWN, -1), strict=True):
        weight = 1 / np.sqrt(image + background)
        basis = np.linalg.qr(others * weight[:, None])[0]
        target = image * weight
        left = target - np.einsum("zpk,zk->zp", basis, np.einsum("zpk,p->zk", basis, target))
        apart = (left**2).sum(axis=1)
        middle = apart[1:-1]
        ends = (middle <= apart[:-2]) & (middle <= apart[2:]) & (np.abs(z[1:-1] - own) > _FAR)
        least = middle[ends].min(initial=math.inf)
        shares.append(math.erfc(math.sqrt(least / 8)) / 2)
    return float(np.mean(shares))
