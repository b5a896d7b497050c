"""Images with known spots, and a settings folder that no test shares."""

from __future__ import annotations

import gc
import inspect
import sys
import threading
from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from display import own_display
from hand import Hand
from magicgui.widgets import protocols
from napari._vispy import canvas
from napari.utils.events import EventEmitter
from npe2 import PluginManager, PluginManifest
from one_viewer import OneViewer
from qtpy.QtCore import QSettings, Qt

from napari_spotfit.widgets.fit_spots import FitSpots
from napari_spotfit.widgets.fitting import preview
from napari_spotfit.widgets.parts import remember

HERE = Path(__file__).parent
#: Places of the spots in every frame of the images made here, in pixels.
SPOTS = np.array([(10.3, 12.1), (14.8, 33.6), (35.2, 9.7), (31.4, 36.5)])
SIGMA = 1.4
SHAPE = (48, 50)
SERVER: pytest.StashKey[Any] = pytest.StashKey()
#: Milliseconds to wait for what must happen.
PATIENCE = 60_000


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let tests of one kind of viewer follow each other: each change of it opens another one."""
    places = [n for n, item in enumerate(items) if item.path.is_relative_to(HERE)]
    ordered = sorted((items[n] for n in places), key=kind_of_viewer)
    for n, item in zip(places, ordered, strict=True):
        items[n] = item


def kind_of_viewer(item: pytest.Item) -> int:
    """Return 0 for a hidden viewer or none, 1 for one on the screen, 2 for viewers of its own."""
    fixtures = getattr(item, "fixturenames", ())
    return 2 if "make_napari_viewer" in fixtures else int("shown_viewer" in fixtures)


@pytest.fixture(scope="session", autouse=True)
def display(request: pytest.FixtureRequest) -> None:
    """Open Qt's connection to the display of this process; both last as long as the process."""
    request.config.stash[SERVER] = own_display()
    request.getfixturevalue("qapp")


@pytest.fixture(scope="session", autouse=True)
def plugins() -> Iterator[None]:
    """Read the manifests of all plugins once, not for every viewer."""
    PluginManager.instance().discover(include_npe1=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PluginManifest, "discover", lambda paths=(): iter(()))
        yield


@pytest.fixture(scope="session", autouse=True)
def quick_layers() -> Iterator[None]:
    """Do once what napari repeats for each layer.

    It looks at the signature of each method that it connects or disconnects: at hundreds when a
    layer goes, which takes a tenth of the time.
    """
    check = EventEmitter._check_signature
    known: dict[Any, bool] = {}

    def check_once(callback: Any) -> bool:
        key = _signature_key(callback)
        if key is None:
            return check(callback)
        if key not in known:
            known[key] = check(callback)
        return known[key]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(EventEmitter, "_check_signature", staticmethod(check_once), raising=False)
        # So it is with magicgui, which looks whether each widget's class has all methods.
        patch.setattr(protocols, "assert_protocol", cache(protocols.assert_protocol))
        # Garbage is collected before each test; for a layer that goes, drivers on Windows need it.
        if sys.platform != "win32":
            patch.setattr(canvas, "gc", SimpleNamespace(collect=lambda: 0), raising=False)
        yield


def _signature_key(callback: Any) -> Any:
    """Return what callbacks of one signature have in common, which holds none of their objects."""
    if inspect.ismethod(callback):
        return "method", callback.__func__
    if inspect.isfunction(callback) and not callback.__dict__:
        return "function", callback.__code__  # of a function that is made for each layer
    if isinstance(callback, EventEmitter):
        return "emitter", type(callback)
    if isinstance(callback, partial) and (key := _signature_key(callback.func)):
        return key, len(callback.args), frozenset(callback.keywords)
    return None


@pytest.fixture(scope="session")
def one_viewer(display: None, plugins: None) -> Iterator[OneViewer]:
    """Keep one viewer for the tests that want a new one."""
    one = OneViewer()
    yield one
    one.close()


@pytest.fixture(autouse=True)
def _garbage() -> None:
    """Let the collections that napari asks for look only at what a test makes."""
    gc.collect()
    gc.freeze()


@pytest.fixture
def open_viewer(request: pytest.FixtureRequest, one_viewer: OneViewer) -> Iterator[Any]:
    """Return the function that gives a new viewer, or one that is as new; once in a test."""
    if "make_napari_viewer" in request.fixturenames:
        yield request.getfixturevalue("make_napari_viewer")
        return
    yield one_viewer.get
    called = getattr(request.node, "rep_call", None)
    if called is not None and called.passed:
        one_viewer.clear()
    else:
        one_viewer.close(after_failure=True)


@pytest.fixture
def make_napari_viewer(_no_other_viewer: None, make_napari_viewer: Any) -> Any:
    """Open any number of viewers."""
    return make_napari_viewer


@pytest.fixture
def _no_other_viewer(one_viewer: OneViewer) -> None:
    """Close the viewer that was kept: napari's own fixture wants to see none."""
    one_viewer.close()


@pytest.fixture
def qtbot(qtbot: Any) -> Any:
    """Wait for a minute by default: a busy machine is no failure."""
    until, signal = qtbot.waitUntil, qtbot.waitSignal

    def wait_until(callback: Callable[[], Any], *, timeout: int = PATIENCE) -> None:
        until(callback, timeout=timeout)

    def wait_signal(emitted: Any, *, timeout: int = PATIENCE, **options: Any) -> Any:
        return signal(emitted, timeout=timeout, **options)

    qtbot.waitUntil, qtbot.waitSignal = wait_until, wait_signal
    return qtbot


@pytest.fixture
def viewer(open_viewer):
    return open_viewer()


@pytest.fixture
def shown_viewer(open_viewer):
    """Open a viewer whose window is on the screen."""
    return open_viewer(show=True)


@pytest.fixture(autouse=True)
def _no_preview_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the preview open where a test asks for it only."""
    monkeypatch.setattr(preview, "_QUICK", 0)


@pytest.fixture
def widget(viewer):
    widget = FitSpots(viewer)
    widget.result.heading.setChecked(True)
    viewer.window.add_dock_widget(widget, name="Fit spots")
    return widget


@pytest.fixture
def hand(viewer):
    return Hand(viewer)


@pytest.fixture(autouse=True)
def settings_folder(tmp_path: Path) -> Iterator[Path]:
    """Keep the remembered values of each test in a folder of its own."""
    QSettings.setPath(QSettings.Format.IniFormat, QSettings.Scope.UserScope, str(tmp_path))
    yield tmp_path
    remember.write()


def frame(seed: int = 0) -> np.ndarray:
    """Return one frame with noise and a spot at each place."""
    y, x = np.indices(SHAPE)
    image = np.random.default_rng(seed).normal(100, 2, SHAPE)
    for number, (center_y, center_x) in enumerate(SPOTS):
        distance = (y - center_y) ** 2 + (x - center_x) ** 2
        image += (300 + 50 * number) * np.exp(-distance / (2 * SIGMA**2))
    return np.rint(image).astype(np.uint16)


def movie(*lengths: int) -> np.ndarray:
    """Return frames along any number of leading axes; every frame has other noise."""
    count = int(np.prod(lengths, dtype=int))
    return np.stack([frame(seed) for seed in range(count)]).reshape(*lengths, *SHAPE)


@pytest.fixture
def spots() -> np.ndarray:
    """Return the places (y, x) of the spots in every frame."""
    return SPOTS


@pytest.fixture(scope="session")
def make_movie() -> Callable[..., np.ndarray]:
    """Return the function that makes an image with some leading axes."""
    return movie


class Gate:
    """A Dask movie whose fifth frame is not there before the gate opens.

    Its frames are so large that each is a part of its own on one thread, and the noise is
    measured in four others.
    """

    def __init__(self) -> None:
        import dask.array

        self._open = threading.Event()
        image = np.zeros((1, 1024, 1024))  # of 8 bytes a pixel: a block
        image[0, : SHAPE[0], : SHAPE[1]] = frame()

        def load(block_info: Any = None) -> np.ndarray:
            if block_info[None]["chunk-location"][0] == 4:
                assert self._open.wait(60), "the test never opened the gate"
            return image

        self.movie = dask.array.map_blocks(load, chunks=((1,) * 6, 1024, 1024), dtype=image.dtype)

    def open(self) -> None:
        self._open.set()


@pytest.fixture
def gate() -> Iterator[Gate]:
    """Hold a movie in the middle; let it go at the end whatever happens."""
    gate = Gate()
    yield gate
    gate.open()


@pytest.fixture
def press(qtbot: Any) -> Callable[[Any], None]:
    """Click a button with the mouse."""
    return lambda button: qtbot.mouseClick(button, Qt.MouseButton.LeftButton)


@pytest.fixture
def start(qtbot: Any, press: Callable[[Any], None]) -> Callable[[Any], None]:
    """Click Fit and wait for the first frames."""

    def run(widget: Any) -> None:
        widget.settings.controls["threads"].value = 1
        press(widget.fit_button)
        qtbot.waitUntil(lambda: widget.running.progress.value() > 0, timeout=120_000)

    return run


@pytest.fixture
def fit(qtbot: Any, press: Callable[[Any], None]) -> Callable[[Any], str]:
    """Click Fit, wait for the end, return the status line."""

    def run(widget: Any) -> str:
        with qtbot.waitSignal(widget.finished, timeout=120_000):
            press(widget.fit_button)
        return str(widget.status.text())

    return run
