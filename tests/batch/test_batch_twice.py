"""Simultaneous runs, and successive ones from other folders, lose no table and no record."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from same_fits import assert_same

from napari_spotfit import (
    load_fits,
    localize,
    localize_files,
    localize_iter,
    localize_to_folder,
    simulate_movie,
)
from napari_spotfit.batch.request import DONE, CompletedTables, Outcome
from napari_spotfit.files.parts import PartsError, part_path, part_pieces, part_writer, parts_in
from napari_spotfit.files.writing import FileLockedError, file_lock
from napari_spotfit.localization import stored

pytest.importorskip("pyarrow")


@pytest.fixture(scope="module")
def movie():
    return simulate_movie(8, shape=(48, 56), spots_per_frame=5, photons=3000, seed=1)[0]


@pytest.fixture
def folder(movie, tmp_path, monkeypatch):
    """A folder with two movies, with one frame per part."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(stored, "_PART_BYTES", 1)
    np.save("a.npy", movie)
    np.save("b.npy", movie[::-1])
    return tmp_path


WAITING = """
import sys
from napari_spotfit import localize_files
from napari_spotfit.localization import stored

stored._PART_BYTES = 1
def wait(outcome):
    if outcome.frames == 4 and outcome.state == "running":
        print("now", flush=True)
        sys.stdin.readline()
localize_files(sys.argv[2:], sys.argv[1], sigma=1.3, progress=wait)
"""


def begun(output, *files):
    """Return a run that waits between its parts."""
    run = subprocess.Popen(
        [sys.executable, "-c", WAITING, output, *files],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    assert run.stdout.readline().strip() == b"now"
    return run


def test_the_same_run_twice_leaves_the_first_ones_table(folder, movie):
    with begun("same.spots.parquet", "a.npy") as first:
        (second,) = localize_files("a.npy", "same.spots.parquet", sigma=1.3)
        assert second.state == "failed"
        assert "“same.spots.parquet” cannot be written: another run writes it" in second.error
        assert "“same.spots.parquet.parts”" in second.error
        # Nor by a run of other input for the same table.
        with pytest.raises(OSError, match="another run writes it"):
            localize_files(["a.npy", "b.npy"], "same.spots.parquet", sigma=1.3, fresh=True)
        first.communicate(b"\n")
    assert first.returncode == 0
    assert_same(load_fits("same.spots.parquet"), localize(movie, sigma=1.3))
    assert sorted(path.name for path in folder.iterdir()) == [
        "a.npy", "b.npy", "same.spots.parquet",
    ]  # fmt: skip


def test_a_killed_run_keeps_nobody_out(folder, movie):
    with begun("out", "a.npy") as first:
        first.kill()
    (second,) = localize_files("a.npy", "out", sigma=1.3)
    assert second.state == "done"
    assert second.parts_before >= 3
    assert_same(load_fits(second.output), localize(movie, sigma=1.3))
    assert sorted(path.name for path in Path("out").iterdir()) == [
        "_batch.json", "a.npy.spots.parquet",
    ]  # fmt: skip


@pytest.mark.skipif(sys.platform == "win32", reason="open files cannot be removed there")
@pytest.mark.parametrize("several", [False, True])
def test_parts_that_cannot_be_stored_leave_the_table_as_it_was(folder, several):
    files = ["a.npy", "b.npy"][: 1 + several]
    localize_files(files, "t.spots.parquet", sigma=1.3)
    before = Path("t.spots.parquet").read_bytes()

    def lose(outcome):
        while outcome.frames == 3 and Path("t.spots.parquet.parts").exists():
            # Again if the next part has appeared meanwhile.
            shutil.rmtree("t.spots.parquet.parts", ignore_errors=True)

    words = "“t.spots.parquet” cannot be written: .*cannot be written in.*parts.*is unchanged"
    if several:
        with pytest.raises(OSError, match=words):
            localize_files(files, "t.spots.parquet", sigma=1.3, progress=lose)
    else:
        (outcome,) = localize_files(files, "t.spots.parquet", sigma=1.3, progress=lose)
        assert (outcome.state, outcome.output) == ("failed", "")
        with pytest.raises(OSError, match=words):
            raise OSError(outcome.error)
    assert Path("t.spots.parquet").read_bytes() == before


def test_a_part_that_is_lost_while_it_is_read_is_named(folder, movie):
    path, table = part_path(folder, 0), localize(movie, sigma=1.3).to_table()
    with part_writer(path, {"made": "of this"}) as add:
        add(table)
        add(table)
    pieces = part_pieces(path, {"made": "of this"})
    path.unlink()
    with pytest.raises(PartsError, match="was lost or changed while it was read"):
        next(pieces)


def test_two_runs_from_python_do_not_share_a_folder(folder, movie):
    first = localize_iter("a.npy", resume="parts", sigma=1.3)
    found = [next(first), next(first), next(first)]
    there = [path.read_bytes() for path in parts_in(Path("parts"))]
    for work in (localize_to_folder, localize_iter):
        named = {"resume": "parts"} if work is localize_iter else {"folder": "parts"}
        with pytest.raises(PartsError, match=r"another run works in “.*parts”. Wait until"):
            list(work("a.npy", **named, sigma=1.3))
    assert [path.read_bytes() for path in parts_in(Path("parts"))][: len(there)] == there
    found += first
    assert sum(map(len, found)) == len(localize(movie, sigma=1.3))
    again = localize_iter("a.npy", resume="parts", sigma=1.3)
    next(again)
    again.close()
    assert len(localize_to_folder("a.npy", "parts", sigma=1.3)) == 8
    assert not list(Path("parts").glob(".*"))


def test_what_is_kept_has_the_paths_of_this_run(folder, movie, monkeypatch):
    np.save("m.npy", np.ones((48, 56), np.uint8))
    named = {"sigma": 1.3, "labels": str(folder / "m.npy")}
    localize_files("a.npy", "o", **named)
    Path("sub").mkdir()
    monkeypatch.chdir("sub")
    (kept,) = localize_files("../a.npy", "../o", **named)
    assert (kept.state, kept.file) == ("kept", "../a.npy")
    assert kept.output == "../o/a.npy.spots.parquet"
    assert kept.cells == "../o/a.npy.cells.csv"
    assert kept.spots == len(localize(movie, sigma=1.3))
    Path("../o").rename("../moved")
    (kept,) = localize_files("../a.npy", "../moved", **named)
    assert (kept.state, kept.cells) == ("kept", "../moved/a.npy.cells.csv")
    known = json.loads(Path("../moved/_batch.json").read_text())["tables"]
    assert known["a.npy.spots.parquet"]["outcome"]["output"] == "a.npy.spots.parquet"


def test_runs_into_one_folder_keep_each_others_record(folder):
    others = []

    def another(outcome):
        if not others:
            others.extend(localize_files("b.npy", "out", sigma=1.3))

    localize_files("a.npy", "out", sigma=1.3, progress=another)
    outcomes = localize_files(["a.npy", "b.npy"], "out", sigma=1.3)
    assert [one.state for one in outcomes] == ["kept", "kept"]


def test_records_made_at_the_same_time_are_all_there(tmp_path):
    tables = [tmp_path / f"{number}.spots.csv" for number in range(40)]
    for table in tables:
        table.touch()

    def add(table):
        CompletedTables(tmp_path).add(table, {"sigma": 1.3}, Outcome("a.tif", DONE, str(table)))

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(add, tables))
    kept = CompletedTables(tmp_path)
    assert all(kept.outcome(table, {"sigma": 1.3}, "a.tif") for table in tables)
    assert not list(tmp_path.glob(".*"))


def test_one_at_a_time(tmp_path):
    counter = tmp_path / "counter"
    counter.write_text("0")

    def count(_):
        with file_lock(counter, wait=True):
            counter.write_text(str(int(counter.read_text()) + 1))

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(count, range(400)))
    assert counter.read_text() == "400"
    with file_lock(counter), pytest.raises(FileLockedError), file_lock(counter):
        raise AssertionError("two are alone")
    assert [path.name for path in tmp_path.iterdir()] == ["counter"]
