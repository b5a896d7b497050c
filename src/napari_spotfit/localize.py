"""The public functions: check the arguments, cut the work, call a backend, collect."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import Any, NamedTuple, Unpack

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .backends.base import Backend
from .backends.candidates import Candidates, joined
from .backends.choose import choose
from .frames import (
    FrameReader,
    FrameSelection,
    as_array,
    check_real,
    is_on_device,
    native_type,
    to_host,
    to_native,
)
from .pieces import Piece, cut, read_pieces, side_by_side
from .results import SpotFits
from .settings import ROI_MAX, ROI_MIN, Options, Settings, takes_settings

_DEFAULTS = Settings()
#: Cut-outs that are converted at a time where their type is not a backend's.
_CONVERTED = 1 << 16


class Part(NamedTuple):
    """The fits of some frames, and how many frames of how many are done."""

    fits: SpotFits
    done: int
    total: int
    #: What has done the work up to now, by name.
    device: str


@takes_settings("fit", "stop", "bounds", "camera", "run")
def fit_spots(
    spots: Any,
    *,
    start: Any = None,
    on_device: bool = False,
    settings: Settings | None = None,
    **options: Unpack[Options],
) -> SpotFits:
    """Fit spots that were cut out already.

    Parameters
    ----------
    spots : array, shape (n, Sy, Sx)
        Cut-outs of 4 to 32 pixels a side, of any real number type: NumPy, CuPy, or
        whatever has ``__cuda_array_interface__`` or DLPack.
    start : array, shape (n, 3), optional
        Start values y, x and σ in pixels of the cut-outs; NaN, and by default,
        they are made from the data.
    on_device : bool, default False
        Leave the results on the GPU, as CuPy arrays. Spots on the GPU are then fitted
        on CuPy's current stream, and the call does not wait for them.
    settings : Settings, optional
        All settings at once; ``options`` change single ones.

    Returns
    -------
    SpotFits
        One row per cut-out, in order; y and x in pixels, (0, 0) the centre of a
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
    settings = _settings(settings, options)
    array = as_array(spots)
    check_real(array.dtype, "spots")
    if array.ndim != 3:
        raise ValueError(f"spots must have the shape (n, rows, columns); got {array.shape}")
    roi_shape = (array.shape[1], array.shape[2])
    if not all(ROI_MIN <= size <= ROI_MAX for size in roi_shape):
        raise ValueError(
            f"spots must have {ROI_MIN} to {ROI_MAX} pixels a side; "
            f"got {roi_shape[0]}×{roi_shape[1]}"
        )
    own_start = _checked_start(start, len(array))
    if on_device:
        if settings.backend == "cpu":
            raise ValueError("on_device=True leaves results on a GPU; backend must not be 'cpu'")
        backend = choose(settings.changed(backend="cuda"))
        # Whatever has to be converted is, as a whole: the results are one array each.
        pixels = to_native(array)
        return SpotFits(
            backend.fit_rois(pixels, None, roi_shape, settings, own_start, on_device=True),
            settings=settings,
        )
    backend = choose(settings, None if is_on_device(array) else len(array))
    # Converted in pieces: ten million spots are not copied as a whole.
    as_it_is = array.flags.c_contiguous and native_type(array.dtype) == array.dtype
    step = max(len(array), 1) if as_it_is else _CONVERTED
    parts = []
    for first in range(0, max(len(array), 1), step):
        piece = array if as_it_is else to_native(array[first : first + step])
        begin = None if own_start is None else to_host(own_start[first : first + step])
        if is_on_device(piece):
            piece = backend.upload(piece)
        columns = backend.fit_rois(piece, None, roi_shape, settings, begin)
        parts.append(SpotFits(columns, settings=settings))
    return SpotFits.concatenate(parts)


@takes_settings("fit", "stop", "bounds", "camera", "run")
def fit_at(
    image: Any,
    centers: ArrayLike,
    roi_size: int | tuple[int, int] | None = None,
    *,
    settings: Settings | None = None,
    **options: Unpack[Options],
) -> SpotFits:
    """Fit the spots at given places of an image.

    Parameters
    ----------
    image : array, shape (…, Y, X)
        NumPy, CuPy, Dask or Zarr array of any real number type; only frames with spots
        are read, a few at a time.
    centers : array, shape (n, ndim)
        Where the spots are, in pixels along every axis of the image. The ROI lies
        around the nearest pixel, shifted inwards at the image's edges.
    roi_size : int or (int, int), optional
        Side of the ROI, or rows and columns; odd, 9 by default.
    settings : Settings, optional
        All settings at once; ``options`` change single ones.

    Returns
    -------
    SpotFits
        One row per centre, in order; places outside the image are INVALID.

    Raises
    ------
    TypeError, ValueError
        If the image, the centres or the settings are not of the kind above.

    Examples
    --------
    >>> from napari_spotfit import fit_at, simulate_movie
    >>> movie, truth = simulate_movie(3, shape=(64, 64), spots_per_frame=5, seed=1)
    >>> fits = fit_at(movie, truth[["frame", "y", "x"]])
    >>> len(fits) == len(truth)
    True
    """
    settings = _with_roi(settings, roi_size, options)
    reader = _checked_reader(image, settings)
    places = np.asarray(centers, float)
    if places.ndim != 2 or places.shape[1] != len(reader.shape):
        raise ValueError(
            f"centers must have the shape (n, {len(reader.shape)}), one column per axis of the "
            f"image; got {places.shape}"
        )
    backend = choose(settings, None if is_on_device(image) else len(places))
    numbers = _frame_numbers(places, reader)
    order = np.argsort(numbers, kind="stable")
    ordered = numbers[order]
    used = np.unique(ordered[ordered >= 0])

    def fit(piece: tuple[NDArray[np.int64], Any]) -> dict[str, NDArray[Any]]:
        block, pixels = piece
        low, high = np.searchsorted(ordered, [block[0], block[-1] + 1])
        rows = order[low:high]
        frame = np.searchsorted(block, numbers[rows])
        frames = backend.upload(pixels)
        return _fit_block(backend, frames, pixels.shape, frame, places[rows, -2:], settings)

    parts = [_outside(backend, int((numbers < 0).sum()), settings)]
    blocks = list(reader.blocks(used, 1, backend.block_bytes))
    pieces = ((block, reader.read(block)) for block in blocks)
    parts += side_by_side(fit, pieces, min(backend.workers, len(blocks)))
    columns = {name: _in_order([part[name] for part in parts], order) for name in parts[0]}
    index = places[:, :-2]
    index = np.where(np.isfinite(index), np.rint(index), -1).astype(np.int64)
    return _collected(columns, index, settings)


@takes_settings("detection", "run")
def detect_spots(
    image: Any,
    *,
    frames: FrameSelection = None,
    mask: Any = None,
    settings: Settings | None = None,
    **options: Unpack[Options],
) -> NDArray[np.float64]:
    """Find spots, without fitting them.

    Parameters
    ----------
    image : array, shape (…, Y, X)
        NumPy, CuPy, Dask or Zarr array of any real number type.
    frames : slice, int or indices, or a tuple of these, optional
        Which frames, one choice per leading axis; all by default.
    mask : array of bool, shape (Y, X) or (…, Y, X), optional
        Where to search.
    settings : Settings, optional
        All settings at once; ``options`` change single ones.

    Returns
    -------
    ndarray of float64, shape (n, ndim)
        Pixels of the spots, as napari's Points take them.

    Raises
    ------
    TypeError, ValueError
        If the image, the mask or the settings are not of the kind above.

    Examples
    --------
    >>> from napari_spotfit import detect_spots, simulate_movie
    >>> movie, truth = simulate_movie(3, shape=(64, 64), spots_per_frame=5, seed=1)
    >>> detect_spots(movie).shape[1]
    3
    """
    settings = _settings(settings, options)
    return find(image, settings, frames=frames, mask=mask)[0]


def find(
    image: Any, settings: Settings, *, frames: FrameSelection = None, mask: Any = None
) -> tuple[NDArray[np.float64], Candidates]:
    """Return what :func:`detect_spots` does, and the candidates with score and height."""
    reader = FrameReader(image)
    backend = choose(settings)

    def detect(piece: Piece) -> Candidates:
        found: Candidates = backend.detect(backend.upload(piece.pixels), settings, piece.mask)
        return found._replace(frame=piece.block[found.frame])

    blocks = cut(reader, frames, backend)
    pieces = read_pieces(reader, blocks, mask)
    found = joined(list(side_by_side(detect, pieces, min(backend.workers, len(blocks)))))
    index = _leading_indices(found.frame, reader)
    return np.column_stack([index, found.y, found.x]).astype(float), found


@takes_settings("detection", "fit", "stop", "bounds", "camera", "run")
def localize(
    image: Any,
    roi_size: int | tuple[int, int] | None = None,
    *,
    frames: FrameSelection = None,
    mask: Any = None,
    progress: Callable[[int, int], object] | None = None,
    settings: Settings | None = None,
    **options: Unpack[Options],
) -> SpotFits:
    """Find the spots of an image and fit them.

    Parameters
    ----------
    image : array, shape (…, Y, X)
        NumPy, CuPy, Dask or Zarr array of any real number type: an image, a time series,
        a z-stack or more axes. A few frames are in memory at a time.
    roi_size : int or (int, int), optional
        Side of the ROI, or rows and columns; odd, 9 by default.
    frames : slice, int or indices, or a tuple of these, optional
        Which frames, one choice per leading axis; all by default. The results'
        indices are those of the whole image.
    mask : array of bool, shape (Y, X) or (…, Y, X), optional
        Where to search.
    progress : callable, optional
        Called with the number of frames that are done and their total.
    settings : Settings, optional
        All settings at once; ``options`` change single ones.

    Returns
    -------
    SpotFits
        The spots by frame, then row, then column.

    Raises
    ------
    TypeError, ValueError
        If the image, the mask or the settings are not of the kind above.

    Examples
    --------
    >>> from napari_spotfit import localize, simulate_movie
    >>> movie, truth = simulate_movie(3, shape=(64, 64), spots_per_frame=5, seed=1)
    >>> fits = localize(movie, roi_size=9)
    >>> fits.points().shape[1]
    3
    """
    settings = _with_roi(settings, roi_size, options)
    parts = []
    for part in localize_parts(image, settings, frames=frames, mask=mask):
        parts.append(part.fits)
        if progress is not None:
            progress(part.done, part.total)
    return SpotFits.concatenate(parts)


def localize_parts(
    image: Any, settings: Settings, *, frames: FrameSelection = None, mask: Any = None
) -> Iterator[Part]:
    """Do what :func:`localize` does, a few frames at a time.

    Joined, the parts are its result; there is at least one. Whoever stops iterating
    cancels the rest.

    Yields
    ------
    Part
        The fits of some frames, and how many frames of how many are done.
    """
    reader = _checked_reader(image, settings)
    backend = choose(settings)
    blocks = cut(reader, frames, backend)
    total = sum(len(block) for block in blocks)

    def find_and_fit(piece: Piece) -> tuple[SpotFits, int]:
        on_backend = backend.upload(piece.pixels)
        found = backend.detect(on_backend, settings, piece.mask)
        places = np.column_stack([found.y, found.x]).astype(float)
        shape = piece.pixels.shape
        columns = _fit_block(backend, on_backend, shape, found.frame, places, settings)
        columns["score"] = found.score
        index = _leading_indices(piece.block[found.frame], reader)
        return _collected(columns, index, settings), len(piece.block)

    pieces = read_pieces(reader, blocks, mask)
    done = 0
    for fits, count in side_by_side(find_and_fit, pieces, min(backend.workers, len(blocks))):
        done += count
        yield Part(fits, done, total, backend.ran_on())


def _settings(settings: Settings | None, options: Mapping[str, Any]) -> Settings:
    settings = settings or _DEFAULTS
    try:
        return _changed(settings, **options)
    except TypeError:  # an option that cannot be hashed, or that is wrong
        return settings.changed(**options)


@lru_cache(maxsize=256, typed=True)
def _changed(settings: Settings, **options: Any) -> Settings:
    """Return changed settings; the same again and again for calls in a closed loop."""
    return settings.changed(**options)


def _with_roi(
    settings: Settings | None, roi_size: int | tuple[int, int] | None, options: Mapping[str, Any]
) -> Settings:
    settings = _settings(settings, options)
    return settings if roi_size is None else settings.changed(roi_size=roi_size)


def _checked_reader(image: Any, settings: Settings) -> FrameReader:
    """Return the image's frames, or raise a ValueError if a ROI does not fit into one."""
    reader = FrameReader(image)
    rows, columns = settings.roi_shape
    if reader.frame_shape[0] < rows or reader.frame_shape[1] < columns:
        raise ValueError(
            f"the image ({reader.frame_shape[0]}×{reader.frame_shape[1]} px) is smaller than the "
            f"ROI ({rows}×{columns} px); choose a smaller roi_size"
        )
    return reader


def _checked_start(start: Any, count: int) -> Any:
    if start is None:
        return None
    values = as_array(start).astype(np.float32, order="C", copy=False)
    if values.shape != (count, 3):
        raise ValueError(
            f"start must have the shape ({count}, 3): y, x and sigma of each spot; "
            f"got {values.shape}"
        )
    return values


def _fit_block(
    backend: Backend,
    frames: Any,
    shape: tuple[int, ...],
    frame: NDArray[Any],
    places: NDArray[np.float64],
    settings: Settings,
) -> dict[str, NDArray[Any]]:
    """Fit the ROIs around places (y, x) in uploaded frames; return columns in image pixels."""
    half = np.array(settings.roi_shape) // 2
    last = np.array(shape[1:]) - settings.roi_shape
    corners = np.empty((len(places), 3), np.int64)
    corners[:, 0] = frame
    corners[:, 1:] = np.clip(np.rint(places).astype(np.int64) - half, 0, last)
    start = np.full((len(places), 3), np.nan, np.float32)
    start[:, :2] = places - corners[:, 1:]
    columns = backend.fit_rois(frames, corners, settings.roi_shape, settings, start)
    columns["y"] += corners[:, 1]
    columns["x"] += corners[:, 2]
    return _with_corners(columns, corners)


def _frame_numbers(places: NDArray[np.float64], reader: FrameReader) -> NDArray[np.int64]:
    """Return the frame number of each place, -1 for places outside the image."""
    size = np.array(reader.shape)
    with np.errstate(invalid="ignore"):
        inside = np.all((places >= -0.5) & (places <= size - 0.5), axis=1)
    numbers = np.full(len(places), -1, np.int64)
    if reader.leading:
        index = np.minimum(np.rint(places[inside, :-2]).astype(np.int64), size[:-2] - 1)
        numbers[inside] = np.ravel_multi_index(tuple(index.T), reader.leading)
    else:
        numbers[inside] = 0
    return numbers


def _outside(backend: Backend, count: int, settings: Settings) -> dict[str, NDArray[Any]]:
    """Return the columns of fits outside the image, which are INVALID."""
    corners = np.full((count, 3), -1, np.int64)
    nothing = np.zeros((1, *settings.roi_shape), np.float32)
    return _with_corners(backend.fit_rois(nothing, corners, settings.roi_shape, settings), corners)


def _with_corners(
    columns: dict[str, NDArray[Any]], corners: NDArray[np.int64]
) -> dict[str, NDArray[Any]]:
    """Add where each ROI lies, so that what was fitted can be looked at again."""
    columns["roi_y"], columns["roi_x"] = corners[:, 1:].T.astype(np.int32)
    return columns


def _in_order(parts: list[NDArray[Any]], order: NDArray[np.int64]) -> NDArray[Any]:
    """Join parts whose rows are in the given order, and undo the order."""
    joined = np.concatenate(parts)
    result = np.empty_like(joined)
    result[order] = joined
    return result


def _leading_indices(numbers: NDArray[np.int64], reader: FrameReader) -> NDArray[np.int64]:
    """Return the indices along the leading axes, shape (n, number of leading axes)."""
    if not reader.leading:
        return np.empty((len(numbers), 0), np.int64)
    return np.column_stack(np.unravel_index(numbers, reader.leading))


def _collected(
    columns: dict[str, NDArray[Any]], index: NDArray[np.int64], settings: Settings
) -> SpotFits:
    """Put the index columns before the fitted ones: frame, or axis_0, axis_1, … and frame."""
    count = index.shape[1]
    names = ["frame"] if count == 1 else [f"axis_{i}" for i in range(count)]
    leading = {name: np.ascontiguousarray(index[:, i]) for i, name in enumerate(names)}
    if count > 1:
        leading["frame"] = leading[names[-1]]
    return SpotFits(leading | columns, names, settings)
