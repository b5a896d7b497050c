"""Assertions that fits are the same."""

from __future__ import annotations

import numpy as np

from napari_spotfit import SpotFits


def assert_same(ours: SpotFits, theirs: SpotFits, score: float = 0) -> None:
    """Compare fits to the bit, except the score if a tolerance is given."""
    assert list(ours.columns) == list(theirs.columns)
    for name, values in theirs.columns.items():
        assert ours.columns[name].dtype == values.dtype
        tolerance = score if name == "score" else 0
        np.testing.assert_allclose(ours.columns[name], values, tolerance, err_msg=name)
