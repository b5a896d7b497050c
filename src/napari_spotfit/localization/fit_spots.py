"""Fit spots that were cut out already."""

from __future__ import annotations

import math
from typing import Any, Unpack

import numpy as np
from numpy.typing import NDArray

from ..engine.backend import Backend, Block
from ..engine.fit_job import FitJob
from ..engine.kernel_arguments import add_nanometres
from ..engine.select import gpu_pays_off_for_fits, recorded, select_backend
from ..images.arrays import as_array, check_real, is_native, is_on_device, to_host, to_native
from ..images.camera import Camera
from ..images.pixel_calibration import PixelCalibration
from ..models.calibration import Calibration
from ..results.spot_fits import SpotFits
from ..settings.options import Options, merged, takes_settings
from ..settings.settings import Settings
from ..settings.validation import PLANES_MIN, ROI_LARGEST, ROI_MAX, ROI_MIN
from .orientation_check import check_cut_outs

#: Cut-outs that are converted at a time where their type is not a backend's, and the pixels
#: they have at most.
_CONVERTED, _CONVERTED_PIXELS = 1 << 16, 1 << 24
_FIRST = np.zeros(1, np.int64)


@takes_settings(
    "fit",
    "stop",
    "bounds",
    "camera",
    "run",
    without=("roi_size", "neighbours"),
    also=("voxel_size",),
    volumes=True,
)
def fit_spots(
    spots: Any,
    *,
    start: Any = None,
    weights: Any = None,
    bad_pixels: Any = None,
    camera: Camera | None = None,
    on_device: bool = False,
    settings: Settings | None = None,
    **options: Unpack[Options],
) -> SpotFits:
    """Fit spots that were cut out already.

    Parameters
    ----------
    spots : array, shape (n, Sy, Sx) or (n, Sz, Sy, Sx)
        Cut-outs of 4 to 4096 pixels a side, of any real number type: NumPy, CuPy, or
        whatever has ``__cuda_array_interface__`` or DLPack. Up to 32 pixels a side many
        are fitted side by side, larger ones one by one with all there is. Models of spots
        in volumes, "gaussian_3d" and "gaussian_3d_elliptical", take 3 to 32 planes of 4
        to 32 pixels a side; z, its width and its error are in planes.
    start : array, shape (n, parameters), optional
        Start values of the model's shape parameters, in the order of the results: (z,) y
        and x in pixels of the cut-outs, then the widths (and the angle). NaN, and by default,
        they are made from the data.
    weights : array, shape of one spot or of all, optional
        Weight of each pixel for ``estimator="wlse"``, 0 or above.
    bad_pixels : array of bool, shape of one spot or of all, optional
        True where a pixel is not used.
    camera : Camera, optional
        Offset, gain and read-out variance, of all pixels or of each.
    on_device : bool, default False
        Leave the results on the GPU, as CuPy arrays. Spots on the GPU are then fitted
        on CuPy's current stream, and the call does not wait for them, unless weights, bad
        pixels or the camera's maps have to be checked.
    settings : Settings, optional
        All settings at once; ``options`` change single ones. The noise of cut-outs cannot be
        estimated: without gain and ``noise``, the standard errors follow the residuals' scatter,
        and are too small by a factor of 1.5 to 2.2, as light is noisier where it is bright.

    Returns
    -------
    SpotFits
        One row per cut-out, in order; positions in pixels, 0 the centre of a
        cut-out's first pixel.

    Raises
    ------
    TypeError
        If the spots are complex, boolean or no numbers.
    ValueError
        If shapes or settings are outside what is accepted.

    References
    ----------
    M. Leutenegger and M. Weber, Least-squares fitting of Gaussian spots on graphics
    processing units (Fit2DGaussian).

    Examples
    --------
    >>> from napari_spotfit import fit_spots, simulate_spots
    >>> spots, truth = simulate_spots(1000, roi_size=7, photons=2000, seed=1)
    >>> fits = fit_spots(spots)
    >>> bool(abs(fits.x - truth["x"]).max() < 0.5)
    True
    """
    settings = merged(settings, options, fit_spots)
    array = checked_spots(spots, settings)
    roi_shape = array.shape[1:]
    own_start = checked_start(start, len(array), settings)
    calibration = PixelCalibration(
        array.shape, settings, weights=weights, bad_pixels=bad_pixels, camera=camera
    )
    if on_device:
        return _fit_on_device(array, own_start, calibration)
    worth = is_on_device(array) or gpu_pays_off_for_fits(
        settings, len(array), roi_shape, weighted=calibration.is_weighted
    )
    backend = select_backend(settings, worth)
    # Converted in chunks: ten million spots are not copied as a whole.
    as_it_is = not calibration.by_frame and (is_native(array) or _is_read(array, backend))
    few = max(min(_CONVERTED, _CONVERTED_PIXELS // math.prod(roi_shape)), 1)
    step = max(len(array), 1) if as_it_is else few
    parts = []
    for first in range(0, max(len(array), 1), step):
        numbers = _numbers(first, min(first + step, len(array)), calibration)
        chunk = array if as_it_is else to_native(array[first : first + step])
        begin = None if own_start is None else to_host(own_start[first : first + step])
        columns = _fit(backend, calibration, numbers, chunk, begin)
        parts.append(SpotFits(columns, (), recorded(calibration.settings, backend), roi_shape))
    fits = parts[0] if len(parts) == 1 else SpotFits.concatenate(parts)
    if calibration.bright is not None:
        check_cut_outs(calibration, array, fits.columns, fits.flags)
    return fits


def _fit(
    backend: Backend,
    calibration: PixelCalibration,
    numbers: NDArray[np.int64],
    pixels: Any,
    start: Any,
    *,
    on_device: bool = False,
) -> dict[str, Any]:
    """Fit cut-outs of these numbers, in a type that the backend reads."""
    planes, variances = calibration.planes(numbers, pixels), calibration.variances(numbers, pixels)
    pixels = calibration.corrected(numbers, pixels)
    if not on_device:
        calibration.check_counts(pixels, None)
    block = Block(pixels, pixels, planes, variances)
    job = FitJob.of_spots(calibration.fitted, pixels.shape[1:], pixels.dtype)
    columns = backend.fit(job, block, None, start, on_device=on_device)
    add_nanometres(columns, calibration.settings)
    return columns


def _is_read(array: Any, backend: Backend) -> bool:
    """Whether a backend takes cut-outs of another type as they are."""
    return backend.reads_all and not is_on_device(array) and max(array.shape[1:]) <= ROI_MAX


def _fit_on_device(array: Any, start: Any, calibration: PixelCalibration) -> SpotFits:
    """Fit spots on the GPU, and leave the results there."""
    if calibration.settings.backend == "cpu":
        raise ValueError("on_device=True leaves results on a GPU; backend must not be 'cpu'")
    backend = select_backend(calibration.settings.changed(backend="cuda"))
    # Whatever has to be converted is, as a whole: the results are one array each.
    numbers, pixels = _numbers(0, len(array), calibration), to_native(array)
    columns = _fit(backend, calibration, numbers, pixels, start, on_device=True)
    return SpotFits(columns, (), recorded(calibration.settings, backend), pixels.shape[1:])


def _numbers(first: int, last: int, calibration: PixelCalibration) -> NDArray[np.int64]:
    """Return the numbers of cut-outs, as far as they matter: there may be many millions."""
    return np.arange(first, last) if calibration.by_frame else _FIRST[: last - first]


def checked_spots(spots: Any, settings: Settings) -> Any:
    """Return cut-outs as an array, or raise an error that states what is accepted."""
    array = as_array(spots)
    check_real(array.dtype, "spots")
    if array.ndim != 1 + settings.dimensions:
        raise ValueError(
            f"spots must have the shape (n, {settings.profile.sides}) for the model "
            f"{settings.profile.name}; got {array.shape}"
        )
    sides, is_volume = array.shape[1:], settings.dimensions > 2
    least = PLANES_MIN if is_volume else ROI_MIN
    largest = ROI_MAX if is_volume or settings.profile.lattice else ROI_LARGEST
    if min(sides) < least or min(sides[-2:]) < ROI_MIN or max(sides) > largest:
        planes = f"{PLANES_MIN} to {largest} planes and " if is_volume else ""
        raise ValueError(
            f"spots must have {planes}{ROI_MIN} to {largest} pixels a side; got "
            f"{'×'.join(map(str, sides))}"
        )
    if isinstance(settings.model, Calibration):
        settings.model.check({"roi_size": tuple(map(int, sides))})
    return array


def checked_start(start: Any, count: int, settings: Settings) -> Any:
    """Return start values as the backends read them, or raise an error."""
    if start is None:
        return None
    names = [parameter.name for parameter in settings.profile.shape]
    values = as_array(start)
    check_real(values.dtype, "start")
    values = values.astype(np.float32, order="C")
    if values.shape != (count, len(names)):
        raise ValueError(
            f"start must have the shape ({count}, {len(names)}): {', '.join(names[:-1])} and "
            f"{names[-1]} of each spot; got {values.shape}"
        )
    return values
