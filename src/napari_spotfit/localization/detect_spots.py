"""The spots of an image, found without fitting them."""

from __future__ import annotations

from typing import Any, Unpack

import numpy as np
from numpy.typing import NDArray

from ..engine.block import Block
from ..engine.detection.candidates import Candidates, joined, nothing
from ..engine.select import select_backend
from ..estimation.estimates import estimated, for_detection, frames_that_tell
from ..estimation.noise_doubts import warn_of_noise
from ..images.arrays import is_on_device
from ..images.camera import Camera, PerPixel
from ..images.frames import FrameReader, FrameSelection
from ..images.pixel_calibration import detection_calibration
from ..settings.options import Options, merged, takes_settings
from ..settings.settings import Settings
from .chunks import Chunk, cut, read_chunks, side_by_side, worth_a_gpu
from .rois import leading_indices
from .tiles import Tiled, spots_in_tiles, works_in_tiles

#: Frames that are on a GPU already are searched in blocks of so many bytes: none has to get there
#: while another one is searched.
_THERE_BYTES = 256 << 20


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
    image : array, shape (…, Y, X), or path
        NumPy, CuPy, Dask or Zarr array of any real number type, or an image file, see
        :func:`~napari_spotfit.open_image`.
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
    settings = merged(settings, options, detect_spots)
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
    calibration = detection_calibration(reader.shape, settings, bad_pixels, camera)
    with frames_that_tell(reader, settings):
        calibration = estimated(reader, calibration)
        warn_of_noise(reader, calibration, settings)
    settings = calibration.settings
    detection, variances = for_detection(calibration)
    backend = select_backend(settings, worth_a_gpu(image, reader, frames))

    if works_in_tiles(reader, backend):
        masks = PerPixel.of_mask(mask, reader.shape)
        tiled = Tiled(backend, reader, calibration, detection, variances, masks)
        numbers = reader.select(frames).tolist()
        found = joined([nothing(), *(spots_in_tiles(tiled, number) for number in numbers)])
        return _with_places(found, reader)

    def detect(chunk: Chunk) -> Candidates:
        pixels = calibration.corrected(chunk.block, chunk.pixels, mark_bad=True)
        block = Block(pixels, pixels, mask=chunk.mask, noise_map=variances)
        found = backend.detect(block, detection)
        return found._replace(frame=chunk.block[found.frame])

    load, size = backend.load, _THERE_BYTES if is_on_device(image) else 0
    blocks = cut(reader, reader.select(frames), load, size)
    chunks = read_chunks(reader, [blocks], mask)
    found = joined(list(side_by_side(detect, chunks, min(load.workers, blocks.chunks))))
    if (np.diff(found.frame) < 0).any():  # chunks had frames that do not follow each other
        order = np.argsort(found.frame, kind="stable")
        found = Candidates._make(column[order] for column in found)
    return _with_places(found, reader)


def _with_places(found: Candidates, reader: FrameReader) -> tuple[NDArray[np.float64], Candidates]:
    index = leading_indices(found.frame, reader)
    return np.column_stack([index, found.y, found.x]).astype(float), found
