"""Localisations sorted into cells, so that any part of a picture is drawn without the others."""

from __future__ import annotations

import ctypes
import math
import threading
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from . import threads
from .cpu.layouts import RENDER_STRIDE, RENDER_TILE, CellIndex, IndexedRows, PicturePart
from .cpu.library import load
from .cuda.compile import as_argument, kernel
from .kernel_arguments import address

#: Widths after which a Gaussian is cut off, as in kernels/rendering.h.
CUT = 3.0
#: Smallest width of a Gaussian in pixels of a picture; narrower ones would not show their centre.
LEAST_SIGMA = 0.7
#: Localisations per cell, and the largest number of cells; cells along the longer side of the grid
#: that finds how much of the field is empty.
_PER_CELL, _MOST_CELLS, _COARSE = 32, 1 << 21, 256
#: Rows of a thread's share, and the largest number of shares, which have counts of their own.
_SHARE, _MOST_SHARES = 1 << 17, 4
#: Cells of a thread's share.
_CELLS_AT_ONCE = 1 << 15
#: Binary digits of positions within the field.
_DIGITS = 31

Floats = NDArray[np.float32]
#: Rows of a palette, and the palette.
Colors = tuple[NDArray[np.uint8], Floats]
#: On a GPU: threads of a block, and of a localisation; blocks that share a row of cells.
THREADS, LANES, BLOCKS = 256, 8, 8
#: Its kernels of a picture, in the order in which they run.
KERNELS = ("render_spots", "write_picture")


class Field(NamedTuple):
    """The positions that an index contains, in pixels of the camera."""

    first_y: float
    last_y: float
    first_x: float
    last_x: float


class Part(NamedTuple):
    """A part of a picture, whose pixel (0, 0) begins at the corner of the camera's first pixel."""

    #: Pixels of the picture per pixel of the camera, along y and x.
    scale: tuple[float, float]
    first_row: int
    first_column: int
    rows: int
    columns: int
    #: Of a volume: planes per unit of z, and the plane.
    planes_per_unit: float = 1.0
    plane: int = 0

    def shape(self, colors: Colors | None) -> tuple[int, ...]:
        """Return the shape of its pixels."""
        return self.rows, self.columns, *[3] * (colors is not None)

    def argument(self, unit: float, pixels: int = 0) -> PicturePart:
        """Return it as the kernels read it, with what pixels are multiplied by, and their place."""
        place = (self.first_row, self.first_column, self.rows, self.columns)
        depth = (self.planes_per_unit, self.plane)
        return PicturePart(*self.scale, *depth, *place, LEAST_SIGMA, unit, pixels)


class SpotIndex:
    """Localisations by the cells that they lie in; takes 20 bytes for each, 28 with z.

    Parameters
    ----------
    y, x : ndarray of float64
        Positions in pixels of the camera. Those outside the field, and NaN, are left out.
    z : ndarray of float64 or None
        Of volumes, in any unit, from where the first plane begins.
    sigma : sequence of ndarray of float32
        Widths along y, x and z, in the units of the positions; with none, each localisation lies
        in one pixel.
    most : sequence of float
        The largest of each of these widths; others are clipped.
    field : Field
        The positions to index.

    Attributes
    ----------
    row : ndarray of uint32
        The row of each localisation, in the order of the index.
    grid : CellIndex
        The index as the kernels read it.
    """

    def __init__(
        self,
        y: NDArray[np.float64],
        x: NDArray[np.float64],
        z: NDArray[np.float64] | None,
        sigma: Sequence[Floats],
        most: Sequence[float],
        field: Field,
    ):
        clipped = [*most, 0.0, 0.0, 0.0][:3]
        given = (address(y), address(x), address(z), *_addresses(sigma, 3), *clipped, *field)
        shares = max(1, min(threads.available(), _MOST_SHARES, len(y) // _SHARE))
        ends = [len(y) * share // shares for share in range(shares + 1)]
        side = _side(field, *self._occupied(IndexedRows(*given), field, ends))
        self.grid = grid = _grid(field, side)
        counts = _counts(grid, IndexedRows(*given), ends)
        first = np.zeros(counts.shape[1] + 1, np.uint32)
        np.cumsum(counts.sum(axis=0, dtype=np.uint32), out=first[1:])
        # Each share puts its rows of a cell behind those of the shares before.
        after = np.cumsum(counts, axis=0, dtype=np.uint32) - counts + first[:-1]
        size = int(first[-1])
        self.row = np.empty(size, np.uint32)
        self._steps = np.empty((2, size), np.uint32)
        self._first, self._reach = first, np.zeros(len(first) - 1, np.float32)
        self._sigma = np.empty((len(sigma), size), np.float32)
        self._z = None if z is None else np.empty(size, np.float32)
        grid.y, grid.x = map(address, self._steps)
        grid.sigma_y, grid.sigma_x, grid.sigma_z = _addresses(self._sigma, 3)
        grid.z, grid.first, grid.reach = address(self._z), address(first), address(self._reach)
        rows = IndexedRows(
            *given, grid.y, grid.x, grid.sigma_y, grid.sigma_x, grid.z, grid.sigma_z,
            address(self.row),
        )  # fmt: skip
        functions = load().functions

        def sort(share: int, end: int) -> None:
            functions.spotfit_sort_into_cells(
                ctypes.byref(grid),
                ctypes.byref(rows),
                ends[share],
                ends[end],
                address(after[share]),
            )  # fmt: skip

        threads.in_pieces(sort, shares, 1, shares)
        if len(sigma):
            threads.in_pieces(self._find_reach, len(self._reach), _CELLS_AT_ONCE, None)
            grid.largest_reach = float(self._reach.max(initial=0))

    def __len__(self) -> int:
        return len(self.row)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the arrays by the names that the kernels have for them."""
        sigma = zip(("sigma_y", "sigma_x", "sigma_z"), self._sigma, strict=False)
        found = {"first": self._first, "reach": self._reach, **dict(sigma)}
        found |= zip("yx", self._steps, strict=True)
        return found if self._z is None else found | {"z": self._z}

    def draw(
        self,
        part: Part,
        unit: float = 1.0,
        shown: NDArray[np.bool_] | None = None,
        colors: Colors | None = None,
    ) -> Floats:
        """Draw a part of a picture; parts are equal to the bit to the same pixels of the whole.

        Parameters
        ----------
        part : Part
            The part.
        unit : float
            What every pixel is multiplied by.
        shown : ndarray of bool, optional
            Which localisations to draw, in the order of the index.
        colors : tuple, optional
            Rows of a palette, in the order of the index, and the palette.

        Returns
        -------
        ndarray of float32
            Shape (rows, columns), or (rows, columns, 3) with colours.
        """
        channels = 1 if colors is None else 3
        picture = np.empty(part.shape(colors), np.float32)
        index = CellIndex.from_buffer_copy(self.grid)
        index.shown = address(shown)
        if colors is not None:
            index.color, index.palette = map(address, colors)
        asked = part.argument(unit, address(picture))
        library = load()

        def draw(first: int, last: int) -> None:
            sums = np.empty(RENDER_TILE * RENDER_STRIDE * channels)
            library.functions.spotfit_render_tiles(
                library.index, ctypes.byref(index), ctypes.byref(asked), first, last, address(sums)
            )

        tiles = math.prod(-(-side // RENDER_TILE) for side in picture.shape[:2])
        threads.in_pieces(draw, tiles, 1, None)
        return picture

    def _find_reach(self, first: int, last: int) -> None:
        load().functions.spotfit_reach_of_cells(
            ctypes.byref(self.grid), CUT, first, last, address(self._reach)
        )

    def _occupied(self, rows: IndexedRows, field: Field, ends: list[int]) -> tuple[int, float]:
        """Return the number of localisations in a field, and the area that they lie in."""
        longer = max(field.last_y - field.first_y, field.last_x - field.first_x)
        coarse = _grid(field, max(longer, 1e-9) / _COARSE)
        counts = _counts(coarse, rows, ends).sum(axis=0)
        return int(counts.sum()), np.count_nonzero(counts) * coarse.side**2


def _addresses(arrays: Sequence[Floats] | Floats, count: int) -> list[int]:
    """Return where arrays begin, and 0 for those that are missing."""
    return [*map(address, arrays), *[0] * count][:count]


def _side(field: Field, count: int, area: float) -> float:
    """Return the side of cells."""
    whole = (field.last_y - field.first_y) * (field.last_x - field.first_x)
    return math.sqrt(max(area * _PER_CELL / max(count, _PER_CELL), whole / _MOST_CELLS, 1e-12))


def _grid(field: Field, side: float) -> CellIndex:
    """Return an empty index with cells of a side."""
    sides = field.last_y - field.first_y, field.last_x - field.first_x
    step = 2.0 ** (math.ceil(math.log2(max(*sides, 1e-9))) - _DIGITS)
    cells = (int(extent / side) + 2 for extent in sides)
    return CellIndex(field.first_y, field.first_x, step, side, *cells)


def _counts(grid: CellIndex, rows: IndexedRows, ends: list[int]) -> NDArray[np.uint32]:
    """Return the number of rows in each cell, for each share of the rows."""
    counts = np.zeros((len(ends) - 1, grid.cell_rows * grid.cell_columns), np.uint32)
    functions = load().functions

    def count(share: int, end: int) -> None:
        functions.spotfit_count_in_cells(
            ctypes.byref(grid), ctypes.byref(rows), ends[share], ends[end], address(counts[share])
        )

    threads.in_pieces(count, len(counts), 1, len(counts))
    return counts


class GpuIndex:
    """An index of localisations in the memory of the current GPU.

    Parameters
    ----------
    index : SpotIndex
        The index; it takes the same memory there.
    """

    def __init__(self, index: SpotIndex):
        import cupy

        self._xp, self._device = cupy, cupy.cuda.Device()
        self._on_device = {name: cupy.asarray(array) for name, array in index.arrays().items()}
        self._grid = CellIndex.from_buffer_copy(index.grid)
        for name, array in self._on_device.items():
            setattr(self._grid, name, array.data.ptr)
        self._sums = cupy.zeros(0, np.uint64)
        self._kept: dict[str, tuple[Any, Any]] = {}
        self._lock = threading.Lock()

    def draw(
        self,
        part: Part,
        unit: float = 1.0,
        shown: NDArray[np.bool_] | None = None,
        colors: Colors | None = None,
    ) -> Floats:
        """Draw a part of a picture; see :meth:`.SpotIndex.draw`."""
        shape = part.shape(colors)
        count = math.prod(shape)
        with self._lock, self._device:
            if self._sums.size < count:
                self._sums = self._xp.zeros(count, np.uint64)
            pixels = self._xp.empty(shape, np.float32)
            index = CellIndex.from_buffer_copy(self._grid)
            row, palette = (None, None) if colors is None else colors
            for name, array in (("shown", shown), ("color", row), ("palette", palette)):
                setattr(index, name, self._uploaded(name, array))
            asked = part.argument(unit)
            made = macros(1 if colors is None else 3, gaussian=bool(index.sigma_y))
            render, write = (kernel("cuda/rendering.cu", name, **made) for name in KERNELS)
            grid, pixel_grid = (BLOCKS * index.cell_rows,), (-(-count // THREADS),)
            render(grid, (THREADS,), (as_argument(index), as_argument(asked), self._sums))
            write(pixel_grid, (THREADS,), (self._sums, np.int64(count), np.float32(unit), pixels))
            picture: Floats = pixels.get()
        return picture

    def _uploaded(self, name: str, array: NDArray[Any] | None) -> int:
        """Return where an array is on the GPU; it stays there until another one is drawn."""
        if array is None:
            return 0
        kept = self._kept.get(name)
        if kept is None or kept[0] is not array:
            kept = self._kept[name] = array, self._xp.asarray(array)
        pointer: int = kept[1].data.ptr
        return pointer


def macros(channels: int, *, gaussian: bool) -> dict[str, Any]:
    """Return the constants that the kernels are compiled for."""
    return {
        "THREADS": THREADS, "LANES": LANES, "BLOCKS": BLOCKS, "CHANNELS": channels,
        "GAUSSIAN": "true" if gaussian else "false",
    }  # fmt: skip
