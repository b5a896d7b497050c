"""Frames processed in blocks of rows with halos give the results of the whole frame, to the bit."""

from __future__ import annotations

import warnings
from functools import partial

import hypothesis
import numpy as np
import pytest
from detection_cases import textured
from hypothesis import given
from hypothesis import strategies as st
from same_fits import assert_same

from napari_spotfit import (
    Camera,
    NoiseModel,
    Settings,
    detect_spots,
    localize,
    localize_iter,
    simulate_movie,
)
from napari_spotfit.engine.backend import BackendFallbackWarning
from napari_spotfit.engine.candidates import merge_plateaus
from napari_spotfit.engine.cpu.backend import detect
from napari_spotfit.engine.detection_settings import MAXIMUM
from napari_spotfit.engine.fallback import Fallback
from napari_spotfit.engine.select import select_backend
from napari_spotfit.estimation import image_noise as noise
from napari_spotfit.images import frames as frames_module
from napari_spotfit.images.arrays import native_type
from napari_spotfit.images.pixel_calibration import detection_calibration
from napari_spotfit.images.reading import row_tiles
from napari_spotfit.localization import plan
from napari_spotfit.localization.chunks import ChunkCache

#: A shape that is processed in several blocks.
SHAPE = (2300, 300)
#: Rows of a tile: less than what a spot depends on, a strip's and others.
ROWS = (60, 1040, 1500)


@pytest.fixture(scope="module")
def movie():
    return simulate_movie(2, SHAPE, spots_per_frame=2500, photons=1500, background=300, seed=3)[0]


@pytest.fixture(scope="module")
def saturated(movie):
    """Discs at the converter's limit, below that of the type, also across borders of blocks."""
    random, light = np.random.default_rng(0), movie.astype(int)
    y, x = np.indices(SHAPE)
    for place in random.uniform((20, 10), (SHAPE[0] - 20, SHAPE[1] - 10), (12, 2)):
        radius = random.integers(3, 14)
        distance = np.hypot(y - place[0], x - place[1])
        light[0] += (5000 * np.exp(-((distance / radius) ** 2) / 2)).astype(int)
    light[0, 1030:1055, 40:60] += 4000
    return np.minimum(light, 1500).astype(np.uint16)


def maps():
    random = np.random.default_rng(1)
    return {
        "mask": random.random(SHAPE) < 0.7,
        "masks": random.random((2, *SHAPE)) < 0.7,
        "bad": random.random(SHAPE) < 0.002,
        "bads": random.random((2, *SHAPE)) < 0.002,
        "camera": Camera(
            offset=random.normal(100, 2, SHAPE), gain=random.normal(2, 0.1, SHAPE),
            variance=random.gamma(2, 2, SHAPE),
        ),
    }  # fmt: skip


MAPS = maps()
#: How the pixels become others, and what is asked for: what belongs to the image, and the settings.
CASES = {
    "plain": (None, {}, {}),
    "float32": (lambda a: a.astype(np.float32) * np.float32(1.37), {}, {}),
    "float64": (lambda a: a * 1.37 + 1e5, {}, {}),
    "uint8": (lambda a: np.clip(a // 8, 0, 255).astype(np.uint8), {}, {}),
    "NaN": (lambda a: np.where(MAPS["bads"], np.nan, a).astype(np.float32), {}, {}),
    "mask": (None, {"mask": MAPS["mask"]}, {}),
    "masks": (None, {"mask": MAPS["masks"]}, {}),
    "bad": (None, {"bad_pixels": MAPS["bad"]}, {}),
    "bads": (None, {"bad_pixels": MAPS["bads"]}, {}),
    "camera": (None, {"camera": MAPS["camera"]}, {}),
    "mle": (None, {"camera": MAPS["camera"], "bad_pixels": MAPS["bad"]}, {"estimator": "mle"}),
    "chains": (None, {}, {"min_distance": 9.0}),
    # All maxima of noise would be one crowd, larger than any halo.
    "all": (None, {}, {"threshold": 5.0, "min_distance": 3.5, "neighbours": "exclude"}),
    "roi": (None, {}, {"roi_size": (21, 13)}),
}


def in_tiles(monkeypatch, image, rows, settings, **maps):
    pixel = native_type(np.dtype(image.dtype)).itemsize
    monkeypatch.setattr(frames_module, "LARGE_FRAME", 0)
    monkeypatch.setattr(frames_module, "TILE", rows * image.shape[-1] * pixel)
    fits = localize(image, settings=settings, **maps)
    places = detect_spots(image, settings=settings, mask=maps.get("mask"))
    monkeypatch.undo()
    return fits, places


def known_of(fits, maps):
    """Return settings without estimates; the camera gives its own values."""
    settings = fits.settings
    if "camera" in maps:
        settings = settings.changed(offset=0.0, gain=None, variance=None)
    return settings


BACKENDS = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]


@pytest.fixture
def kind(request, monkeypatch):
    """The backend that settings choose."""
    if request.param == "cuda":
        request.getfixturevalue("gpu")
    return request.param


@pytest.mark.parametrize("kind", BACKENDS, indirect=True)
@pytest.mark.parametrize("case", CASES)
def test_the_rows_are_those_of_the_whole_frame(case, kind, movie, saturated, monkeypatch):
    change, maps, options = CASES[case]
    image = movie if case in ("chains", "all", "float64") else saturated
    image = image if change is None else change(image)
    named = "cuda" if kind == "cuda" else "cpu"
    whole = localize(image, sigma=1.3, backend=named, **maps, **options)
    assert len(whole) > 1000
    settings = known_of(whole, maps)
    plain = {name: value for name, value in maps.items() if name == "mask"}
    places = detect_spots(image, settings=settings, **plain)
    for rows in ROWS:
        fits, found = in_tiles(monkeypatch, image, rows, settings, **maps)
        assert_same(fits, whole)
        assert np.array_equal(found, places)


@pytest.mark.parametrize("sigma", [1.3, 4.0])
def test_texture_is_left_out_as_in_the_whole_frame(sigma, monkeypatch):
    image = textured(np.random.default_rng(8), SHAPE, 1.9 * sigma)
    settings = Settings(sigma=sigma, noise=NoiseModel(1.0, -100.0, 4.0), backend="cpu")
    whole = detect_spots(image, settings=settings)
    assert 10 < len(whole) < 0.5 * len(detect(image[np.newaxis], settings, texture=True).y)
    for rows in ROWS:
        np.testing.assert_array_equal(in_tiles(monkeypatch, image, rows, settings)[1], whole)


@pytest.mark.gpu
@pytest.mark.parametrize("task", ["detect", "fit"])
def test_where_a_gpu_fails_the_cpu_does_the_rest(task, movie, monkeypatch):
    pytest.importorskip("cupy")  # whose errors it raises
    from failing_gpu import FailingGpu, errors

    whole = localize(movie, sigma=1.3, backend="cpu")
    failing = FailingGpu(errors()["lost"], 2, task)
    backend = Fallback(failing, partial(select_backend, Settings(backend="cpu")))
    monkeypatch.setattr(plan, "select_backend", lambda *given: backend)
    monkeypatch.setattr(frames_module, "LARGE_FRAME", 0)
    monkeypatch.setattr(frames_module, "TILE", 500 * SHAPE[1] * 2)
    with pytest.warns(BackendFallbackWarning):
        fits = localize(movie, settings=whole.settings)
    assert_same(fits, whole)
    assert backend.ran_on().startswith("NVIDIA Test, CPU")


@pytest.mark.parametrize("rows", [60, 90, 500])
def test_the_middle_of_a_flat_area_may_be_in_another_block(rows, monkeypatch):
    """All of its maxima may be at its lower end, and the area as high as tiles are."""
    y, x = np.indices(SHAPE)
    light = np.random.default_rng(2).poisson(300, SHAPE).astype(float)
    for top in range(50, 2100, 207):
        # It begins slowly, without an edge, and ends at once.
        inside = (y > top - 60) & (y < top + 45 + 3 * np.sin(x / 5))
        light[inside] += 15 * (y - top + 60)[inside]
    image = np.minimum(light, 1200).astype(np.uint16)
    whole = localize(image, sigma=1.3, backend="cpu")
    fits, _ = in_tiles(monkeypatch, image, rows, whole.settings)
    assert_same(fits, whole)


def test_the_middle_of_an_area_is_the_same_pixel_in_a_part_of_the_frame():
    """Many have two that are as near to the middle."""
    image = (np.random.default_rng(3).random((1, 3000, 200)) < 0.4).astype(np.uint8)
    rows = slice(1000, 2000)
    y, x = np.nonzero(image[0, 1200:1800])
    maxima = np.zeros(len(y), MAXIMUM)
    maxima["y"], maxima["x"], maxima["on_flat_area"] = y + 1200, x, 1
    whole = merge_plateaus(maxima.copy(), image)
    maxima["y"] -= rows.start
    part = merge_plateaus(maxima, np.ascontiguousarray(image[:, rows]), level=0.0)
    part["y"] += rows.start
    assert len(whole) > 5000
    np.testing.assert_array_equal(part, whole)


def test_no_spots_are_on_what_a_frame_is_padded_with(monkeypatch):
    """Where what is there is darker than the padding, its corners stand out."""
    y, x = np.indices((1600, 300))
    light = np.random.default_rng(3).poisson(100, y.shape)
    padding = np.maximum(np.sin(x / 7), np.sin(y / 8 + x / 90)) > -0.5
    image = np.where(padding, 200, light).astype(np.uint16)
    assert np.median(image) == 200
    whole = localize(image, sigma=1.3, false_spots=1000, backend="cpu")
    assert len(whole) > 0
    places = detect_spots(image, settings=whole.settings)
    assert not padding[tuple(places[:, -2:].astype(int).T)].any()
    for rows in (30, 90, 250):
        assert_same(in_tiles(monkeypatch, image, rows, whole.settings)[0], whole)
    # Small areas are spots that are saturated at the level of a bright frame, perhaps.
    small = image[:60, :60]
    assert padding[tuple(detect_spots(small, settings=whole.settings)[:, -2:].astype(int).T)].any()


def random_scene(random):
    """Return pixels with spots, clouds, flat tops, borders, padding, and settings for them."""
    height, width = random.integers((1100, 260), (1800, 400))
    y, x = np.indices((height, width))
    background = random.choice([0.3, 3, 30, 300])
    light = np.full((height, width), background)
    for size, count, heights in ((1.3, height * width // 500, (2, 30)), (30, 3, (5, 50))):
        for cy, cx in random.uniform(0, (height, width), (count, 2)):
            near = tuple(slice(max(int(c - 4 * size), 0), int(c + 4 * size)) for c in (cy, cx))
            distance = np.hypot(y[near] - cy, x[near] - cx) / size
            peak = random.uniform(*heights) * np.sqrt(background + 1)
            light[near] += peak * np.exp(-(distance**2) / 2)
    pixels = random.poisson(light).astype(float)
    if random.random() < 0.6:
        pixels = np.minimum(pixels, np.quantile(pixels, random.choice([0.9, 0.99, 0.999])))
    if random.random() < 0.3:
        pixels[:, : width // 3] = 0
    if random.random() < 0.3:  # so much that it is the frame's level
        a, b, shift = random.uniform((3, 3, 0), (60, 60, 6))
        share = random.choice([0.02, 0.5, 0.98])
        padding = np.sin(y / a + x / b) * np.sin(x / a + shift) > -0.3
        if share > 0.5:  # what is bright has spots in its middle: none may be larger than a halo
            padding = np.sin(y / a) * np.sin(x / a + shift) > 0.5
        pixels[padding] = np.quantile(pixels, share)
    dtype = random.choice(["u1", "u2", "i2", "f4", "f8"])
    # A background at the type's end would be one area larger than any halo.
    pixels *= min((255 if dtype == "u1" else 30000) / max(pixels.max(), 1), 1)
    pixels = pixels.astype(dtype)
    options = {"false_spots": random.choice([1.0, 1000.0])}
    if random.random() < 0.4:
        # Farther apart, and all maxima of noise would be one chain, larger than any halo.
        options = {"threshold": float(random.uniform(0, 3)), "min_distance": random.uniform(1, 3.5)}
    # So would they as a crowd that is fitted together.
    options |= {"sigma": random.choice([0.7, 1.3, 2.5]), "neighbours": "exclude"}
    return pixels, Settings(backend="cpu", **options)


@given(st.integers(0, 1 << 32), st.integers(5, 600))
@hypothesis.settings(max_examples=40, deadline=None)
def test_whatever_there_is_the_rows_are_those_of_the_whole_frame(seed, rows):
    image, settings = random_scene(np.random.default_rng(seed))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of images that do not show their noise
        whole = localize(image, settings=settings)
        with pytest.MonkeyPatch.context() as changed:
            fits, _ = in_tiles(changed, image, rows, whole.settings)
    assert_same(fits, whole)


def test_the_highest_pixels_may_be_in_the_last_tile(movie, monkeypatch):
    """Flat tops in the first tile are not the frame's: they are no saturated ones."""
    image = np.minimum(movie, 420)
    whole = localize(image, sigma=1.3, backend="cpu")
    image[:, 2290, 70] = 421
    other = localize(image, settings=whole.settings)
    assert (whole.flags[: len(other)] != other.flags[: len(whole)]).any()
    assert_same(in_tiles(monkeypatch, image, 500, whole.settings)[0], other)


def test_every_chunk_of_a_tiled_frame_is_read_once(movie, monkeypatch):
    da = pytest.importorskip("dask.array")
    reads = []

    def load(block, block_info=None):
        reads.append(tuple(block_info[0]["chunk-location"]))
        return block

    whole = localize(movie, sigma=1.3, backend="cpu")
    lazy = da.from_array(movie, chunks=(1, 100, 70)).map_blocks(
        load, dtype=movie.dtype, meta=movie[:0]
    )
    reads.clear()
    fits, _ = in_tiles(monkeypatch, lazy, 250, whole.settings)
    assert_same(fits, whole)
    # Once by each of two runs, with those first that tell the level.
    places = [(n, y, x) for n in range(2) for y in range(23) for x in range(5)]
    assert sorted(reads) == sorted(2 * places)


@pytest.mark.parametrize("shape", [(50, 70), (9, 50, 70)])
def test_chunks_that_tell_the_level_are_kept_until_their_rows_come(shape, monkeypatch):
    da = pytest.importorskip("dask.array")
    image = np.random.default_rng(0).integers(0, 9000, shape, dtype=np.uint16)
    for chunks in ((7, 70), (11, 13), (50, 20), (1, 50)):
        chunks = (*(3 for _ in shape[2:]), *chunks)
        reads = []

        def load(block, block_info=None, reads=reads):
            reads.append(block_info[0]["chunk-location"])
            return block

        lazy = da.from_array(image, chunks=chunks).map_blocks(load, meta=image[:0])
        reader = frames_module.FrameReader(lazy, spatial=len(shape))
        kept = ChunkCache(reader, 0, 2)
        places = np.column_stack(np.unravel_index(np.arange(5, image.size, 487), shape))
        reads.clear()
        points = kept.points(places)
        assert {point.shape for point in points} == {(1,) * (1 + len(shape))}
        assert np.array_equal(np.concatenate(points).ravel(), image[tuple(places.T)])
        monkeypatch.setattr(frames_module, "TILE", 15 * 140)
        rows = np.empty_like(image)
        for first, last in reader.tiles():
            kept.read_rows(rows[first:last], first)
        assert np.array_equal(rows, image)
        assert len(reads) == len(set(reads)) or len(reader.chunk_edges()[0]) == 2


@pytest.mark.parametrize("name", ["m.npy", "m.tif", "m.zarr", "packed.tif"])
def test_files_are_read_in_tiles(name, movie, monkeypatch, tmp_path):
    path = tmp_path / name
    if name.endswith("npy"):
        np.save(path, movie)
    elif name.endswith("zarr"):
        zarr = pytest.importorskip("zarr")
        zarr.create_array(path, data=movie, chunks=(1, 300, 140))
    else:
        tifffile = pytest.importorskip("tifffile")
        tifffile.imwrite(path, movie, compression="zlib" if "packed" in name else None)
    settings = localize(movie, sigma=1.3, backend="cpu").settings
    fits, _ = in_tiles(monkeypatch, frames_module.opened(path), 700, settings)
    assert_same(fits, localize(movie, settings=settings))


def test_parts_come_row_by_row(movie, monkeypatch):
    settings = localize(movie, sigma=1.3, backend="cpu").settings
    monkeypatch.setattr(frames_module, "LARGE_FRAME", 0)
    monkeypatch.setattr(frames_module, "TILE", 1000 * 2 * SHAPE[1])
    progress = []
    parts = list(
        localize_iter(movie, settings=settings, progress=lambda *numbers: progress.append(numbers))
    )
    assert len(parts) >= 4
    assert progress[-1] == (2, 2)
    places = np.concatenate([part.points() for part in parts])
    assert (np.diff(places[:, 0]) >= 0).all()
    assert len(parts[0]) < len(parts[0].concatenate(parts)) / 2


def test_large_frames_tell_their_noise_by_squares(monkeypatch):
    da = pytest.importorskip("dask.array")
    light = np.random.default_rng(0).poisson(np.linspace(100, 1000, 1200), (1200, 1200))
    image, reads = light.astype(np.uint16), []

    def load(block, block_info=None):
        reads.append(block_info[0]["chunk-location"])
        return block

    lazy = da.from_array(image, chunks=(80, 80)).map_blocks(load, dtype="u2", meta=image[:0])
    monkeypatch.setattr(noise, "_LARGE", 0)
    monkeypatch.setattr(noise, "_SIDE", 256)
    monkeypatch.setattr(frames_module, "LARGE_FRAME", 0)
    reads.clear()
    known = detection_calibration(image.shape, Settings(sigma=1.3), None, None)
    noise_found = noise.measured_noise(frames_module.FrameReader(lazy), known)
    assert noise_found.gain == pytest.approx(1, abs=0.05)
    assert noise_found == noise.measured_noise(frames_module.FrameReader(image), known)
    assert 9 * 9 < len(set(reads)) < 15 * 15  # and not all of the image


def test_tiles_have_whole_chunks():
    assert row_tiles(30_000, 2048, 2236)[:2] == [(0, 2048), (2048, 4096)]
    assert row_tiles(30_000, 2048, 2236)[-1] == (28_672, 30_000)
    assert row_tiles(100, 1, 30) == [(0, 30), (30, 60), (60, 90), (90, 100)]
    assert row_tiles(100, (100,), 30) == [(0, 100)]
