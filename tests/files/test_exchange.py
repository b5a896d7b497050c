"""Files of other programs are read right, and written files are readable for them."""

from __future__ import annotations

import json
import warnings
import zipfile
from importlib.util import find_spec

import h5py
import numpy as np
import pytest
import real_files
from exchange_cases import SIZE, WRITTEN, localised
from volume_fits import fits_in_volumes

from napari_spotfit import (
    FormatWarning,
    Settings,
    SpotFits,
    StopCondition,
    link_spots,
    load_fits,
)
from napari_spotfit.files.exchange import hdf5
from napari_spotfit.files.exchange.image_info import size_of_layer
from napari_spotfit.files.exchange.registry import EXCHANGE
from napari_spotfit.files.formats import write
from napari_spotfit.files.table import UnreadableFileError
from napari_spotfit.models import calibration

FOREIGN = real_files.FOLDER / "formats"
#: Tolerance of positions after a round trip, in single precision of pixels or nm.
SINGLE = {"picasso": 1e-5, "decode": 1e-5, "smlm": 1e-5}


def saved(fits, path, format=None, **options):
    """Save and load, ignoring the usual warning."""
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        fits.save(path, format, **{"pixel_size": SIZE} | options)
    assert len(warned) <= 1
    assert all(one.category is FormatWarning and one.filename == __file__ for one in warned)
    return load_fits(path, format, pixel_size=SIZE), "".join(str(one.message) for one in warned)


@pytest.mark.parametrize("name", EXCHANGE)
@pytest.mark.parametrize("rows", [0, 1, 40])
def test_what_is_written_comes_back(tmp_path, name, rows):
    fits = localised()[:rows]
    path = tmp_path / f"a{EXCHANGE[name].suffix}"
    found, message = saved(fits, path)
    assert len(found) == rows
    for axis in ("y", "x"):
        np.testing.assert_allclose(
            found.columns[axis], fits.columns[axis], rtol=0, atol=SINGLE.get(name, 1e-12)
        )
    both = set(found.columns) & set(fits.columns)
    lost = set(fits.columns) - both
    assert {"frame", "y", "x"} <= both
    named = {"stop_condition"} & set(message.replace(",", "").split())
    for column in both - {"y", "x"} - named:
        assert found.columns[column].dtype == fits.columns[column].dtype, column
        if column not in ("x_stderr", "y_stderr") or "become one" not in message:
            np.testing.assert_allclose(
                found.columns[column], fits.columns[column], rtol=3e-7, err_msg=column
            )
    # All losses are named.
    assert all(column in message for column in lost), message
    names = [file.name for file in tmp_path.iterdir()]
    assert not any(one.endswith(".part") for one in names)


@pytest.mark.parametrize("name", EXCHANGE)
def test_the_name_of_a_format_goes_before_that_of_the_file(tmp_path, name):
    fits = localised()
    found, _ = saved(fits, tmp_path / "spots.txt", name)
    assert len(found) == len(fits)


@pytest.mark.parametrize("name", ["picasso", "smlm", "napari", "plain"])
def test_elliptical_spots_come_back_with_everything(tmp_path, name):
    rng = np.random.default_rng(1)
    made = {n: rng.uniform(1, 2, 40).astype(np.float32) for n in ("sigma_x", "sigma_y", "score")}
    columns = localised().columns
    del columns["sigma"]
    fits = SpotFits(columns | made, ("frame",), Settings(gain=1.0, model="gaussian_elliptical"))
    found, message = saved(fits, tmp_path / f"a{EXCHANGE[name].suffix}", pixel_size=100)
    assert not message
    assert set(found.columns) == set(fits.columns)
    found = load_fits(tmp_path / f"a{EXCHANGE[name].suffix}", pixel_size=100)
    np.testing.assert_allclose(found.sigma_y, fits.sigma_y, rtol=3e-7)


@pytest.mark.parametrize("name", WRITTEN)
def test_known_spots_are_at_their_places(tmp_path, name):
    text, known = WRITTEN[name]
    path = tmp_path / "a.csv"  # recognised by content
    path.write_text(text, encoding="utf-8")
    found = load_fits(path, pixel_size=SIZE)
    for column, value in known.items():
        np.testing.assert_allclose(found.columns[column][0], value, rtol=1e-6, atol=1e-12)
    assert found.converged[0] == found.judged[0] == ("stop_condition" in known)
    # A byte order mark and Windows' line ends do not matter.
    path.write_bytes(b"\xef\xbb\xbf" + text.replace("\n", "\r\n").encode())
    assert load_fits(path, name, pixel_size=SIZE).x.tolist() == found.x.tolist()


def test_thunderstorms_titles_of_later_versions_and_of_spreadsheets(tmp_path):
    text, known = WRITTEN["thunderstorm"]
    titles, rows = text.split("\n", 1)
    for changed in (
        titles.replace("uncertainty [nm]", "uncertainty_xy [nm]"),
        '"' + titles.replace('"', '""').replace('""id""', "id") + '"',
    ):
        (tmp_path / "a.csv").write_text(f"{changed}\n{rows}", encoding="utf-8")
        found = load_fits(tmp_path / "a.csv", pixel_size=SIZE)
        assert found.x_stderr[0] == np.float32(known["x_stderr"])
        assert found.units["photons"] == "photons"


def test_what_picasso_gets(tmp_path):
    fits = localised(4, sigma_stderr=np.array([0.1, np.nan, 0.1, 0.1], np.float32))
    fits.y[0], fits.x[1], fits.x_stderr[2] = -0.2, 100.0, np.nan
    found, message = saved(fits, tmp_path / "a.hdf5", shape=(20, 64, 90), pixel_size=100)
    assert "3 rows that Picasso will drop when it opens the file: " in message
    for why in ("no lpx", "y < 0", "x ≥ Width", "1 row with −1 for unknown values: sx_unc"):
        assert why in message
    # Here, nothing is dropped, and what was not known is not known again.
    np.testing.assert_allclose(found.y, fits.y, atol=1e-5)
    np.testing.assert_array_equal(np.isnan(found.sigma_stderr), np.isnan(fits.sigma_stderr))
    with h5py.File(tmp_path / "a.hdf5") as file:
        rows = file["locs"][:]
    assert rows["frame"].dtype == "u4"
    assert rows["x"].dtype == rows["lpx"].dtype == "f4"
    assert rows["sx"].tolist() == rows["sy"].tolist() == fits.sigma.tolist()
    assert not rows["ellipticity"].any()
    text = (tmp_path / "a.yaml").read_text(encoding="utf-8")
    assert all(line in text for line in ('"Width": 90', '"Frames": 20', '"Pixelsize": 100.0'))


@pytest.mark.parametrize("name", ["thunderstorm", "smap", "smlm"])
def test_nanometres_need_the_size_of_a_pixel(tmp_path, name):
    fits, path = localised(), tmp_path / f"a{EXCHANGE[name].suffix}"
    with pytest.raises(ValueError, match=r"cannot be written: .*pixel_size=… in nm.*scale"):
        fits.save(path)
    assert not list(tmp_path.iterdir())
    saved(fits, path)
    with pytest.raises(ValueError, match=r"cannot be opened as .*: .*pixel_size=… in nm"):
        load_fits(path)


@pytest.mark.parametrize(
    ("scale", "units", "size"),
    [
        ((1, 0.1, 0.2), ("pixel", "micrometer", "µm"), (100.0, 200.0)),
        ((65, 65), ("nanometer", "nm"), (65.0, 65.0)),
        ((1, 1), ("pixel", "pixel"), None),
    ],
)
def test_a_layers_scale_is_the_size_of_a_pixel(tmp_path, scale, units, size):
    from dataclasses import replace

    assert size_of_layer(scale, units) == size
    table = localised().to_table()
    about = replace(table.about, layer={"scale": scale, "units": units})
    made, path = type(table)(table.columns, about), tmp_path / "a.trackmate.csv"
    with pytest.warns(FormatWarning, match="no place for"):
        write(path, made)
    assert ("(micron)" in path.read_text(encoding="utf-8")) == (size is not None)


@pytest.mark.parametrize(
    ("size", "error"), [(0, ValueError), ("wide", TypeError), ((1, 2, 3), ValueError)]
)
def test_sizes_that_are_none(tmp_path, size, error):
    with pytest.raises(error, match="pixel_size must be nm"):
        localised().save(tmp_path / "a.smap.csv", pixel_size=size)


def test_counts_are_distinguished_from_photons(tmp_path):
    fits = localised()
    counts = SpotFits(fits.columns, ("frame",), Settings())
    assert "light is in counts" in saved(counts, tmp_path / "a.hdf5")[1]
    gained = SpotFits(fits.columns, ("frame",), Settings(gain=2.0))
    found, message = saved(gained, tmp_path / "b.hdf5")
    assert "counts" not in message
    np.testing.assert_array_equal(found.background, fits.background / 2)
    np.testing.assert_array_equal(found.photons, fits.photons)
    # Photons stay photons.
    assert "counts" not in saved(found, tmp_path / "c.hdf5")[1]
    with pytest.raises(ValueError, match="different units cannot be joined"):
        SpotFits.concatenate([found, SpotFits(found.columns, ("frame",))])


@pytest.mark.parametrize("name", EXCHANGE)
def test_z_of_another_program_stays_in_nm(tmp_path, name):
    z = np.linspace(-300, 250, 40)
    fits = localised(z=z, z_stderr=np.linspace(9, 30, 40).astype(np.float32))
    fits = SpotFits(fits.columns, ("frame",), None, units={"z": "nm", "z_stderr": "nm"})
    found, message = saved(fits, tmp_path / f"a{EXCHANGE[name].suffix}")
    if name in ("bigfish", "rsfish", "trackmate"):
        assert "z" not in found
        assert "z, z_stderr" in message
    else:
        np.testing.assert_allclose(found.z, z, rtol=1e-6)
        assert found.units["z"] == "nm"
        assert ("z_stderr" in found) != ("z_stderr" in message)
        assert found.units.get("z_stderr", "nm") == "nm"
    if name == "smlm":
        with zipfile.ZipFile(tmp_path / "a.smlm") as file:
            (kind,) = json.loads(file.read("manifest.json"))["formats"].values()
        units = dict(zip(kind["headers"], kind["units"], strict=True))
        assert units["z"] == units["z_precision"] == "nm"


@pytest.mark.parametrize("name", EXCHANGE)
def test_z_in_planes_is_never_taken_for_nm(tmp_path, name):
    fits, path = fits_in_volumes(), tmp_path / f"a{EXCHANGE[name].suffix}"
    found, message = saved(fits, path)
    assert "z" not in found or not found.z.any()
    for axis in ("y", "x"):
        np.testing.assert_allclose(found.columns[axis], fits.columns[axis], atol=1e-5)
    if name == "bigfish":
        np.testing.assert_array_equal(found.z_px, fits.z)
        assert "frame" in message
    elif name == "napari":
        np.testing.assert_array_equal(found.z_px, fits.z)
        assert found.index_names == fits.index_names
    elif "z_px" in found:
        np.testing.assert_allclose(found.z_px, fits.z, rtol=1e-6)
    else:
        assert "z_px" in message


@pytest.mark.parametrize("leading", [(), ("frame",), ("axis_0", "frame")], ids=len)
@pytest.mark.parametrize("rounded", [False, True])
def test_napari_points_in_volumes_come_back(tmp_path, leading, rounded):
    fits = fits_in_volumes(12)
    columns = {name: values for name, values in fits.columns.items() if name != "frame"}
    columns |= {name: np.arange(12) % 3 for name in leading}
    if rounded:
        columns["z"] = np.rint(columns["z"])
    fits = SpotFits(columns, leading, fits.settings)
    found, _ = saved(fits, tmp_path / "a.napari.csv")
    assert found.index_names == leading
    for name in (*leading, "y", "x", "sigma_z"):
        np.testing.assert_array_equal(found.columns[name], fits.columns[name])
    np.testing.assert_array_equal(found.z_px, fits.z)
    again, _ = saved(found, tmp_path / "b.napari.csv")
    np.testing.assert_array_equal(again.z_px, fits.z)
    assert again.index_names == leading


def test_rows_without_a_place_are_counted(tmp_path):
    fits = localised()
    fits.x[3] = np.nan
    found, message = saved(fits, tmp_path / "a.plain.csv")
    assert len(found) == len(fits) - 1
    assert "1 row without a position left out" in message


def without_pyarrow(monkeypatch):
    from napari_spotfit.files import csv_file

    monkeypatch.setattr(csv_file, "find_spec", lambda name: None)


@pytest.mark.parametrize("name", ["thunderstorm", "trackmate", "napari"])
def test_the_same_is_written_without_pyarrow(tmp_path, name, monkeypatch):
    fits = localised(photons=np.full(40, np.nan, np.float32))
    first, _ = saved(fits, tmp_path / "a", name)
    without_pyarrow(monkeypatch)
    second, _ = saved(fits, tmp_path / "b", name)
    for column, values in first.columns.items():
        np.testing.assert_array_equal(values, second.columns[column])
    if name == "thunderstorm":
        assert b",NaN," in (tmp_path / "a").read_bytes()


def test_hdf5_without_h5py_says_what_to_install(tmp_path, monkeypatch):
    saved(localised(), tmp_path / "a.hdf5")
    monkeypatch.setattr(calibration, "find_spec", lambda name: None)
    monkeypatch.setattr(hdf5, "find_spec", lambda name: None)
    for call in (localised().save, load_fits):
        with pytest.raises(ImportError, match=r"napari-spotfit\[hdf5\]"):
            call(tmp_path / "a.hdf5")
    assert find_spec("h5py")


@pytest.mark.real_files
@pytest.mark.parametrize(
    ("file", "rows", "first"),
    [
        ("Thunderstorm_dstorm_data.csv", 19, (2000, 262.947124618434, 12.70109670647555)),
        ("SMLM_dstorm_data.smlm", 10, (0, 88.293396, 16.0333992)),
        ("decode_dstorm_data.h5", 96, (294, -0.14920829, 138.894745)),
        ("decode_dstorm_data_empty.h5", 0, ()),
        ("picasso_raw_movie_locs.hdf5", 2399, (2, 23.390852, 25.577694)),
    ],
)
def test_real_files_of_other_programs(file, rows, first):
    if not (FOREIGN / file).exists():
        pytest.skip(f"needs the file {file}")
    found = load_fits(FOREIGN / file, pixel_size=100)
    assert len(found) == rows
    assert found.accepted.all()
    for mask in (found.good, found.converged, found.judged):
        assert not mask.any()
    if rows:
        np.testing.assert_allclose([found.frame[0], found.y[0], found.x[0]], first, rtol=1e-6)


@pytest.mark.real_files
@pytest.mark.parametrize("file", ["Nanoimager_dstorm_data.csv", "starfish_decoded.csv"])
def test_real_files_that_are_not_known(file):
    if not (FOREIGN / file).exists():
        pytest.skip(f"needs the file {file}")
    with pytest.raises(UnreadableFileError, match="does not begin like any known format"):
        load_fits(FOREIGN / file)


def test_the_documentation_has_every_format():
    from pathlib import Path

    text = (Path(__file__).parents[2] / "docs" / "formats.md").read_text(encoding="utf-8")
    for one in EXCHANGE.values():
        assert f"| `{one.name}`" in text
        assert f"`{one.suffix}`" in text
        assert one.name in load_fits.__doc__
        assert f"``{one.suffix}``" in load_fits.__doc__
    for one, convention in (("smap", 1), ("thunderstorm", 0.5)):
        row = next(line for line in text.splitlines() if line.startswith(f"| `{one}`"))
        assert f"| {convention} px |" in row


@pytest.mark.parametrize("name", ["thunderstorm", "smap", "trackmate", "bigfish", "plain"])
def test_tables_of_other_programs_get_no_verdict_that_they_do_not_have(name, tmp_path):
    path = tmp_path / "a.csv"
    path.write_text(WRITTEN[name][0], encoding="utf-8")
    found = load_fits(path, pixel_size=SIZE)
    assert found.stop_counts()[StopCondition.UNKNOWN] == len(found) > 0
    for mask in (found.good, found.converged, found.flags):
        assert not mask.any()
    assert found.valid.all()
    assert found.accepted.all()
    assert "not judged" in repr(found)
    assert not {"good", "flags"} & set(found.to_dataframe())
    # Nor does it in a file of ours, or of another program.
    found.save(tmp_path / "ours.spots.csv")
    text = (tmp_path / "ours.spots.csv").read_text(encoding="utf-8")
    assert "good" not in text.partition("# end")[0].splitlines()[-2].split(",")
    same = load_fits(tmp_path / "ours.spots.csv")
    assert same.stop_counts() == found.stop_counts()
    assert not same.good.any()
    for suffix in (".plain.csv", ".napari.csv", "_locs.hdf5"):
        other = tmp_path / f"other{suffix}"
        saved(found, other)
        assert b"stop_condition" not in other.read_bytes()
        assert not load_fits(other, pixel_size=SIZE).judged.any()


def test_spots_without_a_place_are_known_to_be_none(tmp_path):
    (tmp_path / "a.csv").write_text("frame,x,y\n0,1,2\n1,,4\n")
    assert load_fits(tmp_path / "a.csv").stop_condition.tolist() == [
        StopCondition.UNKNOWN,
        StopCondition.INVALID,
    ]


def test_spots_of_other_programs_are_linked(tmp_path):
    pytest.importorskip("trackpy")
    rows = "".join(f"{frame},10.{frame},20\n" for frame in range(5))
    (tmp_path / "a.csv").write_text(f"frame,x,y\n{rows}")
    assert link_spots(load_fits(tmp_path / "a.csv"), max_distance=2).track.tolist() == [0] * 5


@pytest.mark.parametrize("title", ["x", "photons"])
def test_a_column_that_only_sounds_like_ours_keeps_apart(tmp_path, title):
    text, _ = WRITTEN["smap"]
    lines = text.splitlines()
    (tmp_path / "a.csv").write_text(f"{lines[0]},{title}\n{lines[1]},7\n", encoding="utf-8")
    found = load_fits(tmp_path / "a.csv", pixel_size=SIZE)
    assert (found.x[0], found.photons[0]) == (0, 800)
    assert found.columns[f"{title} (in the file)"][0] == 7
