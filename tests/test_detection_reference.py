"""Quality of the reference of detection, with which kernels are compared."""

from __future__ import annotations

import detection_reference as reference
import numpy as np
import pytest
from noisy_scenes import f1, flat_scenes, noisy_scenes

#: F1 within 1 and 3 px that a first trial of the method reached on scenes like these, less 0.02, or
#: where noisy pixels of a camera are all over, less 0.05 and 0.04.
WANTED = {
    "sparse": (0.98, 0.98), "dim": (0.90, 0.95), "dense": (0.79, 0.81),
    "very dense": (0.65, 0.67), "bright dense": (0.85, 0.86), "white": (0.95, 0.96),
    "Poisson 50": (0.93, 0.95), "Poisson 5": (0.91, 0.94), "Poisson 0.5": (0.89, 0.94),
    "Poisson 0.05": (0.86, 0.94), "EMCCD 1": (0.87, 0.93), "EMCCD 0.05": (0.64, 0.77),
    "gradient": (0.96, 0.96), "vignette": (0.95, 0.96), "cells 200": (0.92, 0.93),
    "cells 2000": (0.90, 0.91), "nuclei": (0.85, 0.86), "hot pixels": (0.95, 0.96),
    "median": (0.92, 0.94), "interpolated": (0.95, 0.95), "blurred": (0.95, 0.95),
    "8 bit": (0.95, 0.95), "JPEG 90": (0.95, 0.95), "JPEG 75": (0.95, 0.95),
    "sCMOS": (0.87, 0.92), "sCMOS, map": (0.88, 0.93),
}  # fmt: skip


@pytest.mark.parametrize("sigma", [1.3])
def test_spots_are_found_on_every_background(sigma):
    score = reference.least_score(10, sigma)
    reached = {}
    for scene in (*flat_scenes(sigma), *noisy_scenes(sigma)):
        noise = reference.noise_of(scene.frames, sigma, scene.variance)
        found = [
            reference.detect(frame, sigma, noise, score, scene.variance).places.astype(float)
            for frame in scene.frames
        ]
        reached[scene.name] = tuple(f1(found, scene.truth, radius) for radius in (1, 3))
    assert reached.keys() == WANTED.keys()
    below = {
        name: numbers
        for name, numbers in reached.items()
        if (np.array(numbers) < WANTED[name]).any()
    }
    assert below == {}


@pytest.mark.parametrize("sigma", [1.0, 1.3, 2.0])
def test_noise_has_as_many_false_spots_as_expected(sigma):
    rng = np.random.default_rng(21)
    known = reference.Noise(0.0, 25.0, 25.0)
    scores = np.concatenate(
        [
            reference.detect(rng.normal(100, 5, (1024, 1024)), sigma, known, 3.5).score
            for _ in range(3)
        ]
    )
    for expected in (10, 30, 100, 300):
        found = np.sum(scores > reference.least_score(expected, sigma)) / (3 * 1.048576)
        chance = 3 * np.sqrt(expected / 3)
        assert expected / 1.3 - chance < found < 1.3 * expected + chance


def test_backgrounds_without_spots_have_few():
    score = reference.least_score(10, 1.3)
    most = {"nuclei": 250, "sCMOS": 250, "cells 200": 60, "cells 2000": 60}
    for scene in noisy_scenes(1.3, 512, 1, spots=0):
        noise = reference.noise_of(scene.frames, 1.3, scene.variance)
        found = reference.detect(scene.frames[0], 1.3, noise, score, scene.variance)
        assert len(found.places) <= most.get(scene.name, 30) * 0.262, scene.name
