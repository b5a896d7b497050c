"""Read and write DECODE's emitters (HDF5), whose x runs down the rows: it is our y."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...models.calibration import need_h5py
from ..table import SpotTable, UnreadableFileError
from .hdf5 import created, opened, sniffed
from .image_info import ImageInfo, as_pixel_size
from .mapping import (
    Convention,
    ExportReport,
    Format,
    from_format,
    imported_table,
    mappings_of,
    to_format,
    unmapped,
)

PIXELS = Convention()
NANOMETRES = Convention(unit=1.0)
_MAPPINGS = mappings_of("decode")
#: Arrays of three columns each, one per axis.
_TRIPLES = {
    "xyz": ("x", "y", "z"),
    "xyz_sig": ("x_sig", "y_sig", "z_sig"),
    "xyz_cr": ("x_cr", "y_cr", "z_cr"),
}
_SINGLES = ("phot", "frame_ix", "id", "prob", "bg", "phot_cr", "bg_cr", "phot_sig", "bg_sig")
_NEEDED = ("data/xyz", "data/frame_ix", "data/phot", "meta")


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
            image = ImageInfo(as_pixel_size([float(one) for one in size]), image.shape)
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
        columns = from_format(found, _MAPPINGS, NANOMETRES if unit == "nm" else PIXELS, image)
        return imported_table(columns, image)

    def write(
        self, path: Path, table: SpotTable, image: ImageInfo, report: ExportReport
    ) -> dict[str, str]:
        """Write emitters in pixels."""
        need_h5py()
        import h5py

        made = to_format(table, _MAPPINGS, PIXELS, image, report)
        rows = len(table)
        made.setdefault("z", np.zeros(rows, np.float32))
        made.setdefault("prob", np.ones(rows, np.float32))
        made.setdefault("phot", np.full(rows, np.nan, np.float32))
        made["id"] = np.asarray(made.get("id", np.full(rows, -1)), np.int64)
        report.columns += unmapped(table, {one.name for one in _MAPPINGS})
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
