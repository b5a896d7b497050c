"""The inspector is opened, closed, docked again; and one in another viewer."""

import weakref

from event_loop import freed, no_worker
from inspector import add_spots, docked, message, note, results_of, shows

import napari_spotfit
from napari_spotfit.widgets.layers.history import history_of
from napari_spotfit.widgets.results import Results


def callbacks(viewer, layer, image):
    """Return how many callbacks the events that are followed have."""
    events = [viewer.layers.events.inserted, viewer.layers.events.removed]
    events += [viewer.dims.events.current_step, viewer.dims.events.ndisplay]
    events += [layer.events.name, layer.events.data, layer.events.features, image.events.data]
    events += [layer.events.metadata, layer.events.scale, layer.events.units]
    events += [viewer.layers.selection.events.active, layer.selected_data.events.items_changed]
    counts = [len(getattr(event, "callbacks", event)) for event in events]
    return [*counts, len(viewer.mouse_drag_callbacks)]


def test_a_closed_inspector_leaves_nothing_behind(viewer, qtbot, until, make_movie):
    image, layer = add_spots(viewer, make_movie(3))
    history_of(viewer)  # works on as long as there are fitted spots
    before = callbacks(viewer, layer, image)
    inspector = docked(viewer)
    layer.selected_data = {5}
    until(lambda: shows(inspector, layer, 5))
    assert callbacks(viewer, layer, image) != before
    viewer.window.remove_dock_widget(results_of(inspector))
    assert callbacks(viewer, layer, image) == before
    layer.selected_data = {6}
    viewer.dims.set_current_step(0, 1)
    viewer.theme = "light"
    gone = weakref.ref(inspector)
    inspector = None
    until(lambda: freed(gone))
    viewer.layers.clear()


def test_an_inspector_that_is_docked_again_works(viewer, inspector, until, make_movie):
    _, layer = add_spots(viewer, make_movie(2))
    results = results_of(inspector)
    viewer.window.remove_dock_widget(results)
    layer.selected_data = {3}
    viewer.window.add_dock_widget(results, name="Results", area="bottom")
    until(lambda: shows(inspector, layer, 3))


def test_closing_while_a_frame_is_read(viewer, inspector, until, gate):
    image = viewer.add_image(gate.movie, name="movie", contrast_limits=(90, 600))
    noise = napari_spotfit.noise_model(gate.movie)
    fits = napari_spotfit.fit_at(gate.movie[:1], [(0, 10.3, 12.1)], noise=noise)
    layer = napari_spotfit.to_points_layer(fits, image)
    layer.data = [(4, 10.3, 12.1)]
    viewer.add_layer(layer)
    layer.selected_data = {0}
    until(lambda: note(inspector) == "Reading the frame…")
    viewer.window.remove_dock_widget(results_of(inspector))
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
    _, widget = viewer.window.add_plugin_dock_widget("napari-spotfit", "Results")
    assert isinstance(widget, Results)
    until(lambda: "Fit spots first" in message(widget.inspect))
