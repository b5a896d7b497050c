"""Movies with an unreadable frame: frames before it are fitted and kept."""

from __future__ import annotations

import copy
import warnings

import numpy as np
import pytest
import tifffile
from same_fits import assert_same

from napari_spotfit import (
    SpotFits,
    localize,
    localize_iter,
    localize_to_folder,
    open_image,
    simulate_movie,
)
from napari_spotfit.engine.backend import Load
from napari_spotfit.images.files.image_file import UnreadableImageError
from napari_spotfit.localization import plan

SHAPE = 40, 44


class Damaged:
    """A chunked movie with one unreadable frame."""

    def __init__(self, movie, damaged, chunks):
        self.shape, self.dtype, self.chunks = movie.shape, movie.dtype, (*chunks, *SHAPE)
        self._movie, self._damaged = movie, damaged

    def __getitem__(self, index):
        where = np.zeros(self.shape[:-2], bool)
        where[index[: len(self.shape) - 2] if isinstance(index, tuple) else index] = True
        if where[self._damaged]:
            raise RuntimeError("the decoder gave up")
        return self._movie[index]


@pytest.fixture(scope="module")
def movie():
    return simulate_movie(90, SHAPE, spots_per_frame=5, photons=3000, seed=4)[0]


@pytest.fixture(scope="module")
def settings(movie):
    return localize(movie, backend="cpu").settings


def until_damage(image, **named):
    parts, done = [], []
    with pytest.raises(RuntimeError, match="the decoder gave up"):
        parts.extend(localize_iter(image, progress=lambda n, _: done.append(n), **named))
    return SpotFits.concatenate(parts), done[-1]


@pytest.mark.parametrize("damaged", [1, 44, 89])
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("large_blocks", [False, True])
def test_all_frames_before_it_are_fitted(
    movie, settings, monkeypatch, damaged, threads, large_blocks
):
    if not large_blocks:  # else one has them all
        monkeypatch.setattr(plan, "select_backend", few_frames_at_once(plan.select_backend))
    fits, done = until_damage(
        Damaged(movie, damaged, (1,)), settings=settings.changed(threads=threads)
    )
    assert done == damaged
    assert_same(fits, localize(movie[:damaged], settings=settings))


def few_frames_at_once(select):
    def selected(*given):
        backend = copy.copy(select(*given))
        backend.load = Load(3, 1, 1)
        return backend

    return selected


def test_where_the_first_cannot_be_read_nothing_comes(movie, settings):
    with pytest.raises(RuntimeError, match="the decoder gave up"):
        next(localize_iter(Damaged(movie, 0, (1,)), settings=settings))


def test_chunks_along_two_axes_give_what_was_fitted(movie, settings):
    """They hold frames that do not follow each other."""
    stack = movie.reshape(9, 10, *SHAPE)
    fits, done = until_damage(Damaged(stack, (4, 7), (3, 5)), settings=settings)
    whole = localize(stack, settings=settings)
    index = whole.axis_0 * 10 + whole.frame
    own = np.isin(index, np.unique(fits.axis_0 * 10 + fits.frame))
    assert_same(fits, whole[own])
    assert done >= 30
    assert set(range(30)) <= set(fits.axis_0 * 10 + fits.frame)


def test_what_is_measured_first_does_not_need_it(movie):
    """σ and noise are estimated from frames all over the movie."""
    for damaged in (2, 45, 80):
        image = Damaged(movie, damaged, (1,))
        chosen = [number for number in range(90) if number != damaged]
        fits = localize(image, frames=chosen)
        assert fits.settings.sigma == pytest.approx(1.3, rel=0.03)
        assert set(fits.frame) == set(chosen)


def test_a_movie_without_a_frame_that_can_be_read_says_why():
    class Unreadable:
        shape, dtype, chunks = (5, *SHAPE), np.dtype(np.uint16), (1, *SHAPE)

        def __getitem__(self, index):
            raise RuntimeError(f"nothing at {index}")

    with pytest.raises(RuntimeError, match="nothing at"):
        localize(Unreadable())


def test_memory_that_is_short_is_no_damage(movie, settings):
    class Large(Damaged):
        def __getitem__(self, index):
            try:
                return super().__getitem__(index)
            except RuntimeError:
                raise MemoryError("too large") from None

    found = []
    with pytest.raises(MemoryError, match="too large"):
        found += localize_iter(Large(movie, 1, (1,)), settings=settings)
    assert found == []


@pytest.mark.parametrize("kept", [1, 3, 40])
def test_a_file_that_was_cut_off_early_keeps_its_frames(movie, kept, tmp_path):
    path = tmp_path / "movie.tif"
    tifffile.imwrite(path, movie, photometric="minisblack")
    with tifffile.TiffFile(path) as file:
        first = file.pages[0].dataoffsets[0]
    path.write_bytes(path.read_bytes()[: first + int((kept + 0.5) * movie[0].nbytes)])
    parts = []
    with pytest.raises(UnreadableImageError, match=f"frame {kept} is damaged or missing"):
        parts.extend(localize_iter(path))
    assert np.array_equal(np.unique(SpotFits.concatenate(parts).frame), np.arange(kept))


WAYS = {
    "a file": lambda path, folder: localize(path),
    "to a folder": localize_to_folder,
    "in memory": lambda path, folder: localize(open_image(path)[:]),
}


@pytest.mark.parametrize("way", WAYS)
def test_chunks_that_were_never_written_are_named(movie, way, tmp_path):
    zarr = pytest.importorskip("zarr")
    path = tmp_path / "movie.zarr"
    there = zarr.create_array(path, shape=movie.shape, chunks=(5, *SHAPE), dtype=movie.dtype)
    there[:20], there[25:80], there[85:] = movie[:20], movie[25:80], movie[85:]
    named = r"10 of 90 frames are 0 in all pixels: 20, 21, .* and 2 more\. .* never written"
    with pytest.warns(UserWarning, match=named) as said:
        WAYS[way](path, tmp_path / "parts")
    assert len(said) == 1


def test_frames_that_are_all_dark_are_no_damage(movie):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        localize(movie[:10], sigma=1.3)
        hidden = movie[:10].copy()
        hidden[4, :20] = 0  # a part of a frame
        localize(hidden, sigma=1.3)
