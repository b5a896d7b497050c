"""Files are written atomically, not through planted links, with their mode, despite kills."""

from __future__ import annotations

import os
import stat
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from napari_spotfit import (
    Displacement,
    Drift,
    Settings,
    SpotFits,
    TrackingLog,
    load_fits,
    read_log,
    save_drift,
    save_fits,
)
from napari_spotfit.files import writing
from napari_spotfit.files.settings_file import save_settings

pytest.importorskip("pyarrow")
unix = pytest.mark.skipif(sys.platform == "win32", reason="Windows has neither")
ENDINGS = [".spots.csv", ".spots.parquet", "_locs.hdf5", ".smlm", ".decode.h5", ".plain.csv"]


def spots(count=3, first=0.0) -> SpotFits:
    rows = first + np.arange(float(count))
    columns = {"frame": np.arange(count), "y": rows, "x": rows}
    return SpotFits(columns | {"stop_condition": np.full(count, 2, np.uint8)}, ("frame",))


def drift(count=3):
    rows = np.arange(float(count))
    return Drift(rows, rows, rows, rows, np.ones(count, np.int64))


WRITERS = {
    **{
        f"a{ending}": lambda path, count: spots(count).save(path, pixel_size=100)
        for ending in ENDINGS
    },
    "parts.spots.csv": lambda path, count: save_fits(iter(spots(count)), path),
    "converted.hdf5": lambda path, count: save_fits([spots(count)], path, pixel_size=100),
    "a.drift.csv": lambda path, count: save_drift(drift(count), path),
    "a.drift.txt": lambda path, count: save_drift(drift(count), path),
    "a.toml": lambda path, count: save_settings(Settings(sigma=float(count)), path),
}
#: Steps of a writer, in order.
STEPS = ("create_temporary", "_flush", "replace", "chmod")


class KilledError(BaseException):
    """Simulates the end of the process."""


def killed_at(step, monkeypatch):
    """Kill a writer at one of its steps."""

    def die(*args, **named):
        raise KilledError

    monkeypatch.setattr(Path, "unlink", lambda *args, **named: None)  # no clean-up
    if step in ("replace", "chmod"):
        monkeypatch.setattr(Path, step, die)
    else:
        monkeypatch.setattr(writing, step, die)


@pytest.mark.filterwarnings("ignore::napari_spotfit.FormatWarning")
@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("name", WRITERS)
def test_a_kill_leaves_the_old_file_whole(name, step, tmp_path, monkeypatch):
    path = tmp_path / name
    WRITERS[name](path, 2)
    before = path.read_bytes()
    with monkeypatch.context() as killed:
        killed_at(step, killed)
        with pytest.raises(KilledError):
            WRITERS[name](path, 5)
    assert path.read_bytes() == before
    WRITERS[name](path, 5)
    assert path.read_bytes() != before


@unix
@pytest.mark.filterwarnings("ignore::napari_spotfit.FormatWarning")
@pytest.mark.parametrize("name", WRITERS)
def test_the_mode_is_kept_and_that_of_new_files_usual(name, tmp_path):
    path = tmp_path / name
    before = os.umask(0o027)
    try:
        WRITERS[name](path, 2)
        assert stat.S_IMODE(path.stat().st_mode) == 0o640
        path.chmod(0o600)
        WRITERS[name](path, 3)
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert not [one for one in tmp_path.iterdir() if one.name.startswith(".")]


@unix
@pytest.mark.filterwarnings("ignore::napari_spotfit.FormatWarning")
@pytest.mark.parametrize("name", WRITERS)
def test_a_planted_link_leads_nowhere(name, tmp_path, monkeypatch):
    secret, path = tmp_path / "secret", tmp_path / name
    secret.write_text("mine")
    for planted in (f".{name}.part", f"{name}.unfinished", f".{name}.{'0' * 32}.part"):
        (tmp_path / planted).symlink_to(secret)
    WRITERS[name](path, 2)
    assert path.is_file()
    assert not path.is_symlink()
    # Even a name that somebody has foreseen is made anew, or not at all.
    monkeypatch.setattr(writing.secrets, "token_hex", lambda size: "0" * (2 * size))
    with pytest.raises(FileExistsError):
        WRITERS[name](path, 3)
    assert secret.read_text() == "mine"


@unix
def test_a_lock_that_is_a_link_is_refused(tmp_path):
    (tmp_path / ".a.lock").symlink_to(tmp_path / "nowhere")
    with pytest.raises(OSError, match="is a link"), writing.file_lock(tmp_path / "a"):
        pass
    assert not (tmp_path / "nowhere").exists()


@pytest.mark.parametrize("ending", ENDINGS[:2])
def test_of_several_writers_one_wins_whole(ending, tmp_path):
    path = tmp_path / f"a{ending}"
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda number: spots(50, 100.0 * number).save(path), range(24)))
    found = load_fits(path)
    assert (found.x - found.x[0]).tolist() == list(range(50))
    assert [one.name for one in tmp_path.iterdir()] == [path.name]


def test_what_killed_runs_have_left_goes_after_a_day(tmp_path):
    old, new = (tmp_path / f".a.spots.csv.{digit * 32}.part" for digit in "01")
    for left in (old, new):
        left.write_bytes(b"left")
    day = time.time() - 2 * 24 * 3600
    os.utime(old, (day, day))
    spots().save(tmp_path / "a.spots.csv")
    assert not old.exists()
    assert new.exists()


def test_a_kill_between_picassos_two_files(tmp_path):
    path = tmp_path / "a_locs.hdf5"
    spots().save(path, pixel_size=100)
    path.unlink()  # the other of its two files is there, and ours
    spots(5).save(path, pixel_size=100)
    assert len(load_fits(path)) == 5


def moved(frame):
    return Displacement(frame, y=0.25, x=0.0, used=3)


def frames_of(path):
    return read_log(path)["frame"].tolist()


def written_log(path, first, count=3):
    with TrackingLog(path) as log:
        for frame in range(first, first + count):
            log.add(moved(frame))
            log.flush()


@pytest.mark.parametrize("step", ["create_temporary", "publish", "rmtree", "_write_file"])
def test_a_log_that_is_killed_as_it_is_closed(step, tmp_path, monkeypatch):
    from napari_spotfit.tracking import log as module

    path = tmp_path / "a.parquet"
    written_log(path, 0)
    log = TrackingLog(path)
    for frame in range(3, 6):
        log.add(moved(frame))
        log.flush()

    def die(*args, **named):
        raise KilledError

    with monkeypatch.context() as killed:
        killed.setattr(module.shutil if step == "rmtree" else module, step, die)
        with pytest.raises(KilledError):
            log.close()
    log._owner.close()  # as the system does for a process that is gone
    assert frames_of(path) == list(range(6))
    written_log(path, 6)
    assert frames_of(path) == list(range(9))
    assert sorted(one.name for one in tmp_path.iterdir()) == ["a.parquet"]


def test_a_log_has_one_owner(tmp_path):
    path = tmp_path / "a.parquet"
    with TrackingLog(path) as log:
        log.add(moved(0))
        with pytest.raises(OSError, match="is open already: close it first"):
            TrackingLog(path)
        log.add(moved(1))
    written_log(path, 2)
    assert frames_of(path) == list(range(5))


@unix
def test_the_parts_of_a_log_are_in_no_link(tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "a.parquet.parts").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match="is a link"):
        TrackingLog(tmp_path / "a.parquet")
