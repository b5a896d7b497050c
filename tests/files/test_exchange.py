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
from exchange_cases import SIZE, localised
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


#: Files in the other programs' own terms, and their first spots; pixels have 120 × 100 nm.
WRITTEN = {
    "thunderstorm": (
        '"id","frame","x [nm]","y [nm]","sigma [nm]","intensity [photon]","offset [photon]",'
        '"bkgstd [photon]","uncertainty [nm]"\n1.0,1.0,50.0,180.0,130.0,1000.0,10.0,3.2,12.5\n',
        {"frame": 0, "y": 1.0, "x": 0.0, "photons": 1000, "background": 10, "x_stderr": 0.125},
    ),
    "smap": (
        "ID,frame,xnm,ynm,znm,phot,bg,locprecnm \n1,2,100,360,0,800,9,12\n",
        {"frame": 1, "y": 2.0, "x": 0.0, "photons": 800, "background": 9, "y_stderr": 0.1},
    ),
    "trackmate": (
        "LABEL,ID,TRACK_ID,QUALITY,POSITION_X,POSITION_Y,POSITION_Z,POSITION_T,FRAME,RADIUS,"
        "VISIBILITY\nLabel,Spot ID,Track ID,Quality,X,Y,Z,T,Frame,Radius,Visibility\n"
        "Label,Spot ID,Track ID,Quality,X,Y,Z,T,Frame,R,Visibility\n"
        ",,,(quality),(micron),(micron),(micron),(sec),,(micron),\n"
        "ID101,101,0,12.5,1.05,2.4,0.0,0.0,0,0.25,1\nID102,102,,9,3.0,0.5,0.0,0.1,1,0.25,1\n",
        {"frame": 0, "y": 20.0, "x": 10.5, "score": 12.5, "track": 0},
    ),
    "napari": (
        "index,axis-0,axis-1,axis-2,sigma,stop_condition\n0.0,3.0,10.25,20.5,1.31,MIN_STEP\n",
        {"frame": 3, "y": 10.25, "x": 20.5, "stop_condition": StopCondition.MIN_STEP},
    ),
    "bigfish": ("3;120;87\n4;121;300\n", {"frame": 3, "y": 120, "x": 87}),
    "rsfish": (
        "x,y,z,t,c,intensity\n12.5,7.75,3.25,1,2,812.5\n",
        {"frame": 0, "y": 7.75, "x": 12.5, "z_px": 3.25, "channel": 2, "amplitude": 812.5},
    ),
    "plain": ("y,x,brightness,cell\n1.5,2.5,7,a\n", {"y": 1.5, "x": 2.5, "brightness": 7}),
}  # fmt: skip


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


@pytest.mark.parametrize("name", EXCHANGE)
@pytest.mark.parametrize("content", [b"", b"\n", bytes(range(256)), b"PK\3\4 no", b"a,b\n1,2\n"])
def test_foreign_files_are_refused(tmp_path, name, content):
    path = tmp_path / "a"
    path.write_bytes(content)
    if name == "bigfish" and not content:
        assert not len(load_fits(path, name))  # so it writes no spots
        return
    with pytest.raises(UnreadableFileError, match="“a” cannot be opened as ") as caught:
        load_fits(path, name, pixel_size=SIZE)
    assert "\n" not in str(caught.value).strip()


@pytest.mark.parametrize("name", EXCHANGE)
def test_a_file_that_was_cut_off_is_named(tmp_path, name):
    path = tmp_path / f"a{EXCHANGE[name].suffix}"
    saved(localised(), path)
    whole = path.read_bytes()
    cut = whole.rstrip().rfind(b";" if name == "bigfish" else b",")
    lines = whole[:cut].count(b"\n") + 1
    text = name not in ("picasso", "decode", "smlm")
    for share in (cut, 0.6) if text else (0.05, 0.6, 0.99):
        path.write_bytes(whole[: share if share == cut else int(share * len(whole))])
        if text and share != cut:
            continue
        with pytest.raises(UnreadableFileError, match=r"“a.* cannot be opened as ") as caught:
            load_fits(path, pixel_size=SIZE)
        if text:
            assert f"line {lines} has" in str(caught.value)


@pytest.mark.parametrize("name", ["smap", "rsfish", "bigfish", "plain"])
def test_a_last_line_without_an_end_is_named(tmp_path, name):
    text, _ = WRITTEN[name]
    (tmp_path / "a.csv").write_text(text.rstrip()[:-1], encoding="utf-8")
    with pytest.warns(
        UserWarning, match=r"“a.csv”: its last line has no line end.* cut off"
    ) as message:
        found = load_fits(tmp_path / "a.csv", name, pixel_size=SIZE)
    assert message[0].filename == __file__
    assert len(found) == text.count("\n") - (name != "bigfish")


@pytest.mark.parametrize(
    ("name", "old", "new", "message"),
    [
        ("thunderstorm", "1.0,1.0,50.0", "1.0,1.0,fifty", r"line 2, column 'x \[nm\]': 'fifty' is"),
        ("thunderstorm", "1.0,1.0,50.0", "1.0,1.5,50.0", "row 1, column 'frame': .*whole numbers"),
        ("thunderstorm", '"y [nm]"', '"y"', "no column for 'y'"),
        ("smap", "ynm", "xnm", "two columns have the title 'xnm'"),
        ("trackmate", "(micron)", "(furlong)", "line 4: 'furlong' is no known unit of length"),
        ("trackmate", "ID102,102,,9,3.0", "ID102,102,,9,far", "line 6, column 'POSITION_X': 'far'"),
        ("napari", "axis-2", "axis-3", "line 1: napari's columns axis-0, axis-1"),
        ("napari", "MIN_STEP", "MIN_STOP", "has the word 'MIN_STOP'"),
        ("bigfish", "4;121;300", "4;121", "line 2 has 2 values instead of 3"),
        ("rsfish", "12.5,7.75", "12.5,,7.75", "line 2 has 7 values instead of 6"),
        ("plain", "y,x", "y,u", "its column 'x' is missing|no column"),
    ],
)
def test_what_is_damaged_is_named(tmp_path, name, old, new, message):
    text, _ = WRITTEN[name]
    assert old in text
    (tmp_path / "a.txt").write_text(text.replace(old, new, 1 if old != "(micron)" else -1))
    with pytest.raises(UnreadableFileError, match=message):
        load_fits(tmp_path / "a.txt", name, pixel_size=SIZE)


def test_a_damaged_smlm_is_refused(tmp_path):
    path = tmp_path / "a.smlm"
    saved(localised(), path)
    with zipfile.ZipFile(path) as archive:
        manifest, table = archive.read("manifest.json"), archive.read("table.bin")
    for old, new, message in (
        (b'"rows": 40', b'"rows": 41', "'table.bin' has .* bytes instead of"),
        (b'"uint32"', b'"text"', "unknown type 'text'"),
        (b'"binary"', b'"text"', "instead of binary"),
        (b'"name": "table.bin"', b'"name": "gone.bin"', "gone.bin"),
        (b'"nm"', b'"px"', "the unit 'px'"),
        (b"{", b"[", "damaged"),
    ):
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("manifest.json", manifest.replace(old, new))
            archive.writestr("table.bin", table)
        with pytest.raises(UnreadableFileError, match=message):
            load_fits(path, pixel_size=SIZE)


def test_formats_that_are_none(tmp_path):
    for call in (localised().save, load_fits):
        with pytest.raises(ValueError, match=r"format must be 'picasso', .*; got 'excel'"):
            call(tmp_path / "a.csv", "excel")


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
