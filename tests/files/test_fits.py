"""Fits go to files and come back to the bit."""

from __future__ import annotations

import json
import math
import threading
from contextlib import contextmanager
from importlib.util import find_spec

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from settings_cases import OWN, any_settings
from volume_fits import fits_in_volumes

import napari_spotfit
from napari_spotfit import (
    Profile,
    Settings,
    SpotFits,
    fit_spots,
    load_fits,
    load_settings,
    localize,
    save_fits,
    simulate_movie,
    simulate_spots,
)
from napari_spotfit.files import csv_file, formats, parquet
from napari_spotfit.files.formats import read, write
from napari_spotfit.files.table import FORMAT, FORMAT_KEY, StoredColumn, UnreadableFileError

ENDS = (".spots.parquet", ".spots.csv", ".PARQUET", ".csv")
IN_A_TEST = settings(
    deadline=None, max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
TYPES = ("f4", "f8", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "?")
WORDS = st.text(st.characters(exclude_categories=("Cs",)), max_size=8)


@pytest.fixture(scope="module")
def fits() -> SpotFits:
    movie, _ = simulate_movie(4, shape=(64, 64), spots_per_frame=8, seed=3)
    movie = movie.astype(float)
    movie[2, :20, :20] = np.nan
    return localize(movie, sigma_max=2)


@pytest.fixture(params=["pyarrow", "without"])
def csv_by(request, monkeypatch):
    """Read and write CSV with pyarrow, or as without it."""
    if request.param == "without":
        monkeypatch.setattr(csv_file, "find_spec", lambda name: None)
    return request.param


def assert_same(ours: SpotFits, theirs: SpotFits) -> None:
    """To the last bit; of NaN, which has many, that it is one."""
    assert list(ours.columns) == list(theirs.columns)
    for name, values in theirs.columns.items():
        found = ours.columns[name]
        assert found.dtype == values.dtype, name
        assert found.flags.writeable
        if values.dtype.kind == "f":
            nan = np.isnan(values)
            np.testing.assert_array_equal(np.isnan(found), nan, name)
            found, values = found[~nan], values[~nan]
        assert (
            found.tolist() == values.tolist()
            if values.dtype == object
            else (found.tobytes() == values.tobytes())
        ), name
    assert ours.settings == theirs.settings
    assert ours.index_names == theirs.index_names
    assert ours.units == theirs.units
    np.testing.assert_array_equal(ours.flags, theirs.flags)


@pytest.mark.parametrize("end", ENDS)
def test_a_movies_fits_come_back(fits, tmp_path, end):
    path = tmp_path / f"movie{end}"
    fits.save(path)
    assert_same(load_fits(path), fits)
    assert load_fits(str(path)).settings.noise == fits.settings.noise
    assert load_settings(path) == fits.settings
    assert [file.name for file in tmp_path.iterdir()] == [path.name]


@pytest.mark.parametrize("end", ENDS[:2])
@pytest.mark.parametrize(
    "options",
    [
        {"model": "gaussian_rotated", "errors": False},
        {"estimator": "mle", "gain": 1.3, "offset": 0.5, "fixed": {"sigma": None}},
        {"model": Profile.from_expression(**OWN), "bounds": {"q": (0.5, None)}},
    ],
)
def test_cut_outs_and_their_settings_come_back(tmp_path, end, options):
    spots, _ = simulate_spots(50, roi_size=(7, 9), photons=2000, seed=1)
    fits = fit_spots(spots, **options)
    assert "flags" not in fits.columns
    path = tmp_path / f"spots{end}"
    fits.save(path)
    assert_same(load_fits(path), fits)


@pytest.mark.parametrize("end", ENDS[:2])
def test_fits_in_volumes_come_back(tmp_path, csv_by, end):
    fits, path = fits_in_volumes(roi_size=(5, 7, 9)), tmp_path / f"volume{end}"
    fits.save(path)
    found = load_fits(path)
    assert_same(found, fits)
    assert found.units["z"] == found.units["roi_z"] == "planes"
    assert read(path).about.roi_shape == (5, 7, 9)
    columns = {name: values for name, values in fits.columns.items() if name != "z"}
    SpotFits(columns, fits.index_names, fits.settings).save(path)
    with pytest.raises(UnreadableFileError, match="no column 'z'"):
        load_fits(path)


@pytest.mark.parametrize("end", ENDS[:2])
@pytest.mark.parametrize("rows", [0, 1])
def test_few_fits_come_back(fits, tmp_path, csv_by, end, rows):
    fits[:rows].save(tmp_path / f"few{end}")
    assert_same(load_fits(tmp_path / f"few{end}"), fits[:rows])


@st.composite
def columns(draw):
    rows = draw(st.integers(0, 6))
    made = {name: draw(hnp.arrays("f8", rows)) for name in ("y", "x")}
    made["stop_condition"] = draw(hnp.arrays("u1", rows, elements=st.integers(0, 5)))
    names = draw(st.lists(WORDS, max_size=5, unique=True))
    for name in names:
        if name not in (*made, "good", "flags"):
            kind = draw(st.sampled_from((*TYPES, "text")))
            if kind == "text":
                words = draw(st.lists(WORDS, min_size=rows, max_size=rows))
                made[name] = np.array(words, object)
            else:
                made[name] = draw(hnp.arrays(kind, rows))
    return made


@pytest.mark.parametrize("end", ENDS[:2])
@IN_A_TEST
@given(made=columns(), known=any_settings())
def test_whatever_the_columns_and_settings(tmp_path, csv_by, end, made, known):
    fits = SpotFits(made, (), known)
    path = tmp_path / f"any{end}"
    fits.save(path)
    assert_same(load_fits(path), fits)


@IN_A_TEST
@given(
    bits=hnp.arrays("u4", 50),
    write_by=st.sampled_from([csv_file._arrow_lines, csv_file._plain_lines]),
    read_by=st.sampled_from([csv_file._arrow_columns, csv_file._plain_columns]),
)
def test_any_single_precision_number_is_written_and_read_by_both(bits, write_by, read_by):
    known = {"a": StoredColumn("float32")}
    numbers = bits.view(np.float32)
    numbers = numbers[~np.isnan(numbers)]
    found = read_by(b"a\n" + write_by({"a": numbers}, known), known)["a"]
    assert found.dtype == np.float32
    assert found.tobytes() == numbers.tobytes()


@pytest.mark.parametrize("read_by", [csv_file._arrow_columns, csv_file._plain_columns])
def test_digits_are_rounded_once(read_by):
    # Rounded via double precision, the first would become the next larger number.
    text = b"a\n7.038531e-26\n-7.038531e-26\n1e-45\n3.4028235e38\n"
    found = read_by(text, {"a": StoredColumn("float32")})["a"]
    assert [hex(bits) for bits in found.view(np.uint32)] == [
        "0x15ae43fd", "0x95ae43fd", "0x1", "0x7f7fffff",
    ]  # fmt: skip


def test_pandas_and_people_read_the_csv(fits, tmp_path, csv_by):
    path = tmp_path / "movie.spots.csv"
    fits.save(path)
    table, ours = pd.read_csv(path, comment="#"), fits.to_dataframe()
    assert list(table) == list(ours)
    assert len(table) == len(fits)
    for name in ("frame", "y", "photons", "flags", "good"):
        np.testing.assert_allclose(table[name], ours[name], rtol=1e-6)
    assert list(table["stop_condition"]) == list(ours["stop_condition"])
    lines = path.read_text(encoding="utf-8").splitlines()
    assert f'# version: "{napari_spotfit.__version__}"' in lines
    assert any(line.startswith("# model:") and "exp(-((x - x̄)²" in line for line in lines)


def test_other_programs_read_the_parquet(fits, tmp_path):
    path = tmp_path / "movie.spots.parquet"
    fits.save(path)
    table = pd.read_parquet(path)
    assert list(table) == list(fits.to_dataframe())
    assert set(table["stop_condition"]) == set(fits.to_dataframe()["stop_condition"])
    schema = pytest.importorskip("pyarrow.parquet").read_schema(path)
    assert schema.field("sigma").metadata == {b"unit": b"px"}
    assert json.loads(schema.metadata[b"settings"])["sigma"] == fits.settings.sigma


def test_both_ways_to_write_csv_write_the_same(fits, tmp_path, monkeypatch):
    fits.save(tmp_path / "one.csv")
    monkeypatch.setattr(csv_file, "find_spec", lambda name: None)
    fits.save(tmp_path / "two.csv")
    one, two = ((tmp_path / name).read_text(encoding="utf-8") for name in ("one.csv", "two.csv"))
    # But for how many zeros stand before a decimal point or exponent.
    for ours, theirs in zip(one.splitlines(), two.splitlines(), strict=True):
        if not ours.startswith("#"):
            for cell, other in zip(ours.split(","), theirs.split(","), strict=True):
                assert cell == other or float(cell) == float(other)


def test_parquet_without_pyarrow_says_what_to_install(fits, tmp_path, monkeypatch):
    monkeypatch.setattr(parquet, "find_spec", lambda name: None)
    with pytest.raises(ImportError, match=r"napari-spotfit\[parquet\].*\.spots\.csv"):
        fits.save(tmp_path / "a.spots.parquet")
    with pytest.raises(ImportError, match=r"napari-spotfit\[parquet\]"):
        load_fits(tmp_path / "a.spots.parquet")
    assert find_spec("pyarrow")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["spots", "spots.txt", "spots.csv.gz", ".parquet"])
def test_names_of_other_files_are_refused(fits, tmp_path, name):
    for call in (fits.save, load_fits):
        with pytest.raises(ValueError, match=r"must end in \.spots\.parquet or \.spots\.csv"):
            call(tmp_path / name)


def test_a_folder_that_is_not_there(fits, tmp_path):
    with pytest.raises(OSError, match="nowhere"):
        fits.save(tmp_path / "nowhere" / "a.spots.csv")
    with pytest.raises(FileNotFoundError):
        load_fits(tmp_path / "a.spots.csv")


@pytest.mark.parametrize("end", ENDS[:2])
def test_a_failure_leaves_the_earlier_file(fits, tmp_path, end, monkeypatch):
    path = tmp_path / f"a{end}"
    fits.save(path)
    before = path.read_bytes()
    table = fits.to_table()
    broken = dict(table.columns) | {"sigma": np.zeros((len(fits), 2), np.float32)}
    with pytest.raises((ValueError, AssertionError, TypeError)):
        write(path, type(table)(broken, table.about))
    assert path.read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == [path.name]


def test_two_columns_of_one_title_are_refused(fits, tmp_path):
    from dataclasses import replace

    table = fits.to_table()
    known = {**table.about.columns, "x": replace(table.about.columns["x"], title="y")}
    with pytest.raises(ValueError, match="two columns have the title 'y'"):
        write(tmp_path / "a.csv", type(table)(table.columns, replace(table.about, columns=known)))


@pytest.mark.parametrize("end", ENDS[:2])
@pytest.mark.parametrize("share", [0.0, 0.02, 0.3, 0.9, 0.999])
def test_a_file_that_was_cut_off_is_named(fits, tmp_path, csv_by, end, share):
    path = tmp_path / f"a{end}"
    fits.save(path)
    whole = path.read_bytes()
    path.write_bytes(whole[: int(share * len(whole))])
    with pytest.raises(UnreadableFileError, match=f"“a{end}” cannot be opened: ") as message:
        load_fits(path)
    assert "\n" not in str(message.value).strip()


@pytest.mark.parametrize("end", ENDS[:2])
@IN_A_TEST
@given(place=st.floats(0, 0.99), byte=st.integers(0, 255))
def test_a_damaged_file_opens_rightly_or_says_so(fits, tmp_path, end, place, byte):
    path = tmp_path / f"a{end}"
    fits[:5].save(path)
    whole = bytearray(path.read_bytes())
    whole[int(place * len(whole))] = byte
    path.write_bytes(whole)
    try:
        found = load_fits(path)
    except UnreadableFileError:
        return
    if end == ".spots.parquet":
        # It has checksums: what can be read is what was written.
        assert found.x.tobytes() == fits[:5].x.tobytes()
    assert len(found) <= 5


def test_damaged_numbers_of_rows_are_refused(fits, tmp_path):
    path = tmp_path / "a.spots.parquet"
    fits[:5].save(path)
    whole = path.read_bytes()
    # Behind the columns of a group of rows stand their number and sizes, then what we say.
    end = whole.index(FORMAT_KEY.encode())
    refused = 0
    for place in range(end - 20, end):
        for change in (1, 2, 6, 16, 64):
            damaged = bytearray(whole)
            damaged[place] ^= change
            path.write_bytes(damaged)
            try:
                found = load_fits(path)
            except UnreadableFileError as error:
                refused += "more rows than others" in str(error)
            else:
                assert found.x.tobytes() == fits[:5].x.tobytes()
    assert refused > 0


@pytest.mark.parametrize("end", ENDS[:2])
def test_a_newer_format_is_refused(fits, tmp_path, end, monkeypatch):
    from napari_spotfit.files import table

    path = tmp_path / f"a{end}"
    with monkeypatch.context() as patch:
        patch.setattr(table, "FORMAT", FORMAT + 1)
        fits.save(path)
    with pytest.raises(UnreadableFileError, match=r"in the newer format 2, .* update napari-spotf"):
        load_fits(path)


def test_foreign_files_are_refused(tmp_path, fits):
    table = fits.to_dataframe()
    table.to_csv(tmp_path / "a.spots.csv", index=False)
    table.to_parquet(tmp_path / "a.spots.parquet")
    (tmp_path / "b.spots.csv").write_text("# some notes: here\ny,x\n1,2\n", encoding="utf-8")
    (tmp_path / "c.spots.csv").write_bytes(bytes(range(256)))
    for path in tmp_path.iterdir():
        with pytest.raises(UnreadableFileError, match="was not written by napari-spotfit"):
            load_fits(path)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"sigma_max": 2.0', '"sigma_max": "wide"', "metadata are damaged: sigma_max"),
        ('"threads": null', '"threads": null, "of_later": 3', "unknown setting of_later"),
        ('"index": ["frame"]', '"index": ["axis_0"]', ""),
        ("MIN_DELTA,", "MIN_DELAY,", "'stop_condition' has the word 'MIN_DELAY'"),
        ('"type": "int64"', '"type": "O"', "cannot be of type 'O'"),
        (f"# {FORMAT_KEY}: 1", f"# {FORMAT_KEY}: 1.5", "its format has no number"),
        ("# layer: null", "# layer: 7", "image and layer must be mappings"),
        ("# layer: null", "# layer: nil", "its metadata “layer” are damaged"),
        ("frame,y,x,", "frame,y,z,", "x"),
    ],
)
def test_what_is_wrong_beside_the_columns_is_named(fits, tmp_path, csv_by, old, new, message):
    path = tmp_path / "a.spots.csv"
    fits.save(path)
    text = path.read_text(encoding="utf-8")
    if old.startswith('"index"'):
        old, new, message = '# index: ["frame"]', '# index: ["axis_0"]', "no column 'axis_0'"
    assert old in text
    path.write_text(text.replace(old, new), encoding="utf-8")
    with pytest.raises(UnreadableFileError, match=message):
        load_fits(path)


def test_rows_that_were_taken_out_in_a_spreadsheet_are_no_damage(fits, tmp_path, csv_by):
    path = tmp_path / "a.spots.csv"
    fits.save(path)
    lines = path.read_text(encoding="utf-8").splitlines()
    first = next(number for number, line in enumerate(lines) if not line.startswith("#"))
    del lines[first + 2]
    path.write_text("\r\n".join(["\ufeff" + lines[0], *lines[1:]]), encoding="utf-8", newline="")
    kept = np.arange(len(fits)) != 1
    assert_same(load_fits(path), fits[kept])


def test_a_file_without_settings(tmp_path):
    fits = SpotFits({"y": np.ones(2), "x": np.ones(2), "stop_condition": np.full(2, 2, np.uint8)})
    fits.save(tmp_path / "a.spots.csv")
    assert load_fits(tmp_path / "a.spots.csv").settings is None
    with pytest.raises(ValueError, match="does not say which settings"):
        load_settings(tmp_path / "a.spots.csv")


def test_the_file_says_what_it_is(fits, tmp_path):
    fits.save(tmp_path / "a.spots.parquet")
    about = read(tmp_path / "a.spots.parquet").about
    assert about.version == napari_spotfit.__version__
    assert about.settings == fits.settings
    assert isinstance(about.settings, Settings)
    assert math.isfinite(about.settings.known_sigma)


@pytest.mark.parametrize("end", ENDS[:2])
def test_parts_that_are_saved_one_by_one_are_the_whole(end, tmp_path, monkeypatch):
    monkeypatch.setattr(formats, "_ROWS", dict.fromkeys((".parquet", ".csv"), 30))
    monkeypatch.setattr(parquet, "GROUP", 30)
    movie, _ = simulate_movie(6, shape=(64, 64), spots_per_frame=9, seed=4)
    fits = localize(movie, neighbours="exclude")
    parts = [fits[:20], fits[20:20], fits[20:33], fits[33:]]
    assert save_fits(iter(parts), tmp_path / f"parts{end}") == len(fits)
    assert_same(load_fits(tmp_path / f"parts{end}"), fits)
    fits.save(tmp_path / f"whole{end}")
    both = [(tmp_path / f"{name}{end}").read_bytes() for name in ("parts", "whole")]
    assert both[0] == both[1]
    assert save_fits([fits[:0]], tmp_path / f"none{end}") == 0
    assert len(load_fits(tmp_path / f"none{end}")) == 0


def test_the_next_parts_are_made_while_some_are_written(fits, tmp_path, monkeypatch):
    next_is_made = threading.Event()

    @contextmanager
    def waits(path, first):
        path.touch()
        yield lambda table: waited.append(next_is_made.wait(60))

    def parts():
        yield fits
        next_is_made.set()
        yield fits

    waited: list[bool] = []
    monkeypatch.setattr(formats, "_ROWS", {".csv": len(fits)})
    monkeypatch.setitem(formats._WRITERS, ".csv", waits)
    assert save_fits(parts(), tmp_path / "a.csv") == 2 * len(fits)
    assert waited == [True, True]


@pytest.mark.parametrize("end", ENDS[:2])
def test_what_cannot_be_written_ends_the_run(fits, tmp_path, monkeypatch, end):
    made = []

    def parts():
        for number in range(100):
            made.append(number)
            yield fits

    broken = dict(fits.to_table().columns) | {"sigma": np.zeros((len(fits), 2), np.float32)}
    wrong = type(fits.to_table())(broken, fits.to_table().about)
    monkeypatch.setattr(formats, "_gathered", lambda tables, rows: (wrong for _ in tables))
    with pytest.raises((ValueError, AssertionError, TypeError)):
        save_fits(parts(), tmp_path / f"a{end}")
    assert len(made) < 5
    assert list(tmp_path.iterdir()) == []


def test_parts_that_end_with_an_error_leave_what_was_there(tmp_path):
    fits = fit_spots(simulate_spots(9, seed=1)[0])
    fits.save(tmp_path / "a.csv")

    def parts():
        yield fits[:3]
        raise RuntimeError("the microscope is on fire")

    with pytest.raises(RuntimeError, match="on fire"):
        save_fits(parts(), tmp_path / "a.csv")
    assert len(load_fits(tmp_path / "a.csv")) == 9
    assert [file.name for file in tmp_path.iterdir()] == ["a.csv"]
    with pytest.raises(ValueError, match="nothing to write"):
        save_fits([], tmp_path / "a.csv")
    with pytest.raises(ValueError, match="must end in"):
        save_fits([fits], tmp_path / "a.txt")
