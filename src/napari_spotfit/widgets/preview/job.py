"""The spots of one frame, found and fitted again and again while settings change."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from ...frames import HeldFrame
from ...localize import localize_parts
from ...results import SpotFits
from ...settings import Settings
from ...survey import peak_heights
from ..layers.colors import FACE_COLORMAP
from ..layers.points import default_face, points_arguments

#: The settings on which the maxima depend; the threshold only chooses among them.
_OF_MAXIMA = ("sigma", "min_distance", "threshold_unit", "backend", "devices", "threads")

Thing = TypeVar("Thing")


@dataclass(frozen=True, eq=False)
class PreviewJob:
    """What to show; made on the GUI thread, used in the worker."""

    image: Any
    index: tuple[int, ...]
    #: Something else whenever the image has other pixels.
    version: int
    settings: Settings
    #: Another function whenever the mask is another one.
    make_mask: Callable[[], Any] | None = None
    face: str = "sigma"
    colormap: str = FACE_COLORMAP


class Previewed(NamedTuple):
    """The fits of a frame, what a Points layer of them is made of, and all maxima."""

    job: PreviewJob
    fits: SpotFits
    points: dict[str, Any]
    #: Height of every maximum, in the unit of the threshold.
    heights: NDArray[np.float32]


class Previewer:
    """Does one job after the other, never two at once, and keeps what the next can use.

    The fits are those of :func:`~napari_spotfit.localize`. The frame and its mask are read
    anew only when another one is asked for, and the maxima are searched only when something
    other than the threshold has changed.
    """

    def __init__(self) -> None:
        self._frame: _Kept[HeldFrame] = _Kept()
        self._whole_mask: _Kept[Any] = _Kept()
        self._mask: _Kept[NDArray[np.bool_] | None] = _Kept()
        self._heights: _Kept[NDArray[np.float32]] = _Kept()

    def __call__(self, job: PreviewJob) -> Previewed:
        """Find and fit the spots of a frame."""
        frame_key = (job.version, job.index)
        held = self._frame.get(frame_key, lambda: HeldFrame(job.image, job.index))
        mask_key = (job.make_mask, job.index)
        mask = self._mask.get(mask_key, lambda: self._read_mask(job))
        values = tuple(getattr(job.settings, name) for name in _OF_MAXIMA)
        where: dict[str, Any] = {"frames": job.index or None, "mask": mask}
        parts = list(localize_parts(held, job.settings, **where))
        heights = self._heights.get(
            (frame_key, mask_key, values), lambda: peak_heights(held, job.settings, **where)
        )
        fits = SpotFits.concatenate([part.fits for part in parts])
        face = job.face if job.face in fits.columns else default_face(fits)
        return Previewed(job, fits, points_arguments(fits, face, job.colormap), heights)

    def _read_mask(self, job: PreviewJob) -> NDArray[np.bool_] | None:
        """Return the mask of the frame."""
        if job.make_mask is None:
            return None
        mask = self._whole_mask.get(job.make_mask, job.make_mask)
        return np.asarray(mask if mask.ndim == 2 else mask[job.index])


class _Kept(Generic[Thing]):
    """The last thing that was made, and what it was made for."""

    def __init__(self) -> None:
        self._key: Any = None
        self._thing: Thing | None = None

    def get(self, key: Any, make: Callable[[], Thing]) -> Thing:
        """Return the thing for a key, made anew only if the key is another one."""
        if self._thing is None or key != self._key:
            self._thing = None  # so that there are never two
            self._key, self._thing = key, make()
        return self._thing
