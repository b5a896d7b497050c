"""Measure the responsiveness of the widgets: fit, click, preview, a million spots, tracking.

Run without a screen as ``xvfb-run -a -s "-screen 0 1280x1024x24" python benchmarks/viewer.py``.
Times are until the canvas is drawn, with the available OpenGL, unless a section says otherwise. The
CPU time of the GUI thread is given, too: the rest is waiting for other load or software OpenGL.
Clicks and previews are repeated four times as often as ``--repeats``.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial
from typing import Any

import dask.array
import napari
import numpy as np
import viewer_tables
from common import bar, run
from hand import SHIFT
from own_settings import own_settings
from qtpy.QtCore import QEventLoop, QTimer
from viewer_window import (
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
)  # fmt: skip

from napari_spotfit import localize, simulate_movie, to_points_layer
from napari_spotfit.widgets.fit_spots import FitSpots
from napari_spotfit.widgets.layers.appearance import MARKS, choose_mark
from napari_spotfit.widgets.results import Results

#: Milliseconds between moves of the mouse, and of a drag.
MOVE, DRAG = 8, 3000


def opening(options: argparse.Namespace) -> None:
    """Open and close each widget beside a fitted image."""
    frame, truth = simulate_movie(1, shape=(512, 512), spots_per_frame=1000, seed=1)
    print(f"\nOpen each widget beside an image with {len(truth)} spots, until it is drawn")
    with open_viewer() as (viewer, _):
        viewer.window.remove_dock_widget("all")
        image = viewer.add_image(frame[0], name="image")
        viewer.add_layer(to_points_layer(localize(frame[0]), image))
        settle()
        for name in ("Fit spots", "Results"):
            add, times = partial(viewer.window.add_plugin_dock_widget, "napari-spotfit"), []
            for _ in range(options.repeats + 1):
                rest(100)
                times.append(spent(partial(add, name)))
                viewer.window.remove_dock_widget("all")
            print(f"  {name}: the first time {times[0].wall:.0f} ms")
            show(f"{name}, again", times[1:], 300)


def fitted(widget: FitSpots, heart: Heartbeat) -> Spent:
    """Press the button; return the time until the points are drawn."""
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


def fit(options: argparse.Namespace) -> None:
    """From the Fit button to coloured points."""
    movie, truth = simulate_movie(options.frames, spots_per_frame=45, seed=1)
    print(f"\nFit: {len(movie)} frames 256×256 {movie.dtype}, {len(truth)} spots")
    heart = Heartbeat()
    with open_viewer() as (viewer, widget):
        viewer.add_image(movie[:2], name="warm-up")
        first = fitted(widget, heart)
        print(f"  first fit, with what has to be compiled or loaded: {first.wall / 1e3:.2f} s, "
              f"longest pause {heart.longest.wall:.0f} ms")  # fmt: skip
        viewer.layers.clear()
        viewer.add_image(movie, name="movie")
        pauses, times, bare = [], [], []
        for _ in range(options.repeats):
            heart.start()
            layer = viewer.add_points([[0, 0, 0]], name="bare")
            rest(300)
            heart.stop()
            viewer.layers.remove(layer)
            bare.append(heart.longest)
            times.append(fitted(widget, heart))
            pauses.append(heart.longest)
            text = widget.status.text()
            viewer.layers.remove("movie spots")
        print(f"  {text}")
        show("button to points", times, 2000)
        show("longest pause of the viewer", pauses, 100)
        show("napari's own pause for a layer with one point", bare)


def fit_again(widget: FitSpots, heart: Heartbeat, repeats: int, clear: Callable[[], None]) -> None:
    """Print the times of fits into new layers, and into existing ones."""
    times, pauses, again = [], [], []
    for _ in range(repeats):
        clear()
        times.append(fitted(widget, heart))
        pauses.append(heart.longest)
        again.append(fitted(widget, heart))
    print(f"  {widget.status.text()}")
    show("button to points", times, 1500)
    show("longest pause of the viewer", pauses)
    show("button to points, in the layers of the last fit", again, 1500)


def field(options: argparse.Namespace) -> None:
    """From the Fit button to the points of one large frame; other marks, and clicks in it."""
    frame, truth = simulate_movie(1, shape=(2048, 2048), spots_per_frame=17_000, seed=1)
    print(f"\nField: one frame of 2048×2048, {len(truth)} spots")
    heart, clicks = Heartbeat(), 4 * options.repeats
    with open_viewer() as (viewer, widget):
        image = viewer.add_image(frame[0], name="field")
        fitted(widget, heart)  # without loading the engine
        fit_again(widget, heart, options.repeats, lambda: viewer.layers.remove("field spots"))
        layer = viewer.layers["field spots"]
        marks = [spent(partial(choose_mark, layer, mark)) for mark in (*MARKS, *MARKS)]
        show("another mark for all of them, drawn", marks)
        canvas = Canvas(viewer)
        places = truth[["y", "x"]].to_numpy()[: clicks + 2]
        times = [_click(canvas, widget, image, place) for place in places]
        show("click beside them to drawn point", times[2:], 150)
        show("of which napari's drawing", canvas.drawing[-clicks:])
        show("next doubtful one, without drawing", _doubtful(viewer, clicks), 60)


def several(options: argparse.Namespace) -> None:
    """From the Fit button to the points of three images fitted in one run."""
    print("\nSeveral: three images of 1024×1024 with 1500 spots each, in one run")
    heart = Heartbeat()
    with open_viewer() as (viewer, widget):
        channels = []
        for seed in range(3):
            frame, _ = simulate_movie(1, shape=(1024, 1024), spots_per_frame=1500, seed=seed)
            channels.append(viewer.add_image(frame[0], name=f"channel {seed}"))
        fitted(widget, heart)  # without loading the engine

        def choose() -> None:
            for layer in [one for one in viewer.layers if one not in channels]:
                viewer.layers.remove(layer)
            viewer.layers.selection.clear()
            viewer.layers.selection.update(channels)
            rest(300)

        fit_again(widget, heart, options.repeats, choose)


def _doubtful(viewer: napari.Viewer, repeats: int) -> list[Spent]:
    """Return the time from one doubtful spot to the next, with its table, without drawing."""
    results = Results(viewer)
    viewer.window.add_dock_widget(results, name=results.title)
    inspector = results.inspect
    times = []
    for _ in range(repeats + 2):
        inspector.step(1)
        wait_until(inspector.panel.updatesEnabled)
        settle()
        clock = Clock()
        inspector.step(1)
        inspector._soon.stop()
        inspector._refresh()
        times.append(clock.read())
    return times[2:]


def click(options: argparse.Namespace) -> None:
    """From a click to the drawn point, and with the inspector open; fits while dragging."""
    repeats = 4 * options.repeats
    movie, truth = simulate_movie(6, shape=(512, 512), spots_per_frame=200, seed=1)
    stack = dask.array.from_array(movie.reshape(2, 3, 512, 512), chunks=(1, 1, 512, 512))
    moved = {"scale": (1, 0.1, 0.2), "rotate": 30, "translate": (1, 5, -3)}
    print("\nShift-click to drawn point, 512×512")
    cases: dict[str, tuple[Any, dict[str, Any], int]] = {
        "2-D": (movie[0], {}, 0),
        "4-D Dask": (stack, {"contrast_limits": (90, 600)}, 4),
        "scaled, rotated, moved": (movie, moved, 2),
        "2-D, with the inspector": (movie[0], {}, 0),
    }
    for name, (image, transform, frame) in cases.items():
        with open_viewer() as (viewer, widget):
            layer = viewer.add_image(image, name="movie", **transform)
            for axis, step in enumerate(np.unravel_index(frame, image.shape[:-2] or (1,))):
                viewer.dims.set_current_step(axis, int(step))
            if "inspector" in name:
                viewer.window.add_dock_widget(Results(viewer), name="Results")
            rest(300)
            canvas = Canvas(viewer)
            here = truth[truth["frame"] == frame][["y", "x"]].to_numpy()
            times = [_click(canvas, widget, layer, place) for place in here[: repeats + 2]]
            show(name, times[2:], 30)
            if name == "2-D":
                show("  of which napari's drawing", canvas.drawing[-repeats:])
                # With an OpenGL canvas, the toolkit composes the whole window each time.
                again = [spent(widget.picking.click.update) for _ in range(repeats)]
                show("  the window composed, for one button", again)
                first, last = np.random.default_rng(1).uniform(100, 400, (2, 2))
                _drag(canvas, widget, layer, partial(_across, first, last), "across")
                _drag(canvas, widget, layer, partial(_around, here[0]), "round a spot")


def _across(first: Any, last: Any, way: float) -> Any:
    return first + way * (last - first)


def _around(spot: Any, way: float) -> Any:
    """Return the position along a path ten times round a spot, 2 pixels from it."""
    return spot + 2 * np.array([np.sin(20 * np.pi * way), np.cos(20 * np.pi * way)])


def _click(canvas: Canvas, widget: FitSpots, image: Any, place: Any) -> Spent:
    """Click a spot; return the time until it is drawn."""
    picked: list[bool] = []
    point = canvas.come_to(image, place)
    shown = widget.picking.picker.layers.shown
    shown.connect(on_shown := lambda *_: picked.append(True))
    clock = Clock()
    canvas.hand.press(point, SHIFT)
    canvas.hand.release(point, SHIFT)
    canvas.wait_for_drawing(lambda: bool(picked))
    took = clock.read()
    shown.disconnect(on_shown)
    return took


def _drag(
    canvas: Canvas, widget: FitSpots, image: Any, path: Callable[[float], Any], where: str
) -> None:
    """Drag along a path at the rate of a mouse; print the fits per second that are shown.

    Without a spot, a fit is only reported as text.
    """
    picker, hand = widget.picking.picker, canvas.hand
    messages: list[str] = []
    shown: list[Any] = []
    begin = canvas.come_to(image, path(0))
    picker.said.connect(on_said := messages.append)
    picker.layers.shown.connect(on_shown := shown.append)
    moves = QTimer(interval=MOVE)
    clock = Clock()
    moves.timeout.connect(lambda: hand.move(hand.at(image, path(clock.read().wall / DRAG)), SHIFT))
    hand.press(begin, SHIFT)
    moves.start()
    rest(DRAG)
    moves.stop()
    took = clock.read()
    hand.release(hand.at(image, path(1)), SHIFT)
    picker.said.disconnect(on_said)
    picker.layers.shown.disconnect(on_shown)
    rate, drawn = (1e3 * len(fits) / took.wall for fits in (messages, shown))
    print(f"  {f'2-D, while dragging {where}':46s} {rate:7.1f} fits a second, {drawn:.1f} of a "
          f"spot, computing {took.cpu / took.wall:.0%}   {bar(rate, least=30)}")  # fmt: skip
    rest(300)


def preview(options: argparse.Namespace) -> None:
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
        widget.preview.box.setChecked(True)  # as it does by itself, once the image has been seen
        wait_until(lambda: bool(drawn), settle=500)
        for name, setting, values in (
            ("false spots", "false_spots", (20.0, 5.0)), ("σ", "sigma", (1.4, 1.3)),
            ("ROI size", "roi_size", (11, 9)),
        ):  # fmt: skip
            times, pauses = [], []
            for i in range(4 * options.repeats):
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


def long(options: argparse.Namespace) -> None:
    """The pauses of the viewer while very many spots are fitted and shown."""
    some, truth = simulate_movie(500, spots_per_frame=180, seed=1)
    movie = dask.array.concatenate(
        [dask.array.from_array(some, chunks=(50, 256, 256))] * max(options.long // len(truth), 1)
    )
    print(f"\nLong: {len(movie)} frames 256×256, about {options.long:,} spots")
    heart, beats = Heartbeat(), []
    with open_viewer() as (viewer, widget):
        viewer.add_image(some[:2], name="warm-up")
        fitted(widget, heart)
        viewer.layers.clear()
        viewer.add_image(movie, name="movie", contrast_limits=(90, 600))
        rest(500)
        clock = Clock()

        def note() -> None:
            beats.extend([heart.longest, heart.busiest, clock.read()])
            heart.start()

        # The run exists once the button was pressed.
        QTimer.singleShot(0, lambda: widget._run.fitted.connect(note))
        took = fitted(widget, heart)
        print(f"  {widget.status.text()}")
        longest, busiest, at = beats
        show("longest pause until the fits are there", [longest], 50)
        show("the same, of what the thread itself computed", [busiest])
        show("longest pause while the layer is made and drawn", [heart.longest])
        show("from the fits to the points", [Spent(*np.subtract(took, at))])


SECTIONS = {
    "open": opening, "fit": fit, "field": field, "several": several, "click": click,
    "preview": preview,
    "million": viewer_tables.million, "one-image": viewer_tables.one_image, "long": long,
    "tracking": viewer_tables.tracking,
}  # fmt: skip


def _add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--frames", type=int, default=1000, help="of the movie that is fitted")
    parser.add_argument("--spots", type=int, default=1_000_000, help="in the table, in one image")
    parser.add_argument("--long", type=int, default=3_600_000, help="spots of the long fit")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=300.0, help="of tracking")
    parser.add_argument("--rate", type=float, default=1000.0, help="frames a second of tracking")


def _run(section: Callable[[argparse.Namespace], None], options: argparse.Namespace) -> None:
    if options.quick:
        options.frames, options.spots, options.long = 50, 20_000, 90_000
        options.repeats, options.seconds = 1, 5.0
    section(options)


if __name__ == "__main__":
    own_settings()
    run(__doc__, {name: partial(_run, section) for name, section in SECTIONS.items()}, _add)
