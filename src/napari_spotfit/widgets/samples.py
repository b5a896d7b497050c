"""Sample images for File ▸ Open Sample, each with its ground truth in the metadata.

They are simulated, the same every time, with pixels of 0.1 µm.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.special import ndtr

from ..simulate import add_spots, expose, simulate_beads, simulate_movie
from .napari_compat import LayerData

_PIXEL = 0.1
_SIGMA = 1.3
#: Of stacks: the distance of planes in µm, and σ along z in planes.
_STEP, _SIGMA_Z = 0.3, 1.4
#: The camera's counts without light, and counts per photo-electron.
_CAMERA: Any = {"offset": 100.0, "gain": 1.0}


def molecules() -> list[LayerData]:
    """Return a movie of blinking single molecules.

    Returns
    -------
    list of layer data tuples
        60 frames of 256×256 pixels with 45 molecules each, camera offset 100
        and gain 1; ``metadata["truth"]`` is the table of all molecules in all frames.
    """
    movie, truth = simulate_movie(
        60, (256, 256), spots_per_frame=45, photons=1200.0, background=20.0, sigma=_SIGMA, seed=1,
        **_CAMERA,
    )  # fmt: skip
    return [_image_layer(movie, truth, "molecules")]


def beads() -> list[LayerData]:
    """Return a movie of fiducial beads that drift together.

    Returns
    -------
    list of layer data tuples
        100 frames of 128×128 pixels with 12 beads; ``metadata["truth"]`` is the table of
        all beads in all frames, ``metadata["drift"]`` the common drift (y, x) in pixels,
        one row per frame.
    """
    rng = np.random.default_rng(2)
    shape, frames = (128, 128), 100
    # Four by three places, each bead somewhere in the middle of its own.
    rows, columns = np.divmod(np.arange(12), 3)
    y = (rows + rng.uniform(0.35, 0.65, 12)) * shape[0] / 4
    x = (columns + rng.uniform(0.35, 0.65, 12)) * shape[1] / 3
    photons = rng.uniform(8_000, 20_000, 12)
    drift = np.cumsum(rng.normal((0.03, -0.02), 0.04, (frames, 2)), axis=0)
    drift -= drift[0]
    truth = pd.DataFrame({"frame": np.repeat(np.arange(frames), 12)})
    truth = truth.assign(y=(y + drift[:, :1]).ravel(), x=(x + drift[:, 1:]).ravel(), sigma=_SIGMA)
    truth["photons"] = np.tile(photons, frames)
    light = np.full((frames, *shape), 10.0)
    for frame, spots in truth.groupby("frame"):
        add_spots(light[frame], spots)
    return [_image_layer(expose(light, rng, **_CAMERA), truth, "beads", drift=drift)]


def filaments() -> list[LayerData]:
    """Return a movie of filaments whose molecules blink, while the sample drifts.

    Returns
    -------
    list of layer data tuples
        2000 frames of 96×96 pixels with about 14 molecules each. ``metadata["truth"]`` is the table
        of all molecules in all frames, with the number of each ``molecule`` and its positions
        without drift, ``y_fixed`` and ``x_fixed``; ``metadata["drift"]`` the drift (y, x) in
        pixels, one row per frame.
    """
    rng = np.random.default_rng(8)
    frames, side, events, dwell = 2000, 96, 8000, 2.6
    # Pairs of filaments 0.9 pixels apart, as no microscope resolves them, and binding sites.
    sites, curves = 1400, 7
    curve, along = rng.integers(0, curves, sites), rng.uniform(-0.5, 0.5, sites)
    angle, bend = rng.uniform(0, np.pi, (curves, 1)), rng.uniform(-14, 14, (curves, 1))
    middle = rng.uniform(0.3 * side, 0.7 * side, (curves, 2))
    across = bend[curve, 0] * (4 * along**2 - 0.5) + 0.45 * rng.choice((-1, 1), sites)
    turn = np.hstack([np.sin(angle), np.cos(angle)])
    fixed = middle[curve] + 80 * along[:, None] * turn[curve]
    fixed += across[:, None] * (turn[:, ::-1] * (1, -1))[curve] + rng.normal(0, 0.03, (sites, 2))
    inside = np.all((fixed > 4) & (fixed < side - 5), axis=1)
    fixed = fixed[inside]
    time = np.arange(frames) / frames
    drift = np.cumsum(rng.normal(0, 0.01, (frames, 2)), axis=0)
    drift += np.column_stack([1.2 * np.sin(4 * time), -1.5 * time])
    drift -= drift[0]
    # Each event is bright from any moment on, for some while.
    begin, while_ = rng.uniform(0, frames, events), rng.exponential(dwell, events)
    end = np.minimum(begin + while_, frames - 1e-6)
    count = np.floor(end).astype(int) - np.floor(begin).astype(int) + 1
    event = np.repeat(np.arange(events), count)
    frame = (
        np.floor(begin).astype(int)[event]
        + np.arange(len(event))
        - np.repeat(np.cumsum(count) - count, count)
    )
    lit = np.minimum(end[event], frame + 1) - np.maximum(begin[event], frame)
    molecule = rng.integers(0, len(fixed), events)[event]
    places = fixed[molecule] + drift[frame]
    truth = pd.DataFrame(
        {
            "frame": frame, "y": places[:, 0], "x": places[:, 1], "sigma": _SIGMA,
            "photons": 1500 * lit, "molecule": molecule,
            "y_fixed": fixed[molecule, 0], "x_fixed": fixed[molecule, 1],
        }
    ).sort_values("frame", ignore_index=True)  # fmt: skip
    light = np.full((frames, side, side), 12.0)
    for number, spots in truth.groupby("frame"):
        add_spots(light[number], spots)
    return [_image_layer(expose(light, rng, **_CAMERA), truth, "filaments", drift=drift)]


def smfish() -> list[LayerData]:
    """Return an image of cells with many transcripts, as single-molecule FISH shows them.

    Returns
    -------
    list of layer data tuples
        One image of 512×512 pixels: 700 dots of varying brightness, some overlapping, on
        the uneven background of cells; ``metadata["truth"]`` is the table of all dots. And the
        labels of the cells.
    """
    rng = np.random.default_rng(3)
    shape, dots, per_side = (512, 512), 700, 4
    count = per_side**2
    rows, columns = np.divmod(np.arange(count), per_side)
    center_y = (rows + rng.uniform(0.3, 0.7, count)) * shape[0] / per_side
    center_x = (columns + rng.uniform(0.3, 0.7, count)) * shape[1] / per_side
    radius_y, radius_x = rng.uniform(50, 75, (2, count))
    glow = rng.uniform(15, 60, count)
    # A dot lies in its cell and seldom in the nucleus; some cells have more than others.
    # A few more are drawn than needed, for those that fall outside the image.
    cell = rng.choice(count, 2 * dots, p=rng.dirichlet(np.full(count, 6.0)))
    angle, distance = rng.uniform(0, 2 * np.pi, 2 * dots), np.sqrt(rng.uniform(0.1, 1, 2 * dots))
    y = center_y[cell] + radius_y[cell] * distance * np.sin(angle)
    x = center_x[cell] + radius_x[cell] * distance * np.cos(angle)
    inside = (y > 3) & (y < shape[0] - 4) & (x > 3) & (x < shape[1] - 4)
    y, x = y[inside][:dots], x[inside][:dots]
    photons = rng.lognormal(np.log(1200), 0.45, dots)
    truth = pd.DataFrame({"y": y, "x": x, "sigma": _SIGMA, "photons": photons})
    light = np.full(shape, 15.0)
    add_spots(light, truth)
    pixel_y, pixel_x = np.ogrid[: shape[0], : shape[1]]
    cells, nearest = np.zeros(shape, np.uint8), np.full(shape, 1.1)
    for number in range(count):
        far = np.hypot(
            (pixel_y - center_y[number]) / radius_y[number],
            (pixel_x - center_x[number]) / radius_x[number],
        )
        # A soft edge, and a nucleus that is half as bright.
        light += glow[number] * (ndtr(6 * (1.1 - far)) - 0.5 * ndtr(8 * (0.4 - far)))
        cells[far < nearest] = number + 1
        nearest = np.minimum(nearest, far)
    return [_image_layer(expose(light, rng, **_CAMERA), truth, "smFISH"), _cells_layer(cells)]


def smfish_stack() -> list[LayerData]:
    """Return a z-stack of cells with transcripts, as single-molecule FISH shows them.

    Returns
    -------
    list of layer data tuples
        24 planes of 192×192 pixels, 0.3 µm apart, with 150 dots; ``metadata["truth"]`` is the
        table of all dots, z in planes. And the labels of two cells.
    """
    rng = np.random.default_rng(6)
    planes, side, dots = 24, 192, 150
    places = {"z": rng.uniform(3, planes - 4, dots), **dict.fromkeys("yx", 0.0)}
    truth = pd.DataFrame({**places, "sigma": _SIGMA, "sigma_z": _SIGMA_Z})
    truth["photons"] = rng.lognormal(np.log(6000), 0.3, dots)
    angle, far = rng.uniform(0, 2 * np.pi, dots), 0.95 * np.sqrt(rng.random(dots))
    cells, radius = np.zeros((side, side), np.uint8), 44.0
    middles = np.array([(60.0, 62.0), (130.0, 126.0)])
    own = rng.integers(0, 2, dots)
    truth["y"] = middles[own, 0] + radius * far * np.sin(angle)
    truth["x"] = middles[own, 1] + radius * far * np.cos(angle)
    light = np.full((planes, side, side), 12.0)
    y, x = np.ogrid[:side, :side]
    for number, (center_y, center_x) in enumerate(middles, 1):
        away = np.hypot(y - center_y, x - center_x) / (1.1 * radius)
        light += 20 * ndtr(6 * (1 - away))
        cells[away < 1] = number
    for plane in range(planes):
        share = np.exp(-0.5 * ((plane - truth["z"]) / _SIGMA_Z) ** 2)
        share /= _SIGMA_Z * np.sqrt(2 * np.pi)
        add_spots(light[plane], truth.assign(photons=truth["photons"] * share))
    stack = _image_layer(expose(light, rng, **_CAMERA), truth, "smFISH stack", _STEP)
    return [stack, _cells_layer(cells)]


def scmos() -> list[LayerData]:
    """Return a movie of an sCMOS camera, and maps of its pixels.

    Returns
    -------
    list of layer data tuples
        Maps of offset, gain and read-out variance, labels of hot pixels, and 30 frames of
        128×128 pixels with 12 molecules each, whose ``metadata["truth"]`` is the table of all.
    """
    rng = np.random.default_rng(4)
    shape = (128, 128)
    hot = rng.random(shape) < 0.002
    offset = rng.normal(_CAMERA["offset"], 2.0, shape)
    gain = rng.uniform(0.85, 1.15, shape) * 2.2
    variance = rng.lognormal(np.log(6.0), 0.8, shape)
    movie, truth = simulate_movie(
        30, shape, spots_per_frame=12, photons=600.0, background=8.0, sigma=_SIGMA,
        offset=offset + 400.0 * hot, gain=gain, variance=variance, seed=5,
    )  # fmt: skip
    maps = {"offset": offset, "gain": gain, "variance": variance}
    return [
        *(_map_layer(values.astype(np.float32), f"sCMOS {name}") for name, values in maps.items()),
        _map_layer(hot.astype(np.uint8), "sCMOS hot pixels", "labels"),
        _image_layer(movie, truth, "sCMOS"),
    ]


def astigmatism() -> list[LayerData]:
    """Return beads in a z-stack through an astigmatic lens, and a movie of molecules through it.

    Returns
    -------
    list of layer data tuples
        61 planes of 160×160 pixels, 20 nm apart, with 9 beads, and 30 frames of 128×128 pixels with
        6 molecules each, within 300 nm from the focus; ``metadata["truth"]`` is the table of
        all, z in nm.
    """
    lens: dict[str, float] = {"astigmatism": 0.1, "coma": 0.02}
    planes = np.arange(-600.0, 601.0, 20.0)
    stack, beads_truth = simulate_beads(
        planes, (160, 160), count=9, height=30.0, seed=6, zernike=lens, **_CAMERA
    )
    movie, truth = simulate_movie(
        30, (128, 128), spots_per_frame=6, photons=3000.0, background=10.0, z=(-300.0, 300.0),
        optics={"zernike": lens}, seed=7, **_CAMERA,
    )  # fmt: skip
    return [
        _image_layer(movie, truth, "astigmatic molecules"),
        _image_layer(stack, beads_truth, "astigmatic beads"),
    ]


def _map_layer(
    values: NDArray[Any], name: str, kind: str = "image", *, visible: bool = False
) -> LayerData:
    """Return a map of pixels, as a rule hidden: it is for the choices of maps."""
    place = {"scale": (_PIXEL, _PIXEL), "units": ("um", "um"), "axis_labels": ("y", "x")}
    return values, {"name": name, "visible": visible, **place}, kind


def _cells_layer(cells: NDArray[np.uint8]) -> LayerData:
    values, arguments, kind = _map_layer(cells, "cells", "labels", visible=True)
    return values, {**arguments, "opacity": 0.2}, kind


def _image_layer(
    image: NDArray[np.uint16], truth: pd.DataFrame, name: str, step: float = 0.0, **metadata: Any
) -> LayerData:
    """Return an image as napari takes it: µm for y and x, and frames for time or a step in z."""
    movie = image.ndim == 3
    low, high = np.percentile(image[::10] if movie else image, (1, 99.9))
    return (
        image,
        {
            "name": name,
            "scale": (step or 1, _PIXEL, _PIXEL) if movie else (_PIXEL, _PIXEL),
            "units": ("um" if step else "pixel", "um", "um") if movie else ("um", "um"),
            "axis_labels": ("z" if step else "t", "y", "x") if movie else ("y", "x"),
            "contrast_limits": (float(low), float(high)),
            "metadata": {"truth": truth, **metadata},
        },
        "image",
    )
