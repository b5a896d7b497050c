"""Beads calibrate z: known truth, errors that are right, and what is wrong is named."""

from __future__ import annotations

import warnings
from dataclasses import replace

import numpy as np
import pytest
from real_files import FOLDER

from napari_spotfit import (
    AstigmatismCalibration,
    Camera,
    Fitter,
    Settings,
    calibrate_astigmatism,
    fit_at,
    fit_spots,
    load_calibration,
    localize,
    simulate_beads,
    simulate_movie,
    simulate_psf,
)
from napari_spotfit.models.calibration import Curve

LENS = {"zernike": {"astigmatism": 0.1, "coma": 0.02}}
CAMERA = Settings(gain=1.0, offset=100.0, roi_size=13)
Z = np.arange(-600.0, 601.0, 20.0)
#: Enough to see what is wrong.
COARSE = Z[::2]


def beads(z=Z, **given):
    known = {"shape": (160, 160), "count": 9, "photons": 20_000, "height": 30, "seed": 1} | LENS
    return simulate_beads(z, **(known | given))


@pytest.fixture(scope="module")
def stack():
    return beads()


@pytest.fixture(scope="module")
def lens(stack):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return calibrate_astigmatism(stack[0], 20.0, settings=CAMERA)


def spots(z: float, count: int, photons=3000, background=10, **optics):
    """Return cut-outs of points at a height, with noise, and their true places."""
    rng = np.random.default_rng(int(z) + 5000)
    y, x = np.append(rng.uniform(-0.5, 0.5, (2, count)), [[0], [0]], axis=1)
    psf = simulate_psf(np.append(np.full(count, z), 0), 13, y=y, x=x, **(LENS | optics))
    light = photons * psf[:-1] / psf[-1].sum() + background
    return rng.poisson(light).astype(np.float32), y[:-1] + 6, x[:-1] + 6


def test_beads_are_found_and_their_heights_measured(stack, lens):
    truth = stack[1]
    used = [bead for bead in lens.beads if bead.used]
    assert len(used) == 9
    for _, row in truth.iterrows():
        bead = min(used, key=lambda one: np.hypot(one.y - row["y"], one.x - row["x"]))
        assert np.hypot(bead.y - row["y"], bead.x - row["x"]) < 2
        # All are round at one height, that of the lens, above their own.
        assert bead.z - 600 - row["z"] == pytest.approx(
            used[0].z - 600 - _own(truth, used[0]), abs=6
        )
    assert lens.low < -350
    assert lens.high > 350
    assert lens.angle == 0
    assert lens.roi_size == (13, 13)


def _own(truth, bead):
    far = np.hypot(truth["y"] - bead.y, truth["x"] - bead.x)
    return float(truth["z"].iloc[int(np.argmin(far))])


@pytest.mark.parametrize(
    ("photons", "background", "least"),
    # Of spots nearly as bright as the beads, how beads differ counts in full.
    [(3000, 10, 0.92), (1500, 20, 0.92), (8000, 5, 0.8)],
)
def test_z_of_other_spots_is_right_and_so_is_its_error(lens, photons, background, least):
    errors, places = [], []
    for z in (-300, -150, 0, 150, 300):
        rois, y, x = spots(z, 300, photons, background)
        fits = fit_spots(rois, model=lens, gain=1.0)
        good = fits.good
        assert good.mean() > 0.9
        errors.append([(fits.z - z)[good], fits.z_stderr[good]])
        places.append([np.mean((fits.x - x)[good]), np.mean((fits.y - y)[good])])
    # z is 0 where spots are round, which is a few nm from the focus of this lens.
    bias = np.array([np.mean(error) for error, _ in errors])
    scatter = np.array([np.mean(stderr) for _, stderr in errors])
    assert np.abs(bias - np.median(bias)).max() < 0.4 * scatter.max()
    assert abs(np.median(bias)) < 15
    spread = np.concatenate([(error - error.mean()) / stderr for error, stderr in errors])
    assert least < spread.std() < 1.08
    # Coma moves spots by 40 nm over this range; what is left is a shift of all.
    assert np.ptp(np.array(places), axis=0) == pytest.approx(0, abs=0.06)


def test_without_the_correction_coma_moves_the_spots(lens):
    flat = Curve("polynomial", (0.0,))
    dimmer = tuple(one._replace(wobble_x=flat) for one in lens.dimmer)
    still = replace(lens, wobble_x=None, dimmer=dimmer, psf=None)
    means = []
    for z in (-350, 0):
        rois, _, x = spots(z, 200)
        fits = fit_spots(rois, model=still, gain=1.0)
        means.append(np.mean((fits.x - x)[fits.good]))
    assert abs(means[0] - means[1]) > 0.15


def test_the_beads_image_says_more_than_widths(lens):
    widths, squares, ratios = replace(lens, psf=None), [], []
    for z in (-350, -200, 0, 200, 350):
        rois, _, x = spots(z, 400)
        by_image, alone = (fit_spots(rois, model=one, gain=1.0) for one in (lens, widths))
        assert by_image.z_p_value == pytest.approx(alone.z_p_value)
        good = by_image.good
        assert good.mean() > 0.98
        errors = [[(fits.z - z)[good], (fits.x - x)[good]] for fits in (by_image, alone)]
        squares.append(np.var(errors, axis=2))
        for name, error in zip("zx", errors[0], strict=True):
            stderr = by_image.columns[f"{name}_stderr"][good]
            ratios.append((error - error.mean()) / stderr)
    better = np.sqrt(np.mean(squares, axis=0))
    assert (better[0] < 0.85 * better[1]).all()
    assert np.concatenate(ratios).std() == pytest.approx(1, abs=0.05)


def test_the_image_counts_by_every_door(lens, tmp_path):
    rois, _, _ = spots(-200, 40)
    cut_outs = fit_spots(rois, model=lens, gain=1.0)
    alone = fit_spots(rois, model=replace(lens, psf=None), gain=1.0)
    assert np.abs(cut_outs.z - alone.z).max() > 3
    frames = np.pad(rois, [(0, 0), (7, 7), (7, 7)], mode="edge")
    at = np.column_stack([np.arange(40), np.full((40, 2), 13)])
    known = {"model": lens, "gain": 1.0, "neighbours": "ignore"}
    in_frames = fit_at(frames, at, **known)
    by_fitter = [Fitter(**known).fit_at(frame, [[13, 13]]).z[0] for frame in frames]
    for z in (in_frames.z, by_fitter):
        assert z == pytest.approx(cut_outs.z, abs=0.2)
    assert in_frames.x - 7 == pytest.approx(cut_outs.x, abs=2e-3)
    # One position outside leaves the others as they are.
    out = fit_at(frames[0], [[13, 13], [-5, 2]], **known)
    assert out.z[0] == pytest.approx(cut_outs.z[0], abs=0.2)
    assert np.isnan(out.z[1])
    lens.save(tmp_path / "lens.h5")
    loaded = load_calibration(tmp_path / "lens.h5")
    assert loaded == lens
    assert fit_spots(rois, model=loaded, gain=1.0).z.tolist() == cut_outs.z.tolist()
    turned = fit_spots(rois.swapaxes(1, 2), model=lens.oriented("transposed"), gain=1.0)
    assert turned.z == pytest.approx(cut_outs.z, abs=0.2)
    assert turned.y == pytest.approx(cut_outs.x, abs=2e-3)


def test_crowds_are_fitted_with_the_beads_image(lens):
    movie, truth = simulate_movie(
        4, (64, 64), spots_per_frame=40, photons=5000, z=(-300, 300), optics=LENS, seed=4
    )
    camera = {"gain": 1.0, "offset": 100.0}
    fits = localize(movie, model=lens.psf, estimator="mle", neighbours="joint", **camera)
    good, alone = fits[fits.good], localize(movie, model=lens, **camera)
    assert len(good) > 1.2 * alone.good.sum()
    off = []
    for fit in good.to_dataframe().itertuples():
        there = truth[truth["frame"] == fit.frame]
        nearest = np.hypot(there["y"] - fit.y, there["x"] - fit.x).argmin()
        off.append(fit.z - there["z"].iloc[nearest])
    assert np.median(off) == pytest.approx(0, abs=10)
    assert np.median(np.abs(off)) < 20
    with pytest.raises(ValueError, match="a calibration of a lens has as its psf; got 'gaussian_e"):
        localize(movie, model=lens, neighbours="joint", **camera)


def test_errors_grow_by_how_beads_differ(lens):
    rois, _, _ = spots(100, 40, photons=50_000)
    one, unlike = (
        fit_spots(rois, model=replace(lens, unlike=Curve("polynomial", (by,))), gain=1.0)
        for by in (0.0, 12.0)
    )
    assert unlike.z_stderr == pytest.approx(np.hypot(one.z_stderr, 12), rel=1e-4)


@pytest.mark.filterwarnings("ignore:the calibration is of 1 bead only")
def test_without_room_for_the_image_widths_find_z():
    stack, _ = beads(count=1, shape=(64, 64), photons=20_000)
    top, left = np.argwhere(stack.max(0) == stack.max())[0] - 7
    with pytest.warns(UserWarning, match="the beads' image is not known"):
        lens = calibrate_astigmatism(
            stack[:, top : top + 15, left : left + 15], 20.0, settings=CAMERA
        )
    assert lens.psf is None
    assert fit_spots(spots(0, 20)[0], model=lens, gain=1.0).good.mean() > 0.8


def test_movies_have_z(lens):
    movie, truth = simulate_movie(
        20, (96, 96), spots_per_frame=3, photons=5000, z=(-300, 300), optics=LENS, seed=3
    )
    fits = localize(movie, model=lens, gain=1.0, offset=100)
    assert fits.units["z"] == fits.units["z_stderr"] == "nm"
    good = fits[fits.good & (fits.z_p_value > 1e-3) & ((fits.flags & 256) == 0)]
    error = []
    for one in good:
        own = truth[truth["frame"] == one.frame[0]]
        far = np.hypot(own["y"] - one.y[0], own["x"] - one.x[0])
        if far.min() < 1 and np.sort(far)[1] > 15:
            error.append(one.z[0] - own["z"].iloc[int(np.argmin(far))])
    assert len(error) > 15
    assert np.median(np.abs(error - np.median(error))) < 20


def test_heights_may_be_given_for_each_plane(stack, lens):
    same = calibrate_astigmatism(stack[0], Z, settings=CAMERA)
    assert same.x(200.0) == pytest.approx(lens.x(200.0), abs=1e-6)
    uneven = np.sort(np.random.default_rng(0).uniform(-600, 600, 61))
    other = calibrate_astigmatism(beads(uneven)[0], uneven, settings=CAMERA)
    z = np.linspace(-300, 300, 7)
    assert other.x(z) == pytest.approx(lens.x(z), abs=0.05)
    assert other.y(z) == pytest.approx(lens.y(z), abs=0.05)


def test_a_camera_of_maps_counts(stack, lens):
    rng = np.random.default_rng(2)
    gain, offset = rng.uniform(0.8, 1.2, (160, 160)), rng.uniform(80, 120, (160, 160))
    seen = (stack[0] - 100.0) * gain + offset
    same = calibrate_astigmatism(
        seen, 20.0, camera=Camera(gain=gain, offset=offset), settings=Settings(roi_size=13)
    )
    z = np.linspace(-300, 300, 7)
    assert same.x(z) == pytest.approx(lens.x(z), abs=0.02)


def test_a_turned_lens_has_one_angle(lens):
    turned = {
        "astigmatism": 0.1 * np.cos(np.radians(40)),
        "oblique_astigmatism": 0.1 * np.sin(np.radians(40)),
    }
    own = calibrate_astigmatism(beads(zernike=turned)[0], 20.0, settings=CAMERA)
    assert abs(own.angle) == pytest.approx(20, abs=1.5)
    rois, _, _ = spots(200, 200, zernike=turned)
    fits = fit_spots(rois, model=own, gain=1.0)
    assert np.median(fits.z) == pytest.approx(200, abs=25)
    assert fits.angle == pytest.approx(own.angle, rel=1e-6)


def test_a_sample_of_another_index_scales_z_and_its_error(lens):
    rois, _, _ = spots(150, 50)
    fits, scaled = (fit_spots(rois, model=one, gain=1.0) for one in (lens, lens.with_index(0.75)))
    assert scaled.z == pytest.approx(0.75 * fits.z)
    assert scaled.z_stderr == pytest.approx(0.75 * fits.z_stderr, rel=1e-5)
    assert scaled.x == pytest.approx(fits.x)


def test_nothing_is_extrapolated(lens):
    rois, _, _ = spots(900, 50, photons=20_000)
    fits = fit_spots(rois, model=lens, gain=1.0)
    assert not fits.good.any()
    low, high = lens.range
    inside = fits.z[np.isfinite(fits.z)]
    assert ((inside >= low) & (inside <= high)).all()


def test_quality_says_how_well_z_is_known(lens):
    quality = lens.quality
    inside = np.abs(quality.z) < 300
    assert np.abs(np.array(quality.bias)[inside]).max() < 10
    assert 1 < np.median(quality.scatter) < 10
    assert 1 < np.median(quality.bound) < 8


def test_beads_that_are_not_used_say_why():
    stack, _ = beads(COARSE, count=12, shape=(200, 200))
    other, _ = beads(COARSE, count=12, shape=(200, 200), height=0, zernike={"astigmatism": 0.25})
    # The first bead is another kind, the last one is saturated, another one is at the edge.
    stack[:, :50, :50] = other[:, :50, :50]
    stack[:, 150:, 150:] = np.where(stack[:, 150:, 150:] > 800, 65535, stack[:, 150:, 150:])
    stack = stack[:, :, 12:]
    found = calibrate_astigmatism(stack, 40.0, settings=CAMERA)
    reasons = [bead.reason.split(":")[0] for bead in found.beads if not bead.used]
    assert "saturated" in reasons
    assert {"unlike", "never round", "few planes"} & set(reasons)
    assert sum(bead.used for bead in found.beads) >= 7


def test_beads_may_be_chosen(stack, lens):
    chosen = [[bead.y, bead.x] for bead in lens.beads if bead.used][:4]
    found = calibrate_astigmatism(stack[0], 20.0, beads=chosen, settings=CAMERA)
    assert len(found.beads) == 4
    assert all(bead.used for bead in found.beads)


def test_few_beads_and_common_drifts_are_warned_of():
    with pytest.warns(UserWarning, match="is of 1 bead only"):
        calibrate_astigmatism(beads(COARSE, count=1, shape=(64, 64))[0], 40.0, settings=CAMERA)
    with pytest.warns(UserWarning, match="the beads are dim on their background"):
        calibrate_astigmatism(beads(COARSE, photons=1500)[0], 40.0, settings=CAMERA)
    with pytest.warns(UserWarning, match="all beads move together along y by"):
        calibrate_astigmatism(beads(COARSE, drift=(4, 0))[0], 40.0, settings=CAMERA)


@pytest.mark.filterwarnings("ignore")
def test_wrong_stacks_are_named(stack):
    planes = stack[0]
    shuffled = planes[np.random.default_rng(0).permutation(len(planes))]
    sweeps = planes[np.concatenate([np.arange(len(planes))[i::4] for i in (2, 0, 3, 1)])]
    none = beads(zernike={})[0]
    dark, _ = beads(photons=0)
    missing = planes.astype(float)
    missing[[10, 12], 5, 5] = np.nan
    together = planes + np.roll(planes, 9, axis=2) - 100
    cases = [
        (planes[0], 20, r"must have the shape \(planes, rows, columns\); got \(160, 160\)"),
        (planes[:1], 20, "must have 7 planes at least; got 1"),
        (planes, 0, "dz must be above 0 nm"),
        (planes, -20, r"recorded downwards, give stack\[::-1\]"),
        (planes, 0.02, "dz is in nm: .* got steps of 0.02 nm, 1.2 nm in all"),
        (planes, Z / 1000, "dz is in nm"),
        (planes, "far", "dz must be a finite number|could not convert"),
        (planes, Z[:5], r"the height of each of the 61 planes; got \(5,\)"),
        (planes, Z[::-1], "the heights of the planes must rise"),
        (planes, np.append(Z[:-1], np.nan), "numbers that are not finite"),
        (shuffled, 20, "not in the order of their heights"),
        (sweeps, 20, "the widths of the beads jump from plane to plane"),
        (none, 20, "do not determine z|never round"),
        (missing, 20, "plane 10, 12 has pixels that are no numbers: leave it out"),
        (planes[:24], 20, "do not determine z|never round"),
        (dark, 20, "no beads were found|can be used"),
        (together, 20, "can be used: .* overlapping"),
        (np.minimum(planes, 300), 20, "can be used: .* saturated"),
    ]
    for given, dz, words in cases:
        with pytest.raises((TypeError, ValueError), match=words):
            calibrate_astigmatism(given, dz, settings=CAMERA)


def test_a_real_stack_of_a_turned_lens_is_calibrated():
    tifffile = pytest.importorskip("tifffile")
    path = FOLDER / "3d" / "psf-extractor" / "astigmatism_beads_z100nm.tif"
    if not path.exists():
        pytest.skip(f"needs the file {path}")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        lens = calibrate_astigmatism(tifffile.imread(path), 100.0)
    assert isinstance(lens, AstigmatismCalibration)
    assert 7 <= sum(bead.used for bead in lens.beads) <= 11
    assert lens.angle == pytest.approx(-10, abs=2)
    assert np.median(lens.quality.scatter) < 60


def test_lobes_far_from_the_focus_mean_nothing():
    """There, fits of lobes are as narrow as those of beads in focus, and round."""
    z = np.arange(-1000, 1001, 20)
    stack, _ = simulate_beads(
        z, (256, 256), count=15, photons=20000, height=30, seed=3, zernike={"astigmatism": 0.1}
    )
    lens = calibrate_astigmatism(stack, 20, settings=Settings(gain=1.0, offset=100.0))
    assert sum(bead.used for bead in lens.beads) >= 14
    assert lens.low < -350
    assert lens.high > 350
