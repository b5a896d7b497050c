"""Targets of writing: links are followed, only files are replaced, and errors name the target."""

from __future__ import annotations

import errno
import os
import subprocess
import sys

import numpy as np
import pytest

from napari_spotfit import SpotFits, load_fits
from napari_spotfit.files.parts import PartsError
from napari_spotfit.files.writing import unfinished

ENDINGS = [".spots.csv", ".spots.parquet", "_locs.hdf5", ".plain.csv"]
unix = pytest.mark.skipif(sys.platform == "win32", reason="Windows has none of these")


def spots(count=3) -> SpotFits:
    rows = np.arange(float(count))
    stop = np.zeros(count, np.uint8)
    return SpotFits({"frame": rows.astype(int), "y": rows, "x": rows, "stop_condition": stop})


@unix
@pytest.mark.parametrize("ending", ENDINGS)
def test_a_link_stays_and_its_file_is_written(tmp_path, ending):
    (tmp_path / "real").mkdir()
    link, real = tmp_path / f"link{ending}", tmp_path / "real" / f"t{ending}"
    spots(2).save(real, pixel_size=100)
    link.symlink_to(f"real/{real.name}")
    spots(3).save(link, pixel_size=100)
    assert link.is_symlink()
    assert len(load_fits(real)) == len(load_fits(link)) == 3
    assert not [*tmp_path.rglob(".*")]


@unix
def test_a_link_to_what_is_not_there_yet(tmp_path):
    link = tmp_path / "a.spots.csv"
    link.symlink_to("b.spots.csv")
    spots().save(link)
    assert link.is_symlink()
    assert len(load_fits(tmp_path / "b.spots.csv")) == 3


@unix
@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize("linked", [False, True])
def test_a_pipe_is_not_replaced(tmp_path, ending, linked):
    pipe, path = tmp_path / f"a{ending}", tmp_path / f"a{ending}"
    os.mkfifo(pipe)
    if linked:
        path = tmp_path / f"b{ending}"
        path.symlink_to(pipe.name)
    with pytest.raises(OSError, match=rf"“a{ending}” cannot be written in .*: it is a pipe"):
        spots().save(path)
    assert pipe.is_fifo()
    assert len([*tmp_path.iterdir()]) == 1 + linked


@unix
def test_a_link_that_leads_to_itself(tmp_path):
    path = tmp_path / "a.spots.csv"
    path.symlink_to(path.name)
    with pytest.raises(OSError, match=r"“a.spots.csv” cannot be written .* leads to itself"):
        spots().save(path)
    assert path.is_symlink()


@pytest.mark.parametrize("ending", ENDINGS)
def test_folders_that_are_none_or_in_the_way(tmp_path, ending):
    with pytest.raises(
        FileNotFoundError, match=r"“a.* cannot be written: there is no folder “.*nodir”"
    ):
        spots().save(tmp_path / "nodir" / f"a{ending}")
    (tmp_path / f"a{ending}").mkdir()
    with pytest.raises(IsADirectoryError, match=r"“a.* cannot be written in .*: it is a folder"):
        spots().save(tmp_path / f"a{ending}")


@pytest.mark.skipif(sys.platform != "linux", reason="files have no largest size elsewhere")
@pytest.mark.parametrize("ending", [*ENDINGS, ".decode.h5"])
def test_a_disk_that_takes_no_more(tmp_path, ending):
    program = f"""
import resource
import numpy as np
from napari_spotfit import SpotFits
rows = np.random.default_rng(0).random(200_000)
frame = np.arange(len(rows))
stop = np.zeros(len(rows), np.uint8)
fits = SpotFits({{"frame": frame, "y": rows, "x": rows, "stop_condition": stop}})
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, -1))
try:
    fits.save("a{ending}")
except OSError as error:
    print(error.errno, type(error).__name__, error)
"""
    said = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, encoding="utf-8"
    ).stdout.strip()
    reason = os.strerror(errno.EFBIG)
    assert said == f"{errno.EFBIG} OSError “a{ending}” cannot be written in “.”: {reason}"
    assert not [*tmp_path.iterdir()]


def test_errors_of_what_is_read_meanwhile_are_kept(tmp_path):
    place = tmp_path / "a.spots.csv"
    for raised in (
        OSError(errno.EIO, "Input/output error", "movie.tif"),
        FileExistsError("there"),
        PartsError(errno.ENOSPC, "the parts are there"),
    ):
        with pytest.raises(OSError, match=r"movie\.tif|there") as caught, unfinished(place):
            raise raised
        assert caught.value is raised
