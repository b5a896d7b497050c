"""Convert z: distances in volumes to pixels, and z in planes to nm."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..caller import warn_caller
from ..models.columns import IN_PLANE, PLANES, STDERR, Z_OF_OTHERS
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

    Warns
    -----
    UserWarning
        If z of files of other programs is in planes, and left out.

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
        return 0.0 if column_of_z(fits) is None else float(z_scale)
    if column_of_z(fits) == Z_OF_OTHERS:
        warn_caller(
            f"z is left out, as how far apart the planes of the column {Z_OF_OTHERS} are is "
            "unknown: pass z_scale=…, how many pixels one plane is, or 0"
        )
    if "z" not in fits.axes:
        return 0.0
    scale = None if fits.settings is None else fits.settings.pixels_per_plane
    if scale is None:
        raise ValueError(
            "z of these fits is in planes, and how far these are apart is unknown: fit with "
            "voxel_size=…, z, y and x in nm, or pass z_scale=…, how many pixels one plane is, or 0 "
            "to leave z out"
        )
    return scale


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
        depth = np.asarray(fits.columns[column_of_z(fits) or "z"], float) * scale
        places = np.concatenate([depth[:, np.newaxis], places], axis=1)
    return places


def column_of_z(fits: SpotFits) -> str | None:
    """Return the column of z: of our fits, or in planes of other programs; None without one."""
    return next((name for name in ("z", Z_OF_OTHERS) if name in fits), None)


def plane_distance(fits: SpotFits) -> float | None:
    """Return how many nm one unit of z is; None if there is no z, or that is unknown.

    Examples
    --------
    >>> from napari_spotfit import Settings
    >>> columns = {"z": np.zeros(1), "y": np.zeros(1), "x": np.zeros(1)}
    >>> plane_distance(SpotFits(columns, settings=Settings(voxel_size=(300, 100, 100))))
    >>> stack = Settings(model="gaussian_3d", voxel_size=(300, 100, 100))
    >>> plane_distance(SpotFits(columns, settings=stack))
    300.0
    """
    unit = fits.units.get("z")
    if unit == "nm":
        return 1.0
    known = unit == PLANES and "z" in fits.axes and fits.settings is not None
    voxel = fits.settings.voxel_size if known and fits.settings is not None else None
    return None if voxel is None else float(voxel[0])


def depth_in_nm(fits: SpotFits) -> dict[str, NDArray[Any]] | None:
    """Return z and its standard errors in nm as columns; None unless both are known."""
    distance = plane_distance(fits)
    if distance is None or "z" + STDERR not in fits:
        return None
    columns = {name: fits.columns[name] for name in ("z", "z" + STDERR)}
    # Columns in nm are not copied, as tables are large.
    return columns if distance == 1 else {name: one * distance for name, one in columns.items()}
