"""A PSF that is measured on beads: against the true one, its quality, and what is refused."""

from __future__ import annotations

import re
from functools import lru_cache

import numpy as np
import pytest
from real_files import FOLDER

from napari_spotfit import (
    MeasuredPsf,
    Settings,
    calibrate_astigmatism,
    calibrate_psf,
    fit_spots,
    load_calibration,
    simulate_beads,
    simulate_psf,
)
from napari_spotfit.calibration.registration import align, moved
from napari_spotfit.models.measured_psf import share_mirrored

OPTICS = {"zernike": {"astigmatism": 0.1, "coma": 0.03}}
Z = np.arange(-900, 901, 50.0)
KNOWN = Settings(gain=1.0, offset=100.0, voxel_size=(50.0, 100.0, 100.0))


@lru_cache
def stack_of(count=12, photons=20_000, height=60.0, seed=1, side=200):
    return simulate_beads(
        Z, (side, side), count=count, photons=photons, height=height, seed=seed, **OPTICS
    )


@lru_cache
def measured(count=12, photons=20_000):
    return calibrate_psf(stack_of(count, photons)[0], 50.0, settings=KNOWN)


def judged(psf, photons=2000, background=10, count=1500):
    """Return errors of z, y and x of spots of the true PSF, less their medians, and the bound."""
    rng = np.random.default_rng(5)
    z = rng.uniform(-500, 500, count)
    y, x = rng.uniform(-0.5, 0.5, (2, count))
    light = simulate_psf(np.append(z, 0), 41, y=np.append(y, 0), x=np.append(x, 0), **OPTICS)
    light = light[:-1, 14:27, 14:27] / light[-1].sum()
    spots = rng.poisson(photons * light + background).astype(np.uint16)
    fits = fit_spots(spots, model=psf, estimator="mle", gain=1.0)
    planes = np.arange(-900, 901, 50.0)
    truth = MeasuredPsf.from_planes(
        simulate_psf(planes, 41, **OPTICS)[:, 8:33, 8:33], 50.0, plane=18, pixel_size=100.0
    )
    bound = truth.precision(photons, background, z=z)
    errors = [fits.z - z, 100 * (fits.y - 6 - y), 100 * (fits.x - 6 - x)]
    given = [fits.z_stderr, 100 * fits.y_stderr, 100 * fits.x_stderr]
    return (
        [error - np.median(error) for error in errors],
        [bound.z_stderr, bound.y_stderr, bound.x_stderr], given, fits,
    )  # fmt: skip


def test_fits_with_a_measured_psf_reach_the_bound():
    errors, bounds, given, fits = judged(measured())
    for error, bound, own in zip(errors, bounds, given, strict=True):
        assert np.sqrt(np.mean((error / bound) ** 2)) < 1.06
        assert (error / own).std() == pytest.approx(1, abs=0.06)
    # Beyond the PSF's 21×21 px there are 6 % of the light.
    assert np.median(fits.photons) == pytest.approx(1880, rel=0.01)


def test_beads_at_their_own_heights_are_aligned():
    truth = stack_of()[1]
    psf = measured()
    assert psf.bead_count.tolist() == [12] * len(psf.bead_count)
    used = [bead for bead in psf.beads if bead.used]
    assert len(used) == 12
    heights = []
    for bead in used:
        near = np.hypot(truth["y"] - bead.y, truth["x"] - bead.x).to_numpy()
        assert near.min() < 2
        heights.append((bead.z, truth["z"].iloc[near.argmin()]))
    found, true = np.array(heights).T
    assert np.std(found - true) < 4


def test_quality_says_how_well_z_is_found():
    psf = measured()
    inside = slice(4, -4)
    assert np.nanmax(np.abs(psf.z_bias[inside])) < 15
    assert 1 < np.nanmedian(psf.z_scatter[inside]) < 15
    # The light of all beads in the sharpest plane.
    assert psf.bead_photons.max() == pytest.approx(12 * 20_000, rel=0.1)


def test_a_shift_between_voxels_is_found():
    rng = np.random.default_rng(2)
    clean = simulate_psf(Z, 21, **OPTICS).astype(np.float32)
    shifts = rng.uniform(-1, 1, (6, 3)) * (3, 0.7, 0.7)
    beads = np.stack([moved(clean, -shift) for shift in shifts]).astype(np.float32)
    found = align(beads)
    relative = found - np.median(found, axis=0) - shifts + np.median(shifts, axis=0)
    assert np.abs(relative - relative.mean(axis=0)).max() < 0.05


def test_a_bead_of_another_shape_is_left_out():
    stack, truth = (one.copy() for one in stack_of())
    y, x = (round(truth[axis].iloc[5]) for axis in "yx")
    own = stack[:, y - 10 : y + 11, x - 10 : x + 11]
    own[:] = own.transpose(0, 2, 1)
    psf = calibrate_psf(stack, 50.0, settings=KNOWN)
    left_out = [bead for bead in psf.beads if bead.reason.startswith("another shape")]
    assert len(left_out) == 1
    assert sum(bead.used for bead in psf.beads) == 11
    assert abs(left_out[0].y - y) < 3
    assert abs(left_out[0].x - x) < 3


def test_dim_specks_and_beads_of_another_shape_cost_no_planes():
    """They are many, and their heights are any."""
    stack, _ = stack_of()
    specks, _ = simulate_beads(
        Z, (200, 200), count=16, photons=7000, height=700.0, seed=4,
        zernike={"astigmatism": -0.05, "spherical": 0.1},
    )  # fmt: skip
    both = np.concatenate([stack, specks], axis=2)
    psf = calibrate_psf(both, 50.0, settings=KNOWN)
    own = [bead for bead in psf.beads if bead.used]
    assert sum(bead.x < 200 for bead in own) >= 11
    assert sum(bead.x >= 200 for bead in own) <= 1
    assert len(psf.voxels) >= len(measured().voxels) - 1
    for error, bound, _ in zip(*judged(psf)[:3], strict=True):
        assert np.sqrt(np.mean((error / bound) ** 2)) < 1.06


@pytest.mark.filterwarnings("ignore:all beads move together")  # by 1.5 px, the limit
def test_a_real_astigmatic_stack_keeps_its_range():
    path = FOLDER / "3d" / "psf-extractor" / "astigmatism_beads_z100nm.tif"
    if not path.exists():
        pytest.skip(f"needs the file {path}")
    with pytest.warns(UserWarning, match="far from the focus, z is lost"):
        psf = calibrate_psf(path, 100.0)
    assert 10 <= sum(bead.used for bead in psf.beads) <= 12
    inside = np.abs((np.arange(len(psf.z_bias)) - psf.plane) * 100) <= 800
    assert inside.sum() >= 16
    assert np.median(psf.z_scatter[inside]) < 60
    assert psf.range[1] - psf.range[0] > 2000


def test_beads_that_cannot_be_used_are_named():
    stack, truth = (one.copy() for one in stack_of())
    places = truth[["y", "x"]].to_numpy().round().astype(int)
    full = np.s_[:, places[0, 0] - 2 : places[0, 0] + 3, places[0, 1] - 2 : places[0, 1] + 3]
    stack[full] = 65535
    other = np.roll(stack_of()[0], 12, axis=2)[:, places[3, 0] - 9 : places[3, 0] + 10]
    stack[:, places[3, 0] - 9 : places[3, 0] + 10, places[3, 1] + 3 : places[3, 1] + 22] = other[
        :, :, places[3, 1] + 3 : places[3, 1] + 22
    ]
    psf = calibrate_psf(stack, 50.0, settings=KNOWN)
    reasons = " ".join(bead.reason for bead in psf.beads if not bead.used)
    assert "saturated" in reasons
    assert "another bead is" in reasons
    assert sum(bead.used for bead in psf.beads) >= 9


def test_beads_can_be_chosen_and_the_reference_plane_set():
    stack, truth = stack_of()
    psf = calibrate_psf(
        stack, 50.0, beads=truth[["y", "x"]].to_numpy()[:4], reference=20, index_factor=0.8,
        settings=KNOWN,
    )  # fmt: skip
    assert len(psf.beads) == 4
    assert psf.nm_per_plane == 40
    # The planes that all of these beads have.
    assert psf.range[1] - psf.range[0] == 40 * (len(psf.bead_count) - 1)
    assert -40 * 20 <= psf.range[0] <= -40 * 12


def test_a_measured_psf_is_saved_and_opened(tmp_path):
    pytest.importorskip("h5py")
    psf = measured()
    psf.save(tmp_path / "psf.h5")
    same = load_calibration(tmp_path / "psf.h5")
    assert same == psf
    assert [bead.reason for bead in same.beads] == [bead.reason for bead in psf.beads]
    np.testing.assert_array_equal(same.z_bias, psf.z_bias)


def cut(stack, top, depth):
    """Return a stack whose values above a part of its highest one are that of the camera."""
    highest = depth * stack.max()
    return np.minimum(stack / highest, 1) * top


@pytest.mark.parametrize(
    ("top", "dtype"), [(255, np.uint8), (4095, np.uint16), (1.0, np.float32), (1.0, float)]
)
@pytest.mark.parametrize("calibrate", [calibrate_psf, calibrate_astigmatism])
def test_beads_cut_off_below_the_highest_number_of_their_type_are_refused(calibrate, top, dtype):
    stack = cut(stack_of()[0], top, 0.85).astype(dtype)
    with pytest.raises(ValueError, match=r"can be used: \d+ saturated"):
        calibrate(stack, 50.0)


def test_one_bead_that_is_cut_off_is_left_out():
    stack, truth = stack_of()
    stack = stack.astype(float)
    y, x = (round(truth[axis].iloc[0]) for axis in "yx")
    own = stack[:, y - 10 : y + 11, x - 10 : x + 11]
    own += 1.5 * (own - 100)
    psf = calibrate_psf(np.minimum(stack, 2200).astype(np.uint16), 50.0, settings=KNOWN)
    (left_out,) = (bead for bead in psf.beads if bead.reason.startswith("saturated"))
    assert np.hypot(left_out.y - y, left_out.x - x) < 3
    assert sum(bead.used for bead in psf.beads) == 11


@pytest.mark.filterwarnings("ignore:far from the focus")  # beads of 500 photons
@pytest.mark.filterwarnings("ignore:values come in steps of 1, more than three times the noise")
@pytest.mark.parametrize("photons", [500, 3000, 20_000])
@pytest.mark.parametrize("step", [1, 8])
def test_beads_of_few_values_are_not_taken_for_cut_off(photons, step):
    stack = stack_of(photons=photons)[0] // step
    psf = calibrate_psf(stack.astype(np.uint8 if stack.max() < 255 else np.uint16), 50.0)
    assert not any("saturated" in bead.reason for bead in psf.beads)


def test_the_share_of_spots_in_a_mirrored_plane_is_right_and_warned_of():
    lens = {"spherical": 0.02}
    stack, _ = simulate_beads(Z, (200, 200), count=12, photons=20_000, seed=1, zernike=lens)
    with pytest.warns(UserWarning, match="alike above and below the focus: at least 1.% of spots"):
        psf = calibrate_psf(stack, 50.0, settings=KNOWN)
    z, at = np.repeat(np.linspace(*psf.range, 24), 150), np.arange(13) - 6.0
    light = np.maximum(psf.lattice.sample(z[:, None, None], at[:, None], at), 0)
    spots = np.random.default_rng(3).poisson(500 * light + 10).astype(np.uint16)
    fits = fit_spots(spots, model=psf, estimator="mle", gain=1.0)
    # Of the other side: noise alone moves z by less. A fit has more than one minimum to end in.
    mirrored = (np.abs(fits.z - z) > 150) & (np.sign(fits.z) != np.sign(z)) & fits.good
    share = share_mirrored(psf, 500, 10)
    assert 0.1 < share < mirrored.mean() < 1.4 * share


def test_a_psf_without_any_aberration_is_warned_of_and_that_of_a_lens_is_not():
    stack, _ = simulate_beads(Z, (200, 200), count=12, photons=20_000, seed=1)
    with pytest.warns(UserWarning, match="alike above and below the focus"):
        psf = calibrate_psf(stack, 50.0, settings=KNOWN)
    assert share_mirrored(psf, 2000, 10) > 0.2
    assert share_mirrored(measured(), 500, 10) < 0.01


@pytest.mark.parametrize("calibrate", [calibrate_psf, calibrate_astigmatism])
@pytest.mark.filterwarnings("ignore:all beads move together")
@pytest.mark.parametrize("half", [slice(18, None), slice(None, 19)])
def test_half_a_stack_is_warned_of(calibrate, half):
    with pytest.warns(UserWarning, match=r"on one side of the focus: z is known from -?\d+ to"):
        calibrate(stack_of()[0][half], 50.0, settings=KNOWN)


def test_of_many_unused_beads_three_are_named_for_each_reason():
    stack, _ = stack_of()
    with pytest.raises(ValueError, match="saturated") as error:
        calibrate_psf(np.minimum(stack, 300), 50.0, settings=KNOWN)
    assert re.search(r"\d+ saturated \(y, x: \d+, \d+; \d+, \d+; \d+, \d+ …\)", str(error.value))
    assert len(str(error.value)) < 300


WRONG = {
    "one plane": (lambda s: (s[:1], 50.0), "at least"),
    "no stack": (lambda s: (s[0], 50.0), "planes, rows, columns"),
    "step of 0": (lambda s: (s, 0.0), "above 0"),
    "step in µm": (lambda s: (s, 0.05), "dz is in nm"),
    "not that of the voxels": (lambda s: (s, 100.0), "100 nm apart, and voxels 50 nm high"),
    "falling": (lambda s: (s, -50.0), r"stack\[::-1\]"),
    "out of order": (lambda s: (s, Z[np.r_[1, 0, 2 : len(Z)]]), "argsort"),
    "uneven": (lambda s: (s, Z + 20 * (np.arange(len(Z)) % 2)), "even distances"),
    "no beads": (lambda s: (np.full_like(s, 100), 50.0), "no beads"),
    "saturated": (lambda s: (np.minimum(s, 300), 50.0), "saturated"),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_is_no_stack_of_beads_is_named(case):
    change, message = WRONG[case]
    stack, dz = change(stack_of()[0])
    with pytest.raises(ValueError, match=message):
        calibrate_psf(stack, dz, settings=KNOWN)


def test_planes_in_no_order_are_refused():
    stack, _ = simulate_beads(np.arange(-500.0, 500.0, 25.0), count=6, height=0, seed=2)
    shuffled = stack[np.random.default_rng(0).permutation(len(stack))]
    with pytest.raises(ValueError, match="not in the order of their heights"):
        calibrate_psf(shuffled, 25)


@pytest.mark.filterwarnings("ignore:the PSF is alike")
def test_two_stacks_in_one_are_warned_of():
    z, lens = np.arange(-500.0, 500.0, 25.0), {"astigmatism": 0.1}
    stack, _ = simulate_beads(z, count=6, height=0, seed=2, zernike=lens)
    with pytest.warns(UserWarning, match="planes 19 and 20 are as unlike as any two"):
        calibrate_psf(np.concatenate([stack[::2], stack[1::2]]), 25)


def test_beads_that_drift_are_warned_of():
    stack, _ = simulate_beads(np.arange(-500.0, 500.0, 25.0), count=6, height=0, seed=2)
    drifting = np.stack([np.roll(plane, i // 8, 1) for i, plane in enumerate(stack)])
    with pytest.warns(UserWarning, match="all beads move together by"):
        calibrate_psf(drifting, 25)


def test_stacks_of_other_numbers_are_refused():
    with pytest.raises(TypeError, match="integers or real numbers; got complex128"):
        calibrate_psf(np.zeros((9, 40, 40), complex), 25)
