"""The results of fits: one column per quantity, with units."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..engine import flags as flag_bits
from ..engine.flags import Flag
from ..engine.verdicts import flags_from_columns, mean_sigma
from ..images.arrays import like, to_host
from ..models.columns import IN_PLANE, STOP, GroupCounter
from ..models.estimators import CONVERGED, STOP_NAMES, StopCondition
from ..settings.settings import Settings
from .columns import Columns, Meaning, columns_explained, units_of

if TYPE_CHECKING:
    from os import PathLike

    import pandas as pd

    from ..files.table import SpotTable, Step


class SpotFits(Columns):
    """Fitted spots: one array per quantity, all of the same length.

    Attributes
    ----------
    {columns}
    frame, axis_0, axis_1, … : ndarray of int64
        Index of the spot along each leading axis of the image: ``frame`` for the last of them,
        ``axis_0``, ``axis_1``, … for those before it.
    channel, plane : ndarray of int64
        The channel, if several were fitted; and the index along an axis z, if the image has one:
        planes are fitted separately, so a spot has one fit in each plane in which it is visible.
    …_stderr : ndarray of float32
        Standard errors of centre, shape parameters, amplitude, background and photons, unless
        fitted with ``errors=False``. 0 for fixed parameters. NaN if the data do not determine them:
        the angle of a round spot, and any parameter that ended at a bound. Errors of the other
        parameters then assume that it is known, also for ``mle`` with a background of 0.
    settings : Settings or None
        The settings of the fits.
    history : tuple of Step
        The steps of analysis that the fits went through, such as merging: each with the ``name`` of
        its function, its ``arguments``, and the ``version`` of this package.

    Notes
    -----
    The columns of shape parameters depend on the model, or are those of its expression. Invalid
    fits keep their row, with NaN for parameters and the stop condition INVALID.

    Threads: any number may share fits, as they are immutable; do not modify the columns, and copy
    the fits of a :class:`Fitter` first.

    Examples
    --------
    >>> from napari_spotfit import fit_spots, simulate_spots
    >>> spots, truth = simulate_spots(100, photons=2000, seed=1)
    >>> fits = fit_spots(spots)
    >>> len(fits), len(fits[fits.converged])
    (100, 100)
    """

    # For completion in editors; the table of columns is complete.
    y: NDArray[np.float64]
    x: NDArray[np.float64]
    sigma: NDArray[np.float32]
    amplitude: NDArray[np.float32]
    background: NDArray[np.float32]
    photons: NDArray[np.float32]
    chi_square: NDArray[np.float32]
    reduced_chi_square: NDArray[np.float32]
    iterations: NDArray[np.uint16]
    stop_condition: NDArray[np.uint8]
    settings: Settings | None
    history: tuple[Step, ...]
    _index_names: tuple[str, ...]
    _roi_shape: tuple[int, ...] | None
    _units: dict[str, str]

    def __init__(
        self,
        columns: Mapping[str, NDArray[Any]],
        index_names: Sequence[str] = (),
        settings: Settings | None = None,
        roi_shape: tuple[int, ...] | None = None,
        units: Mapping[str, str] | None = None,
        history: Sequence[Step] = (),
    ):
        super().__init__(
            columns,
            _index_names=tuple(index_names),
            settings=settings,
            _roi_shape=roi_shape or _roi_shape_of(settings),
            _units=dict(units or {}),
            history=tuple(history),
        )

    def __repr__(self) -> str:
        share = f"{self.good.mean():.1%} good" if len(self) else "no spots"
        share = share if self._has_verdicts else "not judged"
        return f"<SpotFits: {len(self)} spots, {share}; columns {', '.join(self._columns)}>"

    @property
    def columns(self) -> dict[str, NDArray[Any]]:
        """All columns by name, in order."""
        return dict(self._columns)

    @property
    def index_names(self) -> tuple[str, ...]:
        """Names of the columns that index the image's leading axes."""
        return self._index_names

    @property
    def axes(self) -> tuple[str, ...]:
        """Spatial axes of the image, which are columns of positions."""
        return IN_PLANE if self.settings is None else self.settings.profile.axes

    @property
    def units(self) -> dict[str, str]:
        """Unit of every column that has one."""
        known = units_of(self.settings) | self._units
        return {name: unit for name, unit in known.items() if name in self}

    @property
    def mean_sigma(self) -> NDArray[np.float32]:
        """Width of each spot in pixels, for any model.

        The σ of a round Gaussian; the geometric mean of both of an elliptical one; for a Moffat
        profile that of the Gaussian with the same full width at half maximum; otherwise that of
        the round Gaussian of the same height and light (for your own models, in the ROI).
        """
        gain = 1.0 if self.settings is None else self.settings.gain or 1.0
        widths = mean_sigma(self.to_host()._columns, gain).astype(np.float32)
        there: NDArray[np.float32] = like(widths, self._columns["y"])
        return there

    @property
    def _stops(self) -> NDArray[np.uint8]:
        """Why each fit ended; of a table that does not say, UNKNOWN where there is a position."""
        if "stop_condition" in self._columns:
            return self._columns["stop_condition"]
        there = np.isfinite(to_host(self._columns["y"])) & np.isfinite(to_host(self._columns["x"]))
        codes = np.where(there, StopCondition.UNKNOWN, StopCondition.INVALID).astype(np.uint8)
        found: NDArray[np.uint8] = like(codes, self._columns["y"])
        return found

    @property
    def converged(self) -> NDArray[np.bool_]:
        """Mask of the fits that converged to a minimum."""
        first, last = min(CONVERGED), max(CONVERGED)
        return (self._stops >= first) & (self._stops <= last)

    @property
    def valid(self) -> NDArray[np.bool_]:
        """Mask of the fits with parameters, which did not end INVALID."""
        return np.not_equal(self._stops, int(StopCondition.INVALID))

    @property
    def judged(self) -> NDArray[np.bool_]:
        """Mask of the fits with a known stop condition; most other programs give none."""
        return np.not_equal(self._stops, int(StopCondition.UNKNOWN))

    @property
    def accepted(self) -> NDArray[np.bool_]:
        """Mask of the spots to use: good fits, and spots that another program has accepted."""
        return self.good | ~self.judged

    @property
    def flags(self) -> NDArray[np.uint32]:
        """Possible problems of each fit, as bits of :class:`Flag`.

        Fits in an image have them as a column. For cut-outs they are computed on request, without
        the flags that need an image.
        """
        if "flags" in self._columns:
            return self._columns["flags"]
        columns = self.to_host().columns | {"stop_condition": to_host(self._stops)}
        found = flags_from_columns(columns, self.settings, self._roi_shape)
        found[~to_host(self.judged)] = 0
        there: NDArray[np.uint32] = like(found, self._columns["y"])
        return there

    @property
    def good(self) -> NDArray[np.bool_]:
        """Mask of the :attr:`judged` fits that no flag rejects; see docs/trust.md."""
        mask: NDArray[np.bool_] = flag_bits.good(self.flags) & self.judged
        return mask

    def flag_counts(self) -> dict[Flag, int]:
        """Return the number of fits with each flag; a fit may have several."""
        found = to_host(self.flags)
        return {flag: int(np.count_nonzero(found & np.uint32(flag))) for flag in Flag}

    def to_host(self) -> SpotFits:
        """Return the fits with columns in NumPy arrays, wherever they lie."""
        if all(type(values) is np.ndarray for values in self._columns.values()):
            return self
        return self.with_columns({name: to_host(values) for name, values in self._columns.items()})

    def with_columns(self, columns: Mapping[str, NDArray[Any]], *after: Step) -> SpotFits:
        """Return fits with other columns, but the same index, settings, units and history.

        Parameters
        ----------
        columns : mapping of str to ndarray
            All columns, such as ``fits.columns | {"label": labels}``.
        *after : Step
            Steps of analysis to append to the history.
        """
        return SpotFits(
            columns, self._index_names, self.settings, self._roi_shape, self._units,
            (*self.history, *after),
        )  # fmt: skip

    def copy(self) -> SpotFits:
        """Return a copy, such as of fits whose memory a :class:`Fitter` reuses."""
        return self.with_columns({name: values.copy() for name, values in self._columns.items()})

    def stop_counts(self) -> dict[StopCondition, int]:
        """Return the number of fits with each stop condition."""
        counts = np.bincount(self.to_host()._stops, minlength=len(StopCondition))
        return {condition: int(counts[condition]) for condition in StopCondition}

    def points(self) -> NDArray[np.float64]:
        """Return the centres as coordinates for napari's Points.

        Returns
        -------
        ndarray of float64, shape (n, ndim)
            Indices along the leading axes, then the centre, in pixels.
        """
        names = (*self._index_names, *self.axes)
        columns = self.to_host().columns
        points = np.empty((len(self), len(names)))
        for axis, name in enumerate(names):
            points[:, axis] = columns[name]
        return points

    def model_image(self, shape: tuple[int, ...], *, image: Any = None) -> NDArray[np.float32]:
        """Return the light of all spots, without their background, as an image.

        Parameters
        ----------
        shape : tuple of int
            That of the image the spots were fitted in: leading axes, then those of the model.
        image : array, optional
            That image, in memory, for stacks whose planes differ in light: each plane's light is
            measured in it. Without it, that of the brightest planes counts, and a warning says so.

        Returns
        -------
        ndarray of float32
            Counts; light of spots that overlap adds up.

        Raises
        ------
        ValueError
            If the shape does not have the axes of the fits, the image has another one, or the fits
            have no settings.

        Examples
        --------
        >>> from napari_spotfit import localize, simulate_movie
        >>> movie, truth = simulate_movie(2, shape=(64, 64), spots_per_frame=5, seed=1)
        >>> localize(movie).model_image(movie.shape).shape
        (2, 64, 64)
        """
        from .model_image import dimmed, light_image

        if self.settings is None:
            raise ValueError(
                "these fits have no settings, so their model is unknown; load fits with settings"
            )
        columns = self.to_host().columns
        light = light_image(columns, self._index_names, self.settings, tuple(shape))
        return dimmed(light, self.settings, None if image is None else np.asarray(image))

    def residual_image(self, image: Any) -> NDArray[np.float32]:
        """Return an image less the light of all spots: its background, and what was not explained.

        Parameters
        ----------
        image : array
            The image that the spots were fitted in, in memory.

        Raises
        ------
        ValueError
            If the image does not have the axes of the fits, or the fits have no settings.

        Examples
        --------
        >>> from napari_spotfit import localize, simulate_movie
        >>> movie, truth = simulate_movie(2, shape=(64, 64), spots_per_frame=5, seed=1)
        >>> bool(localize(movie).residual_image(movie).std() < movie.std())
        True
        """
        pixels = np.asarray(image)
        model = self.model_image(pixels.shape, image=pixels)
        residual: NDArray[np.float32] = (pixels - model).astype(np.float32)
        return residual

    def to_dataframe(self, dtypes: Mapping[str, str] = MappingProxyType({})) -> pd.DataFrame:
        """Return a table with one row per fit, and stop conditions as words.

        Parameters
        ----------
        dtypes : mapping of str to str, optional
            Data types of columns by the kind that they have, such as ``{"u": "float64"}``; columns
            of other kinds keep theirs.

        Returns
        -------
        pandas.DataFrame
            A copy of the columns in order, with ``flags`` and ``good`` last if fits are judged;
            ``attrs["units"]`` has the units.
        """
        import pandas as pd

        columns = self.to_host().columns
        if self._has_verdicts:
            columns |= {"flags": to_host(self.flags), "good": to_host(self.good)}
        made: dict[str, Any] = {
            name: values.astype(dtypes.get(values.dtype.kind, values.dtype))
            for name, values in columns.items()
        }
        if STOP in columns:
            codes = columns[STOP].astype(np.int8)
            made[STOP] = pd.Categorical.from_codes(codes, categories=STOP_NAMES)
        table = pd.DataFrame(made, copy=False)
        table.attrs["units"] = self.units
        return table

    def save(
        self,
        path: str | PathLike[str],
        format: str | None = None,
        *,
        pixel_size: float | Sequence[float] | None = None,
        shape: Sequence[int] | None = None,
        spreadsheet: bool = False,
    ) -> None:
        """Save the fits as a file that :func:`~napari_spotfit.load_fits` and napari open again.

        Our formats store every column to the bit, units, settings with estimates, the model's
        formula, the history, and the version of this package. For other programs' formats see
        docs/formats.md.

        Parameters
        ----------
        path : str or path
            A name that ends in ``.spots.parquet``, which is smaller and faster and needs pyarrow
            (``pip install "napari-spotfit[parquet]"``), or in ``.spots.csv``, which spreadsheets
            read, and pandas with ``comment="#"``. For other programs it has their ending, such as
            ``.hdf5`` (Picasso) or ``.thunderstorm.csv``: see :func:`~napari_spotfit.load_fits`.
        format : str, optional
            Another program's format, for any ending, such as ``"picasso"``.
        pixel_size : float or (float, float), optional
            Height and width of a pixel in nm, for formats with nm or µm.
        shape : sequence of int, optional
            Shape of the image, for Picasso; by default the smallest for all spots.
        spreadsheet : bool
            Whether to put an apostrophe before texts and titles of a CSV file that a spreadsheet
            would compute as formulas, such as ``=HYPERLINK(…)``, if texts are not your own.

        Warns
        -----
        FormatWarning
            If another program's format cannot store some columns, or the program will drop rows.

        Raises
        ------
        ValueError
            If the ending is unknown, the format needs the size of a pixel, or `spreadsheet` is set
            for another format than CSV.
        OSError
            If the file cannot be written; an older file of that name is kept.
        ImportError
            If the format needs a library that is missing: pyarrow or h5py.

        Examples
        --------
        >>> from pathlib import Path
        >>> from tempfile import TemporaryDirectory
        >>> from napari_spotfit import fit_spots, load_fits, simulate_spots
        >>> spots, truth = simulate_spots(100, photons=2000, seed=1)
        >>> fits = fit_spots(spots)
        >>> with TemporaryDirectory() as folder:
        ...     path = Path(folder) / "simulated.spots.csv"
        ...     fits.save(path)
        ...     same = load_fits(path)
        >>> (same.x == fits.x).all(), same.settings == fits.settings
        (np.True_, True)
        """
        from ..files.formats import write

        write(
            path, self.to_table(), format,
            pixel_size=pixel_size, shape=shape, spreadsheet=spreadsheet,
        )  # fmt: skip

    @property
    def _meaning(self) -> Meaning:
        steps = tuple(step.name for step in self.history)
        return Meaning(
            frozenset(self._columns), self._index_names, self.units, self.settings, steps
        )

    @property
    def _has_verdicts(self) -> bool:
        """Whether any fit is judged, so that flags and `good` have a meaning."""
        return "flags" in self or not len(self) or bool(self.judged.any())

    def to_table(self) -> SpotTable:
        """Return the table of these fits for a file."""
        from ..files.table import table_of

        # Files have stop conditions, tables that were made by hand none.
        columns, flags = self.to_host().columns, to_host(self.flags)
        columns = columns if STOP in columns else columns | {STOP: to_host(self._stops)}
        derived = {} if "flags" in columns else {"flags": flags}
        derived = derived | {"good": to_host(self.good)} if self._has_verdicts else {}
        return table_of(
            columns, derived, self.units,
            index=self._index_names, settings=self.settings, roi_shape=self._roi_shape,
            history=self.history,
        )  # fmt: skip

    @staticmethod
    def concatenate(parts: Sequence[SpotFits]) -> SpotFits:
        """Join fits with the same columns of the same meaning, in order.

        Parameters
        ----------
        parts : sequence of SpotFits
            At least one. Settings of detection and stopping, and arguments of steps of analysis,
            may differ; the result has those of the first. Groups of different parts get different
            numbers.

        Raises
        ------
        ValueError
            If there are none, or if they differ in columns, index, steps of analysis, or in
            settings that change the meaning of columns: model, pixels, estimator and camera.

        Examples
        --------
        >>> from napari_spotfit import SpotFits, fit_spots, simulate_spots
        >>> spots, truth = simulate_spots(100, photons=2000, seed=1)
        >>> fits = fit_spots(spots)
        >>> len(SpotFits.concatenate([fits[:10], fits[50:]]))
        60
        """
        if isinstance(parts, SpotFits) or not isinstance(parts, Iterable):
            raise TypeError(f"fits are joined from a sequence of SpotFits; got {parts!r}")
        parts = list(parts)
        wrong = next((part for part in parts if not isinstance(part, SpotFits)), None)
        if wrong is not None:
            raise TypeError(f"fits are joined from a sequence of SpotFits; one part is {wrong!r}")
        if not parts:
            raise ValueError("there are no fits to join")
        first, *others = parts
        for other in others:
            first._meaning.check_alike(other._meaning)
        if not others:
            return first
        if any(part._roi_shape != first._roi_shape for part in others):
            # Bounds may depend on the ROI's size, so each part's flags are set by its own settings.
            parts = [part.with_columns(part.columns | {"flags": part.flags}) for part in parts]
            first = parts[0]
        apart = GroupCounter()
        columns = [apart(part._columns) for part in parts]
        return first.with_columns(
            {name: np.concatenate([one[name] for one in columns]) for name in first._columns}
        )


def on_host(fits: SpotFits) -> SpotFits:
    """Return fits with columns in NumPy arrays, or raise a TypeError if they are something else."""
    if not isinstance(fits, SpotFits):
        raise TypeError(
            "fits must be SpotFits, such as localize and load_fits return; got an object of type "
            f"{type(fits).__name__}"
        )
    return fits.to_host()


SpotFits.__doc__ = (SpotFits.__doc__ or "").replace("{columns}", columns_explained())


def _roi_shape_of(settings: Settings | None) -> tuple[int, ...] | None:
    """Return the ROI's shape in settings; None if they have none, as for cut-outs."""
    return None if settings is None or settings.roi_size is None else settings.roi_shape
