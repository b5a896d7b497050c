"""What kernels read and write on every machine: numbers, ROIs, measured PSFs, columns of fits."""

from __future__ import annotations

import ctypes
from functools import cache, lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..images.pixel_calibration import Planes
from ..models.calibration import Calibration
from ..models.columns import AXES, STDERR, STOP, describe
from ..models.estimators import StopCondition
from ..models.lattice import Lattice
from ..models.profiles import Profile
from ..settings.settings import Settings
from .cpu.layouts import FitResults, PixelMap, PixelType, PsfLattice, RoiShape

#: The fitted light, and how well it fits: single-precision results after the widths.
_LIGHT = ("amplitude", "background", "photons", "chi_square", "reduced_chi_square")
#: Types of pixels by their numbers.
PIXEL_TYPES = {
    "u1": PixelType.UINT8, "u2": PixelType.UINT16, "i2": PixelType.INT16,
    "f4": PixelType.FLOAT32, "f8": PixelType.FLOAT64,
}  # fmt: skip
#: Numbers behind an array that vectors may read.
_SLACK = 64
#: Looked up once, not in each of some hundred calls.
_buffer_of, _address_of = ctypes.c_char.from_buffer, ctypes.addressof


def values_of(profile: Profile) -> tuple[str, ...]:
    """Return the columns of single-precision results, in the order of the backends.

    Examples
    --------
    >>> from napari_spotfit.models.profiles import GAUSSIAN
    >>> values_of(GAUSSIAN)
    ('sigma', 'amplitude', 'background', 'photons', 'chi_square', 'reduced_chi_square')
    """
    return profile.widths + _LIGHT


def roi_columns(axes: int) -> tuple[str, ...]:
    """Return the columns of the first pixel of ROIs along each axis.

    Examples
    --------
    >>> roi_columns(2)
    ('roi_y', 'roi_x')
    """
    return tuple(f"roi_{axis}" for axis in tuple(AXES)[-axes:])


def add_nanometres(columns: dict[str, Any], settings: Settings) -> None:
    """Add z in nm, and its error, of fits in volumes whose voxels have a known size.

    Columns that are there are overwritten in their place.

    Examples
    --------
    >>> columns = {"z": np.array([0.5, 2.0])}
    >>> add_nanometres(columns, Settings(model="gaussian_3d", voxel_size=(200, 100, 100)))
    >>> columns["z_nm"]
    array([100., 400.])
    """
    if settings.voxel_size is None or settings.profile.axes[0] != "z":
        return
    for suffix in ("", STDERR):
        if "z" + suffix in columns:
            name = "z_nm" + suffix
            along, size = columns["z" + suffix], settings.voxel_size[0]
            columns[name] = np.multiply(along, size, out=columns.get(name))


def errors_of(profile: Profile) -> tuple[str, ...]:
    """Return the columns of standard errors, which come after the values."""
    return _errors_of(profile.axes + profile.widths)


@cache
def _errors_of(shape: tuple[str, ...]) -> tuple[str, ...]:
    names = (*shape, "amplitude", "background", "photons")
    return tuple(name + STDERR for name in names)


@lru_cache(maxsize=64)
def numbers_per_fit(settings: Settings) -> int:
    """Return how many single-precision numbers a fit has."""
    profile = settings.profile
    return len(values_of(profile)) + (len(errors_of(profile)) if settings.errors else 0)


def invalid_columns(count: int, settings: Settings) -> dict[str, NDArray[Any]]:
    """Return the columns of invalid fits, in the order of the backends.

    Examples
    --------
    >>> from napari_spotfit import Settings
    >>> invalid_columns(2, Settings())["stop_condition"]
    array([5, 5], dtype=uint8)
    """
    profile = settings.profile
    shape = [parameter.column for parameter in profile.shape]
    names = (*profile.axes, *values_of(profile), "iterations", STOP)
    names += errors_of(profile) if settings.errors else ()
    if isinstance(settings.model, Calibration):
        shape += settings.model.columns
        more = [one.name for one in settings.model.columns if settings.errors or not one.error_of]
        names += tuple(name for name in more if name not in names)
    values = {"iterations": 0, STOP: StopCondition.INVALID}
    return {
        name: np.full(count, values.get(name, np.nan), describe(name, shape).type) for name in names
    }


def pixel_map(planes: Planes | None) -> PixelMap:
    """Return what is known of the pixels, whose memory must outlast it."""
    if planes is None:
        return PixelMap()
    return PixelMap(address(planes.values), len(planes.values) == 1)


def fit_results(memory: int, n: int, settings: Settings, first: int = 0) -> FitResults:
    """Return where the results of fits go, from one of n on, laid out as Results."""
    values, iterations, stop = (memory + end for end in _ends(n, settings))
    return FitResults(
        n, memory + 8 * first, values + 4 * first, iterations + 2 * first, stop + first
    )


def frame_sizes(shape: tuple[int, ...]) -> dict[str, int]:
    """Return the sizes of frames as the members of a RoiSource; planes have a depth of 1."""
    return dict(zip(("width", "height", "depth"), (*reversed(shape), 1), strict=False))


def shape_of_roi(sides: tuple[int, ...]) -> RoiShape:
    """Return the pixels of a ROI along its axes; one of a plane has a depth of 1."""
    return RoiShape(*(1,) * (3 - len(sides)), *sides)


class Results(NamedTuple):
    """Views of the results in one piece of memory, of NumPy or CuPy."""

    positions: Any  # (axes, n), in the order of the array
    values: Any  # (width, n)
    iterations: Any
    stop_condition: Any

    @classmethod
    def within(cls, memory: Any, n: int, settings: Settings) -> Results:
        """Divide memory, ``row_bytes(settings) * n`` bytes of uint8."""
        values, iterations, stop = _ends(n, settings)
        return cls(
            memory[:values].view(np.float64).reshape(len(settings.profile.axes), n),
            memory[values:iterations].view(np.float32).reshape(numbers_per_fit(settings), n),
            memory[iterations:stop].view(np.uint16),
            memory[stop : stop + n],
        )

    def columns(self, profile: Profile) -> dict[str, Any]:
        """Return the columns of SpotFits."""
        names, values = values_of(profile), list(self.values)
        columns = dict(zip(profile.axes, self.positions, strict=True))
        columns |= zip(names, values, strict=False)
        columns |= {"iterations": self.iterations, "stop_condition": self.stop_condition}
        columns |= zip(errors_of(profile), values[len(names) :], strict=False)
        return columns


def row_bytes(settings: Settings) -> int:
    """Return how many bytes of results a fit has."""
    return 8 * len(settings.profile.axes) + 4 * numbers_per_fit(settings) + 3


def sizes_of_results(settings: Settings) -> NDArray[np.int64]:
    """Return the bytes of each of a fit's results, in the order in which Results has them."""
    axes = len(settings.profile.axes)
    return np.array([*axes * [8], *numbers_per_fit(settings) * [4], 2, 1])


def _ends(n: int, settings: Settings) -> tuple[int, int, int]:
    """Return where the positions, the values and the iterations end."""
    values = 8 * len(settings.profile.axes) * n
    iterations = values + 4 * numbers_per_fit(settings) * n
    return values, iterations, iterations + 2 * n


def address(array: Any) -> int:
    """Return where an array of NumPy or CuPy begins, 0 without one."""
    if array is None:
        return 0
    try:  # array.ctypes takes several times as long
        return _address_of(_buffer_of(array))
    except (TypeError, ValueError):  # nothing in it, read-only, not in one piece, or on a GPU
        if isinstance(array, np.ndarray):
            return array.ctypes.data
    there: int = array.data.ptr
    return there


class EncodedPsf(NamedTuple):
    """A measured PSF for ROIs of one size, as the kernels take it."""

    arrays: tuple[NDArray[Any], ...]
    program: PsfLattice
    #: Memory that it needs on a CPU, in lanes.
    lanes: int


class Reached(NamedTuple):
    """The coefficients of a PSF that ROIs of a size may reach, and where its centre is."""

    coefficients: NDArray[np.float32]
    y: float
    x: float

    @classmethod
    def of(cls, psf: Lattice, roi_shape: tuple[int, ...]) -> Reached:
        """Return those of a PSF of height 1; a spot's centre may lie anywhere in the ROI."""
        own: NDArray[Any] = psf.coefficients / np.float32(psf.height)
        centers = []
        for axis, center, size in ((1, psf.y, roi_shape[0]), (2, psf.x, roi_shape[1])):
            before = size - int(center)
            places = np.arange(2 * size + 5) - before
            own = own.take(np.clip(places, 0, own.shape[axis] - 1), axis)
            centers.append(center + before)
        return cls(own, *centers)


@lru_cache(maxsize=16)
def encode_psf(psf: Lattice, roi_shape: tuple[int, ...], lane_width: int) -> EncodedPsf:
    """Return a PSF for ROIs of one size, for a CPU with lanes of this width."""
    reached = Reached.of(psf, roi_shape)
    places, images = templates(psf, roi_shape)
    arrays = places, padded(reached.coefficients), images
    nodes = -(-(roi_shape[1] + 3) // lane_width) * lane_width
    return EncodedPsf(arrays, program_of(psf, reached, *arrays), 13 * nodes)


def program_of(
    psf: Lattice, reached: Reached, places: Any, coefficients: Any, images: Any
) -> PsfLattice:
    """Return the constants of a PSF, given its arrays on a CPU or a GPU."""
    planes, rows, columns = reached.coefficients.shape
    return PsfLattice(
        address(coefficients), planes, rows, columns, columns, rows * columns, reached.x, reached.y,
        psf.plane, 1 / psf.nm_per_plane, 1 / psf.height, address(places), address(images),
        len(places), psf.lobes > 0,
    )  # fmt: skip


def templates(
    psf: Lattice, roi_shape: tuple[int, ...]
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Return where searches may begin: z in nm, and x and y of the light from the centre.

    And images of the PSF at each of these z, of height 1 at most.
    """
    starts = psf.starts
    y, x = (np.arange(-size, size + 1) for size in roi_shape)
    images = psf.sample(starts[:, 0, None, None], y[:, None], x) / psf.height
    places = np.ascontiguousarray(starts[:, [0, 2, 1]], np.float32)
    return places, padded(images.astype(np.float32))


@lru_cache(maxsize=16)
def unlike_heights(psf: Lattice) -> float:
    """Return at how many heights a PSF looks different: as often noise may look like it.

    Of n images that are all alike it is 1, and n where none is like another.
    """
    y, x = np.ogrid[-psf.reach : psf.reach + 1, -psf.reach : psf.reach + 1]
    images = psf.sample(np.unique(psf.starts[:, 0])[:, None, None], y, x)
    images /= np.sqrt((images**2).sum(axis=(1, 2), keepdims=True))
    alike = np.einsum("iyx,jyx->ij", images, images)
    return float(len(images) ** 2 / (alike**2).sum())


def padded(numbers: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return numbers in one line, with those behind them that vectors may read."""
    return np.concatenate([numbers.ravel(), np.zeros(_SLACK, np.float32)])
