"""What an image shows before it is fitted: its maxima, the spot at a place, the spots' width."""

from __future__ import annotations

import math
from typing import Any, NamedTuple, Unpack

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.spatial import KDTree

from .backends.band import RATIO, kernel_radius
from .camera import Camera
from .frames import FrameReader, FrameSelection, HeldFrame
from .localize import find, fit_at
from .options import takes_settings
from .pixelmaps import maps_of_detection
from .settings import ROI_MAX, Options, Settings

#: Spots that tell the PSF's width: so many of the brightest, and no fewer than that.
_TELLING, _TOO_FEW = 100, 3
#: Frames of a movie in which they are searched, unless frames are given.
_FRAMES = 20
#: Side of the ROI in which the width is fitted, in σ.
_ROI_SIGMAS = 8.0
#: The width is searched again with what was found until it changes by less than this
#: fraction, at most so many times.
_SETTLED, _ROUNDS = 0.05, 5


class PsfWidth(NamedTuple):
    """The width of an image's spots."""

    #: Median σ in pixels, and the standard deviation of a single spot's σ around it.
    sigma: float
    scatter: float
    #: How many spots tell.
    spots: int


def peak_near(
    held: HeldFrame,
    place: ArrayLike,
    settings: Settings,
    *,
    bad_pixels: Any = None,
    camera: Camera | None = None,
) -> NDArray[np.float64]:
    """Return the brightest maximum of the filtered frame within half a ROI of a place.

    It is the pixel on which the detection finds the spot, so that a fit there is the fit
    of :func:`~napari_spotfit.localize`.

    Parameters
    ----------
    held : HeldFrame
        The frame.
    place : array, shape (2,)
        y and x in pixels.
    settings : Settings
        ``sigma``, ``min_distance`` and the ROI's size count; the threshold does not.
    bad_pixels, camera : optional
        As :func:`~napari_spotfit.detect_spots` takes them.

    Returns
    -------
    ndarray of float64, shape (2,)
        y and x of the pixel; the place itself where there is no maximum.
    """
    place = np.asarray(place, float)
    reach = np.array(settings.roi_shape) / 2
    margin = kernel_radius(RATIO * settings.sigma) + math.ceil(settings.min_distance) + 2
    size = np.minimum(2 * np.ceil(reach + margin).astype(int) + 1, held.pixels.shape)
    corner = np.clip(np.rint(place).astype(int) - size // 2, 0, held.pixels.shape - size)
    rows, columns = (slice(first, first + n) for first, n in zip(corner, size, strict=True))
    every = settings.changed(threshold=0.0, backend="cpu", threads=1)
    maps = maps_of_detection(held.shape, settings, bad_pixels, camera)
    frame = maps.corrected(np.array([held.number]), held.pixels[np.newaxis], mark_bad=True)[0]
    places, found = find(frame[rows, columns], every)
    distance = (places + corner - place) / reach
    near = np.flatnonzero((distance**2).sum(axis=1) <= 1)
    return places[near[np.argmax(found.height[near])]] + corner if len(near) else place


def peak_heights(image: Any, settings: Settings, **where: Any) -> NDArray[np.float32]:
    """Return the height of every maximum, in the unit of the threshold.

    Parameters
    ----------
    image : array, shape (…, Y, X)
        As :func:`~napari_spotfit.detect_spots` takes it.
    settings : Settings
        Those of the detection; the threshold itself does not count, its unit does.
    **where
        Its ``frames``, ``mask``, ``bad_pixels`` and ``camera``.

    Returns
    -------
    ndarray of float32, shape (n,)
        Multiples of the noise, or counts. Those above the threshold are the spots
        that are detected with it.
    """
    _, found = find(image, settings.changed(threshold=0.0), **where)
    return found.score if settings.threshold_unit == "noise" else found.height


@takes_settings("detection", "camera", "run")
def estimate_sigma(
    image: Any,
    *,
    frames: FrameSelection = None,
    mask: Any = None,
    bad_pixels: Any = None,
    camera: Camera | None = None,
    settings: Settings | None = None,
    **options: Unpack[Options],
) -> PsfWidth:
    """Fit the brightest isolated spots to learn the PSF's width.

    Parameters
    ----------
    image : array, shape (…, Y, X)
        NumPy, CuPy, Dask or Zarr array of any real number type.
    frames : slice, int or indices, or a tuple of these, optional
        Which frames; by default up to 20 of them, evenly spread.
    mask : array of bool, shape (Y, X) or (…, Y, X), optional
        Where to search.
    bad_pixels : array of bool, shape (Y, X) or (…, Y, X), optional
        True where a pixel is not used, and where no spots are found.
    camera : Camera, optional
        Offset and gain, of all pixels or of each.
    settings : Settings, optional
        All settings at once; ``options`` change single ones. ``sigma`` is the first guess.

    Returns
    -------
    PsfWidth
        The median ``sigma`` and its ``scatter`` from spot to spot in pixels, and the
        number of ``spots``.

    Raises
    ------
    TypeError, ValueError
        If the image, the mask or the settings are not of the kind above, or if fewer
        than three isolated spots are found.

    Examples
    --------
    >>> from napari_spotfit import estimate_sigma, simulate_movie
    >>> movie, truth = simulate_movie(5, sigma=1.8, photons=5000, spots_per_frame=10, seed=1)
    >>> abs(estimate_sigma(movie).sigma - 1.8) < 0.05
    True
    """
    settings = (settings or Settings()).changed(**options)
    # Whatever the spots are fitted with later.
    settings = settings.changed(
        model="gaussian", pixel="sampled", estimator="lse", fixed={}, bounds={}
    )
    if frames is None:
        frames = _spread(FrameReader(image).leading)
    known = {"bad_pixels": bad_pixels, "camera": camera}
    for _ in range(_ROUNDS):
        width = _width(image, settings, known, frames=frames, mask=mask)
        settled = abs(width.sigma / settings.sigma - 1) < _SETTLED
        settings = settings.changed(sigma=min(max(width.sigma, 0.5), 10.0))
        if settled:
            break
    return width


def _width(image: Any, settings: Settings, known: dict[str, Any], **where: Any) -> PsfWidth:
    """Return the width of the spots that are found with the settings' own width.

    What is known of the pixels counts for detection and fit, where to search for the first.
    """
    side = min(2 * round(_ROI_SIGMAS * settings.sigma / 2) + 1, ROI_MAX - 1)
    roi = max(side, 7)
    places, found = find(image, settings, **where, **known)
    shape = FrameReader(image).frame_shape
    inside = np.all((places[:, -2:] >= roi // 2) & (places[:, -2:] < np.array(shape) - roi // 2), 1)
    alone = np.flatnonzero(inside & (_nearest(found.frame, places[:, -2:]) > roi))
    chosen = alone[np.argsort(-found.score[alone], kind="stable")[:_TELLING]]
    if len(chosen) >= _TOO_FEW:
        fits = fit_at(image, places[chosen], settings=settings.changed(roi_size=roi), **known)
        sigma = fits.sigma[fits.converged].astype(float)
        if len(sigma) >= _TOO_FEW:
            middle = float(np.median(sigma))
            return PsfWidth(middle, float(1.4826 * np.median(abs(sigma - middle))), len(sigma))
    raise ValueError(
        f"the PSF's width needs {_TOO_FEW} spots that stand alone, {roi} px from the next; "
        f"found {len(chosen)}. Lower the threshold, choose other frames, or set σ by hand"
    )


def _nearest(frame: NDArray[np.int64], places: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the distance of each place from the next one in its frame."""
    if len(places) < 2:
        return np.full(len(places), np.inf)
    far = 2.0 * (places.max() + 1)
    distance, _ = KDTree(np.column_stack([frame * far, places])).query(
        np.column_stack([frame * far, places]), k=2
    )
    return np.where(distance[:, 1] < far, distance[:, 1], np.inf)


def _spread(leading: tuple[int, ...]) -> FrameSelection:
    """Return some frames, evenly spread along the longest of the leading axes."""
    if not leading:
        return None
    longest = int(np.argmax(leading))
    some = np.unique(np.linspace(0, leading[longest] - 1, _FRAMES).round().astype(int))
    return tuple(
        [int(i) for i in some] if axis == longest else length // 2
        for axis, length in enumerate(leading)
    )
