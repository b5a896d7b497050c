"""The line that says what happened."""

from __future__ import annotations

import numpy as np
import pytest

from napari_spotfit import SpotFits
from napari_spotfit.widgets.parts.status import number, summary

THIN = "\u202f"


def fits(**counts):
    """Return fits with so many of each stop condition."""
    codes = {"unsettled": 0, "converged": 2, "invalid": 5}
    stops = np.repeat([codes[name] for name in counts], list(counts.values())).astype(np.uint8)
    return SpotFits({"y": np.zeros(len(stops)), "stop_condition": stops})


def test_thousands_stand_apart():
    assert number(999) == "999"
    assert number(1_234_567) == f"1{THIN}234{THIN}567"


@pytest.mark.parametrize(
    ("counts", "text"),
    [
        (
            {"converged": 12185, "unsettled": 120, "invalid": 40},
            "12 345 spots in 1.2 s on CPU (2 threads): 98.7 % converged, 40 invalid",
        ),
        ({"converged": 1}, "1 spot in 1.2 s on CPU (2 threads): 100.0 % converged"),
        ({"invalid": 2}, "2 spots in 1.2 s on CPU (2 threads): 0.0 % converged, 2 invalid"),
        (
            {"converged": 99_999, "unsettled": 1},
            "100 000 spots in 1.2 s on CPU (2 threads): 99.9 % converged",
        ),
        ({}, "No spots in 1.2 s on CPU (2 threads): try a lower threshold or another PSF σ"),
    ],
)
def test_summary(counts, text):
    found = summary(fits(**counts), 1.2345, "CPU (2 threads)")
    assert found.replace(THIN, " ") == text
