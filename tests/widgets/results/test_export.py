"""Spots go to a CSV file and to the clipboard."""

from __future__ import annotations

from functools import partial
from io import StringIO

import numpy as np
import pandas as pd
import pytest
from event_loop import no_worker, settle
from hand import CONTROL, LEFT
from qtpy.QtCore import QDeadlineTimer, Qt
from qtpy.QtWidgets import QApplication, QFileDialog
from spot_table import PIXEL, add_spots, click_header, click_row, dock, titles

from napari_spotfit import load_fits
from napari_spotfit.analysis.filters import Filters
from napari_spotfit.widgets.result_pages import export


@pytest.mark.parametrize("physical", [False, True])
def test_csv_holds_what_is_shown_or_everything(spots, layer, qtbot, tmp_path, physical):
    spots.units.setCurrentIndex(int(physical))
    spots.spots.set_filters(Filters({"sigma": (1.0, None)}))
    settle()
    click_header(qtbot, spots, "photons [counts]")
    factor, unit = (PIXEL, "µm") if physical else (1, "px")
    for everything in (False, True):
        path = tmp_path / f"{everything}.csv"
        with qtbot.waitSignal(spots.export.finished):
            spots.export.save_to(path, everything=everything)
        table = pd.read_csv(path, comment="#")
        features = layer.features
        if not everything:
            features = features[features["sigma"] >= 1.0].sort_values("photons", kind="stable")
        assert list(table) == titles(spots)
        np.testing.assert_array_equal(table["frame"], features["frame"])
        assert table["frame"].dtype.kind == "i"
        np.testing.assert_array_equal(table["photons [counts]"].astype("f4"), features["photons"])
        np.testing.assert_allclose(table[f"y [{unit}]"], features["y"] * factor, rtol=1e-12)
        np.testing.assert_allclose(table[f"sigma [{unit}]"], features["sigma"] * factor, rtol=1e-6)
        np.testing.assert_allclose(
            table[f"sigma_stderr [{unit}]"], features["sigma_stderr"] * factor, rtol=1e-6
        )
        assert list(table["stop_condition"]) == list(features["stop_condition"])
        assert f"{len(features)} spots saved" in spots.status.text()
    assert sorted(path.name for path in tmp_path.glob("*.csv")) == ["False.csv", "True.csv"]
    assert not list(tmp_path.glob(".*.part"))
    qtbot.waitUntil(no_worker)


def test_a_report_is_saved_from_the_menu(viewer, spots, layer, qtbot, tmp_path, monkeypatch):
    path = tmp_path / "report"
    monkeypatch.setattr(QFileDialog, "getSaveFileName", lambda *_: (str(path), ""))
    with qtbot.waitSignal(spots.export.said):
        next(one for one in spots.export.menu.actions() if "report" in one.text()).trigger()
    text = path.with_suffix(".html").read_text(encoding="utf-8")
    assert f"<title>{layer.name}</title>" in text
    assert "made without the image" in text or "<p>None.</p>" in text
    # The result of a fit brings its image; one that cannot be its own is left out.
    viewer.add_image(np.zeros((2, 9, 9)), name="tiny")
    layer.metadata["image"] = viewer.layers["tiny"].unique_id
    with qtbot.waitSignal(spots.export.said):
        spots.export.report_to(path.with_suffix(".html"))
    assert "Report without cut-outs saved" in spots.status.text()
    qtbot.waitUntil(no_worker)


@pytest.mark.parametrize("physical", [False, True])
def test_what_was_exported_opens_again(viewer, spots, layer, qtbot, tmp_path, physical):
    spots.units.setCurrentIndex(int(physical))
    spots.spots.set_filters(Filters({"sigma": (1.0, None)}))
    settle()
    path = tmp_path / "shown.spots.csv"
    with qtbot.waitSignal(spots.export.finished):
        spots.export.save_to(path, everything=False)
    kept = layer.features[layer.shown].reset_index(drop=True)
    fits = load_fits(path)
    same = np.testing.assert_array_equal
    if physical:  # to µm and back
        same = partial(np.testing.assert_allclose, rtol=1e-6)
    for name in ("frame", "y", "x", "sigma", "photons", "sigma_stderr"):
        same(fits.columns[name], kept[name])
    (opened,) = viewer.open(str(path), plugin="napari-spotfit")
    assert opened.shown.all()
    assert sum(opened.metadata["stop_counts"].values()) == len(kept) == len(opened.data)
    assert opened.metadata["units"] == layer.metadata["units"]
    same(opened.data, layer.data[layer.shown])
    np.testing.assert_array_equal(opened.scale, layer.scale)
    qtbot.waitUntil(no_worker)


def test_a_cancelled_file_is_as_it_was(viewer, qtbot, tmp_path, monkeypatch):
    # Seconds of work in many parts, so that there is a middle in which to cancel.
    monkeypatch.setattr(export, "_CHUNK", 5000)
    add_spots(viewer, 500_000)
    spots = dock(viewer)
    path = tmp_path / "spots.csv"
    path.write_text("earlier", encoding="utf-8")
    spots.export.save_to(path, everything=True)
    qtbot.waitUntil(lambda: spots.export.progress.value() > 0)
    qtbot.mouseClick(spots.export.cancel_button, LEFT)
    assert "Cancelled" in spots.status.text()
    qtbot.waitUntil(no_worker)
    assert path.read_text(encoding="utf-8") == "earlier"
    assert not list(tmp_path.glob(".*.part"))
    assert spots.export.currentIndex() == 0


def test_cancelling_too_late_is_not_called_cancelled(spots, layer, qtbot, tmp_path):
    path = tmp_path / "spots.csv"
    spots.export.save_to(path, everything=True)
    # The file is there, but this thread has not heard of it.
    deadline = QDeadlineTimer(20_000)
    while not path.exists() and not deadline.hasExpired():
        pass
    qtbot.mouseClick(spots.export.cancel_button, LEFT)
    qtbot.waitUntil(lambda: spots.export.currentIndex() == 0)
    assert f"{len(layer.data)} spots saved as {path}" in spots.status.text()
    qtbot.waitUntil(no_worker)


def test_a_file_that_cannot_be_written_gets_a_message(spots, qtbot, tmp_path):
    path = tmp_path / "no such folder" / "spots.csv"
    with qtbot.waitSignal(spots.export.finished):
        spots.export.save_to(path, everything=True)
    assert "was not written" in spots.status.text()
    assert "Choose another place" in spots.status.text()
    qtbot.waitUntil(no_worker)


def test_copy_takes_the_selected_rows_or_all_that_are_shown(spots, layer, qtbot):
    clipboard = QApplication.clipboard()
    click_row(qtbot, spots, 1)
    click_row(qtbot, spots, 3, CONTROL)
    qtbot.keyClick(spots.table, Qt.Key.Key_C, CONTROL)
    qtbot.waitUntil(lambda: "2 spots copied" in spots.status.text())
    lines = clipboard.text().splitlines()
    assert lines[0].split("\t") == titles(spots)
    assert [float(line.split("\t")[1]) for line in lines[1:]] == list(layer.features["y"][[1, 3]])
    click_row(qtbot, spots, 4)
    next(action for action in spots.table.actions() if action.text() == "Copy").trigger()
    qtbot.waitUntil(lambda: "1 spot copied" in spots.status.text())
    assert len(clipboard.text().splitlines()) == 2
    layer.selected_data.clear()
    spots.spots.set_filters(Filters({"sigma": (1.5, None)}))
    settle()
    qtbot.mouseClick(spots.export.copy_button, LEFT)
    shown = np.count_nonzero(layer.shown)
    qtbot.waitUntil(lambda: f"{shown} spots copied" in spots.status.text())
    assert len(clipboard.text().splitlines()) == shown + 1
    qtbot.waitUntil(no_worker)


def test_what_is_copied_is_what_is_saved(spots, layer, qtbot, tmp_path):
    layer.features = layer.features.assign(cell=["one", "two, or more"] * 30)
    spots.units.setCurrentIndex(1)
    settle()
    click_header(qtbot, spots, "photons [counts]")
    spots.export.copy()
    qtbot.waitUntil(lambda: "60 spots copied" in spots.status.text())
    path = tmp_path / "spots.csv"
    with qtbot.waitSignal(spots.export.finished):
        spots.export.save_to(path, everything=False)
    copied = pd.read_csv(StringIO(QApplication.clipboard().text()), sep="\t")
    saved = pd.read_csv(path, comment="#")
    assert copied["good"].dtype.kind == "i"  # which spreadsheets add up
    pd.testing.assert_frame_equal(copied, saved.assign(good=saved["good"].astype(int)))
    qtbot.waitUntil(no_worker)


def test_too_many_spots_are_not_copied(viewer, qtbot):
    add_spots(viewer, 100_001)
    spots = dock(viewer)
    qtbot.mouseClick(spots.export.copy_button, LEFT)
    assert "too many to copy" in spots.status.text()
    assert "save them as CSV" in spots.status.text()


@pytest.mark.parametrize("safe", [False, True])
def test_formulas_reach_no_spreadsheet(viewer, spots, layer, qtbot, tmp_path, safe, monkeypatch):
    layer.features = layer.features.assign(cell=["=1+1"] * len(layer.data))
    spots.spots.show_layer(None)
    spots.spots.show_layer(layer)
    settle()
    kind = export._FOR_SPREADSHEETS if safe else "CSV (*.csv)"
    path = tmp_path / "a.spots.csv"
    monkeypatch.setattr(QFileDialog, "getSaveFileName", lambda *_: (str(path), kind), raising=False)
    with qtbot.waitSignal(spots.export.finished):
        spots.export._ask_where(everything=True)
    assert set(load_fits(path).cell) == {"'=1+1" if safe else "=1+1"}
    spots.export.copy()
    qtbot.waitUntil(lambda: "copied" in spots.status.text())
    assert "\t'=1+1" in QApplication.clipboard().text()
    assert "\t=1+1" not in QApplication.clipboard().text()
