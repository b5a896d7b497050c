"""Batches: masks and cells, several files at a time, kept tables, and bad input."""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import tifffile
from same_fits import assert_same

from napari_spotfit import (
    Settings,
    label_spots,
    load_fits,
    localize,
    localize_files,
    per_label,
    simulate_movie,
)
from napari_spotfit.batch import run as runs
from napari_spotfit.batch.masks import mask_of
from napari_spotfit.batch.request import Batch
from napari_spotfit.batch.run import run_batch
from napari_spotfit.files import writing
from napari_spotfit.localization import stored

pytest.importorskip("pyarrow")
SHAPE = 48, 56


@pytest.fixture(scope="module")
def movies():
    return [
        simulate_movie(6, shape=SHAPE, spots_per_frame=5, photons=3000, seed=seed)[0]
        for seed in (1, 2)
    ]


@pytest.fixture(scope="module")
def cells():
    labels = np.zeros(SHAPE, np.uint16)
    labels[:24, :20], labels[:24, 25:], labels[30:, 10:] = 3, 4, 9
    labels[0, 0] = 300  # no spot lies here
    return labels


@pytest.fixture
def folder(movies, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, movie in zip("ab", movies, strict=True):
        tifffile.imwrite(f"{name}.tif", movie, metadata={"axes": "TYX"})
    return tmp_path


def run(files, output, stopped=lambda: False, tell=lambda outcome: None, **named):
    settings = named.pop("settings", Settings(sigma=1.3))
    batch = Batch([Path(file) for file in files], Path(output), settings, **named)
    return run_batch(batch, tell, stopped)


@pytest.mark.parametrize("workers", [1, 2])
def test_each_file_has_its_table_and_its_cells(workers, folder, movies, cells):
    for name in "ab":
        tifffile.imwrite(f"{name}_cells.tif", cells)
    states = []
    outcomes = run(
        ["a.tif", "b.tif", "a_cells.tif", "b_cells.tif"], "out", labels="_cells.tif",
        workers=workers, tell=lambda outcome: states.append((outcome.file, outcome.state)),
    )  # fmt: skip
    assert [(one.file, one.state) for one in outcomes] == [("a.tif", "done"), ("b.tif", "done")]
    for outcome, movie in zip(outcomes, movies, strict=True):
        fits, there = localize(movie, sigma=1.3), load_fits(outcome.output)
        assert there.settings == fits.settings
        np.testing.assert_array_equal(there.label, label_spots(fits, cells))
        np.testing.assert_array_equal(there.x, fits.x)
        table = per_label(fits[fits.good], cells)
        written = pd.read_csv(outcome.cells)
        pd.testing.assert_frame_equal(written, table)
        assert written.label.tolist() == [3, 4, 9, 300]
        assert written["count"].tolist()[-1] == 0
        assert outcome.spots == len(fits)
        assert outcome.frames == outcome.frames_in_all == 6
        assert [s for f, s in states if f == outcome.file][:: len(states)] == ["running"]


def test_from_python_it_is_what_the_command_does(folder, movies, cells):
    tifffile.imwrite("cells.tif", cells)
    reports = []
    outcomes = localize_files(
        ["a.tif", Path("b.tif")], "out", sigma=1.3, labels="cells.tif", progress=reports.append
    )
    assert [one.state for one in outcomes] == ["done", "done"]
    assert {one.file for one in reports} == {"a.tif", "b.tif"}
    same = run(["a.tif", "b.tif"], "same", labels="cells.tif")
    for one, other in zip(outcomes, same, strict=True):
        assert_same(load_fits(one.output), load_fits(other.output))
        assert Path(one.cells).read_text() == Path(other.cells).read_text()
    again = localize_files("?.tif", "out", sigma=1.3, labels="cells.tif")
    assert [one.state for one in again] == ["kept", "kept"]


@pytest.mark.parametrize(
    ("named", "words"),
    [
        ({"workers": 0}, "workers must be a whole number from 1; got 0"),
        ({"frames": 3}, "frames must be a slice"),
        ({"ending": ".spots.txt"}, "spots.txt"),
        ({"files": "*.nothing"}, "there is no image file in the pattern “\\*.nothing”"),
        ({"sigma": -1}, "sigma"),
    ],
)
def test_from_python_what_is_wrong_is_said_first(named, words, folder):
    with pytest.raises((TypeError, ValueError), match=words):
        localize_files(named.pop("files", "a.tif"), "out", **named)


def test_one_table_of_all_has_the_cells_of_all(folder, movies, cells):
    (folder / "masks").mkdir()
    for name in "ab":
        np.save(f"masks/{name}_x.npy", np.broadcast_to(cells, (6, *SHAPE)))
    run(["a.tif", "b.tif"], "all.spots.csv", labels="masks")
    fits = [localize(movie, sigma=1.3) for movie in movies]
    expected = pd.concat(
        [
            per_label(one[one.good], np.broadcast_to(cells, (6, *SHAPE))).assign(file=name)
            for one, name in zip(fits, ("a.tif", "b.tif"), strict=True)
        ],
        ignore_index=True,
    )
    pd.testing.assert_frame_equal(pd.read_csv("all.cells.csv")[expected.columns], expected)
    there = load_fits("all.spots.csv")
    np.testing.assert_array_equal(
        there.label, np.concatenate([label_spots(one, cells) for one in fits])
    )


def test_masks_are_found(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("masks/a_1.tif", "masks/a_2.tif", "masks/b.npy", "masks/ab_1.tif", "one.tif"):
        Path(name).parent.mkdir(exist_ok=True)
        Path(name).touch()
    assert mask_of(Path("a.tif"), "masks/*_1.tif") == Path("masks/a_1.tif")
    assert mask_of(Path("in/b.ome.tif"), "masks") == Path("masks/b.npy")
    assert mask_of(Path("b.tif"), "one.tif") == Path("one.tif")
    with pytest.raises(ValueError, match=r"“a.tif” has several masks: “a_1.tif”, “a_2.tif”"):
        mask_of(Path("a.tif"), "masks")
    with pytest.raises(FileNotFoundError, match=r"no file “in/c_m.tif”"):
        mask_of(Path("in/c.tif"), "*_m.tif")
    with pytest.raises(FileNotFoundError, match=r"no file “in/c_m.tif”"):
        mask_of(Path("in/c.tif"), "_m.tif")


@pytest.mark.parametrize(
    ("mask", "words"),
    [
        (np.zeros((48, 50), np.uint8), "has 48×50 pixels, “a.tif” 6×48×56"),
        (np.zeros((2, 6, *SHAPE), np.uint8), "has 2×6×48×56 pixels"),
        (np.zeros(SHAPE, np.float32), "must have whole numbers, 0 for the background"),
        (None, "“a.tif” has no mask: there is no file “a_m.npy”"),
    ],
)
def test_masks_that_do_not_fit_are_named(mask, words, folder, cells):
    if mask is not None:
        np.save("a_m.npy", mask)
    np.save("b_m.npy", cells)
    outcomes = run(["a.tif", "b.tif"], "out", labels="_m.npy")
    assert words in outcomes[0].error
    assert [one.state for one in outcomes] == ["failed", "done"]


def test_what_is_complete_is_kept_while_it_is_of_the_same(folder, movies):
    def states(**named):
        return [one.state for one in run(["a.tif", "b.tif"], "out", **named)]

    assert states() == ["done", "done"]
    before = Path("out/a.tif.spots.parquet").stat().st_mtime_ns
    again = run(["a.tif", "b.tif"], "out")
    assert [one.state for one in again] == ["kept", "kept"]
    assert again[0].spots == len(localize(movies[0], sigma=1.3))
    assert Path("out/a.tif.spots.parquet").stat().st_mtime_ns == before
    Path("out/b.tif.spots.parquet").write_bytes(b"damaged")
    assert states() == ["kept", "done"]
    tifffile.imwrite("a.tif", movies[1], metadata={"axes": "TYX"})
    assert states() == ["done", "kept"]
    assert_same(load_fits("out/a.tif.spots.parquet"), localize(movies[1], sigma=1.3))
    assert states(settings=Settings(sigma=1.4)) == ["done", "done"]
    assert states(settings=Settings(sigma=1.4), fresh=True) == ["done", "done"]
    Path("out/_batch.json").write_text("[")
    assert states(settings=Settings(sigma=1.4)) == ["done", "done"]


@pytest.mark.parametrize("workers", [1, 2])
def test_a_stopped_batch_goes_on(workers, folder, movies, monkeypatch):
    monkeypatch.setattr(stored, "_PART_BYTES", 1)  # a frame
    stop = threading.Event()

    def tell(outcome):
        if outcome.file == "b.tif" and outcome.frames == 3:
            stop.set()

    outcomes = run(["a.tif", "b.tif"], "out", stop.is_set, tell, workers=workers)
    assert outcomes[1].state == "stopped"
    assert not Path("out/b.tif.spots.parquet").exists()
    outcomes = run(["a.tif", "b.tif"], "out")
    assert {one.state for one in outcomes} <= {"kept", "done"}
    assert outcomes[1].parts_before >= 3
    for name, movie in zip("ab", movies, strict=True):
        assert_same(load_fits(f"out/{name}.tif.spots.parquet"), localize(movie, sigma=1.3))


def bad_files(movie):
    """Write bad files, and return the message on each."""
    whole = Path("b.tif").read_bytes()
    Path("cut.tif").write_bytes(whole[: len(whole) // 2])
    Path("empty.tif").touch()
    Path("foreign.tif").write_text("no image at all")
    Path("notes.txt").write_text("no image at all")
    np.save("words.npy", np.array([["a", "b"]]))
    np.save("complex.npy", movie.astype(complex))
    np.save("line.npy", movie[0, 0])
    return {
        "cut.tif": "cut off",
        "empty.tif": "it is empty",
        "foreign.tif": "it is damaged, or not a TIFF file",
        "notes.txt": "its name must end in .tif",
        "words.npy": "words.npy",
        "complex.npy": "complex",
        "line.npy": "it has no frames of rows and columns",
        "missing.tif": "there is no file “missing.tif”",
    }


@pytest.mark.parametrize("output", ["out", "all.spots.parquet"])
def test_bad_files_are_named_and_the_others_go_on(output, folder, movies):
    said = bad_files(movies[0])
    np.save("small.npy", movies[0][:, :40, :41].astype(np.float32))
    outcomes = run(["a.tif", *said, "small.npy", "b.tif"], output)
    states = {one.file: one.state for one in outcomes}
    assert {file for file, state in states.items() if state == "failed"} == {*said}
    for outcome in outcomes:
        assert said.get(outcome.file, "") in outcome.error
        assert not outcome.error or outcome.file in outcome.error
    small = localize(movies[0][:, :40, :41].astype(np.float32), sigma=1.3)
    assert [one.spots for one in outcomes if one.file == "small.npy"] == [len(small)]


@pytest.mark.parametrize("ending", [".npy", ".tif"])
def test_a_file_that_shrinks_while_it_is_read(ending, folder, movies, monkeypatch):
    monkeypatch.setattr(stored, "_PART_BYTES", 1)  # a frame
    movie = np.concatenate([movies[0]] * 40)
    file = Path(f"long{ending}")
    np.save(file, movie) if ending == ".npy" else tifffile.imwrite(file, movie)

    def tell(outcome):
        if outcome.file == file.name and outcome.frames == 3:
            os.truncate(file, file.stat().st_size // 2)

    outcomes = run([file, "b.tif"], "out", tell=tell)
    first = outcomes[0]
    assert [one.state for one in outcomes] == ["failed", "done"]
    assert f"“{file.name}” cannot be read: frame " in first.error
    assert 3 <= first.frames < 240
    there = load_fits(first.output)
    assert there.frame.max() < first.frames
    assert len(there) == first.spots > 0


def without_room(monkeypatch, name):
    """Simulate a full disk for a file."""
    whole = writing.create_temporary

    def create_temporary(place, ending=""):
        part = whole(place, ending)
        if place.name == name:
            part.unlink()
            part.symlink_to("/dev/full")
        return part

    monkeypatch.setattr(writing, "create_temporary", create_temporary)


@pytest.mark.skipif(sys.platform != "linux", reason="/dev/full is Linux's")
@pytest.mark.parametrize("ending", [".spots.parquet", ".spots.csv"])
def test_a_full_disk(ending, folder, movies, monkeypatch):
    with monkeypatch.context() as full:
        without_room(full, f"a.tif{ending}")
        outcomes = run(["a.tif", "b.tif"], "out", ending=ending)
    assert [one.state for one in outcomes] == ["failed", "done"]
    assert "a.tif" in outcomes[0].error
    assert "cannot be written" in outcomes[0].error
    assert "No space left on device" in outcomes[0].error
    assert not Path(f"out/a.tif{ending}").exists()
    # What was done is kept: its parts.
    assert list(Path(f"out/a.tif{ending}.parts").glob("*/part-*.parquet"))
    outcomes = run(["a.tif", "b.tif"], "out", ending=ending)
    assert [one.state for one in outcomes] == ["done", "kept"]
    assert outcomes[0].parts_before


def test_any_error_of_a_reader_fails_its_file_alone(folder, monkeypatch):
    whole = runs.localize_iter

    def broken(file, **named):
        if file.name == "a.tif":
            raise RuntimeError("the decoder gave up")
        return whole(file, **named)

    monkeypatch.setattr(runs, "localize_iter", broken)
    outcomes = run(["a.tif", "b.tif"], "out")
    assert outcomes[0].error == "“a.tif”: RuntimeError: the decoder gave up"
    assert outcomes[1].state == "done"


def test_warnings_are_of_their_file(folder):
    np.save("noise.npy", np.random.default_rng(0).poisson(9, (4, 40, 40)))
    outcomes = run(["a.tif", "noise.npy"], "out", settings=Settings(), workers=2)
    assert [len(one.warnings) for one in outcomes] == [0, 1]
    assert "the image does not show the PSF's σ" in outcomes[1].warnings[0]


def test_several_at_a_time_need_a_folder(folder):
    with pytest.raises(ValueError, match="choose a folder for the output"):
        run(["a.tif", "b.tif"], "all.csv", workers=2)


def test_what_is_corrupt_within_is_named_with_its_frame(folder, movies):
    zarr = pytest.importorskip("zarr")
    tifffile.imwrite("z.tif", movies[0], compression="zlib", metadata={"axes": "TYX"})
    with tifffile.TiffFile("z.tif") as file:
        offset = file.pages[4].dataoffsets[0]
    damaged = bytearray(Path("z.tif").read_bytes())
    damaged[offset : offset + 50] = b"rubbish 10" * 5
    Path("z.tif").write_bytes(damaged)
    zarr.create_array("z.zarr", data=movies[0], chunks=(2, *SHAPE))
    chunk = sorted(one for one in Path("z.zarr").rglob("*") if one.is_file())[1]
    assert "zarr.json" not in chunk.name
    chunk.write_bytes(b"rubbish")
    outcomes = run(["z.tif", "z.zarr", "b.tif"], "out")
    assert [one.state for one in outcomes] == ["failed", "failed", "done"]
    assert "“z.tif” cannot be read: frame 4 is damaged or missing" in outcomes[0].error
    assert "“z.zarr” cannot be read: frame 2 is damaged or missing" in outcomes[1].error
    assert [one.frames for one in outcomes[:2]] == [4, 2]
    for outcome, readable in zip(outcomes[:2], (4, 2), strict=True):
        assert set(load_fits(outcome.output).frame) == set(range(readable))


@pytest.mark.skipif(sys.platform != "linux", reason="/dev/full is Linux's")
def test_a_full_disk_for_one_table_of_all(folder, movies, monkeypatch):
    message = r"“all.spots.parquet” cannot be written: .*No space left"
    with monkeypatch.context() as full:
        without_room(full, "all.spots.parquet")
        with pytest.raises(OSError, match=message):
            run(["a.tif", "b.tif"], "all.spots.parquet")
    assert not Path("all.spots.parquet").exists()
    outcomes = run(["a.tif", "b.tif"], "all.spots.parquet")
    assert [one.state for one in outcomes] == ["done", "done"]
    assert outcomes[0].parts_before  # what was done was kept
    assert len(load_fits("all.spots.parquet")) == sum(one.spots for one in outcomes)
