"""Detect the spots of an image without fitting them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal, Unpack

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..engine.backend import Block
from ..engine.bands import WIDTHS, kernel_radius
from ..engine.candidates import Candidates, joined, nothing
from ..engine.select import select_backend
from ..estimation.detection_noise import for_detection
from ..estimation.image_estimates import estimated, frames_of_estimates
from ..estimation.image_noise import warn_of_noise
from ..images.arrays import is_on_device
from ..images.camera import Camera, PerPixel
from ..images.channels import Maps, channels_of
from ..images.frames import FrameReader, FrameSelection, HeldFrame
from ..images.pixel_calibration import detection_calibration
from ..results.fit_parts import places_with_channel
from ..settings.options import Options, in_dimensions, merged, takes_settings
from ..settings.settings import Settings
from .chunks import Chunk, cut, gpu_pays_off, read_chunks, side_by_side
from .fit_at import leading_indices
from .tiles import Tiled, spots_in_tiles, works_in_tiles

#: Bytes of a block of frames that are on a GPU already: it may be large, as none is uploaded while
#: another one is searched.
_THERE_BYTES = 256 << 20


@takes_settings("detection", "run", also=("model",), volumes=True)
def detect_spots(
    image: Any,
    *,
    dimensions: Literal[2, 3] | None = None,
    frames: FrameSelection = None,
    channel: int | str | None = None,
    mask: Any = None,
    bad_pixels: Any = None,
    camera: Camera | None = None,
    settings: Settings | None = None,
    **options: Unpack[Options],
) -> NDArray[np.float64]:
    """Detect spots, without fitting them.

    Parameters
    ----------
    image : array, shape (…, Y, X) or (…, Z, Y, X), or path
        NumPy, CuPy, Dask or Zarr array of any real number type, or an image file, see
        :func:`~napari_spotfit.open_image`.
    dimensions : int, optional
        3 for spots in volumes, which have a width along z: each is found once, and not in each of
        its planes. By default those of the model.
    frames : slice, int or indices, or a tuple of these, optional
        Which frames, or volumes, one choice per leading axis; all by default.
    channel : int or str, optional
        Number or name of the channel, where the image has an axis c of several: channels are no
        frames, and the other axes are those of the results. "all" takes each by itself, and the
        results have the axis of the channels.
    mask : array of bool, shape of a frame or of the image, optional
        Where to search.
    bad_pixels : array of bool, shape of a frame or of the image, optional
        True where a pixel is not used, and where no spots are found.
    camera : Camera, optional
        Maps of offset and gain, for which the frames are corrected.
    settings : Settings, optional
        All settings at once; ``options`` change single ones.

    Returns
    -------
    ndarray of float64, shape (n, ndim)
        Pixels of the spots, as napari's Points take them; without the axis of the channels where
        one is chosen.

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
    settings = in_dimensions(merged(settings, options, detect_spots), dimensions, options)
    parts = []
    for one in channels_of(image, channel, Maps(mask, None, bad_pixels, camera)):
        known = {"mask": one.maps.mask, "bad_pixels": one.maps.bad_pixels}
        places = find(one.image, settings, frames=frames, camera=one.maps.camera, **known)[0]
        parts.append(places_with_channel(places, one))
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


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
    reader = FrameReader(image, spatial=settings.dimensions)
    calibration = detection_calibration(reader.shape, settings, bad_pixels, camera)
    with frames_of_estimates(reader, settings):
        calibration = estimated(reader, calibration)
        warn_of_noise(reader, calibration, settings)
    settings = calibration.settings
    detection, variances = for_detection(calibration)
    backend = select_backend(settings, gpu_pays_off(image, reader, frames))

    if works_in_tiles(reader, backend):
        masks = PerPixel.of_mask(mask, reader)
        tiled = Tiled(backend, reader, calibration, detection, variances, masks)
        numbers = reader.select(frames).tolist()
        none = nothing(settings.dimensions)
        found = joined([none, *(spots_in_tiles(tiled, number) for number in numbers)])
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
        found = found.rows(order)
    return _with_places(found, reader)


def _with_places(found: Candidates, reader: FrameReader) -> tuple[NDArray[np.float64], Candidates]:
    index = leading_indices(found.frame, reader)
    return np.column_stack([index, found.places()]).astype(float), found


def peak_near(
    held: HeldFrame,
    place: ArrayLike,
    settings: Settings,
    *,
    bad_pixels: Any = None,
    camera: Camera | None = None,
) -> NDArray[np.float64]:
    """Return the brightest detected spot within half a ROI of a position.

    A fit there is the fit of :func:`~napari_spotfit.localize`. Where it finds none, it is the
    brightest maximum of the filtered frame.

    Parameters
    ----------
    held : HeldFrame
        The frame.
    place : array, shape (axes,)
        The position in the frame, in pixels.
    settings : Settings
        Those of the detection, and the ROI's size.
    bad_pixels, camera : optional
        As :func:`~napari_spotfit.detect_spots` takes them.

    Returns
    -------
    ndarray of float64, shape (axes,)
        Place of the pixel; the position itself where there is no maximum at all.
    """
    place = np.asarray(place, float)
    calibration = detection_calibration(held.shape, settings, bad_pixels, camera)
    calibration = estimated(FrameReader(held, spatial=settings.dimensions), calibration)
    settings = calibration.settings
    reach = np.array(settings.roi_shape) / 2
    widths = [settings.known_sigma] * len(reach)
    if len(reach) > 2:
        widths[0] = settings.known_sigma_z
    margin = [2 * kernel_radius(WIDTHS[-1] * width) + 2 for width in widths]
    distance = np.array(widths) / settings.known_sigma * settings.min_distance
    size = np.ceil(reach + margin + np.ceil(distance)).astype(int)
    size = np.minimum(2 * size + 1, held.pixels.shape)
    corner = np.clip(np.rint(place).astype(int) - size // 2, 0, held.pixels.shape - size)
    part = tuple(map(slice, corner, corner + size))
    settings = settings.changed(backend="cpu", threads=1)
    if settings.noise is not None:  # the frame is corrected already
        settings = settings.changed(noise=replace(settings.noise, planes=""))
    frame = calibration.corrected(np.array([held.number]), held.pixels[np.newaxis], mark_bad=True)
    for own in (settings, settings.changed(threshold=0.0)):
        places, found = find(frame[0][part], own)
        distance = (places + corner - place) / reach
        near = np.flatnonzero((distance**2).sum(axis=1) <= 1)
        if len(near):
            brightest: NDArray[np.float64] = places[near[np.argmax(found.height[near])]] + corner
            return brightest
    return place


#: False spots in 10⁶ pixels that stand for all maxima.
_ALL = 20_000.0


def peak_heights(image: Any, settings: Settings, **where: Any) -> NDArray[np.float32]:
    """Return the scores or heights of maxima, in the unit of the threshold.

    Parameters
    ----------
    image : array, shape (…, Y, X)
        As :func:`~napari_spotfit.detect_spots` takes it.
    settings : Settings
        Those of the detection; with a threshold heights are asked for, whatever it is.
    **where
        Its ``frames``, ``mask``, ``bad_pixels`` and ``camera``.

    Returns
    -------
    ndarray of float32, shape (n,)
        Scores, those of noise among them; with a threshold heights, in counts.
    """
    if settings.threshold is None:
        return find(image, settings.changed(false_spots=_ALL), **where)[1].score
    return find(image, settings.changed(threshold=0.0), **where)[1].height
