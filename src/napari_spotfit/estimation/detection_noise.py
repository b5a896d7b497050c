"""The noise that detection goes by, where pixels or planes have variances of their own."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from ..images.pixel_calibration import PixelCalibration
from ..settings.settings import Settings
from .measured_noise import BLOCK

#: The part of the least variance that stays, whatever a map says of the pixels it was measured in.
_LEAST_LEFT = 0.05


def for_detection(calibration: PixelCalibration) -> tuple[Settings, NDArray[np.float32] | None]:
    """Return settings whose noise excludes that of a map of variances, and the map.

    What planes that differ have more is in the map as well. Where there is none, it is None, and
    the settings are the calibration's.
    """
    variances = calibration.variance_map()
    settings = without_map(calibration.settings, variances)
    if settings is calibration.settings:
        variances = None
    if calibration.light is not None:
        variances = calibration.light.added_to(variances)
    return settings, variances


def without_map(settings: Settings, variances: NDArray[np.float32] | None) -> Settings:
    """Return settings whose noise excludes that of a map of variances."""
    noise = settings.noise
    if variances is None or noise is None:
        return settings
    usual = float(np.median(variances if settings.gain is not None else _block_means(variances)))
    without = replace(
        noise,
        intercept=noise.intercept - usual,
        least=max(noise.least - usual, _LEAST_LEFT * noise.least),
    )
    return settings.changed(noise=without)


def _block_means(values: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the means of the blocks in which noise is measured, or else of all pixels."""
    rows, columns = (size // BLOCK * BLOCK for size in values.shape[-2:])
    blocks = values[..., :rows, :columns].reshape(-1, rows // BLOCK, BLOCK, columns // BLOCK, BLOCK)
    means: NDArray[np.float32]
    means = blocks.mean(axis=(2, 4)) if blocks.size else values.mean(keepdims=True)
    return means
