"""Measure the quality of fits: scatter in standard errors, flags, and real images."""

from __future__ import annotations

from typing import Any, NamedTuple

import common  # the tests' folder
import numpy as np
import real_files
from noisy_scenes import Array, Kind, hits, kinds, scmos_variance
from peers import agreed, installed
from scenes import light
from scipy import ndimage
from scipy.spatial import cKDTree

import napari_spotfit as spotfit

# ---- Standard errors ----

#: Compared columns, and limits with and without a given gain.
IN_PLANE = ("y", "x")
NAMES = (*IN_PLANE, "sigma", "amplitude", "photons", "background")
GIVEN, NOT_GIVEN = (0.95, 1.05), (0.85, 1.15)
#: How far from 1 the spread of places in their errors may be where the gain is not known.
OFF = 0.07
#: Camera of most scenes, and of others; None if no camera takes such images.
USUAL = {"gain": 1.0, "offset": 100.0}
EMCCD = {"gain": 25.0, "offset": 100.0, "variance": 9.0 + 1 / 12, "emccd": True}
CAMERAS: dict[str, dict[str, Any] | None] = {
    "EMCCD 1": EMCCD,
    "EMCCD 0.05": EMCCD,
    "8 bit": {"gain": 1 / 24, "offset": -0.5, "variance": 9 / 24**2 + 1 / 12},
    **dict.fromkeys(("white", "median", "interpolated", "blurred", "JPEG 90", "JPEG 75", "sCMOS")),
}
#: Backgrounds with edges or texture, or with counts scaled by frame, where a constant background is
#: wrong; filtered ones.
COMPRESSED = ("JPEG 90", "JPEG 75")
NO_BACKGROUND = ("cells 200", "cells 2000", "nuclei", *COMPRESSED)
FILTERED = ("median", "interpolated", "blurred")
SIDE, APART, FRAMES, SEED = 384, 24, 12, 313
#: Brightness relative to spots that are easy to see, as standard errors are of first order, which
#: does not hold for dim spots; less for JPEG, which would clip.
BRIGHT, BRIGHT_JPEG = 5.0, 1.5
#: Excess of a hot pixel over its neighbours in counts.
HOT = 15


class Spots(NamedTuple):
    """Frames with isolated spots, their positions, and the background there."""

    movie: Any
    places: Array
    background: Array
    camera: dict[str, Any] | None
    variance: Array | None
    #: Mask of hot pixels.
    bad: np.ndarray


def spots_of(name: str, kind: Kind, sigma: float, frames: int = FRAMES) -> Spots:
    """Return a movie of one kind, with spots on an irregular grid."""
    rng, shape = np.random.default_rng([SEED, *name.encode()]), (SIDE, SIDE)
    bright = BRIGHT_JPEG if name.startswith("JPEG") else BRIGHT
    grid = np.stack(np.meshgrid(*2 * [np.arange(APART, SIDE - 12, APART)], indexing="ij"), -1)
    movie, places, background = [], [], []
    empty = np.mean([np.asarray(kind.image(rng, np.zeros(shape)), float) for _ in range(60)], 0)
    smooth = ndimage.median_filter(empty, 3)
    bad = (empty - smooth > HOT) & (name == "hot pixels")
    empty = np.where(bad, smooth, empty)
    for frame in range(frames):
        own = grid.reshape(-1, 2) + rng.uniform(-3, 3, (grid.size // 2, 2))
        photons = np.full(len(own), bright * kind.photons * sigma / 1.3)
        movie.append(kind.image(rng, light(own, photons, sigma, shape)))
        places.append(np.column_stack([np.full(len(own), frame), own + kind.shift]))
        corners = np.rint(own).astype(int)
        background += [empty[y - 4 : y + 5, x - 4 : x + 5].mean() for y, x in corners]
    camera, variance = CAMERAS.get(name, USUAL), None
    if kind.has_map:
        variance, camera = scmos_variance(shape, SEED), dict(USUAL)
    return Spots(
        np.stack(movie), np.concatenate(places), np.array(background), camera, variance, bad
    )


def scatter(spots: Spots, sigma: float, given: dict[str, Any], name: str) -> dict[str, float]:
    """Return the spread of good fits in standard errors, and the fraction of good ones.

    Centres are compared with the truth, other columns with their mean, as biases by a slope of the
    background or by a filter are no noise.
    """
    camera = None if spots.variance is None else spotfit.Camera(variance=spots.variance)
    fits = spotfit.fit_at(
        spots.movie, spots.places, bad_pixels=spots.bad, camera=camera,
        settings=spotfit.Settings(sigma=sigma, **given),
    )  # fmt: skip
    good, spread = fits.good, {}
    truth = {"y": spots.places[:, 1], "x": spots.places[:, 2], "background": spots.background}
    for column in NAMES:
        if column != "background" or name not in NO_BACKGROUND:
            off = fits.columns[column] - truth.get(column, np.zeros(len(fits)))
            off = (off - np.median(off[good])) / fits.columns[f"{column}_stderr"]
            spread[column] = float(np.std(off[good]))
    return spread | {"good": float(good.mean())}


def print_errors(sigma: float, quick: bool) -> None:
    """Print the scatter on every background, with and without the gain."""
    print(f"\nσ {sigma}: scatter in standard errors; * is not in {GIVEN[0]}–{GIVEN[1]} with the "
          f"gain given, {NOT_GIVEN[0]}–{NOT_GIVEN[1]} without\n{'':>24}"
          + "".join(f"{name:>11}" for name in (*NAMES, "good")))  # fmt: skip
    for name, kind in kinds((SIDE, SIDE), SEED).items():
        spots, width = spots_of(name, kind, sigma, 4 if quick else FRAMES), sigma
        if name in FILTERED:
            width = spotfit.estimate_sigma(spots.movie).sigma
        for how, bar in (("given", GIVEN), ("not given", NOT_GIVEN)):
            if how == "given" and spots.camera is None:
                continue
            found = scatter(spots, width, spots.camera or {} if how == "given" else {}, name)
            cells = [
                f"{found[c]:.2f}{' ' if bar[0] <= found[c] <= bar[1] else '*'}"
                if c in found else "- " for c in NAMES
            ]  # fmt: skip
            cells.append(f"{found['good']:.0%}")
            line = f"{f'{name}, {how}':>24}" + "".join(f"{c:>11}" for c in cells)
            if how == "not given" and name not in (*NO_BACKGROUND, *FILTERED):
                off = max(abs(found[column] - 1) for column in IN_PLANE)
                line += f" places {off:.2f} off 1 {common.bar(round(off, 2), most=OFF)}"
            print(line, flush=True)


# ---- Flags: true fits that they reject, and false ones that they miss ----

#: Spots per 100 px², photons, and largest loss of true fits. Photons of sparse spots are those at
#: σ 1.3, and grow in proportion to it.
CROWDS = {
    "sparse, 0.1": (0.1, 1000, 0.01), "dim, 0.1": (0.1, 180, 0.01),
    "dense, 1": (1.0, 1000, 0.025), "dense, 2": (2.0, 1000, 0.025),
    "dense, 3": (3.0, 1000, 0.025), "dense, 4": (4.0, 1000, 0.025),
}  # fmt: skip
#: Backgrounds without spots, and the largest fraction of good fits there.
CELLS, MOST_KEPT = ("cells 200", "cells 2000"), 0.1
FIELD, NEAR = 512, 1.0


def lost(density: float, photons: float, sigma: float, quick: bool, **how: Any) -> tuple:
    """Return the fractions of true fits that are not good, and by chance, and their flags.

    A fit is true if it ends near a spot. In a crowd, some fits do so by chance: as many as end near
    the spots of another image.
    """
    rng = np.random.default_rng([5, round(10 * density), round(10 * sigma), int(photons)])
    photons *= sigma / 1.3 if density < 1 else 1
    frames = (16 if density < 1 else 3) if not quick else 2
    truth = [rng.uniform(-0.5, FIELD - 0.5, (round(density * FIELD**2 / 100), 2))
             for _ in range(frames)]  # fmt: skip
    true = chance = taken = 0
    why: dict[str, int] = {}
    for places, others in zip(truth, [truth[-1], *truth[:-1]], strict=True):
        image = rng.poisson(10 + light(places, photons, sigma, (FIELD, FIELD))) + 100
        fits = spotfit.localize(image.astype(np.uint16), sigma=sigma, **how)
        near, bad = _near(fits, places), ~fits.good
        true, taken = true + int(near.sum()), taken + int((near & bad).sum())
        chance += int((_near(fits, others) & bad).sum())
        for flag, count in fits[near & bad].flag_counts().items():
            why[flag.name] = why.get(flag.name, 0) + count
    return taken / true, chance / true, {name: n / true for name, n in why.items() if n}


def _near(fits: spotfit.SpotFits, places: Array) -> np.ndarray:
    """Return which fits end near a position."""
    found = np.column_stack([fits.y, fits.x]).astype(float)
    near, valid = np.zeros(len(fits), bool), np.isfinite(found).all(axis=1)
    near[valid] = cKDTree(places).query(found[valid])[0] <= NEAR
    return near


def print_flags(quick: bool) -> None:
    """Print the fractions of true fits that are not good, and of false ones that are."""
    sigmas = (1.3,) if quick else (1.0, 1.3, 2.0)
    print(f"\nTrue fits that are not good, in %\n{'':>24}{'lost':>6}{'ignored':>9}{'chance':>8}")
    for name, (density, photons, bar) in CROWDS.items():
        for sigma in sigmas:
            own, chance, why = lost(density, photons, sigma, quick)
            ignored = lost(density, photons, sigma, quick, neighbours="ignore")[0]
            flags = ", ".join(f"{100 * n:.1f} {flag}" for flag, n in why.items() if n >= 5e-4)
            print(f"{f'{name}; σ {sigma}':>24}{100 * own:>6.1f}{100 * ignored:>9.1f}"
                  f"{100 * chance:>8.1f} {common.bar(round(100 * own, 1), most=100 * bar)} {flags}",
                  flush=True)  # fmt: skip
    print("\nFalse fits that are good")
    for name in CELLS:
        fits = good = 0
        for seed in range(1 if quick else 8):
            rng = np.random.default_rng([5, seed])
            image = kinds((FIELD, FIELD), 5 + seed)[name].image(rng, np.zeros((FIELD, FIELD)))
            for sigma in sigmas:
                found = spotfit.localize(image, sigma=sigma)
                fits, good = fits + len(found), good + int(found.good.sum())
        share = common.bar(good / max(fits, 1), most=MOST_KEPT, form=".0%")
        print(f"{name:>24} {good} of {fits} {share}")


# ---- Real images ----

#: Least fractions found: of the truth, and of what two peers agree on in crowded images.
TRUTH, AGREED, TWO, CROWDED = 0.95, 0.97, ("blob_log", "big-fish"), ("dax", "stuck_particles")
#: Positions within this many pixels are the same spot, as peers return whole pixels.
TRUE, SAME = 1.0, 2.0


def doubts(fits: spotfit.SpotFits, places: Array) -> dict[str, int]:
    """Count problems of good fits by their columns and initial positions, not by flags."""
    good, sigma = fits.good, float(fits.settings.sigma)
    settled, begun = _by_frame(fits.points())[good], _by_frame(places)[good]
    inner = [fits.columns[name] - fits.columns[f"roi_{name}"] for name in ("y", "x")]
    low, high = -0.5, fits.settings.roi_size - 0.5
    at_bound = np.any([(along <= low) | (along >= high) for along in inner], axis=0)
    at_bound |= (fits.sigma <= 0.25) | (fits.sigma >= fits.settings.roi_size)
    moved = np.hypot(*(settled - begun).T[1:]) > min(1.5 * sigma, 2.0)
    return {
        "at a bound": int(at_bound[good].sum()),
        "negative": int(((fits.amplitude <= 0) | (fits.photons <= 0))[good].sum()),
        "moved": int(moved.sum()),
        "double": len(cKDTree(settled).query_pairs(max(1.0, 0.75 * sigma))),
    }


def _by_frame(points: Any) -> Array:
    """Return frame, y and x, with distant frames."""
    points = np.asarray(points, float)
    if points.shape[1] == 2:
        points = np.column_stack([np.zeros(len(points)), points])
    return points * [1e6, 1, 1]


def both_find(frames: Any, sigma: float) -> Array:
    """Return the positions that two peers find at their defaults, with distant frames."""
    one, other = (installed()[name] for name in TWO)
    result = []
    for i, frame in enumerate(frames):
        native = np.ascontiguousarray(frame.astype(frame.dtype.newbyteorder("=")))
        places = agreed(one(native, sigma, None).places, other(native, sigma, None).places, SAME)
        result.append(np.column_stack([np.full(len(places), float(i)), places]))
    return _by_frame(np.concatenate(result))


def print_real_images(quick: bool) -> None:
    """Print the results for each available image of tests/helpers/real_files.py."""
    print(f"\nReal images{'fits':>14}{'good':>8}   of the good fits")
    for name in real_files.REAL_FILES:
        if lacking := real_files.missing(name):
            print(f"{name:>18} needs {lacking[0]} in the folder SPOTFIT_REAL_FILES")
            continue
        image = real_files.read_tiff(name) if name not in ("dax", "paint") else None
        truth = None
        if name == "dax":
            image, table = real_files.read_dax()
            truth = _by_frame(table[["frame", "y", "x"]])
        elif name == "paint":
            image = real_files.read_paint()[0]
        fits = spotfit.localize(image)
        places = spotfit.detect_spots(image, sigma=fits.settings.sigma)
        wrong = doubts(fits, places)
        words = ", ".join(f"{count} {what}" for what, count in wrong.items())
        none = common.bar(sum(wrong.values()), most=0)
        print(f"{name:>18}{len(fits):>7}{fits.good.mean():>8.1%}   {words} {none}")
        good = _by_frame(fits.points())[fits.good]
        if truth is not None:
            share = hits(good, truth, TRUE) / len(truth)
            print(f"{'':>18} of the truth within {TRUE:g} px: {share:.3f} of {len(truth)} "
                  f"{common.bar(share, least=TRUTH)}")  # fmt: skip
        if name in CROWDED and set(TWO) <= set(installed()) and not quick:
            both = both_find(image, fits.settings.sigma)
            share = hits(good, both, SAME) / len(both)
            print(f"{'':>18} of what {' and '.join(TWO)} find: {share:.3f} of {len(both)} "
                  f"{common.bar(share, least=AGREED)}")  # fmt: skip
