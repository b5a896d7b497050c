"""Tables of other programs that are damaged, cut off or something else are refused by name."""

from __future__ import annotations

import warnings
import zipfile
from pathlib import Path

import pytest
from exchange_cases import SIZE, WRITTEN, localised

from napari_spotfit import FormatWarning, SpotFits, load_fits
from napari_spotfit.files.exchange.registry import EXCHANGE
from napari_spotfit.files.table import UnreadableFileError


def write(fits: SpotFits, path: Path) -> None:
    """Save fits, ignoring that not all columns can be stored."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FormatWarning)
        fits.save(path, pixel_size=SIZE)


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
    write(localised(), path)
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
    write(localised(), path)
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


def test_our_own_formats_are_no_other_programs(tmp_path):
    for name in ("csv", "CSV", "parquet"):
        with pytest.raises(ValueError, match=r"own one, chosen by a file name .*format='plain'"):
            localised().save(tmp_path / "a.csv", name)
