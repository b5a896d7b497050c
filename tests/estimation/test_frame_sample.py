"""Noise and width are estimated from lit frames, whatever the period of the light."""

from __future__ import annotations

import numpy as np
import pytest
from scenes import light

from napari_spotfit import localize
from napari_spotfit.estimation.frame_sample import frames_of_each_kind, golden_steps
from napari_spotfit.images.frames import FrameReader

SHAPE, SPOTS, FRAMES = (128, 128), 12, 100


def strobed(period, phase, dark, background=50.0):
    """Return a movie, and which frames are lit; spots of all lit frames lie alike."""
    rng = np.random.default_rng(2)
    spots = light(rng.uniform(8, 120, (SPOTS, 2)), 2000, 1.3, SHAPE) + background
    lit = np.arange(FRAMES) % period == phase
    photons = np.where(lit[:, np.newaxis, np.newaxis], spots, dark)
    movie = rng.poisson(photons) + rng.normal(100, 2, photons.shape)
    return movie.round().astype(np.uint16), lit


@pytest.mark.parametrize("dark", [0.0, 5.0, 1000.0])
@pytest.mark.parametrize(("period", "phase"), [(2, 0), (2, 1), (5, 3), (25, 7), (25, 0)])
def test_strobed_light(period, phase, dark):
    """Noise and σ were those of dark frames: 25,720 good fits for 2000."""
    movie, lit = strobed(period, phase, dark)
    for options in ({"sigma": 1.3}, {}):
        fits = localize(movie, backend="cpu", **options)
        assert fits.settings.sigma == pytest.approx(1.32, rel=0.05)
        frame = fits.points()[fits.good, 0].astype(int)
        in_lit = int(lit[frame].sum())
        assert in_lit == pytest.approx(SPOTS * lit.sum(), rel=0.1)
        # 30 per 10⁶ pixels, and chance.
        most = 30e-6 * np.sum(~lit) * SHAPE[0] * SHAPE[1]
        assert len(frame) - in_lit <= most + 3 * np.sqrt(most)


def test_a_part_of_a_strobed_movie():
    movie, _ = strobed(2, 0, 0.0)
    fits = localize(movie, sigma=1.3, frames=slice(0, 10))
    assert fits.good.sum() == pytest.approx(SPOTS * 5, rel=0.1)


@pytest.mark.parametrize("period", [2, 3, 10, 40])
def test_frames_of_both_kinds_are_looked_at(period):
    movie, lit = strobed(period, period - 1, 0.0)
    for count in (1, 4, 16):
        numbers = frames_of_each_kind(FrameReader(movie), np.arange(FRAMES), count)
        assert np.all(np.diff(numbers) > 0)
        assert 0 < lit[numbers].sum() < len(numbers) <= max(count, 2)


def test_frames_of_one_kind_are_spread():
    rng = np.random.default_rng(1)
    movie = rng.poisson(20.0, (200, 32, 32)).astype(np.uint16)
    bleached = rng.poisson(np.linspace(90, 20, 200)[:, None, None], (200, 32, 32))
    for image in (movie, bleached.astype(np.uint16)):
        numbers = frames_of_each_kind(FrameReader(image), np.arange(200), 8)
        assert len(numbers) == 8
        assert np.diff([0, *numbers, 200]).max() < 75


@pytest.mark.parametrize("size", [1, 2, 7, 100, 1000])
def test_golden_steps_are_different(size):
    for count in (1, 2, 5, size // 2, size, 2 * size):
        numbers = golden_steps(count, size)
        assert len(numbers) == len(set(numbers.tolist())) == min(count, size)
        assert all(0 <= number < size for number in numbers)
        if 8 <= count < size:  # no period goes along with them
            assert all(len(set((numbers % period).tolist())) > 1 for period in range(2, 10))


def test_copies_of_a_frame_count_once():
    frame = np.random.default_rng(1).poisson(50, (64, 64))
    other = np.random.default_rng(2).poisson(50, (64, 64))
    movie = np.stack([frame, frame, other, frame, other])
    assert frames_of_each_kind(FrameReader(movie), np.arange(5), 5).tolist() == [0, 2]
    dark = np.zeros((4, 64, 64))
    assert len(frames_of_each_kind(FrameReader(dark), np.arange(4), 4)) == 4
