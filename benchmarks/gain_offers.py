"""Which gains images suggest, over the camera's, where its pixels have faults that nobody names.

Movies of four frames of 256×256 pixels, flat and graded, with spots and without, with a fault of
each kind. Off is what differs by more than 15 %. Flat images without spots have nothing to tell a
gain from, and those with few spots little.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np

import napari_spotfit as spotfit

sys.path.append(str(Path(__file__).parents[1] / "tests" / "helpers"))
from noisy_scenes import Array
from scenes import light, scattered

_SHAPE, _FRAMES, _MOST_OFF = (256, 256), 4, 0.15
_GAINS = (0.3, 1.0, 2.2)


def _clusters(density: float, low: float, high: float, size: int) -> Callable[..., Array]:
    """Return what adds hot pixels, some side by side, in photons: the same in each frame."""

    def add(rng: np.random.Generator) -> Array:
        hot = np.zeros(_SHAPE)
        for _ in range(round(density * hot.size)):
            y, x = rng.integers(0, np.array(_SHAPE) - 3)
            height = np.exp(rng.uniform(np.log(low), np.log(high)))
            for _ in range(size):
                hot[y, x] += height * rng.uniform(0.4, 1)
                y, x = (y + 1, x) if rng.random() < 0.5 else (y, x + 1)
        return hot

    return add


def _rays(counts: Array, rng: np.random.Generator) -> None:
    for frame in counts:
        for _ in range(10):
            (y, x), turn = rng.uniform(0, 255, 2), rng.uniform(0, 2 * np.pi)
            along = np.arange(rng.integers(1, 12))
            i = np.clip(np.stack([y + along * np.sin(turn), x + along * np.cos(turn)]), 0, 255)
            frame[tuple(i.astype(int))] += np.exp(rng.uniform(np.log(100), np.log(20000)))


def _dead_columns(counts: Array, rng: np.random.Generator) -> None:
    counts[:, :, [85, 133]] = 0


def _bright_columns(counts: Array, rng: np.random.Generator) -> None:
    counts[:, :, 85] = 4000
    counts[:, :128, 133] += 300


def _dead_pixels(counts: Array, rng: np.random.Generator) -> None:
    counts[:, rng.random(_SHAPE) < 5e-4] = 0


def _saturated_pairs(counts: Array, rng: np.random.Generator) -> None:
    pixels = rng.random(_SHAPE) < 1e-4
    counts[:, pixels | np.roll(pixels, 1, 1)] = 65535


#: What is in the light of every frame, or else what is done to the counts.
FAULTS: dict[str, tuple[Callable[..., Array] | None, Callable[..., None] | None]] = {
    "none": (None, None),
    "hot pixels": (_clusters(5e-4, 30, 2000, 1), None),
    "many hot pixels": (_clusters(3e-3, 30, 20000, 1), None),
    "warm pixels": (_clusters(2e-3, 10, 60, 1), None),
    "pairs of hot pixels": (_clusters(2e-4, 30, 5000, 2), None),
    "hot pixels by three": (_clusters(2e-4, 30, 5000, 3), None),
    "many by three": (_clusters(1e-3, 30, 5000, 3), None),
    "cosmic rays": (None, _rays),
    "dead columns": (None, _dead_columns),
    "bright columns": (None, _bright_columns),
    "dead pixels": (None, _dead_pixels),
    "saturated pairs": (None, _saturated_pairs),
}  # fmt: skip


def offers(fault: str) -> list[float | None]:
    """Return what the movies with a fault suggest, over what is true; None where they do not."""
    static, change = FAULTS[fault]
    found = []
    for level in (np.full(_SHAPE, 10.0), np.full(_SHAPE, 100.0), np.linspace(5, 100, 256)):
        for spots in (0, 40):
            rng = np.random.default_rng([round(np.sum(level)), spots, *fault.encode()])
            hot = np.zeros(_SHAPE) if static is None else static(rng)
            places = [scattered(rng, _SHAPE, spots) for _ in range(_FRAMES)]
            image = [level + hot + light(own, 1000, 1.3, _SHAPE) for own in places]
            electrons = rng.poisson(image)
            for gain in _GAINS:
                counts = gain * electrons + 100.0
                if change is not None:
                    change(counts, rng)
                own = spotfit.noise_model(counts.astype(np.float32)).gain
                found.append(None if own is None else own / gain)
    return found


def main() -> None:
    print(f"{'':>22}{'movies':>8}{'offered':>9}{'off':>5}   least  most")
    total = [0, 0, 0]
    for fault in FAULTS:
        found = offers(fault)
        told = [gain for gain in found if gain is not None]
        own = [len(found), len(told), sum(abs(gain - 1) > _MOST_OFF for gain in told)]
        total = [a + b for a, b in zip(total, own, strict=True)]
        ends = f"{min(told):8.2f}{max(told):6.2f}" if told else ""
        print(f"{fault:>22}{own[0]:>8}{own[1]:>9}{own[2]:>5}{ends}", flush=True)
    print(f"{'all':>22}{total[0]:>8}{total[1]:>9}{total[2]:>5}")


if __name__ == "__main__":
    main()
