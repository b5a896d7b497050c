"""Text tables of other programs in all units, delimiters and encodings."""

from __future__ import annotations

import numpy as np
import pytest

from napari_spotfit import load_fits
from napari_spotfit.files.table import UnreadableFileError

#: One spot, at (y, x) = (2.5, 1.5) pixels of 100 nm after the origin of the format.
THUNDERSTORM = (
    '"id","frame","x [{0}]","y [{0}]","z [nm]","sigma [{0}]","intensity [photon]","{1} [{0}]"\n'
)
TRACKMATE = [
    "LABEL,ID,TRACK_ID,QUALITY,POSITION_X,POSITION_Y,POSITION_Z,POSITION_T,FRAME,RADIUS,VISIBILITY",
    "Label,Spot ID,Track ID,Quality,X,Y,Z,T,Frame,Radius,Visibility",
    "Label,Spot ID,Track ID,Quality,X,Y,Z,T,Frame,R,Visibility",
    ",,,(quality),(µm),(µm),(µm),(sec),,(µm),",
]
SPOTS = ["ID1,1,,5.0,1.5,2.5,0.0,0.0,0,0.25,1", "ID2,2,,6.0,3.5,4.5,0.0,0.1,1,0.25,1"]


def loaded(path, text, encoding="utf-8", **options):
    path.write_bytes(text.encode(encoding))
    return load_fits(path, **options)


@pytest.mark.parametrize("unit", ["px", "nm", "µm", "um"])
@pytest.mark.parametrize("error", ["uncertainty", "uncertainty_xy"])
@pytest.mark.parametrize("encoding", ["utf-8", "cp1252", "utf-8-sig", "utf-16"])
def test_thunderstorm_in_its_units(unit, error, encoding, tmp_path):
    side = {"px": 1, "nm": 100, "µm": 0.1, "um": 0.1}[unit]
    numbers = [2 * side, 3 * side, 250, 1.3 * side, 900, 0.1 * side]
    text = THUNDERSTORM.format(unit, error) + "1,1," + ",".join(map(str, numbers)) + "\n"
    size = {} if unit == "px" else {"pixel_size": 100}
    found = loaded(tmp_path / "a.csv", text, encoding, **size)
    known = {
        "frame": 0, "x": 1.5, "y": 2.5, "z": 250, "sigma": 1.3, "photons": 900,
        "x_stderr": 0.1, "y_stderr": 0.1,
    }  # fmt: skip
    for name, value in known.items():
        np.testing.assert_allclose(found.columns[name], [value], rtol=1e-6, err_msg=name)
    assert set(found.columns) <= {*known, "stop_condition"}


@pytest.mark.parametrize("encoding", ["utf-8", "cp1252"])
def test_trackmate_in_the_encoding_of_windows(encoding, tmp_path):
    text = "\n".join([*TRACKMATE, *SPOTS]) + "\n"
    assert loaded(tmp_path / "a.csv", text, encoding, pixel_size=100).x.tolist() == [15, 35]


@pytest.mark.parametrize(
    ("lines", "options", "places", "message"),
    [
        (TRACKMATE[:1], {}, [1.5, 3.5], "does not say the unit.*read as pixels"),
        (TRACKMATE[:1], {"pixel_size": 100}, [15, 35], "does not say the unit.*read as µm"),
        (TRACKMATE[:3], {}, [1.5, 3.5], "does not say the unit.*read as pixels"),
    ],
)
def test_trackmate_without_a_line_of_units(lines, options, places, message, tmp_path):
    with pytest.warns(UserWarning, match=message):
        found = loaded(tmp_path / "a.csv", "\n".join([*lines, *SPOTS]) + "\n", **options)
    assert found.x.tolist() == places


def test_trackmate_with_two_lines_of_titles(tmp_path):
    text = "\n".join([TRACKMATE[0], TRACKMATE[3], *SPOTS]) + "\n"
    assert loaded(tmp_path / "a.csv", text, pixel_size=100).x.tolist() == [15, 35]


def german(text):
    """Write a table like a spreadsheet with decimal commas."""
    return text.replace(",", ";").replace(".", ",")


COMMAS = {
    "thunderstorm": '"id","frame","x [nm]","y [nm]","sigma [nm]"\n1,1,200.5,300.25,130.1\n',
    "smap": "ID,frame,xnm,ynm,znm,phot,bg,locprecnm\n1,1,250.5,350.25,0,900.5,9.5,12.5\n",
    "trackmate": "\n".join([*TRACKMATE, *SPOTS]) + "\n",
    "napari": "index,axis-0,axis-1,axis-2,sigma\n0,3,10.25,20.5,1.31\n1,4,11,21,2\n",
    "rsfish": "x,y,z,t,c,intensity\n12.5,7.75,3.25,1,2,812.5\n",
    "plain": "frame,y,x,brightness,cell\n0,1.5,2.5,7,a\n1,3,4.25,8,b\n",
}


@pytest.mark.parametrize("name", COMMAS)
@pytest.mark.parametrize("separator", [";", "\t"])
def test_decimal_commas(name, separator, tmp_path):
    points = loaded(tmp_path / "points.csv", COMMAS[name], pixel_size=100)
    text = german(COMMAS[name]).replace(";", separator)
    found = loaded(tmp_path / "commas.csv", text, pixel_size=100)
    assert list(found.columns) == list(points.columns)
    for column, values in points.columns.items():
        assert found.columns[column].tolist() == values.tolist(), column
        assert found.columns[column].dtype == values.dtype, column


def test_decimal_commas_in_quotes(tmp_path):
    text = 'frame,x,y\n0,"5,25","7,125"\n1,"6","8,5"\n'
    assert loaded(tmp_path / "a.csv", text).x.tolist() == [5.25, 6]


@pytest.mark.parametrize("row", ["0;5,25;7,5;1.320", "0;1.320,5;7,5;3"])
def test_commas_and_points_in_one_table(row, tmp_path):
    with pytest.raises(UnreadableFileError, match=r"decimal points|is no number"):
        loaded(tmp_path / "a.csv", f"frame;x;y;photons\n{row}\n")


@pytest.mark.parametrize(
    ("titles", "row", "options"),
    [
        ("frame,x [nm],y [nm]", "0,150,250", {"pixel_size": 100, "format": "plain"}),
        ("x (nm),y (nm)", "150,250", {"pixel_size": 100}),
        ("x_nm,y_nm,sigma_nm", "150,250,130", {"pixel_size": 100}),
        ("x [µm],y [µm]", "0.15,0.25", {"pixel_size": 100}),
        ("x [px],y [px]", "1.5,2.5", {"pixel_size": 100}),
        ("x [px],y [px]", "1.5,2.5", {}),
        ("x,y,sigma", "1.5,2.5,1.3", {"pixel_size": 100}),
        ("x,y", "1.5,2.5", {"pixel_size": 100}),
        ("x,y,sigma", "1.5,2.5,1.3", {}),
    ],
)
def test_plain_csv_in_the_unit_of_its_titles(titles, row, options, tmp_path):
    found = loaded(tmp_path / "a.csv", f"{titles}\n{row}\n", **options)
    np.testing.assert_allclose([found.x[0], found.y[0]], [1.5, 2.5])
    if "sigma" in titles:
        np.testing.assert_allclose(found.sigma, 1.3, rtol=1e-6)


@pytest.mark.parametrize(
    ("text", "place", "message"),
    [
        ("frame,x,y\n0,5520.2,3366.3\n", 55.202, "the largest position, 5520.2, .* in nm"),
        ("frame,x,y\n0,1800.5,900.5\n", 1800.5, "largest position, 1800.5, .* in pixels"),
        ("frame,x,y,sigma\n0,1800.5,900.5,131\n", 18.005, "σ of 131 is taken .* in nm"),
        ("frame,x,y,sigma\n0,520,336,131\n", 5.2, "σ of 131 is taken .* in nm"),
    ],
)
def test_plain_csv_that_says_no_unit(text, place, message, tmp_path):
    with pytest.warns(UserWarning, match=message):
        found = loaded(tmp_path / "a.csv", text, pixel_size=100)
    np.testing.assert_allclose(found.x, [place])


def test_plain_csv_in_pixels_of_a_large_camera(tmp_path):
    text = "frame,x,y,sigma\n0,6800.5,900.5,1.4\n"
    assert loaded(tmp_path / "a.csv", text, pixel_size=100).x.tolist() == [6800.5]


def test_plain_csv_in_nanometres_needs_the_size_of_a_pixel(tmp_path):
    with pytest.raises(ValueError, match="size of a pixel is unknown"):
        loaded(tmp_path / "a.csv", "x_nm,y_nm\n150,250\n")
    with pytest.raises(UnreadableFileError, match="two columns are 'x', in different units"):
        loaded(tmp_path / "b.csv", "x,x_nm,y\n1,150,2\n")


PLAIN = "frame,y,x,sigma,photons\n0,10.5,20.25,1.3,800\n1,11,21,1.3,700\n"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (PLAIN.replace("1.3", "130").replace("10.5", "1050"), "their σ of 130 is taken"),
        (PLAIN.replace("sigma", "k").replace("20.25", "5025"), "the largest position, 5025, is"),
        (
            PLAIN.replace("y,x", "y [px],x [px]").replace("1.3", "130"),
            "their σ of 130 is taken to be in pixels",
        ),
    ],
    ids=["σ", "positions", "positions in px"],
)
def test_lengths_that_seem_to_be_in_nm(text, words, tmp_path):
    with pytest.warns(UserWarning, match=words):
        found = loaded(tmp_path / "a.csv", text, format="plain")
    assert found.y[1] == 11
    loaded(tmp_path / "a.csv", PLAIN)
    loaded(tmp_path / "a.csv", PLAIN.replace("1.3", ""))


@pytest.mark.parametrize("titles", ["y,x_nm", "y [µm],x", "y [px],x"])
def test_one_axis_without_a_unit_is_refused(titles, tmp_path):
    with pytest.raises(UnreadableFileError, match=r"line 1: .* says its unit and .* does not"):
        loaded(tmp_path / "a.csv", PLAIN.replace("y,x", titles), pixel_size=100)


@pytest.mark.parametrize("number", ["1.000", "12.345", "1.234.567"])
def test_points_that_may_separate_thousands(number, tmp_path):
    text = PLAIN.replace(",", ";").replace(".5", "").replace(".25", "").replace("1.3", "2")
    loaded(tmp_path / "a.csv", text)
    if number.count(".") > 1:
        with pytest.raises(UnreadableFileError, match="is no number"):
            loaded(tmp_path / "a.csv", text.replace("800", number))
        return
    with pytest.warns(UserWarning, match=f"{number} as .* if the points separate thousands"):
        loaded(tmp_path / "a.csv", text.replace("800", number))
    # Other points beside it show that they are decimal.
    loaded(tmp_path / "a.csv", text.replace("800", number).replace("700", "0.700"))


@pytest.mark.parametrize(
    ("cell", "words"),
    [
        ("99999999999999999999", "1e.20 is not one of"),
        ("1.5", "1.5 is not one of"),
        ("x", "'x' is"),
    ],
)
def test_a_frame_that_is_no_whole_number(cell, words, tmp_path):
    with pytest.raises(UnreadableFileError, match=words):
        loaded(tmp_path / "a.csv", PLAIN.replace("\n1,", f"\n{cell},"))


@pytest.mark.parametrize("cell", ["0x10", "1_000", "8d2"])
def test_texts_in_columns_of_numbers(cell, tmp_path):
    with pytest.raises(UnreadableFileError, match=f"column 'photons': '{cell}' is no number"):
        loaded(tmp_path / "a.csv", PLAIN.replace("800", cell))
    other = loaded(tmp_path / "a.csv", PLAIN.replace("photons", "mine").replace("800", cell))
    assert other.columns["mine"].tolist() == [cell, "700"]


@pytest.mark.parametrize("title", ["t", "T", "Slice", "Frame", "time"])
def test_frames_under_another_title(title, tmp_path):
    with pytest.warns(UserWarning, match=f"its column '{title}' is taken for that"):
        found = loaded(tmp_path / "a.csv", PLAIN.replace("frame", title))
    assert found.frame.tolist() == [0, 1]
    assert found.index_names == ("frame",)
    with pytest.warns(UserWarning, match="all spots are taken to be of one image"):
        found = loaded(tmp_path / "a.csv", PLAIN.replace("frame", title).replace("\n1,", "\n0.1,"))
    assert found.index_names == ()


@pytest.mark.parametrize("start", ["# by hand\n", "#\n# two lines, 3\n", "#"], ids=[1, 2, "titles"])
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"], ids=["unix", "windows", "mac"])
@pytest.mark.parametrize("kind", ["plain", "thunderstorm"])
def test_comments_and_line_ends(kind, start, end, tmp_path):
    text = PLAIN
    if kind == "thunderstorm":
        text = THUNDERSTORM.format("px", "uncertainty") + "1,1,20,10,0,1.3,800,0.1\n"
    ordinary = loaded(tmp_path / "a.csv", text)
    found = loaded(tmp_path / "a.csv", (start + text).replace("\n", end))
    assert found.columns.keys() == ordinary.columns.keys()
    for name, values in ordinary.columns.items():
        np.testing.assert_array_equal(found.columns[name], values, err_msg=name)


def test_errors_count_lines_of_comments(tmp_path):
    with pytest.raises(UnreadableFileError, match="line 5, column 'photons': 'x' is no number"):
        loaded(tmp_path / "a.csv", "# a\n# b\n" + PLAIN.replace("700", "1").replace("800", "1")
               .removesuffix("1\n") + "x\n")  # fmt: skip
