"""The mean image of beads whose heights and places are known, by which fits with a lens end."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from ..models.measured_psf import LEAST_PLANES, MeasuredPsf
from .bead_boxes import cut_beads
from .heights import Alignment
from .measure_psf import MARGIN, Known, psf_of
from .registration import moved

Array = NDArray[np.float64]

#: The degree of splines along z; and the part of the light of all beads that shows each height.
_DEGREE, _SHOWN = 5, 0.5
#: Steps beside the range in which widths tell z: fits at its ends have a PSF on both sides.
_BESIDE = 5


class BeadImages:
    """Beads moved to one place and to common heights.

    Parameters
    ----------
    found : Alignment
        The fits of the beads, with their heights.
    places : ndarray, shape (2, n)
        y and x of each bead at the height where it is round.

    Raises
    ------
    ValueError
        If no bead lies apart from the others and the edges as far as its image goes.
    """

    def __init__(self, found: Alignment, places: Array) -> None:
        fits, step = found.fits, found.step
        side = max(fits.settings.roi_shape) + 2 * MARGIN
        side += 1 - side % 2
        used = np.array(fits.numbers)
        cut = cut_beads(fits.planes, side, None, fits.settings, fits.places[used])
        first = np.ceil(found.low / step) - _BESIDE
        heights = step * np.arange(first, np.floor(found.high / step) + _BESIDE + 1)
        self.beads: list[int] = []
        images, light = [], []
        for box, middle in zip(cut.boxes, cut.middle, strict=True):
            apart = np.abs(places[:, used].T - middle).max(axis=1)
            bead = int(used[np.nanargmin(apart)])
            shift = places[:, bead] - middle
            images.append(_at(box, fits.z, found.zero[bead] + heights, shift))
            light.append(float(box.sum(axis=(1, 2)).max()))
            self.beads.append(bead)
        self._images, self._light = np.stack(images), np.array(light)
        there = np.isfinite(self._images[:, :, 0, 0])
        shown = np.flatnonzero(self._light @ there > _SHOWN * self._light.sum())
        kept = slice(shown[0], shown[-1] + 1) if len(shown) else slice(0)
        self._images, heights = self._images[:, kept], heights[kept]
        if len(heights) < LEAST_PLANES + 1 or not heights[0] <= 0 <= heights[-1]:
            raise ValueError("the beads have too few heights in common")
        voxel = fits.settings.voxel_size
        self._known = Known(step, -heights[0] / step, voxel and float(voxel[-1]), 1.0)

    def psf(self, without: int | None = None) -> MeasuredPsf:
        """Return the PSF of all beads, or without one."""
        kept = np.array([bead != without for bead in self.beads])
        images, light = self._images[kept], self._light[kept]
        there = np.isfinite(images[:, :, 0, 0])
        weights = light @ there
        mean = np.nan_to_num(images).sum(axis=0) / np.where(weights, weights, np.nan)[:, None, None]
        psf = psf_of(mean, self._known)
        middle = (images.shape[-1] - 1) / 2
        return replace(psf, y=middle, x=middle)


def _at(box: NDArray[np.float32], z: Array, heights: Array, shift: Array) -> Array:
    """Return a bead at heights, moved to the middle of its box; NaN where it was not recorded."""
    from scipy.interpolate import make_interp_spline  # here, as SciPy takes its time to import

    centred = moved(box, (0.0, *shift))
    values = np.asarray(make_interp_spline(z, centred, k=_DEGREE)(heights))
    values[(heights < z[0]) | (heights > z[-1])] = np.nan
    return values
