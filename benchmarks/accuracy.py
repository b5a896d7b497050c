"""Accuracy of the fit on the paper's simulation, beside the paper's own table.

Leutenegger & Weber, Least-squares fitting of Gaussian spots on graphics processing
units, Table 1: 9×9 pixels, absolute errors over the true σ, median and mean. The
simulation here has σ evenly between 1 and 2 px and centres within ±0.75 px of the
middle, which reproduces the table's least-squares optimum.

Then maximum likelihood, the standard errors, the integrated model, and every model by every
estimator beside SciPy.
"""

from __future__ import annotations

import argparse
import platform

import accuracy_estimators
import accuracy_models
import numpy as np

from napari_spotfit import StopCondition, fit_spots, simulate_spots
from napari_spotfit.engine.select import describe
from napari_spotfit.settings.settings import Settings

SIGMA, JITTER, ROI = (1.0, 2.0), 0.75, 9

#: Photons and background of a ROI: centre, σ of Gpufit's row, σ of Fit2DGaussian's.
PAPER = {
    (400, 40): ((0.0464, 0.0550), (0.0421, 0.0514), (0.0420, 0.0506)),
    (1600, 40): ((0.0228, 0.0270), (0.0205, 0.0249), (0.0203, 0.0244)),
    (1600, 0): ((0.0228, 0.0269), (0.0203, 0.0247), (0.0198, 0.0238)),
}


def errors(fits, truth):
    """Median and mean of |error|/σ of the centres, and of σ."""
    width = truth["sigma"].to_numpy()
    good = fits.valid
    center = np.abs(np.r_[fits.x - truth["x"], fits.y - truth["y"]]) / np.r_[width, width]
    center = center[np.r_[good, good]]
    sigma = (np.abs(fits.sigma - width) / width)[good]
    return (np.median(center), center.mean()), (np.median(sigma), sigma.mean())


def row(name, ours, paper):
    over = max(a / b - 1 for a, b in zip(ours, paper, strict=True))
    verdict = "ok" if over <= 0.02 else "MISSED"
    values = f"{ours[0]:.4f} / {ours[1]:.4f}   {paper[0]:.4f} / {paper[1]:.4f}"
    print(f"  {name:28s} {values}   {over:+7.1%}  {verdict}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=100_000, help="fits per condition")
    parser.add_argument("--backend", default="auto")
    arguments = parser.parse_args()
    settings = Settings(backend=arguments.backend, errors=False)
    print(
        f"{arguments.count} fits each, {ROI}×{ROI}, on {describe(settings)}, {platform.machine()}"
    )
    for (photons, background), (center, free, bounded) in PAPER.items():
        spots, truth = simulate_spots(
            arguments.count, ROI, photons=photons, background=background / ROI**2,
            sigma=SIGMA, jitter=JITTER, seed=photons + background,
        )  # fmt: skip
        print(f"\n{photons}:{background} counts              ours (median / mean)   paper")
        fits = fit_spots(spots, settings=settings)
        ours_center, ours_sigma = errors(fits, truth)
        row("centre", ours_center, center)
        row("σ, background free (Gpufit)", ours_sigma, free)
        _, ours_sigma = errors(fit_spots(spots, settings=settings, background_min=0), truth)
        row("σ, background ≥ 0", ours_sigma, bounded)
        shares = np.bincount(fits.iterations, minlength=settings.max_iterations + 1) / len(fits)
        print(f"  iterations: mean {fits.iterations.mean():.2f};", end=" ")
        print(", ".join(f"{i}: {s:.1%}" for i, s in enumerate(shares) if s >= 0.0005))
        counts = fits.stop_counts()
        print("  stop conditions:", end=" ")
        print(", ".join(f"{c.name} {counts[c] / len(fits):.2%}" for c in StopCondition))
    backend = arguments.backend
    accuracy_estimators.likelihood(arguments.count, backend, errors)
    accuracy_estimators.standard_errors(arguments.count // 5, backend)
    accuracy_estimators.integrated(arguments.count // 20, backend)
    accuracy_models.beside_scipy(min(arguments.count // 200, 500), backend)


if __name__ == "__main__":
    main()
