"""Widths of beads are those of the optics, by axis, and what spoils a bead is said."""

from __future__ import annotations

import numpy as np
import pytest

from napari_spotfit import Settings, microscope_quality, simulate_beads

PLANES = range(-1200, 1201, 100)
VOXEL = (100.0, 100.0, 100.0)
OPTICS = Settings(
    gain=1.0, offset=100.0, numerical_aperture=1.2, wavelength=600, refractive_index=1.333
)
LENS = {"numerical_aperture": 1.2, "wavelength": 600.0, "refractive_index": 1.333}


@pytest.fixture(scope="module")
def beads():
    return simulate_beads(PLANES, count=9, seed=2, **LENS)


def test_perfect_optics_have_the_widths_of_theory(beads):
    quality = microscope_quality(beads[0], VOXEL, settings=OPTICS)
    assert quality.beads.used.sum() >= 8
    assert quality.summary().ratio.to_numpy() == pytest.approx(1, abs=0.03)


def test_a_larger_bead_is_wider_in_theory(beads):
    point, ball = (
        microscope_quality(beads[0], VOXEL, settings=OPTICS, bead_diameter=diameter).theory["x"]
        for diameter in (0.0, 200.0)
    )
    assert ball**2 - point**2 == pytest.approx(8 * np.log(2) * 200**2 / 20)


def test_voxels_scale_and_unknown_optics_have_no_theory(beads):
    known = microscope_quality(beads[0], VOXEL, settings=OPTICS)
    twice = microscope_quality(beads[0], (200, 150, 300), settings=Settings(offset=100.0))
    for axis, times in zip("zyx", (2, 1.5, 3), strict=True):
        ratio = twice.summary().fwhm[axis] / known.summary().fwhm[axis]
        assert ratio == pytest.approx(times, rel=0.03)
        assert np.isnan(twice.theory[axis])


def test_theory_has_the_pixel_of_each_axis():
    fine, _ = simulate_beads(
        PLANES, (256, 256), count=9, pixel_size=50.0, photons=40000, seed=3, **LENS
    )
    binned = fine.reshape(len(fine), 128, 2, 256).sum(axis=2)
    found = microscope_quality(
        binned, (100.0, 100.0, 50.0), settings=OPTICS.changed(offset=200.0)
    ).summary()
    assert found.ratio[["y", "x"]].to_numpy() == pytest.approx(1, abs=0.03)


@pytest.mark.parametrize(
    ("stack", "error"),
    [
        (np.full((9, 64, 64), 100, np.uint16), "no beads were found|none of"),
        (np.zeros((3, 64, 64), np.uint16), "7 planes at least; got 3"),
        (np.zeros((64, 64), np.uint16), "shape"),
    ],
)
def test_a_stack_without_beads_is_said(stack, error):
    with pytest.raises(ValueError, match=error):
        microscope_quality(stack, VOXEL)
