"""Scenes of crowds: spots at random places, and pairs, in planes."""

from __future__ import annotations

import numpy as np
from scipy.special import erf

SIGMA, BACKGROUND = 1.3, 10.0
KNOWN = {
    "sigma": SIGMA, "pixel": "integrated", "gain": 1.0, "estimator": "mle", "backend": "cpu",
}  # fmt: skip


def shares(places, side, pixel="integrated"):
    """Return the light of spots of unit light in the rows and the columns of an image."""
    places = np.asarray(places, float)[..., np.newaxis]
    if pixel == "sampled":
        apart = np.arange(side) - places
        return np.exp(-(apart**2) / (2 * SIGMA**2)) / (SIGMA * np.sqrt(2 * np.pi))
    edges = np.arange(side + 1) - 0.5
    return np.diff(0.5 * erf((edges - places) / (SIGMA * 2**0.5)), axis=2)


def light_of(places, photons, side=32, pixel="integrated"):
    """Return the mean of an image of spots."""
    own = shares(places, side, pixel)
    return BACKGROUND + np.einsum("n,ny,nx->yx", np.broadcast_to(photons, len(own)),
                                  own[:, 0], own[:, 1])  # fmt: skip


def random_spots(frames, density, seed, side=64, photons=1000.0):
    """Return a movie of spots at random places, and these by frame."""
    rng = np.random.default_rng(seed)
    places = [rng.uniform(2, side - 3, (rng.poisson(density * side**2), 2)) for _ in range(frames)]
    movie = [rng.poisson(light_of(own, photons, side)) for own in places]
    return np.stack(movie).astype(np.uint16), places


def pairs_of(apart, count, seed):
    """Return a movie with two spots in each frame, a distance in σ apart."""
    rng, movie = np.random.default_rng(seed), []
    for _ in range(count):
        angle, middle = rng.uniform(0, np.pi), rng.uniform(14, 17, 2)
        step = apart * SIGMA / 2 * np.array([np.sin(angle), np.cos(angle)])
        movie.append(rng.poisson(light_of([middle + step, middle - step], 1000.0)))
    return np.stack(movie).astype(np.uint16)


def joint_reach():
    """Return how far a spot's light counts, as engine/joint_fits.py has it."""
    return 4.5 * SIGMA + 1
