"""The public functions: check the arguments, cut the work, call a backend, collect."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, Unpack

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .backends.candidates import Candidates, joined
from .backends.choose import choose
from .camera import Camera
from .frames import FrameReader, FrameSelection, is_on_device
from .options import merged, takes_settings, with_roi
from .pieces import Piece, cut, read_pieces, side_by_side
from .pixelmaps import PixelMaps, maps_of_detection
from .results import SpotFits
from .rois import (
    collected,
    fit_block,
    frame_numbers,
    in_order,
    leading_indices,
    outside,
    upload,
    worth,
)
from .settings import Options, Settings


class Part(NamedTuple):
    """The fits of some frames, and how many frames of how many are done."""

    fits: SpotFits
    done: int
    total: int
    #: What has done the work up to now, by name.
    device: str


@takes_settings("fit", "stop", "bounds", "camera", "run")
def fit_at(
    image: Any,
    centers: ArrayLike,
    roi_size: int | tuple[int, int] | None = None,
    *,
    weights: Any = None,
    bad_pixels: Any = None,
    camera: Camera | None = None,
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
    weights : array, shape (Y, X) or (…, Y, X), optional
        Weight of each pixel for ``estimator="wlse"``, 0 or above.
    bad_pixels : array of bool, shape (Y, X) or (…, Y, X), optional
        True where a pixel is not used.
    camera : Camera, optional
        Offset, gain and read-out variance, of all pixels or of each.
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
    settings = with_roi(settings, roi_size, options)
    reader = _checked_reader(image, settings)
    places = np.asarray(centers, float)
    if places.ndim != 2 or places.shape[1] != len(reader.shape):
        raise ValueError(
            f"centers must have the shape (n, {len(reader.shape)}), one column per axis of the "
            f"image; got {places.shape}"
        )
    maps = PixelMaps(reader.shape, settings, weights=weights, bad_pixels=bad_pixels, camera=camera)
    backend = choose(
        settings, None if is_on_device(image) else worth(len(places), settings.roi_shape)
    )
    numbers = frame_numbers(places, reader)
    order = np.argsort(numbers, kind="stable")
    ordered = numbers[order]
    used = np.unique(ordered[ordered >= 0])

    def fit(piece: tuple[NDArray[np.int64], Any]) -> dict[str, NDArray[Any]]:
        block, pixels = piece
        low, high = np.searchsorted(ordered, [block[0], block[-1] + 1])
        rows = order[low:high]
        frame = np.searchsorted(block, numbers[rows])
        there = upload(backend, maps, block, pixels)
        return fit_block(backend, there, maps, frame, places[rows, -2:])

    parts = [outside(backend, int((numbers < 0).sum()), maps.fitted)]
    blocks = list(reader.blocks(used, 1, backend.block_bytes))
    pieces = ((block, reader.read(block)) for block in blocks)
    parts += side_by_side(fit, pieces, min(backend.workers, len(blocks)))
    columns = {name: in_order([part[name] for part in parts], order) for name in parts[0]}
    index = places[:, :-2]
    index = np.where(np.isfinite(index), np.rint(index), -1).astype(np.int64)
    return collected(columns, index, maps.settings)


@takes_settings("detection", "run")
def detect_spots(
    image: Any,
    *,
    frames: FrameSelection = None,
    mask: Any = None,
    bad_pixels: Any = None,
    camera: Camera | None = None,
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
    bad_pixels : array of bool, shape (Y, X) or (…, Y, X), optional
        True where a pixel is not used, and where no spots are found.
    camera : Camera, optional
        Maps of offset and gain, for which the frames are corrected.
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
    settings = merged(settings, options)
    return find(image, settings, frames=frames, mask=mask, bad_pixels=bad_pixels, camera=camera)[0]


def find(
    image: Any,
    settings: Settings,
    *,
    frames: FrameSelection = None,
    mask: Any = None,
    bad_pixels: Any = None,
    camera: Camera | None = None,
) -> tuple[NDArray[np.float64], Candidates]:
    """Return what :func:`detect_spots` does, and the candidates with score and height."""
    reader = FrameReader(image)
    maps = maps_of_detection(reader.shape, settings, bad_pixels, camera)
    backend = choose(settings)

    def detect(piece: Piece) -> Candidates:
        pixels = maps.corrected(piece.block, piece.pixels, mark_bad=True)
        found: Candidates = backend.detect(backend.upload(pixels), settings, piece.mask)
        return found._replace(frame=piece.block[found.frame])

    blocks = cut(reader, frames, backend)
    pieces = read_pieces(reader, blocks, mask)
    found = joined(list(side_by_side(detect, pieces, min(backend.workers, len(blocks)))))
    index = leading_indices(found.frame, reader)
    return np.column_stack([index, found.y, found.x]).astype(float), found


@takes_settings("detection", "fit", "stop", "bounds", "camera", "run")
def localize(
    image: Any,
    roi_size: int | tuple[int, int] | None = None,
    *,
    frames: FrameSelection = None,
    mask: Any = None,
    weights: Any = None,
    bad_pixels: Any = None,
    camera: Camera | None = None,
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
    weights : array, shape (Y, X) or (…, Y, X), optional
        Weight of each pixel for ``estimator="wlse"``, 0 or above.
    bad_pixels : array of bool, shape (Y, X) or (…, Y, X), optional
        True where a pixel is not used, and where no spots are found.
    camera : Camera, optional
        Offset, gain and read-out variance, of all pixels or of each.
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
    settings = with_roi(settings, roi_size, options)
    parts = []
    for part in localize_parts(
        image, settings, frames=frames, mask=mask, weights=weights, bad_pixels=bad_pixels,
        camera=camera,
    ):  # fmt: skip
        parts.append(part.fits)
        if progress is not None:
            progress(part.done, part.total)
    return SpotFits.concatenate(parts)


def localize_parts(
    image: Any,
    settings: Settings,
    *,
    frames: FrameSelection = None,
    mask: Any = None,
    weights: Any = None,
    bad_pixels: Any = None,
    camera: Camera | None = None,
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
    maps = PixelMaps(reader.shape, settings, weights=weights, bad_pixels=bad_pixels, camera=camera)
    backend = choose(settings)
    blocks = cut(reader, frames, backend)
    total = sum(len(block) for block in blocks)

    def find_and_fit(piece: Piece) -> tuple[SpotFits, int]:
        block = upload(backend, maps, piece.block, piece.pixels, mark_bad=True)
        found = backend.detect(block.frames, settings, piece.mask)
        places = np.column_stack([found.y, found.x]).astype(float)
        columns = fit_block(backend, block, maps, found.frame, places)
        columns["score"] = found.score
        index = leading_indices(piece.block[found.frame], reader)
        return collected(columns, index, maps.settings), len(piece.block)

    pieces = read_pieces(reader, blocks, mask)
    done = 0
    for fits, count in side_by_side(find_and_fit, pieces, min(backend.workers, len(blocks))):
        done += count
        yield Part(fits, done, total, backend.ran_on())


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
