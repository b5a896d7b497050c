"""Speed of the fit on the CPU, host to host, beside Picasso's in the same run.

Start values made inside, NumPy arrays in and out, all cores. Picasso (0.11.3, from
PyPI as picassosr) is given its start values and runs on all cores too; without it only
our own figures are printed. Then the models and estimators beside the round least-squares
fit, single large fits, calls with little to do, and what comes after the fits.
"""

from __future__ import annotations

import argparse
import platform
import statistics
import time
import timeit
from collections.abc import Callable
from functools import partial
from itertools import product

import numpy as np
from own_models import ROTATED, ROUND, large_spot

from napari_spotfit import (
    NoiseModel,
    Settings,
    StopCondition,
    detect_spots,
    fit_at,
    fit_spots,
    noise_model,
    simulate_movie,
    simulate_spots,
)
from napari_spotfit.engine import threads
from napari_spotfit.engine.quality.verdicts import Origin, judge_in_image

#: Side of the ROI: the least million fits per second asked for on two cores.
WANTED = {7: 8.0, 9: 6.5, 11: None, 13: None, 16: 2.0, 24: None, 32: None}
#: Sizes that are compared with Picasso, and how many times as fast we want to be.
COMPARED, RATIO = (7, 9, 11), 30
PHOTONS, BACKGROUND, SIGMA = 400, 40, (1.0, 2.0)
REPEATS = 7
#: What is compared with the round least-squares fit in the same run, and the least share of
#: its speed that is asked for.
KINDS: dict[str, tuple[dict[str, object], float | None]] = {
    "elliptical": ({"model": "gaussian_elliptical"}, 0.6),
    "integrated": ({"pixel": "integrated"}, 0.6),
    "elliptical, integrated": ({"model": "gaussian_elliptical", "pixel": "integrated"}, None),
    "Lorentzian": ({"model": "lorentzian"}, None),
    "rotated": ({"model": "gaussian_rotated"}, None),
    "rotated, as an expression": ({"model": ROTATED}, None),
    "round, as an expression": ({"model": ROUND}, None),
    "weights": ({"estimator": "wlse"}, None),
    "maximum likelihood": ({"estimator": "mle"}, None),
}
#: Times as fast as Picasso's maximum likelihood.
MLE_RATIO = 15
#: Side of an image that is one fit, and the most milliseconds for it on two cores.
LARGE = {1000: 150, 2828: 1200}

#: Fits of a call that is over soon.
FEW = 100
WHITE = NoiseModel(0.0, 1.0, 1.0)

#: The fit on the CPU, also where there is a GPU.
on_cpu = partial(fit_spots, backend="cpu")


def rates(
    count: int, works: list[Callable[[], object]], repeats: int = REPEATS
) -> list[tuple[float, float]]:
    """Return the median and the best million fits per second of each kind of work.

    They take turns, so that what else the machine does slows all of them alike; the
    first round is not counted.
    """
    times: list[list[float]] = [[] for _ in works]
    for _ in range(repeats + 1):
        for work, taken in zip(works, times, strict=True):
            begin = time.perf_counter()
            work()
            taken.append(time.perf_counter() - begin)
    return [
        (count / statistics.median(taken[1:]) / 1e6, count / min(taken[1:]) / 1e6)
        for taken in times
    ]


def spots_of(size: int, count: int) -> np.ndarray:
    spots, _ = simulate_spots(
        count, size, photons=PHOTONS, background=BACKGROUND / size**2, sigma=SIGMA,
        jitter=0.75, seed=size,
    )  # fmt: skip
    return spots


def picasso_rate(spots: np.ndarray, mle: bool = False) -> float | None:
    """Return Picasso's million fits per second on all cores."""
    try:
        from picasso.fitting import gaussfit, seeds
    except ImportError:
        return None
    spots = spots[:50_000]
    start = seeds.initial_parameters_gauss(spots, spots.shape[1], spherical=True)

    def work() -> None:
        fit = gaussfit.fit_spots_async(
            gaussfit.SPHERICAL, spots, start, mle=mle, n_threads=threads.available()
        )
        while not fit.finished():
            time.sleep(1e-3)
        fit.raise_errors()

    return rates(len(spots), [work], 3)[0][0]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=1_000_000, help="7×7 spots per call")
    arguments = parser.parse_args()
    print(f"{threads.available()} cores of {platform.processor() or platform.machine()};", end=" ")
    print(f"{PHOTONS}:{BACKGROUND} counts; median (best) of {REPEATS}, million fits per second")
    head = ("float32", "uint16", "with errors", "wanted", "Picasso", "ratio")
    print(f"{'ROI':>7} " + " ".join(f"{name:>16}" for name in head))
    for size, wanted in WANTED.items():
        count = arguments.count * 49 // size**2
        spots = spots_of(size, count)
        integers = spots.astype(np.uint16)
        works: list[Callable[[], object]] = [
            lambda spots=spots: on_cpu(spots, errors=False),
            lambda spots=integers: on_cpu(spots, errors=False),
            lambda spots=spots: on_cpu(spots),
        ]
        speeds = rates(count, works)
        plain = speeds[0]
        peer = picasso_rate(spots) if size in COMPARED else None
        cells = [f"{median:.2f} ({best:.2f})" for median, best in speeds]
        cells.append(f"≥ {wanted}" if wanted else "")
        cells.append(f"{peer:.3f}" if peer else "")
        cells.append(f"{plain[0] / peer:.0f} (≥ {RATIO})" if peer else "")
        print(f"{f'{size}×{size}':>7} " + " ".join(f"{cell:>16}" for cell in cells), flush=True)
    for size in (7, 9):
        models_and_estimators(size, arguments.count // 10)
    for side, most in LARGE.items():
        large(side, most)
    few()
    after_the_fits()


def few() -> None:
    """Print what calls take that have little to do: checks of settings, and a hundred fits."""
    movie, truth = simulate_movie(1, (256, 256), spots_per_frame=FEW, seed=1)
    settings = Settings(sigma=1.3, roi_size=9, noise=noise_model(movie), threads=1, backend="cpu")
    spots, centers = spots_of(9, FEW), truth[["frame", "y", "x"]].to_numpy()
    calls = {
        "Settings(sigma=1.5)": lambda: Settings(sigma=1.5),
        "settings.changed(sigma=1.5)": lambda: settings.changed(sigma=1.5),
        "settings.changed(noise=…)": lambda: settings.changed(noise=WHITE),
        "settings.changed(estimator=…)": lambda: settings.changed(estimator="mle"),
        f"fit_spots of {FEW}": lambda: fit_spots(spots, settings=settings),
        f"fit_at {FEW} places": lambda: fit_at(movie, centers, settings=settings),
        "detect_spots in 256²": lambda: detect_spots(movie, settings=settings),
    }
    print("\nmicroseconds of the CPU for a call, the least of ten times a hundred")
    for name, call in calls.items():
        timer = timeit.Timer(call, timer=time.process_time)
        print(f"{name:>32} {1e4 * min(timer.repeat(10, 100)):9.1f}", flush=True)


def after_the_fits() -> None:
    """Print what it takes to make fits of ROIs those of an image, with all of their flags."""
    print("\nfrom fits of ROIs to those of an image with flags, nanoseconds of the CPU for a fit")
    for per_frame, count in product((45, 1000), (100, 10_000, 300_000)):
        frames = -(-count // per_frame)
        rng = np.random.default_rng(1)
        places = rng.integers(4, 252, (frames, per_frame, 2)).astype(float)
        places = np.concatenate([own[np.lexsort(own.T[::-1])] for own in places])[:count]
        frame = np.repeat(np.arange(frames), per_frame)[:count]
        corners = np.column_stack([frame, places - 4]).astype(np.int64)
        settings = Settings(sigma=1.3, roi_size=9, gain=1.0, threads=1)
        spots = np.resize(spots_of(9, 10_000), (count, 9, 9))
        fits = on_cpu(spots, settings=settings.changed(roi_size=None)).columns
        taken = []
        for _ in range(max(300_000 // count, 5)):
            columns = {name: values.copy() for name, values in fits.items()}
            begin = time.process_time_ns()
            judge_in_image(columns, settings, Origin(corners, places, (256, 256), 1.3))
            taken.append((time.process_time_ns() - begin) / count)
        print(f"{f'{count} fits, {per_frame} a frame':>32} {statistics.median(taken):9.1f}")


def models_and_estimators(size: int, count: int) -> None:
    """Print the speed of other fits, as shares of the round least-squares fit's."""
    spots = spots_of(size, count)
    names = ("round", *KINDS)
    works = [lambda: on_cpu(spots, errors=False)]
    for options, _ in KINDS.values():
        given = dict(options)
        if given.get("estimator") == "wlse":
            given["weights"] = np.ones((size, size), np.float32)
        works.append(lambda given=given: on_cpu(spots, errors=False, **given))
    speeds = dict(zip(names, rates(count, works), strict=True))
    plain = speeds["round"][0]
    print(
        f"\n{size}×{size}, float32, {count} spots: million fits per second, share of the round fit"
    )
    for name in names:
        median, best = speeds[name]
        least = KINDS[name][1] if name in KINDS else None
        asked = f"  (≥ {least:.0%})" if least else ""
        print(f"{name:>28} {median:7.2f} ({best:.2f}) {median / plain:7.1%}{asked}", flush=True)
    peer = picasso_rate(spots, mle=True)
    if peer:
        ours = speeds["maximum likelihood"][0]
        print(
            f"{'Picasso, likelihood':>28} {peer:7.3f}, ours {ours / peer:.1f} times (≥ {MLE_RATIO})"
        )


def large(side: int, most: float) -> None:
    """Print how long one fit of a turned Gaussian to a whole image takes."""
    for dtype in ("float32", "uint16"):
        image, (y, x) = large_spot(side, dtype)
        fit = on_cpu(image, model="gaussian_rotated")
        off = max(abs(fit.y[0] - y), abs(fit.x[0] - x))
        times = rates(1, [lambda image=image: on_cpu(image, model="gaussian_rotated")])
        print(
            f"{side}×{side} {dtype}, one turned Gaussian: {1e-3 / times[0][0]:.0f} ms (≤ {most}), "
            f"{fit.iterations[0]} iterations, {StopCondition(fit.stop_condition[0]).name}, "
            f"{off:.4f} px off {'' if off < 0.1 else 'WRONG'}",
            flush=True,
        )


if __name__ == "__main__":
    main()
