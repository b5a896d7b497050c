"""Columns of groups: the same whatever is found, and whatever the image is like."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from named_axes import Named

from napari_spotfit import (
    SpotFits,
    fit_at,
    load_fits,
    load_parts,
    localize,
    localize_iter,
    localize_to_folder,
)
from napari_spotfit.images import frames as frames_module

SHAPE = (3, 40, 48)
KNOWN: dict[str, Any] = {"sigma": 1.3, "roi_size": 9, "backend": "cpu"}
GROUPS = ["group", "group_size", "neighbour_distance", "evidence"]
ALL = pytest.mark.parametrize("neighbours", ["auto", "joint", "exclude"])


def movie():
    """Return frames with one spot each."""
    y, x = np.indices(SHAPE[1:]) - 21.0
    light = 60 * np.exp(-(y**2 + x**2) / (2 * KNOWN["sigma"] ** 2))
    return np.random.default_rng(0).poisson(10 + light, SHAPE).astype(np.uint16)


NOTHING = {
    "no frames": movie()[:0],
    "constant": np.full(SHAPE, 7, np.uint16),
    "nan": np.full(SHAPE, np.nan, np.float32),
    "noise": np.random.default_rng(1).poisson(10, SHAPE).astype(np.uint16),
}


@ALL
@pytest.mark.parametrize("image", NOTHING)
@pytest.mark.parametrize("given", [{}, {"gain": 1.0}])
@pytest.mark.filterwarnings("ignore:all pixels")
def test_of_an_image_without_spots(image, given, neighbours):
    known = KNOWN | given | {"neighbours": neighbours}
    some, none = localize(movie(), **known), localize(NOTHING[image], **known)
    assert len(some) == 3
    assert len(none) == 0
    types = {name: column.dtype for name, column in some.columns.items()}
    assert {name: column.dtype for name, column in none.columns.items()} == types
    assert (set(GROUPS) <= set(types)) == (neighbours != "exclude")
    both = SpotFits.concatenate([none, some])
    np.testing.assert_array_equal(both.x, some.x)
    assert list(none.to_dataframe()) == list(some.to_dataframe())
    assert [*localize(movie(), frames=slice(0, 0), **known).columns] == [*types]
    parts = list(localize_iter(NOTHING[image], **known))
    assert [*parts[0].columns] == [*types]


@ALL
@pytest.mark.filterwarnings("ignore:1 of 1 centres are in frames:UserWarning")
@pytest.mark.parametrize("given", [{}, {"gain": 1.0}])
def test_of_places_that_have_none(given, neighbours):
    known = KNOWN | given | {"neighbours": neighbours}
    some = fit_at(movie(), [(0, 21, 21), (2, 21, 21)], **known)
    for image, places in [
        (movie(), []), (movie(), [(9, 900, 2)]), (movie(), [(0, np.nan, 3)]),
        (movie()[:0], []), (movie()[:0], [(0, 20, 20)]), (movie(), [(1, 2, 2)]),
    ]:  # fmt: skip
        found = fit_at(image, places, **known)
        assert len(found) == len(places)
        assert [*found.columns] == [*some.columns]
        if "group" in found:
            assert (found.group_size == 1).all()
    if neighbours != "joint":
        of_none = fit_at(NOTHING["constant"], [(0, 20, 20)], **known)
        assert [*of_none.columns] == [*some.columns]


@pytest.mark.filterwarnings("ignore:the image")
def test_of_a_filtered_image_and_a_map_of_weights():
    from scipy.ndimage import gaussian_filter

    some = localize(movie(), **KNOWN, neighbours="auto")
    smooth = gaussian_filter(movie().astype(np.float32), (0, 1.2, 1.2))
    fits = localize(smooth, **KNOWN, neighbours="auto")
    assert fits.settings.noise.is_filtered
    weights = np.random.default_rng(2).uniform(0.5, 2, SHAPE[1:])
    weighted = localize(movie(), **KNOWN, neighbours="auto", estimator="wlse", weights=weights)
    for one in (fits, weighted):
        assert [*one.columns] == [*some.columns]
        assert (one.group_size == 1).all()
        assert len(one) == 3
        assert (one.evidence > 9).all()


@ALL
def test_in_files_tiles_channels_and_tasks(neighbours, tmp_path, monkeypatch):
    known = KNOWN | {"neighbours": neighbours}
    some, none = localize(movie(), **known), localize(NOTHING["noise"], **known)
    for ending in (".csv", ".parquet"):
        if ending != ".parquet" or pytest.importorskip("pyarrow"):
            none.save(tmp_path / f"none.spots{ending}")
            assert [*load_fits(tmp_path / f"none.spots{ending}").columns] == [*some.columns]
    both = np.stack([movie(), NOTHING["noise"]], axis=1)
    for image in (both, both[:, 1:], both[:0]):
        fits = localize(Named(image, ("t", "c", "y", "x")), channel="all", **known)
        assert {*fits.columns} == {*some.columns, "channel"}
    monkeypatch.setattr(frames_module, "LARGE_FRAME", 0)
    monkeypatch.setattr(frames_module, "TILE", 16 * SHAPE[2] * 2)
    for image in (movie(), NOTHING["noise"], movie()[:0]):
        assert [*localize(image, **known).columns] == [*some.columns]
    monkeypatch.undo()
    if pytest.importorskip("dask.dataframe") and pytest.importorskip("pyarrow"):
        for image in (movie(), NOTHING["noise"]):
            table = localize(image, lazy=True, **known)
            assert list(table.columns) == list(table.compute()) == list(some.to_dataframe())
    if pytest.importorskip("pyarrow"):
        localize_to_folder(NOTHING["noise"], tmp_path / "parts", **known)
        for part in load_parts(tmp_path / "parts"):
            assert {*part.columns} == {*some.columns}
