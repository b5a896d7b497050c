"""Compare the CPU engine with the baseline: speed, and results to the bit.

CPU time of fits by model and estimator, of own expressions, of localize and detection, with each
instruction set of this processor; then calls with 100 spots. One thread. ``make baseline`` checks
out the baseline.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from baseline import BASELINE, TREE, Case, arrays, both, compare, summary
from common import KINDS, MLE, ROTATED, ROUND, SQUARED, paper_spots, parsed
from internals import instruction_sets

from napari_spotfit import Profile, simulate_movie, simulate_spots

#: Least speed relative to the baseline: of each case, of the geometric mean, and of calls.
WORST, MEAN, CALL = 0.97, 1.0, 1 / 1.05
#: Pixels of all spots of a call.
PIXELS, QUICK_PIXELS = 5_000_000, 500_000
#: Kinds of fits: side of the ROI, and settings.
FITS: dict[str, tuple[int, dict[str, Any]]] = {
    **{f"round {size}×{size}": (size, {}) for size in (7, 9, 16, 32)},
    "round 9×9, errors": (9, {"errors": True}),
    "round 16×16, errors": (16, {"errors": True}),
    "maximum likelihood, errors": (9, {**MLE, "errors": True}),
    "maximum likelihood, variances": (9, {**MLE, "variance": 4.0}),
    "Moffat": (9, {"model": "moffat"}),
    **{name: (9, kind) for name, kind in KINDS.items() if name != "round"},
}
EXPRESSIONS: dict[str, dict[str, Any]] = {
    "round": ROUND,
    "flat top": {"expression": f"exp(-({SQUARED}/(2*s**2))**q)",
                 "start": {"s": "sigma", "q": 1.2}, "bounds": {"q": (0.3, 4)}},
    "rotated": ROTATED,
    "matrix": {"expression": "exp(-(a*(x-x0)**2 + 2*b*(x-x0)*(y-y0) + c*(y-y0)**2))",
               "start": {"a": 0.3, "b": 0.02, "c": 0.25}},
    "moffat": {"expression": f"(1 + {SQUARED}/w**2)**-q",
               "start": {"w": "2*sigma", "q": 2.5}, "bounds": {"q": (1, 10)}},
    "lorentzian": {"expression": "1/((1 + ((x-x0)/w)**2)*(1 + ((y-y0)/w)**2))",
                   "start": {"w": "1.18*sigma"}},
    "integrated": {
        "expression": "(erf((x-x0+0.5)/(1.4142136*s)) - erf((x-x0-0.5)/(1.4142136*s)))"
        "*(erf((y-y0+0.5)/(1.4142136*s)) - erf((y-y0-0.5)/(1.4142136*s)))",
        "start": {"s": "sigma"}},
    "ring": {"expression": f"exp(-(sqrt({SQUARED}) - r)**2/(2*s**2))",
             "start": {"r": "sigma", "s": "0.7*sigma"}, "bounds": {"r": (0, None)}},
    "tilted": {
        "expression": "exp(-(x-x0)**2/(2*a**2) - (y-y0)**2/(2*b**2))*(1 + k*tanh((x-x0)/a))",
        "start": {"a": "sigma", "b": "sigma", "k": 0.1}},
    "two widths": {"expression": f"m*exp(-{SQUARED}/(2*s**2)) + (1-m)*exp(-{SQUARED}/(2*w**2))",
                   "start": {"s": "0.8*sigma", "w": "2*sigma", "m": 0.7},
                   "bounds": {"m": (0, 1), "s": (0.3, None), "w": (0.3, None)}},
}  # fmt: skip
#: Number and side of frames: short and long movies, and a single large frame.
MOVIES, QUICK_MOVIES = ((50, 256), (1000, 256), (1, 2048)), ((4, 256),)
#: Spots in 256² pixels.
SPOTS = 20
#: What localize is given: all settings of a result, the PSF's σ, or nothing.
KNOWN: dict[str, tuple[dict[str, Any], str | None]] = {
    "all known": ({"sigma": 1.3, "roi_size": 9}, "all"),
    "σ given": ({"sigma": 1.3, "roi_size": 9}, None),
    "nothing given": ({}, None),
}
ON_CPU = {"backend": "cpu", "threads": 1}
#: Numbers of spots and positions of a small call, and side of the frame.
FEW, PLACES, SIDE = 100, 20, 512

Saved = Callable[[str, np.ndarray], str]


def fits(saved: Saved, quick: bool) -> Iterator[Case]:
    """Yield fits of every kind."""
    for name, (size, settings) in FITS.items():
        count = (QUICK_PIXELS if quick else PIXELS) // size**2
        path = saved(f"{size}", paper_spots(size, count)[0])
        options = {**ON_CPU, "errors": False, **settings}
        yield Case(f"{name} (M fits)", "fit_spots", path, count / 1e6, options)


def expressions(saved: Saved, quick: bool) -> Iterator[Case]:
    """Yield fits of own expressions to matching spots."""
    for name, arguments in EXPRESSIONS.items():
        for size in (9,) if quick else (9, 16):
            count = (QUICK_PIXELS if quick else 2_000_000) // size**2
            path = saved(f"{name} {size}", spots_of(arguments, size, count))
            options = {**ON_CPU, "errors": False, "expression": arguments}
            yield Case(f"{name}, {size}×{size} (M fits)", "fit_spots", path, count / 1e6, options)


def spots_of(arguments: dict[str, Any], size: int, count: int) -> np.ndarray:
    """Return spots of an expression with shot noise, with parameters near the start values."""
    model, rng = Profile.from_expression(**arguments), np.random.default_rng(0)
    rows, columns = np.indices((size, size), float)
    different, sigma = min(count, 500), 1.3 * size / 9
    result = []
    for _ in range(different):
        values = {"amplitude": 200.0, "background": 10.0}
        values |= dict(zip("yx", (size - 1) / 2 + rng.uniform(-0.5, 0.5, 2), strict=True))
        for parameter in model.shape[2:]:
            constant, per_sigma = parameter.start
            values[parameter.name] = (constant + per_sigma * sigma) * rng.uniform(0.9, 1.1)
        result.append(model.evaluate((rows, columns), values))
    return rng.poisson(np.resize(result, (count, size, size))).astype(np.uint16)


def movie_of(frames: int, side: int, spots: int = SPOTS) -> np.ndarray:
    """Return a simulated movie with this many spots in 256² pixels."""
    count = spots * side**2 // 256**2
    return simulate_movie(frames, (side, side), spots_per_frame=count, sigma=1.3, seed=1)[0]


def localization(saved: Saved, quick: bool) -> Iterator[Case]:
    """Yield localize of movies, by what it is given."""
    for frames, side in QUICK_MOVIES if quick else MOVIES:
        path = saved(f"{frames} {side}", movie_of(frames, side))
        for name, (options, known) in KNOWN.items():
            what = f"{frames} × {side}², {name} (frames)"
            yield Case(what, "localize", path, frames, {**ON_CPU, **options}, known=known)


def detection(saved: Saved, quick: bool) -> Iterator[Case]:
    """Yield detection in small and large frames, including the noise estimate."""
    for frames, side in QUICK_MOVIES if quick else ((200, 256), (3, 2048)):
        movie = np.minimum(movie_of(frames, side, 45), 255)
        for dtype in ("uint8", "uint16", "float32"):
            path = saved(f"{frames} {side} {dtype}", movie.astype(dtype))
            yield Case(f"{frames} × {side}² {dtype} (frames)", "detect_spots", path, frames,
                       {**ON_CPU, "sigma": 1.3})  # fmt: skip


def calls(saved: Saved, quick: bool) -> Iterator[Case]:
    """Yield small calls, timed a hundred at a time."""
    spots = simulate_spots(FEW, 9, photons=400, background=0.5, seed=1)[0].astype(np.uint16)
    movie, truth = simulate_movie(1, (SIDE, SIDE), spots_per_frame=FEW, photons=2000, seed=1)
    places = truth[["y", "x"]].to_numpy()
    cut, frame = saved("few", spots), saved("frame", movie[0])
    given = {**ON_CPU, "sigma": 1.3, "roi_size": 9}
    repeated: dict[str, Any] = {"calls": 10 if quick else 100}
    for count in (FEW, PLACES):
        centers = saved(f"{count} places", places[:count])
        for call in ("Fitter.fit_at", "fit_at"):
            yield Case(f"{call}, {count} places (calls)", call, frame, 1, given, centers,
                       known="noise", **repeated)  # fmt: skip
    for call in ("Fitter.fit", "fit_spots"):
        yield Case(f"{call}, {FEW} spots (calls)", call, cut, 1, ON_CPU, **repeated)


SECTIONS = {
    "fits": fits,
    "expressions": expressions,
    "localize": localization,
    "detection": detection,
    "calls": calls,
}


def main() -> int:
    """Print the requested sections with each instruction set."""

    def add(parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--tree", type=Path, default=TREE, help="a checkout to compare with")
        parser.add_argument("--turns", type=int, default=11)
        parser.add_argument("--sets", nargs="*", default=instruction_sets()[:0:-1])

    options = parsed(__doc__, list(SECTIONS), add)
    turns = min(options.turns, 4) if options.quick else options.turns
    print(f"{os.uname().machine}; speed per CPU second of this version and {BASELINE}, the ratio,"
          " and whether the answers are the same")  # fmt: skip
    good = []
    with arrays() as saved:
        for instructions in options.sets:
            with both(options.tree, {"NAPARI_SPOTFIT_INSTRUCTION_SET": instructions}) as versions:
                of_all: list[float] = []
                for name in options.only:
                    print(f"{instructions}, {name}")
                    ratios = compare(versions, list(SECTIONS[name](saved, options.quick)), turns)
                    worst, mean = (CALL, CALL) if name == "calls" else (WORST, MEAN)
                    good.append(summary(f"  {name}", ratios, worst, mean))
                    of_all += ratios
                good.append(summary(f"{instructions}, all of these", of_all, CALL, MEAN))
    return int(not all(good))


if __name__ == "__main__":
    sys.exit(main())
