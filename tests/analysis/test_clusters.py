"""Clusters and mean square displacements of simulated localisations."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest
from blinking import table_of

from napari_spotfit import SpotFits, cluster, mean_square_displacements, summarize_clusters


def clusters(number: int = 10) -> SpotFits:
    """Return 50 spots around each of some places, and a few elsewhere."""
    rng = np.random.default_rng(0)
    places = np.stack(np.divmod(np.arange(number), 4), axis=1) * 10.0 + 5
    y, x = (np.repeat(places, 50, axis=0) + rng.normal(0, 0.2, (50 * number, 2))).T
    alone = rng.uniform(100, 200, (2, 30))
    count = 50 * number + 30
    return table_of(np.arange(count), np.append(y, alone[0]), np.append(x, alone[1]))


@pytest.mark.parametrize("arguments", [{"radius": 0.4}, {"method": "hdbscan"}])
def test_clusters_are_the_simulated_ones(arguments: dict[str, Any]) -> None:
    pytest.importorskip("sklearn")
    fits = clusters()
    found = cluster(fits, **arguments)
    assert (found.cluster[:500] == np.repeat(np.arange(10), 50)).mean() > 0.95
    table = summarize_clusters(found)
    assert table["count"].sum() == np.count_nonzero(found.cluster >= 0)
    # Spots elsewhere may be one wide cluster of few.
    table = table[:10]
    assert table["rms"].mean() == pytest.approx(0.2 * np.sqrt(2), rel=0.1)
    assert found.history[-1].name == "cluster"


def test_movies_and_doubtful_spots_are_apart() -> None:
    pytest.importorskip("sklearn")
    fits = clusters(1)
    lost = np.where(np.arange(len(fits)) < 5, np.nan, fits.y)
    file = np.array(["a", "b"], object)[np.arange(len(fits)) % 2]
    found = cluster(fits.with_columns(fits.columns | {"y": lost, "file": file}), radius=1, least=5)
    assert (found.cluster[:5] == -1).all()
    assert set(found.cluster[5:50][found.file[5:50] == "a"]) == {0}
    assert set(found.cluster[5:50][found.file[5:50] == "b"]) == {1}
    assert len(cluster(fits[:0], radius=1)) == 0


def test_a_table_of_known_clusters() -> None:
    fits = table_of([3, 5, 4, 9], [0, 0, 4, 7], [0, 4, 0, 7], photons=np.array([1.0, 2, 3, 4]))
    numbered = fits.with_columns(fits.columns | {"cluster": np.array([2, 2, 2, -1])})
    table = summarize_clusters(numbered)
    assert table["area"].tolist() == [8]
    assert table[["cluster", "count", "first_frame", "last_frame"]].to_numpy().tolist() == [
        [2, 3, 3, 5]
    ]
    assert table["photons"].tolist() == [6]
    assert len(summarize_clusters(numbered[numbered.cluster < 0])) == 0
    with pytest.raises(ValueError, match="no column cluster"):
        summarize_clusters(fits)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "needs a radius"),
        ({"radius": -1}, "radius must be a finite number of pixels above 0; got -1"),
        ({"method": "kmeans"}, "method must be"),
        ({"method": "hdbscan", "radius": 1}, "has no radius"),
        ({"radius": 1, "least": 1}, "least must be"),
    ],
)
def test_wrong_arguments(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        cluster(clusters(1), **arguments)


@pytest.mark.parametrize("least", [2.5, "3", None])
def test_least_is_a_whole_number(least: Any) -> None:
    with pytest.raises(TypeError, match="least must be a whole number from 2"):
        cluster(clusters(1), radius=1, least=least)


def test_a_missing_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sklearn", None)
    with pytest.raises(ImportError, match=r"pip install \"napari-spotfit\[analysis\]\""):
        cluster(clusters(1), radius=1)


def test_diffusion() -> None:
    rng = np.random.default_rng(0)
    steps = rng.normal(0, 0.5, (2, 40, 200))
    y, x = steps.cumsum(axis=1)
    frame, track = (np.broadcast_to(one, (40, 200)) for one in (
        np.arange(40)[:, np.newaxis], np.arange(200)[np.newaxis]
    ))  # fmt: skip
    fits = table_of(frame.ravel(), y.ravel(), x.ravel(), track=track.ravel())
    mixed = fits[rng.permutation(len(fits))]
    table = mean_square_displacements(mixed, 5)
    mean = table.groupby("frames")["msd"].mean()
    assert np.allclose(mean, 2 * 0.25 * np.arange(1, 6), rtol=0.06)
    assert table["count"].tolist() == [40 - gap for _ in range(200) for gap in range(1, 6)]
    with pytest.raises(ValueError, match="no column track"):
        mean_square_displacements(table_of([0], [1], [1]))
    assert len(mean_square_displacements(fits[:0])) == 0


def test_heights_in_nm_are_left_out_with_a_warning() -> None:
    pytest.importorskip("sklearn")
    z = np.tile([0.0, 400.0], 10)
    fits = table_of(np.arange(20), np.zeros(20), np.zeros(20), z=z)
    with pytest.warns(UserWarning, match="z is left out"):
        found = cluster(fits, radius=1.0, least=5)
    assert (found.cluster == 0).all()
    flat = fits.with_columns(fits.columns | {"z": np.zeros(20)})
    assert (cluster(flat, radius=1.0, least=5).cluster == 0).all()
