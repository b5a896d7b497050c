"""Point-spread functions of a microscope, from the field in its pupil."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypedDict

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .models.number_checks import as_numbers, nanometres, number, whole

if TYPE_CHECKING:
    import pandas as pd

Array = NDArray[np.float64]

#: Zernike polynomials (Noll's, of unit rms over the pupil) by name: the power of ρ and the
#: frequency of the angle φ, from x towards y; below 0 for the sine.
ZERNIKE: dict[str, tuple[Callable[[Array], Array], int]] = {
    "defocus": (lambda r: math.sqrt(3) * (2 * r**2 - 1), 0),
    "astigmatism": (lambda r: math.sqrt(6) * r**2, 2),
    "oblique_astigmatism": (lambda r: math.sqrt(6) * r**2, -2),
    "coma": (lambda r: math.sqrt(8) * (3 * r**3 - 2 * r), 1),
    "vertical_coma": (lambda r: math.sqrt(8) * (3 * r**3 - 2 * r), -1),
    "trefoil": (lambda r: math.sqrt(8) * r**3, 3),
    "spherical": (lambda r: math.sqrt(5) * (6 * r**4 - 6 * r**2 + 1), 0),
    "secondary_astigmatism": (lambda r: math.sqrt(10) * (4 * r**4 - 3 * r**2), 2),
}
#: Points along each axis of the pupil, and in each pixel (Gauss-Legendre: a PSF is so smooth that
#: three integrate it over a pixel to 1e-5).
_PUPIL, _NODES = 64, 3
#: Spots whose fields are in memory at a time: in the caches.
_PIECE = 16
#: Pixels along each axis over which the light of a spot in an image is spread.
_SPREAD = 41


class Optics(TypedDict, total=False):
    """The optics of :func:`simulate_psf`."""

    pixel_size: float
    numerical_aperture: float
    wavelength: float
    refractive_index: float
    zernike: Mapping[str, float]


def simulate_psf(
    z: ArrayLike,
    roi_size: int | tuple[int, int] = 25,
    *,
    y: ArrayLike = 0.0,
    x: ArrayLike = 0.0,
    pixel_size: float | tuple[float, float] = 100.0,
    numerical_aperture: float = 1.4,
    wavelength: float = 670.0,
    refractive_index: float = 1.518,
    zernike: Mapping[str, float] | None = None,
) -> NDArray[np.float64]:
    """Compute the image of a point at some heights, from the scalar field in the pupil.

    Parameters
    ----------
    z : float or array, shape (n,)
        Heights in nm, 0 in focus.
    roi_size : int or (int, int)
        Pixels along each axis, or rows and columns.
    y, x : float or array, shape (n,)
        Where the point is, in pixels from the centre of the ROI, for all heights or for each.
    pixel_size : float or (float, float)
        Side of a pixel in nm, or its height and width.
    numerical_aperture : float
        That of the objective.
    wavelength : float
        Of the light, in nm, in vacuum.
    refractive_index : float
        Of the medium; above the numerical aperture.
    zernike : mapping of str to float, optional
        Aberrations in waves rms: defocus, astigmatism, oblique_astigmatism, coma (along x),
        vertical_coma, trefoil, spherical, secondary_astigmatism. Positive astigmatism makes a
        point round at 0, narrow along y below and along x above; together with a secondary
        astigmatism of the other sign its image splits into two lobes, along x or y
        (a saddle-point or tetrapod PSF).

    Returns
    -------
    ndarray of float64, shape (n, rows, columns)
        Light in each pixel; the sum of the brightest plane is 1.

    Raises
    ------
    TypeError, ValueError
        If a number is outside what is possible, or an aberration is not known.

    Examples
    --------
    >>> from napari_spotfit import simulate_psf
    >>> psf = simulate_psf([-300, 0, 300], 15, zernike={"astigmatism": 0.1})
    >>> psf.shape
    (3, 15, 15)
    >>> float(psf.sum((1, 2)).max().round(6))
    1.0
    """
    shape = sides("roi_size", roi_size)
    points = [finite_array(name, given) for name, given in (("z", z), ("y", y), ("x", x))]
    heights, down, right = np.broadcast_arrays(*points)
    if heights.ndim != 1 or not heights.size:
        raise ValueError(f"z must be heights, a list of at least one; got shape {heights.shape}")
    height, width = pixel_size if isinstance(pixel_size, tuple) else (pixel_size, pixel_size)
    pixel = [nanometres("pixel_size", side) for side in (height, width)]
    wavelength = number("wavelength", wavelength, 0, above=True)
    index = number("refractive_index", refractive_index, 1)
    aperture = number("numerical_aperture", numerical_aperture, 0, above=True)
    if aperture >= index:
        raise ValueError(
            f"numerical_aperture must be below the refractive_index {index:g}; got {aperture:g}"
        )
    across = (np.arange(float(_PUPIL)) + 0.5) / (_PUPIL / 2) - 1
    rho = np.hypot(*np.meshgrid(across, across))
    sine = np.minimum(rho, 1) * aperture / index
    waves = _waves(rho, np.arctan2(*np.meshgrid(across, across, indexing="ij")), zernike or {})
    axial = index / wavelength * np.sqrt(1 - sine**2)
    amplitude = (rho < 1) * (1 - sine**2) ** -0.25
    # In periods per pixel.
    down_y, along_x = (across * aperture / wavelength * side for side in pixel)
    psf = np.empty((heights.size, *shape))
    for first in range(0, heights.size, _PIECE):
        z, y, x = (given[first : first + _PIECE, None, None] for given in (heights, down, right))
        phase = 2 * np.pi * (axial * z + waves + down_y[:, None] * y + along_x * x)
        field = np.stack([amplitude * np.cos(phase), amplitude * np.sin(phase)], axis=1)
        field = _transformed(field, shape[1], along_x).swapaxes(2, 3)
        field = _transformed(field, shape[0], down_y).swapaxes(2, 3)
        psf[first : first + _PIECE] = _light(field, shape)
    psf /= psf.sum((1, 2)).max()
    return psf


def add_points(light: Array, points: pd.DataFrame, optics: Optics) -> None:
    """Add points (columns y, x in pixels, z in nm, photons) to the expected photons of a frame."""
    placed = points_at(points[["y", "x"]].to_numpy(float), points["z"], light.shape, optics)
    for (into, psf), photons in zip(placed, points["photons"], strict=True):
        light[into] += photons * psf


def points_at(
    at: Array, z: ArrayLike, shape: tuple[int, ...], optics: Optics
) -> Iterator[tuple[tuple[slice, slice], Array]]:
    """Yield where in an image each point's light is, and the light."""
    pixel = np.rint(at).astype(int)
    off = at - pixel
    # One more point in focus: every spot's light is relative to that.
    shifts = np.append(off, [[0.0, 0.0]], 0).T
    psf = simulate_psf(np.append(z, 0.0), _SPREAD, y=shifts[0], x=shifts[1], **optics)
    low = pixel - _SPREAD // 2
    for first, plane in zip(low, psf[:-1] / psf[-1].sum(), strict=True):
        begin = np.clip(first, 0, shape)
        end = np.clip(first + _SPREAD, 0, shape)
        cut = tuple(slice(b - f, e - f) for b, e, f in zip(begin, end, first, strict=True))
        yield (slice(begin[0], end[0]), slice(begin[1], end[1])), plane[cut]


def _waves(rho: Array, phi: Array, zernike: Mapping[str, float]) -> Array:
    """Return the aberration at each point of the pupil, in waves."""
    waves = np.zeros_like(rho)
    for name, rms in zernike.items():
        if name not in ZERNIKE:
            raise ValueError(f"zernike must name aberrations, {', '.join(ZERNIKE)}; got {name!r}")
        radial, angular = ZERNIKE[name]
        wave = np.cos(angular * phi) if angular >= 0 else np.sin(-angular * phi)
        waves += number(f"the aberration {name}", rms) * radial(rho) * wave
    return waves


def _transformed(field: Array, size: int, frequencies: Array) -> Array:
    """Return the Fourier transform along the last axis at the nodes of the pixels there.

    Parameters
    ----------
    field : ndarray, shape (n, 2, m, frequencies)
        Real and imaginary parts.
    size : int
        Pixels.
    frequencies : ndarray
        In periods per pixel, each with the one of the other sign: nodes have such others too, so
        that cosines and sines of a quarter of all do.
    """
    nodes = np.polynomial.legendre.leggauss(_NODES)[0] / 2
    at = ((np.arange(size) - (size - 1) / 2)[:, None] + nodes).ravel()
    half, middle = len(frequencies) // 2, len(at) // 2
    phase = 2 * np.pi * frequencies[half:, None] * at[middle:]
    above, below = field[..., half:], field[..., :half][..., ::-1]
    even, odd = (above + below) @ np.cos(phase), (above - below) @ np.sin(phase)
    transformed = np.empty((*field.shape[:-1], len(at)))
    after, before = transformed[..., middle:], transformed[..., :middle][..., ::-1]
    np.add(even[:, 0], odd[:, 1], out=after[:, 0])
    np.subtract(even[:, 1], odd[:, 0], out=after[:, 1])
    even, odd = (part[..., len(at) % 2 :] for part in (even, odd))  # without the middle
    np.subtract(even[:, 0], odd[:, 1], out=before[:, 0])
    np.add(even[:, 1], odd[:, 0], out=before[:, 1])
    return transformed


def _light(field: Array, shape: tuple[int, int]) -> Array:
    """Return the intensity of a field at the pixels' nodes, averaged over each pixel."""
    weights = np.polynomial.legendre.leggauss(_NODES)[1] / 2
    intensity = (field[:, 0] ** 2 + field[:, 1] ** 2).reshape(
        -1, shape[0], _NODES, shape[1], _NODES
    )
    light: Array = np.einsum("nyixj,i,j->nyx", intensity, weights, weights, optimize=True)
    return light


def finite_array(name: str, values: ArrayLike) -> Array:
    """Return finite numbers as an array of at least one axis."""
    given = np.atleast_1d(as_numbers(name, values))
    if not np.isfinite(given).all():
        raise ValueError(f"{name} must be finite; got {given[~np.isfinite(given)].flat[0]}")
    return given


def sides(name: str, value: Any) -> tuple[int, int]:
    """Return rows and columns."""
    both = value if isinstance(value, (tuple, list)) else (value, value)
    if len(both) != 2:
        raise ValueError(f"{name} must be (rows, columns); got {value!r}")
    return whole(name, both[0], 1), whole(name, both[1], 1)
