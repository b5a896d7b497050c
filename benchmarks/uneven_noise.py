"""Images that no one noise model fits, and whether it is told; how often it is told of others."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np

import napari_spotfit as spotfit
from napari_spotfit.settings.noise_model import UNLIKE

sys.path.append(str(Path(__file__).parents[1] / "tests" / "helpers"))
from noisy_scenes import flat_scenes, noisy_scenes
from padding import images
from scenes import light, scattered

SHAPE, SPOTS, PHOTONS, SIGMA, OFFSET = (256, 256), 100, 2000, 1.3, 100.0

Frames = np.ndarray


def taken(rng: np.random.Generator, electrons: Frames, gain: float) -> Frames:
    """Return what a camera with some read-out noise counts."""
    counts = gain * (rng.poisson(electrons) + rng.normal(0, 1.5, electrons.shape)) + OFFSET
    return np.rint(np.clip(counts, 0, 65535)).astype(np.uint16)


def uneven(rng: np.random.Generator) -> Iterator[tuple[str, Frames, Frames | None]]:
    """Yield images that no one model fits, and, if there is one, the same of one camera."""
    lights = np.stack(
        [light(scattered(rng, SHAPE, SPOTS), PHOTONS, SIGMA, SHAPE) for _ in range(12)]
    )
    for first, second in (
        ((1.0, 5), (10.0, 1000)), ((0.5, 10), (8.0, 300)), ((1.0, 10), (8.0, 300)),
        ((0.5, 10), (4.0, 10)), ((2.2, 10), (4.4, 10)),
    ):  # fmt: skip
        own = [taken(rng, lights + background, gain) for gain, background in (first, second)]
        name = f"channels of gain {first[0]:g} and {second[0]:g}"
        yield f"{name}, background {first[1]} and {second[1]}", np.stack(own, 1), own[0]
    raw = taken(rng, lights + 20, 2.2)
    second_half = np.where(np.arange(12) < 6, 1.0, 4.0)[:, np.newaxis, np.newaxis]
    yield "four times the gain in the second half", (raw - OFFSET) * second_half + OFFSET, raw
    for times in (3, 10):
        lamp = times ** -np.linspace(0, 1, 12)[:, np.newaxis, np.newaxis]
        faded = taken(rng, (lights + 60) * lamp, 2.2)
        yield f"bleached to 1/{times}, and scaled up again", (faded - OFFSET) / lamp, faded


def told(frames: Frames) -> str:
    """Return how uneven the noise is, and which gain is suggested."""
    noise = spotfit.noise_model(frames)
    gain = "none" if noise.gain is None else f"{noise.gain:.3g}"
    return f"{noise.uneven:6.1f} {'told' if noise.is_uneven else '':5} gain {gain:5}"


def others() -> Iterator[tuple[str, Frames]]:
    """Yield images of one camera each, of every kind."""
    for sigma in (0.7, 1.0, 1.3, 2.0):
        for seed in range(3):
            for scene in flat_scenes(sigma, seed=911 + seed):
                yield scene.name, np.stack(scene.frames)
        for scene in noisy_scenes(sigma, 384, 3, 150):
            yield scene.name, np.stack(scene.frames)
    yield from images(np.random.default_rng(1))


def main() -> None:
    for name, frames, one in uneven(np.random.default_rng(1)):
        alone = "" if one is None else f"   as one camera took it: {told(one)}"
        print(f"{name:55} {told(frames)}{alone}", flush=True)
    found = [(name, spotfit.noise_model(frames).uneven) for name, frames in others()]
    wrong = [name for name, value in found if value > UNLIKE]
    print(f"told of {len(wrong)} of {len(found)} images of one camera {wrong or ''}; the most "
          f"uneven one {max(value for _, value in found):.2f}")  # fmt: skip


if __name__ == "__main__":
    main()
