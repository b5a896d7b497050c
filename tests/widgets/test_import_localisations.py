"""Tables whose names do not say what they are: guessed, shown, and imported as a layer."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from qtpy.QtCore import Qt
from spot_table import PIXEL, make_fits

from napari_spotfit import load_fits
from napari_spotfit.files.exchange.registry import EXCHANGE
from napari_spotfit.widgets.import_localisations import ImportDialog
from napari_spotfit.widgets.layers.points import is_result

NANOMETRES = 1000 * PIXEL
#: Formats with lengths in nm or µm that do not say how large a pixel is.
NEED_A_SIZE = ("thunderstorm", "smap", "smlm", "trackmate")


@pytest.fixture
def widget(viewer):
    widget = ImportDialog(viewer)
    widget.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose, False)
    widget.open()
    yield widget
    widget.reject()
    widget.deleteLater()


@pytest.fixture
def look(qtbot, widget):
    def look(path):
        line = widget.file.native
        line.clear()
        qtbot.keyClicks(line, str(path))
        qtbot.keyClick(line, Qt.Key.Key_Return)
        qtbot.waitUntil(lambda: not widget.looking.busy)

    return look


def saved(name, path):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what has no place
        make_fits(60).save(path, name, pixel_size=NANOMETRES)
    return path


@pytest.mark.parametrize("name", EXCHANGE)
def test_the_format_is_guessed_whatever_the_name(name, widget, look, press, viewer, tmp_path):
    # Their own ending, where others could not read it; else one that tells nothing.
    ending = {"picasso": ".hdf5", "decode": ".h5"}.get(name, ".txt")
    path = saved(name, tmp_path / f"table{ending}")
    expected = load_fits(path, name, pixel_size=NANOMETRES)
    if name in NEED_A_SIZE:
        look(path)
        assert "set under Pixel size how many nm a pixel has" in widget.status.text()
        assert not widget.import_button.isEnabled()
        widget.pixel.box.put(NANOMETRES)
    look(path)
    assert widget.status.text().startswith(
        f"{EXCHANGE[name].title}: 60 localisations, frame 0 to 4"
    )
    rows = widget.rows.model()
    assert rows.rowCount() == 50
    titles = [
        rows.headerData(place, Qt.Orientation.Horizontal) for place in range(rows.columnCount())
    ]
    text = rows.index(7, titles.index("y [px]")).data()
    assert float(text) == pytest.approx(expected.y[7], rel=1e-5, abs=5e-4)
    press(widget.import_button)
    (layer,) = viewer.layers
    assert is_result(layer)
    np.testing.assert_allclose(layer.data, expected.points())


def test_the_image_says_how_large_pixels_are_and_where_they_lie(
    widget, look, press, viewer, tmp_path
):
    viewer.add_image(
        np.zeros((5, 64, 64), np.uint8), scale=(1, PIXEL, PIXEL), translate=(0, 3, 4),
        units=("pixel", "um", "um"), name="movie",
    )  # fmt: skip
    widget.image.setCurrentIndex(widget.image.findText("movie"))
    look(saved("thunderstorm", tmp_path / "results.csv"))
    press(widget.import_button)
    image, points = viewer.layers
    assert points.name == "results"
    np.testing.assert_allclose(points.scale, image.scale)
    np.testing.assert_allclose(points.translate, image.translate)
    np.testing.assert_allclose(points.data, make_fits(60).points(), atol=1e-5)


def test_a_format_that_is_said_counts(widget, look, viewer, qtbot, tmp_path):
    path = tmp_path / "table.csv"
    path.write_text("frame,x,y\n0,3.5,4.5\n1,5,6\n", encoding="utf-8")
    look(path)
    assert widget.status.text().startswith("plain CSV: 2 localisations")
    widget.format.native.setCurrentText("ThunderSTORM")
    qtbot.waitUntil(lambda: not widget.looking.busy)
    assert "cannot be opened as ThunderSTORM" in widget.status.text()
    assert not widget.import_button.isEnabled()
    assert widget.rows.model().rowCount() == 0


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"Index\tPosition X [nm]\tPosition Y [nm]\n1\t2\t3\n",
         "Its columns are Index, Position X [nm], Position Y [nm]"),
        (b"frame;across;down\n0;1;2\n",
         "Its columns are frame, across, down, with semicolons between them; a plain CSV has"),
        (b"", "“a.txt” is empty; choose"),
        (bytes(range(256)), "It is no table of text"),
        (b"frame,x,y\n0,1\n", "line 2 has 2 values instead of 3"),
        (None, "there is no file"),
    ],
)  # fmt: skip
def test_what_is_none_is_said(content, words, widget, look, press, viewer, tmp_path):
    path = tmp_path / "a.txt"
    if content is not None:
        path.write_bytes(content)
    look(path)
    assert words in widget.status.text()
    assert not widget.import_button.isEnabled()


def test_every_control_has_a_tooltip(widget):
    for part in (widget.file.native, widget.format.native, widget.pixel.box, widget.image,
                 widget.import_button, widget.file_button, widget.rows):  # fmt: skip
        assert part.toolTip()


def test_rows_without_a_place_are_shown(widget, look, press, viewer, tmp_path):
    path = tmp_path / "table.csv"
    path.write_text("frame,x,y\n0,3.5,4.5\n7,nan,6\n1,5,6\n9,2,inf\n", encoding="utf-8")
    look(path)
    assert widget.status.text() == (
        "plain CSV: 4 localisations, frame 0 to 1, y 4.5 to 6.0, x 3.5 to 5.0 px; "
        "2 have no place and are left out"
    )
    press(widget.import_button)
    assert len(viewer.layers[0].data) == 2
    assert not widget.isVisible()
    path.write_text("frame,x,y\n0,nan,4.5\n", encoding="utf-8")
    look(path)
    assert widget.status.text() == "plain CSV: 1 localisation; 1 has no place and is left out"


@pytest.mark.parametrize(
    ("shape", "words"),
    [
        ((64, 64), "“table” has 3 axes, but “movie” only 2: choose an image with a time axis"),
        ((2, 5, 64, 64), "“movie” has 4 axes, but “table” only 3: choose an image with 3 axes"),
    ],
)
def test_an_image_with_other_axes_is_refused(shape, words, widget, look, press, viewer, tmp_path):
    viewer.add_image(np.zeros(shape, np.uint8), name="movie")
    widget.image.setCurrentIndex(widget.image.findText("movie"))
    look(saved("plain", tmp_path / "table.csv"))
    press(widget.import_button)
    assert words in widget.status.text()
    assert len(viewer.layers) == 1
