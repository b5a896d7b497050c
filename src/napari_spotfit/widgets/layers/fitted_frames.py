"""Frames of an image as their spots were fitted: read in the background, with their maps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from qtpy.QtCore import QObject, Signal

from ...analysis.spot_sample import FittedFrame
from ...estimation.image_estimates import estimated
from ...images.frames import FrameReader, HeldFrame
from ...images.pixel_calibration import detection_calibration
from ...settings.settings import Settings
from ..parts.work import Latest
from .images import full_resolution
from .maps import LayerMaps, frame_of

if TYPE_CHECKING:
    from napari.layers import Image


class Key(NamedTuple):
    """Identity of a frame as it was fitted."""

    array: Any
    at: tuple[int, ...]
    settings: Settings
    ids: Mapping[str, str]

    def is_same(self, other: Key) -> bool:
        """Whether this is the same frame, fitted in the same way."""
        return self.array is other.array and self[1:] == other[1:]


class FrameKeeper(QObject):
    """Reads frames in a worker and keeps the last one.

    Parameters
    ----------
    parent : QObject
        Qt parent.
    """

    #: The requested frame was read.
    ready = Signal()
    #: It could not be read; the exception.
    failed = Signal(object)

    def __init__(self, parent: QObject):
        super().__init__(parent)
        self._latest = Latest(self, self._on_done, self._on_failed)
        #: The frame that was requested last, and what was read of it.
        self._key: Key | None = None
        self._frame: FittedFrame | None = None

    def frame(
        self, image: Image, index: tuple[int, ...], settings: Settings, maps: LayerMaps
    ) -> FittedFrame | None:
        """Return a frame, or None if it is being read, until ``ready`` is emitted.

        Parameters
        ----------
        image : Image
            The image.
        index : tuple of int
            The frame's indices along the leading axes.
        settings : Settings
            Those of the fits, with the numbers of the camera that no map stands for.
        maps : LayerMaps
            The maps of the fits.

        Raises
        ------
        ValueError
            If the image is RGB or has no such frame.
        """
        array = full_resolution(image)
        if array.ndim - len(index) not in (2, 3) or any(
            not 0 <= i < length for i, length in zip(index, array.shape, strict=False)
        ):
            raise ValueError(
                f"“{image.name}” no longer has this spot's frame: its data was replaced. Fit the "
                "image again."
            )
        key = Key(array, index, settings, maps.ids)
        if self._key is None or not key.is_same(self._key):
            self._key, self._frame = key, None
            self._latest.ask(lambda: (key, read_frame(key, maps)))
        return self._frame

    def forget(self) -> None:
        """Drop the frame, and ignore one that is being read."""
        self._key = self._frame = None
        self._latest.drop()

    def _on_done(self, result: tuple[Key, FittedFrame]) -> None:
        if self._key is result[0]:
            self._frame = result[1]
            self.ready.emit()

    def _on_failed(self, error: Exception) -> None:
        self._key = None
        self.failed.emit(error)


def read_frame(key: Key, maps: LayerMaps) -> FittedFrame:
    """Read a frame and its maps."""
    frame = HeldFrame(key.array, key.at, key.array.ndim - len(key.at))
    known, noise = maps.read(), key.settings.noise
    has_planes = noise is not None and bool(noise.planes)
    if not (known or has_planes):
        return FittedFrame(frame.pixels, None, frame.pixels, frame.pixels)
    bad, camera = known.get("bad_pixels"), known.get("camera")
    calibration = detection_calibration(frame.shape, key.settings, bad, camera)
    if has_planes:
        reader = FrameReader(frame, spatial=key.settings.dimensions, checked=False)
        calibration = estimated(reader, calibration)
    numbers, pixels = np.array([frame.number]), frame.pixels[np.newaxis]
    fitted = calibration.corrected(numbers, pixels, mark_bad=True)[0]
    # With one offset for all pixels, which is not in the fitted background.
    counts = fitted.astype(float) + (calibration.settings.offset - calibration.fitted.offset)
    if bad is not None:
        bad = frame_of(bad, key.at)
        counts[bad] = np.nan
    return FittedFrame(counts, bad, frame.pixels, fitted, calibration.variance_map())
