"""The page of files: by mouse and keys, with real files; cancelled, resumed, and opened again."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import tifffile
from event_loop import no_worker
from qtpy.QtCore import Qt

from napari_spotfit import Settings, label_spots, load_fits, localize, simulate_movie
from napari_spotfit.files.settings_file import save_settings
from napari_spotfit.localization import stored
from napari_spotfit.widgets.fit_spots import FitSpots

pytest.importorskip("pyarrow")
SHAPE = 48, 56


@pytest.fixture(scope="module")
def movies():
    return [
        simulate_movie(6, shape=SHAPE, spots_per_frame=5, photons=3000, seed=seed)[0]
        for seed in (1, 2)
    ]


@pytest.fixture
def folder(movies, tmp_path):
    place = tmp_path / "images"
    place.mkdir()
    for name, movie in zip("ab", movies, strict=True):
        tifffile.imwrite(place / f"{name}.tif", movie, metadata={"axes": "TYX"})
    return place


@pytest.fixture
def widget(viewer, qtbot):
    fit_spots = FitSpots(viewer)
    viewer.window.add_dock_widget(fit_spots, name=FitSpots.title)
    switch = fit_spots.pages.switch
    qtbot.mouseClick(switch, Qt.MouseButton.LeftButton, pos=switch.tabRect(1).center())
    return fit_spots.pages.files


def type_into(qtbot, line, text):
    line.native.clear()
    qtbot.keyClicks(line.native, str(text))
    qtbot.keyClick(line.native, Qt.Key.Key_Return)


def fit(qtbot, widget, press):
    press(widget.fit_button)
    qtbot.waitUntil(lambda: not widget.running)


def rows(widget):
    table = widget.table
    return [
        [table.item(row, column).text() for column in range(table.columnCount())]
        for row in range(table.rowCount())
    ]


def test_a_folder_with_masks_and_a_damaged_file(viewer, widget, folder, movies, qtbot, press):
    cells = np.zeros(SHAPE, np.uint8)
    cells[:, 28:] = 2
    for name in ("a", "b", "c"):
        np.save(folder / f"{name}_cells.npy", cells)
    (folder / "c.tif").write_bytes((folder / "a.tif").read_bytes()[:9000])
    save_settings(Settings(sigma=1.3), folder / "s.toml")
    type_into(qtbot, widget.form.images, folder)
    assert widget.form.output.value == str(folder / "spots")
    type_into(qtbot, widget.form.labels, "_cells.npy")
    widget.form.use_settings(folder / "s.toml")
    fit(qtbot, widget, press)
    assert [row[:2] for row in rows(widget)] == [
        ["a.tif", "done"], ["b.tif", "done"], ["c.tif", "⚠ failed"],
    ]  # fmt: skip
    assert "2 done, 1 failed" in widget.status.text()
    assert "“c.tif” cannot be read" in widget.status.text()
    assert "cut off" in widget.table.item(2, 0).toolTip()
    for name, movie in zip("ab", movies, strict=True):
        fits = localize(movie, sigma=1.3)
        there = load_fits(folder / f"spots/{name}.tif.spots.parquet")
        np.testing.assert_array_equal(there.x, fits.x)
        np.testing.assert_array_equal(there.label, label_spots(fits, cells))
        assert (folder / f"spots/{name}.tif.cells.csv").exists()
    fit(qtbot, widget, press)
    assert [row[1] for row in rows(widget)] == ["kept", "kept", "⚠ failed"]


@pytest.mark.parametrize("form", ["Parquet, a table of each image", "CSV, one table of all"])
def test_a_double_click_opens_the_first_frames_with_their_spots(
    form, viewer, widget, folder, movies, qtbot, press
):
    type_into(qtbot, widget.form.images, f"{folder / 'a.tif'}; {folder / 'b.tif'}")
    widget.form.format.value = form
    fit(qtbot, widget, press)
    item = widget.table.item(1, 0)
    place = widget.table.visualItemRect(item).center()
    for click in (qtbot.mouseClick, qtbot.mouseDClick):
        click(widget.table.viewport(), Qt.MouseButton.LeftButton, pos=place)
    qtbot.waitUntil(lambda: "Opened “b.tif”, all 6 frames" in widget.status.text())
    image, points = viewer.layers
    np.testing.assert_array_equal(image.data, movies[1])
    fits = localize(movies[1])
    np.testing.assert_allclose(points.data, fits[fits.valid].points())


def test_a_cancelled_batch_goes_on(widget, folder, movies, qtbot, press, monkeypatch):
    monkeypatch.setattr(stored, "_PART_BYTES", 1)  # a frame
    long = np.concatenate([movies[0]] * 60)
    tifffile.imwrite(folder / "long.tif", long)
    type_into(qtbot, widget.form.images, folder / "long.tif")
    press(widget.fit_button)
    qtbot.waitUntil(lambda: widget.table.outcomes[0].frames > 2)
    assert not widget.form.container.enabled
    press(widget.cancel_button)
    qtbot.waitUntil(lambda: not widget.running)
    assert [row[1] for row in rows(widget)] == ["stopped"]
    assert "Fit resumes from there" in widget.status.text()
    assert not Path(widget.form.output.value, "long.tif.spots.parquet").exists()
    fit(qtbot, widget, press)
    assert widget.table.outcomes[0].parts_before > 2
    there = load_fits(folder / "spots/long.tif.spots.parquet")
    np.testing.assert_array_equal(there.x, localize(long).x)


def test_the_settings_of_a_result(viewer, widget, folder, movies, qtbot, press):
    from napari_spotfit import to_points_layer

    image = viewer.add_image(movies[0], name="one")
    viewer.add_layer(to_points_layer(localize(movies[0], roi_size=7, sigma=1.2), image))
    widget.form.settings.native.setCurrentText("of “one spots”")
    type_into(qtbot, widget.form.images, folder / "*.tif")
    widget.form.workers.value = 2
    fit(qtbot, widget, press)
    there = load_fits(folder / "spots/b.tif.spots.parquet")
    assert (there.settings.roi_size, there.settings.sigma) == (7, 1.2)
    viewer.layers.clear()
    assert widget.form.settings.native.count() == 1


@pytest.mark.parametrize(
    ("images", "output", "words"),
    [("", "", "Choose images"), ("nothing*.tif", "", "There is no image file in the pattern"),
     ("{}", "{}/a.tif", "Output must be a folder"),
     ("{}", "{}/a.tif/there", "a.tif/there” cannot be created (Not a directory): choose a folder")],
)  # fmt: skip
def test_what_is_missing_is_said(images, output, words, widget, folder, qtbot, press):
    type_into(qtbot, widget.form.images, images.format(folder))
    if output:
        type_into(qtbot, widget.form.output, output.format(folder))
    press(widget.fit_button)
    assert words in widget.status.text()
    assert not widget.running


def test_every_control_has_a_tooltip(widget):
    for row in widget.form.container:
        assert row.tooltip
    for part in (widget.fit_button, widget.cancel_button, widget.table):
        assert part.toolTip()


def test_closing_the_widget_stops_the_batch_and_keeps_what_is_done(
    viewer, widget, folder, movies, qtbot, press, monkeypatch
):
    monkeypatch.setattr(stored, "_PART_BYTES", 1)  # a frame
    tifffile.imwrite(folder / "long.tif", np.concatenate([movies[0]] * 60))
    type_into(qtbot, widget.form.images, folder / "long.tif")
    press(widget.fit_button)
    qtbot.waitUntil(lambda: widget.table.outcomes[0].frames > 2)
    viewer.window.remove_dock_widget("all")
    qtbot.waitUntil(no_worker)
    table = folder / "spots/long.tif.spots.parquet"
    assert not table.exists()
    assert len(list(table.with_name(f"{table.name}.parts").glob("*/part-*.parquet"))) > 2
