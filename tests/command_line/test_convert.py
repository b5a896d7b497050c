"""Conversion of tables: metadata of the image are kept, and rows are counted."""

from __future__ import annotations

from dataclasses import replace

import h5py
import numpy as np
import pytest
from click.testing import CliRunner
from commands import run

from napari_spotfit import FormatWarning, Settings, SpotFits, load_fits
from napari_spotfit.command_line.main import main
from napari_spotfit.files.formats import read, write
from napari_spotfit.files.table import LAYER, SpotTable, StoredColumn, UnreadableFileError

pytest.importorskip("pyarrow")


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """A folder in which commands run."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def convert(*arguments, code=0):
    return run("convert", *arguments, code=code).stderr


def spots(count=50, **more) -> SpotFits:
    rng = np.random.default_rng(0)
    columns = {
        "frame": np.arange(count) % 7,
        "y": rng.uniform(0, 30, count),
        "x": rng.uniform(0, 40, count),
        "stop_condition": np.zeros(count, np.uint8),
    }
    return SpotFits(columns | more, ("frame",), Settings(gain=1.0))


def picassos(name="a_locs") -> None:
    """Write a file with metadata of its image, beyond what its spots show."""
    spots().save(f"{name}.hdf5", pixel_size=97.3, shape=(20, 64, 90))


@pytest.mark.parametrize("over", ["", "b.spots.csv", "b.spots.parquet"])
def test_what_picasso_says_of_the_image_goes_along(folder, over):
    picassos()
    if over:
        convert("a_locs.hdf5", over)
    convert(over or "a_locs.hdf5", "c_locs.hdf5")
    about = (folder / "c_locs.yaml").read_text(encoding="utf-8")
    for line in ('"Pixelsize": 97.3', '"Frames": 20', '"Height": 64', '"Width": 90'):
        assert line in about


@pytest.mark.parametrize("ending", [".thunderstorm.csv", ".smlm", ".smap.csv"])
def test_the_size_that_a_file_has_is_not_asked_for(ending):
    picassos()
    convert("a_locs.hdf5", f"b{ending}")
    found = load_fits(f"b{ending}", pixel_size=97.3)
    np.testing.assert_allclose(found.x, load_fits("a_locs.hdf5").x, atol=1e-5)
    # The option takes precedence.
    convert("a_locs.hdf5", f"c{ending}", "--pixel-size", 200)
    found = load_fits(f"c{ending}", pixel_size=200)
    np.testing.assert_allclose(found.x, load_fits("a_locs.hdf5").x, atol=1e-5)


def test_decodes_size_goes_along():
    fits = spots()
    with pytest.warns(FormatWarning, match="stop_condition"):
        fits.save("a.decode.h5", pixel_size=(120, 100))
    convert("a.decode.h5", "b.thunderstorm.csv")
    found = load_fits("b.thunderstorm.csv", pixel_size=(120, 100))
    np.testing.assert_allclose(found.y, fits.y, atol=1e-5)
    convert("a.decode.h5", "b.decode.h5")
    with h5py.File("b.decode.h5") as file:
        assert file["meta"].attrs["px_size"].tolist() == [120, 100]


def test_a_layer_and_its_columns_stay(folder):
    """From one of our files to the other nothing is lost, what a layer had least of all."""
    table = spots().to_table()
    shown = {"layer_shown": np.arange(len(table)) % 2 == 0}
    known = {**table.about.columns, "layer_shown": StoredColumn("bool", role=LAYER)}
    layer = {"name": "spots", "scale": [1.0, 0.1, 0.1], "units": ["pixel", "µm", "µm"]}
    about = replace(table.about, columns=known, layer=layer, image={"shape": [9, 30, 40]})
    write("a.spots.parquet", SpotTable({**table.columns, **shown}, about))
    convert("a.spots.parquet", "b.spots.csv")
    before, after = read("a.spots.parquet"), read("b.spots.csv")
    assert (after.about.layer, after.about.image) == (layer, {"shape": [9, 30, 40]})
    assert set(after.columns) == set(before.columns)
    np.testing.assert_array_equal(after.columns["layer_shown"], shown["layer_shown"])
    # Files of ours have what follows from the fits as well.
    assert ",good" in (folder / "b.spots.csv").read_text(encoding="utf-8")


def test_napari_opens_what_was_converted():
    from napari_spotfit.widgets import saved_layers

    picassos()
    convert("a_locs.hdf5", "b.spots.csv")
    data, arguments, _ = saved_layers.get_reader("b.spots.csv")("b.spots.csv")[0]
    assert len(data) == 50
    assert arguments["scale"] == [1.0, 0.0973, 0.0973]


def test_rows_without_a_place_are_no_points_of_a_layer(folder):
    (folder / "a.csv").write_text("y,x\n1.5,2.5\n,\n")
    convert("a.csv", "b.spots.csv", "--pixel-size", 100)
    assert read("b.spots.csv").about.layer is None
    assert len(load_fits("b.spots.csv")) == 2


def test_rows_that_are_left_out_are_not_counted():
    fits = spots()
    fits.x[[3, 9]] = np.nan
    fits.frame[0] = -1
    fits.save("a.spots.csv")
    assert "b.plain.csv: 48 spots" in convert("a.spots.csv", "b.plain.csv")
    output = convert("a.spots.csv", "b_locs.hdf5")
    assert "1 row with a frame outside 0 to 4294967295 left out" in output
    assert "b_locs.hdf5: 47 spots" in output
    with h5py.File("b_locs.hdf5") as file:
        assert len(file["locs"]) == 47
        assert file["locs"]["frame"].max() < 7
    assert "b.spots.parquet: 50 spots" in convert("a.spots.csv", "b.spots.parquet")


def test_a_movie_whose_frames_count_from_0(folder):
    (folder / "z.csv").write_text('"frame","x [nm]","y [nm]"\n0,100,200\n1,150,250\n')
    for name in ("t_locs.hdf5", "t.smlm", "t.smap.csv", "t.rsfish.csv"):
        convert("z.csv", name, "--pixel-size", 100)
        assert load_fits(name, pixel_size=100).frame.tolist() == [0, 1]
    with h5py.File("t_locs.hdf5") as file:
        assert file["locs"]["frame"].tolist() == [0, 1]
    assert '"Frames": 2,' in (folder / "t_locs.yaml").read_text(encoding="utf-8")


def test_errors_name_the_file(folder):
    spots().save("a.spots.csv")
    output = convert("a.spots.csv", "nodir/b.spots.csv", code=1)
    assert output == "Error: “b.spots.csv” cannot be written: there is no folder “nodir”\n"
    (folder / "c.spots.csv").write_text("y;x\n")
    assert "cannot be opened" in convert("c.spots.csv", "d.spots.csv", code=1)
    with pytest.raises(UnreadableFileError):
        load_fits("c.spots.csv")


@pytest.mark.parametrize("frames", ["0", "-3", "1000000000000"])
@pytest.mark.parametrize("name", ["a.tif", "a.npy"])
def test_simulate_says_how_many_frames_there_can_be(folder, name, frames):
    result = CliRunner().invoke(main, ["simulate", name, "--frames", frames])
    output = " ".join(result.output.split())
    if frames.startswith("1"):
        assert result.exit_code == 1
        assert "not enough memory: 1000000000000 frames of 256×256 px need 1.31e+08 GB" in output
    else:
        assert result.exit_code == 2
        assert f"{frames} is not in the range x>=1" in output
    assert not [*folder.iterdir()]
