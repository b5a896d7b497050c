"""Drive the viewer through a scientist's story and save its pictures in docs/images/.

Open a sample, see its fits before anything is decided, fit it, keep the good spots, click a
bad one and read why it is bad. The documentation shows these pictures, and the README all of them
as one that moves.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import napari
import numpy as np
from demo import WINDOW, fit, open_sample, save_window
from napari.utils.colormaps import ensure_colormap
from PIL import Image
from qtpy.QtCore import QEventLoop, QTimer

sys.path.append(str(Path(__file__).parents[1] / "tests" / "helpers"))
from hand import Hand
from own_settings import own_settings

from napari_spotfit.analysis.render import RenderIndex
from napari_spotfit.widgets.layers.points import fits_of_features

IMAGES = Path(__file__).parent / "images"
#: How long a scene of the story is shown, in milliseconds.
SCENE = 1600


def scene(viewer: napari.Viewer) -> Image.Image:
    """Return a picture of the whole window in few colours, once everything in it is drawn."""
    wait_until(lambda: True)
    window = viewer.window.screenshot(canvas_only=False, flash=False)
    return (
        Image.fromarray(window[..., :3]).resize((1024, 640)).quantize(128, dither=Image.Dither.NONE)
    )


def wait_until(done: Callable[[], bool]) -> None:
    """Run the event loop until something is done, and until it is drawn."""
    loop, poll = QEventLoop(), QTimer(interval=20)
    poll.timeout.connect(lambda: done() and (poll.stop(), QTimer.singleShot(300, loop.quit)))
    poll.start()
    loop.exec()


def dock(viewer: napari.Viewer, name: str) -> Any:
    """Open another of the plugin's widgets, as the menu does."""
    _, widget = viewer.window.add_plugin_dock_widget("napari-spotfit", name)
    wait_until(lambda: True)
    return widget


def look_at(viewer: napari.Viewer, y: float, x: float, closer: float) -> None:
    """Bring a place in world coordinates to the middle, and come closer."""
    camera = getattr(viewer, "scene", viewer).camera
    camera.center = (0, y, x)
    camera.zoom *= closer
    wait_until(lambda: True)


def show_smfish(sample: str) -> None:
    """Preview, fit, filter, and click the worst of the bad spots; all of it is the story, too."""
    viewer, widget = open_sample(sample)
    story = [scene(viewer)]
    drawn: list[bool] = []
    if widget.preview.box.isChecked():  # of small images it opens by itself
        widget.preview.box.click()
    widget.preview.drawn.connect(lambda: drawn.append(True))
    widget.preview.box.click()
    wait_until(lambda: bool(drawn))
    viewer.reset_view()
    for false_spots in (1e5, 1e4, 1e3, 1e2, 10):  # the line is dragged to where noise ends
        drawn.clear()
        widget.settings.controls["false_spots"].value = false_spots
        wait_until(lambda: bool(drawn))
        story.append(scene(viewer))
    save_window(viewer, IMAGES / "preview.png")
    layer = fit(viewer, widget)
    save_window(viewer, IMAGES / "smfish.png")
    story.append(scene(viewer))
    print(widget.status.text())

    results = dock(viewer, "Results")
    results.tabs.setCurrentWidget(results.filters)
    results.filters.histogram.feature.choose("photons")
    results.filters.histogram.region.setRegion((500, 3000))
    results.filters.legend.good.click()
    wait_until(lambda: True)
    save_window(viewer, IMAGES / "spots.png")
    story.append(scene(viewer))
    print("; ".join(results.spots.filters.words()), "-", results.count.text())
    results.filters.list.clear.click()

    inspector = results.inspect
    results.tabs.setCurrentWidget(inspector)
    table = layer.features
    bad = np.flatnonzero(table["good"] == 0)
    worst = bad[np.argmax(table["chi_square"].to_numpy()[bad])]
    look_at(viewer, *layer.data_to_world(layer.data[worst]), closer=3)
    shown: list[bool] = []
    inspector.refreshed.connect(lambda: shown.append(True))
    Hand(viewer).click(layer, layer.data[worst])
    wait_until(lambda: bool(shown))
    save_window(viewer, IMAGES / "inspect.png")
    story.append(scene(viewer))
    length = [SCENE, *[SCENE // 3] * 4, *[SCENE] * 3, 2 * SCENE]
    story[0].save(
        IMAGES / "story.gif", save_all=True, append_images=story[1:], duration=length, loop=0
    )
    viewer.close()


def show_movie(sample: str) -> None:
    """Fit a movie, whose frames the widget offers."""
    viewer, widget = open_sample(sample)
    fit(viewer, widget)
    fit(viewer, widget)  # the first one had the engine to load
    save_window(viewer, IMAGES / "widget.png")
    print(widget.status.text())
    viewer.close()


def show_camera(sample: str) -> None:
    """Choose what is known of the camera's pixels, and fit with all of it."""
    viewer, widget = open_sample(sample)
    panel = widget.settings
    panel.advanced.expand()
    panel.controls["estimator"].value = "mle"
    for name, choice in panel.camera.maps.items():
        choice.layer = viewer.layers[f"sCMOS {name}"]
    panel.camera.bad_pixels.layer = viewer.layers["sCMOS hot pixels"]
    viewer.layers.selection.active = viewer.layers["sCMOS"]
    fit(viewer, widget)
    fit(viewer, widget)  # the first one had the engine to load
    widget.area.verticalScrollBar().setValue(panel.advanced.y())
    save_window(viewer, IMAGES / "camera.png")
    print(widget.status.text())
    viewer.close()


def show_after(sample: str) -> None:
    """Merge, correct and render the spots of a movie; save the window, and what came of it."""
    viewer, widget = open_sample(sample)
    layer = fit(viewer, widget)
    movie = viewer.layers[sample]
    results = dock(viewer, "Results")
    page = results.after
    results.tabs.setCurrentWidget(page)
    fits = fits_of_features(layer.features, layer.metadata, layer.ndim)
    before = RenderIndex(fits[fits.good], shape=movie.data.shape)
    wait_until(lambda: True)
    page.run_button.click()
    wait_until(lambda: "rendered." in page.hint.text())
    print(page.hint.text())
    layer.visible = movie.visible = False
    viewer.reset_view()
    save_window(viewer, IMAGES / "after-the-fit.png")
    finer, (top, left), side = 16, (50, 32), 30
    rows, columns = ((finer * first, finer * (first + side)) for first in (top, left))
    raw = movie.data.mean(axis=0)[top : top + side, left : left + side]
    panels = [np.kron(raw - raw.min(), np.ones((finer, finer)))]
    panels += [
        index.part((finer, finer), rows, columns) for index in (before, page.rendered.image.index)
    ]
    strip = [np.full((finer * side, finer // 2, 4), 1.0)] * 5
    strip[::2] = [
        ensure_colormap("inferno").map(np.clip(one / np.quantile(one, 0.995), 0, 1)).reshape(
            (*one.shape, 4)
        )
        for one in panels
    ]  # fmt: skip
    picture = np.rint(255 * np.hstack(strip)[..., :3]).astype(np.uint8)
    Image.fromarray(picture).quantize(255).save(IMAGES / "before-after.png", optimize=True)
    viewer.close()


def show_loop() -> None:
    """Follow fiducials of the simulated microscope, and hold its sample still from a time on."""
    viewer = napari.Viewer()
    viewer.window.resize(*WINDOW)
    track = dock(viewer, "Track")
    track.start_button.click()
    wait_until(lambda: track.seen is not None and track.seen.frames > 800)
    track.arm_button.click()
    wait_until(lambda: track.seen.frames > 2000)
    viewer.reset_view()
    save_window(viewer, IMAGES / "track.png")
    print(track.status.text())
    track.stop()
    viewer.close()


def main() -> None:
    """Take all pictures."""
    IMAGES.mkdir(exist_ok=True)
    own_settings()
    show_movie("molecules")
    show_smfish("smfish")
    show_camera("scmos")
    show_after("filaments")
    show_loop()


if __name__ == "__main__":
    main()
