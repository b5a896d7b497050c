"""The fit of an image layer from its start to the layer of its spots."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from qtpy.QtCore import QEventLoop, QObject, QTimer, Signal

from ...images.arrays import fitted_by_plane, plane_axis
from ...results.spot_fits import SpotFits
from ..layers import images
from ..layers.result_layers import ResultLayers
from ..parts.status import summary
from .fit_run import FitRun, Fitted, Job
from .settings_menu import remember_fit

if TYPE_CHECKING:
    from napari.layers import Image, Points


class CancelledError(RuntimeError):
    """The fit was cancelled, so there is no result."""


class ImageChangedError(CancelledError):
    """The image is gone, or another one than was fitted, so there is no result."""


class LayerFit(QObject):
    """A fit of an image layer that runs in the background, and its result.

    :func:`~napari_spotfit.fit_layer` returns one, and the button of *Fit spots* makes one.

    Parameters
    ----------
    image : napari.layers.Image
        The layer that is fitted.
    job : Job
        What to fit, and how.
    results : ResultLayers
        Where the layer of the spots is found or made.
    parent : QObject, optional
        Qt parent; when it goes, the fit is cancelled.
    """

    #: So many frames are done, of so many.
    progressed = Signal(int, int)
    #: The fits are there; now the layer is made.
    fitted = Signal()
    #: The layer that shows the spots.
    shown = Signal(object)
    #: All has ended, whichever way.
    ended = Signal()

    def __init__(
        self, image: Image, job: Job, results: ResultLayers, parent: QObject | None = None
    ):
        super().__init__(parent)
        self.image, self._results = image, results
        self._pixels = images.own_pixels(image)
        self._run = FitRun(job, self)
        self._run.progressed.connect(self.progressed)
        self._run.fitted.connect(self._on_fitted)
        self._run.failed.connect(self._end)
        self._fits: SpotFits | None = None
        self._layer: Points | None = None
        self._showing: Iterator[None] | None = None
        #: Why there is no result, if there is none.
        self.error: Exception | None = None
        #: What was found, in one line.
        self.summary = ""
        #: Whether the spots stand where those of an earlier fit were.
        self.replaced = False
        self._done = False

    @property
    def done(self) -> bool:
        """Whether the fit has ended: with a result, with an error, or cancelled."""
        return self._done

    @property
    def fits(self) -> SpotFits:
        """All fits, the invalid ones too.

        Raises
        ------
        RuntimeError
            If the fit still runs, or was cancelled.
        Exception
            Whatever has stopped the fit.
        """
        self._check()
        assert self._fits is not None
        return self._fits

    @property
    def layer(self) -> Points | None:
        """The layer of the spots, of those before something has stopped the fit, too.

        None if none was found. Else it raises what ``fits`` does.
        """
        if self._layer is None:
            self._check()
        return self._layer

    def start(self) -> None:
        """Start to fit."""
        self._started = time.perf_counter()
        self.image.events.data.connect(self._on_pixels)
        self._run.start()

    def stop(self) -> None:
        """Fit no further, and show what was found; nothing changes if the fit has ended."""
        if not self._done:
            self._run.stop()

    def cancel(self, why: CancelledError | None = None) -> None:
        """Stop the fit, unless it has ended or its spots are being shown; layers stay as they are.

        Whoever asks for the result then gets a RuntimeError.
        """
        if not self._done and self._showing is None:
            self._run.cancel()
            self._end(why or CancelledError("the fit was cancelled; the layers are as they were"))

    def cancel_if_gone(self) -> None:
        """Stop the fit if its image is in the viewer no more."""
        if not self._results.can_show(self.image):
            name = self.image.name
            self.cancel(ImageChangedError(f"“{name}” was removed before its fit had ended"))

    def wait(self, timeout: float | None = None) -> SpotFits:
        """Wait for the end, while napari goes on to answer; return the fits.

        Parameters
        ----------
        timeout : float, optional
            So many seconds at most; by default as long as it takes.

        Raises
        ------
        TimeoutError
            If the fit still runs then; it goes on.
        Exception
            What ``fits`` raises.
        """
        if not self._done:
            loop = QEventLoop()
            self.ended.connect(loop.quit)
            timer = QTimer()
            timer.setSingleShot(True)
            timer.timeout.connect(loop.quit)
            if timeout is not None:
                timer.start(max(round(1000 * timeout), 0))
            loop.exec()
            self.ended.disconnect(loop.quit)
            timer.stop()
        if not self._done:
            raise TimeoutError(
                f"the fit of “{self.image.name}” still runs after {timeout:g} s; wait longer, or "
                "cancel it"
            )
        return self.fits

    def finish(self) -> None:
        """Show at once what is being shown."""
        for _ in self._showing or ():
            pass

    def _check(self) -> None:
        if not self._done:
            raise RuntimeError(
                f"the fit of “{self.image.name}” still runs; wait() for its end, or look at done"
            )
        if self.error is not None:
            raise self.error

    def _on_fitted(self, result: Fitted) -> None:
        self.cancel_if_gone()
        if self._done:
            return
        self._showing = self._show(result)
        self.fitted.emit()
        # What is said of it is drawn first: of millions of spots napari takes seconds.
        QTimer.singleShot(0, self._show_next)

    def _show_next(self) -> None:
        """Do one step of showing the result, then let the viewer draw and answer."""
        try:
            if self._showing is not None and next(self._showing, self) is None:
                QTimer.singleShot(0, self._show_next)
        except Exception as error:
            self._end(error)

    def _show(self, result: Fitted) -> Iterator[None]:
        """Show the result in steps, each short enough not to be felt."""
        image, layer, fits = self.image, None, result.fits
        self.replaced = self._results.unchanged(image) is not None
        if len(result.points["data"]) or self.replaced:
            layer = self._results.prepare(image, result.points)
            yield
            self._results.add(layer)
            yield
            layer.visible = True
            yield
        remember_fit(image.name, fits)
        seconds = time.perf_counter() - self._started
        text = summary(fits, seconds, result.device, result.why_invalid)
        if result.share:
            text += f". Stopped after {result.share}"
        self.summary = text + _planes_in_words(image, fits)
        if layer is not None:
            layer.metadata = {**layer.metadata, "summary": self.summary}
        self._fits, self._layer = fits, layer
        if layer is not None:
            self.shown.emit(layer)
        self._end(result.stopped)

    def _on_pixels(self, event: Any = None) -> None:
        """Stop where other pixels came: the spots would lie on an image that they are not of."""
        if images.own_pixels(self.image) is not self._pixels:
            text = f"“{self.image.name}” got other pixels before its fit had ended; fit it again"
            self.cancel(ImageChangedError(text))

    def _end(self, error: Exception | None = None) -> None:
        self._showing = None
        self.image.events.data.disconnect(self._on_pixels)
        self.error, self._done = error, True
        self.ended.emit()
        QTimer.singleShot(0, self._release)

    def _release(self) -> None:
        """Last only as long as somebody holds the result."""
        self.setParent(None)


def _planes_in_words(image: Image, fits: SpotFits) -> str:
    """Say so if the fits are of several planes of a stack, each by itself."""
    names = images.axis_names(image)
    planes = plane_axis(images.full_resolution(image), names)
    if planes is None or not len(fits):
        return ""
    along = fits.columns[fits.index_names[names.index(planes)]]
    words = fitted_by_plane(planes)
    return "" if along.min() == along.max() else f". ⚠ {words[0].upper()}{words[1:]}."
