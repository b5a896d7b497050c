"""How much fits scatter, in their own standard errors: 1 where the errors are right.

Isolated spots of one brightness on the backgrounds of noisy_scenes.py, all frames of a kind
as one movie, fitted at their places with the camera's gain and without. Centres are compared with
the truth, the rest with the mean of their like: what a background's slope or a filter does to all
spots is no matter of noise. Backgrounds that are not smooth have no truth of their own. Spots of
filtered images have the width that these tell.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import napari_spotfit as spotfit

sys.path.append(str(Path(__file__).parents[1] / "tests" / "helpers"))
from noisy_scenes import Array, Kind, kinds, scmos_variance
from scenes import light
from scipy import ndimage

#: What is compared, and the bars with the gain given and without.
NAMES = ("y", "x", "sigma", "amplitude", "photons", "background")
GIVEN, NOT_GIVEN = (0.95, 1.05), (0.85, 1.15)
#: The camera of most scenes, and of the others; None where no camera makes such an image.
_USUAL = {"gain": 1.0, "offset": 100.0}
_EMCCD = {"gain": 25.0, "offset": 100.0, "variance": 9.0 + 1 / 12, "emccd": True}
_CAMERAS: dict[str, dict[str, Any] | None] = {
    "EMCCD 1": _EMCCD,
    "EMCCD 0.05": _EMCCD,
    "8 bit": {"gain": 1 / 24, "offset": -0.5, "variance": 9 / 24**2 + 1 / 12},
    **dict.fromkeys(("white", "median", "interpolated", "blurred", "JPEG 90", "JPEG 75", "sCMOS")),
}
#: Backgrounds with edges or texture, in which a constant one is wrong, and counts that are scaled
#: by what each frame holds.
_NO_BACKGROUND = ("cells 200", "cells 2000", "nuclei", "JPEG 90", "JPEG 75")
_FILTERED = ("median", "interpolated", "blurred")
_SIDE, _APART, _FRAMES = 384, 24, 12
#: Spots are so many times as bright as those that are easy, but not trivial to see: errors are of
#: first order, and fits of dim spots are not. Those of a JPEG, which would be clipped, less so.
_BRIGHT, _BRIGHT_JPEG = 5.0, 1.5
#: A pixel is hot that is so many counts above its neighbours.
_HOT = 15


class Spots(NamedTuple):
    """Frames with isolated spots: where they are, and the background there."""

    movie: Any
    places: Array
    background: Array
    camera: dict[str, Any] | None
    variance: Array | None
    #: Hot pixels, as somebody would name them.
    bad: np.ndarray


def spots_of(name: str, kind: Kind, sigma: float, seed: int, frames: int = _FRAMES) -> Spots:
    """Return a movie of one kind, with spots on a grid that is not regular."""
    rng = np.random.default_rng([seed, *name.encode()])
    bright = _BRIGHT_JPEG if name.startswith("JPEG") else _BRIGHT
    shape = (_SIDE, _SIDE)
    grid = np.stack(np.meshgrid(*2 * [np.arange(_APART, _SIDE - 12, _APART)], indexing="ij"), -1)
    movie, places, background = [], [], []
    empty = np.mean([np.asarray(kind.image(rng, np.zeros(shape)), float) for _ in range(60)], 0)
    smooth = ndimage.median_filter(empty, 3)
    bad = (empty - smooth > _HOT) & (name == "hot pixels")
    empty = np.where(bad, smooth, empty)
    for frame in range(frames):
        own = grid.reshape(-1, 2) + rng.uniform(-3, 3, (grid.size // 2, 2))
        photons = np.full(len(own), bright * kind.photons * sigma / 1.3)
        movie.append(kind.image(rng, light(own, photons, sigma, shape)))
        places.append(np.column_stack([np.full(len(own), frame), own + kind.shift]))
        corners = np.rint(own).astype(int)
        background += [empty[y - 4 : y + 5, x - 4 : x + 5].mean() for y, x in corners]
    camera, variance = _CAMERAS.get(name, _USUAL), None
    if kind.has_map:
        variance, camera = scmos_variance(shape, seed), dict(_USUAL)
    return Spots(
        np.stack(movie), np.concatenate(places), np.array(background), camera, variance, bad
    )


def scatter(spots: Spots, sigma: float, given: dict[str, Any], name: str) -> dict[str, float]:
    """Return the spread of the good fits in their standard errors, by name."""
    camera = None if spots.variance is None else spotfit.Camera(variance=spots.variance)
    settings = spotfit.Settings(sigma=sigma, **given)
    fits = spotfit.fit_at(
        spots.movie, spots.places, bad_pixels=spots.bad, camera=camera, settings=settings
    )
    good = fits.good
    truth = {"y": spots.places[:, 1], "x": spots.places[:, 2], "background": spots.background}
    spread = {}
    for column in NAMES:
        if column == "background" and name in _NO_BACKGROUND:
            continue
        off = fits.columns[column] - truth.get(column, np.zeros(len(fits)))
        off = (off - np.median(off[good])) / fits.columns[f"{column}_stderr"]
        spread[column] = float(np.std(off[good]))
    return spread | {"good": float(good.mean())}


def rows(sigma: float, frames: int = _FRAMES, seed: int = 313) -> Iterator[tuple[str, list[str]]]:
    """Yield each scene's spreads, with the gain and without; a star where they miss the bar."""
    for name, kind in kinds((_SIDE, _SIDE), seed).items():
        spots, width = spots_of(name, kind, sigma, seed, frames), sigma
        if name in _FILTERED:
            width = spotfit.estimate_sigma(spots.movie).sigma
        for how, bar in (("given", GIVEN), ("not given", NOT_GIVEN)):
            if how == "given" and spots.camera is None:
                continue
            options = dict(spots.camera or {}) if how == "given" else {}
            found = scatter(spots, width, options, name)
            share = found.pop("good")
            yield (
                f"{name}, {how}",
                [f"{found[c]:.2f}{' ' if bar[0] <= found[c] <= bar[1] else '*'}" if c in found
                 else "- " for c in NAMES] + [f"{share:.0%}"],
            )  # fmt: skip


def print_scatter(sigma: float, frames: int = _FRAMES) -> None:
    """Print the table of one width."""
    print(
        f"\nσ {sigma}: scatter in standard errors; bars {GIVEN[0]}–{GIVEN[1]} with the gain given,"
        f" {NOT_GIVEN[0]}–{NOT_GIVEN[1]} without; * misses it\n{'':>24}"
        + "".join(f"{name:>11}" for name in (*NAMES, "good"))
    )
    for name, cells in rows(sigma, frames):
        print(f"{name:>24}" + "".join(f"{cell:>11}" for cell in cells), flush=True)


if __name__ == "__main__":
    for width in map(float, sys.argv[1:] or ("1.0", "1.3", "2.0")):
        print_scatter(width)
