"""Fits beside pixels that are no data, and which images lose data as if they were such.

First spots of σ 1.3 px beside an area of zeros: their light over the true one, how far off their
centres are along x, and the share of good fits, with the zeros left out (as they are now), counted
as if they were data, and named in ``bad_pixels``. Then spots of cells outside of which all is 0:
how many of them are found, within a pixel, by good fits, and how many of these are farther from
any. At last images that are not padded, of many kinds: the share of ROIs anywhere, and around
bright pixels, of which pixels would be left out.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import patch

import numpy as np
from scipy import ndimage

from napari_spotfit import fit_at, localize
from napari_spotfit.engine import padding
from napari_spotfit.engine.lost_pixels import in_flat_areas

sys.path.append(str(Path(__file__).parents[1] / "tests" / "helpers"))
from scenes import light

SIGMA, SIDE, EDGE, ROI = 1.3, 60, 30, 9
#: How far apart data must be from what is none, and whether that is named, by how fits do with it.
WAYS = {
    "now": (padding.GAP, False),
    "zeros counted": (math.inf, False),
    "zeros named": (math.inf, True),
}
FEW_PHOTONS, MANY_PHOTONS = (0.02, 0.1, 0.5, 1, 2, 5, 20, 100), (10, 100)

Frames = np.ndarray


def beside_zeros(rng: np.random.Generator, count: int) -> None:
    """Print what becomes of spots beside an area of zeros."""
    print(f"{'photons, background, distance':32}" + "".join(f"{name:>30}" for name in WAYS))
    mask = np.zeros((SIDE, SIDE), bool)
    mask[:, :EDGE] = True
    for photons, background in ((1000, 100), (5000, 100), (1000, 20), (5000, 1000)):
        for distance in range(1, 6):
            places = np.column_stack(
                [
                    np.arange(count),
                    SIDE / 2 + rng.uniform(-0.5, 0.5, count),
                    EDGE - 0.5 + distance + rng.uniform(-0.2, 0.2, count),
                ]
            )
            lights = [light(place[None, 1:], photons, SIGMA, mask.shape) for place in places]
            frames = rng.poisson(np.stack(lights) + background).astype(np.uint16)
            frames[:, mask] = 0
            cells = []
            for gap, named in WAYS.values():
                with patch.object(padding, "GAP", gap):
                    bad = mask if named else None
                    fits = fit_at(frames, places, ROI, sigma=SIGMA, bad_pixels=bad)
                off = np.median(fits.x - places[:, 2])
                cells.append(
                    f"{np.median(fits.photons) / photons:8.2f} × {off:+6.2f} px "
                    f"{fits.good.mean():4.0%} good"
                )
            print(f"{photons:7}{background:6}{distance:5} px".ljust(32) + "".join(
                f"{cell:>30}" for cell in cells), flush=True)  # fmt: skip


def masked_cells(rng: np.random.Generator) -> None:
    """Print how many spots of masked cells are found."""
    print(f"\n{'spots of masked cells':32}" + "".join(f"{name:>30}" for name in WAYS))
    size = 300
    for background in (20, 100, 1000):
        photons = max(1000, 90 * math.sqrt(background))
        cells = blurred(rng.normal(size=(8, size, size)), 12) > 0
        frames, places = [], []
        for cell in cells:
            own = rng.uniform(4, size - 5, (150, 2))
            places.append(own[cell[tuple(np.rint(own).astype(int).T)]])
            light_there = light(places[-1], photons, SIGMA, cell.shape) + background
            frames.append(np.where(cell, rng.poisson(light_there), 0))
        total, told = sum(map(len, places)), []
        for gap, named in WAYS.values():
            with patch.object(padding, "GAP", gap):
                fits = localize(
                    np.stack(frames).astype(np.uint16), bad_pixels=~cells if named else None
                )
            found, false = 0, 0
            for number, own in enumerate(places):
                there = fits.good & (fits.columns["frame"] == number)
                good = np.column_stack([fits.y[there], fits.x[there]])
                distance = np.hypot(*(good[:, np.newaxis] - own).transpose(2, 0, 1))
                found += int((distance.min(axis=0, initial=size) < 1).sum())
                false += int((distance.min(axis=1, initial=size) > 1.5).sum())
            told.append(f"{found} of {total}, {false} false")
        text = f"{photons:7.0f}{background:6}"
        print(text.ljust(32) + "".join(f"{one:>30}" for one in told), flush=True)


def blurred(frames: Frames, sigma: float) -> Frames:
    """Return frames filtered by a Gaussian."""
    filtered: Frames = ndimage.gaussian_filter(frames, (0, sigma, sigma))
    return filtered


def images(rng: np.random.Generator) -> Iterator[tuple[str, Frames]]:
    """Yield images by name; the last three have areas of zeros."""
    shape = (20, 300, 300)
    spots = np.stack(
        [light(rng.uniform(5, 295, (300, 2)), 500, SIGMA, shape[1:]) for _ in range(4)]
    )
    spots = np.concatenate([spots] * 5)
    for light_there in FEW_PHOTONS:
        yield f"{light_there} photons", rng.poisson(spots + light_there)
    for light_there in (0.05, 0.3, 1):
        electrons = rng.poisson(spots / 10 + light_there)
        counts = rng.gamma(np.maximum(electrons, 1e-9), 30) + rng.normal(0, 1, shape)
        yield f"{light_there} photons, EMCCD", counts.clip(0)
        yield f"{light_there} photons of 7 counts", 7 * electrons
        hit = rng.poisson(light_there, shape) > 0
        yield f"{light_there} spikes", np.where(hit, rng.normal(100, 25, shape).clip(40), 0)
    for light_there in (0.5, 2, 10):
        for sigma in (1, 2):
            frames = rng.poisson(spots + light_there).astype(float)
            yield f"{light_there} photons blurred by {sigma} px", np.rint(blurred(frames, sigma))
    for light_there in MANY_PHOTONS:
        frames = rng.poisson(spots + light_there).astype(float)
        smooth = blurred(frames, 1)
        above = (smooth - light_there).clip(0)
        band = (smooth - blurred(frames, 4)).clip(0)
        opened = ndimage.grey_opening(frames, (1, 9, 9))
        for name, made in {
            "cut off at the background": (frames - light_there).clip(0),
            "the same, smoothed": above.astype(np.float32),
            "the same, smoothed and rounded": np.rint(above),
            "band-pass, cut off": band.astype(np.float32),
            "band-pass, cut off and rounded": np.rint(band),
            "top-hat": frames - opened,
            "in 8 bits": frames / frames.max() * 255,
            "median of 3×3": ndimage.median_filter(frames, (1, 3, 3)),
            "median of 5×5": ndimage.median_filter(frames, (1, 5, 5)),
        }.items():
            yield f"{light_there} photons, {name}", made
        bright = smooth > light_there + 3 * smooth.std()
        yield f"{light_there} photons, zeros below a threshold", np.where(bright, frames, 0)
    cells = ndimage.gaussian_filter(rng.normal(size=(1, *shape[1:])), (0, 20, 20)) > 0
    yield "cells on 5 photons", rng.poisson(spots + np.where(cells, 100, 5))
    yield "cells on no light at all", rng.poisson(spots + np.where(cells, 100, 0))
    yield "cells, masked", np.where(cells, rng.poisson(spots + 100), 0)


def lost(frames: Frames, rng: np.random.Generator, count: int) -> tuple[float, float]:
    """Return the shares of ROIs that lose pixels: anywhere, and around bright pixels."""
    if frames.dtype != np.float32:
        frames = frames.astype(np.uint16)
    n, height, width = frames.shape
    most = np.array([n, height - ROI + 1, width - ROI + 1])
    anywhere = rng.integers(0, most, (count, 3))
    bright = np.argwhere(frames >= np.quantile(frames, 0.99))
    bright = bright[rng.integers(0, len(bright), count)] - (0, ROI // 2, ROI // 2)
    shares = []
    for corners in (anywhere, np.clip(bright, 0, most - 1)):
        ordered = np.ascontiguousarray(corners[np.argsort(corners[:, 0], kind="stable")])
        _, found = in_flat_areas(np.ascontiguousarray(frames), ordered, (ROI, ROI))
        shares.append(0.0 if found is None else len(found.rois) / count)
    return shares[0], shares[1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=20_000, help="ROIs of each kind of image")
    parser.add_argument("--spots", type=int, default=40, help="spots at each distance")
    options = parser.parse_args()
    rng = np.random.default_rng(1)
    beside_zeros(rng, options.spots)
    masked_cells(rng)
    print(f"\n{'ROIs that lose pixels, of images':48}{'anywhere':>12}{'bright':>12}")
    for name, frames in images(rng):
        shares = lost(frames, rng, options.count)
        print(f"{name:48}" + "".join(f"{share:12.3%}" for share in shares), flush=True)


if __name__ == "__main__":
    main()
