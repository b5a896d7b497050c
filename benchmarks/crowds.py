"""Crowded fields: what is found where the light of spots overlaps, how well, and how fast.

Spots of σ 130 nm on pixels of 100 nm, 1000 photons on a background of 10, at random places. Found
and true places are paired one to one within 250 nm, so that the pairs are as many, then as near, as
they can be, or greedily, the nearest first; the r.m.s. error is the lateral distance, and
Challenge efficiency 100 − √((100 − J)² + r.m.s.²), J in per cent and the error in nm. Rows are
for σ known. Of exponential brightness, a tenth of the spots is dimmer than the detection limit or
within σ of a brighter one: ``crowds_by_light.py`` prints what can be found. ``--data`` names a
folder with ``ArtificialDataset_demo1.tif`` and its truth.
"""

from __future__ import annotations

import argparse
import math
import time
import warnings
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from common import bar, run
from scipy.optimize import linear_sum_assignment
from scipy.spatial import cKDTree
from scipy.special import erf

import napari_spotfit as spotfit
from napari_spotfit.engine.detection_settings import score_for

PIXEL, SIGMA, RADIUS, SIDE = 100.0, 1.3, 2.5, 64
#: Jaccard and r.m.s. error in nm that are asked for at a density, by the kind of brightness.
WANTED = {
    ("equal", 0.5): (0.98, 14), ("equal", 1.0): (0.95, 18), ("equal", 2.0): (0.90, 24),
    ("equal", 4.0): (0.79, 35), ("exponential", 1.0): (0.90, None),
    ("exponential", 2.0): (0.83, None),
}  # fmt: skip
#: Spots a second by joint fits, and the cost of ``auto`` where none overlap, and at random places
#: by their density, that are asked for.
SPEED, DEARER, AT_RANDOM = 1e5, 1.03, {0.02: 1.08, 0.05: 1.12}
#: The error of the estimated width that is asked for; times that false spots are as many as asked.
WIDTH_ERROR, AS_MANY = 0.05, 2.0
#: Foci: standard deviations in σ, spots, photons and their spread; the errors of their light and
#: their count that are asked for.
FOCI, COUNTS, FOCUS_LIGHT, SPREAD = (1.0, 1.5, 2.5), (2, 3, 4, 8, 12, 20), 1500.0, 0.2
LIGHT_ERROR, COUNT_ERROR = 0.05, 0.10
#: Of single-molecule FISH: spots per 100 px², and F1 by distance in px.
FISH, FISH_F1 = 3.0, {3.0: 0.90, 1.0: 0.80}
#: Of the movie with 6 spots per µm²: Jaccard and error in nm, with σ known and nothing.
DATA = {"σ known": (0.78, 32.0), "nothing known": (0.74, None)}


class Scores(NamedTuple):
    """How found places and true ones agree; the error in nm."""

    jaccard: float
    recall: float
    precision: float
    error: float
    greedy: float

    @property
    def efficiency(self) -> float:
        """Challenge efficiency."""
        return 100 - math.hypot(100 - 100 * self.jaccard, self.error)


def movie(density: float, frames: int, seed: int, kind: str = "equal") -> Iterator[Any]:
    """Yield frames of random spots, and their places."""
    rng = np.random.default_rng(seed)
    for _ in range(frames):
        count = rng.poisson(density * (SIDE * PIXEL / 1000) ** 2)
        places = rng.uniform(1.5, SIDE - 2.5, (count, 2))
        photons = np.full(count, 1000.0) if kind == "equal" else rng.exponential(1000.0, count)
        yield taken(rng, places, photons), places


def taken(
    rng: np.random.Generator, places: np.ndarray, photons: np.ndarray, side: int = SIDE
) -> np.ndarray:
    """Return an image of spots."""
    edges = np.arange(side + 1) - 0.5
    share = np.diff(0.5 * erf((edges - places[..., np.newaxis]) / (SIGMA * 2**0.5)), axis=2)
    light = 10 + np.einsum("n,ny,nx->yx", photons, share[:, 0], share[:, 1], optimize=True)
    return rng.poisson(light).astype(np.uint16)


def distances_of_pairs(truth: np.ndarray, found: np.ndarray, radius: float = RADIUS) -> Any:
    """Return all distances, and those of pairs: as many as can be, as near as they can be."""
    apart = np.hypot(*(truth[:, np.newaxis] - found).transpose(2, 0, 1))
    near = apart[linear_sum_assignment(np.where(apart < radius, apart, 1e3))]
    return apart, near[near < radius]


def paired(truth: np.ndarray, found: np.ndarray) -> tuple[np.ndarray, int]:
    """Return the distances of pairs, and how many there are greedily."""
    apart, near = distances_of_pairs(truth, found)
    used, greedy = (set[int](), set[int]()), 0
    for place in np.argsort(apart, axis=None):
        i, j = divmod(int(place), len(found))
        if apart[i, j] >= RADIUS:
            break
        if i not in used[0] and j not in used[1]:
            used[0].add(i), used[1].add(j)
            greedy += 1
    return near, greedy


def scores(truth: list[np.ndarray], found: list[np.ndarray]) -> Scores:
    """Return the scores of all frames together."""
    pairs = [paired(*both) for both in zip(truth, found, strict=True)]
    near = np.concatenate([one for one, _ in pairs])
    true, all_found = sum(map(len, truth)), sum(map(len, found))
    greedy = sum(count for _, count in pairs)
    return Scores(
        len(near) / (true + all_found - len(near)), len(near) / true, len(near) / all_found,
        PIXEL * float(np.sqrt(np.mean(near**2))), greedy / (true + all_found - greedy),
    )  # fmt: skip


def found_in(frames: np.ndarray, **options: Any) -> tuple[list[np.ndarray], float]:
    """Return the places of the good fits of each frame, and spots per second."""
    begun = time.perf_counter()
    fits = spotfit.localize(frames, **options)
    seconds = time.perf_counter() - begun
    good = fits[fits.good]
    places = np.column_stack([good.y, good.x])
    return [places[good.frame == i] for i in range(len(frames))], len(fits) / seconds


def print_scores(name: str, truth: list[np.ndarray], frames: np.ndarray, **options: Any) -> Scores:
    """Print a row of the table."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        places, speed = found_in(frames, **options)
    s = scores(truth, places)
    print(
        f"{name:34} {options['neighbours']:8} J {s.jaccard:.3f} (greedy {s.greedy:.3f}) recall "
        f"{s.recall:.3f} precision {s.precision:.3f} {s.error:4.1f} nm E {s.efficiency:4.1f}  "
        f"{speed:8.0f}/s",
        flush=True,
    )
    return s


def known(neighbours: str, sigma: float = SIGMA) -> dict[str, Any]:
    """Return the settings of fits for which all is known."""
    return {
        "sigma": sigma, "pixel": "integrated", "gain": 1.0, "estimator": "mle",
        "neighbours": neighbours, "backend": "cpu",
    }  # fmt: skip


def print_table(options: argparse.Namespace) -> None:
    """Print the table of densities."""
    print("Scores; the mean of all movies, fitted as the last one")
    for (kind, density), (jaccard, error) in WANTED.items():
        scores = []
        for seed in options.seeds:
            truth, frames = _movie(density, options.frames, seed, kind)
            for neighbours in options.neighbours:
                s = print_scores(f"{kind}, {density:g}/µm²", truth, frames, **known(neighbours))
            scores.append(s)
        found = np.mean([one.jaccard for one in scores]), np.mean([one.error for one in scores])
        print(
            f"{kind}, {density:g}/µm²: J {found[0]:.3f} {bar(found[0], least=jaccard)}, "
            f"{found[1]:.1f} nm {bar(found[1], most=error)}"
        )
    truth, frames = _movie(1.0, options.frames, options.seeds[0])
    for factor in (0.9, 1.1):
        for neighbours in options.neighbours:
            name = f"σ taken {factor:g} times, 1/µm²"
            print_scores(name, truth, frames, **known(neighbours, factor * SIGMA))
    for density in (1.0, 2.0):
        truth, frames = _movie(density, options.frames, options.seeds[0])
        for neighbours in options.neighbours:
            print_scores(f"nothing known, {density:g}/µm²", truth, frames, neighbours=neighbours,
                         backend="cpu")  # fmt: skip


def print_widths(options: argparse.Namespace) -> None:
    """Print σ as it is estimated, over the true one."""
    print("Estimated σ over the true one, of each movie")
    for density in (1.0, 2.0, 4.0, 6.0):
        for neighbours in options.neighbours:
            found = []
            for seed in options.seeds:
                _, frames = _movie(density, options.frames, seed)
                settings = spotfit.Settings(pixel="integrated", neighbours=neighbours)
                found.append(spotfit.estimate_sigma(frames, settings=settings).sigma / SIGMA)
            off = max(abs(share - 1) for share in found)
            line = " ".join(f"{share:.3f}" for share in found)
            print(f"{density:g}/µm², {neighbours:8} {line} {bar(off, most=WIDTH_ERROR)}")


def _movie(
    density: float, frames: int, seed: int, kind: str = "equal"
) -> tuple[list[np.ndarray], np.ndarray]:
    made = list(movie(density, frames, seed, kind))
    return [places for _, places in made], np.stack([frame for frame, _ in made])


def print_errors(options: argparse.Namespace) -> None:
    """Print whether standard errors are right, and evidence is worth what it says."""
    truth, frames = _movie(1.0, 4 * options.frames, options.seeds[0])
    fits = spotfit.localize(frames, **known("joint"))
    fits = fits[fits.good]
    scaled, false, evidence = [], [], []
    for frame, places in enumerate(truth):
        own = fits[fits.frame == frame]
        apart = np.hypot(own.y[:, np.newaxis] - places[:, 0], own.x[:, np.newaxis] - places[:, 1])
        nearest = apart.argmin(axis=1)
        is_true = apart.min(axis=1) < 1
        for axis, (values, errors) in enumerate(
            ((own.y, own.y_stderr), (own.x, own.x_stderr))
        ):  # fmt: skip
            scaled.append(((values - places[nearest, axis]) / errors)[is_true])
        false.append(apart.min(axis=1) > RADIUS)
        evidence.append(own.evidence)
    z = np.concatenate(scaled)
    spread = (np.percentile(z, 84.13) - np.percentile(z, 15.87)) / 2
    print("Errors at 1/µm²")
    print(f"z-spread {spread:.3f} (s.d. {z.std():.2f}) {bar(abs(spread - 1), most=0.1)}")
    print(f"false: {np.concatenate(false).sum()} of {len(fits)}")
    rng = np.random.default_rng(1)
    for background in (1, 10, 100):
        empty = rng.poisson(background, (40, 256, 256)).astype(np.uint16)
        counts = [
            int(spotfit.localize(empty, **known(kind)).good.sum()) for kind in ("exclude", "joint")
        ]
        print(f"false spots on background {background}: exclude {counts[0]}, joint {counts[1]}")


def print_speed(options: argparse.Namespace) -> None:
    """Print spots per second at 1 per µm²."""
    print("Spots a second by 1 per µm²")
    _, frames = _movie(1.0, 400, options.seeds[0])
    for neighbours in ("exclude", "auto", "joint"):
        speeds = [found_in(frames, **known(neighbours))[1] for _ in range(3)]
        least = SPEED if neighbours == "joint" else None
        print(f"{neighbours:8} {max(speeds):9.0f} {bar(max(speeds), least=least)}")


def sparse_movie(frames: int, side: int, density: float, apart: float) -> np.ndarray:
    """Return frames with a density of spots per 100 px², less those nearer to an earlier one."""
    rng, light = np.random.default_rng(1), np.full((frames, side, side), 10.0)
    edges = np.arange(17) - 8.5
    for own in light:
        places = rng.uniform(8, side - 9, (rng.poisson(density * side**2 / 100), 2))
        near = cKDTree(places).query_pairs(apart * SIGMA, output_type="ndarray")
        places = np.delete(places, near[:, 1], axis=0)
        middle = np.rint(places).astype(int)
        away = edges - (places - middle)[..., np.newaxis]
        share = np.diff(0.5 * erf(away / (SIGMA * 2**0.5)), axis=2)
        for (y, x), (down, across) in zip(middle, share, strict=True):
            own[y - 8 : y + 8, x - 8 : x + 8] += 1000 * np.outer(down, across)
    return rng.poisson(light).astype(np.uint16)


def print_sparse(options: argparse.Namespace) -> None:
    """Print the CPU time of ``auto`` over that of ``exclude`` where spots are sparse, in turns."""
    print("CPU time of auto / exclude, and spots; 4.5 σ apart, and at random")
    for apart, density in product((4.5, 0.0), (0.02, 0.05, 0.2)):
        where, most = ("apart", DEARER) if apart else ("at random", AT_RANDOM.get(density))
        for count, side, times in ((1, 512, 21), (1000, 256, 5), (1, 3000, 5)):
            frames = sparse_movie(count, side, density, apart)
            for name, settings in (("all known", known("")), ("nothing known", {})):
                shares, found = [], {}
                for k in range(times + 1):
                    spent = {}
                    for kind in ("exclude", "auto")[:: 1 if k % 2 else -1]:
                        used = settings | {"neighbours": kind, "backend": "cpu"}
                        begun = time.process_time()
                        found[kind] = len(spotfit.localize(frames, **used))
                        spent[kind] = time.process_time() - begun
                    shares.append(spent["auto"] / spent["exclude"])
                share = float(np.median(shares[1:]))
                line = f"{where:9} {density:4g} per 100 px², {count:4} × {side:4}², {name:13}"
                line += f"  {share:.3f} {bar(share, most=most)} ({found['exclude']} spots)"
                print(line, flush=True)


def print_data(options: argparse.Namespace) -> None:
    """Print the scores of the crowded movie with its truth."""
    if options.data is None:
        return
    frames = spotfit.open_image(options.data / "ArtificialDataset_demo1.tif")
    table = np.genfromtxt(options.data / "positions_demo1.csv", delimiter=",", names=True)
    names = table.dtype.names or ()
    x, y, frame = (next(n for n in names if n.startswith(key)) for key in ("x", "y", "frame"))
    truth = [
        np.column_stack([table[y], table[x]])[table[frame] == i + 1] / PIXEL - 0.5
        for i in range(20)
    ]  # fmt: skip
    pixels = np.asarray(frames)
    for name, (jaccard, error) in DATA.items():
        for neighbours in options.neighbours:
            used: dict[str, Any] = {"neighbours": neighbours, "backend": "cpu"}
            if name == "σ known":
                used |= {"sigma": 1.1, "pixel": "integrated"}
            s = print_scores(f"6/µm², {name}", truth, pixels, **used)
        print(f"{name}: J {s.jaccard:.3f} {bar(s.jaccard, least=jaccard)}, {s.error:.1f} nm "
              f"{bar(s.error, most=error)}")  # fmt: skip


def print_evidence(options: argparse.Namespace) -> None:
    """Print whether false spots with some evidence are as many as are asked for with it."""
    print("False spots with an evidence, over those that it promises")
    rng, most = np.random.default_rng(options.seeds[0]), 100.0
    empty = rng.poisson(10, (100, 256, 256)).astype(np.uint16)
    truth, crowded = _movie(1.0, 400, options.seeds[0])
    for name, frames in (("no spots", empty), ("1/µm²", crowded)):
        fits = spotfit.localize(frames, **known("joint"), false_spots=most)
        fits = fits[fits.good]
        is_false = np.ones(len(fits), bool)
        if frames is crowded:
            is_false = np.concatenate([
                _without_a_true_one(truth[i], fits[fits.frame == i]) for i in range(len(frames))
            ])  # fmt: skip
        for promised in (100.0, 30.0, 10.0):
            # The logarithm of the likelihood that a score adds is half of its square.
            least = score_for(promised, SIGMA) ** 2 / 2
            found = int((fits.evidence[is_false] >= least).sum())
            share = found / (promised * frames.size / 1e6)
            print(f"{name:8} {least:4.1f} nats: {found} false, {share:.2f} times as promised "
                  f"{bar(share, most=AS_MANY)}")  # fmt: skip


def _without_a_true_one(places: np.ndarray, fits: spotfit.SpotFits) -> np.ndarray:
    """Return which fits of a frame are paired with no true spot."""
    apart = np.hypot(fits.y[:, np.newaxis] - places[:, 0], fits.x[:, np.newaxis] - places[:, 1])
    rows, columns = linear_sum_assignment(np.where(apart < RADIUS, apart, 1e3))
    is_false = np.ones(len(fits), bool)
    is_false[rows[apart[rows, columns] < RADIUS]] = False
    return is_false


def print_foci(options: argparse.Namespace) -> None:
    """Print the light and the number of spots that are found in foci."""
    print(f"Foci of spots of {FOCUS_LIGHT:g} photons: light over the median single, over the true "
          "one; the count's bias")  # fmt: skip
    around = np.array([(y, x) for y in (12, 52) for x in (8, 32, 56)], float)
    for spread in FOCI:
        for count in COUNTS:
            rng, frames, true = np.random.default_rng(count), [], []
            for _ in range(200):
                own = 32 + rng.normal(0, spread * SIGMA, (count, 2))
                places = np.concatenate([own, around + rng.uniform(-2, 2, around.shape)])
                photons = FOCUS_LIGHT * rng.normal(1, SPREAD, len(places)).clip(0.2)
                frames.append(taken(rng, places, photons))
                true.append(photons[:count].sum() / FOCUS_LIGHT)
            fits = spotfit.localize(np.stack(frames), **known("joint"))
            groups = spotfit.summarize_groups(fits[fits.good])
            far = np.hypot(groups["y"] - 32, groups["x"] - 32)
            own = groups[far < 4 * spread * SIGMA]
            light = own["photons_over_single"].sum() / sum(true) - 1
            bias = own["count"].sum() / (count * len(frames)) - 1
            is_bound = count == 2 or (count <= 4 and spread == FOCI[-1])
            line = bar(abs(bias), most=COUNT_ERROR if is_bound else None)
            print(f"s.d. {spread:3g} σ, {count:2} spots: light {light:+.3f} "
                  f"{bar(abs(light), most=LIGHT_ERROR)}, count {bias:+.3f} {line}")  # fmt: skip


def print_fish(options: argparse.Namespace) -> None:
    """Print F1 of spots as of single-molecule FISH in one plane."""
    print(f"{FISH:g} spots in 100 px², 2000 photons ± 25 %: F1")
    rng, side = np.random.default_rng(options.seeds[0]), 256
    truth, frames = [], []
    for _ in range(4):
        places = rng.uniform(1, side - 2, (rng.poisson(FISH * side**2 / 100), 2))
        photons = 2000 * rng.normal(1, 0.25, len(places)).clip(0.3)
        truth.append(places)
        frames.append(taken(rng, places, photons, side))
    for neighbours in options.neighbours:
        found, _ = found_in(np.stack(frames), **known(neighbours))
        number = sum(map(len, truth)) + sum(map(len, found))
        for radius, least in FISH_F1.items():
            frame_by_frame = zip(truth, found, strict=True)
            pairs = sum(len(distances_of_pairs(*both, radius)[1]) for both in frame_by_frame)
            f1 = 2 * pairs / number
            line = bar(f1, least=None if neighbours == "exclude" else least)
            print(f"{neighbours:8} within {radius:g} px {f1:.3f} {line}")


SECTIONS = {
    "table": print_table, "widths": print_widths, "data": print_data, "errors": print_errors,
    "evidence": print_evidence, "foci": print_foci, "fish": print_fish,
    "speed": print_speed, "sparse": print_sparse,
}  # fmt: skip


def _add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--frames", type=int, default=12, help="frames of 64×64 px each")
    parser.add_argument(
        "--seeds", type=int, nargs="+", default=[5, 101, 202, 303], help="of movies"
    )
    parser.add_argument("--data", type=Path, help="a folder with a crowded movie and its truth")
    parser.add_argument("--neighbours", nargs="+", default=["exclude", "joint"])


if __name__ == "__main__":
    run(__doc__, SECTIONS, _add)
