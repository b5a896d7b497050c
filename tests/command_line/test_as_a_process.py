"""The command as a process: Ctrl-C, and streams of any kind."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from commands import of_its_own, run
from same_fits import assert_same

from napari_spotfit import load_fits, localize

pytest.importorskip("pyarrow")


@pytest.mark.skipif(os.name == "nt", reason="no signals are sent to one process there")
def test_ctrl_c_twice_ends_at_once(folder, movies):
    np.save(folder / "long.npy", np.tile(movies[0], (100, 6, 6)))  # a second or more, in one part
    with of_its_own("localize", "long.npy", "-o", "out") as process:
        while not list(folder.rglob("_run.json")):  # now it is fitted
            assert process.poll() is None
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        while b"press Ctrl-C again" not in process.stderr.readline():  # or both would be one
            assert process.poll() is None
        process.send_signal(signal.SIGINT)
        said = process.stderr.read().decode()
    assert process.returncode == 130, said
    assert "Traceback" not in said
    assert "Aborted" not in said
    assert not (folder / "out" / "long.npy.spots.parquet").exists()
    assert not [path for path in (folder / "out").iterdir() if path.name.startswith(".")]


AFTERWARDS = """
import sys, threading
from napari_spotfit.command_line.main import main
threading.Thread(target=sys.stdin.read).start()  # Python waits for it
try:
    main(["info"])
finally:
    print("ended", flush=True)
"""


@pytest.mark.skipif(os.name == "nt", reason="no signals are sent to one process there")
def test_ctrl_c_while_python_ends_leaves_no_traceback():
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    with subprocess.Popen([sys.executable, "-c", AFTERWARDS], **pipes) as process:
        while not process.stdout.readline().startswith(b"ended"):
            assert process.poll() is None
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 130
        assert process.stderr.read() == b""


def test_streams_of_another_encoding(folder):
    """The encoding of a redirected stream on Windows lacks σ."""
    named = {"env": {**os.environ, "PYTHONIOENCODING": "cp1252"}}
    output, said = of_its_own("localize", "--help", **named).communicate()
    assert b"Usage:" in output
    assert b"--sigma NUMBER                  PSF \\u03c3, px" in output
    assert said == b""
    (folder / "a.npy").rename(folder / "σ.npy")
    process = of_its_own("localize", "σ.npy", "-o", "a.csv", "--json", "-q", **named)
    output, said = process.communicate()
    assert (process.returncode, said) == (0, b"")
    assert json.loads(output.decode("ascii"))["files"][0]["file"] == "σ.npy"


@pytest.mark.skipif(sys.platform != "linux", reason="names are text elsewhere")
def test_names_that_are_no_text(folder):
    name = os.fsdecode(b"bad\xff.npy")
    (folder / "a.npy").rename(folder / name)
    process = of_its_own("localize", name, "-o", "a.csv", "--json")
    output, _ = process.communicate()
    assert json.loads(output.decode("utf-8"))["files"][0]["file"] == name


FULL = Path("/dev/full")


@pytest.mark.skipif(not FULL.exists(), reason="there is no full device")
@pytest.mark.parametrize("what", ["localize a.npy -o a.csv --json -q", "localize --help", "-h"])
def test_output_that_cannot_be_written(what, folder):
    command = [sys.executable, "-m", "napari_spotfit", *what.split()]
    with FULL.open("wb") as full:
        process = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, encoding="utf-8")
    assert process.returncode == 1
    lines = process.stderr.splitlines()
    assert len(lines) == 1
    assert lines[0].startswith("Error: the output cannot be written: [Errno 28]")


@pytest.mark.skipif(not FULL.exists(), reason="there is no full device")
def test_sentences_that_nobody_can_read(folder, movies):
    command = [sys.executable, "-m", "napari_spotfit", "localize", "a.npy", "-o", "a.csv"]
    with FULL.open("wb") as full:
        assert subprocess.run(command, stderr=full).returncode == 0
    assert_same(load_fits("a.csv"), localize(movies[0]))


@pytest.mark.skipif(os.name == "nt", reason="there are no limits to files")
def test_a_table_of_all_that_cannot_be_written_is_an_error_for_programs(folder):
    import resource

    def limit():
        resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))

    process = of_its_own("localize", "a.npy", "b.npy", "-o", "all.csv", "--json", preexec_fn=limit)
    output, said = process.communicate()
    assert process.returncode == 1
    summary = json.loads(output)
    assert "“all.csv” cannot be written: " in summary["error"]
    assert summary["error"] in said.decode()
    assert summary["failed"] == 2
    assert [file["file"] for file in summary["files"]] == ["a.npy", "b.npy"]
    assert all(file["error"] for file in summary["files"])
    assert json.loads(run("localize", "a.npy", "-o", "b.csv", "--json").stdout)["error"] == ""


@pytest.mark.skipif(os.name == "nt", reason="there are no limits to files")
@pytest.mark.parametrize(
    ("what", "file"),
    [
        ("simulate m.npy", "m.npy"),
        ("simulate m.tif", "m.tif"),
        ("demo --save", "demo.npy"),
        ("localize a.npy -o a.spots.parquet", "_run.json"),
    ],
)
def test_a_disk_that_is_full_is_named_with_the_file(what, file, folder):
    import resource

    def limit():
        resource.setrlimit(resource.RLIMIT_FSIZE, (200, 200))

    _, said = of_its_own(*what.split(), preexec_fn=limit).communicate()
    (line,) = said.decode().splitlines()
    assert f"“{file}” cannot be written in “" in line
    assert os.strerror(errno.ENOSPC) in line or os.strerror(errno.EFBIG) in line
    assert "are kept" not in line
    assert "were fitted" not in line
    assert not list(folder.glob(".*"))
