"""Files of names, patterns and folders, and files without permission."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import numpy as np
import pytest

from napari_spotfit import load_fits, localize_files, localize_iter, simulate_movie
from napari_spotfit.batch.request import image_files

#: A name for which even a check of its existence fails.
TOO_LONG = "x" * 300 + ".npy"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    movie = simulate_movie(2, shape=(48, 56), spots_per_frame=5, photons=3000, seed=1)[0]
    np.save("a.npy", movie)
    return tmp_path


@pytest.fixture
def no_permissions(folder):
    """A folder without permission, for a user that is not root meanwhile."""
    if sys.platform == "win32":
        pytest.skip("permissions are others there")
    closed = Path("closed")
    closed.mkdir()
    np.save("closed/b.npy", np.zeros((3, 20, 20)))
    closed.chmod(0)
    folder.chmod(0o755)
    root = os.geteuid() == 0
    if root:
        os.seteuid(65534)
    yield closed
    if root:
        os.seteuid(0)
    closed.chmod(0o755)


def test_what_may_not_be_read_does_not_stop_the_others(no_permissions):
    assert image_files(["."]) == [Path("a.npy")]
    named = ["closed/b.npy", "a.npy", "closed"]
    assert image_files(named) == [Path(name) for name in named]


@pytest.mark.parametrize("output", ["out", "all.csv"])
def test_a_name_that_the_system_refuses_fails_in_its_turn(folder, output):
    Path("loop.npy").symlink_to("loop.npy")
    for labels in (None, "m.npy"):
        np.save("m.npy", np.ones((48, 56), np.uint8))
        names = [TOO_LONG, "loop.npy", "a.npy"]
        outcomes = localize_files(names, output, sigma=1.3, labels=labels)
        assert [one.state for one in outcomes] == ["failed", "failed", "done"]
        assert "File name too long" in outcomes[0].error or sys.platform != "linux"
        assert "loop.npy" in outcomes[1].error


@pytest.mark.skipif(sys.platform != "linux", reason="names are UTF-8 there")
@pytest.mark.parametrize("output", ["out", "all.csv", "all.spots.parquet"])
def test_a_name_that_is_no_utf8_is_one_like_others(folder, output):
    if output != "all.csv":
        pytest.importorskip("pyarrow")
    name = os.fsdecode(b"b\xff.npy")
    Path("a.npy").rename(name)
    np.save("c.npy", np.load(name))
    for again in (False, True):
        outcomes = localize_files([name, "c.npy"], output, sigma=1.3, backend="cpu")
        state = "kept" if again and output == "out" else "done"
        assert [one.state for one in outcomes] == [state, state]
    if output == "out":
        assert len(load_fits(outcomes[0].output)) == outcomes[0].spots > 5
        return
    files = load_fits(outcomes[0].output).columns["file"]
    assert sorted(set(files.tolist())) == ["b\\udcff.npy", "c.npy"]


@pytest.mark.skipif(sys.platform != "linux", reason="names are UTF-8 there")
def test_parts_of_such_a_file_are_kept(folder):
    pytest.importorskip("pyarrow")
    name = os.fsdecode(b"b\xff.npy")
    Path("a.npy").rename(name)
    known = {"sigma": 1.3, "backend": "cpu"}
    first, again = (list(localize_iter(name, resume="parts", **known)) for _ in range(2))
    assert sum(map(len, first)) == sum(map(len, again)) > 5


def test_hidden_files_of_a_folder_are_no_images(folder):
    Path("._a.npy").touch()
    assert image_files(["."]) == [Path("a.npy")]
    assert image_files(["._a.npy"]) == [Path("._a.npy")]  # asked for


def test_a_file_by_two_paths_is_one(folder):
    Path("sub").mkdir()
    Path("same").symlink_to(folder)
    names = ["a.npy", str(folder / "a.npy"), "sub/../a.npy", "same/a.npy", "*.npy"]
    assert image_files(names) == [Path("a.npy")]
    Path("b.npy").symlink_to("a.npy")
    assert image_files(["a.npy", "b.npy"]) == [Path("a.npy"), Path("b.npy")]  # has its own name
