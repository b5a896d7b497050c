"""Measure whether results can be trusted: detection, fits, and estimates from images.

Simulated spots of σ 1.0, 1.3 and 2.0 px on the scenes of tests/helpers/noisy_scenes.py. F1 counts
pairs of true and found positions within 1 and 3 px, one to one, the nearest first: of detections by
default settings, and of good fits. False spots are those found in the same backgrounds without
spots, per 10⁶ pixels. ``peers`` compares with installed other programs, at their defaults and at
their best thresholds. Then standard errors, flags and real images (trust_fits.py), the PSF's width
and noise (trust_images.py), images that were processed or have unusual spots or light
(trust_processed.py), and images with lines, saturation, or a wrong camera (trust_shapes.py).
"""

from __future__ import annotations

import argparse
import math
import warnings
from collections.abc import Callable, Iterator

import numpy as np
import trust_fits
import trust_images
import trust_processed
import trust_shapes
from common import Section, bar, run
from noisy_scenes import Scene, f1, flat_scenes, noisy_scenes
from peers import RADII, installed, scores_of

import napari_spotfit as spotfit

SIGMAS, USUAL = (1.0, 1.3, 2.0), 1.3
#: Largest difference of our F1 below that of the best peer's default.
BELOW = 0.01
#: Requested numbers of false spots per 10⁶ pixels.
ASKED = (1.0, 10.0, 100.0)
#: Least F1 of good fits within 1 and 3 px at σ 1.3.
WANTED = {
    "sparse": (0.98, 0.98), "dim": (0.94, 0.94), "dense": (0.75, 0.80),
    "very dense": (0.57, 0.65), "bright dense": (0.81, 0.85), "white": (0.95, 0.95),
    "Poisson 50": (0.94, 0.95), "Poisson 5": (0.93, 0.93), "Poisson 0.5": (0.91, 0.92),
    "Poisson 0.05": (0.88, 0.89), "EMCCD 1": (0.91, 0.91), "EMCCD 0.05": (0.63, 0.66),
    "gradient": (0.96, 0.96), "vignette": (0.95, 0.95), "cells 200": (0.91, 0.91),
    "cells 2000": (0.89, 0.89), "nuclei": (0.83, 0.84), "hot pixels": (0.93, 0.94),
    "median": (0.93, 0.94), "interpolated": (0.96, 0.96), "blurred": (0.96, 0.96),
    "8 bit": (0.96, 0.96), "JPEG 90": (0.96, 0.96), "JPEG 75": (0.96, 0.96),
    "sCMOS": (0.93, 0.93), "sCMOS, map": (0.93, 0.93),
}  # fmt: skip
#: Allowed false detections and good fits at 10, if more than twice as many.
ALLOWED = dict.fromkeys(("cells 200", "cells 2000", "hot pixels", "sCMOS, map", "median"), (30, 10))
ALLOWED["nuclei"] = (150, 30)


def known_of(scene: Scene) -> dict[str, object]:
    """Return the known settings of a scene."""
    camera = None if scene.variance is None else spotfit.Camera(variance=scene.variance)
    return {"sigma": scene.sigma, "camera": camera}


def good_places(frame: np.ndarray, known: dict[str, object]) -> np.ndarray:
    """Return y and x of the good fits."""
    fits = spotfit.localize(frame, **known)
    return np.column_stack([fits.y, fits.x])[fits.good].astype(float)


def scores(scene: Scene) -> list[float]:
    """Return the F1 of detections, then of fits, within each radius."""
    known = known_of(scene)
    found = [spotfit.detect_spots(frame, **known) for frame in scene.frames]
    fits = [good_places(frame, known) for frame in scene.frames]
    return [f1(places, scene.truth, radius) for places in (found, fits) for radius in RADII]


def scenes(sigma: float, quick: bool) -> Iterator[Scene]:
    """Yield every scene with spots."""
    yield from flat_scenes(sigma, side=128 if quick else 256)
    yield from noisy_scenes(sigma, *((192, 1, 40) if quick else (384, 2, 150)))


def print_scores(sigma: float, quick: bool) -> None:
    """Print F1 of detections and of good fits, with limits."""
    names = [f"{what}, {radius:.0f} px" for what in ("found", "fits") for radius in RADII]
    print(f"\nσ {sigma}: F1\n{'':>14}" + "".join(f"{name:>12}" for name in names))
    for scene in scenes(sigma, quick):
        own = scores(scene)
        line = f"{scene.name:>14}" + "".join(f"{number:>12.2f}" for number in own)
        if sigma == USUAL and scene.name in WANTED:
            for number, least in zip(own[2:], WANTED[scene.name], strict=True):
                line += f" {bar(round(number, 2), least=least, form='.2f')}"
        print(line, flush=True)


def print_false(sigma: float, quick: bool) -> None:
    """Print the false spots, with limits."""
    names = [f"asked {asked:g}" for asked in ASKED] + ["good fits"]
    print(f"\nσ {sigma}: false spots per 10⁶ px\n{'':>14}" + "".join(f"{n:>12}" for n in names))
    side, count = (512, 1) if quick else (1024, 2)
    pixels = count * side**2 / 1e6
    for scene in noisy_scenes(sigma, side, count, spots=0):
        known = known_of(scene)
        counts = [
            sum(len(spotfit.detect_spots(frame, **known, false_spots=n)) for frame in scene.frames)
            for n in ASKED
        ]
        counts.append(sum(len(good_places(frame, known)) for frame in scene.frames))
        own = [number / pixels for number in counts]
        found, good = ALLOWED.get(scene.name, (2 * ASKED[1], math.inf))
        limits = [2 * ASKED[0], found, 2 * ASKED[2], good]
        if scene.name in ALLOWED:
            limits[0] = limits[2] = math.inf
        line = f"{scene.name:>14}"
        for number, most in zip(own, limits, strict=True):
            # Three standard deviations of the count are allowed.
            most = None if most == math.inf else most + 3 * math.sqrt(most / pixels)
            line += f"{number:>8.0f} {bar(number, most=most, form='.0f')}"
        print(line, flush=True)


def print_peers(sigma: float, quick: bool) -> None:
    """Print F1 of the good fits, and of each peer at its default and at its best threshold."""
    peers = installed()
    if not peers:
        print("\nno peer is installed (the group bench has them)")
        return
    print(f"\nσ {sigma}: F1 within {' and '.join(f'{radius:g}' for radius in RADII)} px;"
          " peers at default and best threshold; how far below the best default")  # fmt: skip
    print(f"{'':>14}{'good fits':>12}" + "".join(f"{name:>21}" for name in peers))
    below = count = 0
    for scene in scenes(sigma, quick):
        own, count = scores(scene)[2:], count + 1
        theirs = [scores_of(peer, scene) for peer in peers.values()]
        line = f"{scene.name:>14}{_pair(own):>12}"
        line += "".join(f"{_pair(default):>11}{_pair(best):>10}" for default, best in theirs)
        lacks = _lacks(own, [default for default, _ in theirs])
        below += lacks <= BELOW < _lacks(own, [best for _, best in theirs])
        print(f"{line} {lacks:+.3f} {bar(lacks, most=BELOW)}", flush=True)
    print(f"only below the best threshold by more than {BELOW}: {below} of {count} (wanted: few)")


def _pair(numbers: list[float]) -> str:
    return "/".join(f"{number:.2f}".removeprefix("0") for number in numbers)


def _lacks(own: list[float], theirs: list[list[float]]) -> float:
    """Return how far the scores are below the best of each, at most."""
    best = [max(column) for column in zip(*theirs, strict=True)]
    return max(b - a for a, b in zip(own, best, strict=True))


def _at_each_width(section: Callable[[float, bool], None]) -> Section:
    def printed(options: argparse.Namespace) -> None:
        for sigma in (USUAL,) if options.quick else SIGMAS:
            section(sigma, options.quick)

    return printed


def _once(section: Callable[[bool], None]) -> Section:
    return lambda options: section(options.quick)


SECTIONS = {
    "scores": _at_each_width(print_scores),
    "peers": _at_each_width(print_peers),
    "false": _at_each_width(print_false),
    "errors": _at_each_width(trust_fits.print_errors),
    "flags": _once(trust_fits.print_flags),
    "widths": _once(trust_images.print_widths),
    "real": _once(trust_fits.print_real_images),
    "uneven": _once(trust_images.print_uneven),
    "processed": _once(trust_processed.print_processed),
    "sharp": _once(trust_processed.print_sharp),
    "strobed": _once(trust_processed.print_strobed),
    "shapes": _once(trust_shapes.print_shapes),
    "saturated": _once(trust_shapes.print_saturated),
    "cameras": _once(trust_shapes.print_cameras),
}

if __name__ == "__main__":
    warnings.simplefilter("ignore")
    run(__doc__, SECTIONS)
