"""What is measured of fits, clicks and previews, one function a section."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import dask.array
import napari
import numpy as np
from gui_viewer import (
    Canvas,
    Clock,
    Heartbeat,
    Spent,
    open_viewer,
    rest,
    settle,
    show,
    spent,
    wait_until,
)
from hand import SHIFT
from numpy.typing import NDArray
from qtpy.QtCore import QEventLoop, QTimer

from napari_spotfit import simulate_movie
from napari_spotfit.widgets.fit_spots import FitSpots
from napari_spotfit.widgets.inspect_spot import InspectSpot
from napari_spotfit.widgets.layers.appearance import MARKS, choose_mark
from napari_spotfit.widgets.spots import Spots

#: Milliseconds between the moves of a mouse, and for how long it is dragged.
_MOVE, _DRAG = 8, 3000


def fit(widget: FitSpots, heart: Heartbeat) -> Spent:
    """Press the button; return what is spent until the points are drawn."""
    loop = QEventLoop()
    widget.finished.connect(loop.quit)
    heart.start()
    clock = Clock()
    widget.fit_button.click()
    loop.exec()
    settle()
    took = clock.read()
    heart.stop()
    widget.finished.disconnect(loop.quit)
    rest(300)
    return took


def bare_points_layer(viewer: napari.Viewer, heart: Heartbeat) -> Spent:
    """Return napari's own pause when it adds a Points layer with a single point."""
    heart.start()
    layer = viewer.add_points([[0, 0, 0]], name="bare")
    rest(300)
    heart.stop()
    viewer.layers.remove(layer)
    return heart.longest


def batch(frames: int, repeats: int) -> None:
    """From the Fit button to coloured points."""
    movie, truth = simulate_movie(frames, spots_per_frame=45, seed=1)
    print(f"\nFit: {frames} frames 256×256 {movie.dtype}, {len(truth)} spots")
    heart = Heartbeat()
    with open_viewer() as (viewer, widget):
        viewer.add_image(movie[:2], name="warm-up")
        first = fit(widget, heart)
        print(
            f"  first fit, with what has to be compiled or loaded: {first.wall / 1e3:.2f} s, ",
            end="",
        )
        print(f"longest pause {heart.longest.wall:.0f} ms")
        viewer.layers.clear()
        image = viewer.add_image(movie, name="movie")
        pauses, times, bare = [], [], []
        for _ in range(repeats):
            bare.append(bare_points_layer(viewer, heart))
            times.append(fit(widget, heart))
            pauses.append(heart.longest)
            viewer.layers.remove(viewer.layers[f"{image.name} spots"])
        print(f"  {widget.status.text()}")
        show("button to points", times, 2000)
        show("longest pause of the viewer", pauses, 100)
        show("napari's own pause for a layer with one point", bare)


def field(repeats: int) -> None:
    """From the Fit button to the points of one large frame, to other marks, and clicks in it."""
    frame, truth = simulate_movie(1, shape=(2048, 2048), spots_per_frame=17_000, seed=1)
    print(f"\nField: one frame of 2048×2048, {len(truth)} spots")
    heart = Heartbeat()
    with open_viewer() as (viewer, widget):
        image = viewer.add_image(frame[0], name="field")
        fit(widget, heart)  # the first one had the engine to load
        times, pauses, again = [], [], []
        for _ in range(repeats):
            viewer.layers.remove("field spots")
            times.append(fit(widget, heart))
            pauses.append(heart.longest)
            again.append(fit(widget, heart))
        print(f"  {widget.status.text()}")
        show("button to points", times, 1500)
        show("longest pause of the viewer", pauses)
        show("button to points, in the layer of the last fit", again, 1500)
        layer = viewer.layers["field spots"]
        marks = [spent(partial(choose_mark, layer, mark)) for mark in (*MARKS, *MARKS)]
        show("another mark for all of them, drawn", marks)
        canvas = Canvas(viewer)
        places = truth.iloc[: 4 * repeats + 2]
        clicks = [_click(canvas, widget, image, (row.y, row.x)) for row in places.itertuples()]
        show("click beside them to drawn point", clicks[2:], 150)
        show("of which napari's drawing", canvas.drawing[-4 * repeats :])
        show("next doubtful one, without drawing", _doubtful(viewer, 4 * repeats), 60)


def _doubtful(viewer: napari.Viewer, repeats: int) -> list[Spent]:
    """Return what is spent from one doubtful spot to the next, without drawing, with Spots open."""
    inspector = InspectSpot(viewer)
    for widget in (Spots(viewer), inspector):
        viewer.window.add_dock_widget(widget, name=widget.title)
    times = []
    for _ in range(repeats + 2):
        inspector.step(1)
        wait_until(inspector.panel.updatesEnabled)
        settle(5)
        clock = Clock()
        inspector.step(1)
        inspector._soon.stop()
        inspector._refresh()
        times.append(clock.read())
    return times[2:]


def picking(repeats: int) -> None:
    """From a click to the drawn point, and with the inspector open; fits while dragging."""
    movie, truth = simulate_movie(6, shape=(512, 512), spots_per_frame=200, seed=1)
    stack = dask.array.from_array(movie.reshape(2, 3, 512, 512), chunks=(1, 1, 512, 512))
    print("\nShift-click to drawn point, 512×512")
    cases = {
        "2-D": (movie[0], {}, 0),
        "4-D Dask": (stack, {"contrast_limits": (90, 600)}, 4),
        "scaled, rotated, moved": (
            movie,
            {"scale": (1, 0.1, 0.2), "rotate": 30, "translate": (1, 5, -3)},
            2,
        ),
        "2-D, with the inspector": (movie[0], {}, 0),
    }
    for name, (image, transform, frame) in cases.items():
        with open_viewer() as (viewer, widget):
            layer = viewer.add_image(image, name="movie", **transform)
            if layer.ndim > 2:
                steps = np.unravel_index(frame, image.shape[:-2])
                for axis, step in enumerate(steps):
                    viewer.dims.set_current_step(axis, int(step))
            if "inspector" in name:
                viewer.window.add_dock_widget(InspectSpot(viewer), name="Inspect spot")
            rest(300)
            canvas = Canvas(viewer)
            here = truth[truth["frame"] == frame].iloc[: repeats + 2]
            times = [_click(canvas, widget, layer, (row.y, row.x)) for row in here.itertuples()]
            show(name, times[2:], 30)
            if name == "2-D":
                show("  of which napari's drawing", canvas.drawing[-repeats:])
                # Beside a canvas of OpenGL the toolkit composes the whole window each time.
                again = [spent(widget.picking.click.update) for _ in range(repeats)]
                show("  the window composed, for one button", again)
                first, last = np.random.default_rng(1).uniform(100, 400, (2, 2))
                spot = here[["y", "x"]].to_numpy()[0]
                _drag(canvas, widget, layer, partial(_across, first, last), "across")
                _drag(canvas, widget, layer, partial(_around, spot), "round a spot")


def _click(
    canvas: Canvas, widget: FitSpots, image: napari.layers.Image, place: tuple[float, float]
) -> Spent:
    """Click a spot; return what is spent until it is drawn."""
    picked: list[bool] = []
    point = canvas.come_to(image, place)
    shown = widget.picking.picker.layers.shown
    shown.connect(on_shown := lambda *_: picked.append(True))
    clock = Clock()
    canvas.click(point)
    canvas.wait_for_drawing(lambda: bool(picked))
    took = clock.read()
    shown.disconnect(on_shown)
    return took


def _drag(
    canvas: Canvas,
    widget: FitSpots,
    image: napari.layers.Image,
    path: Callable[[float], Any],
    where: str,
) -> None:
    """Drag along a path, as quickly as mice tell; print how many fits a second are told.

    Where there is no spot, a fit is told in words only.
    """
    picker, hand = widget.picking.picker, canvas.hand
    told: list[str] = []
    shown: list[Any] = []
    begin = canvas.come_to(image, path(0))
    picker.said.connect(on_told := told.append)
    picker.layers.shown.connect(on_shown := shown.append)
    moves = QTimer(interval=_MOVE)
    clock = Clock()

    def move() -> None:
        hand.move(hand.at(image, path(clock.read().wall / _DRAG)), SHIFT)

    moves.timeout.connect(move)
    hand.press(begin, SHIFT)
    moves.start()
    rest(_DRAG)
    moves.stop()
    took = clock.read()
    hand.release(hand.at(image, path(1)), SHIFT)
    picker.said.disconnect(on_told)
    picker.layers.shown.disconnect(on_shown)
    rate, drawn = (1e3 * len(fits) / took.wall for fits in (told, shown))
    print(
        f"  {f'2-D, while dragging {where}':46s} {rate:7.1f} fits a second, {drawn:.1f} of a spot, "
        f"computing {took.cpu / took.wall:.0%}   (wanted ≥ 30)"
    )
    rest(300)


def _across(
    first: NDArray[np.float64], last: NDArray[np.float64], way: float
) -> NDArray[np.float64]:
    """Return where one is on a straight way."""
    return first + way * (last - first)


def _around(spot: NDArray[np.float64], way: float) -> NDArray[np.float64]:
    """Return where one is on a way ten times round a spot, 2 pixels from it."""
    return spot + 2 * np.array([np.sin(20 * np.pi * way), np.cos(20 * np.pi * way)])


def preview(repeats: int) -> None:
    """From a change of a setting to the drawn fits."""
    movie, _ = simulate_movie(
        3, shape=(512, 512), spots_per_frame=500, photons=1200.0, background=20.0, seed=1
    )
    print("\nPreview: change of a setting to drawn fits, 512×512, 500 spots")
    heart = Heartbeat()
    with open_viewer() as (viewer, widget):
        viewer.add_image(movie, name="movie")
        canvas, drawn = Canvas(viewer), []
        widget.preview.drawn.connect(lambda: drawn.append(True))
        widget.preview.box.click()
        wait_until(lambda: bool(drawn), settle=500)
        changes = {
            "false spots": ("false_spots", (20.0, 5.0)),
            "σ": ("sigma", (1.4, 1.3)),
            "ROI size": ("roi_size", (11, 9)),
        }
        for name, (setting, values) in changes.items():
            times, pauses = [], []
            for i in range(repeats):
                drawn.clear()
                heart.start()
                clock = Clock()
                widget.settings.controls[setting].value = values[i % 2]
                canvas.wait_for_drawing(lambda: bool(drawn))
                times.append(clock.read())
                heart.stop()
                pauses.append(heart.longest)
                rest(20)
            show(name, times, 100)
            show("  longest pause of the viewer", pauses)


def long(spots: int) -> None:
    """How long the viewer cannot answer while very many spots are fitted and shown."""
    some, truth = simulate_movie(500, spots_per_frame=180, seed=1)
    movie = dask.array.concatenate(
        [dask.array.from_array(some, chunks=(50, 256, 256))] * max(spots // len(truth), 1)
    )
    print(f"\nLong: {len(movie)} frames 256×256, about {spots:,} spots")
    heart, beats = Heartbeat(), []
    with open_viewer() as (viewer, widget):
        viewer.add_image(some[:2], name="warm-up")
        fit(widget, heart)
        viewer.layers.clear()
        viewer.add_image(movie, name="movie", contrast_limits=(90, 600))
        rest(500)
        ended = QEventLoop()
        widget.finished.connect(ended.quit)
        heart.start()
        clock = Clock()
        widget.fit_button.click()

        def note() -> None:
            beats.extend([heart.longest, heart.busiest, clock.read()])
            heart.start()

        widget._run.fitted.connect(note)
        ended.exec()
        settle()
        heart.stop()
        print(f"  {widget.status.text()}")
        longest, busiest, fitted = beats
        show("longest pause until the fits are there", [longest], 50)
        show("the same, of what the thread itself computed", [busiest])
        show("longest pause while the layer is made and drawn", [heart.longest])
        show("from the fits to the points", [Spent(*np.subtract(clock.read(), fitted))])
