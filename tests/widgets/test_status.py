"""The line that says what happened."""

from __future__ import annotations

import numpy as np
import pytest

from napari_spotfit import SpotFits
from napari_spotfit.widgets.fitting.image_fit import summary
from napari_spotfit.widgets.parts.messages import number, time_left

THIN = "\u202f"


def fits(good=0, unsettled=0, invalid=0, dark=0):
    """Return fits, a number of each kind."""
    counts = [good, dark, unsettled, invalid]
    stops = np.repeat(np.array([2, 2, 0, 5], np.uint8), counts)
    height = np.repeat(np.array([9, -9, 9, np.nan], np.float32), counts)
    columns = {"y": np.zeros(len(stops)), "stop_condition": stops}
    return SpotFits(columns | {"amplitude": height, "photons": height})


@pytest.mark.parametrize(
    ("done", "seconds", "text"),
    [
        (0, 100.0, ""),
        (500, 2.0, ""),
        (500, 17.0, f"about 15{THIN}s left"),
        (999, 17.0, f"about 1{THIN}s left"),
        (100, 30.0, f"about 4{THIN}min left"),
        (1, 10.0, f"about 2{THIN}h 46{THIN}min left"),
    ],
)
def test_time_left_is_shown_in_plain_steps(done, seconds, text):
    assert time_left(done, 1000, seconds) == text


def test_thousands_stand_apart():
    assert number(999) == "999"
    assert number(1_234_567) == f"1{THIN}234{THIN}567"


@pytest.mark.parametrize(
    ("counts", "text"),
    [
        (
            {"good": 12185, "unsettled": 1100, "invalid": 40, "dark": 20},
            "13 345 spots in 1.2 s on CPU (2 threads), 1 120 doubtful: 1 100 not converged, "
            "20 dark; 40 could not be fitted and are not drawn",
        ),
        ({"good": 1}, "1 spot in 1.2 s on CPU (2 threads), none doubtful"),
        (
            {"invalid": 2},
            "2 spots in 1.2 s on CPU (2 threads), none doubtful; 2 could not be fitted and are "
            "not drawn",
        ),
        ({}, "No spots in 1.2 s on CPU (2 threads): allow more false spots or try another PSF σ"),
    ],
)
def test_summary(counts, text):
    found = summary(fits(**counts), 1.2345, "CPU (2 threads)")
    assert found.replace(THIN, " ") == text
