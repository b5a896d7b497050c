"""Picasso's localisations: HDF5 with YAML beside it; frames from 0, centres as ours.

Before its version 1.0 Picasso wrote lengths in pixels; from then on it writes nm, and marks such
files. Both read what has no marker, in pixels, with the size of one beside: so it is written here.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...models.columns import GROUP
from ...version import __version__
from ..table import TEXT, SpotTable, UnreadableFileError
from .format import ExportReport, Format
from .hdf5 import array_of, created, need_h5py, opened, sniffed
from .image_info import ImageInfo
from .mapping import (
    LAST_U4,
    Convention,
    from_format,
    imported_table,
    join_equal_widths,
    mappings_of,
    to_format,
    unmapped,
    with_frame_number,
)

CONVENTION, NANOMETRES = Convention(), Convention(unit=1.0)
#: Marks a file whose lengths are in nm, with the version of the format.
MARKER = "picasso_format"
_MAPPINGS = mappings_of("picasso")
#: Columns in single precision, whatever ours have.
_SINGLE = frozenset(one.title for one in _MAPPINGS) - {"frame", "iterations", GROUP}
#: What it drops rows for below 0, if they have it.
_NOT_NEGATIVE = ("x", "y", "lpx", "lpy", "lpz", "photons", "ellipticity", "sx", "sy")
_ELLIPTICITY = "ellipticity"
#: What it always has. It drops rows without a number there, too.
_ITS_OWN = frozenset({"frame", "x", "y", "photons", "sx", "sy", "bg", "lpx", "lpy", _ELLIPTICITY})
#: Stands for NaN in columns that Picasso does not know: it would drop the row.
_UNKNOWN = -1
_LOCS, _METADATA, _SECTION = "locs", "metadata", "napari-spotfit"
_EXTRA_NAMES = ("stop_condition",)


class Picasso(Format):
    """Picasso's localisations, in pixels or nm, frames from 0."""

    name, title, suffix = "picasso", "Picasso", ".hdf5"
    unit = "px (reads nm, too)"
    needs = "`napari-spotfit[hdf5]`"
    pattern, beside = "*_locs*.hdf5", (".yaml",)

    def sniff(self, path: Path, head: bytes) -> bool:
        """Whether a file has Picasso's localisations."""
        return sniffed(path, head, (_LOCS,))

    def read(self, path: Path, image: ImageInfo) -> SpotTable:
        """Read localisations, and what is known of the image from the YAML file or the metadata."""
        with opened(path) as file:
            if _LOCS not in file or not getattr(file[_LOCS].dtype, "names", None):
                raise UnreadableFileError(f"it has no table “{_LOCS}” of Picasso's")
            locs = array_of(file, _LOCS)
            metadata = array_of(file, _METADATA)[()] if _METADATA in file else b"[]"
            marker = file.attrs.get(MARKER)
        info = _info(path, metadata)
        known = _image_info(image, info)
        found = {name: locs[name] for name in locs.dtype.names or ()}
        for name, values in found.items():
            if values.ndim != 1 or values.dtype.kind not in "fiub":
                raise UnreadableFileError(f"its column {name!r} has no plain numbers")
        found.pop(_ELLIPTICITY, None)
        own = info.get(_SECTION)
        own = own if isinstance(own, Mapping) else {}
        for name in set(own.get("unknown", ())) & set(found):
            found[name] = np.where(found[name] == _UNKNOWN, np.nan, found[name])
        convention = convention_of(info.get(MARKER) if marker is None else marker)
        columns = from_format(found, _MAPPINGS, convention, known)
        _round(columns)
        index = [name for name in own.get("index", ()) if name in columns and name != "frame"]
        return imported_table(columns, known, (*index, "frame"))

    def write(
        self, path: Path, table: SpotTable, image: ImageInfo, report: ExportReport
    ) -> dict[str, str]:
        """Write localisations and metadata; return the YAML that belongs beside them."""
        need_h5py()
        table = with_frame_number(table, report, LAST_U4 - CONVENTION.first_frame)
        columns = to_format(_elliptical(table), _MAPPINGS, CONVENTION, image, report)
        columns = {n: v.astype(np.float32) if n in _SINGLE else v for n, v in columns.items()}
        columns["frame"] = columns["frame"].astype(np.uint32)
        if "sx" in columns and "sy" in columns:
            columns[_ELLIPTICITY] = _ellipticity(columns["sx"], columns["sy"])
        taken = {one.name for one in _MAPPINGS} | {"sigma", "sigma_stderr", *_EXTRA_NAMES}
        extras = [name for name in unmapped(table, taken) if table.about.columns[name].type != TEXT]
        extras += [name for name in table.columns if name in _EXTRA_NAMES]
        report.columns += [name for name in unmapped(table, taken) if name not in extras]
        unknown = _add_extras(columns, table, extras, report)
        shape = _shape(columns, image)
        _count_dropped(columns, shape, report)
        dtype = [(name, values.dtype) for name, values in columns.items()]
        rows = np.empty(len(table), dtype)
        for name, values in columns.items():
            rows[name] = values
        info: list[dict[str, Any]] = [
            {
                "Generated by": f"napari-spotfit {__version__}",
                "Frames": shape[0], "Height": shape[1], "Width": shape[2],
                **({} if image.pixel_size is None else {"Pixelsize": image.pixel_in("", 1.0)}),
                _SECTION: {"index": list(table.about.index), "unknown": unknown},
            }
        ]  # fmt: skip
        if image.pixel_size is not None and image.pixel_size[0] != image.pixel_size[1]:
            report.rows.append("pixels that are not square: Picasso takes their mean size")
        with created(path) as file:
            file.create_dataset(_LOCS, data=rows)
            file.create_dataset(_METADATA, data=json.dumps(info))
        # JSON is YAML, which would need a library to be written.
        return {".yaml": "\n---\n".join(json.dumps(part, indent=1) for part in info) + "\n"}


def convention_of(marker: Any) -> Convention:
    """Return the unit of a file's lengths: nm where it has Picasso's marker, else pixels.

    Raises
    ------
    UnreadableFileError
        If the marker is none of a version.

    Examples
    --------
    >>> convention_of("1.0").unit, convention_of(None).unit
    (1.0, None)
    """
    if marker is None:
        return CONVENTION
    text = marker.decode(errors="replace") if isinstance(marker, bytes) else str(marker)
    version = re.fullmatch(r"\s*v?(\d+)(\.\w+)*\s*", text)
    if version is None:
        raise UnreadableFileError(
            f"its {MARKER} is {text!r}, which is no version such as 1.0: whether its lengths are "
            "in pixels or nm is not known"
        )
    return NANOMETRES if int(version[1]) >= 1 else CONVENTION


def _elliptical(table: SpotTable) -> SpotTable:
    """Return a table of round spots as one of elliptical ones."""
    columns, known = dict(table.columns), dict(table.about.columns)
    for end in ("", "_stderr"):
        if f"sigma{end}" in columns:
            columns |= {f"sigma_{axis}{end}": columns[f"sigma{end}"] for axis in "xy"}
    return SpotTable(columns, type(table.about)(known, settings=table.about.settings))


def _round(columns: dict[str, NDArray[Any]]) -> None:
    """Let spots be round again, with one standard error of their width."""
    join_equal_widths(columns)
    errors = [columns.get(f"sigma_{axis}_stderr") for axis in "xy"]
    if "sigma" in columns and errors[0] is not None and errors[1] is not None:
        columns["sigma_stderr"] = errors[0]
        del columns["sigma_x_stderr"], columns["sigma_y_stderr"]


def _ellipticity(sx: NDArray[Any], sy: NDArray[Any]) -> NDArray[np.float32]:
    """Return (a − b)/a of the wider and the narrower σ."""
    wide, narrow = np.maximum(sx, sy), np.minimum(sx, sy)
    with np.errstate(invalid="ignore", divide="ignore"):
        shares: NDArray[np.float32] = ((wide - narrow) / wide).astype(np.float32)
    return shares


def _add_extras(
    columns: dict[str, NDArray[Any]], table: SpotTable, extras: list[str], report: ExportReport
) -> list[str]:
    """Add columns that Picasso does not know; return those in which −1 stands for NaN."""
    unknown = []
    filled = np.zeros(len(table), bool)
    for name in extras:
        columns[name] = table.columns[name]
    for name, values in columns.items():
        if name in _ITS_OWN or values.dtype.kind != "f":
            continue
        odd = ~np.isfinite(values)
        if odd.any():
            columns[name] = np.where(odd, values.dtype.type(_UNKNOWN), values)
            filled |= odd
            unknown.append(name)
    count = int(np.count_nonzero(filled))
    report.count(count, f"with −1 for what is not known: {', '.join(unknown)}")
    return unknown


def _count_dropped(
    columns: Mapping[str, NDArray[Any]], shape: tuple[int, int, int], report: ExportReport
) -> None:
    """Count the rows that Picasso drops when it opens the file."""
    drops = np.zeros(len(columns["x"]), bool)
    reasons = []

    def drop(odd: NDArray[np.bool_], why: str) -> None:
        nonlocal drops
        if odd.any():
            reasons.append(why)
            drops = drops | odd

    for name, values in columns.items():
        if values.dtype.kind == "f":
            drop(~np.isfinite(values), f"no {name}")
    for name in _NOT_NEGATIVE:
        if name in columns:
            drop(columns[name] < 0, f"{name} < 0")
    drop(columns["x"] >= shape[2], "x ≥ Width")
    drop(columns["y"] >= shape[1], "y ≥ Height")
    count = int(np.count_nonzero(drops))
    report.count(count, f"that Picasso will drop when it opens the file: {', '.join(reasons)}")


def _shape(columns: Mapping[str, NDArray[Any]], image: ImageInfo) -> tuple[int, int, int]:
    """Return frames, rows and columns: those of the image, else the fewest that have all spots."""
    last = {
        name: max((int(values) + 1 for values in [columns[name].max()] if values >= 0), default=1)
        if len(columns[name])
        else 1
        for name in ("frame", "y", "x")
    }
    frames, y, x = last["frame"], last["y"], last["x"]
    if image.shape is None:
        return frames, y, x
    if len(image.shape) > 2:
        frames = image.shape[-3]
    return frames, image.shape[-2], image.shape[-1]


def _image_info(image: ImageInfo, info: Mapping[str, Any]) -> ImageInfo:
    size, shape = info.get("Pixelsize"), [info.get(name) for name in ("Frames", "Height", "Width")]
    known = image.pixel_size
    if known is None and isinstance(size, (int, float)) and size > 0:
        known = float(size), float(size)
    whole = [one for one in shape if isinstance(one, int) and one > 0]
    return ImageInfo(known, tuple(whole) if len(whole) == 3 else image.shape)


def _info(path: Path, metadata: Any) -> dict[str, Any]:
    """Return what the YAML file beside says, else the file itself, as one."""
    beside = path.with_suffix(".yaml")
    parts: Any = []
    if beside.is_file() and find_spec("yaml") is not None:
        parts = _documents(beside)
    else:
        try:
            parts = json.loads(metadata)
        except (TypeError, ValueError) as error:
            raise UnreadableFileError(f"its “{_METADATA}” is damaged: {error}") from None
    info: dict[str, Any] = {}
    for part in parts if isinstance(parts, list) else ():
        info |= part if isinstance(part, dict) else {}
    return info


def _documents(path: Path) -> list[Any]:
    """Return the parts of a YAML file; what stands for Python's own objects is left out."""
    import yaml

    class Loader(yaml.SafeLoader):  # type: ignore[misc]
        """Knows nothing but plain values."""

    Loader.add_multi_constructor("tag:yaml.org,2002:python/", lambda *_: None)
    try:
        return list(yaml.load_all(path.read_text(encoding="utf-8"), Loader))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        place = " ".join(str(error).split())
        raise UnreadableFileError(f"“{path.name}” beside it is damaged: {place}") from None
