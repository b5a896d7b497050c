"""Wrong options of every command: exit code 2 and a message, also as JSON."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest
from commands import run

from napari_spotfit import localize, simulate_movie


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("simulate m.tif --sigma -1", "sigma must be a finite number above 0"),
        ("simulate m.tif --photons nan", "photons must be"),
        ("drift a.spots.csv -o b.spots.csv --least-share 3", "--least-share"),
        ("drift a.spots.csv -o b.spots.csv --memory -1", "--memory"),
        ("drift a.spots.csv -o b.spots.csv --max-distance nan", "must be a finite number"),
        ("drift . -o b.spots.csv", "is a directory"),
        ("convert . b.spots.csv", "is a directory"),
        ("convert a.spots.csv b.txt", "must end in .spots.parquet"),
        ("convert a.spots.csv b.csv --pixel-size -1", "--pixel-size"),
        ("benchmark --seconds nan", "must be a finite number"),
        ("localize a.npy -o a.spots.csv/b", "cannot be created (Not a directory): choose"),
        ("localize a.npy -o file", "“file” is a file, but has no name of a table"),
    ],
)
def test_what_was_asked_for_wrongly_is_said(arguments, words, folder, movies):
    localize(movies[0], sigma=1.3).save("a.spots.csv")
    (folder / "file").touch()
    before = sorted(folder.iterdir())
    result = run(*arguments.split(), code=2)
    assert words in " ".join(result.stderr.replace("│", "").split())
    assert "Errno" not in result.stderr
    assert sorted(folder.iterdir()) == before


@pytest.mark.parametrize(
    "arguments", ["a.npy", "a.npy -o a.csv --roi-size 8", "a.npy -o a.csv --sigma wide"]
)
def test_programs_read_what_was_asked_for_wrongly(arguments, folder):
    result = run("localize", *arguments.split(), "--json", code=2)
    error = json.loads(result.stdout)["error"]
    assert error
    assert error.split()[-1] in result.stderr


@pytest.mark.parametrize("shape", [(48, 56), (2, 4, 48, 56)])
def test_frames_are_chosen_of_movies_alone(shape, folder, movies):
    np.save("c.npy", movies[0].reshape(-1)[: np.prod(shape)].reshape(shape))
    result = run("localize", "c.npy", "-o", "c.spots.csv", "--frames", ":1", code=1)
    assert "leave the choice of frames out" in result.stderr


def test_cells_of_an_earlier_run_are_not_removed_silently(folder):
    np.save("a_cells.npy", np.ones((48, 56), np.uint8))
    run("localize", "a.npy", "-o", "a.spots.csv", "--labels", "_cells.npy")
    assert (folder / "a.cells.csv").exists()
    result = run("localize", "a.npy", "-o", "a.spots.csv")
    assert "“a.cells.csv”, were removed" in result.stderr
    assert not (folder / "a.cells.csv").exists()
    assert "cells" not in run("localize", "a.npy", "-o", "a.spots.csv").stderr


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such names")
@pytest.mark.parametrize("name", ["a\x1b[2J.npy", "a\nError: all is well.npy", "a\u202egpj.npy"])
def test_names_of_files_move_nothing_in_a_terminal(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    movie = simulate_movie(2, shape=(48, 56), spots_per_frame=3, photons=3000, seed=1)[0]
    np.save(name, movie)
    Path(f"{name}.spots.csv").write_text("nothing")
    odd = next(one for one in name if not one.isprintable())
    for given, code in (
        (("localize", name, "-o", "out", "--sigma", 1.3), 0),
        (("convert", f"{name}.spots.csv", "b.spots.csv"), 1),
        (("localize", f"{name}*", "-o", f"{name}.xlsx"), 2),
        (("simulate", f"{name}.tif", "--frames", 1, "--size", "32x32"), 0),
    ):
        output = run(*given, code=code).stderr
        assert odd.encode("unicode_escape").decode() in output
        assert odd == "\n" or odd not in output
        assert "\nError: all is well" not in output
