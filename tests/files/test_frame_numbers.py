"""Frame numbers in files of other programs: the first number, and the possible range."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from exchange_cases import SIZE, localised

from napari_spotfit import FormatWarning, load_fits
from napari_spotfit.files.exchange.registry import EXCHANGE


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("thunderstorm", '"frame","x [nm]","y [nm]"\n1,100,200\n0,150,250\n'),
        ("smap", "frame,xnm,ynm\n1,100,200\n0,150,250\n"),
        ("rsfish", "x,y,t,c,intensity\n1,2,1,1,9\n1,2,0,1,9\n"),
    ],
)
def test_a_file_with_a_frame_0_counts_from_0(tmp_path, name, text):
    (tmp_path / "a.csv").write_text(text, encoding="utf-8")
    assert load_fits(tmp_path / "a.csv", pixel_size=SIZE).frame.tolist() == [1, 0]
    (tmp_path / "a.csv").write_text(text.replace("0,150", "2,150").replace("2,0,1", "2,2,1"))
    assert load_fits(tmp_path / "a.csv", name, pixel_size=SIZE).frame.tolist() == [0, 1]


@pytest.mark.parametrize("name", ["picasso", "smlm", "thunderstorm", "smap", "rsfish"])
def test_rows_whose_frame_does_not_fit_are_left_out(tmp_path, name):
    fits = localised(4, frame=np.array([-1, 3, 7, 5_000_000_000]))
    path = tmp_path / f"a{EXCHANGE[name].suffix}"
    most = 2**32 - 1 - (name == "smlm")
    if name in ("picasso", "smlm"):
        message, kept = f"2 rows with a frame outside 0 to {most} left out", [3, 7]
    else:
        message, kept = "1 row with a frame below 0 left out", [3, 7, 5_000_000_000]
    with pytest.warns(FormatWarning, match=message) as warned:
        fits.save(path, pixel_size=SIZE)
    assert warned[0].message.left_out == 4 - len(kept)
    assert load_fits(path, pixel_size=SIZE).frame.tolist() == kept


@pytest.mark.parametrize("name", ["picasso", "smlm"])
def test_the_last_frame_that_fits_comes_back(tmp_path, name):
    last = 2**32 - 1 - (name == "smlm")
    fits, path = localised(2, frame=np.array([0, last])), tmp_path / f"a{EXCHANGE[name].suffix}"
    with warnings.catch_warnings(record=True) as warned:  # of what has no place
        warnings.simplefilter("always")
        fits.save(path, pixel_size=SIZE)
    assert all("left out" not in str(one.message) for one in warned)
    assert load_fits(path, pixel_size=SIZE).frame.tolist() == [0, last]
