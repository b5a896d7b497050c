"""What settings leave open and the image tells: measured once, and kept in the settings."""

from __future__ import annotations

import numpy as np

from ..engine.cpu.noise import measure_noise
from ..images.frames import FrameReader, to_host
from ..images.pixel_calibration import PixelCalibration
from ..settings.settings import Settings
from .noise import sample_frames


def estimated(reader: FrameReader, calibration: PixelCalibration) -> Settings:
    """Return settings that hold the noise that detection goes by."""
    settings = calibration.settings
    if settings.noise is not None:
        return settings
    numbers = sample_frames(reader)
    pixels = to_host(calibration.corrected(numbers, reader.read(numbers), mark_bad=True))
    return settings.changed(noise=measure_noise(np.ascontiguousarray(pixels), settings))
