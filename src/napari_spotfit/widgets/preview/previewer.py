"""The spots of one frame, found and fitted again whenever settings change."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from ...estimation.image_estimates import MeasuredNoise
from ...images.frames import HeldFrame
from ...localization.detect_spots import peak_heights
from ...localization.localize import localize_parts
from ...results.spot_fits import SpotFits
from ...settings.settings import Settings
from ..layers.appearance import FACE_COLORMAP
from ..layers.maps import NO_MAPS, LayerMaps
from ..layers.points import default_face, points_arguments

#: The settings on which the maxima depend; false spots and a threshold only choose among them.
_OF_MAXIMA = ("sigma", "sigma_z", "min_distance", "noise", "backend", "devices", "threads")

Thing = TypeVar("Thing")


@dataclass(frozen=True, eq=False)
class PreviewJob:
    """A request for a preview; made on the GUI thread, used in the worker."""

    image: Any
    index: tuple[int, ...]
    #: Another number whenever the pixels change.
    version: int
    settings: Settings
    #: Replaced whenever the maps change.
    maps: LayerMaps = NO_MAPS
    #: Replaced whenever the image or its maps change.
    noise: MeasuredNoise = field(default_factory=MeasuredNoise)
    face: str = "sigma"
    colormap: str = FACE_COLORMAP


class Previewed(NamedTuple):
    """The fits of a frame, the arguments of a Points layer of them, and all maxima."""

    job: PreviewJob
    fits: SpotFits
    points: dict[str, Any]
    #: Score of every maximum; with a threshold its height in counts.
    heights: NDArray[np.float32]
    #: The PSF's σ with which they were found.
    sigma: float
    #: How many pixels were searched.
    searched: int


class Previewer:
    """Does one job after the other, never two at once, and caches what the next can use.

    The fits are those of :func:`~napari_spotfit.localize`. The frame and its maps are read
    again only when another one is requested, and the maxima are searched only when something
    other than the number of false spots, or the threshold, has changed.
    """

    def __init__(self) -> None:
        self._frame: _Kept[HeldFrame] = _Kept()
        self._maps: _Kept[dict[str, Any]] = _Kept()
        self._mask: _Kept[NDArray[np.bool_]] = _Kept()
        self._heights: _Kept[NDArray[np.float32]] = _Kept()

    def __call__(self, job: PreviewJob) -> Previewed:
        """Find and fit the spots of a frame."""
        frame_key = (job.version, job.index)
        axes = job.settings.dimensions
        frame = self._frame.get(frame_key, lambda: HeldFrame(job.image, job.index, axes))
        maps = {"frames": job.index or None, **self._maps.get(job.maps, job.maps.read)}
        if "mask" in maps:
            key, whole = (job.maps, job.index), maps["mask"]
            maps["mask"] = self._mask.get(key, lambda: _of_frame(whole, job.index))
        settings = job.noise.put_into(job.settings, job.image, maps)
        parts = list(localize_parts(frame, settings, **maps))
        maps.pop("weights", None)
        values = (*(getattr(settings, name) for name in _OF_MAXIMA), settings.threshold is None)
        heights = self._heights.get(
            (frame_key, job.maps, values), lambda: peak_heights(frame, settings, **maps)
        )
        fits = SpotFits.concatenate([part.fits for part in parts])
        face = job.face if job.face in fits.columns else default_face(fits)
        points = points_arguments(fits, face, job.colormap, job.maps)
        return Previewed(job, fits, points, heights, settings.known_sigma, _searched(frame, maps))


def _searched(frame: HeldFrame, maps: dict[str, Any]) -> int:
    """Return how many pixels of a frame spots are searched in."""
    bad = maps.get("bad_pixels")
    good = np.ones(frame.pixels.shape, bool) if bad is None else ~_of_frame(bad, frame.index)
    return int(np.count_nonzero(good & maps["mask"] if "mask" in maps else good))


def _of_frame(mask: Any, index: tuple[int, ...]) -> NDArray[np.bool_]:
    """Return a mask's frame."""
    return np.asarray(mask if mask.ndim == 2 else mask[index])


class _Kept(Generic[Thing]):
    """The last thing that was made, and what it was made for."""

    def __init__(self) -> None:
        self._key: Any = None
        self._thing: Thing | None = None

    def get(self, key: Any, make: Callable[[], Thing]) -> Thing:
        """Return the thing for a key, made again only if the key is another one."""
        if self._thing is None or key != self._key:
            self._thing = None  # so that there are never two
            self._key, self._thing = key, make()
        return self._thing
