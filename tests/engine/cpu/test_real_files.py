"""Detection in real files."""

from __future__ import annotations

import numpy as np
from scenes import estimated, places
from scipy.optimize import curve_fit
from scipy.spatial import cKDTree

from napari_spotfit.engine.cpu.backend import detect
from napari_spotfit.settings.settings import Settings


def detected(frames, false_spots=1.0):
    return detect(frames, estimated(frames, Settings(false_spots=false_spots)))


def gaussian_fit(frame, y, x, half=4):
    """Fit a round Gaussian with SciPy, as a simple reference."""
    y, x = (
        int(np.clip(y, half, frame.shape[0] - 1 - half)),
        int(np.clip(x, half, frame.shape[1] - 1 - half)),
    )
    roi = frame[y - half : y + half + 1, x - half : x + half + 1].astype(float)
    grid = np.mgrid[: 2 * half + 1, : 2 * half + 1].reshape(2, -1)

    def model(grid, v, u, sigma, height, base):
        return base + height * np.exp(-((grid[0] - v) ** 2 + (grid[1] - u) ** 2) / (2 * sigma**2))

    start = (half, half, 1.3, roi.max() - roi.min(), roi.min())
    fitted, _ = curve_fit(model, grid, roi.ravel(), start, maxfev=2000)
    return y - half + fitted[0], x - half + fitted[1]


def test_simulated_storm_file(dax):
    movie, truth = dax
    found = detected(movie.astype(np.uint16))
    isolated = hit = false = 0
    distances = []
    for frame in range(len(movie)):
        emitters = truth.loc[truth["frame"] == frame, ["y", "x"]].to_numpy()
        here = places(found)[found.frame == frame]
        tree = cKDTree(emitters)
        alone = tree.query(emitters, 2)[0][:, 1] >= 13.5
        distance, nearest = cKDTree(here).query(emitters[alone])
        isolated, hit = isolated + alone.sum(), hit + (distance <= 2).sum()
        false += (tree.query(here)[0] > 2).sum()
        for emitter, spot in zip(emitters[alone][:4], here[nearest][:4], strict=True):
            distances.append(np.hypot(*(gaussian_fit(movie[frame], *spot) - emitter)))
    assert isolated > 200
    assert hit / isolated >= 0.97
    assert false / len(found.y) <= 0.02
    assert np.median(distances) < 0.1


def test_dna_paint_file(paint):
    movie, localisations = paint
    found = detected(movie.astype(np.uint16))
    near, distances = 0, []
    used = np.zeros(len(found.y), bool)
    for i, spot in enumerate(localisations):
        here = np.flatnonzero(found.frame == spot["frame"])
        offset = np.hypot(found.y[here] - spot["y"], found.x[here] - spot["x"])
        used[here[offset < 1.5]] = True
        near += offset.size > 0 and offset.min() < 1
        if i % 10 == 0:
            best = here[offset.argmin()]
            fitted = gaussian_fit(movie[spot["frame"]], found.y[best], found.x[best], half=3)
            distances.append(np.hypot(fitted[0] - spot["y"], fitted[1] - spot["x"]))
    assert near / len(localisations) >= 0.97
    assert np.median(distances) < 0.1
    assert np.mean(np.array(distances) < 0.3) >= 0.97
    # The others are dim blinks of the same nine origami.
    assert (~used).sum() < 0.1 * len(localisations)
    sites = np.array([(y, x) for y in (6, 16, 26) for x in (6, 16, 26)]) - 0.5
    assert (cKDTree(sites).query(places(found)[~used])[0] < 3).mean() > 0.97


def test_hybiss_file(hybiss):
    # Unlike noise, the tissue has a texture.
    found = detected(hybiss[None].astype(np.uint16), 0.001)
    assert 200 <= len(found.y) <= 350
    # Spots that stand out to the eye, away from the out-of-focus light
    for spot in ((37, 190), (21, 251), (76, 190), (92, 170), (150, 157), (442, 124)):
        assert cKDTree(places(found)).query(spot)[0] <= 1.5
    # The brightest blob is one spot, not one per noise peak.
    assert (np.hypot(found.y - 392, found.x - 64) < 5).sum() == 1


def test_stuck_particles_file(stuck_particles):
    found = detected(stuck_particles.astype(np.uint16))
    counts = np.bincount(found.frame, minlength=5)
    assert counts.min() >= 42
    assert counts.max() <= 48
    # They do not move: each frame shows those of the first.
    first = places(found)[found.frame == 0]
    for frame in range(1, 5):
        here = places(found)[found.frame == frame]
        assert np.mean(cKDTree(first).query(here)[0] < 3) > 0.9
