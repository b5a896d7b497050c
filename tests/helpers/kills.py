"""Kill writers at each of their file operations, in separate processes; print failures.

usage: python kills.py FOLDER WRITER...

Each writer is begun again and again, in a copy of the same folder, and ended by the system before
its first, second, … operation on files, or when a file that it writes reaches a size. After each,
what it writes must be the old or the new one, whole; and the same writer, once more, must end with
the bytes of one that nothing has ended.
"""

from __future__ import annotations

import gc
import json
import os
import pickle
import resource
import shutil
import signal
import sys
import traceback
import warnings
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from importlib import import_module
from itertools import chain, count
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import napari_spotfit as spotfit
from napari_spotfit.command_line.main import main
from napari_spotfit.localization import stored

#: Audit events of Python that change folders and files.
CHANGES = {"os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.chmod", "os.truncate", "os.link"}
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
#: Settings without estimates, so that runs are short.
KNOWN = {"sigma": 1.3, "threads": 1, "backend": "cpu"}
NOISE = {**KNOWN, "noise": spotfit.NoiseModel(1.0, 10.0, 10.0), "roi_size": 9}
MOVIE = spotfit.simulate_movie(6, shape=(40, 40), spots_per_frame=3, seed=1)[0]
FITS = spotfit.localize(MOVIE, settings=None, **NOISE)


class Killed(NamedTuple):
    """When to kill a process: before an operation, or when a file reaches a size."""

    step: int | None = None
    size: int | None = None


def in_process(work: Callable[[], Any], folder: Path, end: Killed | None = None) -> Any:
    """Run a function in a new process; return its result, or None if it was killed."""
    there, here = os.pipe()
    process = os.fork()
    if not process:
        os.close(there)
        try:
            os.chdir(folder)
            counted = _Operations(folder, end)
            sent = work(), counted.count, counted.too_early
        except BaseException:
            sent = traceback.format_exc()
        with os.fdopen(here, "wb") as pipe:
            pickle.dump(sent, pipe)
        os._exit(0)
    os.close(here)
    with os.fdopen(there, "rb") as pipe:
        sent = pipe.read()
    _, status = os.waitpid(process, 0)
    if os.WIFSIGNALED(status):
        assert end is not None, f"ended by signal {os.WTERMSIG(status)}"
        return None
    result = pickle.loads(sent)
    if isinstance(result, str):
        raise RuntimeError(result)
    return result


class _Operations:
    """Counts file operations, and kills this process before one of them."""

    def __init__(self, folder: Path, end: Killed | None) -> None:
        self.count, self._end, self._root = 0, end, folder
        #: Files that were flushed, and files that were renamed without.
        self._flushed, self.too_early = set[int](), list[str]()
        if end is not None and end.size is not None:
            signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
            resource.setrlimit(resource.RLIMIT_FSIZE, (end.size, end.size))
        sys.addaudithook(self._hear)
        self._fsync, os.fsync = os.fsync, self._flush

    def _flush(self, file: int) -> None:
        self._step()
        self._fsync(file)
        self._flushed.add(os.fstat(file).st_ino)

    def _hear(self, event: str, given: tuple[Any, ...]) -> None:
        if event in CHANGES:
            self._step()
            if event == "os.rename" and Path(given[0]).stat().st_ino not in self._flushed:
                self.too_early.append(f"{given[1]} is not on the disk as it takes its name")
        elif event == "open" and isinstance(given[0], (str, bytes)):
            path = Path.cwd() / os.fsdecode(given[0])
            if isinstance(given[2], int) and given[2] & WRITES and self._root in path.parents:
                self._step()

    def _step(self) -> None:
        if self._end is not None and self._end.step == self.count:
            os.kill(os.getpid(), signal.SIGKILL)
        self.count += 1


class Writer(NamedTuple):
    """A writer, the previous file, and a reader."""

    write: Callable[[], object]
    before: Callable[[], object] = lambda: None
    #: Of a folder; without it, the bytes of all files that are no part of others.
    read: Callable[[], Any] = lambda: {
        str(path): path.read_bytes() for path in Path().glob("[!.]*") if path.is_file()
    }
    #: Whether what was read is right besides the old and the new, of what comes in several files:
    #: given the new, and how much was said to be there.
    between: Callable[[Any, Any, int], bool] = lambda found, new, said: False
    #: Whether it ends as files reach a size, too.
    sizes: bool = True
    #: Setup of each process.
    ready: Callable[[], object] = lambda: None


def save(name: str, **more: Any) -> Callable[[], object]:
    return lambda: FITS.save(name, **more)


def save_old(name: str, **more: Any) -> Callable[[], object]:
    return lambda: FITS[:3].save(name, **more)


def parts() -> Any:
    stored._PART_BYTES = 2 * MOVIE[0].nbytes
    return spotfit.localize_iter("../movie.npy", resume="parts", **NOISE)


def folder() -> object:
    stored._PART_BYTES = 2 * MOVIE[0].nbytes
    return len(spotfit.localize_to_folder("../movie.npy", "parts", **NOISE))


def files_of_parts() -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in Path("parts").glob("[!.]*")}


def loaded(name: str) -> Callable[[], Any]:
    def load() -> Any:
        if not Path(name).exists():
            return None
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return spotfit.load_fits(name).points().tolist()

    return load


#: Where a log says how many rows are on the disk.
SAID = os.memfd_create("said")


def rows_to_log(*frames: int) -> Callable[[], object]:
    def write() -> None:
        with spotfit.TrackingLog("log.parquet") as log:
            there = {*spotfit.read_log("log.parquet")["frame"]}
            for frame in frames:
                if frame not in there:
                    log.add(spotfit.Displacement(frame, y=0.5, x=0.25, used=3))
                    log.flush()
                    os.write(SAID, b"1")

    return write


def rows_of_log() -> list[int]:
    if not Path("log.parquet").exists() and not Path("log.parquet.parts").exists():
        return []
    return spotfit.read_log("log.parquet")["frame"].tolist()


@cache
def layer(count: int) -> tuple[Any, dict[str, Any]]:
    from napari_spotfit.widgets.saved_layers import attributes_of

    points = spotfit.to_points_layer(FITS[:count])
    return points.data, attributes_of(points)


def recovery(count: int) -> Callable[[], object]:
    def write() -> None:
        from napari_spotfit.widgets.fitting import recovery

        recovery._write(Path("1.spots.parquet"), *layer(count))

    return write


def drift(frames: int) -> spotfit.Drift:
    moved = np.linspace(0, 1, frames)
    return spotfit.Drift(moved, -moved, 0.1 + moved, 0.1 + moved, np.full(frames, 3))


def command(*arguments: str) -> Callable[[], object]:
    return lambda: main(list(arguments), standalone_mode=False)


def batch() -> object:
    return spotfit.localize_files("../movie.npy", "out", **NOISE)


def tables_of_batch() -> dict[str, bytes]:
    tables = Path("out").glob("[!._]*.*")
    return {str(path): path.read_bytes() for path in tables if path.is_file()}


def each_whole(found: dict[str, bytes], new: dict[str, bytes], said: int) -> bool:
    return all(new.get(name) == content for name, content in found.items())


def no_row_lost(found: list[int], new: list[int], said: int) -> bool:
    return found == new[: len(found)] and len(found) >= 3 + said


PICASSO = {"pixel_size": 100.0, "shape": (6, 40, 40)}
WRITERS: dict[str, Writer] = {
    "save parquet": Writer(save("a.spots.parquet"), save_old("a.spots.parquet")),
    "save csv": Writer(save("a.spots.csv"), save_old("a.spots.csv")),
    "save anew": Writer(save("new.spots.csv")),
    "save picasso": Writer(
        save("a_locs.hdf5", **PICASSO), save_old("a_locs.hdf5", **PICASSO), loaded("a_locs.hdf5")
    ),
    "save_fits": Writer(
        lambda: spotfit.save_fits([FITS[:4], FITS[4:]], "a.spots.csv"), save_old("a.spots.csv")
    ),
    "save_fits parquet": Writer(
        lambda: spotfit.save_fits([FITS[:4], FITS[4:]], "a.spots.parquet"),
        save_old("a.spots.parquet"),
    ),
    "settings": Writer(
        lambda: spotfit.save_settings(spotfit.Settings(sigma=2.0), "a.toml"),
        lambda: spotfit.save_settings(spotfit.Settings(sigma=1.0), "a.toml"),
    ),
    "drift": Writer(
        lambda: spotfit.save_drift(drift(9), "a.csv"), lambda: spotfit.save_drift(drift(5), "a.csv")
    ),
    "localize": Writer(
        command("localize", "../movie.npy", "-o", "a.spots.csv", "--sigma", "1.3", "--quiet"),
        save_old("a.spots.csv"),
    ),
    "resume": Writer(lambda: spotfit.save_fits(parts(), "a.spots.csv")),
    "folder": Writer(folder, read=files_of_parts, between=each_whole),
    "batch": Writer(batch, read=tables_of_batch, between=each_whole),
    "recovery": Writer(
        recovery(9), recovery(3), ready=lambda: [layer(count) for count in (3, 9)]
    ),
    "log": Writer(
        rows_to_log(3, 4, 5), rows_to_log(0, 1, 2), rows_of_log, no_row_lost, sizes=False
    ),
}  # fmt: skip


def faults_of(name: str, root: Path) -> dict[str, Any]:
    """Kill a writer at each of its operations; return the number of kills, and failures."""
    writer, own = WRITERS[name], root / name
    own.mkdir()
    np.save(own / "movie.npy", MOVIE)
    base, whole = own / "base", own / "whole"
    base.mkdir()
    writer.ready()
    in_process(writer.before, base)
    old, *_ = in_process(writer.read, base)
    shutil.copytree(base, whole)

    def write() -> list[str]:
        known = {*sys.modules}
        writer.write()
        return [name for name in sys.modules if name not in known]

    imported, _, faults = in_process(write, whole)
    for module in imported:  # once, and not in each process
        with suppress(ImportError):
            import_module(module)
    new, *_ = in_process(writer.read, whole)
    largest = max((path.stat().st_size for path in whole.rglob("*") if path.is_file()), default=0)
    sizes = (1, largest // 2, largest - 1) if writer.sizes else ()
    ends = chain((Killed(size=size) for size in sizes), map(Killed, count()))
    killed = 0

    def go_on() -> tuple[Any, Any]:
        left = writer.read()
        writer.write()
        return left, writer.read()

    for end in ends:
        again = own / "again"
        shutil.copytree(base, again)
        os.ftruncate(SAID, 0)
        os.lseek(SAID, 0, os.SEEK_SET)
        is_killed = in_process(writer.write, again, end) is None
        killed += is_killed
        said = os.fstat(SAID).st_size
        try:
            (left, done), *_ = in_process(go_on, again)
            if left not in (old, new) and not writer.between(left, new, said):
                faults.append(f"{end}: neither the old nor the new one: {str(left)[:300]}")
            if done != new:
                faults.append(f"{end}: not the same when it was done again: {str(done)[:300]}")
        except RuntimeError as error:
            faults.append(f"{end}: {error}")
        shutil.rmtree(again)
        if not is_killed and end.step is not None:  # there are no more
            break
    return {"kills": killed, "changed": old != new, "faults": faults}


if __name__ == "__main__":
    sys.dont_write_bytecode = True  # modules are no files of writers
    # Collections in processes that are as short would only copy this one's memory.
    gc.disable()
    warnings.simplefilter("ignore", spotfit.FormatWarning)
    print(json.dumps({name: faults_of(name, Path(sys.argv[1])) for name in sys.argv[2:]}))
