"""Read and write SMLM 0.2: a zip of binary tables, described by manifest.json."""

from __future__ import annotations

import json
import math
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...models.columns import PLANES
from ...untrusted import Allowance, PromiseError
from ..table import TEXT, SpotTable, UnreadableFileError
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
