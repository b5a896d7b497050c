"""Measure results in processed images: filtered, clipped, deconvolved, mosaics, strobed, sharp."""

from __future__ import annotations

import itertools
import math
import warnings
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import PIL.Image
from common import bar
from noisy_scenes import Array, hits, kinds
from scenes import light
from scipy import ndimage
from scipy.spatial import cKDTree
from skimage import filters, restoration
from skimage.feature import peak_local_max

import napari_spotfit as spotfit

SIDE, SIGMA, SEED = 512, 1.3, 1009
#: Largest distance of matching positions in pixels.
NEAR = 2.0


class Image(NamedTuple):
    """An image, the positions of its spots, and known settings."""

    name: str
    pixels: Any
    #: y and x of the spots in each frame.
    truth: list[Array]
    options: dict[str, Any]
    #: Limits of the results by name.
    limits: dict[str, float]


class Found(NamedTuple):
    """Results for an image."""

    f1: float
    recall: float
    precision: float
    #: False good fits, and all false fits, per 10⁶ pixels.
    false: float
    found: float
    warnings: int

    @property
    def silent(self) -> int:
        """Whether results are not right, and nothing warns of it."""
        return int(not self.warnings and (self.false > FALSE or self.f1 < F1))


def examined(image: Image) -> tuple[Found, spotfit.NoiseModel]:
    """Return the results of a fit with the image's options, and its noise model."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        fits = spotfit.localize(image.pixels, **image.options)
    points = np.asarray(fits.points(), float)
    if points.shape[1] == 2:
        points = np.column_stack([np.zeros(len(points)), points])
    fits = fits[np.isfinite(points).all(axis=1)]
    points = points[np.isfinite(points).all(axis=1)]
    near = image.options.get("sigma", SIGMA) * NEAR / SIGMA
    right = any_right = true = 0
    for frame, places in enumerate(image.truth):
        own = points[:, 0] == frame
        right += hits(points[own & fits.good, 1:], places, near)
        any_right += hits(points[own, 1:], places, near)
        true += len(places)
    good, megapixels = int(fits.good.sum()), np.size(image.pixels) / 1e6
    found = Found(
        2 * right / max(good + true, 1), right / max(true, 1), right / max(good, 1),
        (good - right) / megapixels, (len(fits) - any_right) / megapixels, len(said),
    )  # fmt: skip
    return found, fits.settings.noise


def _light(rng: np.random.Generator, count: int, height: float, sigma: float = SIGMA,
           side: int = SIDE) -> tuple[Array, Array]:  # fmt: skip
    """Return the light of spots of a height, and their positions."""
    places = rng.uniform(10, side - 10, (count, 2))
    return light(places, height * 2 * math.pi * sigma**2, sigma, (side, side)), places


def _cells() -> Array:
    """Return cells in a pattern of squares, with edges blurred by the PSF."""
    inside = ((np.indices((SIDE, SIDE)) // 128).sum(axis=0) % 2).astype(float)
    return 10 + 150 * ndimage.gaussian_filter(inside, SIGMA)


def _psf(sigma: float = SIGMA) -> Array:
    line = np.exp(-(np.arange(-10, 11) ** 2) / (2 * sigma**2))
    return np.outer(line, line) / line.sum() ** 2


def _scaled(way: Callable[[Array], Array]) -> Callable[[Array], Array]:
    """Wrap a function for images in [0, 1]."""
    return lambda image: way(image / image.max()) * image.max()


def _ideal_low_pass(image: Array, limit: float = 0.2) -> Array:
    frequency = np.hypot(*np.meshgrid(*(np.fft.fftfreq(n) for n in image.shape), indexing="ij"))
    return np.asarray(np.fft.ifft2(np.fft.fft2(image) * (frequency < limit)).real)


def _anisotropic(image: Array, rounds: int = 15) -> Array:
    """Apply edge-preserving diffusion to an image."""
    scale = 2 * np.std(np.diff(image))
    for _ in range(rounds):
        steps = [np.roll(image, way, axis) - image for axis in (0, 1) for way in (1, -1)]
        image = image + 0.2 * sum(step * np.exp(-((step / scale) ** 2)) for step in steps)
    return image


#: Filters followed by clipping at 0, other filters, denoisers, deconvolutions.
CUT: dict[str, Callable[[Array], Array]] = {
    "LoG 1.3": lambda a: -ndimage.gaussian_laplace(a, 1.3),
    "LoG 2": lambda a: -ndimage.gaussian_laplace(a, 2.0),
    "LoG 1.3, rounded": lambda a: np.rint(-ndimage.gaussian_laplace(a, 1.3)),
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
    "Richardson–Lucy 5": _scaled(lambda a: restoration.richardson_lucy(a, _psf(), 5, clip=False)),
    "Richardson–Lucy 10": _scaled(lambda a: restoration.richardson_lucy(a, _psf(), 10, clip=False)),
    "Wiener, deconvolved": _scaled(lambda a: restoration.wiener(a, _psf(), 0.5, clip=False)),
    "Wiener, deconvolved more": _scaled(lambda a: restoration.wiener(a, _psf(), 0.05, clip=False)),
}
#: Filters that leave fine detail nearly as it was, and what takes a background away.
NEARLY_RAW: dict[str, Callable[[Array], Array]] = {
    "outliers by 1 deviation": lambda a: _without_outliers(a, 1.0),
    "outliers by 2 deviations": lambda a: _without_outliers(a, 2.0),
    "mean of four neighbours": lambda a: ndimage.convolve(a, _FOUR / 4),
    "mean of eight neighbours": lambda a: (9 * ndimage.uniform_filter(a, 3) - a) / 8,
    "mean with half a pixel away": lambda a: (a + ndimage.shift(a, (0.5, 0.5), order=1)) / 2,
    "DoG 1.3, 3": lambda a: ndimage.gaussian_filter(a, 1.3) - ndimage.gaussian_filter(a, 3),
}
LEVELLED: dict[str, Callable[[Array], Array]] = {
    "top hat 5": lambda a: ndimage.white_tophat(a, 5),
    "top hat 9": lambda a: ndimage.white_tophat(a, 9),
    "top hat 15": lambda a: ndimage.white_tophat(a, 15),
    "top hat, disc of 4": lambda a: ndimage.white_tophat(
        a, footprint=np.hypot(*np.mgrid[-4:5, -4:5]) <= 4
    ),
    "rolling ball 10": lambda a: a - restoration.rolling_ball(a, radius=10),
    "less the median of 15, cut at 0": lambda a: np.maximum(a - ndimage.median_filter(a, 15), 0),
}
#: What changes intensities, pixel by pixel.
TRANSFORMED: dict[str, Callable[[Array], Array]] = {
    "logarithm": lambda a: np.log(np.maximum(a, 1)),
    "gamma .4": lambda a: a**0.4,
    "gamma 2": lambda a: a**2,
}
_FOUR = np.array([[0, 1, 0], [1, 0, 1], [0, 1, 0]])


def _without_outliers(image: Array, deviations: float) -> Array:
    """Return an image with medians where pixels differ from them."""
    middle = ndimage.median_filter(image, 3)
    noise = np.median(abs(image - middle)) / 0.6745
    return np.where(abs(image - middle) > deviations * noise, middle, image)


def _wiener(image: Array, size: int) -> Array:
    from scipy import signal

    return np.asarray(signal.wiener(image, size))


def _mosaic(weights: Array) -> Array:
    rows, columns = weights.shape
    return np.tile(weights, (-(-SIDE // rows), -(-SIDE // columns)))[:SIDE, :SIDE]


#: Patterns of sensitivities of neighbouring pixels.
MOSAICS = {
    "Bayer": np.array([[0.35, 1.0], [1.0, 0.12]]),
    "Bayer, red": np.array([[1.0, 0.5], [0.5, 0.2]]),
    "every second column": np.array([[1.0, 0.7]]),
    "every second row": np.array([[1.0], [0.6]]),
    "polarisers": np.array([[0.5, 0.9], [0.1, 0.5]]),
    "X-Trans": 0.2 + 0.8 * (np.indices((3, 3)).sum(0) % 2),
}
#: What leaves waves along the edges of cells, which are no noise; and a filter wider than spots.
RINGING = (*DECONVOLVED, "ideal low pass .2", "non-local means")
WIDE = ("Butterworth .1", "Gaussian 2")
#: The most good fits of nothing per 10⁶ px, and the least F1; which limits are upper ones.
FALSE, F1, MOST = 30.0, 0.9, ("false", "found", "silent")


def _image(name: str, pixels: Any, places: Array | None, limits: dict[str, float],
           sigma: float = SIGMA) -> Image:  # fmt: skip
    return Image(name, pixels, [] if places is None else [places], {"sigma": sigma}, limits)


def processed(seed: int) -> Iterator[Image]:
    """Yield images that were filtered, clipped, denoised or deconvolved."""
    for name, way in CUT.items():
        for spots in (0, 100):
            rng = np.random.default_rng([seed, spots])
            lights, places = _light(rng, spots, 85)
            cut = np.maximum(way(rng.poisson(20 + lights).astype(float)), 0)
            limits = {"false": FALSE, "recall": 0.8} if spots else {"false": FALSE}
            yield _image(f"{name}, cut at 0; {spots} spots", cut, places, limits)
    for name, way in {**FILTERS, **DENOISERS, **DECONVOLVED}.items():
        for spots, on in itertools.product((60, 300), ("flat", "cells")):
            rng = np.random.default_rng([seed, spots])
            base = _cells() if on == "cells" else np.full((SIDE, SIDE), 20.0)
            lights, places = _light(rng, spots, 85 if on == "flat" else 140)
            pixels = way(rng.poisson(base + lights).astype(float))
            if name.startswith("turned"):
                places = _turned(places)
            limits = {"f1": 0.85 if name in WIDE else F1} if on == "flat" else {"precision": 0.9}
            if on == "cells" and name in RINGING:
                limits = {"warnings": 1}
            yield _image(f"{name}; {spots} on {on}", pixels, places, limits)


def nearly_raw(seed: int) -> Iterator[Image]:
    """Yield images whose detail looks raw, without their background, or with other intensities."""
    for name, way in {**NEARLY_RAW, **LEVELLED, **TRANSFORMED}.items():
        for spots, on in itertools.product((60, 300), ("flat", "gradient", "cells")):
            rng = np.random.default_rng([seed, spots, len(on)])
            base = _cells() if on == "cells" else np.full((SIDE, SIDE), 20.0)
            if on == "gradient":
                base = base * (0.3 + 5 * np.indices((SIDE, SIDE))[1] / SIDE)
            lights, places = _light(rng, spots, 140 if on == "cells" else 85)
            pixels = way(rng.poisson(base + lights).astype(float))
            yield _image(f"{name}; {spots} on {on}", pixels, places, {"silent": 0})


#: Wider spots, for which filters are too narrow.
WIDER = 1.8


def _landweber(image: Array, rounds: int = 10) -> Array:
    """Return an image that was deconvolved by Landweber's method."""
    away = image - image.min()
    guess = away.copy()
    for _ in range(rounds):
        left = away - ndimage.gaussian_filter(guess, WIDER)
        guess = np.maximum(guess + 1.5 * ndimage.gaussian_filter(left, WIDER), 0)
    return guess


def _wavelet_planes(image: Array) -> Array:
    """Return the second and third plane of a wavelet transform with holes."""
    kernel, smooth = np.array([1, 4, 6, 4, 1]) / 16, [image]
    for spread in (1, 2, 4):
        own = np.zeros(4 * spread + 1)
        own[::spread] = kernel
        smooth.append(ndimage.convolve1d(ndimage.convolve1d(smooth[-1], own, 0), own, 1))
    return smooth[1] - smooth[3]


def _by_area(image: Array, sigma: float = 10.0) -> Array:
    """Return an image whose contrast is the same in all areas."""
    away = image - ndimage.gaussian_filter(image, sigma)
    return away / np.sqrt(ndimage.gaussian_filter(away**2, sigma))


#: Filters by place, of rank, band-passes and deconvolutions that no rule was made for before.
BY_PLACE: dict[str, Callable[[Array], Array]] = {
    "DoG 1, 5": lambda a: ndimage.gaussian_filter(a, 1) - ndimage.gaussian_filter(a, 5),
    "DoG .7, 10": lambda a: ndimage.gaussian_filter(a, 0.7) - ndimage.gaussian_filter(a, 10),
    "wavelet planes 2 and 3": _wavelet_planes,
    "contrast by area": _by_area,
    "Landweber 10": _landweber,
    "Landweber 30": lambda a: _landweber(a, 30),
    "outliers by 2, brighter ones": lambda a: np.minimum(a, _without_outliers(a, 2.0)),
    "closing 3": lambda a: ndimage.grey_closing(a, 3),
}


def by_place(seed: int) -> Iterator[Image]:
    """Yield images whose noise light does not explain, and what was made of several images."""
    for spots, on in itertools.product((60, 300), ("gradient", "cells")):
        rng = np.random.default_rng([seed, spots, len(on), 7])
        base = _cells() if on == "cells" else 6 + 100 * np.indices((SIDE, SIDE))[1] / SIDE
        sigma, places = (SIGMA if on == "cells" else WIDER), rng.uniform(8, SIDE - 9, (spots, 2))
        local = base[tuple(np.rint(places).astype(int).T)]
        heights = 7 * np.sqrt(local + 10) * rng.uniform(1, 2.5, spots) + 10
        lights = light(places, heights * 2 * math.pi * sigma**2, sigma, (SIDE, SIDE))
        raw = rng.poisson(base + lights) + rng.normal(100, 1.5, base.shape)
        for name, way in BY_PLACE.items():
            yield _image(f"{name}; {spots} on {on}", way(raw), places, {"silent": 0}, sigma)
        planes = [
            rng.poisson(ndimage.gaussian_filter(base + lights, 0.5 + 0.9 * abs(z - 4)))
            for z in range(9)
        ]
        most = np.max([ndimage.gaussian_filter(one.astype(float), 1) for one in planes], axis=0)
        name = f"brightest of blurred planes; {spots} on {on}"
        yield _image(name, most, places, {"silent": 0}, sigma)
        side = round(0.7 * SIDE)
        smaller = PIL.Image.fromarray(raw.astype(np.float32)).resize(
            (side, side), PIL.Image.Resampling.LANCZOS
        )
        scale = side / SIDE
        yield _image(f"Lanczos, .7 times; {spots} on {on}", np.asarray(smaller),
                     (places + 0.5) * scale - 0.5, {"silent": 0}, sigma * scale)  # fmt: skip


def _turned(places: Array, degrees: float = 10.0) -> Array:
    angle, middle = np.radians(degrees), (SIDE - 1) / 2
    y, x = (places - middle).T
    turned = np.column_stack([y * np.cos(angle) - x * np.sin(angle),
                              y * np.sin(angle) + x * np.cos(angle)])  # fmt: skip
    return turned + middle


def patterns(seed: int) -> Iterator[Image]:
    """Yield images with unusual steps, types and patterns of pixels."""
    rng = np.random.default_rng(seed)
    for spots in (100, 300):
        lights, places = _light(rng, spots, 140)
        sharp = 10 + 150.0 * (np.indices((SIDE, SIDE)) // 128).sum(axis=0) % 2
        raw = rng.poisson(sharp + lights).astype(np.uint16)
        despeckled = ndimage.median_filter(raw, 3)
        yield _image(f"despeckled counts; {spots} in cells", despeckled, places, {"precision": 0.9})
    lights, places = _light(rng, 100, 85)
    blurred = np.rint(ndimage.gaussian_filter(rng.poisson(20.0 + lights).astype(float), 1))
    for kind in ("u2", "i4", "f4", "f8"):
        limits = {"f1": 0.95, "false": FALSE}
        yield _image(f"rounded blur as {kind}", blurred.astype(kind), places, limits)
    yield _image("rounded blur in [0, 1]", (blurred / 4095).astype("f4"), places, limits)
    for name, weights in MOSAICS.items():
        lights, places = _light(rng, 300, 85)
        pixels = (rng.poisson((20 + lights) * _mosaic(weights)) + 100).astype(np.uint16)
        yield _image(name, pixels, places, {"warnings": 1, "false": FALSE})
    for times in (2, 3, 4):
        lights, places = _light(rng, 60 // times, 85, side=SIDE // times)
        pixels = np.kron(rng.poisson(20 + lights), np.ones((times, times), int))
        true, limits = (places + 0.5) * times - 0.5, {"f1": F1, "warnings": 1}
        yield _image(f"enlarged {times} times", pixels, true, limits, SIGMA * times)
    for noise, height in itertools.product((0.2, 0.25, 0.33, 0.5), (40, 80)):
        lights, places = _light(rng, 200, height)
        shade = 60 + 80 * np.indices((SIDE, SIDE))[1] / SIDE
        copy = np.clip(rng.poisson(shade + lights) * noise / 10, 0, 255).astype(np.uint8)
        yield _image(f"8 bits, noise {noise}, {height}", copy, places, {"precision": 0.93})


def backgrounds(seed: int) -> Iterator[Image]:
    """Yield nuclei and an sCMOS camera without its map, without spots."""
    for name, all_fits in (("nuclei", 100.0), ("sCMOS", 60.0)):
        frames = [
            kinds((SIDE, SIDE), seed + i)[name].image(np.random.default_rng([seed, i]), 0.0)
            for i in range(4)
        ]
        pixels = np.stack(frames)
        yield _image(f"{name}; no spots", pixels, None, {"found": all_fits, "false": 15.0})


WAYS = (patterns, processed, nearly_raw, by_place, backgrounds)


def print_processed(quick: bool) -> None:
    """Print the results in processed images, with limits."""
    print(f"\nProcessed images{'':>32}{'F1':>5}{'recall':>8}{'precision':>11}{'false':>7}"
          f"{'found':>7} per Mpx; what was probably done")  # fmt: skip
    count = 0
    for image in itertools.chain(*(way(SEED) for way in WAYS)):
        if quick and count % 5:
            count += 1
            continue
        own, noise = examined(image)
        limits = " ".join(
            f"{name} {bar(value, most=limit) if name in MOST else bar(value, least=limit)}"
            for name, limit in image.limits.items() for value in (getattr(own, name),)
        )  # fmt: skip
        print(f"{image.name:>47}{own.f1:>6.2f}{own.recall:>8.2f}{own.precision:>11.2f}"
              f"{own.false:>7.0f}{own.found:>7.0f}  {noise.process or '–':<12}{limits}",
              flush=True)  # fmt: skip
        count += 1


#: Spots of these densities per 100 px² have places without any between, and none.
SHARP, FULL = (0.3, 1.0, 1.5, 2.0, 2.5), (3.0, 5.0, 8.0, 12.0)
#: Least recall of spots that stand alone; how far that of all may be below local maxima's.
ALONE, BEHIND = 0.97, 0.05


def print_sharp(quick: bool) -> None:
    """Print the recall of sharp and bright spots, and of plain local maxima."""
    for densities, lights in ((SHARP, (500, 3000, 10_000, 100_000)), (FULL, (3000, 100_000))):
        densities = densities[:: len(densities) - 1] if quick else densities
        words = ", ".join(f"{density:g}" for density in densities)
        print(f"\nSharp spots, {words} per 100 px²: recall of those that stand alone, of all / of "
              "plain local maxima; least difference")  # fmt: skip
        for sigma, photons in itertools.product((0.6, 0.8, 1.0, 1.1), lights):
            found = [_sharp(sigma, photons, density) for density in densities]
            cells = " | ".join(f"{share:.2f} {own:.2f}/{plain:.2f}" for share, own, plain in found)
            ahead = min(own - plain for _, own, plain in found)
            line = (
                f"σ {sigma}, {photons:>6} photons: {cells} {ahead:+.3f} {bar(ahead, least=-BEHIND)}"
            )
            if densities[0] == SHARP[0]:
                alone = min(share for share, _, _ in found)
                line += f" alone {alone:.2f} {bar(alone, least=ALONE)}"
            print(line, flush=True)


def _sharp(sigma: float, photons: float, density: float) -> tuple[float, float, float]:
    """Return the recall of spots that stand alone, of all, and of plain local maxima."""
    rng = np.random.default_rng([SEED, round(10 * sigma), round(10 * density)])
    places = rng.uniform(4, 251, (round(density * 655.36), 2))
    image = rng.poisson(50 + light(places, photons, sigma, (256, 256)))
    image = np.minimum(image, 65535).astype(np.uint16)
    fits = spotfit.localize(image, sigma=sigma)
    found = np.column_stack([fits.y, fits.x]).astype(float)
    found = found[np.isfinite(found).all(axis=1)]
    least = 50 + 0.1 * photons / (2 * math.pi * (sigma**2 + 1 / 12))
    peaks = peak_local_max(image, min_distance=1, threshold_abs=least).astype(float)
    radius, tree = max(sigma, 1.0), cKDTree(places)
    alone = tree.query(places, 2)[0][:, 1] > 4 * sigma
    near = cKDTree(found).query(places)[0] < radius if len(found) else np.zeros(len(places))
    own, plain = (hits(these, places, radius) / len(places) for these in (found, peaks))
    return float(near[alone].mean()) if alone.any() else 1.0, own, plain


def print_strobed(quick: bool) -> None:
    """Print the results in lit and in dark frames, for several periods."""
    print("\nStrobed light: good fits over spots in lit frames, false ones per Mpx in dark ones")
    rng, side, spots = np.random.default_rng(SEED), 256, 50
    lit = [_light(rng, spots, 190, side=side)[0] for _ in range(4)]
    for dark in (0.0, 5.0, 1000.0):
        for period in (2, 25) if quick else (2, 3, 5, 10, 25):
            light_of = [lit[i % 4] + 50 if i % period == 1 else dark for i in range(200)]
            movie = np.stack([
                np.rint(rng.poisson(np.broadcast_to(own, (side, side)))
                        + rng.normal(100, 2, (side, side))).astype(np.uint16)
                for own in light_of
            ])  # fmt: skip
            good = (fits := spotfit.localize(movie))[fits.good]
            is_lit = np.asarray(good.points(), float)[:, 0] % period == 1
            count = len(range(1, 200, period))
            share = is_lit.sum() / spots / count
            false = (~is_lit).sum() / ((200 - count) * side**2 / 1e6)
            print(f"every {period:>2}. frame, dark ones {dark:>5g}: {share:.3f} "
                  f"{bar(share, least=0.9)} {bar(share, most=1.1)}, {false:.1f} "
                  f"{bar(false, most=FALSE)}", flush=True)  # fmt: skip
