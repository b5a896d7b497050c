"""Crowds of dim and bright spots: what can be found at all, and what a wrong width does.

Spots as those of ``crowds.py``. Of exponential brightness, many are too dim to be seen by anything.
The Fisher information of all true spots of a frame and its background, all unknown, gives the score
that the light of each has in the mean, and so the chance that it exceeds a bar, were all places
tried. The weakest are left out one by one until all left exceed the bar of ``localize`` in the
mean: what no fit needs does not make its neighbours worse. The Jaccard with each bar counts as
many false spots as noise has maxima above it. Of spots of equal light, what is found with a σ that
is off.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Iterator

import numpy as np
from common import bar, run
from crowds import RADIUS, SIDE, SIGMA, found_in, known, scores, taken
from scipy.optimize import linear_sum_assignment
from scipy.special import erf, ndtr

from napari_spotfit import Settings
from napari_spotfit.engine.detection_settings import expected_false_spots, score_for

#: False spots per 10⁶ pixels that bars stand for, over the default.
BARS = (0.1, 1.0, 10.0, 100.0)
#: Photons of spots of exponential brightness in the mean, and below which they are dim.
MEAN, DIM = 1000.0, 100.0
#: Jaccard of exponential brightness that is asked for, by density.
WANTED = {1.0: 0.90, 2.0: 0.83}
#: The given width over the true one, and by how much the Jaccard may be lower then.
TIMES, LOWER = (0.9, 0.95, 1.0, 1.05, 1.1, 1.2), 0.05


def uneven_frames(
    density: float, frames: int, seed: int, equal: float | None = None
) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Yield frames of random spots of exponential, or equal, brightness, places and photons."""
    rng = np.random.default_rng(seed)
    for _ in range(frames):
        count = rng.poisson(density * (SIDE / 10) ** 2)
        places = rng.uniform(1.5, SIDE - 2.5, (count, 2))
        photons = np.full(count, equal) if equal else rng.exponential(MEAN, count)
        yield taken(rng, places, photons), places, photons


def mean_scores(places: np.ndarray, photons: np.ndarray, least: float) -> np.ndarray:
    """Return the score of the light of each spot, in the mean, as the module says."""
    edges = (np.arange(SIDE + 1) - 0.5 - places[..., np.newaxis]) / SIGMA
    share = np.diff(0.5 * erf(edges / 2**0.5), axis=2)
    slope = -np.diff(np.exp(-(edges**2) / 2), axis=2) / (SIGMA * (2 * np.pi) ** 0.5)
    kinds = ((share[:, 0], share[:, 1]), (slope[:, 0], share[:, 1]), (share[:, 0], slope[:, 1]))
    light, *along = (np.einsum("ny,nx->nyx", *kind).reshape(len(places), -1) for kind in kinds)
    mean = 10 + photons @ light
    own = [light, *(photons[:, np.newaxis] * one for one in along), np.ones((1, SIDE**2))]
    jacobian = np.concatenate(own)
    information = (jacobian / mean) @ jacobian.T
    score, left = np.zeros(len(places)), np.arange(len(places))
    while len(left):
        rows = np.concatenate([left + k * len(places) for k in range(3)] + [[len(jacobian) - 1]])
        variance = np.diag(np.linalg.pinv(information[np.ix_(rows, rows)]))[: len(left)]
        score[left] = photons[left] / np.sqrt(np.maximum(variance, 1e-12))
        if score[left].min() >= least:
            break
        left = np.delete(left, score[left].argmin())
    return score


def bright_jaccard(
    truth: list[np.ndarray], light: list[np.ndarray], found: list[np.ndarray]
) -> float:
    """Return the Jaccard of spots that are not dim; fits of dim ones count neither way."""
    pairs = number = 0
    for places, photons, fits in zip(truth, light, found, strict=True):
        apart = np.hypot(*(places[:, np.newaxis] - fits).transpose(2, 0, 1))
        rows, columns = linear_sum_assignment(np.where(apart < RADIUS, apart, 1e3))
        own = photons[rows[apart[rows, columns] < RADIUS]]
        pairs += int((own >= DIM).sum())
        number += int((photons >= DIM).sum()) + len(fits) - len(own)
    return pairs / number


def print_limit(options: argparse.Namespace) -> None:
    """Print what is found of exponential brightness, and what could be."""
    print("Jaccard of exponential brightness: found, and in the mean by the Fisher information")
    default = Settings().false_spots
    for density, wanted in WANTED.items():
        made = [
            one for seed in options.seeds for one in uneven_frames(density, options.frames, seed)
        ]
        frames, truth, light = (list(column) for column in zip(*made, strict=True))
        found, _ = found_in(np.stack(frames), **known("joint"))
        jaccard = scores(truth, found).jaccard
        print(f"{density:g}/µm²: {jaccard:.3f} {bar(jaccard, least=wanted)}, of {DIM:g} photons or "
              f"more {bright_jaccard(truth, light, found):.3f}", flush=True)  # fmt: skip
        score = np.concatenate(
            [mean_scores(*one, score_for(default, SIGMA)) for one in zip(truth, light, strict=True)]
        )
        for times in BARS:
            false = times * default
            least = score_for(false, SIGMA)
            seen = float(ndtr(score - least).sum())
            wrong = expected_false_spots(least, SIGMA) * 1e-6 * len(frames) * SIDE**2
            shares = f"recall {seen / len(score):.3f}, J {seen / (len(score) + wrong):.3f}"
            print(f"  score of {least:.2f}, {false:g} false in 10⁶ px: {shares}", flush=True)


def print_given(options: argparse.Namespace) -> None:
    """Print what is found with a width that is off."""
    print("Jaccard and precision with a σ that is these times the true one")
    for photons in (1000.0, 10_000.0, 50_000.0):
        for density in (0.5, 1.0, 2.0):
            made = [
                one for seed in options.seeds
                for one in uneven_frames(density, options.frames, seed, photons)
            ]  # fmt: skip
            frames, truth = np.stack([one[0] for one in made]), [one[1] for one in made]
            own = {}
            for times in TIMES:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    found, _ = found_in(frames, **known("joint", times * SIGMA))
                own[times] = scores(truth, found)
            line = "  ".join(f"{k:g} {s.jaccard:.3f} {s.precision:.3f}" for k, s in own.items())
            most = own[1.0].jaccard - min(s.jaccard for s in own.values())
            print(f"{photons:6g} photons, {density:g}/µm²: {line}  lower by {most:.3f} "
                  f"{bar(most, most=LOWER)}", flush=True)  # fmt: skip


SECTIONS = {"limit": print_limit, "given": print_given}


def _add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--frames", type=int, default=12, help="frames of 64×64 px each")
    parser.add_argument("--seeds", type=int, nargs="+", default=[5, 101], help="of movies")


if __name__ == "__main__":
    run(__doc__, SECTIONS, _add)
