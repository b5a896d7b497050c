"""The frame of the spot that is inspected, read once, as it was fitted."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from qtpy.QtCore import QObject, Signal

from ...images.frames import HeldFrame
from ...images.pixel_calibration import detection_calibration
from ...settings.settings import Settings
from ..layers.images import full_resolution
from ..layers.maps import LayerMaps
from ..parts.work import Latest
from .sample import FittedFrame

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
        self._latest = Latest(self)
        self._kept: tuple[Key, FittedFrame] | None = None
        self._requested: Key | None = None
        self._latest.done.connect(self._on_done)
        self._latest.failed.connect(self._on_failed)

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
        if self._kept is not None and key.is_same(self._kept[0]):
            self._requested = None
            self._latest.drop()
            return self._kept[1]
        if self._requested is None or not key.is_same(self._requested):
            self._requested = key
            self._latest.ask(lambda: (key, _read(key, maps)))
        return None

    def forget(self) -> None:
        """Drop the frame, and ignore one that is being read."""
        self._kept = self._requested = None
        self._latest.drop()

    def _on_done(self, result: tuple[Key, FittedFrame]) -> None:
        if self._requested is not None and self._requested.is_same(result[0]):
            self._kept, self._requested = result, None
            self.ready.emit()

    def _on_failed(self, error: Exception) -> None:
        self._requested = None
        self.failed.emit(error)


def _read(key: Key, maps: LayerMaps) -> FittedFrame:
    """Read a frame and its maps."""
    frame = HeldFrame(key.array, key.at, key.array.ndim - len(key.at))
    known = maps.read()
    if not known:
        return FittedFrame(frame.pixels, None, frame.pixels, frame.pixels)
    bad, camera = known.get("bad_pixels"), known.get("camera")
    calibration = detection_calibration(frame.shape, key.settings, bad, camera)
    numbers, pixels = np.array([frame.number]), frame.pixels[np.newaxis]
    fitted = calibration.corrected(numbers, pixels, mark_bad=True)[0]
    # With one offset for all pixels, which is not in the fitted background.
    counts = fitted.astype(float) + (calibration.settings.offset - calibration.fitted.offset)
    if bad is not None:
        bad = np.asarray(bad if bad.ndim == 2 else bad[key.at])
        counts[bad] = np.nan
    return FittedFrame(counts, bad, frame.pixels, fitted, calibration.variance_map())
