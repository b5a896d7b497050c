"""Medians, spreads and counts over frames, against loops over the spots."""

from __future__ import annotations

import numpy as np
import pytest
from volume_fits import fits_in_volumes

from napari_spotfit import (
    SpotFits,
    cells_by_channel,
    label_spots,
    link_spots,
    per_frame,
    register_channels,
    save_fits,
    save_report,
    summarize,
)


def fits(count: int, *lengths: int, seed: int = 0) -> SpotFits:
    rng = np.random.default_rng(seed)
    names = tuple(f"axis_{axis}" for axis in range(len(lengths) - 1))
    names = (*names, "frame") if lengths else ()
    columns = {
        name: rng.integers(0, size, count) for name, size in zip(names, lengths, strict=True)
    }
    columns |= {
        "y": rng.uniform(0, 40, count),
        "x": rng.uniform(0, 50, count),
        "sigma": rng.normal(1.3, 0.1, count).astype(np.float32),
        "photons": rng.uniform(100, 900, count).astype(np.float32),
        "stop_condition": np.zeros(count, np.uint8),
        "photons_stderr": np.where(rng.random(count) < 0.1, np.nan, 5).astype(np.float32),
    }
    return SpotFits(columns, names)


def test_median_and_spread_of_a_normal_distribution_with_outliers():
    many = fits(20_000)
    sigma = many.sigma.copy()
    sigma[::50] = 1e6
    sigma[1] = np.nan
    sigma[2] = np.inf
    table = summarize(SpotFits(many.columns | {"sigma": sigma}))
    assert list(table.index) == ["sigma", "photons", "photons_stderr"]
    row = table.loc["sigma"]
    assert row["count"] == 20_000 - 2
    assert row["median"] == pytest.approx(1.3, abs=0.01)
    assert row["spread"] == pytest.approx(0.1, rel=0.05)
    low, high = table.loc["photons", ["low", "high"]]
    assert (low, high) == (pytest.approx(140, abs=10), pytest.approx(860, abs=10))
    assert table.loc["photons_stderr", "count"] == np.isfinite(many.photons_stderr).sum()


def test_z_by_a_calibration_is_summarized():
    columns = {name: np.full(9, 7.0) for name in ("z", "y", "x", "sigma", "z_stderr")}
    assert list(summarize(SpotFits(columns)).index) == ["z", "sigma", "z_stderr"]


@pytest.mark.parametrize(
    "use",
    [
        summarize,
        per_frame,
        lambda fits: label_spots(fits, np.zeros((9, 9), int)),
        lambda fits: link_spots(fits, 1.0),
        lambda fits: register_channels(fits, fits),
        lambda fits: cells_by_channel(fits, np.zeros((9, 9), int)),
        lambda fits: save_fits([fits], "a.spots.csv"),
        lambda fits: save_report(fits, "a.html"),
    ],
)
@pytest.mark.parametrize("fits", [np.zeros((3, 2)), "spots.csv"], ids=["array", "path"])
def test_what_is_no_fits_is_named(use, fits):
    with pytest.raises(TypeError, match=rf"fits must be SpotFits.* {type(fits).__name__}$"):
        use(fits)


def test_a_summary_of_nothing():
    table = summarize(fits(0), ["photons"])
    assert table["count"].tolist() == [0]
    assert np.isnan(table.loc["photons", "median"])


@pytest.mark.parametrize("lengths", [(), (7,), (3, 4)])
def test_every_frame_is_counted_those_without_spots_too(lengths):
    some = fits(15, *lengths)
    table = per_frame(some, (*lengths, 40, 50), columns=["photons"])
    assert len(table) == np.prod(lengths, dtype=int)
    places = some.points()[:, :-2]
    for number, place in enumerate(np.ndindex(*lengths)):
        row, there = table.iloc[number], (places == place).all(axis=1)
        assert tuple(row[list(some.index_names)]) == place
        assert row["count"] == there.sum()
        assert row["density"] == pytest.approx(there.sum() / 2000)
        if there.any():
            assert row["photons_median"] == pytest.approx(np.median(some.photons[there]))
        else:
            assert np.isnan(row["photons_median"])
    assert table["count"].sum() == 15


def test_only_the_frames_that_were_fitted_are_listed():
    some = fits(30, 6)
    some = some[np.isin(some.frame, (2, 3))]
    table = per_frame(some, (6, 40, 50), frames=slice(2, 5))
    assert table["frame"].tolist() == [2, 3, 4]
    assert table["count"].tolist() == [*np.bincount(some.frame)[2:], 0]
    assert per_frame(some)["frame"].tolist() == [0, 1, 2, 3]
    assert "density" not in per_frame(some)
    with pytest.raises(ValueError, match="a spot lies in frame 3"):
        per_frame(some, (6, 40, 50), frames=2)
    with pytest.raises(ValueError, match="1 leading axes"):
        per_frame(some, (40, 50))


def test_columns_must_be_numbers():
    with pytest.raises(ValueError, match=r"columns of numbers, frame, .*; got 'fotons'"):
        summarize(fits(5, 2), ["fotons"])


def test_frames_that_are_volumes():
    fits = fits_in_volumes(7)
    table = per_frame(fits, (4, 5, 6, 7))
    assert table["frame"].tolist() == [0, 1, 2, 3]
    assert table["count"].sum() == 7
    np.testing.assert_allclose(table["density"], table["count"] / (5 * 6 * 7))
    with pytest.raises(ValueError, match="1 leading axes and z and y and x"):
        per_frame(fits, (4, 6, 7))
    assert {"z_stderr", "sigma_z"} <= set(summarize(fits).index)
