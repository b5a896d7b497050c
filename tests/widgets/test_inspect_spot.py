"""The widget "Inspect spot" in a real viewer."""

import gc
import weakref

import numpy as np
import pytest
from qtpy.QtCore import QEvent, QPoint, QPointF, Qt, QThreadPool
from qtpy.QtGui import QMouseEvent
from qtpy.QtWidgets import QApplication, QDockWidget, QMainWindow

import napari_spotfit
from napari_spotfit.widgets.inspect_spot import InspectSpot

LEFT, RIGHT = Qt.MouseButton.LeftButton, Qt.MouseButton.RightButton
NO_BUTTON = Qt.MouseButton.NoButton
NO_KEY, SHIFT = Qt.KeyboardModifier.NoModifier, Qt.KeyboardModifier.ShiftModifier


@pytest.fixture
def viewer(make_napari_viewer):
    return make_napari_viewer(show=True)


@pytest.fixture
def inspector(viewer):
    return docked(viewer)


@pytest.fixture
def until(qtbot):
    """Wait until something is so."""
    return lambda so: qtbot.waitUntil(so, timeout=20_000)


def docked(viewer, area="bottom"):
    inspector = InspectSpot(viewer)
    viewer.window.add_dock_widget(inspector, name="Inspect spot", area=area)
    return inspector


def add_spots(viewer, movie, of=None, **options):
    """Add an image and its fitted spots."""
    image = viewer.add_image(movie, name="movie", contrast_limits=(90, 600), **options)
    fits = napari_spotfit.localize(np.asarray(movie) if of is None else of, offset=90)
    return image, viewer.add_layer(napari_spotfit.to_points_layer(fits, image))


def shows(inspector, layer, row):
    """Whether numbers and pictures are those of a spot."""
    values = layer.features.iloc[row]
    number = inspector.panel.numbers.texts().get("y", ("nan",))[0]
    y = float(number.partition(" ±")[0])
    drawn = inspector.panel.pixels.currentIndex() == 0 and inspector.panel.pages.currentIndex() == 0
    corner = inspector.panel.pictures.data.image.mapRectToParent(
        inspector.panel.pictures.data.image.boundingRect()
    )
    return (
        f"row {row} of" in inspector.panel.title.text()
        and abs(y - values["y"]) <= values["y_stderr"] + 1e-3
        and drawn
        and abs(corner.top() - (values["roi_y"] - 0.5)) < 1e-6
        and abs(corner.left() - (values["roi_x"] - 0.5)) < 1e-6
    )


def message(inspector):
    panel = inspector.panel
    return panel.message.text() if panel.pages.currentWidget() is panel.message else ""


def note(inspector):
    panel = inspector.panel
    return panel.note.text() if panel.pixels.currentWidget() is panel.note else ""


def pixels(picture):
    return picture.image.image


def on_canvas(viewer, layer, place):
    """Return where on the canvas a place (y, x) of a layer's shown frame is."""
    position = np.array(layer.world_to_data(viewer.dims.point), float)
    position[-2:] = place
    world = np.array(layer.data_to_world(position))[-2:]
    x, y = viewer.window._qt_viewer.canvas.view.scene.transform.map(world[::-1])[:2]
    return QPointF(float(x), float(y))


def click(viewer, point, button=LEFT, keys=NO_KEY, drag=None):
    """Click on the canvas with the mouse, or press, drag and let go."""
    native = viewer.window._qt_viewer.canvas.native

    def send(kind, at, button, buttons):
        event = QMouseEvent(kind, at, QPointF(native.mapToGlobal(at)), button, buttons, keys)
        QApplication.sendEvent(native, event)

    QApplication.processEvents()
    send(QEvent.Type.MouseMove, point, NO_BUTTON, NO_BUTTON)
    send(QEvent.Type.MouseButtonPress, point, button, button)
    if drag is not None:
        for part in (0.5, 1.0):
            send(QEvent.Type.MouseMove, point + part * drag, NO_BUTTON, button)
        point = point + drag
    send(QEvent.Type.MouseButtonRelease, point, button, NO_BUTTON)


def no_worker():
    return QThreadPool.globalInstance().activeThreadCount() == 0


def test_the_empty_state_says_what_to_do(viewer, inspector, until, make_movie):
    until(lambda: "Layers ▸ Measure ▸ Fit spots" in message(inspector))
    add_spots(viewer, make_movie(2))
    until(lambda: message(inspector).startswith("Click a fitted spot"))


def test_a_selected_spot_is_shown_with_all_its_numbers(viewer, inspector, until, make_movie):
    movie = make_movie(3)
    _, layer = add_spots(viewer, movie)
    layer.selected_data = {5}
    until(lambda: shows(inspector, layer, 5))
    values = layer.features.iloc[5]
    texts = inspector.panel.numbers.texts()
    for name in ("y", "x", "sigma", "amplitude", "background", "photons"):
        number, _, rest = texts[name][0].replace("\u202f", "").partition(" ± ")
        error, unit = rest.split(" ")
        stderr = float(values[f"{name}_stderr"])
        assert float(number) == pytest.approx(values[name], abs=0.051 * stderr)
        assert float(error) == pytest.approx(stderr, rel=0.051)
        assert unit == layer.metadata["units"][name]
        assert texts[name][1] == ""
    for name in ("chi_square", "reduced_chi_square"):
        number, unit = texts[name][0].replace("\u202f", "").split(" ")
        assert float(number) == pytest.approx(values[name], rel=1e-3)
        assert unit == "counts²"
    assert texts["iterations"][0] == f"{values['iterations']:.0f}"
    verdict = inspector.panel.verdict.text.text()
    condition = napari_spotfit.StopCondition[values["stop_condition"]]
    assert condition.name in verdict
    assert condition.explanation in verdict
    assert condition.advice in verdict
    assert "frame 1" in inspector.panel.title.text()


def test_data_model_and_residual(viewer, inspector, until, make_movie):
    movie = make_movie(3)
    _, layer = add_spots(viewer, movie)
    layer.selected_data = {5}
    until(lambda: shows(inspector, layer, 5))
    values, panel = layer.features.iloc[5], inspector.panel
    y, x = int(values["roi_y"]), int(values["roi_x"])
    data, model, residual = (
        pixels(picture)
        for picture in (panel.pictures.data, panel.pictures.model, panel.pictures.residual)
    )
    np.testing.assert_array_equal(data, movie[1, y : y + 9, x : x + 9])
    np.testing.assert_allclose(data - model, residual)
    assert (residual**2).sum() == pytest.approx(values["chi_square"], rel=5e-4)
    low, high = panel.pictures.data.image.levels
    assert (low, high) == tuple(panel.pictures.model.image.levels)
    assert low == min(data.min(), model.min())
    assert high == max(data.max(), model.max())
    low, high = panel.pictures.residual.image.levels
    assert -low == high == np.abs(residual).max()
    assert f"±{high:.3g} counts" == panel.pictures.around_zero.high.text()
    places, line = panel.profiles.row.dots.getData()
    row = round(values["y"])
    np.testing.assert_array_equal(line, movie[1, row, places.astype(int)])
    assert panel.profiles.row.title.text() == f"row {row}"
    fine, curve = panel.profiles.row.curve.getData()
    np.testing.assert_allclose(np.interp(places, fine, curve), model[row - y])


def test_a_click_on_a_ring_inspects_its_spot(viewer, inspector, until, make_movie, spots):
    _, layer = add_spots(viewer, make_movie(3))
    viewer.dims.set_current_step(0, 2)
    # Beside the centre, on the ring itself.
    beside = spots[1] + (0, 3.5)
    click(viewer, on_canvas(viewer, layer, beside))
    here = np.abs(layer.data - (2, *spots[1])).max(axis=1) < 1
    (expected,) = np.flatnonzero(here)
    until(lambda: shows(inspector, layer, expected))
    assert layer.selected_data == {expected}


@pytest.mark.parametrize("kind", ["drag", "right button", "Shift", "hidden", "filtered", "mode"])
def test_what_is_no_click_on_a_spot_changes_nothing(
    viewer, inspector, qtbot, until, make_movie, kind
):
    _, layer = add_spots(viewer, make_movie())
    point = on_canvas(viewer, layer, layer.data[1])
    layer.visible = kind != "hidden"
    if kind == "filtered":
        layer.shown = [True, False, True, True]
    if kind == "mode":
        viewer.layers.selection.active = viewer.add_shapes(name="drawn")
        viewer.layers["drawn"].mode = "select"
    click(
        viewer,
        point,
        button=RIGHT if kind == "right button" else LEFT,
        keys=SHIFT if kind == "Shift" else NO_KEY,
        drag=QPointF(40, 10) if kind == "drag" else None,
    )
    until(lambda: message(inspector).startswith("Click"))
    assert not layer.selected_data


def test_of_overlapping_rings_the_nearest_spot_is_meant(viewer, inspector, until, make_movie):
    movie = make_movie()
    image = viewer.add_image(movie, name="movie")
    fits = napari_spotfit.fit_at(movie, [(10.3, 12.1), (14.8, 33.6), (10.3, 12.1)])
    layer = viewer.add_layer(napari_spotfit.to_points_layer(fits, image))
    moved = layer.data.copy()
    moved[2] += (0, 4)
    layer.data = moved
    click(viewer, on_canvas(viewer, layer, layer.data[0] + (0, 1)))
    until(lambda: shows(inspector, layer, 0))
    click(viewer, on_canvas(viewer, layer, moved[2]))
    until(lambda: "row 2 of" in inspector.panel.title.text())
    assert "moved or added by hand" in inspector.panel.verdict.text.text()


def test_the_frame_is_followed(viewer, inspector, until, make_movie):
    movie = make_movie(4)
    image = viewer.add_image(movie, name="movie")
    fits = napari_spotfit.localize(movie, frames=[0, 1, 3])
    layer = viewer.add_layer(napari_spotfit.to_points_layer(fits, image))
    viewer.dims.set_current_step(0, 0)
    layer.selected_data = {2}
    until(lambda: shows(inspector, layer, 2))
    place = layer.data[2, 1:]
    for frame in (1, 2, 3, 0):
        viewer.dims.set_current_step(0, frame)
        if frame == 2:
            until(lambda: "no spot here in frame 2" in message(inspector))
            assert "movie spots" in message(inspector)
            continue
        near = np.hypot(*(layer.data[:, 1:] - place).T) < 1
        (row,) = np.flatnonzero(near & (layer.data[:, 0] == frame))
        until(lambda row=row: shows(inspector, layer, row))
    assert layer.selected_data == {2}
    layer.shown = False
    viewer.dims.set_current_step(0, 1)
    until(lambda: "no spot here in frame 1" in message(inspector))


def test_a_selected_spot_of_another_frame_stays_until_the_frame_changes(
    viewer, inspector, until, make_movie
):
    _, layer = add_spots(viewer, make_movie(3))
    layer.selected_data = {9}
    until(lambda: shows(inspector, layer, 9))
    viewer.add_labels(np.zeros((5, 5), int))
    until(lambda: not inspector._soon.isActive())
    assert shows(inspector, layer, 9)


def test_four_axes_of_dask_on_a_transformed_layer(viewer, inspector, until, make_movie):
    array = pytest.importorskip("dask.array")
    movie = make_movie(2, 3)
    read = []

    def load(block, block_info=None):
        read.append(block_info[0]["chunk-location"][:2])
        return block

    lazy = array.from_array(movie, chunks=(1, 1, 48, 50)).map_blocks(load, dtype=movie.dtype)
    _, layer = add_spots(
        viewer,
        lazy,
        of=movie,
        scale=(1, 2, 0.2, 0.1),
        rotate=20,
        translate=(0, 1, 5, 7),
        units=("s", "um", "um", "um"),
    )
    read.clear()
    for step, frame in enumerate((1, 2)):
        viewer.dims.set_current_step(step, frame)
    until(lambda: no_worker())
    read.clear()
    rows = np.flatnonzero((layer.data[:, :2] == (1, 2)).all(axis=1))
    click(viewer, on_canvas(viewer, layer, layer.data[rows[2], 2:]))
    until(lambda: shows(inspector, layer, rows[2]))
    assert "frame (1, 2)" in inspector.panel.title.text()
    # One frame, once, for all of its spots.
    layer.selected_data = {rows[1]}
    until(lambda: shows(inspector, layer, rows[1]))
    assert read == [(1, 2)]
    values, texts = layer.features.iloc[rows[1]], inspector.panel.numbers.texts()
    for name, factor in (("y", 0.2), ("x", 0.1)):
        number, unit = texts[name][1].partition(" ±")[0], texts[name][1].rpartition(" ")[2]
        assert float(number) == pytest.approx(values[name] * factor, abs=0.01)
        assert unit == "µm"
    # Pixels are not square: a width along neither axis has no length.
    assert texts["sigma"][1] == ""
    viewer.dims.set_current_step(1, 0)
    (row,) = (
        row
        for row in np.flatnonzero((layer.data[:, :2] == (1, 0)).all(axis=1))
        if np.hypot(*(layer.data[row] - layer.data[rows[1]])[2:]) < 1
    )
    until(lambda: shows(inspector, layer, row))


def test_physical_units_follow_the_layer(viewer, inspector, until, make_movie):
    _, layer = add_spots(viewer, make_movie(), scale=(0.1, 0.1), units=("um", "um"))
    layer.selected_data = {1}
    until(lambda: shows(inspector, layer, 1))
    values = layer.features.iloc[1]
    for scale in (0.1, 0.25):
        layer.scale = (scale, scale)

        def right(scale=scale):
            number, _, rest = inspector.panel.numbers.texts()["sigma"][1].partition(" ± ")
            good = abs(float(number) - scale * values["sigma"]) < 0.1 * values["sigma_stderr"]
            error = float(rest.split(" ")[0])
            return good and abs(error / scale / values["sigma_stderr"] - 1) < 0.06

        until(right)


def test_a_deleted_image_leaves_the_numbers(viewer, inspector, until, make_movie):
    image, layer = add_spots(viewer, make_movie(2))
    layer.selected_data = {1}
    until(lambda: shows(inspector, layer, 1))
    viewer.layers.remove(image)
    until(lambda: "image of these spots is gone" in note(inspector))
    assert not message(inspector)
    layer.selected_data = {6}
    until(lambda: "row 6 of" in inspector.panel.title.text())
    assert "gone" in note(inspector)
    assert len(inspector.panel.numbers.texts()) >= 9


def test_a_layer_without_an_image(viewer, inspector, until, make_movie):
    fits = napari_spotfit.localize(make_movie(2))
    layer = viewer.add_layer(napari_spotfit.to_points_layer(fits))
    layer.selected_data = {0}
    until(lambda: "does not say which image" in note(inspector))


def test_replaced_data_is_shown_and_named(viewer, inspector, until, make_movie):
    movie = make_movie(2)
    image, layer = add_spots(viewer, movie)
    layer.selected_data = {1}
    until(lambda: shows(inspector, layer, 1))
    assert inspector.panel.changed.isHidden()
    image.data = movie[::-1].copy()
    until(lambda: not inspector.panel.changed.isHidden())
    image.data = movie[:, :20, :20]
    layer.selected_data = {2}
    until(lambda: "no longer reaches" in note(inspector))
    image.data = movie
    until(lambda: shows(inspector, layer, 2))
    layer.selected_data = {6}
    until(lambda: shows(inspector, layer, 6))
    image.data = movie[:1]
    until(lambda: "no longer has this spot's frame" in note(inspector))


def test_a_frame_that_cannot_be_read_gets_a_message(viewer, inspector, until, make_movie):
    array = pytest.importorskip("dask.array")
    movie, broken = make_movie(2), []

    def load(block):
        if broken:
            raise OSError("the disk is gone")
        return block

    lazy = array.from_array(movie, chunks=(1, 48, 50)).map_blocks(load, dtype=movie.dtype)
    _, layer = add_spots(viewer, lazy, of=movie)
    broken.append(True)
    layer.selected_data = {6}
    until(lambda: "the disk is gone" in note(inspector))
    broken.clear()
    layer.selected_data = {7}
    until(lambda: shows(inspector, layer, 7))


def test_removed_renamed_and_edited_layers(viewer, inspector, until, make_movie):
    _, layer = add_spots(viewer, make_movie(2))
    layer.selected_data = {1}
    until(lambda: shows(inspector, layer, 1))
    layer.name = "mine"
    until(lambda: inspector.panel.title.text().startswith("mine"))
    layer.selected_data = {7}
    until(lambda: shows(inspector, layer, 7))
    layer.data = layer.data[:3]
    until(lambda: "Click" in message(inspector))
    layer.selected_data = {2}
    until(lambda: shows(inspector, layer, 2))
    layer.remove_selected()
    until(lambda: "Click" in message(inspector))
    layer.selected_data = {0}
    until(lambda: shows(inspector, layer, 0))
    viewer.layers.remove(layer)
    until(lambda: "Fit spots first" in message(inspector))


def test_a_point_that_was_added_by_hand(viewer, inspector, until, make_movie):
    _, layer = add_spots(viewer, make_movie())
    layer.feature_defaults = {**layer.feature_defaults.iloc[0], "y": np.nan, "sigma": np.nan}
    layer.add((5, 5))
    until(lambda: "not fitted" in message(inspector))


def test_several_images_with_their_own_results(viewer, inspector, until, make_movie):
    movie = make_movie(2)
    _, one = add_spots(viewer, movie)
    _, other = add_spots(viewer, movie[::-1].copy())
    one.selected_data = {1}
    until(lambda: shows(inspector, one, 1))
    first = pixels(inspector.panel.pictures.data).copy()
    other.selected_data = {1}
    until(lambda: inspector.panel.title.text().startswith("movie [1] spots"))
    until(lambda: shows(inspector, other, 1))
    assert not np.array_equal(first, pixels(inspector.panel.pictures.data))
    # The layer above is the one that is clicked.
    click(viewer, on_canvas(viewer, other, other.data[2, 1:]))
    until(lambda: other.selected_data == {2})
    other.visible = False
    click(viewer, on_canvas(viewer, one, one.data[3, 1:]))
    until(lambda: one.selected_data == {3})
    until(lambda: shows(inspector, one, 3))


def test_three_dimensions(viewer, inspector, until, make_movie):
    _, layer = add_spots(viewer, make_movie(3))
    layer.selected_data = {5}
    until(lambda: shows(inspector, layer, 5))
    viewer.dims.ndisplay = 3
    click(viewer, on_canvas(viewer, layer, layer.data[0, 1:]))
    layer.selected_data = {6}
    until(lambda: shows(inspector, layer, 6))
    viewer.dims.ndisplay = 2
    viewer.dims.set_current_step(0, 0)
    until(lambda: layer.data[inspector._row, 0] == 0)


def test_both_themes(viewer, inspector, until, make_movie):
    _, layer = add_spots(viewer, make_movie())
    layer.selected_data = {1}
    until(lambda: shows(inspector, layer, 1))
    panel, seen = inspector.panel, []
    for theme in ("light", "dark"):
        viewer.theme = theme
        QApplication.processEvents()
        brush = panel.profiles.row.dots.opts["brush"].color()
        ground = panel.pictures.data.backgroundBrush().color()
        assert abs(brush.lightness() - ground.lightness()) > 100
        picture = panel.pictures.grab().toImage()
        colors = {picture.pixelColor(x, y).name() for x in range(picture.width()) for y in (60, 70)}
        assert len(colors) > 20
        seen.append((brush.name(), ground.name()))
    assert seen[0] != seen[1]


@pytest.mark.parametrize("area", ["right", "bottom"])
def test_everything_has_room(viewer, until, make_movie, area):
    viewer.window.resize(1280, 800)
    inspector = docked(viewer, area)
    _, layer = add_spots(viewer, make_movie(3), scale=(1, 0.1, 0.1), units=("s", "um", "um"))
    # It goes below the canvas by itself, once; then the user may put it elsewhere.
    window = viewer.window._qt_window
    dock = inspector.parent()
    while not isinstance(dock, QDockWidget):
        dock = dock.parent()
    bottom, right = Qt.DockWidgetArea.BottomDockWidgetArea, Qt.DockWidgetArea.RightDockWidgetArea
    until(lambda: QMainWindow.dockWidgetArea(window, dock) == bottom)
    if area == "right":
        window.addDockWidget(right, dock)
    layer.selected_data = {5}
    until(lambda: shows(inspector, layer, 5))
    until(lambda: inspector.panel.updatesEnabled())
    assert QMainWindow.dockWidgetArea(window, dock) == (right if area == "right" else bottom)
    panel = inspector.panel

    def within():
        room = panel.rect()
        for part in (panel.title, panel.pictures, panel.profiles, panel.numbers.copy_button):
            corner = part.mapTo(panel, QPoint(0, 0))
            assert room.contains(part.rect().translated(corner)), part
        return True

    until(within)
    for _, value, physical in panel.numbers._rows:
        assert value.width() >= value.sizeHint().width()
        assert physical.width() >= physical.sizeHint().width()
    side = panel.pictures.data.image.sceneBoundingRect()
    assert side.width() == pytest.approx(side.height(), rel=0.05)
    assert side.width() > 60
    numbers, profiles = (
        part.mapTo(panel, QPoint(0, 0)) for part in (panel.numbers, panel.profiles)
    )
    assert (numbers.x() > profiles.x()) == (area == "bottom")


def test_the_numbers_can_be_copied(viewer, inspector, until, qtbot, make_movie):
    _, layer = add_spots(viewer, make_movie(), scale=(0.1, 0.1), units=("um", "um"))
    layer.selected_data = {1}
    until(lambda: shows(inspector, layer, 1))
    qtbot.mouseClick(inspector.panel.numbers.copy_button, LEFT)
    lines = [line.split("\t") for line in QApplication.clipboard().text().splitlines()]
    cells = {line[0]: line[1:] for line in lines}
    values = layer.features.iloc[1]
    assert float(cells["sigma"][0]) == values["sigma"]
    assert float(cells["sigma"][1]) == values["sigma_stderr"]
    assert float(cells["x"][3]) == pytest.approx(0.1 * values["x"])
    assert cells["stop_condition"][0] == values["stop_condition"]


def test_everything_explains_itself(viewer, inspector, until, make_movie):
    _, layer = add_spots(viewer, make_movie())
    layer.selected_data = {1}
    until(lambda: shows(inspector, layer, 1))
    panel = inspector.panel
    labels = [label for row in panel.numbers._rows for label in row]
    pictures = [panel.pictures.data, panel.pictures.model, panel.pictures.residual]
    for part in (*labels, *pictures, panel.profiles.row, panel.profiles.column, panel.verdict):
        assert part.toolTip().startswith("<p>"), part
    assert panel.numbers.copy_button.accessibleName()


def callbacks(viewer, layer, image):
    """Return how many callbacks the events that are followed have."""
    events = [viewer.layers.events.inserted, viewer.layers.events.removed]
    events += [viewer.dims.events.current_step, viewer.dims.events.ndisplay, viewer.events.theme]
    events += [layer.events.name, layer.events.data, layer.events.features, image.events.data]
    events += [layer.events.metadata, layer.events.scale, layer.events.units]
    events += [viewer.layers.selection.events.active, layer.selected_data.events.items_changed]
    counts = [len(getattr(event, "callbacks", event)) for event in events]
    return [*counts, len(viewer.mouse_drag_callbacks)]


def test_a_closed_inspector_leaves_nothing_behind(viewer, qtbot, until, make_movie):
    image, layer = add_spots(viewer, make_movie(3))
    before = callbacks(viewer, layer, image)
    inspector = docked(viewer)
    layer.selected_data = {5}
    until(lambda: shows(inspector, layer, 5))
    assert callbacks(viewer, layer, image) != before
    viewer.window.remove_dock_widget(inspector)
    assert callbacks(viewer, layer, image) == before
    layer.selected_data = {6}
    viewer.dims.set_current_step(0, 1)
    viewer.theme = "light"
    gone = weakref.ref(inspector)
    inspector = None

    def freed():
        gc.collect()
        return gone() is None

    until(freed)
    viewer.layers.clear()


def test_an_inspector_that_is_docked_again_works(viewer, inspector, until, make_movie):
    _, layer = add_spots(viewer, make_movie(2))
    viewer.window.remove_dock_widget(inspector)
    layer.selected_data = {3}
    viewer.window.add_dock_widget(inspector, name="Inspect spot", area="bottom")
    until(lambda: shows(inspector, layer, 3))


def test_closing_while_a_frame_is_read(viewer, inspector, until, gate):
    image = viewer.add_image(gate.movie, name="movie", contrast_limits=(90, 600))
    fits = napari_spotfit.fit_at(gate.movie[:1], [(0, 10.3, 12.1)])
    layer = napari_spotfit.to_points_layer(fits, image)
    layer.data = [(3, 10.3, 12.1)]
    viewer.add_layer(layer)
    layer.selected_data = {0}
    until(lambda: note(inspector) == "Reading the frame…")
    viewer.window.remove_dock_widget(inspector)
    gate.open()
    until(no_worker)


def test_two_viewers_do_not_meet(make_napari_viewer, until, make_movie):
    first, second = make_napari_viewer(), make_napari_viewer()
    inspectors, layers = [], []
    for viewer in (first, second):
        layers.append(add_spots(viewer, make_movie(2))[1])
        inspectors.append(docked(viewer))
    layers[0].selected_data = {1}
    until(lambda: shows(inspectors[0], layers[0], 1))
    assert message(inspectors[1]).startswith("Click")
    layers[1].selected_data = {2}
    until(lambda: shows(inspectors[1], layers[1], 2))
    assert shows(inspectors[0], layers[0], 1)


def test_napari_opens_it_from_the_plugins_menu(viewer, until, make_movie):
    _, widget = viewer.window.add_plugin_dock_widget("napari-spotfit", "Inspect spot")
    assert isinstance(widget, InspectSpot)
    until(lambda: "Fit spots first" in message(widget))
