"""Estimate once what settings leave open, and keep it in the settings."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from ..caller import warn_caller
from ..images.frames import FrameReader
from ..images.pixel_calibration import PixelCalibration
from ..settings.settings import Settings, has_shot_noise
from .image_noise import measured_noise, sample_frames
from .measured_noise import BLOCK
from .psf_width import with_psf
from .width_search import glance_frames

#: The part of the least variance that stays, whatever a map says of the pixels it was measured in.
_LEAST_LEFT = 0.05


def estimated(
    reader: FrameReader,
    calibration: PixelCalibration,
    *,
    places: NDArray[np.float64] | None = None,
) -> PixelCalibration:
    """Return a calibration whose settings hold the PSF and the noise.

    They are what the settings hold, the noise the camera's where all of it is known, or else they
    are measured in a few frames evenly spread over the whole image, whichever of them are fitted:
    given the settings of a result, all is as before, to the bit, and nothing is measured. Those of
    the few that cannot be read are left out.

    Parameters
    ----------
    reader : FrameReader
        The image.
    calibration : PixelCalibration
        What is known of its pixels, and the settings.
    places : ndarray, shape (n, 1 + axes), optional
        Frame number and position of the spots from which the PSF is estimated: all that will be
        fitted.
    """
    calibration = with_psf(reader, calibration, places=places)
    settings = calibration.settings
    # Where only shot noise is known, the image shows what there is besides: what looks for spots
    # and for lone pixels goes by all.
    if settings.gain is not None and calibration.knows_variance:
        return calibration.with_noise(calibration.camera_noise)
    if settings.noise is not None:
        return calibration
    return calibration.with_noise(measured_noise(reader, calibration))


@contextmanager
def frames_that_tell(reader: FrameReader, settings: Settings) -> Iterator[None]:
    """Read the frames of all estimates once."""
    asked = [np.empty(0, np.int64)]
    if reader.held is None and settings.noise is None:
        asked.append(sample_frames(reader))
    if reader.held is None and settings.sigma is None:
        asked.append(glance_frames(reader))
    with reader.keeping(np.unique(np.concatenate(asked))):
        yield


def for_detection(calibration: PixelCalibration) -> tuple[Settings, NDArray[np.float32] | None]:
    """Return settings whose noise excludes that of a map of variances, and the map.

    Where there is none, it is None, and the settings are the calibration's.
    """
    variances = calibration.variance_map()
    settings = without_map(calibration.settings, variances)
    return settings, None if settings is calibration.settings else variances


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


def warn_of_gain(given: Settings, found: Settings | None) -> None:
    """Warn of maximum likelihood without a gain."""
    if found is None or found.gain is not None:
        return
    if not given.estimator_kind.is_likelihood or given.noise is not None:
        return
    noise = found.noise
    if noise is None or not has_shot_noise(noise):
        text = "takes a count for a photo-electron, as the image does not tell the camera's gain"
    else:
        text = f"takes what the image suggests, {noise.slope:.3g} counts per photo-electron"
    warn_caller(
        f"estimator={given.estimator!r} needs {given.estimator_kind.needs}; without, it {text}. "
        "Give gain=… and offset=…; the result's settings.noise holds what was taken"
    )
