"""Back up results automatically, and offer them after a crash."""

from __future__ import annotations

import atexit
import os
import shutil
from datetime import datetime
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from qtpy.QtCore import QLockFile, QObject, QThreadPool, Signal
from qtpy.QtWidgets import QHBoxLayout, QPushButton, QWidget

from ...files.formats import write
from ..napari_compat import LayerData
from ..parts import remember
from ..parts.layout import explain, fill, sentence
from ..parts.work import Latest, delayed
from ..saved_layers import KEPT, attributes_of, read_layer, table_of_layer

if TYPE_CHECKING:
    from napari import Viewer
    from napari.layers import Points

_LOCK = "in_use.lock"
#: Milliseconds without a change after which a layer is kept: a drag makes many a second.
_REST = 300
#: Milliseconds that the process waits at its end for a file that is being written.
_LONGEST = 10_000
_ENDINGS = (".spots.parquet", ".spots.csv")
_LEFT_TIP = (
    "<p>napari did not close in order while this result had not been saved. What a fit, a click or "
    "a deletion makes of a layer of spots is kept in {} until napari is closed.</p>"
)


class Recovery(QObject):
    """Keeps the results of a viewer in files while napari runs.

    Every process has a folder of its own, which is locked as long as the process lives and which it
    removes when it ends in order. A folder without a lock was left by a crash.

    Parameters
    ----------
    viewer : napari.Viewer
        The viewer that shows the layers.
    parent : QObject
        Qt parent.
    """

    #: The exception that a file could not be written for.
    failed = Signal(object)
    #: The layer that was opened; the exception that it was not.
    opened, not_opened = Signal(object), Signal(object)

    def __init__(self, viewer: Viewer, parent: QObject):
        super().__init__(parent)
        self._viewer = viewer
        self._folder: Path | None = None
        self._files: WeakKeyDictionary[Points, Path] = WeakKeyDictionary()
        self._waiting: WeakKeyDictionary[Points, None] = WeakKeyDictionary()
        self._count = 0
        #: Locks on the folders left by crashes, so that no other process offers them.
        self._left: dict[Path, QLockFile] = {}
        self._soon = delayed(self._next, _REST, self)
        self._writing = Latest(self)
        for ended in (self._writing.done, self._writing.failed):
            ended.connect(self._next)
        self._writing.failed.connect(self.failed)
        self._reading = Latest(self)
        self._reading.done.connect(self._on_read)
        self._reading.failed.connect(self.not_opened)

    def keep(self, layer: Points) -> None:
        """Keep what a layer shows now, in the background."""
        self._waiting[layer] = None
        self._next()

    def keep_soon(self, layer: Points) -> None:
        """Keep what a layer shows once nothing more comes to it."""
        self._waiting[layer] = None
        self._soon.start()

    def forget(self, layer: Points) -> None:
        """Stop keeping a layer, and delete its file."""
        self._waiting.pop(layer, None)
        if (path := self._files.pop(layer, None)) is not None:
            path.unlink(missing_ok=True)

    def left(self) -> list[Path]:
        """Return the files that crashes have left, the newest first."""
        for folder in [one for one in _root().glob("*") if one.is_dir()]:
            if folder != self._folder and folder not in self._left:
                lock = _lock(folder)
                if lock is not None:
                    self._left[folder] = lock
        self._drop_empty()
        files = [one for folder in self._left for one in folder.iterdir() if _is_ours(one)]
        return sorted(files, key=lambda one: one.stat().st_mtime, reverse=True)

    def open(self, path: Path) -> None:
        """Read a file that a crash has left, in the background; open it, and keep it on."""
        self._reading.ask(partial(_read, path))

    def discard(self, path: Path) -> None:
        """Delete a file that a crash has left."""
        path.unlink(missing_ok=True)
        self._drop_empty()

    def release(self) -> None:
        """Let other processes offer what crashes have left."""
        self._reading.drop()
        while self._left:
            self._left.popitem()[1].unlock()

    def _on_read(self, read: tuple[Path, LayerData]) -> None:
        from napari.layers import Points

        path, (data, arguments, _) = read
        layer = Points(data, **arguments)
        self._viewer.add_layer(layer)
        try:
            kept = self._name(path)
            path.replace(kept)
        except OSError as error:  # it stays where it is
            self.failed.emit(error)
        else:
            self._files[layer] = kept
            layer.metadata = {**layer.metadata, KEPT: str(kept)}
        self._drop_empty()
        self.opened.emit(layer)

    def _next(self, *_: Any) -> None:
        """Write the next layer that waits, unless one is being written."""
        while self._waiting and not self._writing.busy:
            layer, _none = self._waiting.popitem()
            if layer not in self._viewer.layers:
                continue
            path = self._files.get(layer)
            if path is None:
                try:
                    path = self._files[layer] = self._name(None)
                except OSError as error:
                    self.failed.emit(error)
                    return
            if layer.metadata.get(KEPT) != str(path):
                layer.metadata = {**layer.metadata, KEPT: str(path)}
            known = attributes_of(layer)
            self._writing.ask(partial(_write, path, layer.data.copy(), known))

    def _name(self, like: Path | None) -> Path:
        """Return the name of a new file in this process's folder, which is made if need be."""
        if self._folder is None:
            self._folder = _make_folder()
        self._count += 1
        ending = _ENDINGS[find_spec("pyarrow") is None]
        if like is not None:
            ending = next(one for one in _ENDINGS if like.name.endswith(one))
        return self._folder / f"{self._count}{ending}"

    def _drop_empty(self) -> None:
        for folder, lock in list(self._left.items()):
            if not any(_is_ours(one) for one in folder.iterdir()):
                del self._left[folder]
                _remove(folder, lock)


class LeftResult(QWidget):
    """A quiet line that offers what a crash has left; hidden if there is nothing.

    Parameters
    ----------
    recovery : Recovery
        What is kept.
    """

    #: A message, and an error message.
    said, failed = Signal(str), Signal(str)

    def __init__(self, recovery: Recovery):
        super().__init__()
        self._recovery = recovery
        self._path: Path | None = None
        self.label = sentence()
        self.open_button, self.discard_button = QPushButton("Open"), QPushButton("Discard")
        for button, what, tip in (
            (self.open_button, "Open", "Open the result as a layer, as it was."),
            (self.discard_button, "Discard", "Delete the result for good."),
        ):
            explain(button, f"{what} the result that was not saved", f"<p>{tip}</p>")
        self.open_button.clicked.connect(self._on_open)
        self.discard_button.clicked.connect(self._on_discard)
        recovery.opened.connect(self._on_opened)
        recovery.not_opened.connect(self._on_not_opened)
        fill(QHBoxLayout(self), (self.label, 1), self.open_button, self.discard_button)
        self.hide()

    def look(self) -> None:
        """Offer the newest result that a crash has left, if there is one."""
        self._wait(False)
        left = self._recovery.left()
        self._path = left[0] if left else None
        self.setVisible(bool(left))
        if self._path is not None:
            waiting = len(left) - 1
            more = f" {waiting} more wait{'s' * (waiting == 1)}." if waiting else ""
            self.label.setText(f"A result of {_when(self._path)} was not saved.{more}")
            self.label.setToolTip(_LEFT_TIP.format(_root()))

    def _on_open(self) -> None:
        if self._path is None:
            return
        self._wait(True)
        self._recovery.open(self._path)

    def _on_opened(self, layer: Points) -> None:
        self._wait(False)
        self.said.emit(f"“{layer.name}” is as it was; save it with File ▸ Save Selected Layers.")
        self.look()

    def _on_not_opened(self, error: Exception) -> None:
        self._wait(False)
        self.failed.emit(f"The result was not opened: {error}")

    def _wait(self, waiting: bool) -> None:
        for button in (self.open_button, self.discard_button):
            button.setEnabled(not waiting)
        if waiting:
            self.said.emit("Opening…")

    def _on_discard(self) -> None:
        if self._path is not None:
            self._recovery.discard(self._path)
            self.look()


def _root() -> Path:
    return remember.folder() / "recovery"


def _is_ours(path: Path) -> bool:
    return path.name.endswith(_ENDINGS) and not path.name.startswith(".")


def _when(path: Path) -> str:
    """Return when a file was written: the time, and the day unless it is today."""
    then = datetime.fromtimestamp(path.stat().st_mtime)
    today = then.date() == datetime.now().date()
    return then.strftime("%H:%M" if today else "%d %B, %H:%M")


def _make_folder() -> Path:
    """Make and lock a folder of this process's own."""
    root = _root()
    root.mkdir(parents=True, exist_ok=True)
    number = 0
    while True:
        folder = root / f"{os.getpid()}-{number}"
        try:
            folder.mkdir()
        except FileExistsError:
            number += 1
            continue
        lock = _lock(folder)
        if lock is not None:
            atexit.register(_leave, folder, lock)
            return folder


def _lock(folder: Path) -> QLockFile | None:
    """Return a lock on a folder; None if a process that lives has it."""
    lock = QLockFile(str(folder / _LOCK))
    lock.setStaleLockTime(0)  # however old, it holds as long as its process lives
    return lock if lock.tryLock(0) else None


def _leave(folder: Path, lock: QLockFile) -> None:
    """Remove the folder at the end of the process, once all files are written."""
    if (pool := QThreadPool.globalInstance()) is not None:
        pool.waitForDone(_LONGEST)
    _remove(folder, lock)


def _remove(folder: Path, lock: QLockFile) -> None:
    lock.unlock()
    shutil.rmtree(folder, ignore_errors=True)


def _read(path: Path) -> tuple[Path, LayerData]:
    return path, read_layer(str(path))


def _write(path: Path, data: Any, attributes: dict[str, Any]) -> None:
    write(path, table_of_layer(data, attributes))
