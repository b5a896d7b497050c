"""Spots are saved for other programs by napari, and their files are opened as layers."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pytest
from event_loop import settle
from inspector import docked, message
from napari.utils.notifications import notification_manager
from npe2 import PluginManager
from spot_table import PIXEL, add_spots, dock

from napari_spotfit import StopCondition, load_fits
from napari_spotfit.files.exchange.registry import EXCHANGE
from napari_spotfit.widgets.layers.points import is_result
from napari_spotfit.widgets.saved_layers import get_exchange_reader

PLUGIN = "napari-spotfit"


def name_of(name: str) -> str:
    """Return a file's name as it is usual for a format."""
    return (
        f"movie_locs{EXCHANGE[name].suffix}" if name == "picasso" else f"a{EXCHANGE[name].suffix}"
    )


def save(viewer, layer, path, **options):
    viewer.layers.selection.active = layer
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what has no place
        return viewer.layers.save(str(path), selected=True, **options)


def test_layers_go_to_other_programs_and_come_back_to_scale(viewer, tmp_path):
    layer = add_spots(viewer)
    for name in EXCHANGE:
        path = tmp_path / name_of(name)
        assert save(viewer, layer, path) == [str(path)]
        (opened,) = viewer.open(str(path), plugin=PLUGIN)
        assert is_result(opened)
        np.testing.assert_allclose(opened.data, layer.data, atol=1e-5, err_msg=name)
        if name in ("picasso", "decode"):  # they say how large pixels are
            np.testing.assert_allclose(opened.scale, layer.scale)
            assert [str(unit) for unit in opened.units[1:]] == ["micrometer", "micrometer"]
        fits = load_fits(path, pixel_size=1000 * PIXEL)
        np.testing.assert_allclose(fits.points(), layer.data, atol=1e-5, err_msg=name)
        viewer.layers.remove(opened)
    # What is chosen in napari's dialog does not complete the name.
    writer, _ = PluginManager.instance().get_writer("a.smlm", ["points"])
    assert save(viewer, layer, tmp_path / "so", _writer=writer) == [str(tmp_path / "so.smlm")]


def test_napari_picks_the_writer_by_the_files_name(plugins):
    for name, one in EXCHANGE.items():
        writer, _ = PluginManager.instance().get_writer(f"a{one.suffix}", ["points"])
        assert writer.command == f"{PLUGIN}.save_{name}"


def test_only_files_that_are_theirs_are_claimed(plugins, tmp_path):
    manager = PluginManager.instance()
    for name in ("a.csv", "a.hdf5", "a.h5", "a.zip", "a.parquet"):
        readers = {reader.plugin_name for reader in manager.iter_compatible_readers([name])}
        assert PLUGIN not in readers, name
    for name in EXCHANGE:
        path = tmp_path / name_of(name)
        readers = {reader.plugin_name for reader in manager.iter_compatible_readers([str(path)])}
        assert PLUGIN in readers, name
        assert get_exchange_reader(str(path)) is None  # there is none
        path.write_text("names,of,nothing\n1,2,3\n", encoding="utf-8")
        assert get_exchange_reader(str(path)) is None
        assert get_exchange_reader([str(path)]) is None


def test_nanometres_without_a_scale_are_refused(viewer, tmp_path):
    layer = add_spots(viewer)
    path = tmp_path / "a.smap.csv"
    save(viewer, layer, path)
    viewer.layers.clear()
    viewer.open(str(path), plugin=PLUGIN)
    assert "pixel_size=… in nm" in notification_manager.records[-1].message
    assert not viewer.layers
    layer = add_spots(viewer, units=("pixel", "pixel", "pixel"))
    with pytest.raises(RuntimeError, match=r"cannot be written: .*a scale with a unit"):
        save(viewer, layer, tmp_path / "b.smap.csv")
    assert not Path(tmp_path / "b.smap.csv").exists()


def test_no_widget_calls_spots_of_other_programs_good(viewer, qtbot, press, tmp_path):
    """Nor converged: they are drawn as any, and counted and filtered as what they are."""
    rows = "".join(f"{n % 3},{n}.5,{60 - n}.25,{900 + n},1.{n}\n" for n in range(40))
    (tmp_path / "a.plain.csv").write_text(f"frame,x,y,photons,sigma\n{rows}")
    (layer,) = viewer.open(str(tmp_path / "a.plain.csv"), plugin=PLUGIN)
    assert is_result(layer)
    assert not {"good", "flags"} & set(layer.features)
    counts = {one.name: 40 * (one.name == "UNKNOWN") for one in StopCondition}
    assert layer.metadata["stop_counts"] == counts
    assert not (layer.symbol == "x").any()  # that of doubtful ones
    spots, inspector = dock(viewer), docked(viewer)
    legend = spots.filters.legend
    assert not legend.good.isEnabled()
    assert legend.good.text() == "Good ones"
    listed = [name for name, count in legend.counts.items() if not count.isHidden()]
    assert listed == ["UNKNOWN"]
    assert legend.boxes["UNKNOWN"].text() == "found by another program"
    assert legend.counts["UNKNOWN"].text() == "40"
    legend.boxes["UNKNOWN"].click()
    settle()
    assert not layer.shown.any()
    press(legend.all)
    settle()
    assert layer.shown.all()
    for title in ("summary", "cells", "scatter", "drift"):
        assert getattr(spots, title) is not None
    spots.tabs.setCurrentIndex(3)
    settle()
    layer.selected_data = {3}
    settle()
    assert message(inspector).startswith("Another program found this spot, without the amplitude")
    layer.save(str(tmp_path / "b.spots.csv"), plugin=PLUGIN)
    (again,) = viewer.open(str(tmp_path / "b.spots.csv"), plugin=PLUGIN)
    assert again.metadata["stop_counts"] == layer.metadata["stop_counts"]
    assert "good" not in again.features
