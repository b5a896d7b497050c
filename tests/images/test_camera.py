"""PerPixel: flags and numbers for pixels, of any kind of array."""

from __future__ import annotations

import numpy as np
import pytest

from napari_spotfit import detect_spots, simulate_movie
from napari_spotfit.images.camera import PerPixel

da = pytest.importorskip("dask.array")
zarr = pytest.importorskip("zarr")

KINDS = {
    "numpy": lambda a: a,
    "dask": lambda a: da.from_array(a, chunks=(*(2,) * (a.ndim - 2), 3, 3)),
    "zarr": lambda a: zarr.array(a, chunks=(*(2,) * (a.ndim - 2), 5, 6)),
    "list": lambda a: a.tolist(),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shared", [True, False])
def test_flags_of_any_kind_of_array(kind, shared):
    flags = np.random.default_rng(1).uniform(size=(4, 5, 6)) < 0.5
    given = PerPixel(KINDS[kind](flags[0] if shared else flags), flags.shape, "mask", "where")
    read = given.read(np.array([1, 2]))
    assert read.dtype == np.bool_
    np.testing.assert_array_equal(read, flags[:1] if shared else flags[1:3])


@pytest.mark.parametrize("kind", KINDS)
def test_a_mask_of_any_kind_of_array(kind):
    movie, _ = simulate_movie(4, shape=(64, 60), spots_per_frame=8, seed=2)
    mask = np.random.default_rng(3).uniform(size=movie.shape) < 0.5
    expected = detect_spots(movie, mask=mask)
    assert len(expected) > 5
    np.testing.assert_array_equal(detect_spots(movie, mask=KINDS[kind](mask)), expected)
    np.testing.assert_array_equal(
        detect_spots(movie, mask=KINDS[kind](mask[0])), detect_spots(movie, mask=mask[0])
    )


@pytest.mark.parametrize("kind", KINDS)
def test_numbers_are_no_flags(kind):
    with pytest.raises(TypeError, match="mask must be boolean, True where; got"):
        PerPixel(KINDS[kind](np.zeros((2, 5, 6))), (2, 5, 6), "mask", "where")
