"""Describe every column of the results, for files, tables, tooltips and docs.

A column is one row of :data:`ROWS`; its standard error, and its copies along the other axes,
are made from that row. :data:`COLUMNS` has all of them by name.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from .estimators import STOP_NAMES

#: The spatial axes in the order of an image's array, and what is counted along each.
AXES = {"z": "plane", "y": "row", "x": "column"}
#: Those of a plane, which every model has.
IN_PLANE = ("y", "x")
#: Columns that code chooses by name, not by their description.
STOP, TRACK, REFIT = "stop_condition", "track", "refit"
REGISTERED = "registered"
CHANNEL, PLANE = "channel", "plane"
GROUP, GROUP_SIZE = "group", "group_size"
DISTANCE, EVIDENCE = "neighbour_distance", "evidence"
DETECTIONS, PARENT, CLUSTER = "n_detections", "parent", "cluster"
STDERR = "_stderr"
#: The unit of lengths along z, which are no pixels' unless voxels are cubes.
PLANES = "planes"
#: The column of z in planes of other programs, and of files of points.
Z_OF_OTHERS = "z_px"
#: What a table must have to be one of spots.
REQUIRED = (*IN_PLANE, STOP)

#: Where a column comes from.
Group = Literal[
    "index", "position", "shape", "light", "fit", "quality", "roi", "analysis", "viewer", "other"
]
#: How other programs' files transform a column's numbers: by the origin and the size of pixels,
#: by the size of pixels, by the gain, by the number of the first frame, or not at all.
Kind = Literal["position", "length", "light", "frame", "number"]
_INDEX = re.compile(r"axis_(\d+)")


@dataclass(frozen=True)
class Column:
    """What a column holds.

    In a row of :data:`ROWS`, ``{axis}`` in any text stands for each of the :data:`AXES`,
    ``{line}`` for what is counted along it, ``{first}`` for where it is 0, and ``{across}`` for
    the other axis of a plane. Names in formats that only y and x have say ``{yx}``, ``{YX}`` or
    ``{number}``, which is 1 for x; one that only z has says ``{z}``. Along z, ``"px"`` are planes.

    Parameters
    ----------
    name : str
        Its name, also as the attribute of :class:`~napari_spotfit.SpotFits`.
    unit : str
        Unit of its numbers. ``"photons"`` are counts while the gain is unknown, and
        ``"counts²"`` the unit of least squares only.
    meaning : str
        What it holds, in sentences.
    type : str
        NumPy's name of its type; nothing for whatever type the numbers have.
    group : str
        Where it comes from.
    axis : str
        The axis that it is measured along, if it is along one.
    label : str
        Its name in the viewer, if that is another one.
    words : tuple of str
        What its codes 0, 1, … stand for.
    optional : bool
        Whether some rows may have no number: whole numbers become floating-point then.
    error_of : str
        The column whose standard error it is.
    formats : mapping of str to str
        Its name in formats of other programs (by the format's name) in which one column has the
        same content. Units and origin are those of the format.
    error_formats : mapping of str to str, optional
        The same for its standard error; None if it has none.
    """

    name: str
    unit: str = field(default="", compare=False)
    meaning: str = field(default="", compare=False)
    type: str = field(default="float32", compare=False)
    group: Group = field(default="shape", compare=False)
    axis: str = field(default="", compare=False)
    label: str = field(default="", compare=False)
    words: tuple[str, ...] = field(default=(), compare=False, repr=False)
    optional: bool = field(default=False, compare=False)
    error_of: str = field(default="", compare=False)
    formats: Mapping[str, str] = field(default_factory=dict, compare=False, repr=False)
    error_formats: Mapping[str, str] | None = field(default=None, compare=False, repr=False)

    @property
    def is_whole(self) -> bool:
        """Whether its numbers are whole by their meaning, whatever type they have."""
        return bool(self.type) and np.dtype(self.type).kind in "iub"

    @property
    def kind(self) -> Kind:
        """How other programs' files transform its numbers."""
        if self.name == "frame":
            return "frame"
        if self.unit == "px":
            return "position" if self.name == self.axis else "length"
        return "light" if self.unit == "counts/px" else "number"

    def along_axes(self) -> tuple[Column, ...]:
        """Return the columns that a row stands for: one for each axis, or itself."""
        if "{axis}" not in self.name:
            return (self,)
        return tuple(self._along(axis) for axis in AXES)

    def standard_error(self) -> Column:
        """Return the column of its standard error."""
        return Column(
            self.name + STDERR, self.unit, f"Standard error of {self.name}.", axis=self.axis,
            group=self.group, error_of=self.name, formats=self.error_formats or {},
        )  # fmt: skip

    def _along(self, axis: str) -> Column:
        texts = {
            "axis": axis, "line": AXES[axis], "across": {"y": "x", "x": "y"}.get(axis, axis),
            "first": "the centre of the first pixel",
        }  # fmt: skip
        if axis in IN_PLANE:
            texts |= {"yx": axis, "YX": axis.upper(), "number": str("xy".index(axis) + 1)}
        else:
            texts |= {"z": axis, "first": "the first plane, or in nm what another program took"}
        errors, unit = self.error_formats, self.unit if axis in IN_PLANE else PLANES
        return replace(
            self, name=self.name.format(**texts), meaning=self.meaning.format(**texts), axis=axis,
            unit=unit,
            label=self.label.format(**texts), formats=_filled(self.formats, texts),
            error_formats=None if errors is None else _filled(errors, texts),
        )  # fmt: skip


def _filled(names: Mapping[str, str], texts: Mapping[str, str]) -> Mapping[str, str]:
    """Return the names in formats along an axis, of those that have it."""
    filled = {}
    for name, title in names.items():
        with suppress(KeyError):
            filled[name] = title.format(**texts)
    return filled


#: One row a column.
ROWS = (
    Column(
        "frame", "", "Frame of the image; the first is 0.", "int64", "index",
        formats={
            "picasso": "frame", "thunderstorm": "frame", "smap": "frame", "decode": "frame_ix",
            "smlm": "frame", "trackmate": "FRAME", "rsfish": "t",
        },
    ),
    Column(
        CHANNEL, "", "Channel of the image that the spot is in; other programs count or name it as "
        "they do.", "", "index", formats={"rsfish": "c"},
    ),
    Column(
        PLANE, "", "Plane along z that the spot was found in: each is fitted by itself, and a spot "
        "counts once for each plane in which it is seen.", "int64", "index",
    ),
    Column(
        "{axis}", "px",
        "Centre of the spot along the image's {line}s axis; 0 is {first}.",
        "float64", "position",
        formats={
            "picasso": "{axis}", "thunderstorm": "{axis} [nm]", "smap": "{axis}nm",
            # DECODE's x runs down the rows.
            "decode": "{across}", "smlm": "{axis}", "trackmate": "POSITION_{YX}",
            "rsfish": "{yx}",
        },
        error_formats={
            "picasso": "lp{axis}", "decode": "{across}_sig", "smlm": "{axis}_precision",
            # Of y and x, it has one for both.
            "thunderstorm": "uncertainty_{z} [nm]",
        },
    ),
    Column(
        "z_p_value", "", "Probability that widths of a spot are so far from the curves of the "
        "calibration, by noise: below 0.001 it is most likely something else.", group="fit",
    ),
    Column(
        "z_nm", "nm", "Centre of the spot along z, by the distance of the planes; 0 is the first "
        "plane.", "float64", "position", "z", error_formats={},
    ),
    Column(
        Z_OF_OTHERS, PLANES, "Place along the optical axis in planes, as another program found "
        "it.", "", "other", formats={"rsfish": "z"},
    ),
    Column(
        "sigma", "px", "Standard deviation of the spot.", label="σ",
        formats={"thunderstorm": "sigma [nm]", "smlm": "sigma"},
        error_formats={"smlm": "sigma_stderr"},
    ),
    Column(
        "sigma_{axis}", "px", "Standard deviation along {axis}.", label="σ along {axis}",
        formats={
            "picasso": "s{yx}", "thunderstorm": "sigma{number} [nm]", "smlm": "sigma_{yx}",
        },
        error_formats={"picasso": "s{yx}_unc", "smlm": "sigma_{yx}_stderr"},
    ),
    Column(
        "angle", "°", "Angle from the x axis to the axis of sigma_x, positive towards y.",
        error_formats={},
    ),
    Column("width", "px", "Half width of the spot; the model says at which height.",
           error_formats={}),
    Column(
        "exponent", "", "How steeply the wings fall: 1 has the widest, many times 1 makes a "
        "Gaussian.", error_formats={},
    ),
    Column(
        "amplitude", "counts", "Height of the spot above the background, in the camera's counts.",
        group="light", formats={"rsfish": "intensity"}, error_formats={},
    ),
    Column(
        "photons", "photons", "Light of the whole spot: the integral of the fitted profile, "
        "divided by the camera gain where it is known. Without a gain, it is in counts. That of a "
        "model of your own is its sum over the pixels of the ROI: light beside it is left out.",
        group="light",
        formats={
            "picasso": "photons", "thunderstorm": "intensity [photon]", "smap": "phot",
            "decode": "phot", "smlm": "intensity",
        },
        error_formats={"picasso": "photons_unc", "decode": "phot_sig"},
    ),
    Column(
        "background", "counts/px",
        "Level below the spot, in counts per pixel, without the camera offset.", group="light",
        formats={
            "picasso": "bg", "thunderstorm": "offset [photon]", "smap": "bg", "decode": "bg",
            "smlm": "background",
        },
        error_formats={"picasso": "bg_unc", "decode": "bg_sig"},
    ),
    Column(
        "chi_square", "counts²", "χ², what the fit makes as small as it can: the sum of the "
        "squared residuals of all pixels of the ROI (weighted least squares: each times its "
        "weight), or for maximum likelihood the Poisson deviance.", group="fit", label="χ²",
        formats={"picasso": "chi_square", "thunderstorm": "chi2"},
    ),
    Column(
        "reduced_chi_square", "counts²", "χ² divided by the degrees of freedom, which are the "
        "pixels of the ROI less the fitted parameters: for least squares the residual's variance, "
        "for maximum likelihood about 1 if the model is right.", group="fit", label="reduced χ²",
    ),
    Column(
        "iterations", "", "How many iterations the fit took.", "uint16", "fit",
        formats={"picasso": "iterations"},
    ),
    Column(
        "score", "", "How far the spot stands out of the noise, as a normal deviate: the number "
        "of false spots sets how far it must; 4.3 are 10 false spots in 10⁶ pixels. Only spots "
        "that were detected have one.",
        group="fit", formats={"trackmate": "QUALITY"},
    ),
    Column(
        GROUP, "", "Number of the fit that the spot belongs to, from 0 on in each result, file or "
        "part of a folder: spots that were fitted together have the same one. Only fits of several "
        "spots have it.", "int64", "fit",
        optional=True, formats={"picasso": GROUP},
    ),
    Column(
        GROUP_SIZE, "", "How many spots were fitted together with this one, itself included.",
        "int64", "fit", optional=True,
    ),
    Column(
        DISTANCE, "px", "Distance to the nearest other spot of the frame, NaN if none is within "
        "10 σ. In stacks, planes are as many pixels apart as the voxel size says; without it, so "
        "many that the PSF is round. Only joint fits have it.", group="fit", optional=True,
    ),
    Column(
        EVIDENCE, "", "How much likelier the spot makes the data: the natural logarithm, by the "
        "light and its standard error. Only joint fits have it.", group="fit", optional=True,
    ),
    Column(STOP, "", "Why the fit stopped.", "uint8", "quality", words=STOP_NAMES),
    Column(
        "flags", "", "What may be wrong with the fit, a bit for each reason: Inspect explains "
        "them.", "uint32", "quality",
    ),
    Column("good", "", "1 for fits without a flag that rejects them, 0 for doubtful ones.", "bool",
           "quality"),
    Column(
        "roi_{axis}", "px", "First {line} of the pixels that were fitted; -1 outside the image.",
        "int32", "roi",
    ),
    Column(
        "label", "", "Label of the pixel that the centre lies in, of the Labels layer chosen under "
        "Cells; 0 is none.", "int64", "analysis", optional=True,
    ),
    Column(
        TRACK, "", "Number of the track that the spot belongs to; -1 for none.", "int64",
        "analysis", optional=True, formats={"trackmate": "TRACK_ID"},
    ),
    Column(
        REGISTERED, "", "Whether the centre was mapped onto another channel.", "bool", "analysis",
        optional=True,
    ),
    Column(
        DETECTIONS, "", "Number of fits that were merged to the event.", "int64", "analysis",
        optional=True,
    ),
    Column(
        "n_frames", "", "Number of frames from the event's first fit to its last.", "int64",
        "analysis", optional=True,
    ),
    Column(
        "dark_frames", "", "Number of frames within the event without a fit.", "int64", "analysis",
        optional=True,
    ),
    Column(
        "scatter_chi_square", "", "Scatter of the positions of an event's fits by their standard "
        "errors: 1 on average, more for two molecules, drift, or errors that are too small.",
        group="analysis",
    ),
    Column(
        "truncated", "", "Whether the event begins in the first frame or ends in the last, so that "
        "it may be longer.", "bool", "analysis", optional=True,
    ),
    Column(
        PARENT, "", "Row of the event that the fit was merged to; -1 for none.", "int64",
        "analysis", optional=True,
    ),
    Column(
        CLUSTER, "", "Number of the cluster that the spot belongs to; -1 for none.", "int64",
        "analysis", optional=True,
    ),
    Column(
        REFIT, "", "0 for a spot with the settings of the layer; else the number, from 1 on, of "
        "those with which it was fitted again in Inspect: the layer's metadata list them as "
        "refits.", "", "viewer",
    ),
    Column("radius", "px", "Radius of the spot, as another program found it.", "", "other",
           formats={"trackmate": "RADIUS"}),
    Column("prob", "", "Probability that there is a spot, as another program found it.", "",
           "other", formats={"decode": "prob"}),
    Column("id", "", "Number that another program has given the spot.", "", "other",
           formats={"decode": "id"}),
)  # fmt: skip

_VALUES = tuple(column for row in ROWS for column in row.along_axes())
_ERRORS = tuple(one.standard_error() for one in _VALUES if one.error_formats is not None)
#: All columns by name, those of standard errors last.
COLUMNS: Mapping[str, Column] = MappingProxyType({one.name: one for one in (*_VALUES, *_ERRORS)})
#: Columns that fits have, whatever the model: no names for a model's own parameters.
COMMON = frozenset(
    one.name for one in _VALUES if one.group not in ("shape", "other") and one.axis != "z"
)


def is_index(name: str) -> bool:
    """Whether a column indexes one of the image's leading axes."""
    return name == "frame" or _INDEX.fullmatch(name) is not None


def index_of(names: Iterable[str], axes: int | None = None) -> tuple[str, ...]:
    """Return the columns that index an image's leading axes, in the order of these.

    Parameters
    ----------
    names : iterable of str
        All columns, in order.
    axes : int, optional
        How many leading axes there are, where that is known. If there is one more than there are
        columns of frames, it is that of channels, fitted one by one.

    Examples
    --------
    >>> index_of(["axis_0", "axis_1", "frame", "y", "x"]), index_of(["channel", "frame", "y"], 2)
    (('axis_0', 'axis_1', 'frame'), ('channel', 'frame'))
    """
    index = [name for name in names if is_index(name) or name == CHANNEL]
    if CHANNEL in index and (axes is None or len(index) > axes):
        index.remove(CHANNEL)
    return tuple(index)


def describe(name: str, shape: Iterable[Column] = ()) -> Column:
    """Return the description of a column, also of one that the table does not have.

    Parameters
    ----------
    name : str
        Name of the column.
    shape : iterable of Column
        Those of the model's shape parameters, where the model is known; by default those of the
        table.

    Examples
    --------
    >>> describe("axis_2").meaning, describe("photons_stderr").unit
    ("Index along the image's axis 2; the first is 0.", 'photons')
    >>> describe("brightness").meaning
    'A feature that was added to the layer.'
    """
    own = {column.name: column for column in shape}
    if name in own:
        return own[name]
    if name.removesuffix(STDERR) in own:
        return own[name.removesuffix(STDERR)].standard_error()
    if name in COLUMNS:
        return COLUMNS[name]
    if number := _INDEX.fullmatch(name):
        meaning = f"Index along the image's axis {number[1]}; the first is 0."
        return replace(COLUMNS["frame"], name=name, meaning=meaning, formats={})
    if name.endswith(STDERR):
        return Column(name.removesuffix(STDERR), group="other").standard_error()
    return Column(name, "", "A feature that was added to the layer.", "", "other")


def columns_in(format: str) -> Iterator[Column]:
    """Return the columns that a format has, x before y as other programs have them.

    Standard errors come last.

    Examples
    --------
    >>> [column.name for column in columns_in("rsfish")]
    ['frame', 'channel', 'x', 'y', 'z_px', 'amplitude']
    """
    values = [column for row in ROWS for column in reversed(row.along_axes())]
    errors = [one.standard_error() for one in values if one.error_formats is not None]
    return (column for column in (*values, *errors) if format in column.formats)


def as_column(name: str, values: NDArray[Any]) -> NDArray[Any]:
    """Return whole numbers in the type that fits have them in, if that holds all of them exactly.

    Examples
    --------
    >>> import numpy as np
    >>> as_column("roi_y", np.array([3.0, 12.0])).dtype, as_column("roi_y", np.array([np.nan]))
    (dtype('int32'), array([nan]))
    """
    column = describe(name)
    if not column.is_whole or column.type in ("bool", values.dtype.name):
        return values
    ends = np.iinfo(column.type)
    inside = (values >= ends.min) & (values <= ends.max)
    if not inside.all() or not (values == np.rint(values)).all():
        return values
    return values.astype(column.type)


def numbered(group: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return numbers of groups from 0 on, in the order in which the groups come.

    Examples
    --------
    >>> import numpy as np
    >>> numbered(np.array([7, 7, 3, 7, 5]))
    array([0, 0, 1, 0, 2])
    """
    step = np.diff(group, prepend=group[:1])
    if (step >= 0).all():
        return np.cumsum(step > 0)
    _, first, place = np.unique(group, return_index=True, return_inverse=True)
    return np.argsort(np.argsort(first))[place].astype(np.int64)


class GroupCounter:
    """Number groups of spots uniquely across parts that each count from 0.

    Examples
    --------
    >>> import numpy as np
    >>> count = GroupCounter()
    >>> [count({"group": np.array(part)})["group"].tolist() for part in ([0, 0, 1], [0, -1, 1, 1])]
    [[0, 0, 1], [2, -1, 3, 3]]
    """

    def __init__(self) -> None:
        self._next = 0

    def __call__(self, columns: Mapping[str, NDArray[Any]]) -> Mapping[str, NDArray[Any]]:
        """Return the columns of the next part; what is below 0, or no number, is no group."""
        group = columns.get(GROUP)
        if group is None or group.dtype.kind not in "iuf":
            return columns
        group = group.copy()
        group[group >= 0] += self._next
        self._next = 1 + int(group.max(initial=self._next - 1, where=group >= 0))
        return {**columns, GROUP: group}
