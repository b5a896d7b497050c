"""Fits of image layers in the background, from their start to the layers of their spots."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from qtpy.QtCore import QEventLoop, QObject, QTimer, Signal

from ...estimation.image_estimates import MeasuredNoise
from ...images.arrays import fitted_by_plane
from ...images.frames import FrameReader, FrameSelection
from ...results.spot_fits import SpotFits
from ...settings.settings import Settings
from ..layers import images
from ..layers.appearance import CHANNEL_COLORS, OWN_COLOR, Look
from ..layers.maps import layer_maps
from ..layers.result_layers import show_result, unchanged_result
from ..parts.remember import remember_fit
from ..parts.work import Work
from .image_fit import (
    Advice,
    FitRequest,
    Fitted,
    IncompleteFitError,
    counts_in_words,
    fit_image,
    warning,
)

if TYPE_CHECKING:
    from napari import Viewer
    from napari.components import LayerList
    from napari.layers import Image, Layer, Points


#: Seconds for which steps of showing results are done in a row.
_MOMENT = 0.04


class CancelledError(RuntimeError):
    """The fit was cancelled, so there is no result."""


class ImageChangedError(CancelledError):
    """The image is gone, or another one than was fitted, so there is no result."""


def request_of(
    image: Image,
    settings: Settings,
    layers: Mapping[str, Layer],
    frames: FrameSelection = None,
    noise: MeasuredNoise | None = None,
    look: Look | None = None,
) -> FitRequest:
    """Return the request to fit an image layer, which is accessed now, on the GUI thread.

    Raises
    ------
    TypeError, ValueError
        If the image cannot be fitted, not in volumes, or the layers that describe its pixels do
        not go with it.
    """
    return FitRequest(
        image=images.full_resolution(image),
        settings=images.in_its_axes(settings, image),
        frames=frames,
        maps=layer_maps(image, layers),
        noise=noise or MeasuredNoise(),
        look=look or Look(),
        channels=images.channels_of(image),
    )


def looks_of(images: Sequence[Image], look: Look, layers: LayerList) -> list[Look]:
    """Return how the spots of images are drawn: those of several have one colour each.

    An image keeps the colour that it had, and gets none that another one has.
    """
    if len(images) == 1:
        return [look]
    spots = (layer.metadata for layer in layers if OWN_COLOR in layer.metadata)
    colors = {known.get("image"): known[OWN_COLOR] for known in spots}
    for image in images:
        free = [color for color in CHANNEL_COLORS if color not in colors.values()]
        again = CHANNEL_COLORS[len(colors) % len(CHANNEL_COLORS)]
        colors.setdefault(image.unique_id, next(iter(free), again))
    return [look._replace(face=OWN_COLOR, color=colors[image.unique_id]) for image in images]


def fits_of(
    images: Sequence[Image],
    viewer: Viewer,
    look: Look,
    make: Callable[[Image, Look], FitRequest],
    *,
    skip: bool,
) -> list[LayerFit]:
    """Return the fits of images, each with a look of its own.

    If ``make`` refuses an image, its reason becomes the error of that fit; without ``skip`` it is
    raised.
    """
    fits = []
    for image, own in zip(images, looks_of(images, look, viewer.layers), strict=True):
        try:
            request: FitRequest | Exception = make(image, own)
        except (TypeError, ValueError) as error:
            if not skip:
                raise
            request = error
        fits.append(LayerFit(image, request, viewer))
    return fits


class LayerFit(QObject):
    """A fit of an image layer that runs in the background, and its result.

    :func:`~napari_spotfit.fit_layer` and :func:`~napari_spotfit.fit_layers` return them, and the
    button of *Fit spots* makes them.

    Parameters
    ----------
    image : napari.layers.Image
        The layer that is fitted.
    request : FitRequest or Exception
        What to fit, and how; or why that cannot be done.
    viewer : napari.Viewer
        The viewer that shows it, and is to show the spots.
    """

    #: How many frames are done, and how many there are.
    progressed = Signal(int, int)
    #: All is fitted; the layer is made once all of its run is.
    fitted = Signal()
    #: The fit has ended: with a result, with an error, or cancelled.
    ended = Signal()

    def __init__(self, image: Image, request: FitRequest | Exception, viewer: Viewer):
        super().__init__()
        self.image, self._viewer, self._request = image, viewer, request
        self._pixels = images.own_pixels(image)
        self._enough = threading.Event()
        self._work: Work | None = None
        self._result: Fitted | None = None
        self._fits: SpotFits | None = None
        self._layer: Points | None = None
        self._showing = False
        #: Whether the fit has ended: with a result, with an error, or cancelled.
        self.done = False
        #: What ended the fit without a whole result, if anything did.
        self.error: Exception | None = None
        #: What was found, in one sentence, and how many of it are good.
        self.summary = self.counts = ""
        #: Why most spots are doubtful, if they are.
        self.advice: Advice | None = None
        #: Whether the spots replace those of an earlier fit.
        self.replaced = False

    @property
    def waits(self) -> bool:
        """Whether it is still to be started."""
        return self._work is None and not self.done

    @property
    def runs(self) -> bool:
        """Whether it is under way, before its spots are there."""
        return self._work is not None and self._result is None and not self.done

    @property
    def frames(self) -> int:
        """How many frames are to be fitted; 0 if none can be."""
        if isinstance(self._request, Exception):
            return 0
        try:
            return len(FrameReader(self._request.image).select(self._request.frames))
        except (IndexError, TypeError, ValueError):  # reported by the fit
            return 0

    @property
    def fits(self) -> SpotFits:
        """All fits, the invalid ones too.

        Raises
        ------
        RuntimeError
            If the fit still runs, or was cancelled.
        Exception
            What has stopped the fit.
        """
        self._check()
        assert self._fits is not None
        return self._fits

    @property
    def layer(self) -> Points | None:
        """The layer of the spots, also of those found before an error stopped the fit.

        None if no spot was found. Without a layer it raises what ``fits`` raises.
        """
        if self._layer is None:
            self._check()
        return self._layer

    @property
    def shown(self) -> Points | None:
        """The layer of a result, also of a part of the image; None if there is none."""
        whole = self.error is None or isinstance(self.error, IncompleteFitError)
        return self._layer if whole else None

    def start(self) -> None:
        """Start to fit."""
        if isinstance(self._request, Exception):
            self._end(self._request)
            return
        self._work = Work(partial(fit_image, self._request, self._enough), self)
        self._work.progressed.connect(self.progressed)
        self._work.done.connect(self._on_fitted)
        self._work.failed.connect(self._end)
        self.image.events.data.connect(self._on_pixels)
        self._work.start()

    def stop(self) -> None:
        """Fit no further, and show what was found; no-op if the fit has ended."""
        if self.waits:
            self.cancel(CancelledError("the fits were stopped before this one had begun"))
        elif not self.done:
            self._enough.set()

    def cancel(self, why: CancelledError | None = None) -> None:
        """Stop the fit unless it has ended or its spots are being shown; no layer changes.

        Asking for the result then raises a RuntimeError.
        """
        if not self.done and not self._showing:
            if self._work is not None:
                self._work.cancel()
            self._end(why or CancelledError("the fit was cancelled; the layers are as they were"))

    def cancel_if_gone(self) -> None:
        """Stop the fit if its image was removed from the viewer."""
        if self.image not in self._viewer.layers:
            name = self.image.name
            self.cancel(ImageChangedError(f"“{name}” was removed before its fit had ended"))

    def wait(self, timeout: float | None = None) -> SpotFits:
        """Wait for the end, while napari stays responsive; return the fits.

        Parameters
        ----------
        timeout : float, optional
            Seconds to wait at most; by default as long as the fit takes.

        Raises
        ------
        TimeoutError
            If the fit still runs then; it is not stopped.
        Exception
            What ``fits`` raises.
        """
        if not self.done:
            loop = QEventLoop()
            self.ended.connect(loop.quit)
            if timeout is not None:
                QTimer.singleShot(max(round(1000 * timeout), 0), loop.quit)
            loop.exec()
        if not self.done:
            raise TimeoutError(
                f"the fit of “{self.image.name}” still runs after {timeout:g} s; wait longer, or "
                "cancel it"
            )
        return self.fits

    def show(self, what: str, run: object = None) -> Iterator[None]:
        """Show the result in steps, each short enough not to be felt.

        Parameters
        ----------
        what : str
            What is done, as in “take back …”.
        run : object, optional
            All fits of the same one are taken back together.
        """
        self._showing = True
        try:
            yield from self._show(what, run)
        except Exception as error:
            self._end(error)

    def _check(self) -> None:
        if not self.done:
            raise RuntimeError(
                f"the fit of “{self.image.name}” still runs; wait() for its end, or look at done"
            )
        if self.error is not None:
            raise self.error

    def _on_fitted(self, result: Fitted) -> None:
        self.cancel_if_gone()
        if not self.done:
            self._result = result
            self.fitted.emit()

    def _show(self, what: str, run: object) -> Iterator[None]:
        result = self._result
        assert result is not None
        image, layer, fits = self.image, None, result.fits
        earlier = unchanged_result(self._viewer, image)
        self.replaced = earlier is not None
        if len(result.points["data"]) or self.replaced:
            for layer in show_result(self._viewer, image, result.points, earlier, what, run):  # noqa: B007
                yield
        remember_fit(image.name, fits)
        planes = images.planes_of(image, fits)
        self.summary = result.summary + warning(fitted_by_plane(planes) if planes else "")
        if layer is not None:
            layer.metadata = {**layer.metadata, "summary": self.summary}
        self.advice = result.advice
        self.counts = counts_in_words(fits.good[fits.valid])
        self._fits, self._layer = fits, layer
        self._end(result.stopped)

    def _on_pixels(self, event: Any = None) -> None:
        """Stop if the layer got other pixels: the spots would lie on another image."""
        if images.own_pixels(self.image) is not self._pixels:
            text = f"“{self.image.name}” got other pixels before its fit had ended; fit it again"
            self.cancel(ImageChangedError(text))

    def _end(self, error: Exception | None = None) -> None:
        if self._work is not None:
            self.image.events.data.disconnect(self._on_pixels)
        self.error, self.done = error, True
        self.ended.emit()


class FitRun(QObject):
    """Fits of images one after the other, whose spots are shown once all are there.

    Parameters
    ----------
    fits : sequence of LayerFit
        The fits.
    parent : QObject
        Qt parent; when it goes, they are cancelled.
    """

    #: How many frames of all images are done, and how many there are.
    progressed = Signal(int, int)
    #: Another image is fitted now.
    went_on = Signal()
    #: All is fitted; the layers are made next.
    fitted = Signal()
    #: A layer that shows spots.
    shown = Signal(object)
    #: All fits have ended.
    ended = Signal()

    def __init__(self, fits: Sequence[LayerFit], parent: QObject | None):
        super().__init__(parent)
        self.fits = fits
        self._frames = [fit.frames for fit in fits] if len(fits) > 1 else []
        self._showing: Iterator[None] | None = None
        for fit in fits:
            fit.setParent(self)
            fit.progressed.connect(self._on_progress)
            fit.fitted.connect(self._go_on)
            fit.ended.connect(self._go_on)

    @property
    def now(self) -> LayerFit:
        """The fit that is under way, or was last."""
        return next((fit for fit in self.fits if fit.runs), self.fits[-1])

    @property
    def layers(self) -> list[Points]:
        """The layers of the results."""
        return [fit.shown for fit in self.fits if fit.shown is not None]

    def start(self) -> None:
        """Start with the first image."""
        self._go_on()

    def stop(self) -> None:
        """Fit no further, and show what was found."""
        # Else the next one would begin.
        for fit in reversed(self.fits):
            fit.stop()

    def cancel(self) -> None:
        """Stop all fits unless their spots are being shown; no layer changes."""
        for fit in reversed(self.fits):
            fit.cancel()

    def cancel_if_gone(self) -> None:
        """Stop the fits whose image was removed from the viewer."""
        for fit in reversed(self.fits):
            fit.cancel_if_gone()

    def finish(self) -> None:
        """Do the remaining steps of showing the results now."""
        while self._showing is not None:
            self._show_next()

    def _go_on(self) -> None:
        """Fit the next image; where none is left, show the spots of all."""
        if self._showing is not None or any(fit.runs for fit in self.fits):
            return
        waiting = next((fit for fit in self.fits if fit.waits), None)
        if waiting is not None:
            waiting.start()
            self.went_on.emit()
            return
        if all(fit.done for fit in self.fits):
            self._end()
            return
        self._showing = self._show()
        self.fitted.emit()
        # The status is drawn first: napari takes seconds for millions of spots.
        QTimer.singleShot(0, self._step)

    def _step(self) -> None:
        """Show the results for a moment, then let the viewer draw and respond."""
        end = time.perf_counter() + _MOMENT
        while self._showing is not None and time.perf_counter() < end:
            self._show_next()
        if self._showing is not None:
            QTimer.singleShot(0, self._step)

    def _show_next(self) -> None:
        if self._showing is not None and next(self._showing, self) is self:
            self._showing = None
            self._end()

    def _show(self) -> Iterator[None]:
        several = len(self.fits) > 1
        what = f"the fit of {len(self.fits)} images" if several else "the last fit of the image"
        for fit in self.fits:
            if not fit.done:
                yield from fit.show(what, self if several else None)
                if fit.shown is not None:
                    self.shown.emit(fit.shown)

    def _on_progress(self, done: int, total: int) -> None:
        if self._frames:  # a part of a frame may be done
            place = list(self.fits).index(self.now)
            own, before = self._frames[place], sum(self._frames[:place])
            done, total = before + done * own // max(total, 1), sum(self._frames)
        self.progressed.emit(done, total)

    def _end(self) -> None:
        self.ended.emit()
        QTimer.singleShot(0, self._release)

    def _release(self) -> None:
        """Leave the parent, so that a fit lives only as long as its result is used."""
        for fit in self.fits:
            fit.setParent(None)
        self.setParent(None)
