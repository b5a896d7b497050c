"""Commands on tables of fits: merging, drift, precision."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
import tifffile
from blinking import blinking, molecules_of, table_of
from click.testing import CliRunner

from napari_spotfit import (
    SpotFits,
    estimate_drift,
    load_drift,
    load_fits,
    load_parts,
    localize_to_folder,
    merge_blinks,
    nena,
    render,
    simulate_movie,
)
from napari_spotfit.command_line.main import main
from napari_spotfit.files.formats import FormatWarning
from napari_spotfit.localization import stored


def run(*words: object) -> str:
    result = CliRunner().invoke(main, [str(word) for word in words])
    assert result.exit_code == 0, result.output
    return result.output


def refused(*words: object) -> str:
    result = CliRunner().invoke(main, [str(word) for word in words])
    assert result.exit_code not in (0, None)
    assert isinstance(result.exception, SystemExit)
    return result.output


@pytest.fixture
def blinks(tmp_path: Path) -> Path:
    path = tmp_path / "blinks.spots.csv"
    table_of([0, 1, 3, 4], [5, 5, 5, 9], [5, 5, 5, 9]).save(path)
    return path


def test_merge(blinks: Path, tmp_path: Path) -> None:
    output, members = tmp_path / "events.spots.parquet", tmp_path / "members.spots.csv"
    text = run("merge", blinks, "-o", output, "--members", members, "--max-dark-frames", 1)
    assert "2 events of 4 spots" in text
    assert load_fits(members).parent.tolist() == [0, 0, 0, 1]
    events, expected = load_fits(output), merge_blinks(load_fits(blinks))
    assert events.history == expected.history
    for name, values in expected.columns.items():
        assert np.array_equal(events.columns[name], values, equal_nan=values.dtype.kind == "f")


def test_merge_says_what_is_wrong(blinks: Path, tmp_path: Path) -> None:
    output = tmp_path / "events.spots.csv"
    assert "needs a radius" in refused("merge", blinks, "-o", output, "--rule", "picasso")
    run("merge", blinks, "-o", output)
    assert "merged before" in refused("merge", output, "-o", tmp_path / "again.spots.csv")


@pytest.fixture(scope="module")
def drifting(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a table of 200 molecules that drift by 1 px along y."""
    rng = np.random.default_rng(0)
    molecule, frame = rng.integers(0, 200, 10_000), np.sort(rng.integers(0, 1000, 10_000))
    y, x = rng.uniform(0, 40, (2, 200))[:, molecule] + rng.normal(0, 0.1, (2, 10_000))
    path = tmp_path_factory.mktemp("drifting") / "drifting.spots.parquet"
    table_of(frame, y + frame / 1000, x).save(path)
    return path


@pytest.mark.parametrize("method", ["aim", "rcc"])
def test_drift_without_markers(drifting: Path, tmp_path: Path, method: str) -> None:
    still, curve = tmp_path / "still.spots.csv", tmp_path / "a.drift.csv"
    text = run("drift", drifting, "--method", method, "-o", still, "--save-drift", curve)
    assert "molecules of a segment" in text
    found = load_drift(curve)
    assert found.y[-1] == pytest.approx(1, abs=0.05)
    assert load_fits(still).history[0].name == "subtract_drift"
    if method == "aim":
        assert np.allclose(found.y, estimate_drift(load_fits(drifting)).y)


def test_drift_says_what_is_wrong(blinks: Path, tmp_path: Path) -> None:
    text = refused("drift", blinks, "--method", "aim", "-o", tmp_path / "a.spots.csv")
    assert "4 of 4 fits" in text


def test_precision(tmp_path: Path) -> None:
    frame, molecule = blinking(500, 1000, 3.0, 100.0).rows()
    places = np.random.default_rng(0).uniform(0, 30, (500, 2))
    path = tmp_path / "blinks.spots.parquet"
    molecules_of(places, frame, molecule, 0.1).save(path)
    text = run("precision", path, "--pixel-size", 100)
    assert (
        re.search(r"precision 0\.(10|09)\d* px, (10|9)\.?\d* nm", text)
        or "precision 0.1 px" in text
    )
    assert "times as much as their standard errors say" in text
    assert "resolution" in text
    text = run("precision", path, "--json", "--pixel-size", 100)
    numbers = json.loads(text[text.index("{") : text.rindex("}") + 1])
    assert numbers["precision"] == pytest.approx(0.1, rel=0.03)
    assert numbers["kappa"] == pytest.approx(1, abs=0.03)
    assert numbers["resolution"] > 0
    for name in ("precision", "y", "x", "resolution", "resolution_stderr"):
        assert numbers[f"{name}_nm"] == pytest.approx(100 * numbers[name])


def test_the_precision_of_few_spots_is_known_without_their_resolution(tmp_path: Path) -> None:
    frame, molecule = np.divmod(np.arange(200), 40)
    places = np.random.default_rng(0).uniform(0, 60, (40, 2))
    path = tmp_path / "few.spots.parquet"
    molecules_of(places, frame, molecule, 0.1).save(path)
    text = run("precision", path, "--json", "--pixel-size", 100)
    assert re.search(r"the resolution is not known: \d+ of \d+ fits are good and have pos", text)
    numbers = json.loads(text[text.index("{") : text.rindex("}") + 1])
    assert numbers["precision"] == pytest.approx(0.1, rel=0.15)
    assert numbers["precision_nm"] == pytest.approx(100 * numbers["precision"])
    for name in ("resolution", "resolution_stderr", "resolution_nm"):
        assert numbers[name] is None
    events = tmp_path / "events.spots.parquet"
    merge_blinks(load_fits(path)).save(events)
    assert "at least 100 are needed" in refused("precision", events)


def test_precision_says_what_is_wrong(blinks: Path) -> None:
    assert "pairs of spots" in refused("precision", blinks)
    text = refused("precision", blinks, "--json")
    assert "pairs of spots" in json.loads(text[text.index("{") : text.rindex("}") + 1])["error"]


@pytest.mark.parametrize(
    ("command", "option", "ending"),
    [("merge", "--members", "spots.csv"), ("drift", "--save-drift", "csv")],
)
def test_outputs_do_not_replace_each_other(
    blinks: Path, tmp_path: Path, command: str, option: str, ending: str
) -> None:
    before, output = blinks.read_bytes(), tmp_path / f"out.{ending}"
    text = refused(command, blinks, "-o", output, option, tmp_path / "." / output.name)
    assert f"{option} would be written over -o" in text
    text = refused(command, blinks, "-o", output, option, blinks)
    assert f"{option} would be written over the input" in text
    text = refused(command, blinks, "-o", blinks)
    assert "-o would be written over the input" in text
    assert not output.exists()
    assert blinks.read_bytes() == before


@pytest.mark.parametrize("more", [("--method", "aim"), ("--segment", 5), ("--memory", 5)])
def test_a_known_drift_needs_no_method(blinks: Path, tmp_path: Path, more: tuple[str, int]) -> None:
    known = tmp_path / "a.csv"
    known.write_text("")
    assert f"{more[0]} says how" in refused(
        "drift", blinks, "--drift", known, *more, "-o", tmp_path / "o.csv"
    )


@pytest.mark.parametrize("command", [("merge",), ("drift", "--drift")])
def test_picassos_image_is_kept(blinks: Path, tmp_path: Path, command: tuple[str, ...]) -> None:
    pytest.importorskip("h5py")
    source, output = tmp_path / "a.hdf5", tmp_path / "b.hdf5"
    with pytest.warns(FormatWarning):
        load_fits(blinks).save(source, pixel_size=130.0, shape=(50, 256, 512))
    known = tmp_path / "d.csv"
    known.write_text("frame,y,x,y_stderr,x_stderr,used\n" + "".join(
        f"{frame},0,0,0,0,1\n" for frame in range(50)
    ))  # fmt: skip
    more = [known] if len(command) > 1 else []
    run(command[0], source, *command[1:], *more, "-o", output)
    info = json.loads(output.with_suffix(".yaml").read_text().split("\n---\n")[0])
    kept = [info[name] for name in ("Frames", "Height", "Width", "Pixelsize")]
    assert kept == [50, 256, 512, 130.0]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder of parts, of a movie whose frames come in threes, and again."""
    movie, _ = simulate_movie(10, shape=(64, 64), spots_per_frame=9, photons=4000, seed=1)
    movie = np.tile(np.repeat(movie, 3, axis=0), (4, 1, 1))
    movie = np.random.default_rng(0).poisson(movie).astype(np.uint16)
    monkeypatch.setattr(stored, "_PART_BYTES", 25 * movie[0].nbytes)
    localize_to_folder(movie, tmp_path / "parts", sigma=1.3)
    return tmp_path / "parts"


def test_folders_of_parts(folder: Path, tmp_path: Path) -> None:
    whole = SpotFits.concatenate(list(load_parts(folder)))
    events, still = tmp_path / "events.spots.parquet", tmp_path / "still.spots.parquet"
    text = run("merge", folder, "-o", events)
    assert len(load_fits(events)) == len(merge_blinks(whole)) < 0.6 * len(whole)
    assert f"{len(merge_blinks(whole))} events of the parts in" in text
    known = tmp_path / "d.csv"
    known.write_text("frame,y,x,y_stderr,x_stderr,used\n" + "".join(
        f"{frame},0.5,0,0,0,1\n" for frame in range(120)
    ))  # fmt: skip
    run("drift", folder, "--drift", known, "-o", still)
    assert np.array_equal(load_fits(still).y, whole.y - 0.5)
    picture = tmp_path / "a.tif"
    text = run("render", folder, "-o", picture, "--shape", 64, 64, "--by", 0.2)
    assert f"{np.count_nonzero(whole.accepted)} localisations, 640 × 640 pixels" in text
    expected = render(whole[whole.accepted], 10, shape=(64, 64), by=0.2)
    np.testing.assert_allclose(tifffile.imread(picture), expected, atol=1e-5 * expected.max())
    text = run("precision", folder, "--json")
    numbers = json.loads(text[text.index("{") : text.rindex("}") + 1])
    assert numbers["precision"] == nena(whole).precision


def test_what_folders_of_parts_cannot_do(folder: Path, tmp_path: Path) -> None:
    output = tmp_path / "o.spots.csv"
    assert "--members needs a table" in refused(
        "merge", folder, "-o", output, "--members", tmp_path / "m.spots.csv"
    )
    assert "parts need --method" in refused("drift", folder, "-o", output)
    assert "without --colour-by" in refused(
        "render", folder, "-o", tmp_path / "a.tif", "--shape", 64, 64, "--colour-by", "frame"
    )
    assert "would be written over the input" in refused("merge", folder, "-o", folder)
    empty = tmp_path / "empty"
    empty.mkdir()
    assert "is a directory without the parts of a table" in refused("merge", empty, "-o", output)
    next(folder.glob("part-*.parquet")).unlink()
    assert "is not complete" in refused("precision", folder)
    assert not output.exists()
