"""Measure distances in volumes in pixels: planes are further apart, or nearer, than pixels are."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from ..models.columns import IN_PLANE
from ..results.spot_fits import SpotFits


def pixels_per_z(fits: SpotFits, z_scale: float | None) -> float:
    """Return how many pixels one unit of z is, or 0 to measure distances along y and x only.

    Parameters
    ----------
    fits : SpotFits
        Fits of an image or a stack.
    z_scale : float or None
        What the caller passed; None stands for the voxel size of fits in volumes, and leaves z of
        other fits out.

    Raises
    ------
    ValueError
        If z is in planes, and their distance unknown.

    Examples
    --------
    >>> from napari_spotfit import Settings
    >>> columns = {"z": np.zeros(1), "y": np.zeros(1), "x": np.zeros(1)}
    >>> stack = Settings(model="gaussian_3d", voxel_size=(300, 100, 100))
    >>> pixels_per_z(SpotFits(columns, settings=stack), None)
    3.0
    """
    if z_scale is not None:
        if not (z_scale >= 0 and math.isfinite(z_scale)):
            raise ValueError(
                "z_scale must be how many pixels one unit of z is, a finite number from 0, which "
                f"leaves z out; got {z_scale!r}"
            )
        return float(z_scale) if "z" in fits else 0.0
    if "z" not in fits.axes:
        return 0.0
    voxel = None if fits.settings is None else fits.settings.voxel_size
    if voxel is None:
        raise ValueError(
            "z of these fits is in planes, and how far these are apart is unknown: fit with "
            "voxel_size=(z, y, x) in nm, or pass z_scale=…, how many pixels one plane is, or 0 to "
            "leave z out"
        )
    return voxel[0] / math.sqrt(voxel[1] * voxel[2])


def places_in_pixels(fits: SpotFits, z_scale: float | None) -> NDArray[np.float64]:
    """Return positions along z, if that counts, y and x in pixels, shape (n, 2 or 3).

    Raises
    ------
    ValueError
        As :func:`pixels_per_z` does.
    """
    scale = pixels_per_z(fits, z_scale)
    places = np.stack([fits.columns[axis] for axis in IN_PLANE], axis=1).astype(float)
    if scale:
        depth = np.asarray(fits.columns["z"], float) * scale
        places = np.concatenate([depth[:, np.newaxis], places], axis=1)
    return places
