"""Measure tracking of fiducials: time per frame, errors over their bound, and a closed loop.

SciPy's curve_fit, trackpy's refinement and Picasso's fit run in the same loop: cut out, fit, and
average the shifts. A Tracker also flags unreliable fiducials. Then the drift by beads in a movie.
"""

from __future__ import annotations

import argparse
import math
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from common import Work, bar, in_turns, run
from internals import library

import napari_spotfit as spotfit

ROI, SIGMA, PHOTONS, BACKGROUND, OFFSET = 15, 1.3, 10_000.0, 10.0, 100.0
NANOMETRES = 100.0
KNOWN: dict[str, Any] = {"roi_size": ROI, "sigma": SIGMA, "gain": 1.0, "offset": OFFSET}
#: Largest milliseconds of a frame: median, and 99.9th percentile.
ASKED = {("cpu", 20): (0.25, 1.0), ("cpu", 200): (1.2, None), ("cuda", 200): (0.3, None)}

Follow = Callable[[np.ndarray], Any]
Microscope = spotfit.SimulatedMicroscope


def latency(options: argparse.Namespace) -> None:
    """Print the time from a frame of 1024² in NumPy to a displacement."""
    frames = 50 if options.quick else options.frames
    print(f"{library()}; frame of 1024² uint16 → displacement, ROI {ROI}, ms: median, 99.9 %")
    for count in (20, 200):
        scope = Microscope(
            count, (1024, 1024), photons=PHOTONS, sigma=SIGMA, background=BACKGROUND,
            drift=(0.01, -0.02), seed=1,
        )  # fmt: skip
        movie = [frame for _, frame in scope.frames(100.0, 60)]
        for backend in ("cpu", "cuda") if has_gpu() else ("cpu",):
            with spotfit.Tracker(scope.fiducials, backend=backend, threads=1, **KNOWN) as tracker:
                taken = timed(tracker.update, movie, frames)
            median, worst = np.median(taken), np.quantile(taken, 0.999)
            most, slowest = ASKED.get((backend, count), (None, None))
            print(f"  {count:3d} fiducials, {backend}, one thread: {median:.3f} "
                  f"{bar(median, most=most)}, {worst:.3f} {bar(worst, most=slowest)}",
                  flush=True)  # fmt: skip
        for name, make in PEERS.items():
            try:
                taken = timed(make(scope.fiducials), movie, max(frames // 100, 5))
                print(f"  {count:3d} fiducials, {name}: {np.median(taken):.2f}", flush=True)
            except ImportError:
                print(f"  {name} is not installed")


def has_gpu() -> bool:
    try:
        spotfit.fit_spots(np.ones((1, 9, 9), np.float32), backend="cuda")
    except spotfit.BackendUnavailableError:
        return False
    return True


def timed(follow: Follow, movie: list[np.ndarray], count: int) -> np.ndarray:
    """Return the milliseconds of calls for the frames of a movie, repeatedly."""
    numbers = iter(range(10**9))
    work: Work = lambda: follow(movie[next(numbers) % len(movie)])  # noqa: E731
    return 1e3 * np.array(in_turns({"": work}, count, turn=5)[""])


def cut_out(places: np.ndarray, frame: np.ndarray) -> np.ndarray:
    """Return the ROIs around positions."""
    corners, along = np.rint(places).astype(int) - ROI // 2, np.arange(ROI)
    return frame[(corners[:, :1] + along)[:, :, None], (corners[:, 1:] + along)[:, None, :]]


def with_scipy(places: np.ndarray) -> Follow:
    from scipy.optimize import curve_fit

    y, x = (axis.ravel().astype(float) for axis in np.indices((ROI, ROI)))

    def spot(_: object, y0: float, x0: float, height: float, level: float) -> np.ndarray:
        return height * np.exp(-((y - y0) ** 2 + (x - x0) ** 2) / (2 * SIGMA**2)) + level

    def follow(frame: np.ndarray) -> Any:
        found = []
        for one in cut_out(places, frame).astype(float):
            start = (ROI // 2, ROI // 2, one.max() - one.min(), one.min())
            found.append(curve_fit(spot, None, one.ravel(), start)[0][:2])
        return np.mean(found, axis=0)

    return follow


def with_trackpy(places: np.ndarray) -> Follow:
    from trackpy.refine import refine_com_arr

    start = np.rint(places).astype(int)
    return lambda frame: np.mean(
        refine_com_arr(frame, frame, (ROI // 2,) * 2, start, engine="auto")[:, :2], axis=0
    )


def with_picasso(places: np.ndarray) -> Follow:
    from picasso import gausslq

    return lambda frame: np.mean(
        gausslq.fit_spots(cut_out(places, frame).astype(np.float32))[:, :2], axis=0
    )


PEERS = {
    "SciPy curve_fit": with_scipy, "trackpy refine_com": with_trackpy,
    "Picasso's gausslq": with_picasso,
}  # fmt: skip


def bound(sigma: float, photons: float, background: float) -> float:
    """Return the Cramér–Rao bound of a centre along an axis, averaged over positions in a pixel."""
    y, x = np.indices((ROI, ROI)) - ROI // 2
    found = []
    for offset in np.random.default_rng(0).uniform(-0.5, 0.5, (50, 2)):
        u, v = (x - offset[1]) / sigma, (y - offset[0]) / sigma
        shape = np.exp(-0.5 * (u * u + v * v)) / (2 * math.pi * sigma**2)
        light = photons * shape
        slopes = np.stack([light * v / sigma, light * u / sigma, shape,
                           light * (u * u + v * v - 2) / sigma, np.ones_like(shape)])  # fmt: skip
        weight = slopes.reshape(5, -1) / (light + background).ravel()
        found.append(np.linalg.inv(weight @ slopes.reshape(5, -1).T)[0, 0])
    return math.sqrt(np.mean(found))


def errors(options: argparse.Namespace) -> None:
    """Print the apparent movement of a still sample."""
    count, frames = 20, 300 if options.quick else 2000
    scope = Microscope(
        count, (256, 256), photons=PHOTONS, sigma=SIGMA, background=BACKGROUND, seed=2
    )
    movie = [frame for _, frame in scope.frames(100.0, frames)]
    least = bound(SIGMA, PHOTONS, BACKGROUND) / math.sqrt(count)
    print(f"\n{count} fiducials of {PHOTONS:g} photons, σ {SIGMA}, {frames} frames, a still sample")
    for estimator in ("lse", "mle"):
        with spotfit.Tracker(scope.fiducials, estimator=estimator, **KNOWN) as tracker:
            found = [tracker.update(frame) for frame in movie][frames // 10 :]
        measured = np.array([[one.y, one.x] for one in found])
        spread = float(np.sqrt(np.mean(np.var(measured, axis=0))))
        own = float(np.mean([[one.y_stderr, one.x_stderr] for one in found]))
        nanometres, ratio = spread * NANOMETRES, spread / least
        asked = (0.35, 1.05) if estimator == "mle" else (None, None)
        print(f"  {estimator}: r.m.s. {nanometres:.3f} nm along an axis at {NANOMETRES:g} nm a "
              f"pixel {bar(nanometres, most=asked[0])}; over the bound of all {ratio:.3f} "
              f"{bar(ratio, most=asked[1])}; over its own standard error {spread / own:.3f}",
              flush=True)  # fmt: skip


def disturbed(options: argparse.Namespace) -> None:
    """Print the largest jump: half off and on, two crossing, one saturated."""
    given: dict[str, Any] = {"sigma": SIGMA, "background": BACKGROUND, "seed": 3}
    scope = Microscope(20, (256, 256), photons=PHOTONS, **given)
    dark = Microscope(20, (256, 256), photons=0.0, **given)
    print("\nlargest step of the mean of 20 frames where something changes, in standard errors")
    for name, change in (
        ("half off and on", halved), ("another crosses one", crossed),
        ("one saturated now and then", saturated),
    ):  # fmt: skip
        found = []
        with spotfit.Tracker(scope.fiducials, **KNOWN) as tracker:
            for number in range(120 if options.quick else 400):
                frame = scope.frame(number / 100.0)
                change(number, frame, dark.frame(number / 100.0), scope.fiducials)
                found.append(tracker.update(frame))
        measured = np.array([[one.y, one.x] for one in found])
        own = np.array([[one.y_stderr, one.x_stderr] for one in found])
        steps = []
        for begin in range(60, len(found) - 20, 20):
            after, before = slice(begin, begin + 20), slice(begin - 20, begin)
            error = np.mean(own[after] ** 2, axis=0) + np.mean(own[before] ** 2, axis=0)
            step = measured[after].mean(axis=0) - measured[before].mean(axis=0)
            steps.append(np.abs(step) / np.sqrt(error / 20))
        single = np.abs(measured[1:] - measured[:-1]) / np.sqrt(own[1:] ** 2 + own[:-1] ** 2)
        worst, used = float(np.max(steps)), [one.used for one in found]
        print(f"  {name}: {worst:.2f} {bar(worst, most=3)}; of one frame, 99.9 % "
              f"{np.quantile(single, 0.999):.2f}; used {min(used)} to {max(used)}",
              flush=True)  # fmt: skip


def halved(number: int, frame: np.ndarray, empty: np.ndarray, _: np.ndarray) -> None:
    if number // 40 % 2:
        frame[:128] = empty[:128]


def crossed(number: int, frame: np.ndarray, _: np.ndarray, places: np.ndarray) -> None:
    y, x = np.indices(frame.shape)
    y0, x0 = places[7] + [0.4, (number % 80) - 40.0]
    light = PHOTONS / (2 * math.pi * SIGMA**2)
    light *= np.exp(-((y - y0) ** 2 + (x - x0) ** 2) / (2 * SIGMA**2))
    frame += np.random.default_rng(number).poisson(light).astype(frame.dtype)


def saturated(number: int, frame: np.ndarray, _: np.ndarray, places: np.ndarray) -> None:
    if number // 40 % 2:
        y, x = np.rint(places[4]).astype(int)
        frame[y - 2 : y + 3, x - 2 : x + 3] = 65535


def loop(options: argparse.Namespace) -> None:
    """Print how well a stage with lag, backlash and noise holds a sample that drifts and slips."""
    rate, seconds = 50.0, 20.0 if options.quick else options.seconds
    scope = Microscope(
        20, (256, 256), photons=PHOTONS, sigma=SIGMA, angle=7.0, drift=(1.0 / 600.0, 0.0),
        step=0.02, step_every=60.0, vibration=0.001, frequency=30.0, seed=4,
    )  # fmt: skip
    with spotfit.Tracker(scope.fiducials, **KNOWN | {"roi_size": 9}) as tracker:
        calibration = spotfit.calibrate_stage(scope.stage, scope.grab_at_rest, tracker)
        controller = spotfit.Controller(scope.stage, calibration)
        controller.arm()
        off, free = [], []
        for at, frame in scope.frames(rate, round(seconds * rate)):
            controller.step(tracker.update(frame, at))
            off.append(scope.displacement(at))
            free.append(off[-1] - scope.matrix @ scope.stage.place(at)[:2])
    held = (np.array(off) - np.median(off[: int(rate)], axis=0))[int(2 * rate) :]
    residual = np.sqrt(np.mean(held**2, axis=0)) * NANOMETRES
    moved = np.ptp(np.array(free), axis=0) * NANOMETRES
    print(f"\nloop closed for {seconds:g} s at {rate:g} Hz on a sample that moves by "
          f"{moved[0]:.0f} and {moved[1]:.0f} nm, with slips of 20 nm a minute and 1 nm of 30 Hz: "
          f"r.m.s. {residual[0]:.2f} and {residual[1]:.2f} nm {bar(residual.max(), most=1.5)}",
          flush=True)  # fmt: skip


def height(options: argparse.Namespace) -> None:
    """Print the time and the error of z by 20 beads, and a loop closed on a random walk."""
    rate, count, photons = 50.0, 300 if options.quick else 3000, PHOTONS
    lens = {"astigmatism": 0.1, "coma": 0.03}
    planes = np.arange(-700.0, 701.0, 20.0)
    truth = spotfit.MeasuredPsf.from_planes(
        spotfit.simulate_psf(planes, zernike=lens), 20.0, plane=len(planes) // 2, pixel_size=100.0
    )
    beads, _ = spotfit.simulate_beads(
        planes, count=20, photons=10 * photons, background=BACKGROUND, zernike=lens, seed=3
    )
    settings = spotfit.Settings(gain=1.0, offset=OFFSET, voxel_size=(20, 100, 100))
    models: dict[str, Any] = {
        "astigmatic widths": spotfit.calibrate_astigmatism(beads, 20, settings=settings),
        "measured PSF": spotfit.calibrate_psf(beads, 20, settings=settings),
    }
    random = np.random.default_rng(4)
    walk = np.cumsum(random.normal(0.0, 0.002, count + 100))
    walk += 0.01 * np.cumsum(random.random(count + 100) < 0.005)  # µm, in steps of 10 nm
    print(f"\n20 beads of {photons:g} photons in z, a walk of 2 nm a frame with steps of 10 nm")
    for name, model in models.items():
        scope = Microscope(
            20, (256, 256), photons=photons, background=BACKGROUND, model=truth, seed=5,
            height=lambda at: float(walk[round(at * rate)]) if at * rate < len(walk) else 0.0,
        )  # fmt: skip
        known: dict[str, Any] = {
            "model": model, "gain": 1.0, "offset": OFFSET, "backend": "cpu", "threads": 1,
        }  # fmt: skip
        with spotfit.Tracker(scope.fiducials, **known) as tracker:
            movie = [frame for _, frame in scope.frames(rate, 60)]
            taken = timed(tracker.update, movie, count // 3)
        scope.now = scope.stage.now = 0.0
        with spotfit.Tracker(scope.fiducials, **known) as tracker:
            calibration = spotfit.StageCalibration(scope.matrix, np.zeros((3, 3)))
            controller = spotfit.Controller(scope.stage, calibration, proportional=0.8, integral=0)
            controller.arm()
            off, errors = [], []
            for at, frame in scope.frames(rate, count):
                found = tracker.update(frame, at)
                off.append(scope.displacement(at)[2])
                errors.append(found.z_stderr)
                controller.step(found)
        held = np.array(off[20:]) - np.mean(off[20:])
        least = math.hypot(float(np.nanmedian(errors)), 2.0)
        print(f"  {name}: {np.median(taken):.2f} ms a frame {bar(np.median(taken), most=2)}; held "
              f"within {held.std():.2f} nm r.m.s., over √(SE² + walk²) = {least:.2f} nm: "
              f"{held.std() / least:.2f} {bar(held.std() / least, most=1.3)}; SE "
              f"{np.nanmedian(errors):.2f} nm; without z in {np.isnan(errors).sum()} frames; free "
              f"range {1000 * np.ptp(walk[:count]):.0f} nm", flush=True)  # fmt: skip


def drift(options: argparse.Namespace) -> None:
    """Print the error of the drift by five beads, over their common bound."""
    beads, photons, count = 5, 5000.0, 200 if options.quick else 2000
    scope = Microscope(
        beads, (128, 128), photons=photons, sigma=SIGMA, background=BACKGROUND, fringes=0.0,
        drift=(0.003, -0.002), vibration=0.005, frequency=1.3, seed=1,
    )  # fmt: skip
    times, frames = zip(*scope.frames(20.0, count), strict=True)
    truth = np.array([scope.displacement(at) for at in times])
    least = bound(SIGMA, photons, BACKGROUND) / math.sqrt(beads)
    print(f"\n{beads} beads of {photons:g} photons, σ {SIGMA}, {count} frames; r.m.s. of an axis")
    for estimator in ("lse", "mle"):
        fits = spotfit.localize(np.array(frames), estimator=estimator, **KNOWN | {"roi_size": 13})
        begun = time.perf_counter()
        found = spotfit.fiducial_drift(spotfit.link_spots(fits, max_distance=2.0, memory=3))
        taken = time.perf_counter() - begun
        off = np.column_stack([found.y, found.x]) - truth
        spread = float(np.sqrt(np.mean(np.var(off, axis=0))))
        asked = bar(spread / least, most=1.1 if estimator == "mle" else None)
        print(f"  {estimator}: {spread:.4f} px, over the bound of all {spread / least:.3f} {asked};"
              f" {found.used.min()} to {found.used.max()} used; linked in {taken:.2f} s",
              flush=True)  # fmt: skip


SECTIONS = {
    "latency": latency, "errors": errors, "disturbed": disturbed, "loop": loop, "height": height,
    "drift": drift,
}  # fmt: skip


def _add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--frames", type=int, default=3000, help="of each timed loop")
    parser.add_argument("--seconds", type=float, default=600.0, help="of the closed loop's drift")


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    run(__doc__, SECTIONS, _add)
