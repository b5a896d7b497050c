"""Pixels in a layer's physical unit."""

from __future__ import annotations

import numpy as np
import pytest
from napari.layers import Image

from napari_spotfit.widgets.layers.images import pixel_size

IMAGE = np.zeros((3, 8, 9))


def test_without_a_unit_there_is_no_size():
    assert pixel_size(Image(IMAGE, scale=(1, 0.1, 0.1))) is None


@pytest.mark.parametrize(
    ("unit", "symbol"), [("um", "µm"), ("nanometer", "nm"), ("millimeter", "mm"), ("m", "meter")]
)
def test_usual_symbols(unit, symbol):
    size = pixel_size(Image(IMAGE, scale=(1, 0.1, 0.2), units=("pixel", unit, unit)))
    assert size == (pytest.approx(0.1), pytest.approx(0.2), symbol)


def test_rotation_and_translation_do_not_change_pixels():
    layer = Image(
        IMAGE[0], scale=(0.1, 0.1), rotate=30, translate=(5, 7), units=("um", "um"),
        affine=np.diag([2.0, 2.0, 1.0]),
    )  # fmt: skip
    size = pixel_size(layer)
    assert size == (pytest.approx(0.2), pytest.approx(0.2), "µm")
    assert size.factor("sigma_stderr") == pytest.approx(0.2)


def test_oblong_pixels():
    size = pixel_size(Image(IMAGE[0], scale=(0.1, 0.3), units=("um", "um")))
    assert size.factor("y") == pytest.approx(0.1)
    assert size.factor("x_stderr") == size.factor("roi_x") == pytest.approx(0.3)
    assert size.factor("sigma") is None
    assert size.factor("photons") is size.factor("chi_square") is None
