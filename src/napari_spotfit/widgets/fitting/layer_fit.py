"""The fit of an image layer in the background, from its start to the layer of its spots."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from qtpy.QtCore import QEventLoop, QObject, QTimer, Signal

from ...engine.quality.flags import reasons_in_words
from ...images.arrays import to_host
from ...images.axes import fitted_by_plane, plane_axis
from ...images.frames import FrameReader, FrameSelection
from ...localization.localize import Part, localize_parts
from ...results.spot_fits import SpotFits
from ...settings.settings import Settings
from ..layers import images
from ..layers.appearance import FACE_COLORMAP, with_mark
from ..layers.maps import NO_MAPS, LayerMaps
from ..layers.measured_noise import MeasuredNoise
from ..layers.points import default_face, points_arguments
from ..layers.result_layers import ResultLayers
from ..parts.messages import number
from ..parts.remember import remember_fit
from ..parts.work import Steps, Work

if TYPE_CHECKING:
    from napari.layers import Image, Points

#: So many bytes of the image are read at once.
_BLOCK = 1 << 26
_NO_NUMBERS = (
    "there are pixels in their ROIs that are no numbers (NaN). Mark these in a layer, and choose "
    "it under Advanced ▸ Bad pixels, so that they are left out"
)


def check_searched(
    image: Any, frames: FrameSelection, maps: LayerMaps, read: Mapping[str, Any]
) -> None:
    """Raise a ValueError that says why no spot can be found, if there is no pixel to search.

    Of an image that has such pixels in its first frame no other one is read.

    Parameters
    ----------
    image : array, shape (…, Y, X)
        The image.
    frames : FrameSelection
        Which of its frames were searched.
    maps : LayerMaps
        The layers that say something of its pixels.
    read : mapping
        What they say.
    """
    mask = read.get("mask")
    if mask is not None and not bool(mask.any()):
        raise ValueError(
            f"“{maps.names['mask']}” marks no pixel of the image: mark where to search in it, or "
            "search the whole image"
        )
    if not _any_finite(image, frames):
        raise ValueError(
            "the image has no finite pixel in these frames, only NaN or infinite ones: choose "
            "another image, or other frames"
        )


def why_invalid(image: Any, fits: SpotFits) -> str:
    """Say why spots of an image could not be fitted, if it is for pixels that are no numbers.

    The first of them speaks for all: so only one frame is read again.
    """
    rows = np.flatnonzero(~fits.valid)
    if not len(rows) or fits.settings is None or np.dtype(image.dtype).kind != "f":
        return ""
    columns, row = fits.columns, rows[0]
    index = tuple(int(columns[name][row]) for name in fits.index_names)
    y, x = (int(columns[name][row]) for name in ("roi_y", "roi_x"))
    height, width = fits.settings.roi_shape
    roi = np.asarray(image[index][y : y + height, x : x + width])
    return "" if np.isfinite(roi).all() else _NO_NUMBERS


def _any_finite(image: Any, frames: FrameSelection) -> bool:
    reader = FrameReader(image)
    if np.dtype(image.dtype).kind != "f":
        return True
    blocks = reader.blocks(reader.select(frames), 1, _BLOCK)
    return any(bool(np.isfinite(reader.read_here(block)).any()) for block in blocks)


@dataclass(frozen=True)
class Job:
    """What to fit; made on the GUI thread, used in the worker."""

    image: Any
    settings: Settings
    frames: FrameSelection = None
    maps: LayerMaps = NO_MAPS
    noise: MeasuredNoise = field(default_factory=MeasuredNoise)
    face: str = "sigma"
    colormap: str = FACE_COLORMAP
    mark: str = "ring"


class IncompleteFitError(RuntimeError):
    """Something has stopped the fit; the spots of the frames before are shown."""


@dataclass(frozen=True)
class Fitted:
    """The result: all fits, what a Points layer of them is made of, and what it ran on."""

    fits: SpotFits
    points: dict[str, Any]
    device: str
    #: How much of the image it is of, in words, where it is not of all; and what has stopped it, if
    #: it was nobody who asked for that.
    share: str = ""
    stopped: IncompleteFitError | None = None
    #: Why some could not be fitted, where that is known.
    why_invalid: str = ""


class FitRun(Work):
    """A fit that is running; it can be stopped or cancelled between two parts of the frames.

    Parameters
    ----------
    job : Job
        What to fit.
    parent : QObject
        Qt parent; when it goes, the run is cancelled.
    """

    fitted = Signal(object)

    def __init__(self, job: Job, parent: QObject):
        enough = threading.Event()
        super().__init__(partial(_fit, job, enough), parent)
        self._enough = enough
        self.done.connect(self.fitted)

    def stop(self) -> None:
        """Fit no further; what was fitted is the result."""
        self._enough.set()


def _fit(job: Job, enough: threading.Event) -> Steps:
    """Fit part by part, until it is enough; return what is ``Fitted``."""
    maps, parts, stopped = job.maps.read(), list[Part](), None
    settings = job.noise.put_into(job.settings, job.image, maps)
    try:
        with closing(localize_parts(job.image, settings, frames=job.frames, **maps)) as coming:
            for part in coming:
                parts.append(part)
                yield part.done, part.total
                if enough.is_set():
                    break
    except Exception as error:
        if not any(len(part.fits) for part in parts):
            raise
        stopped = _incomplete(error, _share(parts[-1]))
    if not any(len(part.fits) for part in parts) and not enough.is_set():
        check_searched(job.image, job.frames, job.maps, maps)
    fits = SpotFits.concatenate([part.fits for part in parts])
    face = job.face if job.face in fits.columns else default_face(fits)
    points = with_mark(points_arguments(fits, face, job.colormap, job.maps), job.mark)
    points["metadata"]["frames"] = plain_frames(job.frames)
    why = why_invalid(job.image, fits)
    return Fitted(fits, points, parts[-1].device, _share(parts[-1]), stopped, why)


def _share(last: Part) -> str:
    """Say of how much of the image fits are, up to the last part; nothing if of all."""
    if last.done == last.total:
        return ""
    if not last.done:
        return f"{last.share:.0%} of the image"
    return f"{number(last.done)} of {number(last.total)} frames"


def _incomplete(error: Exception, share: str) -> IncompleteFitError:
    """Return the error that says what is there all the same."""
    why = str(error) or type(error).__name__
    incomplete = IncompleteFitError(f"{why}. The spots found before are shown, of {share}")
    incomplete.__cause__ = error
    return incomplete


def plain_frames(frames: FrameSelection) -> list[list[int] | int | None] | None:
    """Return chosen frames as plain values: an index, [first, behind last], or None for all.

    Examples
    --------
    >>> plain_frames((slice(2, 5), 3, slice(None)))
    [[2, 5], 3, None]
    """
    if frames is None:
        return None
    axes = frames if isinstance(frames, tuple) else (frames,)
    return [_plain_axis(along) for along in axes]


def _plain_axis(along: Any) -> list[int] | int | None:
    if not isinstance(along, slice):
        return int(along)
    return None if along == slice(None) else [int(along.start), int(along.stop)]


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


def summary(fits: SpotFits, seconds: float, device: str, why_invalid: str = "") -> str:
    """Say in one line what a fit has found.

    Parameters
    ----------
    fits : SpotFits
        All fits, the invalid ones too.
    seconds : float
        How long it took.
    device : str
        What it ran on.
    why_invalid : str
        Why some could not be fitted, and what to do, where that is known.
    """
    total = len(fits)
    found = f"{number(total)} spot{'' if total == 1 else 's'}" if total else "No spots"
    text = f"{found} in {seconds:.1f}\u202fs on {device}"
    if not total:
        return f"{text}: allow more false spots or try another PSF σ"
    valid = to_host(fits.valid)
    invalid = int((~valid).sum())
    text += f", {reasons_in_words(to_host(fits.flags)[valid])}"
    if not invalid:
        return text
    text += (
        f"; {number(invalid)} could not be fitted and {'is' if invalid == 1 else 'are'} not drawn"
    )
    return f"{text}: {why_invalid}" if why_invalid else text
