"""Where our columns live in other programs' tables, and how their numbers are told there."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ...models.stopping import StopCondition
from ..table import FIT, SpotTable, UnreadableFileError, table_of
from .scene import Scene, layer_of

Kind = Literal["place", "length", "light", "frame", "number"]
Columns = Mapping[str, NDArray[Any]]
#: What follows from other columns, and is made anew.
DERIVED_NAMES = ("good",)
#: The last whole number in four bytes without a sign, in which some formats have frames.
LAST_U4 = 2**32 - 1
_STOP = "stop_condition"
_WHOLE = {"frame": "i8", "iterations": "u2", "flags": "u4", "roi_y": "i4", "roi_x": "i4"}
_DOUBLE = frozenset({"y", "x"})
_SINGLE = frozenset({
    "sigma", "sigma_x", "sigma_y", "width", "exponent", "angle", "amplitude", "background",
    "photons", "chi_square", "reduced_chi_square", "score",
})  # fmt: skip


@dataclass(frozen=True)
class Convention:
    """How a format tells places.

    Parameters
    ----------
    unit : float or None
        Its unit of length in nm; None for pixels.
    corner : float
        Where the centre of the first pixel is, in pixels: 0, or 0.5 where its corner is 0.
    first_frame : int
        The number of the first frame.
    """

    unit: float | None = None
    corner: float = 0.0
    first_frame: int = 0


@dataclass(frozen=True)
class Home:
    """One of our columns in a format.

    Parameters
    ----------
    title : str
        What it is called there.
    name : str
        What it is called here.
    kind : str
        ``"place"``, ``"length"``, ``"light"`` in photons, ``"frame"``, or ``"number"``, which is
        the same in both.
    """

    title: str
    name: str
    kind: Kind = "number"


_ERRORS = {name: Home(name, name, "length") for name in ("x_stderr", "y_stderr")}


@dataclass
class Loss:
    """What a format does not take, to be told in one warning."""

    #: Columns without a home; numbers of rows, each with what is the matter with them.
    columns: list[str] = field(default_factory=list)
    rows: list[str] = field(default_factory=list)
    #: How many rows are not written.
    left_out: int = 0

    def count(self, rows: int, what: str) -> None:
        """Note that so many rows have something the matter with them."""
        if rows:
            self.rows.append(f"{rows} {'row' if rows == 1 else 'rows'} {what}")

    def leave_out(self, rows: int, what: str) -> None:
        """Note that so many rows are not written, and why."""
        self.count(rows, f"{what} left out")
        self.left_out += rows

    def told(self, title: str, name: str) -> str:
        """Return the warning; nothing if nothing was lost."""
        parts = list(self.rows)
        if self.columns:
            parts.append(f"no place for {len(self.columns)} columns: {', '.join(self.columns)}")
        return f"“{name}”, {title}: {'; '.join(parts)}" if parts else ""


def placed(table: SpotTable, loss: Loss) -> SpotTable:
    """Return the rows that have a place; the others are counted: they were not fitted."""
    there = np.isfinite(table.columns["y"]) & np.isfinite(table.columns["x"])
    loss.leave_out(int(np.count_nonzero(~there)), "without a place")
    return _rows(table, there)


def counted(table: SpotTable, loss: Loss, last: int | None = None) -> SpotTable:
    """Return the rows whose frame a format can tell, from 0 on; the others are counted.

    A frame below 0 would be another's in a type without a sign, and in a format that counts from 1
    would let those who read it count from 0.

    Parameters
    ----------
    table : SpotTable
        The rows.
    loss : Loss
        What counts them.
    last : int, optional
        The last frame, counted from 0, that the format's type has.
    """
    if "frame" not in table.columns:
        return table
    frames = table.columns["frame"]
    there = (frames >= 0) if last is None else (frames >= 0) & (frames <= last)
    what = "with a frame below 0" if last is None else f"with a frame outside 0 to {last}"
    loss.leave_out(int(np.count_nonzero(~there)), what)
    return _rows(table, there)


def _rows(table: SpotTable, there: NDArray[np.bool_]) -> SpotTable:
    if there.all():
        return table
    return SpotTable({name: values[there] for name, values in table.columns.items()}, table.about)


def from_first(convention: Convention, found: Columns, title: str) -> Convention:
    """Return how a file counts its frames: from 0, whatever the format says, if it has a frame 0.

    Parameters
    ----------
    convention : Convention
        That of the format.
    found : mapping of str to ndarray
        The file's columns.
    title : str
        What its column of frames is called.
    """
    frames = found.get(title, ())
    return replace(convention, first_frame=0) if np.any(np.less(frames, 1)) else convention


def theirs(
    table: SpotTable, homes: Iterable[Home], convention: Convention, scene: Scene, loss: Loss
) -> dict[str, NDArray[Any]]:
    """Return a table's columns as a format has them, by its titles.

    Only what the table has; a spot of an image without frames is in the first. Photons that
    the camera's gain does not tell are counts, of which `loss` says so.
    """
    settings = table.about.settings
    gain = None if settings is None else settings.gain
    made = {}
    for home in homes:
        if home.name in table.columns:
            values = table.columns[home.name]
            made[home.title] = _to_theirs(values, home, convention, scene, gain or 1.0)
        elif home.kind == "frame":
            made[home.title] = np.full(len(table), convention.first_frame, np.int64)
    light = any(home.name == "photons" and home.title in made for home in homes)
    if light and table.about.columns["photons"].unit == "counts":
        loss.rows.append("light is in counts instead of photons, as the camera's gain is not known")
    return made


def homeless(table: SpotTable, names: Collection[str]) -> list[str]:
    """Return the columns of a table that are not among those a format takes."""
    return [
        name
        for name, column in table.about.columns.items()
        if name not in names and name not in DERIVED_NAMES and column.role == FIT
    ]


def ours(
    found: Columns, homes: Iterable[Home], convention: Convention, scene: Scene
) -> dict[str, NDArray[Any]]:
    """Return columns as we have them, by our names, of those that a format has by its titles.

    What has no home here keeps its title for a name, marked where that would mean something else.
    """
    known = {home.title: home for home in homes}
    taken = {home.name for home in known.values()}
    made = {}
    for title, values in found.items():
        home = known.get(title)
        name = f"{title} (in the file)" if title in taken else title
        name = name if home is None else home.name
        values = values if home is None else _to_ours(values, home, convention, scene)
        made[name] = as_ours(name, values, title)
    return made


def as_ours(name: str, values: NDArray[Any], title: str) -> NDArray[Any]:
    """Return a column in the type that fits have it in.

    Raises
    ------
    UnreadableFileError
        If it should have whole numbers and has others.
    """
    whole = _WHOLE.get("frame" if name.startswith("axis_") else name)
    if whole is not None:
        kind = np.iinfo(whole)
        with np.errstate(invalid="ignore"):
            odd = ~((values >= kind.min) & (values <= kind.max) & (values == np.rint(values)))
        if odd.any():
            row = int(np.argmax(odd))
            raise UnreadableFileError(
                f"row {row + 1}, column {title!r}: {values[row]} is not one of its whole numbers"
            )
        return values.astype(whole)
    if name in _DOUBLE:
        return values.astype(np.float64)
    if name in _SINGLE or name.endswith("_stderr"):
        with np.errstate(over="ignore"):
            return values.astype(np.float32)
    return values.astype(values.dtype.newbyteorder("="), copy=False)


def one_error(
    table: SpotTable, convention: Convention, scene: Scene, loss: Loss
) -> NDArray[np.float64] | None:
    """Return the precision of both axes together, the root of their mean square; None without."""
    squares = [
        _to_theirs(table.columns[name].astype(np.float64), home, convention, scene, 1.0) ** 2
        for name, home in _ERRORS.items()
        if name in table.columns
    ]
    if len(squares) < len(_ERRORS):
        return None
    loss.rows.append("x_stderr and y_stderr become one, the root of their mean square")
    mean: NDArray[np.float64] = np.sqrt(sum(squares) / 2)
    return mean


def both_errors(
    values: NDArray[Any], convention: Convention, scene: Scene
) -> dict[str, NDArray[Any]]:
    """Return the precision of each axis, of which a format has told one for both."""
    return {
        name: as_ours(name, _to_ours(values, home, convention, scene), name)
        for name, home in _ERRORS.items()
    }


def one_width(columns: dict[str, NDArray[Any]]) -> None:
    """Let spots be round that are as wide along x as along y, all of them."""
    names = "sigma_x", "sigma_y"
    if not set(names) <= set(columns):
        return
    x, y = (columns[name] for name in names)
    if np.array_equal(x, y, equal_nan=True):
        columns["sigma"] = columns.pop("sigma_x")
        del columns["sigma_y"]


def table_of_theirs(
    columns: Mapping[str, NDArray[Any]], scene: Scene, index: tuple[str, ...] = ("frame",)
) -> SpotTable:
    """Return the table of spots that another program has found.

    Where no stop condition is told the program has accepted its spots: they count as converged.

    Raises
    ------
    UnreadableFileError
        If there are no places.
    """
    missing = [name for name in (*index, "y", "x") if name not in columns]
    if missing:
        raise UnreadableFileError(f"it has no column for {missing[0]!r}, which spots have")
    first = {name: columns[name] for name in (*index, "y", "x")}
    made = {**first, **{name: v for name, v in columns.items() if name not in first}}
    if _STOP not in made:
        there = np.isfinite(made["y"]) & np.isfinite(made["x"])
        codes = np.where(there, StopCondition.MIN_DELTA, StopCondition.INVALID)
        made[_STOP] = codes.astype(np.uint8)
    units = {"y": "px", "x": "px", "photons": "photons", "photons_stderr": "photons"}
    units |= {"background": "photons/px", "background_stderr": "photons/px", "z": "nm"}
    units |= {"z_stderr": "nm"}
    units |= dict.fromkeys(("sigma", "sigma_x", "sigma_y", "y_stderr", "x_stderr"), "px")
    units |= {f"{name}_stderr": "px" for name in ("sigma", "sigma_x", "sigma_y")}
    ndim = len(index) + 2
    layer = None if scene.pixel_size is None else layer_of(scene.pixel_size, ndim)
    image = None if scene.shape is None else {"shape": list(scene.shape)}
    return table_of(made, {}, units, index=index, layer=layer, image=image)


def _axis(name: str) -> str:
    base = name.removesuffix("_stderr").removeprefix("sigma_")
    return base if base in ("y", "x") else ""


def _to_theirs(
    values: NDArray[Any], home: Home, convention: Convention, scene: Scene, gain: float
) -> NDArray[Any]:
    if home.kind == "frame":
        return values + convention.first_frame
    if home.kind == "light":
        return values / gain if gain != 1 else values
    if home.kind == "number":
        return values
    size = 1.0 if convention.unit is None else scene.nanometres(_axis(home.name), convention.unit)
    shift = convention.corner if home.kind == "place" else 0.0
    return (values + shift) * size


def _to_ours(
    values: NDArray[Any], home: Home, convention: Convention, scene: Scene
) -> NDArray[Any]:
    if home.kind == "frame":
        return values - convention.first_frame
    if home.kind in ("light", "number"):
        return values
    size = 1.0 if convention.unit is None else scene.nanometres(_axis(home.name), convention.unit)
    shift = convention.corner if home.kind == "place" else 0.0
    return values / size - shift
