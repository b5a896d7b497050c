"""The spline of a measured PSF is the same over a grid and at places one by one."""

import numpy as np
import pytest
from psfs import measured_psf

LATTICE = measured_psf(dz=100.0, side=15).lattice
Y, X = np.ogrid[-9.3:9, -8.6:10]
GRIDS = {
    "plane": (130.0, Y, X),
    "planes": (np.linspace(-900, 900, 7)[:, None, None], Y, X[0]),
    "column": (np.linspace(-900, 900, 7)[:, None, None], 0.3, -1.2),
    "place": (-40.0, 0.3, -1.2),
    "row of one plane": (np.array([-40.0]), 0.3, X[0]),
}


@pytest.mark.parametrize("derivative", ["", "z", "y", "x"])
@pytest.mark.parametrize("name", GRIDS)
def test_a_grid_is_its_places(name, derivative):
    grid = LATTICE.sample(*GRIDS[name], derivative)
    places = [np.array(one).ravel() for one in np.broadcast_arrays(*GRIDS[name])]
    assert grid.shape == np.broadcast_shapes(*(np.shape(one) for one in GRIDS[name]))
    each = LATTICE.sample(*places, derivative)
    np.testing.assert_allclose(grid.ravel(), each, rtol=1e-12, atol=1e-17)
    one_by_one = [LATTICE.sample(*place, derivative) for place in zip(*places, strict=True)][:40]
    np.testing.assert_allclose(each[:40], one_by_one, rtol=1e-12, atol=1e-17)


def test_places_along_one_line_are_no_grid():
    line = np.linspace(-3, 3, 5)
    each = [LATTICE.sample(100 * at, at, -at) for at in line]
    np.testing.assert_allclose(LATTICE.sample(100 * line, line, -line), each, rtol=1e-12)
    across = LATTICE.sample(100 * line[:, None], line[:, None], line)
    np.testing.assert_allclose(across[2], LATTICE.sample(0.0, 0.0, line), rtol=1e-12)
