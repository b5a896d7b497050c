"""Detect and fit the spots of an image: a few frames at a time, or all at once."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from fractions import Fraction
from itertools import chain
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Unpack, overload

import numpy as np
from numpy.typing import NDArray

from ..caller import warn_caller
from ..estimation.camera_check import CameraCheck, warn_of_camera
from ..estimation.image_estimates import warn_of_gain
from ..images.arrays import FRAMES, fitted_by_plane, plane_axis
from ..images.axes import axis_names
from ..images.camera import Camera
from ..images.channels import Channel, Chosen, Maps, channels_of
from ..images.files.opening import opened
from ..images.frames import FrameSelection
from ..results.fit_parts import joined_channels, joined_parts, resume_in, with_channel
from ..results.spot_fits import SpotFits
from ..settings.options import Options, takes_settings, with_roi
from ..settings.settings import Settings
from .orientation_check import warn_of_orientation
from .plan import Fitted, check_progress, fitted, planned

if TYPE_CHECKING:
    import dask.dataframe as dd

#: From which share of bad pixels on their map is likely to be one of good pixels.
_MOST_BAD = 0.9
#: Bad pixels lie between others if they have this share, and if nearly all others have at least
#: this many bad ones among their eight neighbours.
_MANY_BAD, _BESIDE, _NEARLY_ALL = 0.4, 4, 0.9


class Part(NamedTuple):
    """The fits of some frames, or of a part of one, and how many frames of how many are done."""

    fits: SpotFits
    done: int
    total: int
    #: What has done the work up to now, by name.
    device: str
    #: The share of all work that is done.
    share: float


@overload
def localize(
    image: Any,
    roi_size: int | tuple[int, ...] | None = None,
    *,
    frames: FrameSelection = None,
    channel: int | str | None = None,
    mask: Any = None,
    weights: Any = None,
    bad_pixels: Any = None,
    camera: Camera | None = None,
    progress: Callable[[int, int], object] | None = None,
    lazy: Literal[False] = False,
    settings: Settings | None = None,
    **options: Unpack[Options],
) -> SpotFits: ...
@overload
def localize(
    image: Any,
    roi_size: int | tuple[int, ...] | None = None,
    *,
    frames: FrameSelection = None,
    channel: int | str | None = None,
    mask: Any = None,
    weights: Any = None,
    bad_pixels: Any = None,
    camera: Camera | None = None,
    progress: None = None,
    lazy: Literal[True],
    settings: Settings | None = None,
    **options: Unpack[Options],
) -> dd.DataFrame: ...
@takes_settings("detection", "fit", "stop", "bounds", "camera", "optics", "run", volumes=True)
def localize(
    image: Any,
    roi_size: int | tuple[int, ...] | None = None,
    *,
    frames: FrameSelection = None,
    channel: int | str | None = None,
    mask: Any = None,
    weights: Any = None,
    bad_pixels: Any = None,
    camera: Camera | None = None,
    progress: Callable[[int, int], object] | None = None,
    lazy: bool = False,
    settings: Settings | None = None,
    **options: Unpack[Options],
) -> SpotFits | dd.DataFrame:
    """Detect and fit the spots of an image.

    Parameters
    ----------
    image : array, shape (…, Y, X) or (…, Z, Y, X), or path
        NumPy, CuPy, Dask or Zarr array of any real number type: an image, a time series,
        a z-stack or more axes. Frames are planes, or volumes where the model is of spots in
        volumes, as "gaussian_3d" is. Or an image file, see :func:`~napari_spotfit.open_image`. A
        few frames are in memory at a time.
    roi_size : int or tuple of int, optional
        Side of the ROI, or (planes,) rows and columns; odd. By default about 6 σ along each axis,
        at least 9 pixels.
    frames : slice, int or indices, or a tuple of these, optional
        Which frames, one choice per leading axis; all by default. The results'
        indices are those of the whole image.
    channel : int or str, optional
        Number or name of the channel, where the image has an axis c of several: channels are no
        frames, and the other axes are those of the results. "all" fits each by itself, which adds
        a column ``channel``.
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
    lazy : bool, default False
        Return a Dask DataFrame, whose partitions are made when they are asked for, by whatever
        runs Dask's tasks: this machine, or many. What the settings leave open is measured first,
        and ``backend="auto"`` is what this machine would take. Needs ``napari-spotfit[dask]``.
    settings : Settings, optional
        All settings at once; ``options`` change single ones.

    Returns
    -------
    SpotFits or dask.dataframe.DataFrame
        The spots by frame, then row, then column, channels one after the other. A Dask DataFrame
        has the columns of :meth:`SpotFits.to_dataframe`, a partition for each part of the movie.

    Raises
    ------
    TypeError, ValueError
        If the image, the mask or the settings are not of the kind above, or if the image has
        several channels and none is chosen; the message lists them.

    Warns
    -----
    UserWarning
        If the image's axes have names, as xarray's ``dims``, and one is z: each plane is fitted
        by itself. If the PSF's σ cannot be estimated from the image, and none is given. For maximum
        likelihood without the camera's gain: what was taken for it. If the image, or the fits,
        contradict the gain or the offset. If spots that stand alone contradict the σ given.

    Examples
    --------
    >>> from napari_spotfit import localize, simulate_movie
    >>> movie, truth = simulate_movie(3, shape=(64, 64), spots_per_frame=5, seed=1)
    >>> fits = localize(movie)
    >>> fits.points().shape[1]
    3
    >>> fits.settings.roi_size
    9
    """
    settings = with_roi(settings, roi_size, options, localize)
    check_progress(progress, lazy=lazy)
    channels = channels_of(image, channel, Maps(mask, weights, bad_pixels, camera))
    _warn_of_planes(channels[0].image, settings)
    _warn_of_bad_pixels(channels)
    if lazy:
        from .to_folder import lazy_channels

        table, known = lazy_channels(channels, settings, frames)
        for one in known:
            warn_of_gain(settings, one)
        return table

    def parts(own: Iterator[Part]) -> Iterator[tuple[SpotFits, float]]:
        for part in own:
            yield part.fits, part.share
            if progress is not None:
                progress(part.done, part.total)

    found = []
    for own in parts_by_channel(channels, settings, frames):
        found.append(fits := joined_parts(parts(own)))
        warn_of_gain(settings, fits.settings)
        warn_of_camera(settings, fits)
    return joined_channels(found)


@takes_settings("detection", "fit", "stop", "bounds", "camera", "optics", "run", volumes=True)
def localize_iter(
    image: Any,
    roi_size: int | tuple[int, ...] | None = None,
    *,
    frames: FrameSelection = None,
    channel: Chosen = None,
    mask: Any = None,
    weights: Any = None,
    bad_pixels: Any = None,
    camera: Camera | None = None,
    progress: Callable[[int, int], object] | None = None,
    resume: str | os.PathLike[str] | None = None,
    settings: Settings | None = None,
    **options: Unpack[Options],
) -> Iterator[SpotFits]:
    """Detect and fit the spots of an image, a few frames at a time.

    For movies whose spots do not fit into memory, and for who wants to do something with the
    first ones while the others are found. Joined, the parts are what
    :func:`~napari_spotfit.localize` returns, to the bit. After a few frames of the whole image, in
    which open settings are measured, every chosen frame is read once, in order.

    Parameters
    ----------
    image : array, shape (…, Y, X), or path
        As :func:`~napari_spotfit.localize` takes it.
    roi_size : int or tuple of int, optional
        Side of the ROI, or (planes,) rows and columns; odd. By default about 6 σ along each axis,
        at least 9 pixels.
    frames : slice, int or indices, or a tuple of these, optional
        Which frames, one choice per leading axis; all by default. The results'
        indices are those of the whole image.
    channel : int or str, or tuple of them, optional
        Number or name of the channel, where the image has an axis c of several: channels are no
        frames, and the other axes are those of the results. "all" and a tuple of some fit each by
        itself, which adds a column ``channel``.
    mask : array of bool, shape (Y, X) or (…, Y, X), optional
        Where to search.
    weights : array, shape (Y, X) or (…, Y, X), optional
        Weight of each pixel for ``estimator="wlse"``, 0 or above.
    bad_pixels : array of bool, shape (Y, X) or (…, Y, X), optional
        True where a pixel is not used, and where no spots are found.
    camera : Camera, optional
        Offset, gain and read-out variance, of all pixels or of each.
    progress : callable, optional
        Called after each part with the number of frames that are done and their total.
    resume : str or path, optional
        A folder where the parts are stored, too. A run that was killed goes on from there, and
        gives the same: whatever is there of the same image, settings and frames is read, and what
        is missing or damaged is made. Nothing is estimated again. Needs pyarrow.
    settings : Settings, optional
        All settings at once; ``options`` change single ones.

    Returns
    -------
    iterator of SpotFits
        The spots of some frames after those of the frames before; one part at least. All have
        the same ``settings``, with what was estimated. Stopping to iterate cancels the rest.

    Raises
    ------
    TypeError, ValueError
        If the image, the mask or the settings are not of the kind above.
    OSError
        If the folder to resume from cannot be written to. What is there is kept.

    Warns
    -----
    UserWarning
        As :func:`~napari_spotfit.localize` does. If the folder to resume from has parts of another
        run: what differs. All is fitted again then.

    Examples
    --------
    >>> from napari_spotfit import localize, localize_iter, simulate_movie
    >>> movie, truth = simulate_movie(3, shape=(64, 64), spots_per_frame=5, seed=1)
    >>> sum(len(part) for part in localize_iter(movie)) == len(localize(movie))
    True
    """
    settings = with_roi(settings, roi_size, options, localize_iter)
    check_progress(progress)
    channels = channels_of(image, channel, Maps(mask, weights, bad_pixels, camera))
    _warn_of_planes(channels[0].image, settings)
    _warn_of_bad_pixels(channels)
    by_channel = parts_by_channel(channels, settings, frames, resume)
    return _with_progress(by_channel, settings, progress)


def _with_progress(
    by_channel: Iterable[Iterator[Part]],
    settings: Settings,
    progress: Callable[[int, int], object] | None,
) -> Iterator[SpotFits]:
    """Yield the fits of parts; warn of the gain with the first, and report progress with each."""
    for parts in by_channel:
        check = CameraCheck(settings)
        for number, part in enumerate(parts):
            if not number:
                warn_of_gain(settings, part.fits.settings)
            if progress is not None:
                progress(part.done, part.total)
            check.add(part.fits)
            yield part.fits
        check.warn()


def parts_by_channel(
    channels: Sequence[Channel],
    settings: Settings,
    frames: FrameSelection,
    resume: str | os.PathLike[str] | None = None,
    *,
    same_roi: bool = False,
) -> Iterator[Iterator[Part]]:
    """Yield the parts of each channel by itself, which say how much of all channels is done.

    The ROI's size is estimated in each, too, or it is that of the first one in all.
    """
    for place, one in enumerate(channels):
        known = {"frames": frames, "resume": resume_in(resume, one), **one.maps._asdict()}
        order = place, len(channels)
        parts: Iterator[Part] = localize_parts(
            one.image, settings, channel=one, order=order, **known
        )
        if same_roi and not place:
            first = next(parts)
            assert first.fits.settings is not None
            settings = settings.changed(roi_size=first.fits.settings.roi_size)
            parts = chain([first], parts)
        yield parts


def _warn_of_bad_pixels(channels: Sequence[Channel]) -> None:
    """Warn of a map of bad pixels that seems to be one of good pixels."""
    marked = channels[0].maps.bad_pixels
    if isinstance(marked, np.ndarray) and marked.size and (share := marked.mean()) > _MOST_BAD:
        warn_caller(
            f"bad_pixels is True for {share:.0%} of the pixels, which are not used: if it is True "
            "for good pixels, give ~bad_pixels; to search a part of the image, give mask"
        )
    elif isinstance(marked, np.ndarray) and marked.dtype == bool and _are_in_between(marked):
        warn_caller(
            f"bad_pixels is True for {share:.0%} of the pixels, with some beside nearly each "
            "of the others: spots are missed, and noise makes false ones, as detection needs "
            "pixels side by side. Fit what is left by itself, as image[..., ::2, :] with "
            'model="gaussian_elliptical" where every other row is bad; or give places to fit_at'
        )


def _are_in_between(bad: NDArray[np.bool_]) -> bool:
    """Whether a third of the pixels or more are bad, and lie between most others."""
    frame = bad.reshape(-1, *bad.shape[-2:])[0]
    inner = ~frame[1:-1, 1:-1]
    count = int(inner.sum())
    if not count or frame.mean() < _MANY_BAD:
        return False
    rows, columns = inner.shape
    beside = sum(
        frame[y : y + rows, x : x + columns].astype(np.int64) for y in range(3) for x in range(3)
    )
    return bool(np.mean(beside[inner] >= _BESIDE) > _NEARLY_ALL)


def _warn_of_planes(image: Any, settings: Settings) -> None:
    planes = plane_axis(image, spatial=settings.dimensions)
    if planes is not None:
        warn_caller(fitted_by_plane(planes))
    names = axis_names(image) or ()
    if settings.dimensions > 2 and names and names[-3].lower() in FRAMES:
        warn_caller(
            f"the image's axes are {', '.join(names)}, and {names[-3]} is fitted as the planes of "
            "volumes: if it is time, choose a model of spots in a plane"
        )


def localize_parts(
    image: Any,
    settings: Settings,
    *,
    frames: FrameSelection = None,
    mask: Any = None,
    weights: Any = None,
    bad_pixels: Any = None,
    camera: Camera | None = None,
    resume: str | os.PathLike[str] | None = None,
    channel: Channel | None = None,
    order: tuple[int, int] = (0, 1),
) -> Generator[Part, None, None]:
    """Do what :func:`localize` does of one channel, a few frames at a time.

    Joined, the parts are its result; there is at least one. A caller that stops iterating
    cancels the rest. ``order`` is the place of the channel among how many.

    Yields
    ------
    Part
        The fits of some frames, and how many frames of how many are done.
    """
    image, maps = opened(image), Maps(mask, weights, bad_pixels, camera)
    parts: Iterator[Fitted]
    if resume is None:
        plan = planned(image, settings, frames, maps)
        parts = fitted(plan, [plan.numbers])
    else:
        from .stored import parts_of, store_in, warn_of_other

        run = store_in(resume, image, settings, frames, maps, warn_of_other(resume))
        plan = planned(image, run.settings, frames, maps)
        parts = parts_of(plan, run)
    total, done, (place, channels) = len(plan.numbers), Fraction(0), order
    for fits, count in parts:
        done += count
        share = (place + float(done / max(total, 1))) / channels
        fits = fits if channel is None else with_channel(fits, channel)
        yield Part(fits, place * total + int(done), channels * total, plan.backend.ran_on(), share)
    warn_of_orientation(plan.calibration)
    plan.blank.warn()
