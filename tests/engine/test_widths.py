"""Widths of spots from their columns."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from napari_spotfit.engine.verdicts import mean_sigma


@given(st.floats(0.05, 200), st.floats(0.2, 20))
def test_a_moffat_profile_is_as_wide_at_half_maximum_as_its_gaussian(exponent, width):
    sigma = float(mean_sigma({"width": width, "exponent": exponent}))
    half = np.sqrt(2 * np.log(2)) * sigma
    np.testing.assert_allclose((1 + (half / width) ** 2) ** -exponent, 0.5, rtol=1e-9)


def test_what_tells_most_comes_first_and_spots_may_differ():
    unknown = np.nan
    columns = {
        "sigma": [1.3, unknown, unknown, unknown, unknown],
        "sigma_x": [9.0, 1.0, 1.0, 1.0, unknown],
        "sigma_y": [9.0, 4.0, unknown, unknown, unknown],
        "width": [9.0, 9.0, 2.0, unknown, unknown],
        "exponent": [9.0, 9.0, 1.0, unknown, unknown],
        "photons": [9.0, 9.0, 9.0, -16 * np.pi, 5.0],
        "amplitude": [9.0, 9.0, 9.0, -4.0, unknown],
    }
    expected = [1.3, 2.0, 2 / np.sqrt(2 * np.log(2)), 2.0, unknown]
    widths = mean_sigma({name: np.array(one) for name, one in columns.items()}, gain=2.0)
    np.testing.assert_allclose(widths, expected)
    assert np.isinf(mean_sigma({"photons": 3.0, "amplitude": 0.0}))
    assert np.isnan(mean_sigma({}))
