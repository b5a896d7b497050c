"""Random images, maps and settings for tools/random_cases.py.

All random numbers come from NumPy, so that each version of the package gets the same.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from napari_spotfit import Camera, Profile, Settings

DTYPES = [np.uint16, np.uint8, np.int16, np.float32, np.float64, np.int32]
#: Models, and their shape parameters other than the centre.
OWN = {
    "own flat top": lambda: Profile.from_expression(
        "exp(-(((x-x0)**2 + (y-y0)**2) / (2*s**2))**q)",
        start={"s": "sigma", "q": 1}, bounds={"s": (0.3, 20), "q": (0.2, 5)},
    ),
    "own ring": lambda: Profile.from_expression(
        "exp(-((x-x0)**2 + (y-y0)**2) / (2*s**2)) * (1 + 0.1*cos(x - x0))", start={"s": "sigma"}
    ),
}  # fmt: skip
WIDTHS = {
    "gaussian": ("sigma",),
    "gaussian_elliptical": ("sigma_x", "sigma_y"),
    "gaussian_rotated": ("sigma_x", "sigma_y", "angle"),
    "lorentzian": ("width",),
    "moffat": ("width", "exponent"),
    "own flat top": ("s", "q"),
    "own ring": ("s",),
}
#: Kinds of fits: model and pixel.
KINDS = [
    *((model, "sampled") for model in WIDTHS),
    ("gaussian", "integrated"),
    ("gaussian_elliptical", "integrated"),
]


# ---- Images ----


def spots_image(
    rng: np.random.Generator, shape: tuple[int, int], count: int, *, sigma: float, photons: float
) -> np.ndarray[Any, Any]:
    """Return the expected light of spots at random positions, without background."""
    y, x = (rng.uniform(-1, side, count)[:, None] for side in shape)
    width = sigma * rng.uniform(0.8, 1.25, (count, 1))
    v = np.exp(-0.5 * ((np.arange(shape[0]) - y) / width) ** 2)
    u = np.exp(-0.5 * ((np.arange(shape[1]) - x) / width) ** 2)
    height = photons * rng.uniform(0.3, 2, (count, 1)) / (2 * np.pi * width**2)
    return (v * height).T @ u


def as_type(rng: np.random.Generator, values: Any, dtype: Any) -> np.ndarray[Any, Any]:
    """Return counts as pixels of a type; narrow ones saturate."""
    if np.issubdtype(dtype, np.integer):
        limits = np.iinfo(dtype)
        return np.clip(np.rint(values), limits.min, limits.max).astype(dtype)
    return np.asarray(values + rng.normal(0, 0.5, np.shape(values)), dtype)


def random_movie(
    rng: np.random.Generator, frames: int, shape: tuple[int, int], dtype: Any
) -> tuple[np.ndarray[Any, Any], float]:
    """Return frames of spots with a random defect, and the spots' σ."""
    sigma = rng.choice([0.9, 1.3, 1.3, 2.0, 3.2])
    offset = 10 if dtype is np.uint8 else 100
    background = rng.choice([2, 10, 50])
    photons = float(rng.choice([300, 1500, 8000])) * sigma
    density = rng.choice([0.0005, 0.002, 0.006])
    count = max(int(density * shape[0] * shape[1]), 3)
    movie = np.empty((frames, *shape))
    for frame in movie:
        light = spots_image(rng, shape, count, sigma=sigma, photons=photons)
        frame[:] = rng.poisson(light + background) + offset + rng.normal(0, 1.5, shape)
    damage = rng.choice(["none", "none", "hot", "saturated", "padded", "not finite", "uneven"])
    if damage == "hot":
        for frame in movie:
            frame[rng.integers(shape[0], size=9), rng.integers(shape[1], size=9)] += 900
            frame[rng.integers(shape[0], size=5), rng.integers(shape[1], size=5)] = 0
    elif damage == "saturated":
        np.minimum(movie, np.quantile(movie, 0.998), out=movie)
    elif damage == "padded":
        movie[:, : rng.integers(1, shape[0] // 3)] = 0
        movie[:, :, shape[1] - rng.integers(1, shape[1] // 3) :] = 0
    elif damage == "uneven":
        movie *= np.linspace(0.7, 1.6, shape[1])
    pixels = as_type(rng, movie, dtype)
    if damage == "not finite" and np.issubdtype(dtype, np.floating):
        pixels[rng.random(pixels.shape) < 0.001] = np.nan
        pixels[0, 0, 0] = np.inf
    return pixels, float(sigma)


def random_cutouts(
    rng: np.random.Generator, count: int, shape: tuple[int, int], dtype: Any
) -> np.ndarray[Any, Any]:
    """Return cut-outs of single spots, a few of them with neighbours, empty or broken."""
    rows, columns = shape
    sigma = rng.uniform(0.7, max(min(shape) / 5, 1.0), (count, 1, 1))
    stretch = rng.uniform(0.8, 1.3, (count, 1, 1))
    y = (rows - 1) / 2 + rng.uniform(-1, 1, (count, 1, 1))
    x = (columns - 1) / 2 + rng.uniform(-1, 1, (count, 1, 1))
    down, across = np.arange(rows)[:, None], np.arange(columns)
    light = np.exp(-0.5 * (((down - y) / sigma) ** 2 + ((across - x) / (sigma * stretch)) ** 2))
    height = rng.choice([5, 40, 120], (count, 1, 1)) * rng.uniform(0.5, 1.5, (count, 1, 1))
    beside = np.exp(-0.5 * (((down - y - 3) / sigma) ** 2 + ((across - x + 2) / sigma) ** 2))
    level = rng.choice([1, 8, 30], (count, 1, 1))
    expected = level + height * (light + (rng.random((count, 1, 1)) < 0.1) * beside)
    cutouts = as_type(rng, rng.poisson(expected) + 20.0, dtype)
    cutouts[rng.random(count) < 0.02] = 7
    if np.issubdtype(dtype, np.floating) and count:
        cutouts[rng.random(cutouts.shape) < 2e-4] = np.nan
    return cutouts


# ---- Settings and maps ----


def random_fit(rng: np.random.Generator, kind: tuple[str, str], estimator: str) -> dict[str, Any]:
    """Return settings of a fit."""
    model, pixel = kind
    given: dict[str, Any] = {
        "model": OWN[model]() if model in OWN else model, "pixel": pixel, "estimator": estimator,
        "errors": bool(rng.random() < 0.6),
        "threads": [None, 1, 2, 5][rng.integers(4)],
    }  # fmt: skip
    if rng.random() < 0.5:
        given |= {"gain": float(rng.choice([0.5, 1.0, 2.2])), "offset": 8.0}
        if rng.random() < 0.4:
            given["emccd"] = True
    if rng.random() < 0.3:
        given["variance"] = float(rng.uniform(0.5, 9))
    if rng.random() < 0.25:
        given |= {"max_iterations": int(rng.integers(1, 60)), "min_delta": 1e-4, "min_step": 1e-3}
    if rng.random() < 0.1:
        given["max_error"] = 5000.0
    if rng.random() < 0.25:
        given["background_min" if rng.random() < 0.5 else "amplitude_min"] = 0.0
    if rng.random() < 0.15:
        given |= {"amplitude_max": 60.0, "background_max": 45.0}
    if rng.random() < 0.15 and model.startswith("gaussian"):
        given |= {"sigma_min": 0.8, "sigma_max": 2.5}
    widths = WIDTHS[model]
    chance = rng.random()
    if chance < 0.15:
        given["fixed"] = {widths[0]: 1.4}
    elif chance < 0.25:
        given["fixed"] = {"y": 0.2, "x": -0.1}
    elif chance < 0.4:
        given["bounds"] = {"x": (-0.5, 0.5), widths[0]: (0.6, None)}
    return given


def random_maps(
    rng: np.random.Generator, given: dict[str, Any], shape: tuple[int, ...]
) -> dict[str, Any]:
    """Return per-pixel maps, shared by all frames or not."""
    plane = shape if rng.random() < 0.3 else shape[-2:]
    known: dict[str, Any] = {}
    if given["estimator"] == "wlse" and ("variance" not in given or rng.random() < 0.5):
        known["weights"] = rng.uniform(0, 2, plane).astype(np.float32)
        given.pop("variance", None)
    if rng.random() < 0.3:
        known["bad_pixels"] = rng.random(plane) < 0.03
    chance = rng.random()
    if chance < 0.2:
        for name in ("offset", "gain", "variance"):
            given.pop(name, None)
        variance = None if "weights" in known else rng.uniform(1, 30, plane)
        known["camera"] = Camera(rng.normal(8, 1, plane), rng.uniform(1, 2, plane), variance)
    elif chance < 0.3 and "weights" not in known and "variance" not in given:
        known["camera"] = Camera(variance=rng.uniform(1, 30, plane))
    return known


def random_detection(rng: np.random.Generator, sigma: float) -> dict[str, Any]:
    """Return settings of detection."""
    given: dict[str, Any] = {}
    if rng.random() < 0.6:
        given["sigma"] = sigma
    chance = rng.random()
    if chance < 0.3:
        given["false_spots"] = float(rng.choice([0.1, 100, 2000]))
    elif chance < 0.45:
        given["threshold"] = float(rng.uniform(2, 12))
    if rng.random() < 0.3:
        given["min_distance"] = float(rng.uniform(1, 9))
    return given


def random_neighbours(rng: np.random.Generator) -> dict[str, Any]:
    """Return a treatment of neighbours in a ROI, in the running version's spelling."""
    if rng.random() >= 0.6:
        return {"neighbours": "ignore"}
    try:
        return {"neighbours": Settings(neighbours="exclude").neighbours}
    except ValueError:
        return {"neighbours": "leave out"}


def random_start(rng: np.random.Generator, given: dict[str, Any], count: int, shape: Any) -> Any:
    """Return start values for the built-in round Gaussian, with some NaN, or None."""
    if given["model"] not in ("gaussian", "lorentzian") or rng.random() < 0.6:
        return None
    middle = (np.array(shape) - 1) / 2
    start = np.column_stack([middle + rng.normal(0, 0.5, (count, 2)), rng.uniform(1, 2, count)])
    start[rng.random(count) < 0.3] = np.nan
    return start


def random_side(rng: np.random.Generator) -> int:
    """Return the side of a cut-out, odd or even, usually small."""
    return int(rng.choice([rng.integers(4, 13), rng.integers(4, 13), rng.integers(13, 41)]))


def random_roi(rng: np.random.Generator) -> int | tuple[int, int] | None:
    """Return the size of a ROI in an image."""
    chance = rng.random()
    if chance < 0.3:
        return None
    side = int(2 * rng.integers(2, 7) + 1) if chance < 0.9 else int(2 * rng.integers(8, 20) + 1)
    return (side, side + 2) if chance < 0.45 else side


def random_shape(rng: np.random.Generator) -> tuple[int, int]:
    """Return the shape of a frame."""
    return int(rng.integers(24, 150)), int(rng.integers(24, 150))
