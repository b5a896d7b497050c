"""Are own expressions, which are interpreted, as fast as when another commit compiled them?

Ten expressions, each fitted to noisy spots of its own, by this version and the other in turn (see
against.py). Then how long it takes until the first fits of a new expression are there.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from against import BASELINE, Version, compare, install

from napari_spotfit import Profile
from napari_spotfit.models.expressions.program import NUMPY

SQUARED = "((x-x0)**2 + (y-y0)**2)"
EXPRESSIONS: dict[str, dict[str, Any]] = {
    "round": {"expression": f"exp(-{SQUARED}/(2*s**2))", "start": {"s": "sigma"}},
    "flat top": {
        "expression": f"exp(-({SQUARED}/(2*s**2))**q)",
        "start": {"s": "sigma", "q": 1.2},
        "bounds": {"q": (0.3, 4)},
    },
    "rotated": {
        "expression": "exp(-((x-x0)*cos(t) + (y-y0)*sin(t))**2/(2*a**2)"
        " - ((y-y0)*cos(t) - (x-x0)*sin(t))**2/(2*b**2))",
        "start": {"a": "1.2*sigma", "b": "0.8*sigma", "t": 0.3},
    },
    "matrix": {
        "expression": "exp(-(a*(x-x0)**2 + 2*b*(x-x0)*(y-y0) + c*(y-y0)**2))",
        "start": {"a": 0.3, "b": 0.02, "c": 0.25},
    },
    "moffat": {
        "expression": f"(1 + {SQUARED}/w**2)**-q",
        "start": {"w": "2*sigma", "q": 2.5},
        "bounds": {"q": (1, 10)},
    },
    "lorentzian": {
        "expression": "1/((1 + ((x-x0)/w)**2)*(1 + ((y-y0)/w)**2))",
        "start": {"w": "1.18*sigma"},
    },
    "integrated": {
        "expression": "(erf((x-x0+0.5)/(1.4142136*s)) - erf((x-x0-0.5)/(1.4142136*s)))"
        "*(erf((y-y0+0.5)/(1.4142136*s)) - erf((y-y0-0.5)/(1.4142136*s)))",
        "start": {"s": "sigma"},
    },
    "ring": {
        "expression": f"exp(-(sqrt({SQUARED}) - r)**2/(2*s**2))",
        "start": {"r": "sigma", "s": "0.7*sigma"},
        "bounds": {"r": (0, None)},
    },
    "tilted": {
        "expression": "exp(-(x-x0)**2/(2*a**2) - (y-y0)**2/(2*b**2))*(1 + k*tanh((x-x0)/a))",
        "start": {"a": "sigma", "b": "sigma", "k": 0.1},
    },
    "two widths": {
        "expression": f"m*exp(-{SQUARED}/(2*s**2)) + (1-m)*exp(-{SQUARED}/(2*w**2))",
        "start": {"s": "0.8*sigma", "w": "2*sigma", "m": 0.7},
        "bounds": {"m": (0, 1), "s": (0.3, None), "w": (0.3, None)},
    },
}
SIZES = (9, 16)
WANTED = 0.7
#: Pixels of all spots of a call.
PIXELS = 2_000_000
#: What a process prints that meets an expression for the first time: milliseconds until the
#: model is there, and until its first fits are.
FIRST = """
import json, sys, time
import numpy as np
from napari_spotfit import Profile, fit_spots
spots = np.load(sys.argv[2])[:100]
begin = time.perf_counter()
model = Profile.from_expression(**json.loads(sys.argv[1]))
made = time.perf_counter()
fit_spots(spots, model=model, backend="cpu")
print((made - begin) * 1e3, (time.perf_counter() - made) * 1e3)
"""


def spots_of(model: Profile, size: int, count: int) -> np.ndarray:
    """Return spots with shot noise, whose parameters are close to where fits begin."""
    assert model.expression
    rng = np.random.default_rng(0)
    middle = (size - 1) / 2 + rng.uniform(-0.5, 0.5, (2, count))
    sigma = 1.3 * size / 9
    widths = [
        (constant + per_sigma * sigma) * rng.uniform(0.9, 1.1, count)
        for constant, per_sigma in (shape.start for shape in model.shape[2:])
    ]
    places = np.arange(size, dtype=float)
    parameters = [values[:, None, None] for values in (*middle, *widths)]
    f = model.expression.program.run(NUMPY, places, places[:, None], parameters)[0]
    return rng.poisson(200 * f + 10).astype(np.uint16)


def first_results(spots: dict[str, tuple[Path, int]]) -> None:
    print("the first 100 fits of a process: ms until the model is made, and until they are there")
    for name, arguments in EXPRESSIONS.items():
        command = [sys.executable, "-c", FIRST, json.dumps(arguments), spots[f"{name} 9"][0]]
        answer = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        made, fitted = map(float, answer.split())
        print(f"  {name:20}{made:9.1f}{fitted:9.1f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("commit", nargs="?", default=BASELINE, help="what to compare with")
    parser.add_argument("--checkout", help="a checkout of it, to be run by this very Python")
    parser.add_argument("--turns", type=int, default=7)
    parser.add_argument("--only", nargs="*", default=list(EXPRESSIONS))
    options = parser.parse_args()
    python = Path(sys.executable) if options.checkout else install(options.commit)
    theirs = {"PYTHONPATH": f"{options.checkout}/src"} if options.checkout else {}
    with tempfile.TemporaryDirectory() as folder:
        spots, kinds = {}, {}
        for name in options.only:
            model = Profile.from_expression(**EXPRESSIONS[name])
            for size in SIZES:
                kind = f"{name} {size}"
                spots[kind] = Path(folder, f"{kind}.npy"), PIXELS // size**2
                np.save(spots[kind][0], spots_of(model, size, spots[kind][1]))
                kinds[kind] = (
                    str(spots[kind][0]),
                    {"model": {**model.to_dict(), "name": name}, "errors": False},
                )
        versions = [
            Version(Path(sys.executable), json.dumps(kinds), {}),
            Version(python, json.dumps(kinds), theirs),
        ]
        print("million fits per CPU second, ours and theirs, and the ratio")
        ratios = [compare(versions, kind, spots[kind][1], options.turns) for kind in kinds]
        for version in versions:
            version.end()
        mean, worst = statistics.geometric_mean(ratios), min(ratios)
        print(f"  geometric mean {mean:.2f} (wanted {WANTED}), worst {worst:.2f}")
        if set(options.only) == set(EXPRESSIONS):
            first_results(spots)


if __name__ == "__main__":
    main()
