"""Frames with known spots, and scores of detection."""

from __future__ import annotations

import ctypes
import warnings

import numpy as np
from scipy.ndimage import gaussian_filter
from scipy.spatial import cKDTree
from scipy.special import erf

from napari_spotfit import NoiseModel, Settings, localize
from napari_spotfit.engine import bands
from napari_spotfit.engine.cpu.library import load
from napari_spotfit.engine.detection_settings import (
    detection_source,
    make_detection_settings,
)
from napari_spotfit.engine.kernel_arguments import address
from napari_spotfit.estimation.measured_noise import measure_noise

DTYPES = [np.uint8, np.uint16, np.int16, np.float32, np.float64]


def light(places, photons, sigma, shape):
    """Return pixel-integrated Gaussians, their centres (y, x) in rows."""
    sides = []
    for axis in (0, 1):
        edges = np.arange(shape[axis] + 1) - 0.5 - np.asarray(places, float)[:, axis, None]
        sides.append(np.diff(erf(edges / (np.sqrt(2) * sigma)), axis=1) / 2)
    return (sides[0].T * photons) @ sides[1]


def scattered(rng, shape, count):
    """Return random centres, up to the outer edges of the image."""
    return rng.uniform(-0.5, np.array(shape) - 0.5, (count, 2))


def on_grid(rng, shape, step):
    """Return well-separated centres, each near a pixel of a grid."""
    rows, columns = (np.arange(step // 2, size - step // 2, step) for size in shape)
    grid = np.stack(np.meshgrid(rows, columns, indexing="ij"), -1).reshape(-1, 2)
    return grid + rng.uniform(-1, 1, grid.shape)


def movie_of(rng, centres, frames=1, shape=(128, 128), photons=1000, background=10, sigma=1.3):
    image = light(centres, photons, sigma, shape) + background
    return rng.poisson(image, (frames, *shape)) + 100


def places(found):
    return np.column_stack([found.y, found.x])


def nearest(found, truth, radius):
    """Return each true place's distance to the nearest found one, inf beyond the radius.

    Places are (y, x), or (frame, y, x); only those of the same frame are near.
    """
    found, truth = (np.array(these, float) for these in (found, truth))
    for these in (found, truth):
        these[:, :-2] *= 1e6
    return cKDTree(found).query(truth, distance_upper_bound=radius)[0]


def matches(truth, found, radius):
    """Count the pairs of emitter and detection, nearest first, each in one pair only."""
    if len(found) == 0:
        return 0
    pairs = cKDTree(truth).sparse_distance_matrix(cKDTree(found), radius, output_type="ndarray")
    taken, used = set(), set()
    for i, j, _ in np.sort(pairs, order="v"):
        if i not in taken and j not in used:
            taken.add(i)
            used.add(j)
    return len(taken)


def filtered_by_scipy(frame, sigma):
    frame = np.asarray(frame, float)
    narrow, wide = (
        gaussian_filter(frame, width, mode="mirror", truncate=bands.TRUNCATE)
        for width in (sigma, sigma * bands.WIDTHS[2])
    )
    return narrow - wide


def estimated(frames, settings):
    """Return settings with a width of 1.3 px and the noise of frames, unless given."""
    if settings.sigma is None:
        settings = settings.changed(sigma=1.3)
    if settings.noise is not None:
        return settings
    return settings.changed(noise=measure_noise(np.ascontiguousarray(frames), settings))


def filtered_by_us(frames, sigma):
    """Return the wide band: its numbers over a noise so strong that no pixel stands out alone."""
    deviation = 2.0**20
    noise = NoiseModel(0.0, deviation**2, deviation**2)
    settings = Settings(sigma=sigma, noise=noise)
    given = make_detection_settings(settings, bands.make_bands(sigma, frames.shape[1:]), address)
    given.row_step = 1
    source, library = detection_source(frames, given), load()
    memory = np.empty(
        library.functions.spotfit_detection_bytes(library.index, source.settings), np.uint8
    )
    result = np.empty(frames.shape, np.float32)
    for i in range(len(frames)):
        library.functions.spotfit_sample_ratios(
            library.index, ctypes.byref(source), i, 1, address(memory), address(result[i])
        )
    return deviation * result


def border_of(sigma, shape):
    """Return the noise of each pixel of white noise in the wide band, over that in the middle."""
    wide = bands.make_bands(sigma, shape).bands[0]
    variance = np.einsum("i,iy,ix->yx", [1, -2, 1], wide.gain_y, wide.gain_x)
    return np.sqrt(variance) / wide.gain


def assert_same(a, b):
    for ours, theirs in zip(a, b, strict=True):
        np.testing.assert_array_equal(ours, theirs)


def looked_at(image, **options):
    """Return y and x of the good fits, the noise, and warnings."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        fits = localize(image, **{"sigma": 1.3, "backend": "cpu"} | options)
    places = np.column_stack([fits.y, fits.x])[fits.good].astype(float)
    return places, fits.settings.noise, [str(one.message) for one in said]
