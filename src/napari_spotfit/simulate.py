"""Simulated spots with their ground truth, for tests, demos and benchmarks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import pandas as pd

#: Spots whose profiles are in memory at a time.
_PIECE = 20_000


def simulate_spots(
    count: int,
    roi_size: int | tuple[int, int] = 9,
    *,
    photons: float = 400.0,
    background: float = 0.5,
    sigma: float | tuple[float, float] = 1.3,
    jitter: float = 0.5,
    seed: int | None = None,
) -> tuple[NDArray[np.float32], pd.DataFrame]:
    """Make cut-outs of single spots with shot noise.

    Parameters
    ----------
    count : int
        How many.
    roi_size : int or (int, int)
        Side of the cut-outs in pixels, or rows and columns.
    photons : float
        Expected photons of a spot.
    background : float
        Expected photons per pixel besides.
    sigma : float or (float, float)
        Standard deviation of the spots in pixels, sampled at the pixel centres; of two
        numbers, each spot has its own, evenly distributed between them.
    jitter : float
        Centres lie up to this far from the cut-out's centre, in pixels along each axis.
    seed : int, optional
        Same seed, same spots.

    Returns
    -------
    spots : ndarray of float32, shape (count, rows, columns)
    truth : DataFrame
        Columns y, x, sigma, photons, background.

    Examples
    --------
    >>> from napari_spotfit import simulate_spots
    >>> spots, truth = simulate_spots(10, roi_size=7, seed=0)
    >>> spots.shape
    (10, 7, 7)
    """
    import pandas as pd

    rows, columns = roi_size if isinstance(roi_size, tuple) else (roi_size, roi_size)
    rng = np.random.default_rng(seed)
    y = (rows - 1) / 2 + rng.uniform(-jitter, jitter, count)
    x = (columns - 1) / 2 + rng.uniform(-jitter, jitter, count)
    widths = rng.uniform(*sigma, count) if isinstance(sigma, tuple) else np.full(count, sigma)
    spots = np.empty((count, rows, columns), np.float32)
    for first in range(0, count, _PIECE):
        part = slice(first, first + _PIECE)
        width = widths[part]
        v, u = profile(y[part], rows, width), profile(x[part], columns, width)
        spots[part] = rng.poisson(photons * v[:, :, None] * u[:, None, :] + background)
    truth = pd.DataFrame({"y": y, "x": x})
    return spots, truth.assign(sigma=widths, photons=photons, background=background)


def simulate_movie(
    frames: int,
    shape: tuple[int, int] = (256, 256),
    *,
    spots_per_frame: int = 45,
    photons: float = 1000.0,
    background: float = 10.0,
    sigma: float = 1.3,
    offset: float = 100.0,
    gain: float = 1.0,
    seed: int | None = None,
) -> tuple[NDArray[np.uint16], pd.DataFrame]:
    """Make a movie of single molecules that light up at random places.

    Parameters
    ----------
    frames : int
        How many frames.
    shape : (int, int)
        Rows and columns of a frame.
    spots_per_frame : int
        Spots in each frame.
    photons : float
        Mean photons of a spot; single spots have half to one and a half of it.
    background : float
        Expected photons per pixel besides.
    sigma : float
        Standard deviation of the spots in pixels, sampled at the pixel centres.
    offset, gain : float
        Counts of the camera without light, and counts per photo-electron.
    seed : int, optional
        Same seed, same movie.

    Returns
    -------
    movie : ndarray of uint16, shape (frames, Y, X)
    truth : DataFrame
        Columns frame, y, x, sigma, photons.

    Examples
    --------
    >>> from napari_spotfit import simulate_movie
    >>> movie, truth = simulate_movie(2, shape=(64, 64), spots_per_frame=3, seed=0)
    >>> movie.shape, len(truth)
    ((2, 64, 64), 6)
    """
    import pandas as pd

    rng = np.random.default_rng(seed)
    count = frames * spots_per_frame
    truth = pd.DataFrame(
        {
            "frame": np.repeat(np.arange(frames), spots_per_frame),
            "y": rng.uniform(0, shape[0] - 1, count),
            "x": rng.uniform(0, shape[1] - 1, count),
            "sigma": np.full(count, sigma),
            "photons": photons * rng.uniform(0.5, 1.5, count),
        }
    )
    movie = np.empty((frames, *shape), np.uint16)
    for frame in range(frames):
        light = np.full(shape, float(background))
        first = frame * spots_per_frame
        add_spots(light, truth.iloc[first : first + spots_per_frame])
        movie[frame] = expose(light, rng, offset, gain)
    return movie, truth


def profile(center: NDArray[Any], size: int, sigma: Any) -> NDArray[np.float64]:
    """Return a normalised Gaussian, sampled at the pixels 0…size-1, for each centre."""
    width = np.broadcast_to(np.asarray(sigma, float), center.shape)[:, None]
    distance = (np.arange(size) - center[:, None]) / width
    return np.exp(-0.5 * distance**2) / (np.sqrt(2 * np.pi) * width)  # type: ignore[no-any-return]


def add_spots(light: NDArray[np.float64], spots: pd.DataFrame) -> None:
    """Add spots (columns y, x, sigma, photons) to the expected photons of a frame."""
    v = profile(spots["y"].to_numpy(), light.shape[0], spots["sigma"])
    u = profile(spots["x"].to_numpy(), light.shape[1], spots["sigma"])
    light += (v * spots["photons"].to_numpy()[:, None]).T @ u


def expose(
    light: NDArray[np.float64], rng: np.random.Generator, offset: float, gain: float
) -> NDArray[np.uint16]:
    """Return what a camera with shot noise makes of the expected photons."""
    counts = np.rint(offset + gain * rng.poisson(light))
    exposed: NDArray[np.uint16] = np.clip(counts, 0, np.iinfo(np.uint16).max).astype(np.uint16)
    return exposed
