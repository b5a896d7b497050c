"""One fit in a worker thread, as a Qt object."""

from __future__ import annotations

import threading
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from qtpy.QtCore import QObject, Signal

from ...images.frames import FrameSelection
from ...localization.localize import Part, localize_parts
from ...results.spot_fits import SpotFits
from ...settings.settings import Settings
from ..layers.colors import FACE_COLORMAP
from ..layers.maps import NO_MAPS, LayerMaps
from ..layers.marks import with_mark
from ..layers.noise import MeasuredNoise
from ..layers.points import default_face, points_arguments
from ..parts.status import number
from ..parts.work import Steps, Work
from .nowhere import check_searched, why_invalid


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
