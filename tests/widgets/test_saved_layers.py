"""Layers of fitted spots are saved by napari, and opened as they were."""

from __future__ import annotations

from importlib.metadata import version

import numpy as np
import pandas as pd
import pytest
from event_loop import no_worker, settle
from napari.utils.notifications import notification_manager
from npe2 import PluginManager
from packaging.version import Version
from same_fits import assert_same
from spot_table import add_spots, click_row, dock, make_fits

from napari_spotfit import Profile, load_fits, localize, to_points_layer
from napari_spotfit.analysis.filters import Filters, Gate
from napari_spotfit.files.formats import read
from napari_spotfit.widgets.fit_spots import FitSpots
from napari_spotfit.widgets.layers.images import image_of
from napari_spotfit.widgets.layers.points import fits_of_features, is_result
from napari_spotfit.widgets.results import Results
from napari_spotfit.widgets.saved_layers import read_layer

PLUGIN = "napari-spotfit"
ENDS = (".spots.parquet", ".spots.csv")
SAME = (
    "scale", "translate", "rotate", "shear", "units", "axis_labels", "opacity", "blending",
    "visible", "name", "ndim", "face_contrast_limits", "canvas_size_limits", "face_color_mode",
    "border_color_mode",
)  # fmt: skip
SAME_ROWS = (
    "data", "face_color", "border_color", "size", "symbol", "shown", "border_width",
)  # fmt: skip


def assert_same_layer(ours, theirs):
    for name in SAME:
        assert np.all(getattr(ours, name) == getattr(theirs, name)), name
    for name in SAME_ROWS:
        np.testing.assert_array_equal(getattr(ours, name), getattr(theirs, name), name)
    np.testing.assert_array_equal(ours.affine.affine_matrix, theirs.affine.affine_matrix)
    assert ours.face_colormap.name == theirs.face_colormap.name
    pd.testing.assert_frame_equal(ours.features, theirs.features, check_exact=True)
    kept = set(theirs.metadata) - {"image", "sizes_when_shown"}
    for name in kept:
        assert plain(ours.metadata[name]) == plain(theirs.metadata[name]), name


def plain(value):
    """Return values as JSON has them."""
    if isinstance(value, dict):
        return {name: plain(one) for name, one in value.items()}
    return [plain(one) for one in value] if isinstance(value, (list, tuple)) else value


def saved(viewer, layer, path):
    """Save a layer as File ▸ Save Selected Layers does, close it, and open the file."""
    viewer.layers.selection.active = layer
    assert viewer.layers.save(str(path), selected=True) == [str(path)]
    viewer.layers.remove(layer)
    (opened,) = viewer.open(str(path), plugin=PLUGIN)
    return opened


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("frames", [(), (3,), (2, 2)])
def test_a_fitted_layer_comes_back(viewer, make_movie, tmp_path, end, frames):
    image = viewer.add_image(
        make_movie(*frames),
        name="cells [1]",
        scale=(*[2] * len(frames), 0.1, 0.11),
        translate=(*[1] * len(frames), -5.3, 1 / 3),
        rotate=20 if not frames else None,
        units=(*["pixel"] * len(frames), "um", "um"),
        axis_labels=(*"tz"[: len(frames)], "y", "x"),
    )
    layer = viewer.add_layer(to_points_layer(localize(image.data), image, face="photons"))
    layer.opacity, layer.blending = 0.7, "additive"
    opened = saved(viewer, layer, tmp_path / f"cells{end}")
    assert is_result(opened)
    assert_same_layer(opened, layer)
    assert opened.extent.world == pytest.approx(layer.extent.world)
    assert image_of(opened, viewer.layers) is image


@pytest.mark.parametrize("end", ENDS)
def test_what_the_user_did_to_a_layer_comes_back(viewer, tmp_path, end):
    layer = add_spots(viewer)
    spots = dock(viewer)
    spots.spots.set_filters(Filters({"sigma": (1.0, None)}, {"NO_DECREASE"}))
    settle()
    layer.features = layer.features.assign(
        cell=[f'n°{row % 3}, "#{row}"' for row in range(len(layer.data))], area=np.arange(60.0)
    )
    layer.name = "mine/🔬"
    layer.symbol = "star"
    layer.face_colormap = "magma"
    layer.face_contrast_limits = (0.1, 2.3)
    layer.metadata = {**layer.metadata, "face_limits": (0.1, 2.3)}
    layer.data[4] += 0.25
    settle()
    opened = saved(viewer, layer, tmp_path / f"mine{end}")
    assert_same_layer(opened, layer)
    settle()
    assert spots.layer.layer is opened
    assert spots.spots.filters == Filters({"sigma": (1.0, None)}, {"NO_DECREASE"})
    assert np.count_nonzero(opened.shown) < len(opened.data)
    assert len(spots.table.spots_model.rows) == np.count_nonzero(opened.shown)


@pytest.mark.parametrize("end", ENDS)
def test_the_filter_of_flags_comes_back_and_stands_in_words(viewer, make_movie, tmp_path, end):
    image = viewer.add_image(make_movie())
    layer = viewer.add_layer(to_points_layer(localize(image.data, neighbours="ignore"), image))
    layer.features = layer.features.assign(flags=[0.0, 4.0, 256.0, 260.0])
    spots = dock(viewer)
    gate = Gate("x", "y", [(0, 0), (1 / 3, 99), (99, 99.5), (99, 0)])
    chosen = Filters({"sigma": (1.0, None)}, {"NO_DECREASE"}, {"MOVED"}, "NEIGHBOUR", [gate])
    spots.spots.set_filters(chosen)
    settle()
    assert layer.shown.tolist() == [False, False, True, False]
    path = tmp_path / f"mine{end}"
    opened = saved(viewer, layer, path)
    settle()
    assert spots.spots.filters == chosen
    assert opened.shown.tolist() == [False, False, True, False]
    assert read(path).about.layer["filter"] == (
        "sigma ≥ 1 px; within the lasso of x and y; without “not converged: χ² falls no further”; "
        "without “moved”; only “neighbour”"
    )


def test_hidden_spots_of_a_single_image_come_back_and_are_shown_again(viewer, make_movie, tmp_path):
    image = viewer.add_image(make_movie())
    layer = viewer.add_layer(to_points_layer(localize(image.data), image))
    spots = dock(viewer)
    spots.spots.set_filters(Filters({"x": (20.0, None)}))
    settle()
    assert not layer.shown.all()
    opened = saved(viewer, layer, tmp_path / "one.spots.parquet")
    assert_same_layer(opened, layer)
    settle()
    spots.spots.set_filters(Filters())
    settle()
    assert opened.shown.all()
    assert (opened.size > 0).all()


@pytest.mark.parametrize("end", ENDS)
def test_a_script_opens_what_napari_saved_and_napari_what_a_script_saved(
    viewer, make_movie, tmp_path, end
):
    image = viewer.add_image(make_movie(2))
    fits = localize(image.data)
    layer = viewer.add_layer(to_points_layer(fits, image))
    saved(viewer, layer, tmp_path / f"one{end}")
    assert_same(load_fits(tmp_path / f"one{end}"), fits[fits.valid])
    fits.save(tmp_path / f"two{end}")
    (opened,) = viewer.open(str(tmp_path / f"two{end}"), plugin=PLUGIN)
    assert opened.name == "two"
    assert opened.metadata["settings"] == fits.settings.to_dict()
    assert_same(fits_of_features(opened.features, opened.metadata), fits[fits.valid])


def test_a_layer_of_no_spots_comes_back(viewer, make_movie, tmp_path):
    image = viewer.add_image(make_movie(2))
    fits = localize(image.data)
    fits[:0].save(tmp_path / "none.spots.csv")
    (opened,) = viewer.open(str(tmp_path / "none.spots.csv"), plugin=PLUGIN)
    assert len(opened.data) == 0
    assert opened.ndim == 3


def test_fitting_saving_opening_and_inspecting(viewer, widget, fit, make_movie, tmp_path, qtbot):
    image = viewer.add_image(make_movie(2), name="movie")
    fit(widget)
    layer = widget.result.layer
    results = Results(viewer)
    viewer.window.add_dock_widget(results)
    inspect = results.inspect
    opened = saved(viewer, layer, tmp_path / "a.spots.parquet")
    assert opened.metadata["summary"] == layer.metadata["summary"]
    viewer.layers.selection.active = opened
    assert widget.result.layer is opened
    with qtbot.waitSignal(inspect.refreshed):
        results.go_to(opened, 1, "Inspect")
    qtbot.waitUntil(lambda: inspect.panel.pictures.isVisibleTo(inspect.panel))
    viewer.layers.remove(image)
    qtbot.waitUntil(lambda: "The image “movie” of these spots is not open" in text_of(inspect))
    # It still shows, and saves.
    again = saved(viewer, opened, tmp_path / "b.spots.csv")
    assert_same_layer(again, opened)
    qtbot.waitUntil(no_worker)


def text_of(inspect):
    from qtpy.QtWidgets import QLabel

    return " ".join(label.text() for label in inspect.panel.findChildren(QLabel))


def test_the_maps_of_a_fit_are_found_by_their_names(viewer, make_movie, tmp_path):
    from napari_spotfit.widgets.layers.maps import layer_maps, maps_of
    from napari_spotfit.widgets.layers.points import make_points_layer, points_arguments

    image = viewer.add_image(make_movie(2), name="movie")
    dark = viewer.add_image(np.full((48, 50), 90.0), name="dark frames")
    maps = layer_maps(image, {"offset": dark})
    fits = localize(image.data, **maps.read())
    layer = viewer.add_layer(make_points_layer(points_arguments(fits, maps=maps), image, "spots"))
    opened = saved(viewer, layer, tmp_path / "a.spots.parquet")
    found = maps_of(opened, image, viewer.layers)
    assert found.ids == {"offset": str(dark.unique_id)}
    viewer.layers.remove(dark)
    with pytest.raises(ValueError, match="the camera offset of this fit is gone"):
        maps_of(opened, image, viewer.layers)


def test_another_image_of_the_same_name_is_not_taken(viewer, make_movie, tmp_path):
    image = viewer.add_image(make_movie(2), name="movie")
    layer = viewer.add_layer(to_points_layer(localize(image.data), image))
    opened = saved(viewer, layer, tmp_path / "a.spots.csv")
    assert image_of(opened, viewer.layers) is image
    viewer.layers.remove(image)
    viewer.add_image(make_movie(3), name="movie")
    assert image_of(opened, viewer.layers) is None


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("what", ["cut", "foreign", "newer"])
def test_a_bad_file_is_one_message_and_nothing_else(
    viewer, make_movie, tmp_path, end, what, monkeypatch
):
    from napari_spotfit.files import table

    path = tmp_path / f"bad{end}"
    image = viewer.add_image(make_movie(2))
    layer = to_points_layer(localize(image.data), image)
    if what == "newer":
        monkeypatch.setattr(table, "FORMAT", 2)
    viewer.add_layer(layer).save(str(path))
    monkeypatch.undo()
    content = path.read_bytes()
    if what == "cut":
        path.write_bytes(content[: len(content) // 2])
    elif what == "foreign":
        path.write_bytes(b"y,x\n1,2\n")
    before = list(viewer.layers)
    notification_manager.records.clear()
    assert viewer.open(str(path), plugin=PLUGIN) == []
    assert list(viewer.layers) == before
    (record,) = notification_manager.records
    assert f"“bad{end}” cannot be opened: " in record.message
    notification_manager.records.clear()


def test_a_layer_that_a_file_tells_wrongly_is_refused(viewer, tmp_path):
    path = tmp_path / "a.spots.csv"
    add_spots(viewer).save(str(path))
    content = path.read_bytes()
    path.write_bytes(content.replace(b'"metadata": {', b'"metadata": [1], "odd": {'))
    with pytest.raises(ValueError, match=r"“a.spots.csv” cannot be opened: .* layer is damaged"):
        read_layer(str(path))


def test_points_that_are_no_result_are_refused(viewer, tmp_path):
    viewer.add_points(np.zeros((3, 2)), name="clicks")
    with pytest.raises(RuntimeError, match=r"“clicks” has no fitted spots.*napari's own CSV"):
        viewer.layers.save(str(tmp_path / "a.spots.csv"), selected=True)
    assert not list(tmp_path.glob("*.spots.csv"))


def test_napari_picks_the_reader_by_the_files_name(plugins):
    manager = PluginManager.instance()
    for name, ours in (
        ("a.spots.parquet", True), ("A.SPOTS.PARQUET", True), ("a.spots.csv", True),
        ("a.csv", False), ("a.parquet", False), ("spots.csv", False),
    ):  # fmt: skip
        readers = {reader.plugin_name for reader in manager.iter_compatible_readers([name])}
        assert (PLUGIN in readers) == ours, name


def test_napari_picks_the_writer_by_the_files_name(plugins):
    manager = PluginManager.instance()
    for end, command in ((".spots.parquet", "save_parquet"), (".spots.csv", "save_csv")):
        writer, _ = manager.get_writer(f"a{end}", ["points"])
        assert writer.command == f"{PLUGIN}.{command}"
    # For a name without an end, napari before 0.8 takes the plugin that is registered first.
    for name in ("a.csv", "a") if Version(version("napari")) >= Version("0.8") else ("a.csv",):
        writer, _ = manager.get_writer(name, ["points"])
        assert writer.plugin_name == "napari", name


def test_a_name_without_its_end_gets_one(viewer, tmp_path):
    layer = add_spots(viewer)
    manager = PluginManager.instance()
    for end in ENDS:
        writer, _ = manager.get_writer(f"a{end}", ["points"])
        path = tmp_path / "so named"
        assert viewer.layers.save(str(path), selected=True, _writer=writer) == [f"{path}{end}"]
        assert len(load_fits(f"{path}{end}")) == len(layer.data)


@pytest.mark.parametrize("way", ["napari's CSV", "a table"])
def test_results_that_came_another_way_are_recognised(viewer, make_movie, tmp_path, way, qtbot):
    image = viewer.add_image(make_movie(2))
    fits = localize(image.data)
    if way == "a table":
        layer = viewer.add_points(fits.points(), features=fits.to_dataframe())
    else:
        viewer.add_layer(to_points_layer(fits, image)).save(str(tmp_path / "a.csv"))
        viewer.layers.pop()
        (layer,) = viewer.open(str(tmp_path / "a.csv"), plugin="napari")
    assert is_result(layer)
    spots = dock(viewer)
    assert spots.layer.layer is layer
    spots.spots.set_filters(Filters({"photons": (2000.0, None)}, {"MAX_ITERATIONS"}))
    settle()
    assert np.count_nonzero(layer.shown) == np.count_nonzero(fits.photons >= 2000)
    widget = FitSpots(viewer)
    viewer.window.add_dock_widget(widget)
    viewer.layers.selection.active = layer
    widget._on_active()
    assert widget.result.layer is layer
    click_row(qtbot, spots, 0)
    spots.go_to(layer, 0, "Inspect")
    qtbot.waitUntil(lambda: "does not name the image" in text_of(spots.inspect))
    opened = saved(viewer, layer, tmp_path / "b.spots.csv")
    np.testing.assert_array_equal(opened.features["photons"], layer.features["photons"])
    qtbot.waitUntil(no_worker)


def test_other_tables_are_no_results(viewer):
    table = make_fits(5).to_dataframe()
    for features in (
        table.drop(columns="photons"),
        table.assign(stop_condition="done"),
        table.drop(columns="stop_condition"),
    ):
        assert not is_result(viewer.add_points(np.zeros((5, 3)), features=features))


def test_a_model_of_ones_own_comes_back(viewer, make_movie, tmp_path):
    own = Profile.from_expression(
        "exp(-((x-x0)**2 + (y-y0)**2) / (2*w**2))", start={"w": "sigma"}, name="mine"
    )
    image = viewer.add_image(make_movie(2))
    fits = localize(image.data, model=own)
    layer = viewer.add_layer(to_points_layer(fits, image))
    opened = saved(viewer, layer, tmp_path / "a.spots.parquet")
    assert_same_layer(opened, layer)
    assert fits_of_features(opened.features, opened.metadata).settings == fits.settings
