"""Layers of spots that were fitted together."""

from __future__ import annotations

import numpy as np
import pytest
from event_loop import settle
from joint_fits import SIGMA, Joint, field
from same_fits import assert_same
from spot_table import dock, texts

from napari_spotfit import load_fits, localize, to_points_layer
from napari_spotfit.localization import fit_at as fit_at_module
from napari_spotfit.localization import plan
from napari_spotfit.widgets.fitting.picked_layer import arguments
from napari_spotfit.widgets.layers.appearance import Look
from napari_spotfit.widgets.layers.history import clear_fit_values, history_of
from napari_spotfit.widgets.layers.maps import LayerMaps
from napari_spotfit.widgets.layers.points import fits_of_features
from napari_spotfit.widgets.layers.result_layers import Row, put_row


@pytest.fixture
def joint(monkeypatch):
    for module in (plan, fit_at_module):
        monkeypatch.setattr(module, "select_backend", lambda *_: Joint())


@pytest.fixture(scope="module")
def movie():
    return field((3, 3), seed=2, frames=2)[0]


@pytest.fixture
def fits(joint, movie):
    # Fits of single spots, which the backend makes joint ones.
    found = localize(movie, roi_size=9, sigma=SIGMA, gain=1.0, neighbours="exclude")
    assert {*found.group_size.tolist()} == {1, 2}
    return found


def test_a_layer_has_the_groups_and_gives_them_back(viewer, fits, tmp_path):
    layer = viewer.add_layer(to_points_layer(fits))
    again = fits_of_features(layer.features, layer.metadata)
    for name in ("group", "group_size"):
        np.testing.assert_array_equal(layer.features[name], fits.columns[name])
        assert again.columns[name].dtype == np.int64
    assert_same(again, fits)
    for ending in ("parquet", "csv"):
        path = tmp_path / f"a.spots.{ending}"
        viewer.layers.save(str(path))
        np.testing.assert_array_equal(load_fits(path).group, fits.group)
        (opened,) = viewer.open(str(path), plugin="napari-spotfit")
        np.testing.assert_array_equal(opened.features["group"], fits.group)
        viewer.layers.remove(opened)


def test_a_point_that_is_added_by_hand_is_of_no_group(viewer, fits, tmp_path):
    layer = viewer.add_layer(to_points_layer(fits))
    layer.add([(1, 5.0, 5.0)])
    clear_fit_values(layer, [-1])
    assert layer.features["group"].isna().tolist() == [False] * len(fits) + [True]
    path = tmp_path / "a.spots.csv"
    viewer.layers.save(str(path))
    np.testing.assert_array_equal(load_fits(path).group, [*fits.group, np.nan])


@pytest.mark.parametrize("together", [False, True])
def test_a_spot_leaves_its_group_if_it_is_fitted_again_alone(viewer, fits, together):
    layer = viewer.add_layer(to_points_layer(fits))
    row = int(np.flatnonzero(fits.group_size == 2)[0])
    again = fits[np.flatnonzero(fits.group == fits.group[row])]
    if not together:
        alone = {name: one for name, one in again.columns.items() if not name.startswith("group")}
        again = again.with_columns(alone)[:1]
    new = arguments(again, Look(), LayerMaps())
    put_row(layer, row, Row.of(layer, row).refitted(new), history_of(viewer))
    expected = fits.group.astype(float)
    if not together:
        expected[row] = np.nan
    np.testing.assert_array_equal(layer.features["group"], expected)
    assert layer.features["group_size"].isna().sum() == (not together)


def test_the_table_lists_the_groups(viewer, fits):
    viewer.layers.selection.active = viewer.add_layer(to_points_layer(fits))
    widget = dock(viewer)
    settle()
    assert [int(text) for text in texts(widget, "group")] == fits.group.tolist()
    assert [int(text) for text in texts(widget, "group_size")] == fits.group_size.tolist()
