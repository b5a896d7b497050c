"""Fiducials tracked while a camera runs: time of a frame, errors by their bound, the loop closed.

SciPy's curve_fit, trackpy's refinement and Picasso's fit do the same in the same loop: cut out,
fit, average the shifts. A Tracker also says which fiducials cannot be believed.
"""

from __future__ import annotations

import argparse
import math
import platform
import time
import warnings
from collections.abc import Callable

import numpy as np

import napari_spotfit as spotfit
from napari_spotfit.engine.cpu.library import load

ROI, SIGMA, PHOTONS, BACKGROUND, OFFSET = 15, 1.3, 10_000.0, 10.0, 100.0
NANOMETRES = 100.0
KNOWN = {"roi_size": ROI, "sigma": SIGMA, "gain": 1.0, "offset": OFFSET}
#: Milliseconds of a frame at most, and how much all but one in a thousand may take.
ASKED = {("CPU", 20): (0.25, 1.0), ("CPU", 200): (1.2, math.inf), ("GPU", 200): (0.3, math.inf)}

Follow = Callable[[np.ndarray], tuple[float, float]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--frames", type=int, default=3000, help="of each timed loop")
    parser.add_argument("--seconds", type=float, default=600.0, help="of the closed loop's drift")
    parser.add_argument("--only", nargs="*", help="latency, errors, disturbed, loop")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    print(f"{platform.processor() or platform.machine()}, {load().description}")
    sections = {
        "latency": lambda: latency(given.frames), "errors": errors, "disturbed": disturbed,
        "loop": lambda: loop(given.seconds),
    }  # fmt: skip
    for name in given.only or sections:
        sections[name]()


def verdict(value: float, most: float) -> str:
    return f"(≤ {most:g}{'' if value <= most else ': MISSED'})" if most < math.inf else ""


# ---- Time ----


def latency(frames: int) -> None:
    """From a frame of 1024² in NumPy to a displacement."""
    print(f"\nframe of 1024² uint16 → displacement, ROI {ROI}, ms: median, 99.9 %")
    for count in (20, 200):
        scope = spotfit.SimulatedMicroscope(
            count, (1024, 1024), photons=PHOTONS, sigma=SIGMA, background=BACKGROUND,
            drift=(0.01, -0.02), seed=1,
        )  # fmt: skip
        movie = [frame for _, frame in scope.frames(100.0, 60)]
        for where, backend in (("CPU", "cpu"), ("GPU", "cuda")):
            if backend == "cuda" and not has_gpu():
                continue
            with spotfit.Tracker(scope.fiducials, backend=backend, threads=1, **KNOWN) as tracker:
                taken = timed(tracker.update, movie, frames)
            median, worst = np.median(taken), np.quantile(taken, 0.999)
            most, slowest = ASKED.get((where, count), (math.inf, math.inf))
            print(f"  {count:3d} fiducials, {where}, one thread: {median:.3f} "
                  f"{verdict(median, most)}, {worst:.3f} {verdict(worst, slowest)}",
                  flush=True)  # fmt: skip
        for name, follow in peers(scope.fiducials).items():
            taken = timed(follow, movie, max(frames // 100, 10))
            print(f"  {count:3d} fiducials, {name}: {np.median(taken):.2f}", flush=True)


def has_gpu() -> bool:
    try:
        spotfit.fit_spots(np.ones((1, 9, 9), np.float32), backend="cuda")
    except spotfit.BackendUnavailableError:
        return False
    return True


def timed(work: Callable[[np.ndarray], object], movie: list[np.ndarray], count: int) -> np.ndarray:
    """Return milliseconds of calls for the frames of a movie, over and over."""
    for frame in movie[:5]:
        work(frame)
    taken = np.empty(count)
    for number in range(count):
        frame = movie[number % len(movie)]
        begin = time.perf_counter()
        work(frame)
        taken[number] = time.perf_counter() - begin
    return 1e3 * taken


def peers(places: np.ndarray) -> dict[str, Follow]:
    """Return what else fits the same places, where it is installed, each with its mean shift."""
    corners = np.rint(places).astype(int) - ROI // 2
    along = np.arange(ROI)
    where = (corners[:, :1] + along)[:, :, None], (corners[:, 1:] + along)[:, None, :]
    inside = places - corners

    def shift(y: np.ndarray, x: np.ndarray) -> tuple[float, float]:
        return float(np.mean(y - inside[:, 0])), float(np.mean(x - inside[:, 1]))

    return {
        name: found
        for name, found in {
            "SciPy curve_fit": with_scipy(where, shift),
            "trackpy refine_com": with_trackpy(places),
            "Picasso's gausslq": with_picasso(where, shift),
        }.items()
        if found is not None
    }


def with_scipy(where: tuple, shift: Callable) -> Follow | None:
    from scipy.optimize import curve_fit

    y, x = (axis.ravel().astype(float) for axis in np.indices((ROI, ROI)))

    def spot(_: object, y0: float, x0: float, height: float, level: float) -> np.ndarray:
        return height * np.exp(-((y - y0) ** 2 + (x - x0) ** 2) / (2 * SIGMA**2)) + level

    def follow(frame: np.ndarray) -> tuple[float, float]:
        found = []
        for one in frame[where].astype(float):
            start = (ROI // 2, ROI // 2, one.max() - one.min(), one.min())
            found.append(curve_fit(spot, None, one.ravel(), start)[0][:2])
        return shift(*np.transpose(found))

    return follow


def with_trackpy(places: np.ndarray) -> Follow | None:
    try:
        from trackpy.refine import refine_com_arr
    except ImportError:
        return None
    start = np.rint(places).astype(int)

    def follow(frame: np.ndarray) -> tuple[float, float]:
        found = refine_com_arr(frame, frame, (ROI // 2,) * 2, start, engine="auto")[:, :2]
        y, x = np.mean(found - places, axis=0)
        return float(y), float(x)

    return follow


def with_picasso(where: tuple, shift: Callable) -> Follow | None:
    try:
        from picasso import gausslq
    except ImportError:
        return None

    def follow(frame: np.ndarray) -> tuple[float, float]:
        found = gausslq.fit_spots(frame[where].astype(np.float32))
        return shift(found[:, 1] + ROI // 2, found[:, 0] + ROI // 2)

    return follow


# ---- Errors ----


def bound(sigma: float = SIGMA, photons: float = PHOTONS, background: float = BACKGROUND) -> float:
    """Return the Cramér–Rao bound of a centre along one axis, averaged over places in a pixel."""
    y, x = np.indices((ROI, ROI)) - ROI // 2
    found = []
    for offset in np.random.default_rng(0).uniform(-0.5, 0.5, (50, 2)):
        u, v = (x - offset[1]) / sigma, (y - offset[0]) / sigma
        shape = np.exp(-0.5 * (u * u + v * v)) / (2 * math.pi * sigma**2)
        light = photons * shape
        slopes = np.stack([light * v / sigma, light * u / sigma, shape,
                           light * (u * u + v * v - 2) / sigma, np.ones_like(shape)])  # fmt: skip
        weight = slopes.reshape(5, -1) / (light + background).ravel()
        information = weight @ slopes.reshape(5, -1).T
        found.append(np.linalg.inv(information)[0, 0])
    return math.sqrt(np.mean(found))


def errors() -> None:
    """What a sample that stays still seems to move."""
    count, frames = 20, 2000
    scope = spotfit.SimulatedMicroscope(
        count, (256, 256), photons=PHOTONS, sigma=SIGMA, background=BACKGROUND, seed=2
    )
    movie = [frame for _, frame in scope.frames(100.0, frames)]
    least = bound() / math.sqrt(count)
    print(
        f"\n{count} fiducials of {PHOTONS:g} photons, σ {SIGMA}, {frames} frames of a still sample"
    )
    for estimator in ("lse", "mle"):
        with spotfit.Tracker(scope.fiducials, estimator=estimator, **KNOWN) as tracker:
            found = [tracker.update(frame) for frame in movie][200:]
        told = np.array([[one.y, one.x] for one in found])
        spread = float(np.sqrt(np.mean(np.var(told, axis=0))))
        own = float(np.mean([[one.y_stderr, one.x_stderr] for one in found]))
        ratio = spread / least
        nanometres = spread * NANOMETRES
        asked = ["", ""]
        if estimator == "mle":
            asked = [verdict(nanometres, 0.35), verdict(ratio, 1.05)]
        print(f"  {estimator}: r.m.s. {nanometres:.3f} nm along an axis at {NANOMETRES:g} nm a "
              f"pixel {asked[0]}; over the bound of all {ratio:.3f} {asked[1]}; over its own "
              f"standard error {spread / own:.3f}", flush=True)  # fmt: skip


# ---- Disturbances ----


def disturbed() -> None:
    """Half off and on, two that cross, one saturated: the largest jump of the displacement."""
    count, side = 20, 256
    shape, options = (side, side), {"sigma": SIGMA, "background": BACKGROUND, "seed": 3}
    scope = spotfit.SimulatedMicroscope(count, shape, photons=PHOTONS, **options)
    dark = spotfit.SimulatedMicroscope(count, shape, photons=0.0, **options)
    print("\nlargest step of the mean of 20 frames where something changes, in standard errors")
    cases = {
        "half off and on": lambda number, frame, empty: halved(number, frame, empty, side),
        "another crosses one": lambda number, frame, _: crossed(number, frame, scope.fiducials),
        "one saturated now and then": lambda number, frame, _: saturated(
            number, frame, scope.fiducials
        ),
    }
    for name, change in cases.items():
        found = []
        with spotfit.Tracker(scope.fiducials, **KNOWN) as tracker:
            for number in range(400):
                at = number / 100.0
                frame = scope.frame(at)
                change(number, frame, dark.frame(at))
                found.append(tracker.update(frame))
        told = np.array([[one.y, one.x] for one in found])
        own = np.array([[one.y_stderr, one.x_stderr] for one in found])
        steps = []
        for begin in range(60, 380, 20):
            after, before = slice(begin, begin + 20), slice(begin - 20, begin)
            both = np.mean(own[after] ** 2, axis=0) + np.mean(own[before] ** 2, axis=0)
            error = np.sqrt(both / 20)
            steps.append(np.abs(told[after].mean(axis=0) - told[before].mean(axis=0)) / error)
        single = np.abs(told[1:] - told[:-1]) / np.sqrt(own[1:] ** 2 + own[:-1] ** 2)
        worst, scatter = float(np.max(steps)), float(np.quantile(single, 0.999))
        print(f"  {name}: {worst:.2f} {verdict(worst, 3)}; of one frame, 99.9 % {scatter:.2f}; "
              f"used {min(one.used for one in found)} to {max(one.used for one in found)}",
              flush=True)  # fmt: skip


def halved(number: int, frame: np.ndarray, empty: np.ndarray, side: int) -> None:
    if number // 40 % 2:
        frame[: side // 2] = empty[: side // 2]


def crossed(number: int, frame: np.ndarray, places: np.ndarray) -> None:
    y, x = np.indices(frame.shape)
    y0, x0 = places[7] + [0.4, (number % 80) - 40.0]
    light = PHOTONS / (2 * math.pi * SIGMA**2)
    light *= np.exp(-((y - y0) ** 2 + (x - x0) ** 2) / (2 * SIGMA**2))
    frame += np.random.default_rng(number).poisson(light).astype(frame.dtype)


def saturated(number: int, frame: np.ndarray, places: np.ndarray) -> None:
    if number // 40 % 2:
        y, x = np.rint(places[4]).astype(int)
        frame[y - 2 : y + 3, x - 2 : x + 3] = 65535


# ---- The loop ----


def loop(seconds: float) -> None:
    """A stage with lag, backlash and noise holds a sample that drifts, slips and trembles."""
    rate = 50.0
    scope = spotfit.SimulatedMicroscope(
        20, (256, 256), photons=PHOTONS, sigma=SIGMA, angle=7.0, drift=(1.0 / 600.0, 0.0),
        step=0.02, step_every=60.0, vibration=0.001, frequency=30.0, seed=4,
    )  # fmt: skip
    with spotfit.Tracker(
        scope.fiducials, roi_size=9, sigma=SIGMA, gain=1.0, offset=OFFSET
    ) as tracker:
        calibration = spotfit.calibrate_stage(scope.stage, scope.grab_at_rest, tracker)
        controller = spotfit.Controller(scope.stage, calibration)
        controller.arm()
        off, free = [], []
        for at, frame in scope.frames(rate, round(seconds * rate)):
            controller.step(tracker.update(frame, at))
            off.append(scope.displacement(at))
            free.append(off[-1] - scope.matrix @ scope.stage.place(at))
    held = (np.array(off) - np.median(off[: int(rate)], axis=0))[int(2 * rate) :]
    residual = np.sqrt(np.mean(held**2, axis=0)) * NANOMETRES
    moved = np.ptp(np.array(free), axis=0) * NANOMETRES
    worst = float(residual.max())
    print(f"\nloop closed for {seconds:g} s at {rate:g} Hz on a sample that moves by "
          f"{moved[0]:.0f} and {moved[1]:.0f} nm, with slips of 20 nm a minute and 1 nm of 30 Hz: "
          f"r.m.s. {residual[0]:.2f} and {residual[1]:.2f} nm {verdict(worst, 1.5)}",
          flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
