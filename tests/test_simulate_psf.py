"""Simulated point-spread functions are those of their optics."""

from __future__ import annotations

import numpy as np
import pytest
from real_files import FOLDER

from napari_spotfit import fit_spots, simulate_beads, simulate_movie, simulate_psf

OIL = {"numerical_aperture": 1.49, "wavelength": 670, "refractive_index": 1.518}


def widths(psf: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    fits = fit_spots(psf * 1e5, model="gaussian_elliptical")
    return fits.sigma_x, fits.sigma_y


def test_a_psf_without_aberrations_is_even_and_keeps_its_light():
    z = np.arange(-600, 601, 100)
    psf = simulate_psf(z, 101, **OIL)
    sums = psf.sum((1, 2))
    assert sums.max() == pytest.approx(1)
    assert sums.min() > 0.98  # what is beyond ±50 pixels out of focus
    for same in (psf[::-1], psf[:, ::-1], psf[:, :, ::-1], psf.transpose(0, 2, 1)):
        assert np.abs(psf - same).max() < 1e-12


def test_shifts_are_exact():
    still = simulate_psf(0, 41)
    y, x = np.indices((41, 41)) - 20.0
    whole = simulate_psf([0, 0], 41, y=[2, 0], x=[-3, 0])
    assert np.allclose(whole[0, 10:30, 10:30], whole[1, 8:28, 13:33], rtol=1e-9)
    moved = simulate_psf([0, 0], 41, y=[0.3, -0.45], x=[-0.7, 0.2])
    fits = fit_spots(moved * 1e5)
    assert fits.y == pytest.approx([20.3, 19.55], abs=2e-3)
    assert fits.x == pytest.approx([19.3, 20.2], abs=2e-3)
    assert (still[0] * y).sum() == pytest.approx(0, abs=1e-12)
    assert (still[0] * x).sum() == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize(("waves", "focus"), [(0.06, 150), (0.10, 200), (0.15, 250)])
def test_astigmatism_splits_the_focus(waves, focus):
    z = np.arange(-400, 401, 10)
    sigma_x, sigma_y = widths(simulate_psf(z, 13, zernike={"astigmatism": waves}, **OIL))
    assert z[np.argmin(sigma_x)] == pytest.approx(focus, abs=30)
    assert z[np.argmin(sigma_y)] == pytest.approx(-focus, abs=30)
    assert sigma_x == pytest.approx(sigma_y[::-1], rel=1e-3)


def test_aberrations_do_what_their_names_say():
    z = [-300.0, 0.0, 300.0]
    y, x = np.indices((41, 41)) - 20.0
    coma = simulate_psf(z, 41, zernike={"coma": 0.05})
    assert np.abs((coma * y).sum((1, 2))).max() < 1e-10
    assert np.abs((coma * x).sum((1, 2))).min() > 0.05
    vertical = simulate_psf(z, 41, zernike={"vertical_coma": 0.05})
    assert np.abs(vertical - coma.transpose(0, 2, 1)).max() < 1e-12
    focus = simulate_psf(z, 41, zernike={"spherical": 0.06}).max((1, 2))
    assert abs(focus[0] - focus[2]) > 0.1 * focus.max()
    turned = simulate_psf(z, 41, zernike={"oblique_astigmatism": 0.1})
    assert np.abs(turned - turned.transpose(0, 2, 1)).max() < 1e-12
    assert ((turned * x * y).sum((1, 2)) * [1, 0, -1]).min() >= 0
    lobes = simulate_psf(z, 41, zernike={"astigmatism": 0.25, "secondary_astigmatism": -0.2})
    along = lobes[0].sum(0), lobes[0].sum(1)
    split = [line[20] < 0.7 * line.max() for line in along]
    assert sorted(split) == [False, True]
    again = lobes[2].sum(1), lobes[2].sum(0)
    assert [line[20] < 0.7 * line.max() for line in again] == split


def test_it_agrees_with_another_simulation():
    truth = FOLDER / "3d" / "peers" / "truth_psf.npz"
    if not truth.exists():
        pytest.skip(f"needs the file {truth}")
    other = np.load(truth)
    psf = simulate_psf(other["z_nm"], 15, zernike={"astigmatism": 0.1, "coma": 0.03})
    # Its pupil has about 30 points across.
    assert np.abs(psf - other["psf"]).max() < 0.03 * psf.max()


def test_beads_are_where_the_truth_says():
    z = np.arange(-400, 401, 100)
    stack, truth = simulate_beads(
        z, (120, 160), count=12, photons=1e5, height=60, drift=(0, 1), offset=100, gain=2, seed=0,
        zernike={"astigmatism": 0.1},
    )  # fmt: skip
    assert stack.shape == (9, 120, 160)
    dark, _ = simulate_beads(z, (30, 30), count=1, photons=0, offset=100, gain=2)
    assert dark.mean() == pytest.approx(120, abs=0.3)
    at = truth[["y", "x"]].round().astype(int)
    rois = np.stack([stack[4, y - 6 : y + 7, x - 6 : x + 7] for y, x in at.to_numpy()])
    fits = fit_spots(rois, model="gaussian_elliptical", gain=2, offset=100)
    assert fits.y - 6 == pytest.approx(truth["y"] - at["y"], abs=0.02)
    assert fits.x - 6 == pytest.approx(truth["x"] - at["x"], abs=0.02)
    # In the plane z a bead is at z - its height: at 0, one that is higher is below its focus.
    slope = np.polyfit(truth["z"], fits.sigma_x - fits.sigma_y, 1)[0]
    assert slope > 1e-3
    assert (stack[4] - 120.0).sum() / 2 == pytest.approx(12e5, rel=0.03)
    assert (
        simulate_beads(z, count=2, seed=5)[0].tolist()
        == simulate_beads(z, count=2, seed=5)[0].tolist()
    )


def test_movies_have_molecules_at_heights():
    movie, truth = simulate_movie(
        3, (64, 64), spots_per_frame=4, photons=2000, background=1, z=(-300, 300), seed=2,
        optics={"zernike": {"astigmatism": 0.1}},
    )  # fmt: skip
    assert movie.shape == (3, 64, 64)
    assert list(truth) == ["frame", "y", "x", "photons", "z"]
    assert truth["z"].between(-300, 300).all()
    light = movie.astype(float).sum() - movie.size * 101
    assert light == pytest.approx(truth["photons"].sum(), rel=0.15)


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({"z": []}, ValueError, "z must be heights, a list of at least one"),
        ({"z": "low"}, TypeError, "z must be numbers; got 'low'"),
        ({"z": [0, np.nan]}, ValueError, "z must be finite; got nan"),
        ({"x": np.inf}, ValueError, "x must be finite; got inf"),
        ({"numerical_aperture": 1.6}, ValueError, "must be below the refractive_index 1.518; got"),
        ({"pixel_size": 0}, ValueError, "pixel_size must be a finite number above 0"),
        ({"zernike": {"astigmatic": 1}}, ValueError, "zernike must name aberrations, defocus, ast"),
        ({"zernike": {"coma": "much"}}, TypeError, "the aberration coma must be a finite number"),
    ],
)
def test_wrong_optics_are_named(arguments, error, words):
    with pytest.raises(error, match=words):
        simulate_psf(**({"z": 0} | arguments))
