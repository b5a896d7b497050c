"""Hold the results of fits: one column per quantity, with units."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..engine.quality import flags as flag_bits
from ..engine.quality.flags import Flag
from ..engine.quality.verdicts import judge, mean_sigma
from ..images.arrays import like, to_host
from ..models.calibration import Calibration
from ..models.columns import COLUMNS, IN_PLANE, STOP, Column, GroupCounter
from ..models.stopping import CONVERGED, STOP_NAMES, StopCondition
from ..settings.settings import Settings

if TYPE_CHECKING:
    from os import PathLike

    import pandas as pd

    from ..files.table import SpotTable


class SpotFits:
    """Fitted spots: one array per quantity, all of the same length.

    Attributes
    ----------
    {columns}
    frame, axis_0, axis_1, … : ndarray of int64
        Where the spot lies along the image's leading axes: ``frame`` for one, and
        ``axis_0``, ``axis_1``, …, with ``frame`` for the last of them, for more.
    channel, plane : ndarray of int64
        The channel, where each was fitted by itself; and the place along the axis z, where an image
        has one: each plane is fitted by itself, and a spot counts once in each that shows it.
    …_stderr : ndarray of float32
        Standard errors of centre, shape parameters, amplitude, background and photons, unless the
        fit was made with ``errors=False``. 0 for what was fixed. NaN where the data do not
        determine them: for the angle of a round spot, and for what ended at one of its bounds,
        whichever parameter it is. The others' errors are those of a fit in which that one is
        known; so for ``mle`` with a background of 0.
    settings : Settings or None
        What the fits were made with.

    Notes
    -----
    A model has its own shape parameters among these columns, or those of its expression.

    Invalid fits keep their row: their parameters are NaN and their stop condition
    is INVALID.

    Threads: they do not change, so that any number may use them; leave the columns as they are, and
    copy those of a :class:`Fitter` first.

    Examples
    --------
    >>> from napari_spotfit import fit_spots, simulate_spots
    >>> spots, truth = simulate_spots(100, photons=2000, seed=1)
    >>> fits = fit_spots(spots)
    >>> len(fits), len(fits[fits.converged])
    (100, 100)
    """

    # For completion in editors; the table of columns has all.
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
    _columns: dict[str, NDArray[Any]]
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
    ):
        shapes: set[tuple[int, ...]] | None = None
        if isinstance(columns, Mapping):
            shapes = {getattr(values, "shape", ()) for values in columns.values()}
        if shapes is None or any(len(shape) != 1 for shape in shapes):
            raise TypeError("fits are made of columns: a mapping of names to arrays of one axis")
        if len(shapes) != 1:
            lengths = sorted(shape[0] for shape in shapes)
            raise ValueError(f"all columns must have one length; got {lengths}")
        # Not by assignment, which is refused.
        self.__dict__.update(
            _columns=dict(columns),
            _index_names=tuple(index_names),
            settings=settings,
            _roi_shape=roi_shape or _roi_shape_of(settings),
            _units=dict(units or {}),
        )

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(
            f"{name} cannot be set: fits stay as they are. Make others of their columns, "
            "SpotFits(fits.columns | {…}, fits.index_names, fits.settings), or a table"
        )

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"{name} cannot be deleted: fits stay as they are")

    def __getattr__(self, name: str) -> NDArray[Any]:
        columns: dict[str, NDArray[Any]] = self.__dict__.get("_columns", {})
        if name in columns:
            return columns[name]
        raise AttributeError(f"these fits have no column {name!r}; they have {', '.join(columns)}")

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self._columns]

    def __len__(self) -> int:
        return len(self._columns["y"])

    def __contains__(self, name: object) -> bool:
        """Whether there is a column of this name."""
        return name in self._columns

    def __iter__(self) -> Iterator[SpotFits]:
        return (self[i : i + 1] for i in range(len(self)))

    def __getitem__(self, rows: Any) -> SpotFits:
        """Return the fits of a mask, a slice, an array of row numbers, or one row."""
        if rows is None or isinstance(rows, (str, tuple, float, bool, np.bool_)):
            raise TypeError(
                f"fits are chosen by a mask, a slice, row numbers or one of them; got {rows!r}"
                + (f". The column is fits.{rows}" if rows in self else "")
            )
        if isinstance(rows, (int, np.integer)):
            rows = [rows]
        if "numpy.ma" in sys.modules and np.ma.is_masked(rows):
            raise ValueError("some of the rows are masked (numpy.ma): say whether they are chosen")
        if self._columns["y"][rows].ndim != 1:
            raise IndexError(
                f"fits are chosen by one mask or one row of numbers; got shape {np.shape(rows)}"
            )
        return self._of({name: values[rows] for name, values in self._columns.items()})

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
        """Spatial axes of the image in which the spots were fitted, which are columns."""
        return IN_PLANE if self.settings is None else self.settings.profile.axes

    @property
    def units(self) -> dict[str, str]:
        """Unit of every column that has one."""
        known = units_of(self.settings) | self._units
        return {name: unit for name, unit in known.items() if name in self}

    @property
    def mean_sigma(self) -> NDArray[np.float32]:
        """Width of each spot in pixels, whatever the model.

        The σ of a round Gaussian; the geometric mean of an elliptical one's; that of the
        Gaussian as wide at half maximum as a Moffat profile; else that of the round Gaussian
        with the same height and the same light, for models of one's own that in the ROI.
        """
        gain = 1.0 if self.settings is None else self.settings.gain or 1.0
        widths = mean_sigma(self.to_host()._columns, gain).astype(np.float32)
        there: NDArray[np.float32] = like(widths, self._columns["y"])
        return there

    @property
    def converged(self) -> NDArray[np.bool_]:
        """Mask of the fits that are known to have ended in their minimum."""
        first, last = min(CONVERGED), max(CONVERGED)
        return (self.stop_condition >= first) & (self.stop_condition <= last)

    @property
    def valid(self) -> NDArray[np.bool_]:
        """Mask of the fits that have parameters."""
        return np.not_equal(self.stop_condition, int(StopCondition.INVALID))

    @property
    def judged(self) -> NDArray[np.bool_]:
        """Mask of the fits with a known stop condition, which most other programs do not give."""
        return np.not_equal(self.stop_condition, int(StopCondition.UNKNOWN))

    @property
    def accepted(self) -> NDArray[np.bool_]:
        """Mask of the spots to go on with: good fits, and those that are not judged.

        The latter the program that found them has accepted.
        """
        return self.good | ~self.judged

    @property
    def flags(self) -> NDArray[np.uint32]:
        """What may be wrong with each fit, :class:`Flag` by bits.

        Fits in an image have a column of them. Those of cut-outs are looked through when they
        are asked for; whatever needs an image stays unset.
        """
        if "flags" in self._columns:
            return self._columns["flags"]
        found = judge(self.to_host()._columns, self.settings, self._roi_shape)
        found[~to_host(self.judged)] = 0
        there: NDArray[np.uint32] = like(found, self._columns["stop_condition"])
        return there

    @property
    def good(self) -> NDArray[np.bool_]:
        """Mask of the fits that no flag speaks against; docs/trust.md says which do.

        None that is not :attr:`judged` is one.
        """
        mask: NDArray[np.bool_] = flag_bits.good(self.flags) & self.judged
        return mask

    def flag_counts(self) -> dict[Flag, int]:
        """Return how many fits have each flag; one fit may have several."""
        found = to_host(self.flags)
        return {flag: int(np.count_nonzero(found & np.uint32(flag))) for flag in Flag}

    def to_host(self) -> SpotFits:
        """Return the same fits with NumPy's columns, should they lie on a GPU."""
        return self._of({name: to_host(values) for name, values in self._columns.items()})

    def copy(self) -> SpotFits:
        """Return the same fits with memory of their own, as of a :class:`Fitter` for keeps."""
        return self._of({name: values.copy() for name, values in self._columns.items()})

    def stop_counts(self) -> dict[StopCondition, int]:
        """Return how many fits ended under each condition."""
        counts = np.bincount(self.to_host().stop_condition, minlength=len(StopCondition))
        return {condition: int(counts[condition]) for condition in StopCondition}

    def points(self) -> NDArray[np.float64]:
        """Return the centres as napari's Points take them.

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

    def to_dataframe(self) -> pd.DataFrame:
        """Return a table with one row per fit; stop conditions as words.

        Returns
        -------
        pandas.DataFrame
            A copy of the columns in order, ``flags`` and ``good`` last where fits are judged; units
            are in ``attrs["units"]``.
        """
        import pandas as pd

        columns = self.to_host().columns
        if self._has_verdicts:
            columns |= {"flags": to_host(self.flags), "good": to_host(self.good)}
        codes = columns[STOP].astype(np.int8)
        stops = {STOP: pd.Categorical.from_codes(codes, categories=STOP_NAMES)}
        table = pd.DataFrame({**columns, **stops}, copy=True)
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

        Ours have every column to the bit, their units, the settings with all that was estimated,
        the model's formula, and the version that wrote them. Those of other programs have what
        these take; docs/formats.md says what that is.

        Parameters
        ----------
        path : str or path
            A name that ends in ``.spots.parquet``, which is smaller and faster and needs pyarrow
            (``pip install "napari-spotfit[parquet]"``), or in ``.spots.csv``, which every
            spreadsheet reads, and pandas with ``comment="#"``. For other programs it ends as their
            files do, such as in ``.hdf5`` (Picasso) or ``.thunderstorm.csv``:
            :func:`~napari_spotfit.load_fits` lists them.
        format : str, optional
            Another program's format, whatever the name ends in, such as ``"picasso"``.
        pixel_size : float or (float, float), optional
            Height and width of a pixel in nm, for formats with nm or µm.
        shape : sequence of int, optional
            Shape of the image, for Picasso; by default the smallest that has all spots.
        spreadsheet : bool
            Put an apostrophe before texts and titles of a CSV file that a spreadsheet would compute
            as formulas, such as ``=HYPERLINK(…)``: for tables with texts from somebody else.

        Warns
        -----
        FormatWarning
            If another program's format has no place for some columns, or it will drop rows.

        Raises
        ------
        ValueError
            If the name ends otherwise, the format needs the size of a pixel, or it is none that
            spreadsheets read.
        OSError
            If the file cannot be written; whatever had its name is as it was.
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
    def _has_verdicts(self) -> bool:
        """Whether flags and what is good mean something."""
        return "flags" in self or not len(self) or bool(self.judged.any())

    def to_table(self) -> SpotTable:
        """Return what a file of these fits holds."""
        from ..files.table import table_of

        columns, flags = self.to_host().columns, to_host(self.flags)
        derived = {} if "flags" in columns else {"flags": flags}
        derived = derived | {"good": to_host(self.good)} if self._has_verdicts else {}
        return table_of(
            columns, derived, self.units,
            index=self._index_names, settings=self.settings, roi_shape=self._roi_shape,
        )  # fmt: skip

    @staticmethod
    def concatenate(parts: Sequence[SpotFits]) -> SpotFits:
        """Join fits whose columns are the same and mean the same, in order.

        Parameters
        ----------
        parts : sequence of SpotFits
            One at least. They may have been found and stopped by different settings; the
            result has those of the first. Groups of different parts get different numbers.

        Raises
        ------
        ValueError
            If there are none, or if they differ in columns, in index, or in what their
            columns mean: model, pixels, estimator and camera.

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
            _check_alike(first, other)
        if not others:
            return first
        if any(part._roi_shape != first._roi_shape for part in others):
            # Bounds may follow from the ROI's size: each part is judged by its own.
            parts = [part._of(part.columns | {"flags": part.flags}) for part in parts]
            first = parts[0]
        apart = GroupCounter()
        columns = [apart(part._columns) for part in parts]
        return first._of(
            {name: np.concatenate([one[name] for one in columns]) for name in first._columns}
        )

    def _of(self, columns: Mapping[str, NDArray[Any]]) -> SpotFits:
        return SpotFits(columns, self._index_names, self.settings, self._roi_shape, self._units)


def units_of(settings: Settings | None) -> dict[str, str]:
    """Return the unit of every column that has one.

    Parameters
    ----------
    settings : Settings or None
        What the fits were made with; None stands for the defaults.

    Examples
    --------
    >>> from napari_spotfit import Settings
    >>> units_of(Settings(model="gaussian_rotated"))["angle_stderr"]
    '°'
    >>> units_of(Settings())["photons"], units_of(Settings(gain=2.0))["photons"]
    ('counts', 'photons')
    """
    settings = settings or Settings()
    shape = [parameter.column for parameter in settings.profile.shape]
    axes = ("", *settings.profile.axes)
    fixed = [
        one for one in COLUMNS.values() if one.group not in ("shape", "other") and one.axis in axes
    ]
    known = [*fixed, *shape, *(one.standard_error() for one in shape)]
    if isinstance(settings.model, Calibration):
        known += settings.model.columns
    units = {one.name: one.unit for one in known if one.unit}
    if settings.gain is None:
        units = {name: "counts" if unit == "photons" else unit for name, unit in units.items()}
    chi_unit = settings.estimator_kind.chi_unit
    units = {name: chi_unit if unit == "counts²" else unit for name, unit in units.items()}
    return {name: unit for name, unit in units.items() if unit}


def _explained(column: Column) -> str:
    """Return a column as a docstring lists it."""
    lines = textwrap.wrap(column.meaning, 88)
    unit = f" [{column.unit}]" if column.unit else ""
    head = f"{column.name} : ndarray of {column.type}{unit}"
    return "\n".join([head, *(f"        {line}" for line in lines)])


_LISTED = [
    one for one in COLUMNS.values()
    if one.group in ("position", "shape", "light", "fit", "quality", "roi") and not one.error_of
]  # fmt: skip
SpotFits.__doc__ = (SpotFits.__doc__ or "").replace(
    "{columns}", "\n    ".join(map(_explained, _LISTED))
)


def _roi_shape_of(settings: Settings | None) -> tuple[int, ...] | None:
    """Return the ROI's shape as far as settings have it: those of cut-outs may not."""
    return None if settings is None or settings.roi_size is None else settings.roi_shape


#: Settings that decide what columns mean.
_MEANINGFUL = ("model", "pixel", "estimator", "offset", "gain")


def _check_alike(first: SpotFits, other: SpotFits) -> None:
    """Check that fits can be joined."""
    only = sorted(set(first.columns) ^ set(other.columns))
    if only:
        raise ValueError(f"fits with different columns cannot be joined: some have no {only[0]}")
    if first.index_names != other.index_names:
        raise ValueError(
            "fits of images with different axes cannot be joined: "
            f"{first.index_names} and {other.index_names}"
        )
    if first.units != other.units and None in (first.settings, other.settings):
        raise ValueError(
            "fits whose columns have different units cannot be joined: "
            f"{first.units} and {other.units}"
        )
    one, two = first.settings, other.settings
    if one is two or one is None or two is None:
        return
    for name in _MEANINGFUL:
        values = getattr(one, name), getattr(two, name)
        if values[0] != values[1]:
            raise ValueError(
                f"fits of a different {name} cannot be joined: {values[0]!r} and {values[1]!r}. "
                "Join their tables: pandas.concat"
            )
