"""The drift that five beads tell, against the bound of all of them together."""

from __future__ import annotations

import argparse
import math
import time

import numpy as np
from tracking import bound

import napari_spotfit as spotfit

BEADS, PHOTONS, SIGMA, BACKGROUND = 5, 5000.0, 1.3, 10.0
MOST = 1.1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--frames", type=int, default=2000)
    count = parser.parse_args().frames
    scope = spotfit.SimulatedMicroscope(
        BEADS, (128, 128), photons=PHOTONS, sigma=SIGMA, background=BACKGROUND, fringes=0.0,
        drift=(0.003, -0.002), vibration=0.005, frequency=1.3, seed=1,
    )  # fmt: skip
    times, frames = zip(*scope.frames(20.0, count), strict=True)
    truth = np.array([scope.displacement(at) for at in times])
    least = bound(SIGMA, PHOTONS, BACKGROUND) / math.sqrt(BEADS)
    print(f"{BEADS} beads of {PHOTONS:g} photons, σ {SIGMA}, {count} frames; r.m.s. along an axis")
    for estimator in ("lse", "mle"):
        fits = spotfit.localize(
            np.array(frames), sigma=SIGMA, gain=1.0, offset=100.0, roi_size=13, estimator=estimator
        )
        begin = time.perf_counter()
        linked = spotfit.link_spots(fits, max_distance=2.0, memory=3)
        drift = spotfit.fiducial_drift(linked)
        taken = time.perf_counter() - begin
        off = np.column_stack([drift.y, drift.x]) - truth
        spread = float(np.sqrt(np.mean(np.var(off, axis=0))))
        ratio = spread / least
        asked = f"(≤ {MOST}{'' if ratio <= MOST else ': MISSED'})" if estimator == "mle" else ""
        used = f"{drift.used.min()} to {drift.used.max()} used"
        print(f"  {estimator}: {spread:.4f} px, over the bound of all {ratio:.3f} {asked}; {used}; "
              f"linked and averaged in {taken:.2f} s", flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
