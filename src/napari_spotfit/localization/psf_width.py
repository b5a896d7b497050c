"""The width of the PSF, learnt from the spots of an image."""

from __future__ import annotations

from typing import Any, NamedTuple, Unpack

import numpy as np
from numpy.typing import NDArray

from ..images.camera import Camera
from ..images.frames import FrameReader, FrameSelection
from ..results.flags import NOT_GOOD, Flag, reasons_in_words
from ..settings.options import merged, takes_settings
from ..settings.settings import Options, Settings
from ..settings.validation import ROI_MAX
from .detect_spots import find
from .fit_at import fit_at

#: Spots that tell the PSF's width: so many of the brightest, and no fewer than that.
_TELLING, _TOO_FEW = 100, 3
#: Frames of a movie in which they are searched, unless frames are given.
_FRAMES = 20
#: Side of the ROI in which the width is fitted, in σ.
_ROI_SIGMAS = 8.0
#: What speaks against a fit whose width is asked for: all but the width itself.
_DOUBTFUL = NOT_GOOD & ~(Flag.WIDE | Flag.NARROW)
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
    settings = merged(settings, options, estimate_sigma)
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
        doubtful = fits.flags & int(_DOUBTFUL)
        sigma = fits.sigma[doubtful == 0].astype(float)
        if len(sigma) >= _TOO_FEW:
            middle = float(np.median(sigma))
            return PsfWidth(middle, float(1.4826 * np.median(abs(sigma - middle))), len(sigma))
        why = f"; of their fits, {reasons_in_words(doubtful)}"
    else:
        why = ""
    raise ValueError(
        f"the PSF's width needs {_TOO_FEW} spots that stand alone, {roi} px from the next; "
        f"found {len(chosen)}{why}. Allow more false spots, choose other frames, or set σ by hand"
    )


def _nearest(frame: NDArray[np.int64], places: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the distance of each place from the next one in its frame."""
    if len(places) < 2:
        return np.full(len(places), np.inf)
    from scipy.spatial import KDTree  # here, as SciPy takes its time to import

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
