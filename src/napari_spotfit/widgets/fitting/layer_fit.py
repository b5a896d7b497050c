"""The fit of an image layer in the background, from its start to the layer of its spots."""

from __future__ import annotations

import threading
import time
from collections.abc import Generator, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from qtpy.QtCore import QEventLoop, QObject, QTimer, Signal

from ...engine.quality.flags import reasons_in_words
from ...estimation.camera_check import CameraCheck
from ...images.arrays import fitted_by_plane, to_host
from ...images.channels import Maps, channels_along
from ...images.frames import FrameReader, FrameSelection, indices_along
from ...localization.channels import joined_channels
from ...localization.localize import Part, localize_parts, parts_by_channel
from ...results.spot_fits import SpotFits
from ...settings.settings import Settings
from ..layers import images
from ..layers.appearance import Look, with_mark
from ..layers.maps import NO_MAPS, LayerMaps
from ..layers.measured_noise import MeasuredNoise
from ..layers.points import default_face, points_arguments
from ..layers.result_layers import show_result, unchanged_result
from ..parts.messages import number
from ..parts.remember import remember_fit
from ..parts.work import Steps, Work

if TYPE_CHECKING:
    from napari import Viewer
    from napari.layers import Image, Points

#: Bytes of the image that are read at once.
_BLOCK = 1 << 26
_NO_NUMBERS = (
    "there are pixels in their ROIs that are no numbers (NaN). Mark these in a layer, and choose "
    "it under Advanced ▸ Bad pixels, to exclude them"
)


class CancelledError(RuntimeError):
    """The fit was cancelled, so there is no result."""


class ImageChangedError(CancelledError):
    """The image is gone, or another one than was fitted, so there is no result."""


class IncompleteFitError(RuntimeError):
    """An error has stopped the fit; the spots of the frames before are shown."""


@dataclass(frozen=True)
class Job:
    """What to fit, and how to show it; made on the GUI thread, used in the worker."""

    image: Any
    settings: Settings
    frames: FrameSelection = None
    maps: LayerMaps = NO_MAPS
    noise: MeasuredNoise = field(default_factory=MeasuredNoise)
    look: Look = field(default_factory=Look)
    #: The axis of channels, which are fitted one by one.
    channels: int | None = None


@dataclass(frozen=True)
class Fitted:
    """All fits, the arguments of their Points layer, and the device they ran on."""

    fits: SpotFits
    points: dict[str, Any]
    device: str
    #: How much of the image was fitted, in words, if not all; and the error that stopped the fit.
    share: str = ""
    stopped: IncompleteFitError | None = None
    #: Why some fits are invalid, if that is known.
    why_invalid: str = ""
    #: A warning of the camera's gain or offset.
    doubts: str = ""


class LayerFit(QObject):
    """A fit of an image layer that runs in the background, and its result.

    :func:`~napari_spotfit.fit_layer` returns one, and the button of *Fit spots* makes one.

    Parameters
    ----------
    image : napari.layers.Image
        The layer that is fitted.
    job : Job
        What to fit, and how.
    viewer : napari.Viewer
        The viewer that shows it, and is to show the spots.
    parent : QObject, optional
        Qt parent; when it goes, the fit is cancelled.
    """

    #: How many frames are done, and how many there are.
    progressed = Signal(int, int)
    #: All is fitted; the layer is made next.
    fitted = Signal()
    #: The layer that shows the spots.
    shown = Signal(object)
    #: The fit has ended: with a result, with an error, or cancelled.
    ended = Signal()

    def __init__(self, image: Image, job: Job, viewer: Viewer, parent: QObject | None = None):
        super().__init__(parent)
        self.image, self._viewer = image, viewer
        self._pixels = images.own_pixels(image)
        self._enough = threading.Event()
        self._work = Work(partial(_fit, job, self._enough), self)
        self._work.progressed.connect(self.progressed)
        self._work.done.connect(self._on_fitted)
        self._work.failed.connect(self._end)
        self._fits: SpotFits | None = None
        self._layer: Points | None = None
        self._showing: Iterator[None] | None = None
        #: What ended the fit without a whole result, if anything did.
        self.error: Exception | None = None
        #: What was found, in one sentence.
        self.summary = ""
        #: Whether the spots replace those of an earlier fit.
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

    def start(self) -> None:
        """Start to fit."""
        self._started = time.perf_counter()
        self.image.events.data.connect(self._on_pixels)
        self._work.start()

    def stop(self) -> None:
        """Fit no further, and show what was found; no-op if the fit has ended."""
        if not self._done:
            self._enough.set()

    def cancel(self, why: CancelledError | None = None) -> None:
        """Stop the fit unless it has ended or its spots are being shown; no layer changes.

        Asking for the result then raises a RuntimeError.
        """
        if not self._done and self._showing is None:
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
        """Do the remaining steps of showing the result now."""
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
        # The status is drawn first: napari takes seconds for millions of spots.
        QTimer.singleShot(0, self._show_next)

    def _show_next(self) -> None:
        """Do one step of showing the result, then let the viewer draw and respond."""
        try:
            if self._showing is not None and next(self._showing, self) is None:
                QTimer.singleShot(0, self._show_next)
        except Exception as error:
            self._end(error)

    def _show(self, result: Fitted) -> Iterator[None]:
        """Show the result in steps, each short enough not to be felt."""
        image, layer, fits = self.image, None, result.fits
        earlier = unchanged_result(self._viewer, image)
        self.replaced = earlier is not None
        if len(result.points["data"]) or self.replaced:
            for layer in show_result(self._viewer, image, result.points, earlier):  # noqa: B007
                yield
        remember_fit(image.name, fits)
        seconds = time.perf_counter() - self._started
        text = summary(fits, seconds, result.device, result.why_invalid)
        if result.share:
            text += f". Stopped after {result.share}"
        self.summary = text + _planes_in_words(image, fits) + result.doubts
        if layer is not None:
            layer.metadata = {**layer.metadata, "summary": self.summary}
        self._fits, self._layer = fits, layer
        if layer is not None:
            self.shown.emit(layer)
        self._end(result.stopped)

    def _on_pixels(self, event: Any = None) -> None:
        """Stop if the layer got other pixels: the spots would lie on another image."""
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
        """Leave the parent, so that the fit lives only as long as its result is used."""
        self.setParent(None)


def _fit(job: Job, enough: threading.Event) -> Steps:
    """Fit part by part until all is done or enough is set; return what is ``Fitted``."""
    maps, parts, stopped = job.maps.read(), list[Part](), None
    check = CameraCheck(job.settings)
    try:
        with closing(_parts(job, maps)) as coming:
            for part in coming:
                parts.append(part)
                check.add(part.fits)
                yield part.done, part.total
                if enough.is_set():
                    break
    except Exception as error:
        if not any(len(part.fits) for part in parts):
            raise
        stopped = _incomplete(error, _share(parts[-1]))
    if not any(len(part.fits) for part in parts) and not enough.is_set():
        _check_searched(job, maps)
    fits = joined_channels([part.fits for part in parts])
    face, colormap, mark = job.look
    face = face if face in fits.columns else default_face(fits)
    points = with_mark(points_arguments(fits, face, colormap, job.maps), mark)
    points["metadata"]["frames"] = plain_frames(job.frames)
    why = _why_invalid(job.image, fits)
    found = check.doubts()
    doubts = f". ⚠ {found[0].upper()}{found[1:]}." if found else ""
    return Fitted(fits, points, parts[-1].device, _share(parts[-1]), stopped, why, doubts)


def _parts(job: Job, maps: Mapping[str, Any]) -> Generator[Part, None, None]:
    """Yield the fits of an image part by part, those of channels one after the other."""
    if job.channels is None:
        settings = job.noise.put_into(job.settings, job.image, maps)
        yield from localize_parts(job.image, settings, frames=job.frames, **maps)
        return
    axis, leading = job.channels, job.image.shape[: -job.settings.dimensions]
    chosen = job.frames if isinstance(job.frames, tuple) else (job.frames,)
    if job.frames is None:
        chosen = (slice(None),) * len(leading)
    numbers = indices_along(chosen[axis], leading[axis]).tolist()
    others = (*chosen[:axis], *chosen[axis + 1 :]) or None
    channels = channels_along(job.image, axis, numbers, Maps(**maps))
    # One size for all: a layer has one size of ROIs in its settings.
    for parts in parts_by_channel(channels, job.settings, others, same_roi=True):
        yield from parts


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


def _share(last: Part) -> str:
    """Return how much of the image was fitted, in words; nothing if all was."""
    if last.done == last.total:
        return ""
    if not last.done:
        return f"{last.share:.0%} of the image"
    return f"{number(last.done)} of {number(last.total)} frames"


def _incomplete(error: Exception, share: str) -> IncompleteFitError:
    """Return the error that says which spots are shown all the same."""
    why = str(error) or type(error).__name__
    incomplete = IncompleteFitError(f"{why}. The spots found before are shown, of {share}")
    incomplete.__cause__ = error
    return incomplete


def _planes_in_words(image: Image, fits: SpotFits) -> str:
    """Warn if the planes of a stack were fitted one by one."""
    planes = images.planes_of(image, fits)
    words = fitted_by_plane(planes)
    return f". ⚠ {words[0].upper()}{words[1:]}." if planes else ""


def summary(fits: SpotFits, seconds: float, device: str, why_invalid: str = "") -> str:
    """Return in one line what a fit has found.

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


def _check_searched(job: Job, maps: Mapping[str, Any]) -> None:
    """Raise a ValueError that says why no spot can be found, if there is no pixel to search.

    An image with finite pixels in its first frame is read no further.
    """
    mask = maps.get("mask")
    if mask is not None and not bool(mask.any()):
        raise ValueError(
            f"“{job.maps.names['mask']}” marks no pixel of the image: mark where to search in it, "
            "or search the whole image"
        )
    if not _any_finite(job.image, job.frames):
        raise ValueError(
            "the image has no finite pixel in these frames, only NaN or infinite ones: choose "
            "another image, or other frames"
        )


def _any_finite(image: Any, frames: FrameSelection) -> bool:
    if np.dtype(image.dtype).kind != "f":
        return True
    reader = FrameReader(image)
    blocks = reader.blocks(reader.select(frames), 1, _BLOCK)
    return any(bool(np.isfinite(reader.read_here(block)).any()) for block in blocks)


def _why_invalid(image: Any, fits: SpotFits) -> str:
    """Return why spots could not be fitted, if the first of them has NaN or infinite pixels.

    So only one frame is read again.
    """
    rows = np.flatnonzero(~fits.valid)
    if not len(rows) or fits.settings is None or np.dtype(image.dtype).kind != "f":
        return ""
    columns, row = fits.columns, rows[0]
    index = tuple(int(columns[name][row]) for name in fits.index_names)
    corner = (int(columns[f"roi_{axis}"][row]) for axis in fits.axes)
    part = (slice(n, n + side) for n, side in zip(corner, fits.settings.roi_shape, strict=True))
    roi = np.asarray(image[index][tuple(part)])
    return "" if np.isfinite(roi).all() else _NO_NUMBERS
