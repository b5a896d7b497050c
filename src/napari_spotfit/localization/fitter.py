"""Repeat fits with the same settings, which are prepared once."""

from __future__ import annotations

from threading import Lock
from types import TracebackType
from typing import Any, NoReturn, Unpack

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..engine.backend import Block, BlockFitter, Positions
from ..engine.fit_job import FitJob
from ..engine.kernel_arguments import add_nanometres
from ..engine.positions import ExcludedPixels, excluded_pixels, rows_of
from ..engine.select import gpu_pays_off_for_fits, recorded, select_backend
from ..estimation.detection_noise import for_detection
from ..estimation.image_estimates import estimated, warn_of_gain
from ..images.arrays import as_array, is_on_device, native_type, to_native
from ..images.camera import Camera
from ..images.frames import inside
from ..images.pixel_calibration import PixelCalibration
from ..results.spot_fits import SpotFits
from ..settings.options import Options, takes_settings, with_roi
from ..settings.settings import Settings
from .centers import checked_places
from .fit_at import check_counts, checked_reader, frame_numbers
from .fit_spots import checked_spots, checked_start

_FIRST = np.zeros(1, np.int64)


class Fitter:
    """Fits of cut-outs, or at places of frames, one call after the other: prepared once.

    The rows are those of :func:`fit_spots` and :func:`fit_at` to the bit, sooner: settings are
    checked, and what is known of the pixels is brought to where it is needed, when the Fitter is
    made or at the first call; memory for the results is kept. For closed loops, live views, and
    whatever else fits little and often.

    Parameters
    ----------
    roi_size : int or tuple of int, optional
        Side of the ROI, or (planes,) rows and columns; odd. By default that of the first cut-outs;
        in frames, about 6 σ along each axis, at least 9 pixels.
    weights : array, shape (rows, columns), optional
        Weight of each pixel for ``estimator="wlse"``, 0 or above: of a cut-out for :meth:`fit`, of
        a frame for :meth:`fit_at`. So for all that belongs to pixels.
    bad_pixels : array of bool, shape (rows, columns), optional
        True where a pixel is not used.
    camera : Camera, optional
        Offset, gain and read-out variance, of all pixels or of each.
    settings : Settings, optional
        All settings at once; ``options`` change single ones, those of :func:`fit_at`.

    Attributes
    ----------
    settings : Settings
        What the fits are made with; after the first :meth:`fit_at` with all that was estimated.

    Raises
    ------
    TypeError, ValueError
        If the settings are not of the kind above; and at the first call, what does not fit the
        pixels. Later calls check shape and dtype alone.

    Notes
    -----
    A Fitter is for the shape and the dtype that come first, for cut-outs and frames each. What
    ``sigma``, ``noise`` and ``roi_size`` leave open is measured in the first frame and kept.

    The columns of the fits are views of the Fitter's memory: **the next call overwrites them**.
    ``fits.copy()`` is for keeps.

    Threads: one at a time; a call while another one's runs is a RuntimeError. The next call of any
    thread overwrites what this one still looks at: give each thread a Fitter of its own.

    Examples
    --------
    >>> from napari_spotfit import Fitter, simulate_movie
    >>> movie, truth = simulate_movie(20, shape=(64, 64), spots_per_frame=5, seed=1)
    >>> with Fitter(roi_size=9, sigma=1.3) as fitter:
    ...     for frame, places in zip(movie, truth.groupby("frame")[["y", "x"]], strict=True):
    ...         fits = fitter.fit_at(frame, places[1])
    ...         brightest = fits.photons[fits.good].max()
    ...     last = fits.copy()
    >>> len(last)
    5
    """

    @takes_settings(
        "fit", "stop", "bounds", "camera", "optics", "run", also=("sigma", "sigma_z"), volumes=True
    )
    def __init__(
        self,
        roi_size: int | tuple[int, ...] | None = None,
        *,
        weights: Any = None,
        bad_pixels: Any = None,
        camera: Camera | None = None,
        settings: Settings | None = None,
        **options: Unpack[Options],
    ) -> None:
        self.settings = with_roi(settings, roi_size, options, Fitter.__init__)
        if self.settings.neighbours == "joint":
            raise ValueError(
                "a Fitter fits each spot by itself: neighbours must be 'exclude', 'ignore' or "
                "'auto'; got 'joint', which localize and fit_at take"
            )
        self._known = {"weights": weights, "bad_pixels": bad_pixels, "camera": camera}
        self._spots: _SpotKind | None = None
        self._frames: _FrameKind | None = None
        self._closed, self._in_use = False, _OneThread()

    def fit(self, spots: Any, start: Any = None) -> SpotFits:
        """Fit spots that were cut out already.

        Parameters
        ----------
        spots : array, shape (n, rows, columns)
            Cut-outs, of NumPy or CuPy, in any number, which may change.
        start : array, shape (n, parameters), optional
            Start values of the shape parameters, as :func:`fit_spots` takes them.

        Returns
        -------
        SpotFits
            As of :func:`fit_spots`, valid until the next call.

        Raises
        ------
        ValueError
            If rows, columns or dtype are others than before, or if the Fitter is closed.
        RuntimeError
            If another thread is using this Fitter.

        Examples
        --------
        >>> from napari_spotfit import Fitter, simulate_spots
        >>> spots, truth = simulate_spots(100, photons=2000, seed=1)
        >>> with Fitter() as fitter:
        ...     fits = fitter.fit(spots)
        ...     bool(abs(fits.x - truth["x"]).max() < 0.5)
        True
        """
        if type(spots) is not np.ndarray:
            spots = as_array(spots)
        kind = self._spots
        if kind is None:
            kind = self._spots = self._spot_kind(spots)
        if spots.shape[1:] != kind.roi_shape or spots.dtype != kind.dtype:
            sides = ", ".join(map(str, kind.roi_shape))
            raise ValueError(
                f"this Fitter was made for cut-outs of the shape (n, {sides}) and dtype "
                f"{kind.dtype}; got {spots.shape}, {spots.dtype}. Make another one for these"
            )
        own_start = checked_start(start, len(spots), self.settings)
        with self._in_use:
            return kind.fit(spots, own_start)

    def fit_at(self, frame: Any, centers: ArrayLike) -> SpotFits:
        """Fit the spots at given positions of a frame.

        Parameters
        ----------
        frame : array, shape (Y, X) or (Z, Y, X)
            One frame, of NumPy or CuPy: a plane, or a volume if the model is of spots in volumes.
        centers : array, shape (n, 2) or (n, 3)
            (z,) y and x of the spots in pixels.

        Returns
        -------
        SpotFits
            As of :func:`fit_at`, valid until the next call.

        Raises
        ------
        ValueError
            If the frame's shape or dtype are others than before, or if the Fitter is closed.
        RuntimeError
            If another thread is using this Fitter.
        """
        if type(frame) is not np.ndarray:
            frame = as_array(frame)
        places, kind = self._checked(frame, centers)
        with self._in_use:
            return kind.fit(to_native(frame)[np.newaxis], places)

    def explain(self, frame: Any, centers: ArrayLike) -> ExcludedPixels:
        """Return which pixels :meth:`fit_at` excludes from the first of some fits, and why.

        Parameters
        ----------
        frame : array, shape (Y, X)
            As :meth:`fit_at` takes it.
        centers : array, shape (n, 2)
            y and x of the spot, and of all others of the frame that are fitted with it.

        Returns
        -------
        ExcludedPixels
            First row and column of the ROI, and a mask for each reason: ``bad``, ``saturated``,
            ``hot`` (or dead), ``padding`` and ``neighbour``.

        Raises
        ------
        ValueError
            If the first spot is outside of the frame, or as :meth:`fit_at` does.

        Examples
        --------
        >>> import numpy as np
        >>> from napari_spotfit import Fitter
        >>> frame = np.random.default_rng(1).poisson(100, (32, 32)).astype(np.uint16)
        >>> with Fitter(roi_size=9, sigma=1.3) as fitter:
        ...     excluded = fitter.explain(frame, [[16, 12], [16, 17]])
        >>> excluded.corner, int(excluded.neighbour.sum())
        ((12, 8), 18)
        """
        places, kind = self._checked(frame, centers)
        if not len(places) or not inside(places[:1], kind.shape).all():
            raise ValueError(f"the spot must lie in the frame of {kind.shape}; got {centers!r}")
        with self._in_use:
            return kind.explain(to_native(as_array(frame))[np.newaxis], places)

    def close(self) -> None:
        """Free all memory; the Fitter cannot be used afterwards."""
        self._spots = self._frames = None
        self._known, self._closed = {}, True

    def __enter__(self) -> Fitter:
        self._check_open()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def __reduce__(self) -> NoReturn:
        raise TypeError("a Fitter holds memory of its own; make one in each process")

    def _checked(self, frame: Any, centers: ArrayLike) -> tuple[NDArray[np.float64], _FrameKind]:
        """Return places, and what fits in frames like this one."""
        if type(frame) is not np.ndarray:
            frame = as_array(frame)
        places, kind = (
            checked_places(centers, self.settings.dimensions, spatial=self.settings.dimensions),
            self._frames,
        )
        if kind is None:
            given = self.settings
            kind = self._frames = self._frame_kind(frame, places)
            warn_of_gain(given, self.settings)
        if frame.shape != kind.shape or frame.dtype != kind.dtype:
            raise ValueError(
                f"this Fitter was made for frames of the shape {kind.shape} and dtype "
                f"{kind.dtype}; got {frame.shape}, {frame.dtype}. Make another one for these"
            )
        return places, kind

    def _check_open(self) -> None:
        if self._closed:
            raise ValueError("this Fitter is closed; make another one")

    def _spot_kind(self, spots: Any) -> _SpotKind:
        """Prepare fits of cut-outs like these."""
        self._check_open()
        shape = checked_spots(spots, self.settings).shape[1:]
        if self.settings.roi_size is not None and shape != self.settings.roi_shape:
            sides = "×".join(map(str, self.settings.roi_shape))
            raise ValueError(
                f"this Fitter was made for ROIs of {sides} px; got cut-outs of the shape "
                f"{spots.shape}"
            )
        return _SpotKind(PixelCalibration((1, *shape), self.settings, **self._known), spots)

    def _frame_kind(self, frame: Any, places: NDArray[np.float64]) -> _FrameKind:
        """Prepare fits in frames like this one."""
        self._check_open()
        if frame.ndim != self.settings.dimensions:
            sides = self.settings.profile.sides
            raise ValueError(f"frame must have the shape ({sides}); got {frame.shape}")
        reader = checked_reader(frame, self.settings)
        calibration = PixelCalibration(frame.shape, self.settings, **self._known)
        numbers = frame_numbers(places, reader)
        known = np.column_stack([numbers, places])[numbers >= 0]
        calibration = estimated(reader, calibration, places=known)
        self.settings = calibration.settings
        return _FrameKind(calibration, frame)


class _OneThread:
    """Lets one thread use the memory of a Fitter at a time."""

    def __init__(self) -> None:
        self._lock = Lock()

    def __enter__(self) -> None:
        if not self._lock.acquire(blocking=False):
            raise RuntimeError(
                "this Fitter is in use by another thread. A Fitter is for one thread at a time; "
                "make one for each"
            )

    def __exit__(self, *_: object) -> None:
        self._lock.release()


class _Kind:
    """Frames, or cut-outs, of one shape and type."""

    def __init__(self, calibration: PixelCalibration, pixels: Any) -> None:
        self.shape, self.dtype = pixels.shape, pixels.dtype
        self._calibration, self._settings = calibration, calibration.settings
        self._by_worth: dict[bool, tuple[BlockFitter, Settings]] = {}
        self._columns: Any = None

    def _fit(
        self, job: FitJob, block: Block, positions: Positions | None, start: Any = None
    ) -> SpotFits:
        """Fit by what is worth it, prepared once."""
        pixels, settings = block.pixels, self._settings
        count = len(pixels if positions is None else positions.places)
        on_device = type(pixels) is not np.ndarray and is_on_device(pixels)
        worth = on_device or gpu_pays_off_for_fits(
            settings, count, job.roi_shape, weighted=self._calibration.is_weighted
        )
        if worth not in self._by_worth:
            backend = select_backend(settings, worth)
            self._by_worth[worth] = backend.fitter(job), recorded(settings, backend)
        fitter, settings = self._by_worth[worth]
        columns = fitter.fit(block, positions, start)
        self._rows = rows_of(job, columns)
        add_nanometres(columns, settings)
        if columns is not self._columns:
            self._columns = columns
            shape = job.roi_shape if positions is None else None
            self._fits = SpotFits(columns, (), settings, shape)
        return self._fits


class _FrameKind(_Kind):
    """Frames of one shape and type."""

    def __init__(self, calibration: PixelCalibration, frame: Any) -> None:
        super().__init__(calibration, frame)
        detection, _ = for_detection(calibration)
        self._job = FitJob.of(calibration, frame.dtype, detection)
        self._bad = calibration.bad_pixels(_FIRST)
        self._maps: Any = None

    def fit(self, taken: Any, places: NDArray[np.float64]) -> SpotFits:
        block, positions = self._block(taken), Positions(places)
        fits = self._fit(self._job, block, positions)
        check_counts(self._calibration, block, positions, self._columns, self._rows)
        if self._calibration.light is not None:
            self._calibration.light.correct(
                self._columns, np.zeros(len(self._columns["z"]), np.int64)
            )
        return fits

    def explain(self, taken: Any, places: NDArray[np.float64]) -> ExcludedPixels:
        return excluded_pixels(self._job, self._block(taken), Positions(places))

    def _block(self, taken: Any) -> Block:
        calibration = self._calibration
        pixels = calibration.corrected(_FIRST, taken, mark_bad=True)
        if self._maps is None:
            self._maps = calibration.planes(_FIRST, taken), calibration.variances(_FIRST, taken)
        planes, variances = self._maps
        return Block(pixels, taken, planes, variances, self._bad)


class _SpotKind(_Kind):
    """Cut-outs of one shape and type."""

    def __init__(self, calibration: PixelCalibration, spots: Any) -> None:
        super().__init__(calibration, spots)
        self.roi_shape = spots.shape[1:]
        self._is_native = native_type(spots.dtype) == spots.dtype and not calibration.by_frame
        pixels = self._corrected(spots)
        calibration.check_counts(pixels, None)
        self._job = FitJob.of_spots(calibration.fitted, self.roi_shape, pixels.dtype)
        self._maps = calibration.planes(_FIRST, spots), calibration.variances(_FIRST, spots)

    def fit(self, spots: Any, start: Any) -> SpotFits:
        flags = spots.flags
        if not (self._is_native and flags.c_contiguous and getattr(flags, "aligned", True)):
            spots = self._corrected(spots)
        return self._fit(self._job, Block(spots, spots, *self._maps), None, start)

    def _corrected(self, spots: Any) -> Any:
        return self._calibration.corrected(_FIRST, to_native(spots))
