"""Measure the estimates from images: the PSF's width, the noise and the gain."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator

import numpy as np
from common import bar
from noisy_scenes import Array, Scene, flat_scenes, noisy_scenes
from scenes import light, scattered
from trust_fits import COMPRESSED, FILTERED

import napari_spotfit as spotfit
from napari_spotfit.settings.noise_model import UNLIKE

# ---- The PSF's width ----

#: Widths, and largest relative error of an estimate.
WIDTHS, OFF = (0.8, 1.0, 1.3, 2.0, 3.0, 4.0), 0.05
#: Photons of a spot, and spots per 100 px²; both are those at σ 1.3.
SCENES = {
    "sparse": (1000, 0.008), "sparse, dim": (180, 0.008), "dim": (180, 0.07),
    "dense 2": (1000, 2.0), "dense 3": (1000, 3.0), "dense 2, dim": (180, 2.0),
    "dense 2, bright": (50_000, 2.0), "dense 3, bright": (50_000, 3.0),
}  # fmt: skip


def movie_of(name: str, sigma: float) -> np.ndarray:
    """Return frames with spots of a width, with density and photons scaled from σ 1.3."""
    photons, density = SCENES[name]
    rng = np.random.default_rng([77, len(name), round(10 * sigma)])
    each = round(density * 256**2 / 100 * ((1.3 / sigma) ** 2 if density >= 1 else 1))
    frames = [
        rng.poisson(10 + light(scattered(rng, (256, 256), each), photons * sigma / 1.3, sigma,
                               (256, 256)))
        for _ in range(16)
    ]  # fmt: skip
    return np.clip(np.array(frames) + 100, 0, 65535).astype(np.uint16)


def width_error(movie: np.ndarray, sigma: float) -> float:
    """Return the error of the estimate in percent; NaN without one.

    The true width of a sampled Gaussian on integrating pixels is √(σ² + 1/12).
    """
    try:
        return 100 * (spotfit.estimate_sigma(movie).sigma / math.hypot(sigma, 12**-0.5) - 1)
    except ValueError:
        return math.nan


def print_widths(quick: bool) -> None:
    """Print the error of each scene's estimate in percent, and the largest one."""
    sigmas = (1.3,) if quick else WIDTHS
    print("\nPSF's width: its error in %, the largest one")
    print(f"{'':>16}" + "".join(f"{f'σ {sigma}':>9}" for sigma in sigmas))
    rows = {name: {sigma: width_error(movie_of(name, sigma), sigma) for sigma in sigmas}
            for name in SCENES}  # fmt: skip
    for sigma in sigmas:
        for scene in noisy_scenes(sigma) if 1 <= sigma <= 2 else ():
            if scene.name not in FILTERED:
                error = width_error(np.array(scene.frames), sigma)
                rows.setdefault(scene.name, {})[sigma] = error
    for name, errors in rows.items():
        cells = [f"{errors[sigma]:+.1f}" if sigma in errors else "" for sigma in sigmas]
        # No estimate is as bad as one that is off by all of the width.
        largest = max(abs(np.nan_to_num(error, nan=100.0)) for error in errors.values())
        print(f"{name:>16}" + "".join(f"{c:>9}" for c in cells)
              + f"{largest:>7.1f} {bar(largest, most=100 * OFF)}")  # fmt: skip


# ---- Noise and gain ----


def taken(rng: np.random.Generator, electrons: Array, gain: float) -> np.ndarray:
    """Return the counts of a camera with some read-out noise."""
    counts = gain * (rng.poisson(electrons) + rng.normal(0, 1.5, electrons.shape)) + 100
    return np.rint(np.clip(counts, 0, 65535)).astype(np.uint16)


def uneven(rng: np.random.Generator) -> Iterator[tuple[str, np.ndarray]]:
    """Yield images that no single noise model fits."""
    shape = (256, 256)
    lights = np.stack([light(scattered(rng, shape, 100), 2000, 1.3, shape) for _ in range(12)])
    for pairs in (
        ((1.0, 5), (10.0, 1000)), ((0.5, 10), (8.0, 300)), ((1.0, 10), (8.0, 300)),
        ((0.5, 10), (4.0, 10)), ((2.2, 10), (4.4, 10)),
    ):  # fmt: skip
        own = [taken(rng, lights + background, gain) for gain, background in pairs]
        words = " and ".join(f"{gain:g} on {background}" for gain, background in pairs)
        yield f"channels of gain {words}", np.stack(own, 1)
    late = np.where(np.arange(12) < 6, 1.0, 4.0)[:, np.newaxis, np.newaxis]
    changed = (taken(rng, lights + 20, 2.2) - 100.0) * late + 100
    yield "four times the gain in the second half", changed
    for times in (3, 10):
        lamp = times ** -np.linspace(0, 1, 12)[:, np.newaxis, np.newaxis]
        faded = taken(rng, (lights + 60) * lamp, 2.2)
        yield f"bleached to 1/{times}, and scaled up again", (faded - 100.0) / lamp + 100


def one_camera(quick: bool) -> Iterator[tuple[Scene, np.ndarray]]:
    """Yield images of one camera each, of every kind."""
    for sigma in (1.3,) if quick else (0.7, 1.0, 1.3, 2.0):
        for seed in range(1 if quick else 3):
            for scene in flat_scenes(sigma, seed=911 + seed):
                yield scene, np.stack(scene.frames)
        for scene in noisy_scenes(sigma, 384, 3, 150):
            yield scene, np.stack(scene.frames)


def print_uneven(quick: bool) -> None:
    """Print how uneven noise is, and warnings of images of one camera."""
    print("\nNoise that no one model fits: the gain suggested, how uneven (warned of from this on)")
    for name, frames in uneven(np.random.default_rng(1)):
        noise = spotfit.noise_model(frames)
        gain = "none" if noise.gain is None else f"{noise.gain:.3g}"
        print(f"{name:55} gain {gain:>5} {noise.uneven:6.1f} {bar(noise.uneven, least=UNLIKE)}")
    images = list(one_camera(quick))
    found = [(scene.name, spotfit.noise_model(frames)) for scene, frames in images]
    wrong = [name for name, noise in found if noise.is_uneven]
    most = max(noise.uneven for _, noise in found)
    print(f"warned of {len(wrong)} of {len(found)} images of one camera {bar(len(wrong), most=0)} "
          f"{wrong or ''}; the most uneven one {most:.2f}")  # fmt: skip
    raw = [(scene, frames) for scene, frames in images
           if scene.name not in (*FILTERED, *COMPRESSED)]  # fmt: skip
    warned = [scene.name for scene, frames in raw if _is_warned_of(scene, frames)]
    print(f"localize warns of {len(warned)} of {len(raw)} raw ones {bar(len(warned), most=0)} "
          f"{warned or ''}")  # fmt: skip


def _is_warned_of(scene: Scene, frames: np.ndarray) -> bool:
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        spotfit.localize(frames, sigma=scene.sigma)
    return bool(said)
