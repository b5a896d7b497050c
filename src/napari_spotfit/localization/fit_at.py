"""Fit at given positions of an image."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Unpack

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..engine.backend import Backend, Block, Positions, corners_of, in_order, outside
from ..engine.fit_job import FitJob
from ..engine.joint import alone, fit_crowds, has_groups
from ..engine.kernel_arguments import add_nanometres
from ..engine.positions import Rows, rows_of
from ..engine.select import gpu_pays_off_for_fits, recorded, select_backend
from ..estimation.camera_check import warn_of_camera
from ..estimation.detection_noise import for_detection
from ..estimation.held_widths import held_widths, warn_of_held_widths
from ..estimation.image_estimates import estimated, warn_of_gain
from ..estimation.image_noise import warn_of_noise
from ..images.arrays import is_on_device
from ..images.axes import axis_names
from ..images.camera import Camera
from ..images.channels import Channel, Maps, channels_of
from ..images.frames import FrameReader, inside
from ..images.pixel_calibration import PixelCalibration
from ..models.columns import (
    GROUP,
    IN_PLANE,
    PLANE,
    GroupCounter,
)
from ..results.fit_parts import joined_channels, with_channel
from ..results.spot_fits import SpotFits
from ..settings.options import Options, takes_settings, with_roi
from ..settings.settings import Settings
from ..settings.validation import PLANES_MIN, ROI_MIN
from .centers import checked_places, warn_of_missing_frames, warn_of_places_outside
from .chunks import side_by_side
from .orientation_check import offer_rois, warn_of_orientation

_FAR = 1 << 62
_FIRST = np.zeros(1, np.int64)


@takes_settings(
    "fit", "stop", "bounds", "camera", "optics", "run", also=("sigma", "sigma_z"), volumes=True
)
def fit_at(
    image: Any,
    centers: ArrayLike,
    roi_size: int | tuple[int, ...] | None = None,
    *,
    channel: int | str | None = None,
    weights: Any = None,
    bad_pixels: Any = None,
    camera: Camera | None = None,
    settings: Settings | None = None,
    **options: Unpack[Options],
) -> SpotFits:
    """Fit the spots at given positions of an image.

    Parameters
    ----------
    image : array, shape (…, Y, X) or (…, Z, Y, X), or path
        NumPy, CuPy, Dask or Zarr array of any real number type, or an image file, see
        :func:`~napari_spotfit.open_image`; only frames with spots
        are read, a few at a time. Frames are planes, or volumes where the model is of spots in
        volumes, as "gaussian_3d" is.
    centers : array, shape (n, ndim), table or SpotFits
        Where the spots are, in pixels along every axis of the image, in the order of the axes. Of a
        table (DataFrame, structured array) with columns y and x these are taken by name, and
        frame, z and so on for the other axes. The ROI lies around the nearest pixel, shifted
        inwards at the image's edges and end planes.
    roi_size : int or tuple of int, optional
        Side of the ROI, or (planes,) rows and columns; odd. By default about 6 σ along each axis,
        at least 9 pixels. A stack of fewer planes is fitted with all of them.
    channel : int or str, optional
        Number or name of the channel, where the image has an axis c of several; the centres have no
        index of it. With "all" they have one, and each channel is fitted by itself.
    weights : array, shape (Y, X), of a frame or of the image, optional
        Weight of each pixel for ``estimator="wlse"``, 0 or above.
    bad_pixels : array of bool, shape (Y, X), of a frame or of the image, optional
        True where a pixel is not used.
    camera : Camera, optional
        Offset, gain and read-out variance, of all pixels or of each.
    settings : Settings, optional
        All settings at once; ``options`` change single ones. ``sigma`` is the PSF's, by which the
        fits' ``flags`` judge their widths; unset, it is estimated from the spots at the centres,
        if there are three. Where that is impossible, widths are not flagged.

    Returns
    -------
    SpotFits
        One row per centre, in order; places outside the image are INVALID, with a warning if most
        are, or of frames that it does not have. Of several centres at one spot, the nearest has its
        fit; the rows of the others are flagged DUPLICATE, and not good.

    Raises
    ------
    TypeError, ValueError
        If the image, the centres or the settings are not of the kind above.

    Warns
    -----
    UserWarning
        If the PSF's σ cannot be estimated from three centres or more, and none is given, or most
        centres are outside of the image, or some in frames that it does not have. For maximum
        likelihood without the camera's gain: what was taken for it.

    Examples
    --------
    >>> from napari_spotfit import fit_at, simulate_movie
    >>> movie, truth = simulate_movie(3, shape=(64, 64), spots_per_frame=5, seed=1)
    >>> fits = fit_at(movie, truth[["frame", "y", "x"]])
    >>> len(fits) == len(truth)
    True
    """
    settings = with_roi(settings, roi_size, options, fit_at)
    channels = channels_of(image, channel, Maps(None, weights, bad_pixels, camera))
    if not channels[0].is_one_of_all:
        return _fit_at(channels[0], centers, settings)
    return _fit_in_channels(channels, centers, settings)


def _fit_in_channels(
    channels: Sequence[Channel], centers: ArrayLike, settings: Settings
) -> SpotFits:
    """Fit in each channel the centres in it; rows stay in order."""
    axis = channels[0].axis
    assert axis is not None
    places = checked_places(centers, len(channels[0].image.shape) + 1, spatial=settings.dimensions)
    with np.errstate(invalid="ignore"):
        number = np.rint(places[:, axis])
    outside_all = ~np.isin(number, [int(one.number or 0) for one in channels])
    parts, rows = [], []
    number[outside_all] = int(channels[0].number or 0)
    used = [one for one in channels if (number == one.number).any()]
    for one in used or channels[:1]:
        own = np.flatnonzero(number == one.number)
        there = np.delete(places[own], axis, axis=1)
        there[outside_all[own], -1] = np.nan
        parts.append(with_channel(_fit_at(one, there, settings), one))
        rows.append(own)
    joined = joined_channels(parts)
    return joined[np.argsort(np.concatenate(rows), kind="stable")]


def _fit_at(channel: Channel, centers: ArrayLike, settings: Settings) -> SpotFits:
    """Fit at centres of one channel."""
    image, maps = channel.image, channel.maps
    given, reader = settings, checked_reader(image, settings)
    places = checked_places(
        centers, len(reader.shape), spatial=settings.dimensions, names=axis_names(image)
    )
    outer = len(reader.leading)
    warn_of_places_outside(places, reader)
    calibration = PixelCalibration(
        reader.shape, settings,
        weights=maps.weights, bad_pixels=maps.bad_pixels, camera=maps.camera,
    )  # fmt: skip
    numbers = known = None
    is_deep = settings.dimensions > len(IN_PLANE)
    is_open = settings.sigma is None or (is_deep and settings.sigma_z is None)
    if (
        reader.leading
        or is_open
        or held_widths(settings, reader.frame_shape[0] if is_deep else None)
    ):
        numbers = frame_numbers(places, reader)
        warn_of_missing_frames(places, reader)
        there = numbers >= 0
        known = np.column_stack([numbers[there], places[there, outer:]])
    calibration = estimated(reader, calibration, places=known)
    if calibration.camera_noise is None:  # else errors go by the camera
        warn_of_noise(reader, calibration, given)
    warn_of_held_widths(reader, calibration, given, known)
    detection, _ = for_detection(calibration)
    settings, one = calibration.settings, _only_frame(reader, numbers)
    worth = is_on_device(image) or gpu_pays_off_for_fits(
        settings, len(places), settings.roi_shape, weighted=calibration.is_weighted
    )
    backend = select_backend(settings, worth)
    job = FitJob.of(calibration, reader.dtype, detection)
    if one is None:
        assert numbers is not None
        columns = _in_frames(reader, calibration, job, backend, places, numbers)
    else:
        columns = fit_in(
            backend, job, calibration, one, reader.read(one), Positions(places[:, outer:])
        )
    warn_of_gain(given, calibration.settings)
    # Indices of places far outside, too, are numbers.
    index = np.where(np.isnan(places[:, :outer]), -1, np.rint(places[:, :outer]))
    index = np.clip(index, -_FAR, _FAR).astype(np.int64)
    fits = collected(columns, index, recorded(calibration.settings, backend), reader.planes)
    warn_of_camera(given, fits, detected=False)
    warn_of_orientation(calibration)
    return fits


def _only_frame(reader: FrameReader, numbers: NDArray[np.int64] | None) -> NDArray[np.int64] | None:
    """Return the number of the only frame with positions; None if there are several."""
    if not reader.leading:
        return _FIRST
    if numbers is None or not len(numbers) or numbers[0] < 0:
        return None
    return numbers[:1] if (numbers == numbers[0]).all() else None


def _in_frames(
    reader: FrameReader,
    calibration: PixelCalibration,
    job: FitJob,
    backend: Backend,
    places: NDArray[np.float64],
    numbers: NDArray[np.int64],
) -> dict[str, NDArray[Any]]:
    """Fit at positions in the numbered frames of an image, block by block."""
    load = backend.load
    if load.workers > 1 and backend.kind == "cpu":
        job = job.by_one_thread()
    used = np.unique(numbers[numbers >= 0])
    blocks = reader.blocks(used, 1, load.block_bytes)
    # Of each place, the block that its frame is in; of none, those outside of the image.
    sizes = [len(block) for block in blocks]
    own = np.full(len(used) + 1, -1)
    if blocks:
        own[np.searchsorted(used, np.concatenate(blocks))] = np.repeat(range(len(blocks)), sizes)
    where = own[np.where(numbers < 0, -1, np.searchsorted(used, numbers))]
    order = np.lexsort([numbers, where])
    ends = np.searchsorted(where[order], range(len(blocks) + 1))

    def fit(chunk: tuple[int, Any]) -> dict[str, NDArray[Any]]:
        number, pixels = chunk
        block, rows = blocks[number], order[slice(*ends[number : number + 2])]
        frame = np.searchsorted(block, numbers[rows])
        positions = Positions(places[rows, len(reader.leading) :], frame)
        return fit_in(backend, job, calibration, block, pixels, positions)

    parts = [outside(int((numbers < 0).sum()), calibration.fitted)]
    chunks = ((number, reader.read(block)) for number, block in enumerate(blocks))
    parts += side_by_side(fit, chunks, min(load.workers, len(blocks)))
    if has_groups(job) or GROUP in parts[-1]:
        nowhere = Positions(np.full((len(parts[0]["y"]), len(job.axes)), np.nan))
        parts[0] |= alone(job, nowhere, parts[0])
        rows_of(job, parts[0])
        if len(parts) > 1:
            parts[0] = {name: parts[0][name] for name in parts[-1]}
        count = GroupCounter()
        parts = [dict(count(part)) for part in parts]
    columns = {name: in_order([part[name] for part in parts], order) for name in parts[-1]}
    rows_of(job, columns)
    return columns


def checked_reader(image: Any, settings: Settings) -> FrameReader:
    """Return the image's frames, or raise a ValueError if a ROI does not fit into one."""
    reader = FrameReader(image, spatial=settings.dimensions)
    least = (ROI_MIN + 1,) * settings.dimensions
    roi = least if settings.roi_size is None else settings.roi_shape
    if len(roi) > len(IN_PLANE):
        roi = PLANES_MIN, *roi[-2:]  # a ROI of more planes than there are has all of them
        if reader.frame_shape[0] < PLANES_MIN:
            raise ValueError(
                f"the model {settings.profile.name} is of spots in volumes, which need "
                f"{PLANES_MIN} planes at least; the image of shape {reader.shape} has "
                f"{reader.frame_shape[0]}, its axes being (…, z, y, x): give a model of spots in "
                "planes, such as 'gaussian'"
            )
    if any(size < side for size, side in zip(reader.frame_shape, roi, strict=True)):
        image_size, roi_size = ("×".join(map(str, one)) for one in (reader.frame_shape, roi))
        raise ValueError(
            f"the image ({image_size} px) is smaller than the ROI ({roi_size} px); choose a "
            "smaller ROI size (roi_size)"
        )
    return reader


def frame_numbers(places: NDArray[np.float64], reader: FrameReader) -> NDArray[np.int64]:
    """Return the frame number of each position, -1 outside the image."""
    there = inside(places, reader.shape)
    numbers = np.full(len(places), -1, np.int64)
    if outer := len(reader.leading):
        last = np.array(reader.leading) - 1
        index = np.minimum(np.rint(places[there, :outer]).astype(np.int64), last)
        numbers[there] = np.ravel_multi_index(tuple(index.T), reader.leading)
    else:
        numbers[there] = 0
    return numbers


def fit_in(
    backend: Backend,
    job: FitJob,
    calibration: PixelCalibration,
    numbers: NDArray[np.int64],
    pixels: Any,
    positions: Positions,
) -> dict[str, NDArray[Any]]:
    """Fit at positions in frames of these numbers."""
    block = Block.of(calibration, numbers, pixels)
    columns = backend.fit(job, block, positions)
    columns = fit_crowds(backend, job, block, positions, columns)
    rows = rows_of(job, columns)
    check_counts(calibration, block, positions, columns, rows)
    if calibration.light is not None:
        calibration.light.correct(columns, numbers[positions.frames[rows]])
    offer_rois(calibration, block, positions.frames[rows], columns)
    return columns


def check_counts(
    calibration: PixelCalibration,
    block: Block,
    positions: Positions,
    columns: dict[str, NDArray[Any]],
    rows: Rows,
) -> None:
    """Check once for each run that the counts of some ROIs can be those of photons."""
    if calibration.counts_are_open:
        corners = corners_of(columns, block, positions.frames[rows])
        calibration.check_counts(block.pixels, corners)


def leading_indices(numbers: NDArray[np.int64], reader: FrameReader) -> NDArray[np.int64]:
    """Return the indices along the leading axes, shape (n, number of leading axes)."""
    if not reader.leading:
        return np.empty((len(numbers), 0), np.int64)
    if len(reader.leading) == 1:
        return numbers[:, np.newaxis]
    return np.column_stack(np.unravel_index(numbers, reader.leading))


def collected(
    columns: dict[str, NDArray[Any]],
    index: NDArray[np.int64],
    settings: Settings,
    planes: int | None = None,
) -> SpotFits:
    """Put the index columns before the fitted ones: axis_0, axis_1, …, and frame for the last.

    The axis of planes, if there is one, has its own column, too: they are fitted one by one.
    """
    add_nanometres(columns, settings)
    count = index.shape[1]
    if not count:
        return SpotFits(columns, (), settings)
    names = [*(f"axis_{i}" for i in range(count - 1)), "frame"]
    leading = {name: np.ascontiguousarray(index[:, i]) for i, name in enumerate(names)}
    if planes is not None:
        leading[PLANE] = leading[names[planes]]
    return SpotFits(leading | columns, names, settings)
