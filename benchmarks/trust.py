"""Whether answers can be trusted: F1 and false spots on every kind of background and noise.

Simulated spots of σ 1.0, 1.3 and 2.0 px on the scenes of tests/noisy_scenes.py. F1 counts pairs of
true and found places within 1 and 3 px, one to one, the nearest first: of the places that detection
finds with its default settings, and of the fits that can be believed. False spots are those found
in the same backgrounds without spots, per 10⁶ pixels. Errors: how far isolated fits scatter, in
their own standard errors (error_scatter.py).
"""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from error_scatter import print_scatter

import napari_spotfit as spotfit

sys.path.append(str(Path(__file__).parents[1] / "tests"))
from noisy_scenes import Scene, f1, flat_scenes, noisy_scenes

SIGMAS = (1.0, 1.3, 2.0)
#: A detection within so many pixels of an emitter has found it.
RADII = (1.0, 3.0)
#: Thresholds that false spots are counted for.
THRESHOLDS: tuple[dict[str, Any], ...] = ({},)


def believed(fits: spotfit.SpotFits) -> np.ndarray:
    """Return y and x of the fits that can be believed."""
    return np.column_stack([fits.y, fits.x])[getattr(fits, "good", fits.converged)].astype(float)


def camera_of(scene: Scene) -> spotfit.Camera | None:
    """Return what is known of a scene's camera."""
    return None if scene.variance is None else spotfit.Camera(variance=scene.variance)


def scores(scene: Scene) -> list[float]:
    """Return the F1 of detections, then of fits, within each radius."""
    options = {"sigma": scene.sigma, "camera": camera_of(scene)}
    found = [spotfit.detect_spots(frame, **options) for frame in scene.frames]
    fits = [believed(spotfit.localize(frame, **options)) for frame in scene.frames]
    return [f1(places, scene.truth, radius) for places in (found, fits) for radius in RADII]


def false_spots(scene: Scene) -> list[float]:
    """Return the detections per 10⁶ pixels of a scene without spots, then those with good fits."""
    pixels = sum(frame.size for frame in scene.frames) / 1e6
    options = {"sigma": scene.sigma, "camera": camera_of(scene)}
    found = [
        sum(len(spotfit.detect_spots(frame, **options, **threshold)) for frame in scene.frames)
        for threshold in THRESHOLDS
    ]
    good = sum(len(believed(spotfit.localize(frame, **options))) for frame in scene.frames)
    return [count / pixels for count in (*found, good)]


def scenes(sigma: float, quick: bool) -> Iterator[Scene]:
    yield from flat_scenes(sigma, side=128 if quick else 256)
    yield from noisy_scenes(sigma, *((192, 1, 40) if quick else (384, 2, 150)))


def print_table(title: str, names: list[str], rows: Iterator[tuple[str, list[float]]]) -> None:
    print(f"\n{title}\n{'':>14}" + "".join(f"{name:>12}" for name in names))
    for name, numbers in rows:
        form = ".2f" if max(numbers) <= 1 and "F1" in title else ".0f"
        print(f"{name:>14}" + "".join(f"{number:>12{form}}" for number in numbers), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="σ 1.3 and small frames: a minute")
    parser.add_argument("--sigma", type=float, nargs="*", help="these only")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    for sigma in given.sigma or (SIGMAS[1:2] if given.quick else SIGMAS):
        names = [f"{what}, {radius:.0f} px" for what in ("found", "fits") for radius in RADII]
        print_table(
            f"σ {sigma}: F1", names, ((s.name, scores(s)) for s in scenes(sigma, given.quick))
        )
        side, count = (512, 1) if given.quick else (1024, 2)
        names = [", ".join(map(str, t.values())) or "default" for t in THRESHOLDS] + ["good fits"]
        empty = noisy_scenes(sigma, side, count, spots=0)
        print_table(
            f"σ {sigma}: false spots per 10⁶ px", names, ((s.name, false_spots(s)) for s in empty)
        )
        print_scatter(sigma, *((4,) if given.quick else ()))


if __name__ == "__main__":
    main()
