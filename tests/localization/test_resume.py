"""Runs stored in parts: killed and resumed, with the same file to the bit in the end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
from same_fits import assert_same

from napari_spotfit import (
    Camera,
    SpotFits,
    load_fits,
    load_parts,
    localize,
    localize_iter,
    localize_to_folder,
    open_image,
    save_fits,
    simulate_movie,
)
from napari_spotfit.estimation import width_search
from napari_spotfit.files.parquet import parquet_pieces
from napari_spotfit.files.parts import difference, parts_in, read_run, remove_parts
from napari_spotfit.images import frames

da = pytest.importorskip("dask.array")

pytestmark = pytest.mark.usefixtures("short_parts")


@pytest.fixture
def file(movie: np.ndarray, tmp_path: Path) -> Path:
    np.save(tmp_path / "movie.npy", movie)
    return tmp_path / "movie.npy"


def estimates_made(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Return a list that records estimates."""
    made: list[object] = []
    search = width_search.width_of
    monkeypatch.setattr(
        "napari_spotfit.estimation.psf_width.width_of",
        lambda *given: made.append(given) or search(*given),
    )
    return made


def joined(folder: Path) -> SpotFits:
    return SpotFits.concatenate(list(load_parts(folder)))


KILLED = """
import sys
from pathlib import Path
from napari_spotfit import localize_iter, save_fits
from napari_spotfit.localization import stored

stored._PART_BYTES = int(sys.argv[4])
def parts():
    for number, part in enumerate(localize_iter(sys.argv[1], resume=sys.argv[2])):
        yield part
        if number == 3:  # the fourth is being written, perhaps
            print("now", flush=True)
            sys.stdin.read()  # until the end comes
save_fits(parts(), sys.argv[3])
"""


@pytest.mark.parametrize("ending", [".spots.parquet", ".spots.csv"])
def test_a_killed_run_ends_with_the_same_file_to_the_bit(
    file: Path, movie: np.ndarray, tmp_path: Path, ending: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, table = tmp_path / "parts", tmp_path / f"resumed{ending}"
    arguments = [str(file), str(folder), str(table), str(4 * movie[0].nbytes)]
    with subprocess.Popen(
        [sys.executable, "-c", KILLED, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as run:
        assert run.stdout is not None
        assert run.stdout.readline().strip() == b"now"
        run.send_signal(signal.SIGKILL) if hasattr(signal, "SIGKILL") else run.kill()
    assert not table.exists()
    there = {path: path.stat().st_mtime_ns for path in parts_in(folder)}
    assert 3 <= len(there) < len(movie) // 4

    made = estimates_made(monkeypatch)
    count = save_fits(localize_iter(file, resume=folder), table)
    assert not made
    kept = {path: path.stat().st_mtime_ns for path in there}
    assert kept == there  # read, not made again
    whole = tmp_path / f"whole{ending}"
    assert save_fits(localize_iter(file), whole) == count
    assert table.read_bytes() == whole.read_bytes()
    assert made

    remove_parts(folder)
    assert not folder.exists()


def test_parts_are_the_fits_of_the_whole(movie: np.ndarray, tmp_path: Path) -> None:
    progress: list[tuple[int, int]] = []
    known = {"neighbours": "exclude"}
    parts = localize_to_folder(
        movie, tmp_path, progress=lambda *done: progress.append(done), **known
    )
    fits = localize(movie, **known)
    assert [part.path.name for part in parts[:2]] == [
        "part-000000000.parquet",
        "part-000000004.parquet",
    ]
    assert sum(part.spots for part in parts) == len(fits) > 100
    assert progress == [(done, len(movie)) for done in range(4, len(movie) + 1, 4)]
    assert_same(joined(tmp_path), fits)
    assert joined(tmp_path).settings == fits.settings
    assert_same(load_fits(parts[1].path), fits[(fits.frame >= 4) & (fits.frame < 8)])
    again = localize_to_folder(movie, tmp_path, **known)
    assert again == parts


def test_frames_of_more_axes_and_some_of_them(movie: np.ndarray, tmp_path: Path) -> None:
    stack = movie.reshape(2, 12, *movie.shape[1:])
    chosen = (slice(None), slice(1, None, 2))
    localize_to_folder(stack, tmp_path, frames=chosen, sigma=1.3)
    assert_same(joined(tmp_path), localize(stack, frames=chosen, sigma=1.3))
    wide = da.from_array(stack, chunks=(2, 2, -1, -1))  # frames of a chunk are no neighbours
    assert_same(
        SpotFits.concatenate(list(localize_iter(wide, resume=tmp_path / "wide"))), localize(stack)
    )
    none = tmp_path / "none"
    assert [part.spots for part in localize_to_folder(movie, none, frames=[], sigma=1.3)] == [0]
    assert len(joined(none)) == 0


def test_a_damaged_part_is_made_again(
    movie: np.ndarray, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = [part.path for part in localize_to_folder(movie, tmp_path)]
    whole = [path.read_bytes() for path in parts]
    data = len(whole[1]) // 8  # what the columns are, behind them, takes most of so small a file
    parts[1].write_bytes(whole[1][:data] + bytes(64) + whole[1][data + 64 :])
    parts[3].write_bytes(whole[3][:-100])
    parts[4].unlink()
    (tmp_path / ".part-000000016.0123456789abcdef0123456789abcdef").write_bytes(b"unfinished")
    with pytest.raises(ValueError, match="1 of 6 parts are missing, the first is part-000000016"):
        load_parts(tmp_path)
    made = estimates_made(monkeypatch)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fits = SpotFits.concatenate(list(localize_iter(movie, resume=tmp_path)))
    assert not made
    assert_same(fits, localize(movie))
    assert [path.read_bytes() for path in parts] == whole
    assert sorted(path.name for path in tmp_path.iterdir() if path.name[0] == ".") == []
    # What the parts are of can be damaged, too: each says it itself.
    (tmp_path / "_run.json").write_text("{")
    with pytest.raises(ValueError, match=r"_run\.json is damaged"):
        load_parts(tmp_path)
    with pytest.raises(ValueError, match="does not say what they are of"):
        localize_to_folder(movie, tmp_path)
    with pytest.warns(UserWarning, match="does not say what they are of"):
        localize_to_folder(movie, tmp_path, fresh=True)
    assert_same(joined(tmp_path), localize(movie))


OTHER = {
    "settings": ({"sigma": 1.35}, r"settings\.sigma is None there and 1\.35 here"),
    "estimator": ({"estimator": "mle", "gain": 1.0, "offset": 100.0}, r"settings\.estimator"),
    "frames": ({"frames": slice(0, 8)}, r"frames\.count is 24 there and 8 here"),
    "mask": ({"mask": np.eye(64, 72, dtype=bool)}, "mask is None there"),
    "camera": ({"camera": Camera(offset=1.0)}, r"offset is None there and 1\.0 here"),
}


@pytest.mark.parametrize("name", OTHER)
def test_parts_of_other_runs_are_not_used(movie: np.ndarray, tmp_path: Path, name: str) -> None:
    options, why = OTHER[name]
    localize_to_folder(movie, tmp_path)
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises(ValueError, match=f"parts of another run: {why}.*fresh=True"):
        localize_to_folder(movie, tmp_path, **options)
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before
    with pytest.warns(UserWarning, match=f"everything is done again: {why}") as progress:
        fits = SpotFits.concatenate(list(localize_iter(movie, resume=tmp_path, **options)))
    assert progress[0].filename == __file__
    assert_same(fits, localize(movie, **options))
    assert_same(joined(tmp_path), fits)


def test_a_run_that_cannot_begin_leaves_what_is_there(movie: np.ndarray, tmp_path: Path) -> None:
    parts = localize_to_folder(movie, tmp_path)
    with (
        pytest.raises(ValueError, match="smaller than the ROI"),
        pytest.warns(UserWarning, match="another run"),
    ):
        list(localize_iter(movie, resume=tmp_path, roi_size=65))
    assert parts_in(tmp_path) == [part.path for part in parts]


@pytest.mark.parametrize("kind", ["npy", "zarr", "memory", "dask"])
def test_a_changed_image_is_known(movie: np.ndarray, tmp_path: Path, kind: str) -> None:
    zarr = pytest.importorskip("zarr")
    folder = tmp_path / "parts"

    def given(pixels: np.ndarray) -> object:
        if kind == "memory":
            return pixels
        if kind == "dask":
            return da.from_array(pixels, chunks=(4, -1, -1))
        path = tmp_path / f"movie.{kind}"
        if kind == "npy":
            np.save(path, pixels)
        else:
            zarr.create_array(path, data=pixels, chunks=(4, 64, 72), overwrite=True)
        return path

    localize_to_folder(given(movie), folder, sigma=1.3)
    image = given(movie) if kind in ("memory", "dask") else tmp_path / f"movie.{kind}"
    localize_to_folder(image, folder, sigma=1.3)
    if kind in ("npy", "zarr"):
        localize_to_folder(open_image(image), folder, sigma=1.3)
    other = movie.copy()
    other[-1, 3, 4] += 1
    with pytest.raises(ValueError, match=r"another run: image(\.| was changed since)"):
        localize_to_folder(given(other), folder, sigma=1.3)


def test_what_does_not_matter_does_not(movie: np.ndarray, tmp_path: Path) -> None:
    localize_to_folder(movie, tmp_path, threads=1)
    before = {path: path.stat().st_mtime_ns for path in parts_in(tmp_path)}
    fits = SpotFits.concatenate(list(localize_iter(movie, resume=tmp_path, threads=2)))
    assert fits.settings is not None
    assert fits.settings.threads == 2
    assert {path: path.stat().st_mtime_ns for path in parts_in(tmp_path)} == before


def test_another_instruction_set_is_another_run(
    movie: np.ndarray, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from napari_spotfit.engine.cpu import library

    sets = library.load().instruction_sets
    if len(sets) < 2:
        pytest.skip("this machine has one instruction set")
    localize_to_folder(movie, tmp_path, backend="cpu")
    monkeypatch.setenv(library.INSTRUCTION_SET, sets[0])
    with pytest.raises(ValueError, match=f"instruction_set is '{sets[-1]}' there and '{sets[0]}'"):
        localize_to_folder(movie, tmp_path, backend="cpu")


def test_a_file_that_is_cut_off_keeps_what_is_before(
    file: Path, movie: np.ndarray, tmp_path: Path
) -> None:
    image, found = open_image(file), []
    folder = tmp_path / "parts"

    def fit_until_it_ends() -> None:
        for part in localize_iter(image, resume=folder, sigma=1.3, threads=1):
            if not found:
                os.truncate(file, file.stat().st_size - 6 * movie[0].nbytes - 2)
            found.append(part)

    with pytest.raises(ValueError, match="frame 17 is damaged or missing"):
        fit_until_it_ends()
    assert len(parts_in(folder)) == 4
    assert max(part.frame.max() for part in found if len(part)) == 16


def test_frames_in_tiles_are_stored_as_they_come(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tall = simulate_movie(2, (3400, 64), spots_per_frame=1300, photons=3000, seed=1)[0]
    fits = localize(tall)
    monkeypatch.setattr(frames, "LARGE_FRAME", 10_000)
    monkeypatch.setattr(frames, "TILE", 200 * 64 * 2)
    image = da.from_array(tall, chunks=(1, 100, -1))
    coming = localize_iter(image, resume=tmp_path)
    assert 0 < len(next(coming)) < 800
    coming.close()
    assert parts_in(tmp_path) == []
    assert [path.name for path in tmp_path.iterdir()] == ["_run.json"]

    parts = localize_to_folder(image, tmp_path)
    assert sum(part.spots for part in parts) == len(fits)
    assert len(list(parquet_pieces(parts[0].path))) > 2
    whole = parts[0].path.read_bytes()
    again = list(localize_iter(image, resume=tmp_path))
    assert len(again) > 4
    assert_same(SpotFits.concatenate(again), fits)
    assert localize_to_folder(image, tmp_path) == parts
    parts[0].path.write_bytes(whole[: len(whole) // 2] + bytes(64) + whole[len(whole) // 2 + 64 :])
    assert_same(SpotFits.concatenate(list(localize_iter(image, resume=tmp_path))), fits)
    assert parts[0].path.read_bytes() == whole


FULL = """
import resource, sys
from napari_spotfit import localize_to_folder
from napari_spotfit.localization import stored

stored._PART_BYTES = int(sys.argv[3])
def limited(done, total):
    if done >= 12:  # eight of them are stored
        resource.setrlimit(resource.RLIMIT_FSIZE, (3000, 3000))
try:
    localize_to_folder(sys.argv[1], sys.argv[2], progress=limited)
except OSError as error:
    print(error)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="no limits of files there")
def test_no_room_is_one_clear_error(file: Path, movie: np.ndarray, tmp_path: Path) -> None:
    folder = tmp_path / "parts"
    arguments = [str(file), str(folder), str(4 * movie[0].nbytes)]
    found = subprocess.run(
        [sys.executable, "-c", FULL, *arguments], capture_output=True, text=True, check=True
    )
    assert "cannot be written in" in found.stdout, found
    assert "run again to continue" in found.stdout
    assert not found.stderr
    done = parts_in(folder)
    assert 2 <= len(done) < 6
    assert not [path for path in folder.iterdir() if path.name.startswith(".")]
    localize_to_folder(file, folder)
    assert_same(joined(folder), localize(movie))


def test_a_folder_that_cannot_be_made(movie: np.ndarray, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("is no folder")
    with pytest.raises(OSError, match=r"“_run\.json” cannot be written in “.*file”"):
        localize_to_folder(movie, tmp_path / "file", sigma=1.3)


def test_only_files_of_a_run_are_removed(movie: np.ndarray, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    localize_to_folder(movie, tmp_path, sigma=1.3)
    assert read_run(tmp_path) is not None
    remove_parts(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


def test_the_first_difference_is_named() -> None:
    assert difference({"a": 1}, {"a": 1}) == ""
    assert (
        difference({"a": {"b": 1}}, {"a": {"b": 1, "c": [2]}}) == "a.c is None there and [2] here"
    )
