"""The button's work from the console."""

from __future__ import annotations

import gc
import re
import weakref
from pathlib import Path

import numpy as np
import pytest
from event_loop import no_worker
from napari.utils._proxies import PublicOnlyProxy

from napari_spotfit import Settings, fit_layer, localize


@pytest.fixture
def viewer(shown_viewer):
    return shown_viewer


def test_it_gives_what_localize_does(viewer, make_movie):
    image = viewer.add_image(make_movie(2), name="movie", scale=(1, 0.1, 0.1))
    fit = fit_layer(image, sigma=1.4, viewer=viewer)
    assert not fit.done
    with pytest.raises(RuntimeError, match="still runs"):
        _ = fit.fits
    fits = fit.wait(120)
    assert fit.done
    assert fit.fits is fits
    expected = localize(image.data, sigma=1.4)
    for name, column in expected.columns.items():
        np.testing.assert_array_equal(fits.columns[name], column)
    assert fit.layer is viewer.layers["movie spots"]
    assert fit.layer.scale.tolist() == [1, 0.1, 0.1]
    assert fit.layer.metadata["summary"].startswith("8 spots in ")


def test_the_console_runs_what_the_documentation_shows(viewer, make_movie):
    image = viewer.add_image(make_movie(2), name="molecules")
    viewer.layers.selection = {image}
    page = Path(__file__).parents[2] / "docs" / "viewer.md"
    one, several, direct = re.findall(r"```python\n(.*?)```", page.read_text("utf-8"), re.DOTALL)
    names: dict = {"viewer": viewer}
    exec(compile(one, page.name, "exec"), names)
    assert int(names["fits"].good.sum()) == 8
    viewer.layers.selection = {image}
    exec(compile(several, page.name, "exec"), names)
    assert names["good"] == {"molecules": 8}
    exec(compile(direct, page.name, "exec"), names)
    assert len(viewer.layers[-1].data) == 8


def test_the_button_and_the_console_fill_one_layer(viewer, widget, fit, press, make_movie):
    image = viewer.add_image(make_movie(2), name="movie")
    fit(widget)
    layer = viewer.layers["movie spots"]
    first = layer.features["sigma"].tolist()
    by_console = fit_layer(
        PublicOnlyProxy(image), viewer=PublicOnlyProxy(viewer), settings=Settings(sigma=1.6)
    )
    by_console.wait(120)
    assert by_console.layer is layer
    assert layer.metadata["settings"]["sigma"] == 1.6
    assert widget.result.layer is layer
    assert fit(widget).endswith("They replace those of the last fit.")
    assert len(viewer.layers) == 2
    for _ in range(2):
        press(widget.picking.undo)
    assert layer.features["sigma"].tolist() == first
    # Points that were deleted make the layer the user's.
    layer.selected_data = {0}
    layer.remove_selected()
    other = fit_layer(image, viewer=viewer)
    other.wait(120)
    assert other.layer is not layer
    assert len(layer.data) == 7


def test_a_fit_is_cancelled(viewer, gate):
    image = viewer.add_image(gate.movie, name="slow")
    fit = fit_layer(image, viewer=viewer, threads=1)
    with pytest.raises(TimeoutError, match="wait longer"):
        fit.wait(0.01)
    fit.cancel()
    assert fit.done
    with pytest.raises(RuntimeError, match="cancelled"):
        fit.wait()
    gate.open()
    assert list(viewer.layers) == [image]


def test_a_fit_that_is_stopped_has_what_was_found(viewer, gate):
    image = viewer.add_image(gate.movie, name="slow")
    fit = fit_layer(image, viewer=viewer, threads=1)
    fit.stop()
    gate.open()
    fits = fit.wait(120)
    assert set(fits.frame) == {0}
    assert fit.layer is viewer.layers["slow spots"]
    assert fit.summary.endswith("Stopped after 1 of 6 frames")
    fit.stop()  # there is nothing left to stop


def test_what_goes_wrong_comes_out(viewer, qtbot, make_movie):
    def broken(block):
        raise OSError("the disk is gone")

    import dask.array

    movie = dask.array.from_array(make_movie(3), chunks=(1, -1, -1)).map_blocks(
        broken, dtype=np.uint16, meta=np.empty((0, 0, 0), np.uint16)
    )
    image = viewer.add_image(make_movie(3), name="broken")
    with image.events.blocker_all():
        image._data = movie
    fit = fit_layer(image, viewer=viewer)
    with pytest.raises(OSError, match="the disk is gone"):
        fit.wait(120)
    with pytest.raises(OSError, match="the disk is gone"):
        _ = fit.layer
    image._data = make_movie(3)
    # An image that goes meanwhile gets no layer.
    fit = fit_layer(image, viewer=viewer)
    viewer.layers.remove(image)
    with pytest.raises(RuntimeError, match="was removed"):
        fit.wait(120)
    assert len(viewer.layers) == 0
    qtbot.waitUntil(no_worker)


def damaged_from(movie, first):
    """Return the movie as if it could be read up to a frame."""
    import dask.array

    def read(block, block_info=None):
        if block_info[0]["array-location"][0][0] >= first:
            raise OSError(f"frame {first} is damaged")
        return block

    frames = dask.array.from_array(movie, chunks=(1, -1, -1))
    return frames.map_blocks(read, dtype=movie.dtype, meta=np.empty((0, 0, 0), movie.dtype))


def test_what_was_found_before_the_damage_is_shown(viewer, widget, qtbot, make_movie):
    movie = make_movie(5)
    image = viewer.add_image(movie, name="damaged")
    image._data = damaged_from(movie, 3)
    fit = fit_layer(image, viewer=viewer, sigma=1.4)
    message = "frame 3 is damaged. The spots found before are shown, of 3 of 5 frames"
    with pytest.raises(RuntimeError, match=message) as caught:
        fit.wait(120)
    assert isinstance(caught.value.__cause__, OSError)
    assert fit.layer is viewer.layers["damaged spots"]
    assert sorted(set(fit.layer.data[:, 0])) == [0, 1, 2]
    # The button says it, too.
    viewer.layers.selection = {image}
    with qtbot.waitSignal(widget.finished, timeout=120_000):
        widget.fit_button.click()
    said = f"⚠ {message[0].upper()}{message[1:]}. They replace those of the last fit."
    assert widget.status.text() == said
    assert widget.result.layer is fit.layer
    assert sorted(set(fit.layer.data[:, 0])) == [0, 1, 2]


def test_wrong_arguments_are_refused_at_once(viewer, make_movie):
    image = viewer.add_image(make_movie(), name="movie")
    points = viewer.add_points([[0, 0]])
    with pytest.raises(TypeError, match="must be an Image layer"):
        fit_layer(points, viewer=viewer)
    with pytest.raises(TypeError, match="sigmas"):
        fit_layer(image, viewer=viewer, sigmas=1)
    with pytest.raises(ValueError, match="weights"):
        fit_layer(image, viewer=viewer, maps={"weights": viewer.add_image(np.ones((3, 3)))})
    viewer.layers.remove(image)
    with pytest.raises(ValueError, match="“movie” is not a layer of the viewer; add it"):
        fit_layer(image, viewer=viewer)


def test_a_handle_that_is_thrown_away_leaves_nothing(viewer, qtbot, make_movie):
    image = viewer.add_image(make_movie(), name="movie")
    gone = weakref.ref(fit_layer(image, viewer=viewer))
    qtbot.waitUntil(lambda: "movie spots" in viewer.layers)

    def freed():
        gc.collect()
        return no_worker() and gone() is None

    qtbot.waitUntil(freed)
