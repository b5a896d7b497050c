"""The command: tables of files as localize gives them, settings, and exit codes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from commands import run
from same_fits import assert_same

import napari_spotfit
from napari_spotfit import Settings, load_fits, localize, simulate_movie
from napari_spotfit.batch import run as batch
from napari_spotfit.files.exchange.registry import EXCHANGE
from napari_spotfit.files.formats import read
from napari_spotfit.files.settings_file import save_settings
from napari_spotfit.localization import stored

pytest.importorskip("pyarrow")


def test_a_process_of_its_own(folder, movies):
    command = [sys.executable, "-m", "napari_spotfit", "localize"]
    localized = [*command, "a.npy", "-o", "a.spots.csv", "--json"]
    process = subprocess.run(localized, capture_output=True, encoding="utf-8")
    assert process.returncode == 0, process.stderr
    assert_same(load_fits("a.spots.csv"), localize(movies[0]))
    summary = json.loads(process.stdout)
    assert summary["files"][0]["spots"] == summary["spots"] == len(load_fits("a.spots.csv"))
    assert summary["frames"] == 8
    assert "a.npy: " in process.stderr
    assert "frames/s" in process.stderr


def test_one_table_of_all_says_the_file(folder, movies):
    run("localize", "a.npy", "b.npy", "-o", "all.spots.parquet", "--neighbours", "exclude")
    fits = load_fits("all.spots.parquet")
    for name, movie in zip(("a.npy", "b.npy"), movies, strict=True):
        own, alone = fits[fits.file == name], localize(movie, neighbours="exclude")
        for column, values in alone.columns.items():
            np.testing.assert_array_equal(own.columns[column], values)
    assert len(fits) == sum(len(localize(movie, neighbours="exclude")) for movie in movies)


@pytest.mark.parametrize("inputs", [["*.npy"], ["."], ["a.npy", "b.npy", "a.npy"]])
def test_a_folder_has_a_table_of_each(inputs, folder, movies):
    run("localize", *inputs, "-o", "out", "--format", ".spots.csv", "-q")
    found = sorted(path.name for path in (folder / "out").iterdir())
    assert found == ["_batch.json", "a.npy.spots.csv", "b.npy.spots.csv"]
    assert_same(load_fits("out/b.npy.spots.csv"), localize(movies[1]))


def test_settings_come_from_a_file_and_from_options(folder, movies):
    save_settings(Settings(sigma=1.4, roi_size=11, min_delta=1e-5), folder / "s.toml")
    run(
        "localize", "a.npy", "-o", "a.csv", "--settings", "s.toml", "--roi-size", "7x9",
        "--bounds", "sigma=0.7:", "--no-errors", "--frames", "2:6",
    )  # fmt: skip
    expected = localize(
        movies[0], (7, 9), sigma=1.4, min_delta=1e-5, errors=False, frames=slice(2, 6),
        bounds={"sigma": (0.7, None)},
    )  # fmt: skip
    assert_same(load_fits("a.csv"), expected)
    assert load_fits("a.csv").settings == expected.settings
    # The settings of a table; what is estimated anew is what an option says so of.
    run("localize", "a.npy", "-o", "b.csv", "--settings", "a.csv", "--sigma", "auto")
    assert load_fits("b.csv").settings.sigma == localize(movies[0]).settings.sigma


def test_settings_of_a_gpu_are_of_use_without_one(folder, movies, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "-1")
    save_settings(Settings(backend="cuda", sigma=1.3), folder / "gpu.toml")
    result = run("localize", "a.npy", "-o", "a.csv", "--settings", "gpu.toml")
    assert "“gpu.toml” asks for a GPU, but none is available" in result.stderr
    assert_same(load_fits("a.csv"), localize(movies[0], sigma=1.3, backend="cpu"))
    asked = ("localize", "a.npy", "-o", "b.csv", "--backend", "cuda")
    assert "GPU" in run(*asked, code=2).stderr


def test_every_setting_is_an_option():
    text = run("localize", "--help").output
    for item in fields(Settings):
        assert (f"--{item.name.replace('_', '-')}" in text) == (item.name != "noise")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["a.npy"], "Missing option '-o'"),
        (["a.npy", "-o", "a.txt"], "must end in .parquet or .csv"),
        (["a.npy", "-o", "nowhere/a.csv"], "there is no folder"),
        (["*.tif", "-o", "a.csv"], "no image file in the pattern"),
        (["a.npy", "-o", "a.csv", "--roi-size", "8"], "--roi-size must be odd"),
        (["a.npy", "-o", "a.csv", "--sigma", "wide"], "'wide' is not NUMBER, or auto"),
        (["a.npy", "-o", "a.csv", "--bounds", "sigma"], "is not NAME=LOWEST:HIGHEST"),
        (["a.npy", "-o", "a.csv", "--fixed", "s=1"], "fixed"),
        (["a.npy", "-o", "a.csv", "--frames", "all"], "--frames must be"),
        (["a.npy", "-o", "a.csv", "--frames", ""], "--frames must be FIRST:END or"),
        (["a.npy", "-o", "a.csv", "--frames", "1:2:0"], "--frames must be FIRST:END or"),
        (["a.npy", "-o", "a.csv", "--frames", "5:3"], "--frames 5:3 chooses no frame of any movie"),
        (["a.npy", "-o", "a.csv", "--frames", ":0"], "--frames :0 chooses no frame of any movie"),
        (["a.npy", "-o", "a.csv", "--frames", "-3:-5"], "--frames -3:-5 chooses no frame of any"),
        (["a.npy", "-o", "a.csv", "--frames", "3:5:-1"], "--frames 3:5:-1 chooses no frame of any"),
    ],
)  # fmt: skip
def test_what_was_asked_for_wrongly_is_said(arguments, words, folder):
    result = run("localize", *arguments, code=2)
    assert words in " ".join(result.output.replace("│", "").split())
    assert not list(folder.glob("*.csv"))


def test_damaged_files_are_named_and_the_others_go_on(folder, movies):
    (folder / "a.npy").write_bytes((folder / "a.npy").read_bytes()[:500])
    np.save(folder / "c.npy", movies[0].reshape(2, 4, 48, 56))
    result = run("localize", "a.npy", "b.npy", "c.npy", "-o", "all.csv", "--json", code=1)
    assert "“a.npy” cannot be read: it was cut off" in result.stderr
    assert "“c.npy”: its spots do not fit into the table of the files before it" in result.stderr
    summary = json.loads(result.stdout)
    assert summary["failed"] == 2
    assert [file["output"] for file in summary["files"]] == ["", "all.csv", ""]
    assert set(load_fits("all.csv").file) == {"b.npy"}
    run("localize", "a.npy", "-o", "none.csv", code=1)
    assert not (folder / "none.csv").exists()


def test_spots_before_the_damage_are_kept(folder, movies, monkeypatch):
    whole = batch.localize_iter

    def damaged(file, **named):
        for part in whole(file, **named):
            yield part[:9]
            if file.name == "a.npy":
                raise OSError(5, "Input/output error")
            yield part[9:]

    monkeypatch.setattr(batch, "localize_iter", damaged)
    result = run("localize", "a.npy", "b.npy", "-o", "all.csv", code=1)
    assert "“a.npy”: [Errno 5] Input/output error; 8 frames before it were fitted" in result.stderr
    fits = load_fits("all.csv")
    assert (fits.file == "a.npy").sum() == 9
    assert (fits.file == "b.npy").sum() == len(localize(movies[1]))
    run("localize", "a.npy", "-o", "a.csv", code=1)
    assert len(load_fits("a.csv")) == 9


@pytest.mark.parametrize("keep", [True, False])
@pytest.mark.parametrize("several", [True, False])
def test_ctrl_c_keeps_what_is_done_when_asked(keep, several, folder, movies, monkeypatch):
    whole = batch.localize_iter

    def interrupted(*arguments, **named):
        for part in whole(*arguments, **named):
            yield part[:9]
            signal.raise_signal(signal.SIGINT)
            yield part[9:]
            raise AssertionError("it goes on")

    monkeypatch.setattr(batch, "localize_iter", interrupted)
    before = signal.getsignal(signal.SIGINT)
    inputs = ["a.npy", "b.npy"] if several else ["a.npy"]
    result = run("localize", *inputs, "-o", "a.csv", *(["--keep"] if keep else []), code=130)
    assert signal.getsignal(signal.SIGINT) is before
    assert "stopped" in result.stderr
    assert (folder / "a.csv").exists() == keep
    if keep:
        assert len(load_fits("a.csv")) == len(localize(movies[0]))
    assert not list(folder.glob(".*"))


@pytest.mark.parametrize("frames", ["8", "8:", "100:200", "-20:-9"])
@pytest.mark.parametrize("output", ["a.csv", "out"])
def test_files_without_the_chosen_frames_fail(frames, output, folder):
    table = folder / ("a.csv" if output == "a.csv" else "out/a.npy.spots.parquet")
    run("localize", "a.npy", "-o", output)
    before = table.read_bytes()
    result = run("localize", "a.npy", "-o", output, "--frames", frames, code=1)
    none = "“a.npy” has none of the chosen frames: there are 8 in it, counted from 0"
    assert none in result.stderr
    assert table.read_bytes() == before
    assert not list(folder.glob("**/*.parts"))


def test_one_file_without_the_chosen_frames(folder, movies):
    np.save(folder / "b.npy", movies[1][:4])
    result = run("localize", "a.npy", "b.npy", "-o", "all.csv", "--frames", "5:", code=1)
    assert "“b.npy” has none of the chosen frames" in result.stderr
    assert set(load_fits("all.csv").file) == {"a.npy"}


@pytest.mark.parametrize(
    ("frames", "chosen"),
    [("-1", [7]), ("-2", [6]), ("0", [0]), ("5:-1", [5, 6]), ("-2:", [6, 7]), ("7:5:-1", [6, 7])],
)
def test_frames_from_the_end(frames, chosen, folder):
    run("localize", "a.npy", "-o", "a.csv", "--frames", frames)
    assert sorted(set(load_fits("a.csv").frame.tolist())) == chosen


KILLED = """
import sys
from napari_spotfit.batch import run as batch
from napari_spotfit.command_line.main import main
from napari_spotfit.localization import stored

stored._PART_BYTES = 1  # a frame
whole = batch.localize_iter
def waiting(*given, **named):
    for number, part in enumerate(whole(*given, **named)):
        yield part
        if number == 5:
            print("now", flush=True)
            sys.stdin.read()
if len(sys.argv) > 1 and sys.argv[-1] == "killed":
    sys.argv.pop()
    batch.localize_iter = waiting
main()
"""


@pytest.mark.parametrize("inputs", [["b.npy"], ["a.npy", "b.npy"]])
def test_a_killed_run_goes_on(inputs, folder):
    arguments = [sys.executable, "-c", KILLED, "localize", *inputs, "-o", "t.spots.parquet"]
    with subprocess.Popen(
        [*arguments, "killed"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout.readline().strip() == b"now"
        process.kill()
    assert not (folder / "t.spots.parquet").exists()
    assert len(list((folder / "t.spots.parquet.parts").glob("*/part-*.parquet"))) >= 5
    process = subprocess.run(arguments, capture_output=True, encoding="utf-8", check=True)
    assert f"{inputs[0]}: resumed after" in process.stderr
    assert "another run" not in process.stderr
    assert [path.name for path in folder.glob("t*")] == ["t.spots.parquet"]
    run("localize", *inputs, "-o", "whole.spots.parquet")
    assert (folder / "t.spots.parquet").read_bytes() == (
        folder / "whole.spots.parquet"
    ).read_bytes()
    assert not list(folder.glob("*.parts"))


def test_parts_of_other_settings_are_not_used(folder, movies, monkeypatch):
    monkeypatch.setattr(stored, "_PART_BYTES", 1)
    whole = batch.localize_iter

    def stopped(*arguments, **named):
        for part in whole(*arguments, **named):
            yield part
            signal.raise_signal(signal.SIGINT)

    def stop():
        with monkeypatch.context() as patch:
            patch.setattr(batch, "localize_iter", stopped)
            result = run("localize", "a.npy", "-o", "a.csv", "--sigma", "1.5", code=130)
        assert "Run it again to resume, or with --fresh to start over" in result.stderr
        assert list(folder.glob("a.csv.parts/a.npy-*/_run.json"))

    stop()
    result = run("localize", "a.npy", "-o", "a.csv", "--sigma", "1.4")
    output = " ".join(result.stderr.split())
    assert "everything is done again: settings.sigma is 1.5 there and 1.4 here" in output
    assert_same(load_fits("a.csv"), localize(movies[0], sigma=1.4))
    stop()
    os.utime("a.npy", (10**9, 10**9))
    output = " ".join(run("localize", "a.npy", "-o", "a.csv", "--sigma", "1.5").stderr.split())
    assert "everything is done again: image was changed since: then it was of 20" in output
    assert ", now of 2001-09-0" in output
    stop()
    result = run("localize", "a.npy", "-o", "a.csv", "--sigma", "1.5", "--fresh")
    assert "earlier run" not in result.stderr
    assert_same(load_fits("a.csv"), localize(movies[0], sigma=1.5))
    assert not list(folder.glob("*.parts"))


def test_warnings_are_sentences(folder):
    np.save(folder / "noise.npy", np.random.default_rng(0).poisson(9, (4, 40, 40)))
    result = run("localize", "noise.npy", "-o", "a.csv", "--json")
    assert "noise.npy: the image does not show the PSF's σ" in result.stderr
    assert len(json.loads(result.stdout)["files"][0]["warnings"]) == 1
    assert run("localize", "noise.npy", "-o", "a.csv", "-q").output == ""


def test_info():
    about = json.loads(run("info", "--json").stdout)
    assert about["version"] == napari_spotfit.__version__
    assert about["cpu"].startswith("CPU")
    assert about["tables"][".parquet"]
    assert about["images"][".tif"]
    assert "runs on:" in run("info").stdout


def test_convert(folder, movies):
    localize(movies[0]).save("a.spots.parquet")
    run("convert", "a.spots.parquet", "a.spots.csv")
    assert_same(load_fits("a.spots.csv"), localize(movies[0]))
    result = run("convert", "a.npy", "b.csv", code=1)
    assert "must end in" in result.stderr


def test_convert_to_another_program(folder, movies):
    fits = localize(movies[0], errors=False)
    fits.save("a.spots.csv")
    result = run("convert", "a.spots.csv", "theirs.csv", "--to", "thunderstorm", code=1)
    assert "pass --pixel-size … in nm" in result.stderr
    there = run("convert", "a.spots.csv", "theirs.csv", "--to", "thunderstorm", "--pixel-size", 100)
    assert "theirs.csv: " in there.stderr
    run("convert", "theirs.csv", "back.napari.csv", "--pixel-size", 100)
    back = load_fits("back.napari.csv")
    np.testing.assert_allclose(back.y, fits.y, atol=1e-5)
    np.testing.assert_allclose(back.x, fits.x, atol=1e-5)


@pytest.mark.parametrize("format", EXCHANGE)
def test_tables_of_other_programs_are_converted(format, folder, movies):
    ending = EXCHANGE[format].suffix
    run("localize", "a.npy", "-o", f"out{ending}", "--sigma", 1.3, "--pixel-size", 100)
    run("localize", "a.npy", "-o", "ours.spots.csv", "--sigma", 1.3)
    ours = load_fits("ours.spots.csv")
    found = load_fits(f"out{ending}", pixel_size=100)
    np.testing.assert_allclose(found.y, ours.y, atol=1e-5)
    np.testing.assert_allclose(found.x, ours.x, atol=1e-5)
    assert found.frame.tolist() == ours.frame.tolist()
    beside = {"out.yaml"} if format == "picasso" else set()
    names = {path.name for path in Path().iterdir() if path.name.startswith(("out", ".out"))}
    assert names == {f"out{ending}", *beside}
    if format == "picasso":
        info = read(f"out{ending}").about
        assert info.image == {"shape": list(movies[0].shape)}
        assert info.layer["scale"][-2:] == [0.1, 0.1]


def test_tables_of_other_programs_of_each_file(folder, movies):
    given = ("a.npy", "b.npy", "-o", "out", "--format", "_locs.hdf5", "--sigma", 1.3)
    run("localize", *given)
    assert len(load_fits("out/a.npy_locs.hdf5"))
    assert "kept from an earlier run" in run("localize", *given).stderr


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (("a.npy", "-o", "a.thunderstorm.csv"), "pass --pixel-size … in nm"),
        (("a.npy", "b.npy", "-o", "all.hdf5"), "cannot store their names"),
        (("a.npy", "-o", "a.hdf5"), "“a.yaml”, which would accompany it"),
        (("a.npy", "-o", "a.xlsx"), "must end in .parquet or .csv, or in .hdf5"),
    ],
)
def test_tables_that_cannot_be_written_are_refused_before(given, words, folder, movies):
    Path("a.yaml").write_text("Frames: 8\n")
    result = run("localize", *given, code=2)
    assert words in " ".join(result.stderr.split())
    assert not Path("a.hdf5").exists()


@pytest.mark.parametrize("name", ["movie.tif", "movie.npy"])
def test_simulate(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run("simulate", name, "--frames", 3, "--size", "40x50", "--seed", 5, "--truth", "truth.csv")
    movie, truth = simulate_movie(3, (40, 50), seed=5)
    assert np.array_equal(napari_spotfit.open_image(name), movie)
    pd.testing.assert_frame_equal(pd.read_csv("truth.csv"), truth)
    run("simulate", "movie.avi", code=2)
    assert "--size" in run("simulate", name, "--size", "big", code=2).output


@pytest.mark.parametrize(
    ("truth", "words"),
    [("movie.tif", "must be two files"), ("./movie.tif", "two files"), ("t.xlsx", "end in .csv")],
)
def test_true_spots_do_not_overwrite_the_movie(truth, words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = run("simulate", "movie.tif", "--frames", 2, "--truth", truth, code=2)
    assert words in " ".join(result.stderr.replace("│", "").split())
    assert not list(tmp_path.iterdir())


def test_labels_make_a_table_of_cells(folder, movies):
    cells = np.zeros((48, 56), np.uint8)
    cells[:, 20:] = 5
    np.save(folder / "a_cells.npy", cells)
    np.save(folder / "b_cells.npy", cells[:40])
    result = run("localize", "?.npy", "-o", "out", "--labels", "_cells.npy", "--json", code=1)
    assert "the mask “b_cells.npy” has 40×56 pixels, “b.npy” 8×48×56" in result.stderr
    first = json.loads(result.stdout)["files"][0]
    assert (first["state"], first["cells"]) == ("done", "out/a.npy.cells.csv")
    fits = localize(movies[0])
    expected = napari_spotfit.per_label(fits[fits.good], cells)
    pd.testing.assert_frame_equal(pd.read_csv("out/a.npy.cells.csv"), expected)
    label = napari_spotfit.label_spots(fits, cells)
    np.testing.assert_array_equal(load_fits("out/a.npy.spots.parquet").label, label)


def test_what_is_complete_is_kept(folder):
    arguments = ("localize", "a.npy", "b.npy", "-o", "out", "--workers", 2)
    run(*arguments)
    assert run(*arguments).stderr.count("kept from an earlier run") == 2
    assert "kept" not in run(*arguments, "--fresh").stderr
    result = run("localize", "a.npy", "b.npy", "-o", "a.csv", "--workers", 2, code=2)
    assert "choose a folder" in " ".join(result.stderr.replace("│", "").split())


def test_benchmark():
    arguments = ("benchmark", "--roi-size", 7, "--roi-size", 9, "--seconds", 0.01)
    result = run(*arguments, "--backend", "cpu")
    assert "On CPU" in result.stdout
    assert "Gpufit" in result.stdout
    row = next(line for line in result.stdout.splitlines() if "7×7" in line).split()
    assert float(row[1]) > 0.01
    assert row[2:] == ["10.5", "11.1", "0.26"]
    about = json.loads(run(*arguments, "--json").stdout)
    assert set(about["million_fits_per_second"]) == {"7", "9"}
    assert about["published"]["Gpufit"]["9"] == 8.2
    assert "H200" in about["source"]


def test_benchmark_without_a_gpu(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "-1")
    assert "GPU" in run("benchmark", "--backend", "cuda", code=1).stderr


def test_demo_without_a_display(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(sys, "platform", "linux")
    result = run("demo")
    assert "so the demo is written as files" in result.stderr
    movie, fits = np.load("demo.npy"), load_fits("demo.spots.csv")
    assert movie.shape == (60, 256, 256)
    assert f"{len(fits)} spots, {fits.good.sum()} of them good" in result.stdout
    assert fits.good.sum() > 2000


@pytest.mark.skipif(
    sys.platform == "linux" and not os.environ.get("DISPLAY"), reason="there is no display"
)
def test_demo_in_a_window(tmp_path, monkeypatch):
    """The window opens, and the sample's spots are fitted; then it is closed."""
    pytest.importorskip("napari")
    for name in ("HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME"):  # so that it leaves nothing behind
        monkeypatch.setenv(name, str(tmp_path))
    program = """
import napari
from qtpy.QtCore import QTimer
from napari_spotfit.command_line.main import main
run = napari.run
def look():
    viewer = napari.current_viewer()
    if "molecules spots" in viewer.layers:
        print(len(viewer.layers["molecules spots"].data), flush=True)
        viewer.close()
def watched():
    timer = QTimer(interval=50)
    timer.timeout.connect(look)
    timer.start()
    run()
napari.run = watched
main(["demo"], standalone_mode=False)
"""
    process = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, encoding="utf-8", timeout=120
    )
    assert int(process.stdout.split()[0]) > 2000, process.stderr
