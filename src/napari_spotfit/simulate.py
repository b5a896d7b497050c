"""Simulate spots with known truth, for tests, demos and benchmarks."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Unpack, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .models.columns import IN_PLANE
from .models.number_checks import accepted, as_numbers, is_wrong, number, one_of, rising, whole
from .settings.fields import Pixel
from .simulate_pupil import Optics, add_points, finite_array, points_at, sides

if TYPE_CHECKING:
    import pandas as pd

#: Number of spots whose profiles are in memory at a time.
_PIECE = 20_000
#: The shape parameters of rotated spots.
_ROTATED = ("y", "x", "sigma_x", "sigma_y", "angle")


def simulate_spots(
    count: int,
    roi_size: int | tuple[int, int] = 9,
    *,
    photons: float = 400.0,
    background: float = 0.5,
    sigma: float | tuple[float, float] = 1.3,
    sigma_y: float | tuple[float, float] | None = None,
    angle: float | tuple[float, float] | None = None,
    pixel: Pixel = "sampled",
    jitter: float = 0.5,
    offset: ArrayLike = 0.0,
    gain: ArrayLike = 1.0,
    variance: ArrayLike = 0.0,
    seed: int | None = None,
) -> tuple[NDArray[np.float32], pd.DataFrame]:
    """Simulate cut-outs of single spots with shot noise.

    Parameters
    ----------
    count : int
        Number of spots.
    roi_size : int or (int, int)
        Side of the cut-outs in pixels, or rows and columns.
    photons : float
        Expected photons of a spot.
    background : float
        Expected background photons per pixel.
    sigma : float or (float, float)
        Standard deviation of the spots in pixels; of two numbers, each spot gets a random one
        between them.
    sigma_y : float or (float, float), optional
        Standard deviation along y; `sigma` is then that along x.
    angle : float or (float, float), optional
        Angle in degrees by which these axes are rotated, from x towards y; needs `sigma_y`.
    pixel : {"sampled", "integrated"}
        Profile at the centre of each pixel, or its mean over the pixel, as on a camera; rotated
        spots are sampled.
    jitter : float
        Largest distance of centres from that of the cut-out along each axis, in pixels.
    offset, gain, variance : float or array, shape (rows, columns) or (count, rows, columns)
        The camera's offset in counts, counts per photo-electron, and variance of read-out noise
        in counts², for all pixels or as maps.
    seed : int, optional
        The same seed gives the same spots.

    Returns
    -------
    spots : ndarray of float32, shape (count, rows, columns)
    truth : DataFrame
        Columns y, x, sigma (or sigma_x and sigma_y, and angle), photons, background.

    Raises
    ------
    TypeError, ValueError
        If an argument is not a number or out of range, or if rotated spots lack `sigma_y` or are
        to be integrated.

    Examples
    --------
    >>> from napari_spotfit import simulate_spots
    >>> spots, truth = simulate_spots(10, roi_size=7, seed=0)
    >>> spots.shape
    (10, 7, 7)
    """
    import pandas as pd

    if angle is not None and (sigma_y is None or pixel == "integrated"):
        raise ValueError("rotated spots need sigma_y and pixel='sampled'")
    count, roi = whole("count", count), sides("roi_size", roi_size)
    photons = number("photons", photons, 0)
    background, jitter = number("background", background, 0), number("jitter", jitter, 0)
    one_of("pixel", pixel, get_args(Pixel))
    rng = np.random.default_rng(seed)
    shape = {
        axis: (side - 1) / 2 + rng.uniform(-jitter, jitter, count)
        for axis, side in zip(IN_PLANE, roi, strict=True)
    }
    shape["sigma" if sigma_y is None else "sigma_x"] = _each(rng, "sigma", sigma, count)
    if sigma_y is not None:
        shape["sigma_y"] = _each(rng, "sigma_y", sigma_y, count)
    if angle is not None:
        shape["angle"] = _each(rng, "angle", angle, count)
    spots = np.empty((count, *roi), np.float32)
    offset = _map("offset", offset, spots.shape)
    gain, variance = _map("gain", gain, spots.shape), _map("variance", variance, spots.shape)
    for first in range(0, count, _PIECE):
        part = slice(first, first + _PIECE)
        piece = {name: values[part] for name, values in shape.items()}
        electrons = rng.poisson(photons * _light(piece, roi, pixel) + background)
        spots[part] = _counts(electrons, rng, offset[part], gain[part], variance[part])
    truth = pd.DataFrame(shape)
    return spots, truth.assign(photons=photons, background=background)


def simulate_movie(
    frames: int,
    shape: tuple[int, int] = (256, 256),
    *,
    spots_per_frame: int = 45,
    photons: float = 1000.0,
    background: float = 10.0,
    sigma: float = 1.3,
    pixel: Pixel = "sampled",
    offset: ArrayLike = 100.0,
    gain: ArrayLike = 1.0,
    variance: ArrayLike = 0.0,
    z: tuple[float, float] | None = None,
    optics: Optics | None = None,
    seed: int | None = None,
) -> tuple[NDArray[np.uint16], pd.DataFrame]:
    """Simulate a movie of single molecules at random positions.

    Parameters
    ----------
    frames : int
        Number of frames.
    shape : (int, int)
        Numbers of rows and columns of a frame.
    spots_per_frame : int
        Number of spots in each frame.
    photons : float
        Mean photons of a spot; those of single spots are between half and 1.5 times as many.
    background : float
        Expected background photons per pixel.
    sigma : float
        Standard deviation of the spots in pixels.
    pixel : {"sampled", "integrated"}
        Profile at the centre of each pixel, or its mean over the pixel, as on a camera.
    offset, gain, variance : float or array, shape (Y, X)
        The camera's offset in counts, counts per photo-electron, and variance of read-out noise
        in counts², for all pixels or as maps.
    z : (float, float), optional
        Lowest and highest z of molecules in nm; their images are then those of
        :func:`simulate_psf`, and `sigma` and `pixel` are ignored.
    optics : mapping, optional
        Arguments of :func:`simulate_psf`: pixel_size, numerical_aperture, wavelength,
        refractive_index and zernike.
    seed : int, optional
        The same seed gives the same movie.

    Returns
    -------
    movie : ndarray of uint16, shape (frames, Y, X)
    truth : DataFrame
        Columns frame, y, x, sigma (or z), photons.

    Raises
    ------
    TypeError, ValueError
        If an argument is not a number or out of range.

    Examples
    --------
    >>> from napari_spotfit import simulate_movie
    >>> movie, truth = simulate_movie(2, shape=(64, 64), spots_per_frame=3, seed=0)
    >>> movie.shape, len(truth)
    ((2, 64, 64), 6)
    """
    import pandas as pd

    frames, shape = whole("frames", frames), sides("shape", shape)
    spots_per_frame = whole("spots_per_frame", spots_per_frame)
    photons, background = number("photons", photons, 0), number("background", background, 0)
    sigma = number("sigma", sigma, 0, above=True)
    offset, gain = _map("offset", offset, shape), _map("gain", gain, shape)
    variance = _map("variance", variance, shape)
    one_of("pixel", pixel, get_args(Pixel))
    rng = np.random.default_rng(seed)
    count = frames * spots_per_frame
    truth = pd.DataFrame(
        {
            "frame": np.repeat(np.arange(frames), spots_per_frame),
            **{axis: rng.uniform(0, n - 1, count) for axis, n in zip(IN_PLANE, shape, strict=True)},
            "sigma": np.full(count, sigma),
            "photons": photons * rng.uniform(0.5, 1.5, count),
        }
    )
    if z is not None:
        low, high = (number("z", end) for end in rising("z", z))
        truth = truth.drop(columns="sigma").assign(z=rng.uniform(low, high, count))
    movie = np.empty((frames, *shape), np.uint16)
    for frame in range(frames):
        light = np.full(shape, float(background))
        first = frame * spots_per_frame
        spots = truth.iloc[first : first + spots_per_frame]
        if z is None:
            add_spots(light, spots, pixel)
        else:
            add_points(light, spots, optics or {})
        movie[frame] = expose(light, rng, offset, gain, variance)
    return movie, truth


def simulate_beads(
    z: ArrayLike,
    shape: tuple[int, int] = (256, 256),
    *,
    count: int = 20,
    photons: float = 20_000.0,
    background: float = 10.0,
    height: float = 0.0,
    drift: tuple[float, float] = (0.0, 0.0),
    offset: ArrayLike = 100.0,
    gain: ArrayLike = 1.0,
    seed: int | None = None,
    **optics: Unpack[Optics],
) -> tuple[NDArray[np.uint16], pd.DataFrame]:
    """Make a z-stack of beads, to calibrate with.

    Parameters
    ----------
    z : array, shape (n,)
        Height of the planes in nm.
    shape : (int, int)
        Rows and columns.
    count : int
        How many beads, on a grid with random deviations.
    photons : float
        Photons of a bead in its brightest plane.
    background : float
        Expected photons per pixel besides.
    height : float
        Standard deviation of the beads' own heights, in nm.
    drift : (float, float)
        How far the beads move along y and x from the first plane to the last, in pixels.
    offset, gain : float or array, shape (rows, columns)
        Counts of the camera without light, and counts per photo-electron.
    seed : int, optional
        Same seed, same stack.
    **optics
        Those of :func:`simulate_psf`: pixel_size, numerical_aperture, wavelength,
        refractive_index and zernike.

    Returns
    -------
    stack : ndarray of uint16, shape (n, rows, columns)
    truth : DataFrame
        Columns y, x (in the middle plane), z (the bead's own height, in nm) and photons. In a
        plane at z' the bead is seen at z' - z.

    Examples
    --------
    >>> from napari_spotfit import simulate_beads
    >>> stack, truth = simulate_beads(range(-500, 501, 50), count=9, seed=0)
    >>> stack.shape, len(truth)
    ((21, 256, 256), 9)
    """
    import pandas as pd

    planes, shape = finite_array("z", z), sides("shape", shape)
    count = whole("count", count, 1)
    photons, background = number("photons", photons, 0), number("background", background, 0)
    rng = np.random.default_rng(seed)
    columns = math.ceil(math.sqrt(count * shape[1] / shape[0]))
    rows = math.ceil(count / columns)
    cells = np.stack(np.divmod(np.arange(count), columns), 1)
    pitch = np.array(shape) / (rows, columns)
    at = (cells + 0.5 + rng.uniform(-0.15, 0.15, cells.shape)) * pitch - 0.5
    heights = rng.normal(0, number("height", height, 0), count)
    light = np.full((len(planes), *shape), background)
    moved = np.linspace(-0.5, 0.5, len(planes))[:, None] * as_numbers("drift", drift)
    for place, own in zip(at, heights, strict=True):
        spots = points_at(place + moved, planes - own, shape, optics)
        for plane, (into, psf) in zip(light, spots, strict=True):
            plane[into] += photons * psf
    truth = pd.DataFrame({"y": at[:, 0], "x": at[:, 1], "z": heights, "photons": photons})
    return expose(light, rng, offset, gain), truth


def profile(
    center: NDArray[Any], size: int, sigma: Any, pixel: Pixel = "sampled"
) -> NDArray[np.float64]:
    """Return a normalised Gaussian in pixels 0…size-1 along one axis, for each centre."""
    width = np.broadcast_to(np.asarray(sigma, float), center.shape)[:, None]
    distance = (np.arange(size) - center[:, None]) / width
    if pixel == "integrated":
        from scipy.special import ndtr  # imported here, as that takes long

        within: NDArray[np.float64] = ndtr(distance + 0.5 / width) - ndtr(distance - 0.5 / width)
        return within
    return np.exp(-0.5 * distance**2) / (np.sqrt(2 * np.pi) * width)  # type: ignore[no-any-return]


def add_spots(light: NDArray[np.float64], spots: pd.DataFrame, pixel: Pixel = "sampled") -> None:
    """Add spots (columns y, x, sigma, photons) to the expected photons of a frame."""
    v = profile(spots["y"].to_numpy(), light.shape[0], spots["sigma"], pixel)
    u = profile(spots["x"].to_numpy(), light.shape[1], spots["sigma"], pixel)
    light += (v * spots["photons"].to_numpy()[:, None]).T @ u


def expose(
    light: NDArray[np.float64],
    rng: np.random.Generator,
    offset: ArrayLike,
    gain: ArrayLike,
    variance: ArrayLike = 0.0,
) -> NDArray[np.uint16]:
    """Return the counts of a camera for expected photons, with shot and read-out noise."""
    counts = np.rint(_counts(rng.poisson(light), rng, offset, gain, variance))
    exposed: NDArray[np.uint16] = np.clip(counts, 0, np.iinfo(np.uint16).max).astype(np.uint16)
    return exposed


def _counts(
    electrons: NDArray[np.int64],
    rng: np.random.Generator,
    offset: ArrayLike,
    gain: ArrayLike,
    variance: ArrayLike,
) -> NDArray[np.float64]:
    """Convert photo-electrons to counts, with read-out noise."""
    counts: NDArray[np.float64] = np.asarray(offset) + np.asarray(gain) * electrons
    if np.any(variance):
        counts += np.sqrt(variance) * rng.normal(size=electrons.shape)
    return counts


def _each(
    rng: np.random.Generator, name: str, value: float | tuple[float, float], count: int
) -> NDArray[np.float64]:
    """Return one number per spot: constant, or random between two."""
    # Angles may have any value; widths are positive.
    lowest = -math.inf if name == "angle" else 0.0
    if not isinstance(value, (tuple, list)):
        return np.full(count, number(name, value, lowest, above=True))
    if len(value) != 2:
        raise ValueError(f"{name} must be one number or two, (lowest, highest); got {value!r}")
    low, high = (number(name, end, lowest, above=True) for end in value)
    return rng.uniform(low, high, count)


def _map(name: str, value: ArrayLike, shape: tuple[int, ...]) -> NDArray[np.float64]:
    """Return a map of one number per pixel."""
    try:
        values = np.asarray(value, float)
        each = np.broadcast_to(values, shape)
    except (TypeError, ValueError):
        raise ValueError(
            f"{name} must be a number or an array of the shape {shape[-2:]}"
            f"{f' or {shape}' if len(shape) > 2 else ''}; got shape {np.shape(value)}"
        ) from None
    wrong = is_wrong(name, values)
    if wrong.any():
        raise ValueError(f"{name} must be {accepted(name)}; got {values[wrong].flat[0]:g}")
    return each


def _light(
    shape: dict[str, NDArray[np.float64]], roi: tuple[int, int], pixel: Pixel
) -> NDArray[np.float64]:
    """Return normalised spots of the given shape parameters, (count, rows, columns)."""
    if "angle" not in shape:
        sigma_x = shape.get("sigma_x", shape.get("sigma"))
        sigma_y = shape.get("sigma_y", sigma_x)
        v = profile(shape["y"], roi[0], sigma_y, pixel)
        u = profile(shape["x"], roi[1], sigma_x, pixel)
        return v[:, :, None] * u[:, None, :]
    y0, x0, sigma_x, sigma_y, angle = (shape[name][:, None, None] for name in _ROTATED)
    y, x = np.indices(roi, float)
    cosine, sine = np.cos(np.radians(angle)), np.sin(np.radians(angle))
    along = ((x - x0) * cosine + (y - y0) * sine) / sigma_x
    across = ((y - y0) * cosine - (x - x0) * sine) / sigma_y
    light: NDArray[np.float64] = np.exp(-0.5 * (along**2 + across**2))
    return light / (2 * math.pi * sigma_x * sigma_y)
