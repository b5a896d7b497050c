"""One fit in a worker thread, as a Qt object."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any

from napari.qt.threading import create_worker
from napari.utils.notifications import notification_manager
from qtpy.QtCore import QObject, Signal

from ...backends.errors import BackendFallbackWarning
from ...frames import FrameSelection
from ...localize import localize_parts
from ...results import SpotFits
from ...settings import Settings
from ..layers.colors import FACE_COLORMAP
from ..layers.points import default_face, points_arguments
from ..parts.collector import CollectorAtRest


@dataclass(frozen=True)
class Job:
    """What to fit; made on the GUI thread, used in the worker."""

    image: Any
    settings: Settings
    frames: FrameSelection = None
    make_mask: Callable[[], Any] | None = None
    face: str = "sigma"
    colormap: str = FACE_COLORMAP


@dataclass(frozen=True)
class Fitted:
    """The result: all fits, what a Points layer of them is made of, and what it ran on."""

    fits: SpotFits
    points: dict[str, Any]
    device: str


class FitRun(QObject):
    """A fit that is running.

    Either ``fitted`` or ``failed`` is emitted at the end, on the GUI thread; nothing
    is after ``cancel``.

    Parameters
    ----------
    job : Job
        What to fit.
    parent : QObject
        Qt parent; when it goes, the run is cancelled.
    """

    progressed = Signal(int, int)
    fitted = Signal(object)
    failed = Signal(object)

    def __init__(self, job: Job, parent: QObject):
        super().__init__(parent)
        self._job = job
        self._stop = threading.Event()
        parent.destroyed.connect(self._stop.set)

    def start(self) -> None:
        """Start the worker."""
        worker = create_worker(_work, self._job, self._stop, _start_thread=False)
        worker.yielded.connect(self._on_progress)
        worker.returned.connect(self._on_end)
        worker.warned.connect(self._on_warning)
        worker.start()

    def cancel(self) -> None:
        """Say nothing any more; the worker stops before the next frames."""
        self._stop.set()
        self.blockSignals(True)

    def _on_progress(self, progress: tuple[int, int]) -> None:
        self.progressed.emit(*progress)

    def _on_warning(self, warning: tuple[Any, ...]) -> None:
        """Show that the GPU has failed; napari itself leaves out what a worker warns of."""
        if issubclass(warning[1], BackendFallbackWarning) and not self._stop.is_set():
            notification_manager.receive_warning(*warning)

    def _on_end(self, end: Fitted | _Failed | None) -> None:
        if isinstance(end, _Failed):
            self.failed.emit(end.error)
        elif end is not None:
            self.fitted.emit(end)
        self.deleteLater()


@dataclass(frozen=True)
class _Failed:
    error: Exception


def _work(
    job: Job, stop: threading.Event
) -> Generator[tuple[int, int], None, Fitted | _Failed | None]:
    """Fit part by part; return None if stopped.

    Errors are returned, not raised: a napari worker swallows a RuntimeError.
    """
    try:
        with CollectorAtRest() as collector:
            mask = job.make_mask() if job.make_mask is not None else None
            parts = []
            for part in localize_parts(job.image, job.settings, frames=job.frames, mask=mask):
                collector.end()
                if stop.is_set():
                    return None
                parts.append(part.fits)
                yield part.done, part.total
        fits = SpotFits.concatenate(parts)
        face = job.face if job.face in fits.columns else default_face(fits)
        return Fitted(fits, points_arguments(fits, face, job.colormap), part.device)
    except Exception as error:
        return _Failed(error)
