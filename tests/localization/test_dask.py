"""Fits by Dask on threads and on a cluster of processes are the same to the bit."""

from __future__ import annotations

import logging
import os
import re
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from same_fits import assert_same

from napari_spotfit import (
    Camera,
    Settings,
    SpotFits,
    __version__,
    load_parts,
    localize,
    localize_iter,
    localize_to_folder,
    save_fits,
)
from napari_spotfit.files.parts import parts_in
from napari_spotfit.images.frames import FrameReader
from napari_spotfit.localization import to_folder
from napari_spotfit.localization.to_folder import Part, _for_each

dask = pytest.importorskip("dask")
da = pytest.importorskip("dask.array")
dd = pytest.importorskip("dask.dataframe")
distributed = pytest.importorskip("distributed")
zarr = pytest.importorskip("zarr")
pd = pytest.importorskip("pandas")

pytestmark = pytest.mark.usefixtures("short_parts")

#: Groups of joint fits are numbered in each part of a lazy table by themselves.
SINGLE = {"neighbours": "exclude"}


def as_given(kind: str, movie: np.ndarray, folder: Path) -> Any:
    if kind == "dask":
        return da.from_array(movie, chunks=(5, 40, -1))
    if kind == "npy":
        np.save(folder / "movie.npy", movie)
        return folder / "movie.npy"
    if kind == "zarr":
        return zarr.create_array(folder / "movie.zarr", data=movie, chunks=(3, 64, 72))
    return movie


def assert_same_table(table: Any, fits: SpotFits) -> None:
    expected = fits.to_dataframe()
    pd.testing.assert_frame_equal(table.reset_index(drop=True), expected, check_exact=True)


@pytest.mark.parametrize("kind", ["memory", "dask", "npy", "zarr"])
def test_a_lazy_table_is_the_same(movie: np.ndarray, tmp_path: Path, kind: str) -> None:
    image = as_given(kind, movie, tmp_path)
    lazy = localize(image, lazy=True, **SINGLE)
    fits = localize(movie, **SINGLE)
    assert isinstance(lazy, dd.DataFrame)
    assert lazy.npartitions >= 4
    expected = fits.to_dataframe()
    assert dict(lazy.dtypes) == dict(expected.dtypes)
    for scheduler in ("sync", "threads"):
        assert_same_table(lazy.compute(scheduler=scheduler), fits)
    first = lazy.partitions[1].compute(scheduler="sync")
    assert 0 < len(first) < len(fits) / 3


def test_a_worker_of_another_version_makes_nothing(
    movie: np.ndarray, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = localize(movie, lazy=True)
    tasks = localize_to_folder(movie, tmp_path, lazy=True)
    monkeypatch.setattr(to_folder, "__version__", "99.0")  # as a worker has it
    for asked in (table, tasks[0]):
        with pytest.raises(RuntimeError, match=rf"{re.escape(__version__)} .* 99\.0"):
            asked.compute(scheduler="synchronous")
    assert not list(tmp_path.glob("*.parquet"))


@pytest.mark.filterwarnings("ignore:the image has:UserWarning")  # of no such camera
def test_each_map_goes_with_its_frames(movie: np.ndarray) -> None:
    rng = np.random.default_rng(1)
    shape = movie.shape
    camera = Camera(
        offset=rng.uniform(90, 110, shape[1:]), gain=rng.uniform(1.5, 2.5, shape[1:]),
        variance=rng.uniform(1, 9, shape[1:]),
    )  # fmt: skip
    bad, mask = rng.random(shape) < 0.01, np.repeat(rng.random(shape[:1]) < 0.8, 64 * 72)
    maps = {"bad_pixels": bad, "mask": mask.reshape(shape), "camera": camera, **SINGLE}
    fits = localize(movie, **maps)
    assert_same_table(localize(movie, lazy=True, **maps).compute(scheduler="threads"), fits)
    lazily = {
        name: da.from_array(maps[name], chunks=(7, -1, -1)) for name in ("bad_pixels", "mask")
    }
    chunked = da.from_array(movie, chunks=(5, -1, -1))
    lazy = localize(chunked, lazy=True, camera=camera, **lazily, **SINGLE)
    assert_same_table(lazy.compute(scheduler="threads"), fits)
    weights = rng.uniform(0.5, 2, shape)
    options = {"weights": weights, "estimator": "wlse", "mask": bad[0] < 1, **SINGLE}
    lazy = localize(movie, lazy=True, **options)
    assert_same_table(lazy.compute(scheduler="threads"), localize(movie, **options))


def test_more_axes_some_frames_and_none(movie: np.ndarray) -> None:
    stack = movie.reshape(2, 12, *movie.shape[1:])
    chosen = (slice(None), slice(1, None, 2))
    known = {"sigma": 1.3, **SINGLE}
    fits = localize(stack, frames=chosen, **known)
    for image in (stack, da.from_array(stack, chunks=(1, 3, -1, -1))):
        lazy = localize(image, frames=chosen, lazy=True, **known)
        assert_same_table(lazy.compute(scheduler="sync"), fits)
    wide = da.from_array(stack, chunks=(2, 2, -1, -1))  # frames of a chunk are no neighbours
    lazy = localize(wide, lazy=True, **SINGLE)
    assert_same_table(lazy.compute(scheduler="sync"), localize(stack, **SINGLE))
    lazy = localize(movie[0], lazy=True, **known)
    assert_same_table(lazy.compute(scheduler="sync"), localize(movie[0], **known))
    none = localize(movie, frames=[], lazy=True, **known).compute(scheduler="sync")
    assert len(none) == 0


def test_parts_of_volumes_have_their_own() -> None:
    """Image and mask of a part are read as volumes by the numbers in the whole image."""
    image = np.random.default_rng(2).integers(0, 999, (2, 3, 4, 5, 6), dtype=np.uint16)
    settings = Settings(model="gaussian_3d", sigma=1.3, roi_size=5)
    ranges = [np.array([0, 2]), np.array([4, 5])]
    for given in (image, da.from_array(image, chunks=(1, 2, 2, -1, -1))):
        parts = _for_each(given, ranges, is_image=True, axes=3)
        for numbers, own in zip(ranges, parts, strict=True):
            pixels = own if isinstance(own, np.ndarray) else own.compute()
            part = Part(image.shape, numbers, settings, pixels)
            reader = FrameReader(part._as_image(pixels), spatial=3)
            expected = image.reshape(-1, 4, 5, 6)[numbers]
            np.testing.assert_array_equal(reader.read(numbers), expected)
    shared = _for_each(image[0, 0] > 9, ranges, is_image=False, axes=3)
    assert all(Part(image.shape, ranges[0], settings, image)._as_image(one.compute()).ndim == 3
               for one in shared)  # fmt: skip


def test_nothing_is_left_open(movie: np.ndarray, tmp_path: Path) -> None:
    """What a part gives depends on no other frames, and its task is named by what it does."""
    image = as_given("npy", movie, tmp_path)
    lazy, again = localize(image, lazy=True), localize(image, lazy=True)
    assert lazy.__dask_keys__() == again.__dask_keys__()
    assert localize(image, sigma=1.4, lazy=True).__dask_keys__() != again.__dask_keys__()
    assert localize(image, lazy=True, backend="cuda").npartitions == 1  # with no GPU here
    with pytest.raises(ValueError, match="nothing is done yet"):
        localize(movie, lazy=True, progress=print)  # type: ignore[call-overload]
    with pytest.warns(UserWarning, match="needs the camera's gain"):
        localize(movie, lazy=True, estimator="mle")


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """Two processes of one thread each, which are restarted after a kill."""
    with (
        distributed.LocalCluster(
            n_workers=2,
            threads_per_worker=1,
            processes=True,
            dashboard_address=":0",  # any port that is free
            resources={"GPU": 1},
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        yield client


class DiesOnce:
    """An image in a file; the first worker to read its frame 13 is killed."""

    def __init__(self, path: Path, mark: Path) -> None:
        self._path, self._mark, self._maker = path, mark, os.getpid()
        known = np.load(path, mmap_mode="r")
        self.shape, self.dtype = known.shape, known.dtype

    def __getitem__(self, index: Any) -> np.ndarray:
        chosen = np.arange(self.shape[0])[index[0] if isinstance(index, tuple) else index]
        if 13 in chosen and not self._mark.exists() and os.getpid() != self._maker:
            self._mark.write_text(str(os.getpid()))
            os.kill(os.getpid(), signal.SIGKILL if sys.platform != "win32" else signal.SIGTERM)
        return np.load(self._path, mmap_mode="r")[index]


def test_a_worker_is_killed_in_mid_run(
    movie: np.ndarray, tmp_path: Path, cluster: Any, caplog: pytest.LogCaptureFixture
) -> None:
    # What the scheduler logs of lost results cannot be formatted, which pytest makes an error.
    caplog.set_level(logging.CRITICAL, "distributed.scheduler")
    np.save(tmp_path / "movie.npy", movie)
    image = DiesOnce(tmp_path / "movie.npy", tmp_path / "died")
    fits = localize(movie, **SINGLE)
    folder = tmp_path / "parts"
    parts = localize_to_folder(image, folder, lazy=True, **SINGLE)
    assert parts_in(folder) == []
    written = cluster.gather(cluster.compute(parts, resources={"GPU": 1}))
    died = int((tmp_path / "died").read_text())
    assert died not in (os.getpid(), *cluster.run(os.getpid).values())
    assert [part.path for part in written] == parts_in(folder)
    assert sum(part.spots for part in written) == len(fits)
    assert_same(SpotFits.concatenate(list(load_parts(folder))), fits)
    assert_same_table(dd.read_parquet(folder).compute(), fits)
    assert_same_table(pd.read_parquet(folder), fits)
    assert [path.name for path in folder.iterdir() if path.name[0] == "."] == []
    save_fits(load_parts(folder), tmp_path / "cluster.spots.parquet")
    save_fits(localize_iter(movie, **SINGLE), tmp_path / "here.spots.parquet")
    here = (tmp_path / "here.spots.parquet").read_bytes()
    assert (tmp_path / "cluster.spots.parquet").read_bytes() == here
    # Again, nothing is made: the parts are those of before.
    before = {path: path.stat().st_mtime_ns for path in parts_in(folder)}
    assert list(dask.compute(*localize_to_folder(image, folder, lazy=True, **SINGLE))) == written
    assert {path: path.stat().st_mtime_ns for path in parts_in(folder)} == before


@pytest.mark.parametrize("kind", ["dask", "npy", "zarr"])
def test_a_cluster_gives_the_same(
    movie: np.ndarray, tmp_path: Path, cluster: Any, kind: str
) -> None:
    lazy = localize(as_given(kind, movie, tmp_path), lazy=True, **SINGLE)
    assert_same_table(lazy.compute(), localize(movie, **SINGLE))
    per_frame = lazy[lazy.good].groupby("frame").size().compute()
    fits = localize(movie, **SINGLE)
    frames, counts = np.unique(fits[fits.good].frame, return_counts=True)
    assert per_frame.sort_index().to_dict() == dict(zip(frames, counts, strict=True))
    lazy.to_parquet(tmp_path / "table")
    assert_same_table(pd.read_parquet(tmp_path / "table"), fits)


def test_an_error_of_a_worker_names_the_file(
    movie: np.ndarray, tmp_path: Path, cluster: Any
) -> None:
    image = as_given("npy", movie, tmp_path)
    parts = localize_to_folder(image, tmp_path / "parts", lazy=True)
    os.truncate(image, image.stat().st_size - 3 * movie[0].nbytes)
    with pytest.raises(ValueError, match=r"“movie.npy” cannot be read: .*cut off"):
        dask.compute(*parts)
