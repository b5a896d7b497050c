"""How sharp a microscope is: the widths of beads along each axis, beside theory."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..engine.flags import RULES, Flag
from ..images.camera import Camera
from ..images.pixel_calibration import PixelCalibration
from ..localization.fit_at import fit_at
from ..models.columns import STDERR
from ..models.number_checks import number
from ..results.spot_fits import SpotFits
from ..settings.bounds import optics_of
from ..settings.noise_model import NoiseModel
from ..settings.settings import Settings
from ..simulate_pupil import simulate_psf
from .bead_fits import bead_places
from .bead_stack import checked_stack, rough_models

if TYPE_CHECKING:
    import pandas as pd

#: Full width at half maximum in standard deviations, and variance of a ball in squared diameters.
_FWHM, _BALL = math.sqrt(8 * math.log(2)), 1 / 20
#: Flags of fits whose widths are not those of one bead, beside those that are not good.
_SPOILT = Flag.NEIGHBOUR | Flag.SATURATED | Flag.EDGE | Flag.SIGMA_Z_HELD
_AXES = "zyx"
#: Photons of a simulated bead, and pixels beside its ROI.
_LIGHT, _BESIDE = 1e5, 6


@dataclass(frozen=True)
class MicroscopeQuality:
    """Widths of beads in a z-stack.

    Threads: any number may share it, as it is immutable.

    Attributes
    ----------
    beads : DataFrame
        A row for each bead: ``z`` in planes, ``y``, ``x`` in pixels, ``fwhm_z``, ``fwhm_y`` and
        ``fwhm_x`` with their standard errors in nm, ``photons``, whether it is ``used``, and the
        ``reason`` if it is not.
    theory : dict of str to float
        The same by axis of such a bead behind perfect optics, in nm; NaN where the optics are not
        known.

    Examples
    --------
    >>> import pandas as pd
    >>> bead = {f"fwhm_{axis}": [250.0] for axis in "zyx"} | {"used": [True]}
    >>> quality = MicroscopeQuality(pd.DataFrame(bead), dict.fromkeys("zyx", 200.0))
    >>> float(quality.summary().ratio["x"])
    1.25
    """

    beads: pd.DataFrame
    theory: dict[str, float]

    def summary(self) -> pd.DataFrame:
        """Return the median of each axis over the used beads, their spread, and theory, in nm."""
        import pandas as pd

        used = self.beads[self.beads.used]
        rows = {}
        for axis in _AXES:
            low, median, high = np.percentile(used[f"fwhm_{axis}"], (15.87, 50, 84.13))
            theory = self.theory[axis]
            rows[axis] = median, (high - low) / 2, theory, median / theory
        return pd.DataFrame.from_dict(
            rows, orient="index", columns=["fwhm", "spread", "theory", "ratio"]
        )


def microscope_quality(
    stack: Any,
    voxel_size: tuple[float, float, float],
    *,
    bead_diameter: float = 0.0,
    camera: Camera | None = None,
    settings: Settings | None = None,
) -> MicroscopeQuality:
    """Measure the widths of beads along x, y and z, each by a Gaussian in three dimensions.

    Parameters
    ----------
    stack : array, shape (planes, rows, columns), or path
        Beads on a cover glass, from below to above the focus.
    voxel_size : (float, float, float)
        Distance of planes, rows and columns in nm.
    bead_diameter : float
        In nm; theory is that of beads of this size.
    camera : Camera, optional
        Offset and gain of all pixels or of each.
    settings : Settings, optional
        Gain and offset; ``numerical_aperture``, ``wavelength`` and ``refractive_index`` for theory.

    Returns
    -------
    MicroscopeQuality
        Every bead that was found, and theory.

    Raises
    ------
    ValueError
        If no bead can be used; the message says why.

    Examples
    --------
    >>> from napari_spotfit import Settings, microscope_quality, simulate_beads
    >>> beads, truth = simulate_beads(range(-1000, 1001, 100), count=9, seed=1)
    >>> optics = Settings(offset=100, numerical_aperture=1.4, wavelength=670)
    >>> quality = microscope_quality(beads, (100, 100, 100), settings=optics)
    >>> bool(quality.beads.used.sum() > 6), quality.summary().ratio.between(0.9, 1.3).tolist()
    (True, [True, True, True])
    """
    diameter = number("bead_diameter", bead_diameter, 0)
    planes = checked_stack(stack)
    own = (settings or Settings()).changed(voxel_size=voxel_size, errors=True)
    if camera is not None:
        known = PixelCalibration(planes.shape, own, camera=camera)
        planes, own = known.corrected(np.arange(len(planes)), planes), known.fitted
    centers = _centers(planes, own)
    if not len(centers):
        raise ValueError(
            "no beads were found in the maximum projection of the stack: are they brighter than "
            "its background? Give false_spots=… to find dimmer ones"
        )
    with rough_models():
        fits = fit_at(planes, centers, settings=own.changed(model="gaussian_3d_elliptical"))
    found = _table(fits)
    if not found.used.any():
        counts = found.reason.value_counts()
        raise ValueError(
            f"none of {len(found)} beads can be used: "
            f"{'; '.join(f'{count} × {why}' for why, count in counts.items())}. Record single "
            "beads, at least 15 px apart, that saturate no pixel, with planes on both sides"
        )
    assert fits.settings is not None
    return MicroscopeQuality(found, _theory(fits.settings, len(planes), diameter))


def _centers(planes: NDArray[Any], settings: Settings) -> NDArray[np.float64]:
    """Return z, y and x of the brightest pixel of each bead."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a maximum of planes has less noise than the camera
        _, places = bead_places(planes.max(axis=0), settings.changed(model="gaussian"))
    height, width = planes.shape[1:]
    y, x = np.clip(np.rint(places).astype(int), 1, (height - 2, width - 2)).T
    light = sum(
        planes[:, y + down, x + across].astype(float)
        for down in (-1, 0, 1)
        for across in (-1, 0, 1)
    )
    return np.column_stack([np.argmax(light, axis=0), places])


def _table(fits: SpotFits) -> pd.DataFrame:
    import pandas as pd

    assert fits.settings is not None
    voxel = fits.settings.voxel_size
    assert voxel is not None
    table = {axis: fits.columns[axis] for axis in _AXES}
    for end in ("", STDERR):
        for axis, size in zip(_AXES, voxel, strict=True):
            table[f"fwhm_{axis}{end}"] = _FWHM * size * fits.columns[f"sigma_{axis}{end}"]
    wrong = (fits.flags & int(_SPOILT)) != 0
    used = fits.good & ~wrong & np.isfinite(table["fwhm_z"])
    reasons = [
        "" if is_used else _reason(int(flags))
        for is_used, flags in zip(used, fits.flags, strict=True)
    ]
    return pd.DataFrame(
        {**table, "photons": fits.photons, "used": used, "reason": reasons}
    ).sort_values(["y", "x"], ignore_index=True)


def _reason(flags: int) -> str:
    """Return the first reason against a bead in a word or two."""
    first = next(
        (flag for flag, rule in RULES.items() if flags & flag and (rule.rejects or flag & _SPOILT)),
        Flag.NOT_CONVERGED,
    )
    return RULES[first].word


def _theory(settings: Settings, planes: int, diameter: float) -> dict[str, float]:
    """Return the widths of beads of a size behind perfect optics, by the same fit, in nm."""
    voxel, optics = settings.voxel_size, optics_of(settings)
    assert voxel is not None
    if optics is None:
        return dict.fromkeys(_AXES, math.nan)
    middle = planes // 2
    rows, columns = (side + 2 * _BESIDE for side in settings.roi_shape[1:])
    psf = simulate_psf(
        voxel[0] * (np.arange(planes) - middle), (rows, columns), pixel_size=voxel[1:],
        numerical_aperture=optics[0], wavelength=optics[1], refractive_index=optics[2],
    )  # fmt: skip
    perfect = (_LIGHT * psf).astype(np.float32)
    center = [middle, rows // 2, columns // 2]
    no_noise = settings.changed(gain=None, offset=0.0, noise=NoiseModel.of_camera(1.0, 0.0, 1.0))
    fit = fit_at(perfect, [center], settings=no_noise)
    return {
        axis: _FWHM * math.hypot(
            size * float(fit.columns[f"sigma_{axis}"][0]), math.sqrt(_BALL) * diameter
        )
        for axis, size in zip(_AXES, voxel, strict=True)
    }  # fmt: skip
