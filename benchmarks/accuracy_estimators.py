"""Accuracy of maximum likelihood, of standard errors and of the integrated model."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from napari_spotfit import SpotFits, fit_spots, simulate_spots
from napari_spotfit.models.profiles import GAUSSIAN

#: Median and mean of |error|/σ that maximum likelihood reaches at 400:40, 9×9.
CENTER, WIDTH = (0.0379, 0.0454), (0.0299, 0.0402)
#: The share of fits that converge, for ROIs of these sides.
CONVERGED, SIDES = 0.995, range(5, 16)
#: How far the spread of (estimate - truth)/error may be from 1, and how far estimates may
#: scatter beyond the Cramér–Rao bound.
SPREAD, BOUND = 0.05, 0.05
SIGNALS, WIDTHS, BACKGROUNDS = (500.0, 2000.0, 10_000.0), (1.0, 1.3, 1.8), (0.0, 5.0)
QUANTITIES = ("y", "x", "sigma", "photons", "background")
#: Bias of the integrated model's σ in pixels.
BIAS, SIGMAS = 0.002, (0.8, 1.0, 1.2, 1.5, 2.0)


def verdict(good: bool) -> str:
    return "ok" if good else "MISSED"


def likelihood(count: int, backend: str, errors: Callable[..., object]) -> None:
    """The paper's simulation by maximum likelihood, and the convergence for any ROI."""
    print("\nMaximum likelihood, 400:40 counts    ours (median / mean)   asked for")
    for size in (9, *(side for side in SIDES if side != 9)):
        spots, truth = simulate_spots(
            count, size, photons=400, background=40 / size**2, sigma=(1.0, 2.0), jitter=0.75,
            seed=size,
        )  # fmt: skip
        fits = fit_spots(spots, estimator="mle", errors=False, backend=backend)
        if size == 9:
            for name, ours, wanted in zip(
                ("centre", "σ"), errors(fits, truth), (CENTER, WIDTH), strict=True
            ):
                # Half a per cent for what so many spots scatter.
                good = all(a <= 1.005 * b for a, b in zip(ours, wanted, strict=True))
                print(f"  {name:28s} {ours[0]:.4f} / {ours[1]:.4f}   "
                      f"{wanted[0]:.4f} / {wanted[1]:.4f}  {verdict(good)}")  # fmt: skip
        share = fits.converged.mean()
        good = verdict(share >= CONVERGED)
        steps = f"{fits.iterations.mean():.1f} iterations"
        print(f"  {size:2d}×{size:<2d} {steps}, converged {share:8.3%} (≥ {CONVERGED:.1%}) {good}")


def bound(size: int, spots: object, places: np.ndarray) -> np.ndarray:
    """Return the Cramér–Rao bound of y, x, σ, photons and background, mean of some places."""
    photons, sigma, background = spots
    rows, columns = np.indices((size, size), float)
    names = [parameter.name for parameter in GAUSSIAN.shape]
    variances = []
    for y, x in places:

        def light(values: np.ndarray) -> np.ndarray:
            given = dict(zip(names, values[:3], strict=True))
            given["amplitude"] = values[3] / (2 * np.pi * values[2] ** 2)
            return GAUSSIAN.evaluate(rows, columns, given | {"background": values[4]}).ravel()

        values = np.array([y, x, sigma, photons, background])
        steps = np.diag(1e-5 * np.maximum(values, 1))
        slopes = [
            (light(values + step) - light(values - step)) / (2 * step.sum()) for step in steps
        ]
        j = np.array(slopes)
        variances.append(np.diag(np.linalg.inv(j / light(values) @ j.T)))
    return np.sqrt(np.mean(variances, 0))


def standard_errors(count: int, backend: str) -> None:
    """The spread of (estimate - truth)/error, and of maximum likelihood beside the bound."""
    print(
        "\nStandard errors, 11×11: spread of (estimate - truth)/error, and scatter over the bound"
    )
    print(" " * 34 + " ".join(f"{name:>12}" for name in QUANTITIES))
    for photons in SIGNALS:
        for sigma in WIDTHS:
            for background in BACKGROUNDS:
                spots, truth = simulate_spots(
                    count, 11, photons=photons, background=background, sigma=sigma, seed=1
                )
                label = f"{photons:.0f}:{background:g}, σ {sigma:g}"
                for estimator in ("lse", "mle"):
                    fits = fit_spots(spots, estimator=estimator, gain=1.0, backend=backend)
                    pulls = [_spread(fits, truth, name, True) for name in QUANTITIES]
                    if estimator == "mle" and not background:
                        pulls[-1] = np.nan  # likelihood knows no negative light: half are 0
                    good = [not abs(pull - 1) > SPREAD for pull in pulls]
                    _row(f"{label}, {estimator}", pulls, good)
                if background:
                    lowest = bound(
                        11, (photons, sigma, background), truth[["y", "x"]].to_numpy()[:100]
                    )
                    scatter = [_spread(fits, truth, name, False) for name in QUANTITIES]
                    over = [a / b for a, b in zip(scatter, lowest, strict=True)]
                    _row("mle over the bound", over, [ratio <= 1 + BOUND for ratio in over])


def _spread(fits: SpotFits, truth: object, name: str, pull: bool) -> float:
    """Return the standard deviation of an error, over its standard error or as it is."""
    error = fits.columns[name] - truth[name].to_numpy()
    if pull:
        error = error / fits.columns[f"{name}_stderr"]
    return float(np.std(error[fits.converged & np.isfinite(error)]))


def _row(label: str, values: list[float], good: list[bool]) -> None:
    cells = [
        "at its bound" if np.isnan(value) else f"{value:.3f}{'' if ok else '!'}"
        for value, ok in zip(values, good, strict=True)
    ]
    print(f"  {label:32s}" + " ".join(f"{cell:>12}" for cell in cells) + f"  {verdict(all(good))}",
          flush=True)  # fmt: skip


def integrated(count: int, backend: str) -> None:
    """The bias of σ where light is averaged over the pixels, as a camera does."""
    print(f"\nBias of σ on integrated spots, px (at most {BIAS} with the integrated model)")
    for sigma in SIGMAS:
        size = 2 * round(4 * sigma) + 3
        spots, _ = simulate_spots(
            count, size, photons=20_000, background=5, sigma=sigma, pixel="integrated", seed=3
        )
        cells = []
        for pixel in ("integrated", "sampled"):
            fits = fit_spots(spots, pixel=pixel, errors=False, backend=backend)
            cells.append(float(np.mean(fits.sigma[fits.converged]) - sigma))
        print(f"  σ {sigma:g}: integrated {cells[0]:+.4f}, sampled {cells[1]:+.4f}  "
              f"{verdict(abs(cells[0]) <= BIAS)}")  # fmt: skip
