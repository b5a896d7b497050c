"""Spots of two channels with known truth."""

from __future__ import annotations

from functools import cache

import numpy as np
from scipy.ndimage import gaussian_filter

from napari_spotfit import SpotFits


def fits_at(places, error=0.05, frame=None, **columns):
    """Return fits at positions y, x, with standard errors unless None."""
    places = np.asarray(places, float).reshape(-1, 2)
    known = {"y": places[:, 0], "x": places[:, 1]} | columns
    if error is not None:
        errors = np.broadcast_to(error, places.shape).astype(np.float32)
        known |= {"y_stderr": errors[:, 0].copy(), "x_stderr": errors[:, 1].copy()}
    known |= {"stop_condition": np.full(len(places), 2, np.uint8)}
    known |= {"photons": known.get("photons", np.full(len(places), 100.0, np.float32))}
    if frame is None:
        return SpotFits(known)
    return SpotFits({"frame": np.asarray(frame, np.int64)} | known, ("frame",))


@cache
def _cells(side):
    """Return labels of cells in squares of 80 pixels, the square of each pixel, and its y and x."""
    place = np.indices((side, side))
    own = place[0] // 80, place[1] // 80
    centers = 40.0 + 80 * np.indices((7, 7))
    labels = np.where(np.hypot(*(place - centers[:, *own])) < 30, 7 * own[0] + own[1] + 1, 0)
    return labels, own, place


def textured_cells(seed, *, shared=True, nuclei=True, per_cell=40, side=560):
    """Return labels of 49 cells, and positions of two independent channels in them.

    Spots are dense in some parts of a cell, in both channels alike if `shared`, and rare in nuclei.
    """
    random = np.random.default_rng(seed)
    labels, own, place = _cells(side)
    nuclei_at = random.uniform(-8, 8, (49, 2)).T.reshape(2, 7, 7) + 40.0 + 80 * np.indices((7, 7))
    nucleus = np.hypot(*(place - nuclei_at[:, *own])) < 13
    channels, density = [], None
    for _ in range(2):
        if density is None or not shared:
            smooth = gaussian_filter(random.normal(size=(side, side)), 8)
            density = np.where(labels > 0, np.exp(smooth / smooth.std()), 0)
            density = np.where(nucleus & nuclei, density / 20, density)
        pixels = random.choice(
            side**2, random.poisson(per_cell * 49), p=(density / density.sum()).ravel()
        )
        places = np.column_stack(np.unravel_index(pixels, (side, side)))
        channels.append(places + random.uniform(-0.5, 0.5, places.shape))
    return labels.copy(), *channels


def two_channels(
    seed, count=200, *, side=512, turned=0.0, scale=1.0, shift=(0.0, 0.0), mirrored=(1, 1),
    alone=0.0, error=0.05, bent=0.0, frames=1,
):  # fmt: skip
    """Return fits of channels a and b, and the map of b onto a; some spots are in only one."""
    random, angle = np.random.default_rng(seed), np.radians(turned)
    linear = scale * np.array([[np.cos(angle), np.sin(angle)], [-np.sin(angle), np.cos(angle)]])
    linear = linear @ np.diag(mirrored)

    def mapped(places):
        y, x = ((places - side / 2) / (side / 2)).T
        more = bent * np.column_stack([y**2 - x * y, x**2 + y**2 / 2])
        return (places - side / 2) @ linear.T + side / 2 + np.array(shift) + more

    b = random.uniform(0, side, (count, 2))
    own = b.copy()
    new = int(count * alone)
    own[count - new :] = random.uniform(0, side, (new, 2))
    frame = random.integers(0, frames, count)
    order = random.permutation(count)
    a = mapped(own) + random.normal(0, error, b.shape)
    b = b + random.normal(0, error, b.shape)
    numbers = (frame[order], frame) if frames > 1 else (None, None)
    return fits_at(a[order], error, numbers[0]), fits_at(b, error, numbers[1]), mapped
