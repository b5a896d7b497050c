"""What an image's noise says against the settings that errors and false spots go by."""

from __future__ import annotations

from ..caller import warn_caller
from ..images.frames import FrameReader
from ..images.pixel_calibration import PixelCalibration
from ..settings.noise_model import UNLIKE, NoiseModel
from ..settings.settings import Settings
from .image_noise import noise_over

#: Of narrower spots some of the light is taken for noise: of σ 0.6 px and 5000 photons six times as
#: much as there is, of 0.7 px less than twice.
_NARROW = 0.7


def warn_of_noise(reader: FrameReader, calibration: PixelCalibration, given: Settings) -> None:
    """Say what is to be said of the noise to whoever called this package."""
    if doubts := noise_doubts(reader, calibration, given):
        warn_caller(doubts)


def noise_doubts(reader: FrameReader, calibration: PixelCalibration, given: Settings) -> str:
    """Return what is to be said of noise that one camera cannot make, or not the one that is given.

    Parameters
    ----------
    reader : FrameReader
        The image.
    calibration : PixelCalibration
        Its pixels, with the noise that all goes by.
    given : Settings
        Those before anything was estimated. If they hold a noise, as those of results do, all has
        been said.

    Returns
    -------
    str
        Nothing where there is no doubt.
    """
    noise, camera = calibration.settings.noise, calibration.camera_noise
    if given.noise is not None or noise is None:
        return ""
    if camera is None:
        return _of_parts(noise) if noise.is_uneven else _of_narrow_spots(calibration, noise)
    known = calibration.knows_variance
    names = _in_words(calibration.fitted, camera.least if known else 0.0)
    ratio = noise_over(reader, calibration, camera)
    if ratio < 1 / UNLIKE or (known and ratio > UNLIKE):
        return _of_camera(f"{ratio:.2g} times the noise that a camera of {names} has", "")
    # Of an unknown read-out variance, noise may have any; not its slope.
    if known or noise.gain is None or 1 / UNLIKE < noise.gain / camera.slope < UNLIKE:
        return ""
    return _of_camera(
        f"noise that grows {noise.gain / camera.slope:.2g} times as fast with the light as that of "
        f"a camera of {names}",
        f": it suggests {noise.gain:.3g} counts per electron",
    )


def _of_parts(noise: NoiseModel) -> str:
    return (
        f"parts of the image have {noise.uneven:.2g} times the noise of others that are as bright, "
        "as channels have, and frames that were scaled: false spots and standard errors go by one "
        "noise for all. Fit them one by one, as image[:, 1], and as the camera took them"
    )


def _of_narrow_spots(calibration: PixelCalibration, noise: NoiseModel) -> str:
    sigma, error = calibration.settings.sigma, noise.slope_error
    if sigma is None or sigma >= _NARROW or error is None or error < noise.slope:
        return ""
    return (
        f"spots of σ {sigma:.2g} px have detail as fine as noise has, so that the image does not "
        "tell how noisy light is: standard errors may be several times too large, and dim spots "
        "missed. Give the camera's gain and offset"
    )


def _of_camera(found: str, suggested: str) -> str:
    return (
        f"the image has {found}{suggested}. False spots and standard errors go by that camera: the "
        "gain is in counts per electron, not electrons per count, the offset is the counts without "
        "light, and the image should be as the camera took it"
    )


def _in_words(settings: Settings, variance: float) -> str:
    numbers = {"gain": settings.gain, "offset": settings.offset, "variance": variance}
    return ", ".join(f"{name} {number:.4g}" for name, number in numbers.items() if number)
