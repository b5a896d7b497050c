"""The GPU's kernels of rendered images on the host, against the CPU's."""

from __future__ import annotations

import numpy as np
import on_host
import pytest

from napari_spotfit.engine import cell_index
from napari_spotfit.engine.cell_index import LEAST_SIGMA, Field, Part, SpotIndex
from napari_spotfit.engine.cpu.layouts import CellIndex, PicturePart
from napari_spotfit.engine.cuda.compile import as_argument, source

#: Of the maximum.
SAME = 1e-6


def gpu_version(index, part, shown, colors, channels):
    """Run the kernels as GpuIndex does."""
    macros = cell_index.macros(channels, gaussian=bool(index.grid.sigma_y)) | {"THREADS": 32}
    text = "".join(f"#define {name} {value}\n" for name, value in macros.items())
    names, blocks = cell_index.KERNELS, cell_index.BLOCKS * index.grid.cell_rows
    using = "".join(f"using spotfit::SPOTFIT_ISA::{name};\n" for name in names)
    text += source("cuda/rendering.cu") + using
    shape = (part.rows, part.columns, *[3] * (channels == 3))
    sums, pixels = np.zeros(shape, np.uint64), np.full(shape, np.nan, np.float32)
    grid = CellIndex.from_buffer_copy(index.grid)
    if shown is not None:
        grid.shown = shown.ctypes.data
    if colors is not None:
        grid.color, grid.palette = (one.ctypes.data for one in colors)
    asked = PicturePart(
        *part.scale, part.planes_per_unit, part.plane, *part[1:5], LEAST_SIGMA, 1.0, 0
    )
    for name, grid_size, arguments in (
        (names[0], blocks, (as_argument(grid), as_argument(asked), sums)),
        (names[1], -(-sums.size // 32), (sums, np.int64(sums.size), np.float32(2), pixels)),
    ):
        on_host.launch(text, name, (grid_size,), (32,), arguments, names)
    assert not sums.any()
    return pixels


@pytest.mark.parametrize("gaussian", [True, False])
@pytest.mark.parametrize("kind", ["plain", "coloured", "volume"])
def test_pictures_are_those_of_the_cpu(gaussian, kind):
    rng = np.random.default_rng(2)
    count = 3000
    y, x = rng.uniform(-0.4, 15.4, (2, count))
    z = rng.uniform(0, 5, count) if kind == "volume" else None
    sigma = rng.lognormal(np.log(0.1), 0.7, (3, count)).astype(np.float32)
    sides = 3 if kind == "volume" else 2
    index = SpotIndex(
        y, x, z, sigma[:sides] if gaussian else (), [1.0] * sides, Field(-0.5, 15.5, -0.5, 15.5)
    )
    shown, colors, channels = None, None, 1
    if kind == "coloured":
        palette = rng.uniform(0, 1, (256, 3)).astype(np.float32)
        colors, channels = (rng.integers(0, 256, count).astype(np.uint8), palette), 3
        shown = rng.uniform(0, 1, count) < 0.5
    for part in (Part((9.0, 7.0), 0, 0, 144, 112, 1.0, 2), Part((40.0, 40.0), 77, 201, 90, 150)):
        expected = index.draw(part, 2.0, shown, colors)
        found = gpu_version(index, part, shown, colors, channels)
        assert expected.max() > 0
        np.testing.assert_allclose(found, expected, rtol=0, atol=SAME * expected.max())
