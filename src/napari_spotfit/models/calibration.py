"""The base of calibrations: what a stack of beads shows of a PSF, as a model of fits.

A calibration is a frozen dataclass of numbers, texts, tuples and arrays. It is compared by its
content, stands inside of saved settings, and has a file of its own.
"""

from __future__ import annotations

import base64
import hashlib
import io
import json
import math
import os
import secrets
import zlib
from collections.abc import Mapping
from dataclasses import fields
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ..version import __version__
from .columns import Column
from .profiles import Profile

#: The format of the file, and its name; a change that an older version would misread makes it one
#: more.
FORMAT, FORMAT_NAME = 1, "napari-spotfit calibration"
#: The key of the kind in dictionaries, and those of an array.
#: No field has that name: in files it is the text of all that is no array.
_KIND, _ARRAY = "calibration", {"dtype", "shape", "zlib"}
#: The part by which pixels may differ from those of the calibration.
_SAME_PIXEL = 0.01
#: No array of a calibration has more bytes.
_LARGEST = 1 << 30


class Calibration:
    """What a stack of beads shows of a PSF; ``model=…`` of fits takes it.

    A subclass is a dataclass, ``frozen=True, eq=False, repr=False``, with a ``kind``. Its fields
    are numbers, texts, None, tuples of these, mappings, or arrays.

    Threads: it does not change, so that any number may use one.
    """

    #: The name of the kind, in files.
    kind: ClassVar[str]
    _kinds: ClassVar[dict[str, type[Calibration]]] = {}

    def __init_subclass__(cls, **keywords: Any) -> None:
        super().__init_subclass__(**keywords)
        cls._kinds[cls.kind] = cls

    @property
    def profile(self) -> Profile:
        """The model that is fitted."""
        raise NotImplementedError

    @property
    def words(self) -> str:
        """What it is, in a few words, for tables and the viewer."""
        raise NotImplementedError

    @property
    def range(self) -> tuple[float, float] | None:
        """The least and the largest z of results, in nm, where fits with it have a z."""
        return None

    @property
    def columns(self) -> tuple[Column, ...]:
        """Columns of results beside, or instead of, those that every fit of the profile has."""
        return ()

    @property
    def settings(self) -> Mapping[str, Any]:
        """Settings that fits with it have unless others are given."""
        return {}

    def check(self, given: Mapping[str, Any]) -> None:
        """Raise a ValueError if settings, of those by name, do not go with it."""
        voxel, pixel = given.get("voxel_size"), getattr(self, "pixel_size", None)
        if voxel is not None and pixel is not None:
            worst = max(abs(side / pixel - 1) for side in voxel[1:])
            if worst > _SAME_PIXEL:
                raise ValueError(
                    f"the calibration is of pixels of {pixel:g} nm, the image has {voxel[1]:g} × "
                    f"{voxel[2]:g} nm: calibrate with the camera as it is now"
                )

    @cached_property
    def digest(self) -> str:
        """A hash of its content, the same in every process."""
        text = json.dumps(self.to_dict(), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Calibration):
            return NotImplemented
        return self is other or self.digest == other.digest

    def __hash__(self) -> int:
        return int(self.digest[:15], 16)

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self.words}>"

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, as JSON and TOML have them, from which it comes back exactly."""
        own = {item.name: getattr(self, item.name) for item in fields(self)}  # type: ignore[arg-type]
        plain = {name: _plain(value) for name, value in own.items() if value is not None}
        return {_KIND: self.kind, **plain}

    @staticmethod
    def kind_of(values: Mapping[str, Any]) -> type[Calibration]:
        """Return the class of the calibration that plain values are of."""
        kind = values.get(_KIND)
        if kind not in Calibration._kinds:
            known = ", ".join(Calibration._kinds)
            raise ValueError(f"a calibration must be one of {known}; got {kind!r}")
        return Calibration._kinds[kind]

    @staticmethod
    def from_dict(values: Mapping[str, Any]) -> Calibration:
        """Return the calibration that :meth:`to_dict` has made plain values of.

        Raises
        ------
        ValueError
            If they are of something else, or damaged.
        """
        kind = Calibration.kind_of(values)
        try:
            return kind(**{name: _restored(values[name]) for name in values if name != _KIND})
        except (KeyError, TypeError, zlib.error) as error:
            raise ValueError(f"the calibration is damaged: {error}") from None

    def save(self, path: str | os.PathLike[str]) -> None:
        """Save it as a file that :func:`~napari_spotfit.load_calibration` opens.

        Parameters
        ----------
        path : str or path
            The file, ``.h5`` or ``.hdf5``.

        Raises
        ------
        ValueError
            If the name ends otherwise.
        ImportError
            If h5py is missing.
        OSError
            If the file cannot be written; whatever had its name is as it was.
        """
        place = Path(path)
        if place.suffix.lower() not in (".h5", ".hdf5"):
            raise ValueError(
                f"the name of a calibration's file must end in .h5 or .hdf5; got “{place.name}”"
            )
        need_h5py()
        import h5py

        arrays = {
            item.name: value
            for item in fields(self)  # type: ignore[arg-type]
            if isinstance(value := getattr(self, item.name), np.ndarray)
        }
        plain = {name: value for name, value in self.to_dict().items() if name not in arrays}
        memory = io.BytesIO()
        with h5py.File(memory, "w") as file:
            file.attrs["format"], file.attrs["format_version"] = FORMAT_NAME, FORMAT
            file.attrs["kind"], file.attrs["version"] = self.kind, __version__
            file.attrs["z"] = "nm, rising with the number of the plane of the bead stack"
            file[_KIND] = json.dumps(plain)
            for name, array in arrays.items():
                file.create_dataset(name, data=array, compression="gzip" if array.size else None)
        part = place.with_name(f".{place.name}.{secrets.token_hex(8)}")
        try:
            part.write_bytes(memory.getvalue())
            part.replace(place)
        finally:
            part.unlink(missing_ok=True)


def need_h5py() -> None:
    """Check that there is h5py.

    Raises
    ------
    ImportError
        If it is missing; the message says how to get it.
    """
    if find_spec("h5py") is None:
        raise ImportError(
            "files of calibrations, and HDF5 files of Picasso, DECODE and SMAP (.mat), need h5py, "
            'which is missing: pip install "napari-spotfit[hdf5]"'
        )


def read_only(array: Any, dtype: Any = None) -> NDArray[Any]:
    """Return an array of its own that cannot be changed."""
    own = np.array(array, dtype, order="C")
    own.flags.writeable = False
    return own


def _plain(value: Any) -> Any:
    """Return a field's value as JSON and TOML have it."""
    if isinstance(value, np.ndarray):
        little = np.ascontiguousarray(value, value.dtype.newbyteorder("<"))
        text = base64.b64encode(zlib.compress(little.tobytes())).decode()
        return {"dtype": little.dtype.str, "shape": list(little.shape), "zlib": text}
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, Mapping):
        return {name: _plain(one) for name, one in value.items() if one is not None}
    if isinstance(value, (tuple, list)):
        return [_plain(one) for one in value]
    return value


def _restored(value: Any) -> Any:
    """Return a plain value as a field has it: lists as tuples, arrays as such."""
    if isinstance(value, Mapping):
        if value.keys() != _ARRAY:
            return {name: _restored(one) for name, one in value.items()}
        kind, shape = np.dtype(value["dtype"]), tuple(map(int, value["shape"]))
        size = math.prod(shape) * kind.itemsize
        if kind.kind not in "fiub" or min(shape, default=0) < 0 or size > _LARGEST:
            raise ValueError(f"the calibration is damaged: an array of {kind} and shape {shape}")
        data = zlib.decompressobj().decompress(base64.b64decode(value["zlib"]), size + 1)
        if len(data) != size:
            raise ValueError("the calibration is damaged: an array has too few or many numbers")
        return read_only(np.frombuffer(data, kind).reshape(shape), kind.newbyteorder("="))
    if isinstance(value, list):
        return tuple(map(_restored, value))
    return value
