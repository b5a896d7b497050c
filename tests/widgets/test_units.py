"""Pixels in a layer's physical unit."""

from __future__ import annotations

import numpy as np
import pytest
from napari.layers import Image
from psfs import measured_psf

from napari_spotfit import Settings
from napari_spotfit.widgets.layers.images import in_its_axes, pixel_size

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


@pytest.mark.parametrize("shape", [(32, 40), (5, 32, 40)])
def test_a_calibration_of_other_pixels_than_the_layer_has_is_refused(shape):
    movie = np.zeros(shape, np.uint16)
    units = ("s", "um", "um")[-len(shape) :]
    settings = Settings(model=measured_psf())

    def of_layer(pixel):
        return Image(movie, scale=(1, pixel, pixel)[-len(shape) :], units=units)

    with pytest.raises(ValueError, match="of pixels of 100 nm, the image has 130 × 130 nm"):
        in_its_axes(settings, of_layer(0.13))
    assert in_its_axes(settings, of_layer(0.1)) is settings
    assert in_its_axes(settings, Image(movie)) is settings  # of no known size
