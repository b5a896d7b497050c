"""Images as people have them: filtered, clipped, deconvolved, mosaics, strobed, with sharp spots."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import common
import numpy as np
from noisy_scenes import Array, hits, kinds
from scenes import light
from scipy import ndimage
from scipy.spatial import cKDTree
from skimage import filters, restoration

import napari_spotfit as spotfit

SIDE, SIGMA, SEED = 512, 1.3, 1009
#: Places agree within so many pixels.
NEAR = 2.0


class Image(NamedTuple):
    """One image, where its spots are, and what is known of it."""

    name: str
    pixels: Any
    #: y and x of the spots of each frame, or of the only one.
    truth: list[Array]
    options: dict[str, Any]
    #: What must hold of it, by name.
    limits: dict[str, float]


class Found(NamedTuple):
    """What was made of an image."""

    f1: float
    recall: float
    precision: float
    #: Good fits where there is nothing, per 10⁶ pixels, and all fits there.
    false: float
    found: float
    warnings: int


def examined(image: Image) -> Found:
    """Return what a fit with the image's options finds."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        fits = spotfit.localize(image.pixels, **image.options)
    points = np.asarray(fits.points(), float)
    if points.shape[1] == 2:
        points = np.column_stack([np.zeros(len(points)), points])
    near = image.options.get("sigma", SIGMA) * NEAR / SIGMA
    right = any_right = true = 0
    for frame, places in enumerate(image.truth):
        own = points[:, 0] == frame
        right += hits(points[own & fits.good, 1:], places, near)
        any_right += hits(points[own, 1:], places, near)
        true += len(places)
    good, megapixels = int(fits.good.sum()), np.size(image.pixels) / 1e6
    return Found(
        2 * right / max(good + true, 1), right / max(true, 1), right / max(good, 1),
        (good - right) / megapixels, (len(fits) - any_right) / megapixels, len(said),
    )  # fmt: skip


def _light(rng: np.random.Generator, count: int, height: float, sigma: float = SIGMA,
           side: int = SIDE) -> tuple[Array, Array]:  # fmt: skip
    """Return the light of spots of a height, and where they are."""
    places = rng.uniform(10, side - 10, (count, 2))
    return light(places, height * 2 * math.pi * sigma**2, sigma, (side, side)), places


def _cells(side: int = SIDE) -> Array:
    y, x = np.indices((side, side)) // 128
    return 10 + 150.0 * ((y + x) % 2)


def _psf(sigma: float = SIGMA) -> Array:
    line = np.exp(-(np.arange(-10, 11) ** 2) / (2 * sigma**2))
    return np.outer(line, line) / line.sum() ** 2


def _scaled(way: Callable[[Array], Array]) -> Callable[[Array], Array]:
    """Return a way for images in [0, 1]."""
    return lambda image: way(image / image.max()) * image.max()


def _ideal_low_pass(image: Array, limit: float = 0.2) -> Array:
    frequency = np.hypot(*np.meshgrid(*(np.fft.fftfreq(n) for n in image.shape), indexing="ij"))
    return np.asarray(np.fft.ifft2(np.fft.fft2(image) * (frequency < limit)).real)


def _anisotropic(image: Array, rounds: int = 15) -> Array:
    """Return an image after diffusion that stops at edges."""
    scale = 2 * np.std(np.diff(image))
    for _ in range(rounds):
        steps = [np.roll(image, way, axis) - image for axis in (0, 1) for way in (1, -1)]
        image = image + 0.2 * sum(step * np.exp(-((step / scale) ** 2)) for step in steps)
    return image


#: Filters after which there is a cut at 0, other filters, denoisers, deconvolutions.
CUT: dict[str, Callable[[Array], Array]] = {
    "LoG 1.3": lambda a: -ndimage.gaussian_laplace(a, 1.3),
    "LoG 2": lambda a: -ndimage.gaussian_laplace(a, 2.0),
    "DoG 1, 2": lambda a: ndimage.gaussian_filter(a, 1) - ndimage.gaussian_filter(a, 2),
    "DoG 1.3, 5": lambda a: ndimage.gaussian_filter(a, 1.3) - ndimage.gaussian_filter(a, 5),
    "Gaussian 1 less its median": lambda a: (b := ndimage.gaussian_filter(a, 1)) - np.median(b),
    "less the median of 15": lambda a: a - ndimage.median_filter(a, 15),
    "less its median": lambda a: a - np.median(a),
    "Gaussian 1, top hat 9": lambda a: ndimage.white_tophat(ndimage.gaussian_filter(a, 1), 9),
    "Gaussian 1, top hat 5": lambda a: ndimage.white_tophat(ndimage.gaussian_filter(a, 1), 5),
}
FILTERS: dict[str, Callable[[Array], Array]] = {
    "Butterworth .1": lambda a: filters.butterworth(a, 0.1, False, 2),
    "Butterworth .15": lambda a: filters.butterworth(a, 0.15, False, 2),
    "Butterworth .2": lambda a: filters.butterworth(a, 0.2, False, 2),
    "Butterworth .15, 4": lambda a: filters.butterworth(a, 0.15, False, 4),
    "ideal low pass .2": _ideal_low_pass,
    "mean 3×3": lambda a: ndimage.uniform_filter(a, 3),
    "mean 3×3, rounded": lambda a: np.rint(ndimage.uniform_filter(a, 3)),
    "mean 5×5": lambda a: ndimage.uniform_filter(a, 5),
    "Gaussian .5": lambda a: ndimage.gaussian_filter(a, 0.5),
    "Gaussian 1": lambda a: ndimage.gaussian_filter(a, 1.0),
    "Gaussian 2": lambda a: ndimage.gaussian_filter(a, 2.0),
    "median 3×3": lambda a: ndimage.median_filter(a, 3),
    "median, disc of 2": lambda a: ndimage.median_filter(
        a, footprint=np.hypot(*np.mgrid[-2:3, -2:3]) < 2.3
    ),
    "median 5×5": lambda a: ndimage.median_filter(a, 5),
    "largest of 3×3": lambda a: ndimage.maximum_filter(a, 3),
    "unsharp mask": lambda a: a + 1.5 * (a - ndimage.gaussian_filter(a, 2.0)),
    "turned by 10°": lambda a: ndimage.rotate(a, 10, reshape=False, order=3, mode="mirror"),
}
DENOISERS: dict[str, Callable[[Array], Array]] = {
    "Wiener 3": lambda a: _wiener(a, 3),
    "Wiener 5": lambda a: _wiener(a, 5),
    "total variation": _scaled(lambda a: restoration.denoise_tv_chambolle(a, 0.05)),
    "bilateral": _scaled(lambda a: restoration.denoise_bilateral(a, 5, 0.1, 1.5)),
    "non-local means": _scaled(
        lambda a: restoration.denoise_nl_means(a, 5, 5, h=0.6 * np.std(np.diff(a)) / 2**0.5)
    ),
    "diffusion": _anisotropic,
}
DECONVOLVED: dict[str, Callable[[Array], Array]] = {
    "Richardson–Lucy 5": _scaled(
        lambda a: restoration.richardson_lucy(a, _psf(), 5, clip=False)
    ),
    "Richardson–Lucy 10": _scaled(
        lambda a: restoration.richardson_lucy(a, _psf(), 10, clip=False)
    ),
    "Wiener, deconvolved": _scaled(lambda a: restoration.wiener(a, _psf(), 0.5, clip=False)),
    "Wiener, deconvolved more": _scaled(lambda a: restoration.wiener(a, _psf(), 0.05, clip=False)),
}


def _wiener(image: Array, size: int) -> Array:
    from scipy import signal

    return np.asarray(signal.wiener(image, size))


def _mosaic(weights: Array) -> Array:
    rows, columns = weights.shape
    return np.tile(weights, (-(-SIDE // rows), -(-SIDE // columns)))[:SIDE, :SIDE]


#: Sensitivities of neighbouring pixels, one pattern after the other.
MOSAICS = {
    "Bayer": np.array([[0.35, 1.0], [1.0, 0.12]]),
    "Bayer, red": np.array([[1.0, 0.5], [0.5, 0.2]]),
    "every second column": np.array([[1.0, 0.7]]),
    "every second row": np.array([[1.0], [0.6]]),
    "polarisers": np.array([[0.5, 0.9], [0.1, 0.5]]),
    "X-Trans": 0.2 + 0.8 * (np.indices((3, 3)).sum(0) % 2),
}

FALSE, F1, GOOD = 30.0, 0.9, 15.0


def processed() -> Iterator[Image]:
    """Yield every processed image, without spots and with some."""
    given = {"sigma": SIGMA}
    for name, way in CUT.items():
        for seed in (0, 1):
            rng = np.random.default_rng([SEED, seed])
            cut = np.maximum(way(rng.poisson(20, (SIDE, SIDE)).astype(float)), 0)
            yield Image(f"{name}, cut at 0; no spots", cut, [], given, {"false": FALSE})
        lights, places = _light(rng, 100, 60)
        cut = np.maximum(way(rng.poisson(20 + lights).astype(float)), 0)
        yield Image(f"{name}, cut at 0", cut, [places], given, {"false": FALSE, "recall": 0.8})
    for name, way in {**FILTERS, **DENOISERS, **DECONVOLVED}.items():
        for spots in (60, 300):
            for on in ("flat", "cells"):
                rng = np.random.default_rng([SEED, spots])
                base = _cells() if on == "cells" else np.full((SIDE, SIDE), 20.0)
                lights, places = _light(rng, spots, 85 if on == "flat" else 140)
                pixels = way(rng.poisson(base + lights).astype(float))
                if on == "flat":
                    limits = {"false": FALSE, "f1": F1}
                else:
                    limits = {"precision": F1 if spots > 60 else 0.7}
                yield Image(f"{name}; {spots} on {on}", pixels, [places], given, limits)
    yield from patterns()
    yield from backgrounds()


def patterns() -> Iterator[Image]:
    """Yield mosaics, enlarged images and copies of 8 bits."""
    rng = np.random.default_rng(SEED)
    for name, weights in MOSAICS.items():
        lights, places = _light(rng, 300, 85)
        pixels = (rng.poisson((20 + lights) * _mosaic(weights)) + 100).astype(np.uint16)
        yield Image(name, pixels, [places], {"sigma": SIGMA}, {"f1": F1, "false": FALSE})
    for times in (2, 3, 4):
        side = SIDE // times
        lights, places = _light(rng, 60 // times, 85, side=side)
        pixels = np.kron(rng.poisson(20 + lights), np.ones((times, times), int))
        told = {"sigma": SIGMA * times}
        true = [(places + 0.5) * times - 0.5]
        yield Image(f"enlarged {times} times", pixels, true, told, {"f1": F1, "warnings": 1})
    for noise in (0.25, 0.33, 0.5):
        lights, places = _light(rng, 200, 8 * math.sqrt(100), side=SIDE)
        counts = rng.poisson(100 + lights) * noise / 10
        copy = np.clip(np.floor(counts), 0, 255).astype(np.uint8)
        yield Image(f"8 bits, noise {noise}", copy, [places], {"sigma": SIGMA}, {"precision": 0.93})


def backgrounds() -> Iterator[Image]:
    """Yield nuclei and an sCMOS camera without its map, without spots."""
    for name, all_fits, good in (("nuclei", 100.0, GOOD), ("sCMOS", 60.0, GOOD)):
        frames = []
        for seed in range(4):
            rng = np.random.default_rng([SEED, seed])
            kind = kinds((SIDE, SIDE), SEED + seed)[name]
            frames.append(kind.image(rng, np.zeros((SIDE, SIDE))))
        for one in frames:
            limits = {"found": all_fits, "false": good}
            yield Image(f"{name}; no spots", one, [], {"sigma": SIGMA}, limits)
