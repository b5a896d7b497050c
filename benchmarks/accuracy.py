"""Measure the accuracy of fits: the paper's simulation, maximum likelihood, standard errors.

Leutenegger & Weber, Least-squares fitting of Gaussian spots on graphics processing units, Table 1:
9×9 pixels, median and mean of absolute errors over the true σ. The simulation has σ uniform between
1 and 2 px and centres within ±0.75 px of the middle, which reproduces the table's least-squares
optimum. The tests compare every model and estimator with SciPy.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np
from common import BACKGROUND, JITTER, PHOTONS, SIGMA, bar, run

from napari_spotfit import SpotFits, StopCondition, fit_spots, simulate_spots

ROI = 9
#: By photons and background of a ROI: errors of centre, of σ by Gpufit, and of σ by Fit2DGaussian.
PAPER = {
    (400, 40): ((0.0464, 0.0550), (0.0421, 0.0514), (0.0420, 0.0506)),
    (1600, 40): ((0.0228, 0.0270), (0.0205, 0.0249), (0.0203, 0.0244)),
    (1600, 0): ((0.0228, 0.0269), (0.0203, 0.0247), (0.0198, 0.0238)),
}
#: Errors of maximum likelihood at 400:40, 9×9, plus 0.5 % for chance; fraction of fits that
#: converge, and sides of ROIs for it.
LIKELIHOOD, CONVERGED, SIDES = ((0.0379, 0.0454), (0.0299, 0.0402)), 0.995, range(5, 16)
#: Tolerance of the spread of (estimate - truth)/error around 1, and of the scatter above the
#: Cramér–Rao bound.
SPREAD, BOUND = 0.05, 0.05
SIGNALS, WIDTHS, BACKGROUNDS = (500.0, 2000.0, 10_000.0), (1.0, 1.3, 1.8), (0.0, 5.0)
QUANTITIES = ("y", "x", "sigma", "photons", "background")
#: Bias of the integrated model's σ in pixels, at these widths.
BIAS, SIGMAS = 0.002, (0.8, 1.0, 1.2, 1.5, 2.0)


def count_of(options: argparse.Namespace) -> int:
    """Return the number of fits per condition."""
    return 4000 if options.quick else int(options.count)


def errors(fits: SpotFits, truth: Any) -> tuple[tuple[float, float], tuple[float, float]]:
    """Return median and mean of |error|/σ of the centres, and of σ."""
    width, good = truth["sigma"].to_numpy(), fits.valid
    center = np.abs(np.r_[fits.x - truth["x"], fits.y - truth["y"]]) / np.tile(width, 2)
    center = center[np.tile(good, 2)]
    sigma = (np.abs(fits.sigma - width) / width)[good]
    return (np.median(center), center.mean()), (np.median(sigma), sigma.mean())


def row(name: str, ours: tuple[float, float], asked: tuple[float, float], beyond: float) -> None:
    """Print median and mean, and how far they exceed the required values."""
    over = max(a / b - 1 for a, b in zip(ours, asked, strict=True))
    print(f"  {name:28s} {ours[0]:.4f} / {ours[1]:.4f}   {asked[0]:.4f} / {asked[1]:.4f}   "
          f"{over:+7.1%} {bar(over, most=beyond, form='.1%')}", flush=True)  # fmt: skip


def simulated(count: int, size: int, photons: int, background: int, seed: int) -> Any:
    """Return spots of the paper's simulation, and their truth."""
    return simulate_spots(
        count, size, photons=photons, background=background / size**2, sigma=SIGMA,
        jitter=JITTER, seed=seed,
    )  # fmt: skip


def paper(options: argparse.Namespace) -> None:
    """Print the paper's table."""
    count, given = count_of(options), {"errors": False, "backend": options.backend}
    print(f"{count} fits each, {ROI}×{ROI}")
    for (photons, background), (center, free, bounded) in PAPER.items():
        spots, truth = simulated(count, ROI, photons, background, photons + background)
        print(f"\n{photons}:{background} counts              ours (median / mean)   paper")
        fits = fit_spots(spots, **given)
        ours = errors(fits, truth)
        row("centre", ours[0], center, 0.02)
        row("σ, background free (Gpufit)", ours[1], free, 0.02)
        row("σ, background ≥ 0", errors(fit_spots(spots, background_min=0, **given), truth)[1],
            bounded, 0.02)  # fmt: skip
        shares = np.bincount(fits.iterations) / count
        print(f"  iterations: mean {fits.iterations.mean():.2f};", end=" ")
        print(", ".join(f"{i}: {s:.1%}" for i, s in enumerate(shares) if s >= 0.0005))
        counts = fits.stop_counts()
        print("  stop conditions:", end=" ")
        print(", ".join(f"{c.name} {counts[c] / count:.2%}" for c in StopCondition))


def likelihood(options: argparse.Namespace) -> None:
    """Print the paper's simulation by maximum likelihood, and the convergence for any ROI."""
    print("\nMaximum likelihood, 400:40 counts    ours (median / mean)   asked for")
    for size in (ROI, *(side for side in SIDES if side != ROI)):
        spots, truth = simulated(count_of(options), size, PHOTONS, BACKGROUND, size)
        fits = fit_spots(spots, estimator="mle", errors=False, backend=options.backend)
        if size == ROI:
            for name, own, asked in zip(
                ("centre", "σ"), errors(fits, truth), LIKELIHOOD, strict=True
            ):
                row(name, own, asked, 0.005)
        share = fits.converged.mean()
        print(f"  {size:2d}×{size:<2d} {fits.iterations.mean():.1f} iterations, converged "
              f"{share:8.3%} {bar(share, least=CONVERGED, form='.1%')}")  # fmt: skip


def bound(size: int, spots: tuple[float, float, float], places: np.ndarray) -> np.ndarray:
    """Return the Cramér–Rao bound of y, x, σ, photons and background, averaged over positions."""
    photons, sigma, background = spots
    rows, columns = np.indices((size, size), float)

    def light(values: np.ndarray) -> np.ndarray:
        y, x, width, amount, level = values
        shape = np.exp(-((rows - y) ** 2 + (columns - x) ** 2) / (2 * width**2))
        return (amount * shape / (2 * np.pi * width**2) + level).ravel()

    variances = []
    for y, x in places:
        values = np.array([y, x, sigma, photons, background])
        steps = np.diag(1e-5 * np.maximum(values, 1))
        j = np.array([(light(values + s) - light(values - s)) / (2 * s.sum()) for s in steps])
        variances.append(np.diag(np.linalg.inv(j / light(values) @ j.T)))
    return np.sqrt(np.mean(variances, 0))


def standard_errors(options: argparse.Namespace) -> None:
    """Print the spread of (estimate - truth)/error, and of maximum likelihood over the bound."""
    print("\nStandard errors, 11×11: spread of (estimate - truth)/error, scatter over the bound")
    print(" " * 34 + " ".join(f"{name:>12}" for name in QUANTITIES))
    for photons, sigma, background in (
        (a, b, c) for a in SIGNALS for b in WIDTHS for c in BACKGROUNDS
    ):
        spots, truth = simulate_spots(
            count_of(options) // 5, 11, photons=photons, background=background, sigma=sigma, seed=1
        )
        label = f"{photons:.0f}:{background:g}, σ {sigma:g}"
        for estimator in ("lse", "mle"):
            fits = fit_spots(spots, estimator=estimator, gain=1.0, backend=options.backend)
            pulls = [_spread(fits, truth, name, pull=True) for name in QUANTITIES]
            if estimator == "mle" and not background:
                pulls[-1] = np.nan  # likelihood knows no negative light: half are 0
            _spreads(f"{label}, {estimator}", pulls, [not abs(p - 1) > SPREAD for p in pulls])
        if background:
            least = bound(11, (photons, sigma, background), truth[["y", "x"]].to_numpy()[:100])
            scatter = [_spread(fits, truth, name, pull=False) for name in QUANTITIES]
            over = [a / b for a, b in zip(scatter, least, strict=True)]
            _spreads("mle over the bound", over, [ratio <= 1 + BOUND for ratio in over])


def _spread(fits: SpotFits, truth: Any, name: str, *, pull: bool) -> float:
    """Return the standard deviation of an error, optionally in standard errors."""
    error = fits.columns[name] - truth[name].to_numpy()
    if pull:
        error = error / fits.columns[f"{name}_stderr"]
    return float(np.std(error[fits.converged & np.isfinite(error)]))


def _spreads(label: str, values: list[float], good: list[bool]) -> None:
    cells = [
        "at its bound" if np.isnan(value) else f"{value:.3f}{'' if ok else '!'}"
        for value, ok in zip(values, good, strict=True)
    ]
    print(f"  {label:32s}" + " ".join(f"{cell:>12}" for cell in cells)
          + f"  {'ok' if all(good) else 'MISSED'}", flush=True)  # fmt: skip


def integrated(options: argparse.Namespace) -> None:
    """Print the bias of σ for pixels that integrate light, as on a camera."""
    print(f"\nBias of σ on integrated spots, px (at most {BIAS} with the integrated model)")
    for sigma in SIGMAS:
        spots, _ = simulate_spots(
            count_of(options) // 20, 2 * round(4 * sigma) + 3, photons=20_000, background=5,
            sigma=sigma, pixel="integrated", seed=3,
        )  # fmt: skip
        bias = {}
        for pixel in ("integrated", "sampled"):
            fits = fit_spots(spots, pixel=pixel, errors=False, backend=options.backend)
            bias[pixel] = float(np.mean(fits.sigma[fits.converged]) - sigma)
        texts = ", ".join(f"{pixel} {value:+.4f}" for pixel, value in bias.items())
        print(f"  σ {sigma:g}: {texts} {bar(abs(bias['integrated']), most=BIAS)}")


SECTIONS = {
    "paper": paper,
    "likelihood": likelihood,
    "errors": standard_errors,
    "integrated": integrated,
}


def _add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--count", type=int, default=100_000, help="fits per condition")
    parser.add_argument("--backend", default="auto")


if __name__ == "__main__":
    run(__doc__, SECTIONS, _add)
