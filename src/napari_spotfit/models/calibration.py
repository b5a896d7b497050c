"""The base of calibrations: what a stack of beads shows of a PSF, as a model of fits.

A calibration is a frozen dataclass of numbers, texts, tuples and arrays. It is compared by its
content, stands inside of saved settings, and has a file of its own. Widths and shifts against z are
curves. A camera's rows and columns may have eight orientations against those of the beads.
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
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from ..version import __version__
from .columns import Column
from .number_checks import one_of
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
#: Number of heights at which curves are tabulated.
TABLE = 4001

Array = NDArray[np.float64]


class Orientation(NamedTuple):
    """What becomes of an image: rows and columns are exchanged first, then it is flipped."""

    exchanged: bool
    flipped_y: bool
    flipped_x: bool

    @property
    def inverse(self) -> Orientation:
        """What undoes it."""
        if not self.exchanged:
            return self
        return self._replace(flipped_y=self.flipped_x, flipped_x=self.flipped_y)

    def of(self, images: Any) -> Any:
        """Return images, (…, rows, columns), in this orientation.

        Examples
        --------
        >>> import numpy as np
        >>> image = np.arange(6).reshape(2, 3)
        >>> turned = ORIENTATIONS["rotated_90"]
        >>> bool((turned.of(image) == np.rot90(image)).all())
        True
        >>> bool((turned.inverse.of(turned.of(image)) == image).all())
        True
        """
        if self.exchanged:
            images = images.swapaxes(-1, -2)
        y, x = (slice(None, None, -1 if flip else 1) for flip in (self.flipped_y, self.flipped_x))
        return images[..., y, x]


ORIENTATIONS = {
    "as_it_is": Orientation(False, False, False),
    "flipped_y": Orientation(False, True, False),
    "flipped_x": Orientation(False, False, True),
    "rotated_180": Orientation(False, True, True),
    "transposed": Orientation(True, False, False),
    "rotated_90": Orientation(True, True, False),
    "rotated_270": Orientation(True, False, True),
    "antitransposed": Orientation(True, True, True),
}


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

    def oriented(self, orientation: str) -> Self:
        """Return the same of a camera whose rows and columns lie otherwise than the beads' did.

        Parameters
        ----------
        orientation : str
            What became of images since: "flipped_y", "flipped_x", "rotated_180", "transposed",
            "rotated_90" and "rotated_270" (as :func:`numpy.rot90`), or "antitransposed".

        Raises
        ------
        ValueError
            If it is none of these.

        Examples
        --------
        >>> import numpy as np
        >>> from napari_spotfit import MeasuredPsf
        >>> psf = MeasuredPsf(np.arange(512.0).reshape(8, 8, 8), 50.0, 2, y=3.0, x=2.0)
        >>> turned = psf.oriented("rotated_90")
        >>> turned.y, turned.x
        (3.0, 3.0)
        >>> turned.oriented("rotated_270") == psf
        True
        """
        one_of("orientation", orientation, tuple(ORIENTATIONS))
        return self._turned(ORIENTATIONS[orientation])

    def _turned(self, how: Orientation) -> Self:
        raise NotImplementedError

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
                    f"{voxel[2]:g} nm: calibrate with the camera as it is now, or correct the size "
                    "that is wrong"
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
        one_of("the kind of a calibration", kind, sorted(Calibration._kinds))
        return Calibration._kinds[str(kind)]

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
    if isinstance(value, Calibration):
        return value.to_dict()
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
        if _KIND in value:
            return Calibration.from_dict(value)
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


class Curve(NamedTuple):
    """A width, or a shift, in pixels against z in nm.

    ``"huang"``: σ0 √(1 + u² + A u³ + B u⁴) with u = (z - c) / d, of σ0, c, d, A and B.
    ``"polynomial"``: its coefficients, the highest power first.
    ``"spline"``: a cubic spline through values at nodes.
    """

    kind: str
    numbers: tuple[float, ...]
    nodes: tuple[float, ...] = ()

    def __call__(self, z: Any) -> Array:
        """Return the width at heights.

        Examples
        --------
        >>> float(Curve("huang", (1.3, 0.0, 400.0, 0.0, 0.0))(0.0))
        1.3
        """
        z = np.asarray(z, float)
        if self.kind == "polynomial":
            return np.asarray(np.polyval(self.numbers, z))
        if self.kind == "huang":
            least, center, depth, cubic, quartic = self.numbers
            u = (z - center) / depth
            square = 1 + u**2 * (1 + cubic * u + quartic * u**2)
            return np.asarray(least * np.sqrt(np.maximum(square, 0)))
        from scipy.interpolate import CubicSpline  # here, as SciPy takes its time to import

        return np.asarray(CubicSpline(self.nodes, self.numbers)(z))

    def mirrored(self) -> Curve:
        """Return the negative curve: that of a shift along a flipped axis."""
        own = self.numbers[:1] if self.kind == "huang" else self.numbers
        numbers = *(-one for one in own), *self.numbers[len(own) :]
        return self._replace(numbers=numbers)

    def checked(self, name: str) -> Curve:
        """Return it, or raise a ValueError if it is no curve."""
        count = {"huang": len(self.numbers) == 5, "polynomial": len(self.numbers) > 0}.get(
            self.kind, self.kind == "spline" and len(self.nodes) == len(self.numbers) > 1
        )
        finite = all(map(math.isfinite, (*self.numbers, *self.nodes)))
        if not (count and finite and all(np.diff(self.nodes) > 0)):
            raise ValueError(
                f"the curve {name} must be 'huang' with 5 numbers, a 'polynomial', or a 'spline' "
                f"with a value at each of its rising nodes; got {self!r}"
            )
        return Curve(self.kind, tuple(map(float, self.numbers)), tuple(map(float, self.nodes)))


def unique_range(
    x: Curve, y: Curve, low: float, high: float, least: float = 0.0
) -> tuple[float, float]:
    """Return the part of a range, around the least difference of widths, where they determine z.

    The difference of the widths has to rise, or fall, all the way; with `least`, by so much of
    what it does at its steepest.

    Examples
    --------
    >>> x, y = (Curve("polynomial", (1e-6, -2e-6 * focus, 2.0)) for focus in (250.0, -250.0))
    >>> unique_range(x, y, -600.0, 600.0)
    (-600.0, 600.0)
    """
    z = np.linspace(low, high, TABLE)
    difference = x(z) - y(z)
    middle = min(int(np.argmin(np.abs(difference))), len(z) - 2)
    slope = np.diff(difference)
    slope = slope * np.sign(slope[middle])
    wrong = np.flatnonzero(slope <= least * slope.max())
    before, after = wrong[wrong < middle], wrong[wrong >= middle]
    first, last = before[-1] + 1 if len(before) else 0, after[0] if len(after) else len(z) - 1
    return float(z[first]), float(z[last])
