"""Measure the super-resolved image: speed, memory, exactness; compare with Picasso and the GPU.

Ten million localisations by default, half of them on filaments, in a field of 256×256 camera
pixels. A step of pan or zoom reads what napari reads on a canvas of 1024×800 pixels. Picasso (from
PyPI as picassosr) renders the same table with each localisation's own precision; without it, or
without a GPU, only the other figures are printed.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import numpy as np
from common import bar, medians, resident, run, spent

from napari_spotfit import SpotFits
from napari_spotfit.analysis.render import RenderIndex
from napari_spotfit.widgets.layers.rendered_image import TILE, RenderedImage

#: Sides of the field in camera pixels, oversampling of the whole field, and the viewer's canvas.
FIELD, OVERSAMPLING, CANVAS = 256, 8, (800, 1024)
#: Limits: seconds of index, whole field and a step; bytes per localisation; a GPU's frame.
INDEX, WHOLE, STEP, BYTES, FRAME = 3.0, 0.7, 0.05, 60, 0.016
#: Limits of the sum, of centroids in rendered pixels, of a GPU's picture, and against Picasso.
SUM, CENTROID, SAME, RATIO = 1e-5, 1e-3, 1e-5, 2.0
#: Zoom of a step, steps from the whole field on, and the pause after each in seconds.
ZOOM, STEPS, PAUSE = 1.1, 60, 0.2


def scene(count: int, seed: int = 0) -> SpotFits:
    """Return localisations, half of them on filaments."""
    rng = np.random.default_rng(seed)
    half = count // 2
    start, angle = rng.uniform(0, FIELD, (2, 300)), rng.uniform(0, np.pi, 300)
    which, along = rng.integers(0, 300, half), rng.uniform(-FIELD, FIELD, half)
    places = start[:, which] + along * np.array([np.sin(angle), np.cos(angle)])[:, which]
    places = np.concatenate([places % FIELD, rng.uniform(0, FIELD, (2, count - half))], axis=1)
    errors = rng.lognormal(np.log(0.1), 0.3, (2, count)).astype(np.float32)
    places -= 0.5
    return SpotFits(
        {
            "y": places[0], "x": places[1], "y_stderr": errors[0], "x_stderr": errors[1],
            "frame": np.arange(count), "stop_condition": np.full(count, 2, np.uint8),
        },
        ("frame",),
    )  # fmt: skip


def index_of(fits: SpotFits, backend: Any = "cpu") -> RenderIndex:
    """Index localisations."""
    return RenderIndex(fits, shape=(FIELD, FIELD), backend=backend)


def steps_of(image: RenderedImage, seed: int = 1) -> list[float]:
    """Return the seconds of steps of zoom and pan, as napari reads levels for its canvas."""
    rng, taken = np.random.default_rng(seed), []
    centre, zoom = np.full(2, FIELD / 2), max(CANVAS) / FIELD
    for step in range(STEPS):
        if step % 2:
            centre = centre + rng.uniform(-0.1, 0.1, 2) * CANVAS / zoom
        else:
            zoom *= ZOOM**2
        # The coarsest level with a pixel for each one of the canvas, and whole tiles of it.
        level = int(np.clip(np.floor(np.log2(image.finest / zoom)), 0, image.last))
        scale = image.finest / 2**level
        corners = (centre + np.multiply.outer([-0.5, 0.5], CANVAS) / zoom) * scale
        sides = image.levels[level].shape
        low = np.clip(np.floor(corners[0] / TILE) * TILE, 0, sides).astype(int)
        high = np.clip(np.ceil(corners[1] / TILE) * TILE, 0, sides).astype(int)
        part = np.s_[low[0] : high[0], low[1] : high[1]]
        taken.append(spent(lambda level=level, part=part: image.levels[level][part]))
        time.sleep(PAUSE)
    return taken[1:]  # the first one is the whole field


def print_steps(what: str, taken: list[float], limit: float) -> None:
    """Print the durations of steps."""
    typical, most = np.percentile(taken, [50, 95]) * 1e3
    print(
        f"{what}: median {typical:.1f} ms, 95 % {most:.1f} ms {bar(most, most=1e3 * limit)}, "
        f"longest {1e3 * max(taken):.0f} ms"
    )


def check(index: RenderIndex, fits: SpotFits) -> None:
    """Print how exact the image is."""
    whole = index.render(OVERSAMPLING)
    inside = SpotFits({name: values.copy() for name, values in fits.columns.items()})
    for axis in "yx":
        inside.columns[axis].clip(2, FIELD - 3, out=inside.columns[axis])
    light = index_of(inside).render(OVERSAMPLING).sum(dtype=float)
    lost = light / len(fits) - 1
    print(f"sum / localisations - 1: {lost:.1e} {bar(abs(lost), most=SUM)}")
    tiles = all(
        (
            index.part((OVERSAMPLING,) * 2, (top, top + 200), (left, left + 300))
            == whole[top : top + 200, left : left + 300]
        ).all()
        for top, left in ((0, 0), (511, 700), (1700, 1713))
    )
    print(f"parts equal the whole to the bit: {tiles}")
    rng, worst = np.random.default_rng(3), 0.0
    for _ in range(300):
        y, x = rng.uniform(5, 20, 2)
        one = fits[:1]
        one = SpotFits(one.columns | {"y": np.array([y]), "x": np.array([x])})
        image = RenderIndex(one, shape=(26, 26), backend="cpu").render(10).astype(float)
        found = [np.average(np.arange(260) + 0.5, weights=image.sum(axis)) for axis in (1, 0)]
        worst = max(worst, *np.abs(np.subtract(found, [10 * y + 5, 10 * x + 5])))
    print(f"centroid of one spot: {worst:.1e} px {bar(worst, most=CENTROID)}")


def against_picasso(index: RenderIndex, fits: SpotFits, repeats: int) -> None:
    """Print the speed relative to Picasso's renderer, whole field, each with its own index."""
    try:
        from picasso import render
    except ImportError as error:
        print(f"Picasso: {error}")
        return
    import pandas as pd

    locs = pd.DataFrame(
        {
            "frame": fits.frame.astype(np.uint32), "x": fits.x.astype(np.float32),
            "y": fits.y.astype(np.float32), "lpx": fits.x_stderr, "lpy": fits.y_stderr,
        }
    )  # fmt: skip
    info = [{"Height": FIELD, "Width": FIELD, "Frames": len(fits), "Pixelsize": 100}]

    def theirs() -> np.ndarray:
        view, least = ((0, 0), (FIELD, FIELD)), 0.7 / OVERSAMPLING
        return render.render(
            locs, info, disp_px_size=100 / OVERSAMPLING, viewport=view, blur_method="gaussian",
            min_blur_width=least,
        )[1]  # fmt: skip

    works = {"ours": lambda: index.render(OVERSAMPLING), "Picasso": theirs}
    for clock, what in ((time.perf_counter, "wall"), (time.process_time, "CPU")):
        times = medians(works, repeats, clock)
        ratio = times["Picasso"] / times["ours"]
        print(
            f"Picasso ({what} time): {times['Picasso']:.2f} s, ours {times['ours']:.2f} s, "
            f"{ratio:.1f} × as fast {bar(ratio, least=RATIO)}"
        )
    light = {name: work().sum(dtype=float) for name, work in works.items()}
    print("light: " + ", ".join(f"{name} {total:.0f}" for name, total in light.items()))


def on_gpu(cpu: RenderIndex, fits: SpotFits, repeats: int) -> None:
    """Print a GPU's speed, and how near its picture is to the CPU's."""
    try:
        index = index_of(fits, "cuda")
    except RuntimeError as error:
        print(f"GPU: {error}")
        return
    expected, found = cpu.render(OVERSAMPLING), index.render(OVERSAMPLING)
    apart = float(np.abs(found - expected).max() / expected.max())
    print(f"GPU, largest difference of the maximum: {apart:.1e} {bar(apart, most=SAME)}")
    frame = medians({"frame": lambda: index.render(OVERSAMPLING)}, repeats)["frame"]
    print(f"GPU, a frame of the whole field: {1e3 * frame:.1f} ms {bar(frame, most=FRAME)}")
    print_steps("GPU, a step", steps_of(RenderedImage(index, ahead=True)), FRAME)


def show(chosen: argparse.Namespace) -> None:
    """Print all figures."""
    fits = scene(100_000 if chosen.quick else chosen.count)
    reset = Path("/proc/self/clear_refs")
    index_of(fits[:1000])
    before = resident("VmRSS")
    if reset.exists():
        reset.write_text("5")
    begin, own = time.perf_counter(), time.process_time()
    index = index_of(fits)
    wall, processor = time.perf_counter() - begin, time.process_time() - own
    peak = (resident("VmHWM") - before) * 1e6 / len(fits)
    print(f"{len(fits):,} localisations")
    print(f"index: {wall:.2f} s ({processor:.2f} s of CPU) {bar(wall, most=INDEX)}")
    print(f"memory beside the table at the peak: {peak:.0f} bytes each {bar(peak, most=BYTES)}")
    for clock, what in ((time.perf_counter, "wall"), (time.process_time, "CPU")):
        whole = medians({"whole": lambda: index.render(OVERSAMPLING)}, chosen.repeats, clock)[
            "whole"
        ]
        side = FIELD * OVERSAMPLING
        print(f"whole field at {side}²: {whole:.2f} s of {what} {bar(whole, most=WHOLE)}")
    print_steps("a step of pan or zoom", steps_of(RenderedImage(index, ahead=True)), STEP)
    check(index, fits)
    on_gpu(index, fits, chosen.repeats)
    against_picasso(index, fits, chosen.repeats)


def _add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--count", type=int, default=10_000_000)
    parser.add_argument("--repeats", type=int, default=5)


if __name__ == "__main__":
    run(__doc__, {"speed": show}, _add)
