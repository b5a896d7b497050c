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
from qtpy.QtWidgets import QHBoxLayout, QVBoxLayout, QWidget

from ...files.formats import write
from ..napari_compat import LayerData
from ..parts import remember
from ..parts.layout import button, fill, sentence
from ..parts.messages import number
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
    #: The layers that were opened, and the exceptions that others were not.
    opened = Signal(list, list)

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
        self._reading = Latest(self, self._on_read)

    def keep(self, layer: Points) -> None:
        """Keep what a layer shows now, in the background."""
        self._waiting[layer] = None
        self._next()

    def keep_soon(self, layer: Points) -> None:
        """Keep what a layer shows once its changes have ended."""
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
        files = [one for folder in self._left for one in folder.iterdir() if _is_backup(one)]
        return sorted(files, key=lambda one: one.stat().st_mtime, reverse=True)

    def open(self, paths: list[Path]) -> None:
        """Read files that crashes have left, in the background; open them, and keep them on."""
        self._reading.ask(partial(_read, paths))

    def discard(self, paths: list[Path]) -> None:
        """Delete files that crashes have left."""
        for path in paths:
            path.unlink(missing_ok=True)
        self._drop_empty()

    def release(self) -> None:
        """Let other processes offer what crashes have left."""
        self._reading.drop()
        while self._left:
            self._left.popitem()[1].unlock()

    def _on_read(self, read: list[tuple[Path, LayerData | Exception]]) -> None:
        errors = [one for _, one in read if isinstance(one, Exception)]
        layers = [self._add(path, *one) for path, one in read if not isinstance(one, Exception)]
        self._drop_empty()
        self.opened.emit(layers, errors)

    def _add(self, path: Path, data: Any, arguments: dict[str, Any], _: str) -> Points:
        from napari.layers import Points

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
        return layer

    def _next(self, *_: Any) -> None:
        """Write the next layer that waits, unless one is being written."""
        while self._waiting and not self._writing.busy:
            layer, _none = self._waiting.popitem()
            if layer not in self._viewer.layers:
                continue
            try:
                path = self._files[layer] = self._files.get(layer) or self._name(None)
            except OSError as error:
                self.failed.emit(error)
                return
            if layer.metadata.get(KEPT) != str(path):
                layer.metadata = {**layer.metadata, KEPT: str(path)}
            self._writing.ask(partial(_write, path, layer.data.copy(), attributes_of(layer)))

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
            if not any(_is_backup(one) for one in folder.iterdir()):
                del self._left[folder]
                _remove(folder, lock)


class LeftResult(QWidget):
    """A quiet list of what crashes have left, to be opened or discarded; hidden without any.

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
        self._paths: list[Path] = []
        self._looking = Latest(self, self._on_looked)
        self.label = sentence()
        what, tip = (
            "the results that were not saved",
            "Delete these results. This cannot be undone.",
        )
        self.open_button = button(
            "Open", "Open these results as layers, as they were.", self._on_open, f"Open {what}"
        )
        self.discard_button = button("Discard", tip, self._on_discard, f"Discard {what}")
        recovery.opened.connect(self._on_opened)
        buttons = fill(QHBoxLayout(), 1, self.open_button, self.discard_button)
        fill(QVBoxLayout(self), self.label, buttons, spacing=2)
        self.hide()

    def look(self) -> None:
        """List what crashes have left, if there is anything."""
        self._wait(False)
        self._paths = self._recovery.left()
        self.setVisible(bool(self._paths))
        self.label.setText("Not saved before napari closed:")
        self.label.setToolTip(_LEFT_TIP.format(_root()))
        if self._paths:
            self._looking.ask(partial(_describe, self._paths))

    def _on_looked(self, lines: list[str]) -> None:
        self.label.setText("\n".join(["Not saved before napari closed:", *lines]))

    def _on_open(self) -> None:
        self._wait(True)
        self._recovery.open(self._paths)

    def _on_opened(self, layers: list[Points], errors: list[Exception]) -> None:
        self._wait(False)
        names = ", ".join(f"“{layer.name}”" for layer in layers)
        if errors:
            self.failed.emit(f"Not all was opened: {'; '.join(map(str, errors))}")
        elif layers:
            self.said.emit(f"Opened as before: {names}. Save with File ▸ Save Selected Layers.")
        self.look()

    def _wait(self, waiting: bool) -> None:
        for one in (self.open_button, self.discard_button):
            one.setEnabled(not waiting)
        if waiting:
            self.said.emit("Opening…")

    def _on_discard(self) -> None:
        self._recovery.discard(self._paths)
        self.look()


def _root() -> Path:
    return remember.folder() / "recovery"


def _is_backup(path: Path) -> bool:
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


def _read(paths: list[Path]) -> list[tuple[Path, LayerData | Exception]]:
    return [(path, _layer_or_error(path)) for path in paths]


def _layer_or_error(path: Path) -> LayerData | Exception:
    try:
        return read_layer(str(path))
    except (ImportError, OSError, ValueError) as error:
        return error


def _describe(paths: list[Path]) -> list[str]:
    """Return the layer, the number of spots and the time of each file."""
    lines = []
    for path in paths:
        read, what = _layer_or_error(path), "a damaged file"
        if not isinstance(read, Exception):
            what = f"“{read[1]['name']}”, {number(len(read[0]))} spots"
        lines.append(f"{what}, {_when(path)}")
    return lines


def _write(path: Path, data: Any, attributes: dict[str, Any]) -> None:
    write(path, table_of_layer(data, attributes))
