"""With `spreadsheet`, formulas in texts of tables are escaped."""

from __future__ import annotations

import csv
import io
import re
import warnings

import numpy as np
import pandas as pd
import pytest
from commands import run
from exchange_cases import localised

from napari_spotfit import SpotFits, load_fits
from napari_spotfit.files.csv_file import as_text_cell, frame_for_spreadsheets
from napari_spotfit.files.formats import read, write

EVIL = '=HYPERLINK("http://a.b";"c")'
TEXTS = [
    EVIL,
    "+1",
    "-1+cmd|' /C calc'!A0",
    "@SUM(1)",
    "\t=1",
    "\uff1d1",
    " =1",
    "a=b",
    'a;"=1"',
    "a,=1",
    "x\n=1",
]


def fits():
    return localised(
        len(TEXTS), cell=np.array(TEXTS, object), **{EVIL: np.arange(len(TEXTS)) - 3.0}
    )


def cells(text):
    """Return all cells as read by a spreadsheet, separated by commas or semicolons."""
    return [
        cell.strip()
        for sign in ",;\t"
        for row in csv.reader(io.StringIO(text), delimiter=sign)
        for cell in row
    ]


def is_formula(cell):
    try:
        float(cell)
    except ValueError:
        return cell.startswith(tuple("=+-@\uff1d"))
    return False


@pytest.mark.parametrize("name", ["a.spots.csv", "a.plain.csv", "a.napari.csv", "a.trackmate.csv"])
def test_no_cell_is_a_formula(name, tmp_path):
    path, table = tmp_path / name, fits().to_table()
    about = {"name": "a,=1+1", "shape": [3, 4]}
    table = type(table)(table.columns, type(table.about)(**{**vars(table.about), "image": about}))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        write(path, table, pixel_size=100, spreadsheet=True)
        assert not [cell for cell in cells(path.read_text("utf-8")) if is_formula(cell)]
        write(tmp_path / f"b{name}", table, pixel_size=100)
    if "trackmate" not in name:  # which has no texts
        assert [one for one in cells((tmp_path / f"b{name}").read_text("utf-8")) if is_formula(one)]


def test_what_was_saved_for_spreadsheets_opens_again(tmp_path):
    fits().save(tmp_path / "a.spots.csv", spreadsheet=True)
    same, text = load_fits(tmp_path / "a.spots.csv"), list(map(as_text_cell, TEXTS))
    assert same.cell.tolist() == text
    assert same.x.tolist() == fits().x.tolist()
    assert same.settings == fits().settings
    assert same.columns[as_text_cell(EVIL)].tolist() == fits().columns[EVIL].tolist()


def test_rows_without_formulas_are_the_same_bytes(tmp_path):
    plain = localised(5, cell=np.array(list("abcde"), object))
    for spreadsheet in (False, True):
        plain.save(tmp_path / f"{spreadsheet}.spots.csv", spreadsheet=spreadsheet)
    safe, usual = ((tmp_path / f"{one}.spots.csv").read_text("utf-8") for one in (True, False))
    assert re.sub("# .*", "", safe) == re.sub("# .*", "", usual)


@pytest.mark.parametrize("name", ["a.spots.parquet", "a_locs.hdf5", "a.smlm"])
def test_what_spreadsheets_do_not_read(name, tmp_path):
    with pytest.raises(ValueError, match="spreadsheets read CSV"):
        fits().save(tmp_path / name, pixel_size=100, spreadsheet=True)
    assert not list(tmp_path.iterdir())


def test_convert_for_spreadsheets(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    fits().save("a.spots.parquet")
    run("convert", "a.spots.parquet", "b.spots.csv", "--spreadsheet")
    assert not [
        cell for cell in cells((tmp_path / "b.spots.csv").read_text("utf-8")) if is_formula(cell)
    ]
    assert isinstance(load_fits("b.spots.csv"), SpotFits)
    assert read(tmp_path / "b.spots.csv").about.settings == fits().settings
    output = run("convert", "a.spots.parquet", "c.spots.parquet", "--spreadsheet", code=1).stderr
    assert "spreadsheets read CSV" in output


def test_tables_for_the_clipboard():
    frame = pd.DataFrame({EVIL: [1, -2], "cell": pd.Categorical(["=1", "b"]), "n": [-1.5, 2]})
    safe = frame_for_spreadsheets(frame)
    assert list(safe) == [as_text_cell(EVIL), "cell", "n"]
    assert safe["cell"].tolist() == ["'=1", "b"]
    assert safe["n"].tolist() == [-1.5, 2]
    assert frame["cell"].tolist() == ["=1", "b"]
