"""The noise of an image, measured once for all that looks at single frames of it."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from threading import Lock
from typing import Any

import numpy as np

from ...images.frames import FrameReader, is_on_device
from ...images.pixel_calibration import detection_calibration
from ...localization.estimates import estimated
from ...settings.settings import Settings

#: What an image tells, and the settings on which it depends.
_MEASURED = ("noise", "sigma", "roi_size")
_OF_NOISE = ("sigma", "roi_size", "model", "pixel", "offset", "gain", "variance", "emccd")


class MeasuredNoise:
    """The noise of an image's pixels as they are, that of the same frames as a fit of all takes.

    A preview or a click that went by the noise of its one frame would find other spots. Any
    thread may ask; one that comes while another measures waits for it.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._found: dict[Hashable, dict[str, Any]] = {}
        self._image: Any = None

    def put_into(self, settings: Settings, image: Any, known: Mapping[str, Any]) -> Settings:
        """Return settings that hold noise and PSF, measured if nobody has yet.

        Parameters
        ----------
        settings : Settings
            Those of the fits.
        image : array, shape (…, Y, X)
            The whole image, the same each time.
        known : mapping
            Its ``bad_pixels`` and ``camera``, the same each time; else there may be more.
        """
        key = tuple(getattr(settings, name) for name in _OF_NOISE)
        with self._lock:
            if key not in self._found:
                if self._image is None:
                    at_hand = isinstance(image, np.ndarray) or is_on_device(image)
                    self._image = image if at_hand else _KeptFrames(image)
                self._found[key] = _measured(self._image, settings, known)
            return settings.changed(**self._found[key])


def _measured(image: Any, settings: Settings, known: Mapping[str, Any]) -> dict[str, Any]:
    reader = FrameReader(image)
    calibration = detection_calibration(
        reader.shape, settings, known.get("bad_pixels"), known.get("camera")
    )
    found = estimated(reader, calibration, always=True).settings
    return {name: getattr(found, name) for name in _MEASURED}


class _KeptFrames:
    """An image whose frames are read once: to measure with another σ takes the same ones."""

    def __init__(self, image: Any) -> None:
        self.shape, self.dtype = image.shape, image.dtype
        self._image = image
        self._read: dict[str, Any] = {}

    def __getitem__(self, index: Any) -> Any:
        name = repr(index)
        if name not in self._read:
            self._read[name] = np.asarray(self._image[index])
        return self._read[name]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        return np.asarray(self[...], dtype)
