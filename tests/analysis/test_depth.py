"""Distances in volumes are in pixels, however far apart planes are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from napari_spotfit import (
    Settings,
    SpotFits,
    cluster,
    link_spots,
    mean_square_displacements,
    pair_spots,
    summarize_clusters,
)
from napari_spotfit.analysis.depth import places_in_pixels

PIXEL = 100.0


def in_stack(
    places: np.ndarray[Any, Any], planes_apart: float | None, **columns: np.ndarray[Any, Any]
) -> SpotFits:
    """Return fits at places in pixels along z, y and x, in a stack of planes of a distance."""
    voxel = None if planes_apart is None else (planes_apart, PIXEL, PIXEL)
    z = places[:, 0] * PIXEL / (planes_apart or 300.0)
    known = {"z": z, "y": places[:, 1], "x": places[:, 2]}
    stops = np.full(len(places), 3, np.uint8)
    settings = Settings(model="gaussian_3d", voxel_size=voxel)
    index = ["frame"] if "frame" in columns else []
    return SpotFits(columns | known | {"stop_condition": stops}, index, settings)


@pytest.mark.parametrize("planes_apart", [50.0, 100.0, 300.0, 1000.0])
def test_displacements_are_those_of_the_sample(planes_apart: float) -> None:
    walk = np.random.default_rng(3).normal(0, 0.6, (60, 30, 3)).cumsum(axis=0)
    walk += 40 * np.arange(30)[:, np.newaxis]
    frame = np.repeat(np.arange(60), 30)
    fits = in_stack(walk.reshape(-1, 3), planes_apart, frame=frame)
    pytest.importorskip("trackpy")
    linked = link_spots(fits, 4.0)
    assert len(np.unique(linked.track)) == 30
    found = mean_square_displacements(linked, 1)
    truth = (np.diff(walk, axis=0) ** 2).sum(axis=2).mean()
    assert found.msd.mean() == pytest.approx(truth, rel=1e-9)
    in_plane = mean_square_displacements(linked, 1, z_scale=0)
    truth = (np.diff(walk[..., 1:], axis=0) ** 2).sum(axis=2).mean()
    assert in_plane.msd.mean() == pytest.approx(truth, rel=1e-9)


def test_tracks_end_where_a_step_along_z_is_too_far() -> None:
    pytest.importorskip("trackpy")
    places = np.array([[0.0, 5, 5], [6, 5, 5]])  # 2 planes of 300 nm
    fits = in_stack(places, 300.0, frame=np.arange(2))
    assert link_spots(fits, 5.0).track.tolist() == [0, 1]
    assert link_spots(fits, 7.0).track.tolist() == [0, 0]
    assert link_spots(fits, 5.0, z_scale=0).track.tolist() == [0, 0]
    assert link_spots(fits, 5.0, z_scale=1.5).track.tolist() == [0, 0]


def test_clouds_above_each_other_are_two_clusters() -> None:
    pytest.importorskip("sklearn")
    cloud = np.random.default_rng(0).normal(0, 0.2, (60, 3)) + 30
    cloud[30:, 0] += 9  # 3 planes of 300 nm
    fits = in_stack(cloud, 300.0)
    found = cluster(fits, radius=4.0, least=5)
    assert found.cluster.tolist() == [0] * 30 + [1] * 30
    table = summarize_clusters(found)
    assert table["rms"].to_numpy() == pytest.approx(0.2 * np.sqrt(3), rel=0.15)
    assert table["z"].to_numpy() == pytest.approx([10, 13], abs=0.1)
    assert (cluster(fits, radius=4.0, least=5, z_scale=1.0).cluster == 0).all()


def test_pairs_know_the_voxel_size() -> None:
    a = in_stack(np.array([[0.0, 5, 5], [30, 9, 9]]), 300.0)
    b = in_stack(np.array([[2.0, 5, 5], [36, 9, 9]]), 300.0)
    assert pair_spots(a, b, 3.0).distance == pytest.approx([2.0])
    assert pair_spots(a, b, 7.0).distance == pytest.approx([2.0, 6.0])


@pytest.mark.parametrize(
    "measure",
    [
        pytest.param(lambda fits, **more: link_spots(fits, 2.0, **more), id="link_spots"),
        pytest.param(mean_square_displacements, id="mean_square_displacements"),
        pytest.param(lambda fits, **more: cluster(fits, radius=1.0, **more), id="cluster"),
        pytest.param(summarize_clusters, id="summarize_clusters"),
        pytest.param(lambda fits, **more: pair_spots(fits, fits, 1.0, **more), id="pair_spots"),
    ],
)
def test_planes_are_not_added_to_pixels(measure: Callable[..., object]) -> None:
    pytest.importorskip("trackpy")
    pytest.importorskip("sklearn")
    numbers = {name: np.zeros(4, int) for name in ("track", "cluster")}
    fits = in_stack(np.zeros((4, 3)), None, frame=np.arange(4), **numbers)
    with pytest.raises(ValueError, match="z_scale"):
        measure(fits)
    measure(fits, z_scale=3.0)
    measure(fits, z_scale=0)
    with pytest.raises(ValueError, match="z_scale must be how many pixels"):
        measure(fits, z_scale=float("nan"))


def test_z_of_other_programs_counts_with_a_scale_and_is_named_without() -> None:
    columns = {"frame": np.arange(2), "y": np.zeros(2), "x": np.zeros(2), "z_px": np.arange(2.0)}
    fits = SpotFits(columns, index_names=("frame",))
    np.testing.assert_array_equal(places_in_pixels(fits, 3.0)[:, 0], [0, 3])
    with pytest.warns(UserWarning, match="planes of the column z_px are is unknown"):
        assert places_in_pixels(fits, None).shape == (2, 2)
    assert places_in_pixels(fits, 0).shape == (2, 2)


def test_z_of_other_programs_counts_in_pairs() -> None:
    above = [
        SpotFits({"y": np.full(1, 5.0), "x": np.full(1, 5.0), "z_px": np.full(1, plane)})
        for plane in (0.0, 2.0)
    ]
    with pytest.raises(ValueError, match="z in planes: z_scale must be"):
        pair_spots(*above, 4.0)
    assert pair_spots(*above, 4.0, z_scale=3.0).observed == 0
    assert pair_spots(*above, 7.0, z_scale=3.0).distance == pytest.approx([6.0])
    assert pair_spots(*above, 4.0, z_scale=0).distance == pytest.approx([0.0])
