"""Every model by every estimator, beside SciPy in double precision, and on spots without noise."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

from napari_spotfit import fit_spots
from napari_spotfit.models.estimators import ESTIMATORS
from napari_spotfit.models.profiles import MODELS, Profile

sys.path.append(str(Path(__file__).parents[1] / "tests" / "helpers"))
import reference  # the tests' own fits by SciPy

#: Agreement of the centre in pixels with double precision, and the share of spots that agree;
#: the error of the centre without noise.
AGREEMENT, SHARE, EXACT = 3e-3, 0.995, 1e-4
SIZE = 11
SHAPES = {"sigma": 1.4, "sigma_x": 1.7, "sigma_y": 1.2, "angle": 25.0, "width": 1.5}
SHAPES["exponent"] = 2.5


def kinds() -> list[tuple[Profile, str]]:
    """Return every model, sampled and integrated where there is a formula for it."""
    return [
        (model, pixel)
        for model in MODELS.values()
        for pixel in ("sampled", "integrated")
        if pixel == "sampled" or model.integrated
    ]


def spots_of(model: Profile, pixel: str, count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the expected photons of spots, and their parameters with amplitude and background."""
    rng = np.random.default_rng(seed)
    rows, columns = np.indices((SIZE, SIZE), float)
    names = [parameter.name for parameter in model.shape] + ["amplitude", "background"]
    values, spots = [], []
    for _ in range(count):
        y, x = (SIZE - 1) / 2 + rng.uniform(-0.7, 0.7, 2)
        given = {"y": y, "x": x, "amplitude": rng.uniform(80, 300), "background": 5.0}
        given |= {name: SHAPES[name] * rng.uniform(0.85, 1.15) for name in model.widths}
        values.append([given[name] for name in names])
        spots.append(model.evaluate(rows, columns, given, pixel))
    return np.array(spots), np.array(values)


def beside_scipy(count: int, backend: str) -> None:
    print(
        f"\n{count} spots of each kind, {SIZE}×{SIZE}: SciPy within {AGREEMENT} px; without noise"
    )
    weights = np.random.default_rng(0).uniform(0.5, 2, (SIZE, SIZE))
    for model, pixel in kinds():
        clean, truth = spots_of(model, pixel, count, seed=4)
        noisy = np.random.default_rng(5).poisson(clean).astype(np.float32)
        for estimator in ESTIMATORS:
            options = {"model": model, "pixel": pixel, "estimator": estimator, "backend": backend}
            options |= {"weights": weights} if estimator == "wlse" else {}
            fits = fit_spots(noisy, errors=False, **options)
            plane = weights if estimator == "wlse" else None
            kind = reference.Kind(model, pixel, estimator, plane)
            best = [reference.best(kind, spot, t) for spot, t in zip(noisy, truth, strict=True)]
            both = fits.converged & np.array([one.success for one in best])
            centres = np.array([one.values[:2] for one in best])
            apart = np.abs(np.column_stack([fits.y, fits.x]) - centres).max(1)
            share = np.mean(apart[both] <= AGREEMENT)
            exact = fit_spots(clean.astype(np.float32), errors=False, **options)
            off = np.abs(np.column_stack([exact.y, exact.x]) - truth[:, :2]).max()
            good = share >= SHARE and both.mean() >= 0.97 and off <= EXACT
            print(f"  {model.name}, {pixel}, {estimator}: {both.mean():.1%} converge twice, "
                  f"{share:.2%} agree; {off:.1e} px without noise  "
                  f"{'ok' if good else 'MISSED'}", flush=True)  # fmt: skip
