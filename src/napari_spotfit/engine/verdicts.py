"""Flag fits and measure the widths of spots, by the rules of kernels/verdict.h."""

from __future__ import annotations

import ctypes
import math
import struct
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..models.calibration import Calibration
from ..models.columns import AXES, IN_PLANE
from ..models.estimators import StopCondition
from ..settings.bounds import bounds_of, light_ends
from ..settings.noise_model import Process, excess_of
from ..settings.settings import Settings, electrons_of, noise_of
from . import flags
from .cpu.layouts import (
    MAX_SHAPE,
    WORK_OF_VERDICT,
    Around,
    ChiBy,
    FitColumn,
    FitColumns,
    ImageFits,
    VerdictSettings,
    WidthParameter,
)
from .cpu.library import load
from .filtered_noise import error_columns, filtered_noise
from .kernel_arguments import address, roi_columns, shape_of_roi

#: Tolerance of bounds of angles in degrees, as fits are in radians.
_DEGREES = 1e-3
#: Relative rounding of single precision.
_ROUNDING = 2e-7
#: Largest relative error of an estimated noise model.
_MEASURED = 0.1
#: The columns before those of the shape parameters.
COLUMNS = tuple(map(str.lower, FitColumn.NAMES[: FitColumn.SHAPE]))
#: Parameters that are widths.
WIDTHS = tuple(map(str.lower, WidthParameter.NAMES[: WidthParameter.WIDTH_PARAMETERS]))

_NO_ENDS = MAX_SHAPE * (math.nan,)


@lru_cache(maxsize=64)
def verdict_settings(
    settings: Settings | None, roi_shape: tuple[int, ...] | None, calibrated: bool = False
) -> tuple[tuple[str, ...], VerdictSettings]:
    """Return the columns and the parameters of the rules, read-only.

    `calibrated` says that the fits are of a calibration's model, whatever the settings say.
    """
    numbers = VerdictSettings(
        low=_NO_ENDS, high=_NO_ENDS, amplitude_low=math.nan,
        amplitude_high=math.nan, background_low=math.nan, background_high=math.nan,
        least_errors=flags.LEAST_ERRORS, most_chi=flags.MOST_CHI, farthest=flags.FARTHEST,
        widest=flags.WIDEST, narrowest=flags.NARROWEST, same_spot=flags.SAME_SPOT,
        crowd=flags.CROWD,
        same_spot_px=flags.SAME_SPOT_PX, width_at=len(WIDTHS) * (-1,), sigma_z_at=-1,
        depth_at=-1,
    )  # fmt: skip
    if settings is None or roi_shape is None:
        return COLUMNS, numbers
    shape = [parameter.name for parameter in settings.profile.shape]
    numbers.shape, numbers.photon = len(shape), settings.gain or 1.0
    numbers.roi = shape_of_roi(roi_shape)
    numbers.overlap = 2 ** (-len(roi_shape) / 2)
    numbers.width_at = tuple(shape.index(one) if one in shape else -1 for one in WIDTHS)
    angle = math.radians(settings.fixed.get("angle") or 0.0)
    numbers.lens_x, numbers.lens_y = math.cos(angle), math.sin(angle)
    numbers.sigma_z_at = shape.index("sigma_z") if "sigma_z" in shape else -1
    if settings.profile.lattice is not None:
        numbers.depth_at = shape.index("z")
        # A maximum may be that of a lobe, and σ is hardly below a pixel.
        numbers.farthest += settings.profile.lattice.lobes
    is_held = not settings.fixed.keys().isdisjoint(settings.profile.widths)
    numbers.widths_judged = not is_held and settings.profile.has_widths
    _put_bounds(numbers, settings, roi_shape)
    _put_noise(numbers, settings, roi_shape, calibrated)
    return (*COLUMNS, *shape), numbers


def _put_bounds(numbers: VerdictSettings, settings: Settings, roi_shape: tuple[int, ...]) -> None:
    """Fill in the bounds, at which parameters of flagged fits are exactly, in single precision."""
    for i, parameter in enumerate(settings.profile.shape):
        name = parameter.name
        if name in settings.fixed:
            continue
        low, high = bounds_of(name, settings, roi_shape)
        slack = _DEGREES if name == "angle" else 0.0
        if math.isfinite(low):
            numbers.low[i] = np.float32(low + slack)
        # At its largest exponent, a Moffat profile is nearly a Gaussian, as real spots can be.
        is_own = settings.profile.expression is not None
        is_gaussian = name == "exponent" and high == parameter.high and not is_own
        if math.isfinite(high) and not is_gaussian:
            numbers.high[i] = np.float32(high - slack)
    for name in ("amplitude", "background"):
        given = getattr(settings, f"{name}_min"), getattr(settings, f"{name}_max")
        # The fit bounds the background including the offset, which is subtracted afterwards.
        shift = abs(settings.offset) if name == "background" else 0.0
        low, high = (end.value for end in light_ends(settings, name))
        if given[0] is not None:
            setattr(numbers, f"{name}_low", np.float32(low + _ROUNDING * (abs(low) + shift)))
        if given[1] is not None:
            setattr(numbers, f"{name}_high", np.float32(high - _ROUNDING * (abs(high) + shift)))


def _put_noise(
    numbers: VerdictSettings, settings: Settings, roi_shape: tuple[int, ...], calibrated: bool
) -> None:
    """Fill in the noise, for the amplitude's error and χ², and what is looked for around spots."""
    noise = noise_of(settings)
    if noise is None:
        return
    numbers.noise_known, numbers.slope, numbers.least = True, noise.slope, noise.least
    numbers.dark = noise.intercept + noise.slope * settings.offset
    numbers.pixels = math.prod(roi_shape)
    numbers.least_with_light = noise.slope**2 / numbers.pixels
    numbers.offset, numbers.coarse = settings.offset, noise.correlation**2
    own_axes = {"sigma_x", "sigma_y"} & {parameter.name for parameter in settings.profile.shape}
    is_planar = settings.dimensions == len(IN_PLANE)
    # If neighbouring pixels differ in sensitivity, no spot looks round.
    is_even = noise.process != Process.MOSAIC
    if is_planar and calibrated:
        numbers.around = Around.AROUND_FAR_LIGHT
    elif not own_axes and settings.profile.has_widths and is_planar and is_even:
        numbers.around = Around.AROUND_LINES
    estimator, own_model = settings.estimator_kind, settings.profile.expression is not None
    # If the image shows no shot noise, that of a spot is unknown.
    if noise.is_filtered or not noise.slope > 0 or not estimator.chi_is_judged or own_model:
        return
    # Of planes that were corrected, the squares of each are larger by as much as its light is less.
    if settings.noise is not None and settings.noise.planes and not estimator.is_likelihood:
        return
    electrons = electrons_of(settings)
    numbers.fitted = settings.fitted_parameters
    numbers.measured = 1.0 if settings.gain is not None else 1 + _MEASURED
    numbers.correlated = noise.correlation**2
    numbers.gain, numbers.excess = electrons.gain, electrons.excess
    numbers.tails = 3 if settings.emccd else 1
    if estimator.is_likelihood:
        numbers.chi_by = ChiBy.CHI_OF_LIKELIHOOD
        numbers.electron = excess_of(settings.emccd) * electrons.gain**2
    else:
        numbers.chi_by, numbers.electron = ChiBy.CHI_OF_COUNTS, noise.slope**2


Columns = Mapping[str, Any]

_BYTE, _INTEGER, _SINGLE, _DOUBLE = map(np.dtype, ("u1", "i4", "f4", "f8"))
#: Types of the columns, see kernels/layouts/verdicts.h.
_TYPES = (_BYTE, *len(AXES) * [_INTEGER], *(len(COLUMNS) - 4 + MAX_SHAPE) * [_SINGLE])

#: struct is faster than ctypes, which takes longer than flagging a hundred fits.
_FIT_COLUMNS, _IMAGE_FITS = struct.Struct(FitColumns.FORMAT), struct.Struct(ImageFits.FORMAT)


def flags_from_columns(
    columns: Columns, settings: Settings | None, roi_shape: tuple[int, ...] | None
) -> NDArray[np.uint32]:
    """Return the flags that follow from the columns of fits alone, as bits of :class:`Flag`.

    Parameters
    ----------
    columns : mapping of str to ndarray
        Columns of fits; missing ones set no flag.
    settings : Settings or None
        The settings of the fits; without them, bounds and noise are unknown.
    roi_shape : tuple of int or None
        Pixels of the ROIs along each axis.

    Examples
    --------
    >>> columns = {"stop_condition": [0, 2], "amplitude": [5, 5], "photons": [9, -9]}
    >>> flags_from_columns({name: np.array(values) for name, values in columns.items()}, None, None)
    array([ 1, 64], dtype=uint32)
    """
    names, numbers = verdict_settings(settings, roi_shape)
    count = len(columns["stop_condition"])
    found = np.empty(count, np.uint32)
    where, doubles, _kept = _places_of(columns, names)
    library = load()
    library.functions.spotfit_judge(
        library.index, _FIT_COLUMNS.pack(*where, doubles), ctypes.byref(numbers), 0, count,
        address(found),
    )  # fmt: skip
    return found if settings is None else found | depth_flags(columns, settings)


def depth_flags(columns: Columns, settings: Settings) -> NDArray[np.uint32]:
    """Return the flags of fits with z at an end of the calibration's range."""
    limits = settings.model.range if isinstance(settings.model, Calibration) else None
    if limits is None or "z" not in columns:
        return np.zeros(len(columns["stop_condition"]), np.uint32)
    # As numbers of results, which joint fits have more precise.
    low, z, high = (np.asarray(value, np.float32) for value in (limits[0], columns["z"], limits[1]))
    inside = (z > low) & (z < high)
    at_limit = ~inside & (columns["stop_condition"] != int(StopCondition.INVALID))
    return np.where(at_limit, np.uint32(flags.Flag.Z_AT_LIMIT), np.uint32(0))


class ImageVerdicts:
    """Converts columns of ROIs to those of an image, with all flags, by the library.

    Positions become pixels of the image, and standard errors are corrected for filtered noise, both
    in place.

    Parameters
    ----------
    columns : dict of str to ndarray
        Columns of a backend; ``roi_y``, ``roi_x``, that of z, and ``flags`` are added.
    settings : Settings
        The settings of the fits.
    roi_shape : tuple of int
        Pixels of the ROIs along each axis.
    calibrated : bool
        Whether the fits are of a calibration's model.
    """

    def __init__(
        self,
        columns: dict[str, Any],
        settings: Settings,
        roi_shape: tuple[int, ...],
        calibrated: bool = False,
    ) -> None:
        names, self.numbers = verdict_settings(settings, roi_shape, calibrated)
        where, doubles, *kept = _places_of(columns, names)
        axes = len(roi_shape)
        where[1:4] = 0, 0, 0  # positions are those in the ROIs, whatever the columns were before
        count = self._count = len(columns["y"])
        made, work = np.empty((axes + 1, count), _INTEGER), np.empty(WORK_OF_VERDICT * count, _BYTE)
        columns.update(zip(roi_columns(axes), made, strict=False), flags=made[-1].view(np.uint32))
        filtered = filtered_noise(settings, roi_shape)
        errors = None if filtered is None else error_columns(columns, filtered.columns)
        #: Arrays that must stay alive as long as their addresses are used.
        self._kept = kept, made, work, filtered, errors
        #: The columns, packed as FitColumns.
        self.fits = _FIT_COLUMNS.pack(*where, doubles)
        none = (len(AXES) - axes) * (0,)
        roi = (address(made) + 4 * count * axis for axis in range(axes))
        self._memory = (
            ctypes.addressof(filtered.noise) if filtered else 0,
            ctypes.addressof(errors) if errors else 0, address(work),
            *where[len(COLUMNS) : len(COLUMNS) + axes], *none, *roi, *none,
            address(made) + 4 * count * axes,
        )  # fmt: skip

    def image(
        self,
        corners: NDArray[np.int64],
        places: NDArray[np.float64],
        shape: tuple[int, ...],
        sigma: float | None,
        bad: NDArray[np.bool_] | None,
        sigma_z: float | None = None,
        per_plane: float = 1.0,
        first: int = 0,
    ) -> bytes:
        """Return packed ImageFits; the arrays must stay alive as long as it is used."""
        widths = (math.nan if width is None else width for width in (sigma, sigma_z))
        return _IMAGE_FITS.pack(
            address(corners), address(places), self._count, *(1,) * (len(AXES) - len(shape)),
            *shape, *widths, per_plane, address(bad), 0 if bad is None else len(bad),
            *self._memory, first,
        )  # fmt: skip


def _places_of(columns: Columns, names: tuple[str, ...]) -> tuple[list[int], int, list[Any]]:
    """Return the columns' addresses, which are doubles, and arrays to keep alive."""
    where, doubles, kept = [0] * len(_TYPES), 0, []
    for place, name in enumerate(names):
        column: Any = columns.get(name)
        if column is None:
            continue
        if column.dtype is not _TYPES[place]:
            column = np.ascontiguousarray(column, _DOUBLE)
            doubles |= 1 << place
        try:  # like `address`, but without a dozen calls
            where[place] = ctypes.addressof(ctypes.c_char.from_buffer(column))
        except (TypeError, ValueError):  # empty, read-only, or not contiguous
            column = np.ascontiguousarray(column)
            where[place] = address(column)
        kept.append(column)
    return where, doubles, kept


def mean_sigma(columns: Mapping[str, Any], gain: float = 1.0) -> NDArray[np.float64]:
    """Return the width of each spot in pixels, NaN if unknown.

    The σ of a round Gaussian; the geometric mean of both of an elliptical one; for a Moffat profile
    that of the Gaussian with the same full width at half maximum, as its wings may have much of the
    light; otherwise that of the round Gaussian of the same height and light (for own models, in the
    ROI). Spots in one table may differ in this. The formulas are in kernels/verdict.h.

    Parameters
    ----------
    columns : mapping of str to array
        Columns of fits, or the values of one fit, by name.
    gain : float
        Counts per photon with which the photons were computed.

    Examples
    --------
    >>> float(mean_sigma({"sigma_x": np.float64(1), "sigma_y": np.float64(4)}))
    2.0
    """
    given = {name: columns[name] for name in (*WIDTHS, "amplitude", "photons") if name in columns}
    shape = np.broadcast_shapes(*map(np.shape, (given or columns).values()))
    values = np.full((len(WIDTHS) + 2, *shape), np.nan)
    for place, name in enumerate((*WIDTHS, "amplitude", "photons")):
        if name in given:
            values[place] = given[name]
    values[-1] *= gain
    widths = np.empty(shape)
    library = load()
    library.functions.spotfit_mean_widths(
        library.index, address(values), widths.size, address(widths)
    )
    return widths
