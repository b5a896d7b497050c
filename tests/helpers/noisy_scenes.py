"""Images with known spots on every kind of background and noise.

Counts are those of a camera: an offset of 100, a gain of 1 unless the scene says otherwise.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scenes import light
from scipy import ndimage
from scipy.spatial import cKDTree

Array = NDArray[np.float64]

#: σ for which the photons below are; they are proportional to σ.
_USUAL_SIGMA = 1.3


class Scene(NamedTuple):
    """Frames of one kind, and the positions of their spots."""

    name: str
    sigma: float
    frames: list[NDArray[np.generic]]
    #: y and x of each frame's spots.
    truth: list[Array]
    #: Map of read-out variances in counts².
    variance: Array | None = None


class Kind(NamedTuple):
    """A kind of background and noise."""

    #: Photons of a spot that is easy, but not trivial to see at σ 1.3.
    photons: float
    #: Returns an image from additional light in photons.
    image: Callable[[np.random.Generator, Array], NDArray[np.generic]]
    #: Shift of the spots along both axes by the processing.
    shift: float = 0.0
    has_map: bool = False


# ---- Simulated movies: spots in a flat field ----

#: Photons of each spot, spots per 100 px², and photons of the background per pixel.
_FLAT = {
    "sparse": (1000, 0.07), "dim": (180, 0.07), "dense": (1000, 2.0), "very dense": (3000, 4.0),
    "bright dense": (50000, 1.5),
}  # fmt: skip


def flat_scenes(sigma: float, side: int = 256, count: int = 2, seed: int = 911) -> Iterator[Scene]:
    """Yield frames with spots from few and dim to crowded and bright."""
    for name, (photons, density) in _FLAT.items():
        rng = np.random.default_rng([seed, len(name), photons])
        truth = [
            rng.uniform(-0.5, side - 0.5, (round(density * side**2 / 100), 2)) for _ in range(count)
        ]
        if density < 1:
            photons = photons * sigma / _USUAL_SIGMA
        frames = [
            _counts(rng.poisson(10 + light(places, photons, sigma, (side, side))) + 100)
            for places in truth
        ]
        yield Scene(name, sigma, frames, truth)


# ---- Backgrounds and kinds of noise ----


def noisy_scenes(
    sigma: float, side: int = 384, count: int = 2, spots: int = 150, seed: int = 313,
) -> Iterator[Scene]:  # fmt: skip
    """Yield frames with the same number of spots on every background; none with ``spots=0``."""
    shape = (side, side)
    for name, kind in kinds(shape, seed).items():
        rng = np.random.default_rng([seed, len(name), *name.encode()])
        frames, truth = [], []
        for _ in range(count):
            places = rng.uniform(2, side - 3, (spots, 2))
            photons = kind.photons * sigma / _USUAL_SIGMA * rng.uniform(0.5, 1.5, spots)
            frames.append(kind.image(rng, light(places, photons, sigma, shape)))
            truth.append(places + kind.shift)
        variance = scmos_variance(shape, seed) if kind.has_map else None
        yield Scene(name, sigma, frames, truth, variance)


def kinds(shape: tuple[int, int], seed: int) -> dict[str, Kind]:
    """Return every background in frames of a shape, by name."""
    rng = np.random.default_rng(seed)
    y, x = (axis / size - 0.5 for axis, size in zip(np.indices(shape), shape, strict=True))
    vignette = np.exp(-(y**2 + x**2) / (2 * 0.3**2))
    edges, bright, round_ones = (_cells(rng, shape, *size) for size in _CELLS)
    texture = ndimage.gaussian_filter(rng.normal(size=shape), 3.0)
    nuclei = np.maximum(20 + 300 * round_ones * (1 + 0.15 * texture / texture.std()), 0)
    hot = np.where(rng.random(shape) < 5e-4, rng.uniform(30, 2000, shape), 0)
    variance = scmos_variance(shape, seed)

    def scmos(rng: np.random.Generator, extra: Array) -> NDArray[np.generic]:
        return _counts(rng.poisson(4 + extra) + 100 + rng.normal(size=shape) * np.sqrt(variance))

    def camera(rng: np.random.Generator, extra: Array) -> Array:
        return np.asarray(rng.poisson(100 + extra) + rng.normal(0, 3, shape))

    return {
        "white": Kind(300, lambda rng, e: (rng.normal(100, 5, shape) + e).astype(np.float32)),
        **{f"Poisson {level}": Kind(photons, _poisson(level)) for level, photons in _POISSON},
        "EMCCD 1": Kind(120, lambda rng, e: _emccd(rng, 1 + e)),
        "EMCCD 0.05": Kind(40, lambda rng, e: _emccd(rng, 0.05 + e)),
        "gradient": Kind(900, _poisson(155 + 300 * x)),
        "vignette": Kind(500, _poisson(2 + 100 * vignette)),
        "cells 200": Kind(900, _poisson(10 + 200 * edges)),
        "cells 2000": Kind(2500, _poisson(10 + 2000 * bright)),
        "nuclei": Kind(1200, _poisson(nuclei)),
        "sCMOS": Kind(150, scmos),
        "sCMOS, map": Kind(150, scmos, has_map=True),
        "hot pixels": Kind(250, lambda rng, e: _counts(rng.poisson(10 + e) + 100 + hot)),
        "median": Kind(400, lambda rng, e: ndimage.median_filter(_poisson(30)(rng, e), 3)),
        "interpolated": Kind(400, _interpolated, shift=0.5),
        "blurred": Kind(400, _blurred),
        "8 bit": Kind(1200, lambda rng, e: np.clip(camera(rng, e) / 24, 0, 255).astype(np.uint8)),
        "JPEG 90": Kind(900, lambda rng, e: _jpeg(camera(rng, e), 90)),
        "JPEG 75": Kind(900, lambda rng, e: _jpeg(camera(rng, e), 75)),
    }


_POISSON = ((50, 400), (5, 150), (0.5, 60), (0.05, 40))
#: Smallest and largest radius of cells, and the width of their edges.
_CELLS = ((15, 40, 0.7), (15, 40, 0.7), (20, 30, 3.0))


def _counts(values: NDArray[np.generic]) -> NDArray[np.uint16]:
    return np.clip(np.rint(values), 0, 65535).astype(np.uint16)


def _poisson(level: float | Array) -> Callable[[np.random.Generator, Array], NDArray[np.uint16]]:
    return lambda rng, extra: _counts(rng.poisson(level + extra) + 100)


def _emccd(rng: np.random.Generator, light: Array) -> NDArray[np.uint16]:
    electrons = rng.poisson(light)
    amplified = rng.gamma(np.maximum(electrons, 1), 25.0) * (electrons > 0)
    return _counts(amplified + rng.normal(100, 3, light.shape))


def scmos_variance(shape: tuple[int, int], seed: int) -> Array:
    """Return the read-out variance of each pixel of an sCMOS camera, in counts²."""
    rng = np.random.default_rng(seed + 1)
    noisy = rng.random(shape) < 2e-3
    return np.where(noisy, rng.uniform(50, 1000, shape), 2.0)


def _interpolated(rng: np.random.Generator, extra: Array) -> NDArray[np.float32]:
    raw = rng.poisson(30 + extra) + 100.0
    return np.asarray(ndimage.shift(raw, (0.5, 0.5), order=1, mode="mirror"), np.float32)


def _blurred(rng: np.random.Generator, extra: Array) -> NDArray[np.float32]:
    return np.asarray(ndimage.gaussian_filter(rng.poisson(30 + extra) + 100.0, 1.0), np.float32)


def _jpeg(image: Array, quality: int) -> NDArray[np.uint8]:
    from PIL import Image

    low, high = image.min(), np.percentile(image, 99.95)
    stretched = np.clip((image - low) / (high - low) * 255, 0, 255).astype(np.uint8)
    file = io.BytesIO()
    Image.fromarray(stretched).save(file, "JPEG", quality=quality)
    return np.asarray(Image.open(io.BytesIO(file.getvalue())))


def _cells(
    rng: np.random.Generator, shape: tuple[int, int], least: float, most: float, edge: float
) -> Array:
    """Return 1 in cells of uneven outline and 0 between, with soft edges."""
    inside, pixels = np.zeros(shape, bool), np.indices(shape)
    for _ in range(max(4, shape[0] * shape[1] // 12000)):
        middle = [rng.uniform(0, size) for size in shape]
        (long, short), turn, phase = (
            rng.uniform(least, most, 2),
            rng.uniform(0, np.pi),
            rng.uniform(0, 6),
        )
        far = 1.12 * max(long, short) + 1
        around = tuple(slice(max(int(at - far), 0), int(at + far) + 1) for at in middle)
        y, x = (axis[around] - at for axis, at in zip(pixels, middle, strict=True))
        u, v = x * np.cos(turn) + y * np.sin(turn), y * np.cos(turn) - x * np.sin(turn)
        outline = 1 + 0.12 * np.sin(3 * np.arctan2(v, u) + phase)
        inside[around] |= (u / long) ** 2 + (v / short) ** 2 < outline**2
    return np.asarray(ndimage.gaussian_filter(inside.astype(float), edge))


# ---- Scores ----


def hits(found: Array, truth: Array, radius: float) -> int:
    """Count the pairs of true and found positions, one to one, the nearest first."""
    if not len(found) or not len(truth):
        return 0
    pairs = cKDTree(found).sparse_distance_matrix(cKDTree(truth), radius, output_type="ndarray")
    pairs = pairs[np.argsort(pairs["v"], kind="stable")]
    free, open_ = np.ones(len(found), bool), np.ones(len(truth), bool)
    count = 0
    for i, j in zip(pairs["i"], pairs["j"], strict=True):
        if free[i] and open_[j]:
            free[i] = open_[j] = False
            count += 1
    return count


def f1(found: list[Array], truth: list[Array], radius: float) -> float:
    """Return the F1 score of all frames together."""
    right = sum(hits(ours, theirs, radius) for ours, theirs in zip(found, truth, strict=True))
    return 2 * right / max(sum(map(len, found)) + sum(map(len, truth)), 1)
