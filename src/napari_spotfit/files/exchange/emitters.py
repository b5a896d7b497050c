"""Read and write emitters: DECODE's in HDF5, and SMLM 0.2, a zip of binary tables."""

from __future__ import annotations

import json
import math
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...models.calibration import need_h5py
from ...models.columns import PLANES
from ...models.number_checks import is_plausible_nm
from ...untrusted import Allowance, PromiseError
from ..table import TEXT, SpotTable, UnreadableFileError
from .hdf5 import created, opened, sniffed
from .image_info import ImageInfo, nanometres_of
from .mapping import (
    LAST_U4,
    Convention,
    ExportReport,
    Format,
    counted_from,
    from_format,
    imported_table,
    mappings_of,
    to_format,
    unmapped,
    with_frame_number,
)

#: The format does not define the origin; this is ThunderSTORM's, for whose files it was made.
CORNER = 0.5
_MAPPINGS = mappings_of("smlm")
#: Our units, and those of the format.
_UNITS = {"px": "nm", PLANES: "nm", "photons": "photon", "counts/px": "photon"}
#: Non-standard headers of some programs, and the standard ones.
_ALSO = {"position_x": "x", "position_y": "y", "position_z": "z", "local_background": "background"}
_TYPES = frozenset({
    "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "float32", "float64",
})  # fmt: skip
_MANIFEST, _TABLE, _OWN, _VERSION = "manifest.json", "table.bin", "napari-spotfit", "0.2"
_FORMAT = "smlm-table(binary)"
#: What zipfile raises for files that are cut off, packed in a way it does not know, or encrypted.
_DAMAGED = (zipfile.BadZipFile, zipfile.LargeZipFile, EOFError, NotImplementedError, RuntimeError)
PIXELS = Convention()
NANOMETRES = Convention(unit=1.0)
_OF_DECODE = mappings_of("decode")
#: Arrays of three columns each, one per axis.
_TRIPLES = {
    "xyz": ("x", "y", "z"),
    "xyz_sig": ("x_sig", "y_sig", "z_sig"),
    "xyz_cr": ("x_cr", "y_cr", "z_cr"),
}
_SINGLES = ("phot", "frame_ix", "id", "prob", "bg", "phot_cr", "bg_cr", "phot_sig", "bg_sig")
_NEEDED = ("data/xyz", "data/frame_ix", "data/phot", "meta")


class Smlm(Format):
    """Tables of SMLM 0.2, in nm as we write them."""

    name, title, suffix = "smlm", "SMLM 0.2", ".smlm"
    unit, origin, first_frame, needs = "nm", "0.5 px", "1", "size of a pixel"

    def sniff(self, path: Path, head: bytes) -> bool:
        """Whether a file is a zip with a manifest."""
        if not head.startswith(b"PK"):
            return False
        with zipfile.ZipFile(path) as archive:
            return _MANIFEST in archive.namelist()

    def read(self, path: Path, image: ImageInfo) -> SpotTable:
        """Read a file's tables, which must have equal columns; several get a column `channel`."""
        try:
            with zipfile.ZipFile(path) as archive:
                manifest = json.loads(_content(archive, _MANIFEST, _LONGEST_MANIFEST))
                tables = [one for one in manifest["files"] if one.get("type") == "table"]
                if len({one["name"] for one in tables}) < len(tables):
                    raise UnreadableFileError(f"its {_MANIFEST} names a table twice")
                formats = {one["format"]: manifest["formats"][one["format"]] for one in tables}
                allowance = Allowance(path.stat().st_size)
                for one in tables:
                    columns = len(formats[one["format"]]["headers"])
                    allowance.take(int(one["rows"]) * columns * 8, f"its table {one['name']!r}")
                parts = [_rows(archive, one, formats[one["format"]]) for one in tables]
        except (*_DAMAGED, ValueError, KeyError, TypeError, AttributeError) as error:
            if isinstance(error, (UnreadableFileError, PromiseError)):
                raise
            why = f"{error} is missing" if isinstance(error, KeyError) else str(error)
            raise UnreadableFileError(f"it is no SMLM file, or damaged: {why}") from None
        if not parts or any(list(part) != list(parts[0]) for part in parts):
            raise UnreadableFileError(
                f"its {_MANIFEST} names no table, or tables of different columns"
            )
        found = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
        if len(parts) > 1:
            lengths = [len(next(iter(part.values()))) for part in parts]
            names = np.array([str(one.get("channel", "")) for one in tables], object)
            found["channel"] = np.repeat(names, lengths)
        unit = _unit(next(iter(formats.values())))
        own = manifest.get(_OWN)
        convention = Convention(unit, CORNER, 1)
        if isinstance(own, Mapping):
            convention = Convention(unit, CORNER, int(own.get("first_frame", 1)))
        else:
            convention = counted_from(convention, found, "frame")
        if "frame" not in found and "x" in found:
            found["frame"] = np.full(len(found["x"]), convention.first_frame)
        return imported_table(from_format(found, _MAPPINGS, convention, image), image)

    def write(
        self, path: Path, table: SpotTable, image: ImageInfo, report: ExportReport
    ) -> dict[str, str]:
        """Write one table, in nm."""
        convention = Convention(1.0, CORNER, 1)
        table = with_frame_number(table, report, LAST_U4 - convention.first_frame)
        columns = to_format(table, _MAPPINGS, convention, image, report)
        units = {one.title: _UNITS.get(one.column.unit, "") for one in _MAPPINGS}
        units["frame"] = "frame"
        for name in unmapped(table, {one.name for one in _MAPPINGS}):
            if table.about.columns[name].type == TEXT:
                report.columns.append(name)
            else:
                columns[name] = table.columns[name]
        columns = {name: values.astype(_stored(values)) for name, values in columns.items()}
        packed = np.empty(len(table), [(name, values.dtype) for name, values in columns.items()])
        for name, values in columns.items():
            packed[name] = values
        kind = {
            "name": _FORMAT, "type": "table", "mode": "binary", "extension": ".bin",
            "columns": len(columns), "headers": list(columns),
            "dtype": [values.dtype.name for values in columns.values()],
            "shape": [1] * len(columns), "units": [units.get(name, "") for name in columns],
            "description": "x and y of the centre of the first pixel are half a pixel; "
            "frames from 1",
        }  # fmt: skip
        file = {
            "name": _TABLE, "type": "table", "format": _FORMAT, "channel": "default",
            "rows": len(table), "offset": {},
        }  # fmt: skip
        manifest = {
            "format_version": _VERSION, "formats": {_FORMAT: kind}, "files": [file],
            "name": "napari-spotfit", "description": "", "tags": ["SMLM"],
            _OWN: {"first_frame": 1, "corner": CORNER},
        }  # fmt: skip
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
            archive.writestr(_MANIFEST, json.dumps(manifest, indent=1))
            archive.writestr(_TABLE, packed.tobytes())
        return {}


def _stored(values: NDArray[Any]) -> np.dtype[Any]:
    """Return the format's type for a column."""
    if values.dtype.kind in "bu" and values.dtype.itemsize == 1:
        return np.dtype("u1")
    if values.dtype.kind in "iu":
        inside = not len(values) or (values.min() >= 0 and values.max() < 1 << 32)
        return np.dtype("<u4" if inside else "<f8")
    return np.dtype("<f4")


#: Longest accepted manifest in bytes.
_LONGEST_MANIFEST = 1 << 24


def _content(archive: zipfile.ZipFile, name: str, most: int) -> bytes:
    """Unpack a file of the archive, if it is not too long.

    Raises
    ------
    UnreadableFileError
        If it is longer than `most` bytes, which could exhaust the memory.
    """
    size = archive.getinfo(name).file_size
    if size > most:
        raise UnreadableFileError(f"its {name!r} has {size} bytes instead of {most}")
    with archive.open(name) as packed:
        return packed.read(most + 1)


def _rows(
    archive: zipfile.ZipFile, file: Mapping[str, Any], kind: Mapping[str, Any]
) -> dict[str, NDArray[Any]]:
    """Return the columns of one table, with their offsets added."""
    name = file["name"]
    if kind.get("mode") != "binary":
        raise UnreadableFileError(f"its table {name!r} is {kind.get('mode')!r} instead of binary")
    fields = []
    for header, dtype, shape in zip(kind["headers"], kind["dtype"], kind["shape"], strict=True):
        if dtype not in _TYPES:
            raise UnreadableFileError(f"its column {header!r} has the unknown type {dtype!r}")
        sizes = shape if isinstance(shape, list) else [shape]
        count = math.prod(int(size) for size in sizes)
        little = np.dtype(dtype).newbyteorder("<")
        fields.append((header, little, (count,)) if count != 1 else (header, little))
    dtype, rows = np.dtype(fields), int(file["rows"])
    content = _content(archive, name, rows * dtype.itemsize)
    if len(content) != rows * dtype.itemsize:
        raise UnreadableFileError(
            f"its table {name!r} has {len(content)} bytes instead of {rows * dtype.itemsize}"
        )
    packed = np.frombuffer(content, dtype)
    columns = {}
    for header in packed.dtype.names or ():
        if packed[header].ndim == 1:
            shift = float(file.get("offset", {}).get(header, 0))
            values = packed[header].astype(np.float64) + shift if shift else packed[header]
            columns[_ALSO.get(header, header)] = values
    return columns


def _unit(kind: Mapping[str, Any]) -> float:
    """Return the unit of x in nm, by default 1."""
    named = dict(zip(kind["headers"], kind["units"], strict=True))
    unit = str(named.get("x", named.get("position_x", ""))) or "nm"
    length = nanometres_of(unit)
    if length is None:
        raise UnreadableFileError(f"its x has the unit {unit!r}, which is no unit of length")
    return length


class Decode(Format):
    """DECODE's emitters, in pixels or nm, frames from 0."""

    name, title, suffix = "decode", "DECODE", ".decode.h5"
    unit, needs = "px (reads nm, too)", "`napari-spotfit[hdf5]`"

    def sniff(self, path: Path, head: bytes) -> bool:
        """Whether a file contains DECODE's emitters."""
        return sniffed(path, head, _NEEDED)

    def read(self, path: Path, image: ImageInfo) -> SpotTable:
        """Read emitters in pixels or nm."""
        with opened(path) as file:
            missing = [name for name in _NEEDED if file.find(name) is None]
            if missing:
                raise UnreadableFileError(f"it has no “{missing[0]}” of DECODE's")
            meta = file.find("meta").attrs
            unit, size = meta.get("xy_unit"), meta.get("px_size")
            stored = {
                name: file.array(f"data/{name}")
                for name in file.names("data")
                if getattr(file.find(f"data/{name}"), "shape", ()) is not None
            }
        found: dict[str, NDArray[Any]] = {}
        rows = len(stored["frame_ix"])
        for name, values in stored.items():
            lines = values.T if name in _TRIPLES and values.ndim == 2 else values[np.newaxis]
            titles = _TRIPLES.get(name, (name,))
            if len(lines) != len(titles) or lines.shape[1:] != (rows,):
                raise UnreadableFileError(
                    f"its “data/{name}” has the shape {values.shape} for {rows} rows of “frame_ix”"
                )
            found |= dict(zip(titles, lines, strict=True))
        if image.pixel_size is None and size is not None and np.shape(size) == (2,):
            y, x = (float(one) for one in size)
            if is_plausible_nm(y) and is_plausible_nm(x):
                image = ImageInfo((y, x), image.shape)
        if unit not in ("px", "nm", None):
            raise UnreadableFileError(
                f"its lengths have the unit {unit!r}; known are 'px' and 'nm'"
            )
        if "id" in found and (found["id"] == -1).all():
            del found["id"]  # not numbered
        if not np.any(found.get("z", 0)):
            found.pop("z", None)
        if np.isnan(found.get("z_sig", np.nan)).all():
            found.pop("z_sig", None)
        columns = from_format(found, _OF_DECODE, NANOMETRES if unit == "nm" else PIXELS, image)
        return imported_table(columns, image)

    def write(
        self, path: Path, table: SpotTable, image: ImageInfo, report: ExportReport
    ) -> dict[str, str]:
        """Write emitters in pixels."""
        need_h5py()
        import h5py

        made = to_format(table, _OF_DECODE, PIXELS, image, report)
        rows = len(table)
        made.setdefault("z", np.zeros(rows, np.float32))
        made.setdefault("prob", np.ones(rows, np.float32))
        made.setdefault("phot", np.full(rows, np.nan, np.float32))
        made["id"] = np.asarray(made.get("id", np.full(rows, -1)), np.int64)
        report.columns += unmapped(table, {one.name for one in _OF_DECODE})
        with created(path) as file:
            data = file.create_group("data")
            for name, titles in _TRIPLES.items():
                there = [made[title] for title in titles if title in made]
                if len(there) == 2:  # no standard error of z
                    there.append(np.full(rows, np.nan))
                values = np.column_stack(there).astype(np.float32) if there else None
                _add(data, name, values)
            for name in _SINGLES:
                values = made.get(name)
                if values is not None and name not in ("id", "frame_ix"):
                    values = values.astype(np.float32)
                _add(data, name, values)
            meta = file.create_group("meta")
            meta.attrs["xy_unit"] = "px"
            if image.pixel_size is not None:
                meta.attrs["px_size"] = np.array(image.pixel_size, np.float32)
            else:
                meta.attrs["px_size"] = h5py.Empty("f4")
            file.create_group("decode").attrs["version"] = "0.10.0"
        return {}


def _add(group: Any, name: str, values: NDArray[Any] | None) -> None:
    """Add an array; like DECODE, an empty one for an unknown column."""
    import h5py

    group.create_dataset(name, data=h5py.Empty("f4") if values is None else values)
