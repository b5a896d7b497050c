"""Joint fits with a measured PSF: SciPy's optimum, truth, what a wrong z must not be taken for."""

from __future__ import annotations

import numpy as np
import pytest
from psfs import PSFS, crowd_of_psf, light_of, measured_psf
from scipy.optimize import linear_sum_assignment, minimize

from napari_spotfit import (
    AstigmatismCalibration,
    Flag,
    MeasuredPsf,
    fit_at,
    localize,
    simulate_movie,
    simulate_psf,
)
from napari_spotfit.models.calibration import Curve

KNOWN = {"gain": 1.0, "offset": 0.0, "estimator": "mle", "backend": "cpu"}
REACH, SIDE = 10, 21


@pytest.fixture(scope="module")
def psf():
    return measured_psf(side=SIDE)


def pairs_of(truth, fits, side=2.5, depth=500.0):
    """Return the rows of true spots and of fits that are the same, one to one."""
    found = np.column_stack([fits.y, fits.x, fits.z]).astype(float)
    apart = np.linalg.norm(truth[:, None, :2] - found[:, :2], axis=2)
    near = (apart < side) & (abs(truth[:, None, 2] - found[:, 2]) < depth)
    rows, columns = linear_sum_assignment(np.where(near, apart - 100, 0))
    is_pair = near[rows, columns]
    return rows[is_pair], columns[is_pair]


def poisson(mean, seed):
    return np.random.default_rng(seed).poisson(mean).astype(np.uint16)


@pytest.mark.parametrize(
    "truth",
    [
        [[15.2, 14.1, -250.0], [17.3, 17.2, 120.0]],
        [[15.2, 14.1, 300.0], [16.1, 18.4, 330.0], [19.7, 14.9, -40.0]],
    ],
)
def test_joint_fits_are_scipys_joint_optimum(psf, truth):
    truth, shape = np.array(truth), (34, 33)
    count, photons = len(truth), 4000.0
    mean = 10.0 + light_of(psf, truth, photons, 34)[:, :33]
    image = poisson(mean, count)
    known = KNOWN | {"model": psf, "max_iterations": 200}
    start = fit_at(image, truth[:, :2], neighbours="exclude", **known)
    fits = fit_at(image, truth[:, :2], neighbours="joint", **known)
    y, x = np.indices(shape)
    begin = np.column_stack([start.y, start.x]).astype(float)
    from_start = np.array([np.hypot(y - one[0], x - one[1]) for one in begin])
    middles = np.floor(begin + 0.5)
    in_box = [(abs(y - v) <= REACH) & (abs(x - u) <= REACH) for v, u in middles]
    near = ((from_start <= REACH + 0.5) & in_box).any(axis=0)
    data = image[near].astype(float)

    def expected(parameters):
        own = parameters[: 4 * count].reshape(count, 4) * [1, 1, 100, 1000]
        level, down, across = parameters[4 * count :]
        total = level + down * (y - 17) / 17 + across * (x - 16) / 16
        for at_y, at_x, z, light in own:
            one = psf.lattice.sample(z, y - at_y, x - at_x)
            inside = (abs(y - np.floor(at_y + 0.5)) <= REACH) & (
                abs(x - np.floor(at_x + 0.5)) <= REACH
            )
            total = total + light * np.where(inside, one, 0)
        return np.maximum(total[near], 0.05)

    def lost(parameters):
        own = expected(parameters)
        return (own - data * np.log(own)).sum()

    guess = np.column_stack([truth[:, :2], truth[:, 2] / 100, np.full(count, photons / 1000)])
    best = minimize(lost, [*guess.ravel(), 10.0, 0.0, 0.0], method="BFGS", options={"gtol": 1e-4}).x
    steps = 1e-4 * np.eye(len(best))
    slopes = np.array([(expected(best + s) - expected(best - s)) / 2e-4 for s in steps])
    information = (slopes / expected(best)) @ slopes.T
    errors = np.sqrt(np.diag(np.linalg.inv(information)))
    scale = np.array([1, 1, 100, 1000])
    wanted, wanted_errors = (own[: 4 * count].reshape(count, 4) * scale for own in (best, errors))
    found = np.column_stack([fits.y, fits.x, fits.z, fits.photons])
    found_errors = np.column_stack(
        [fits.y_stderr, fits.x_stderr, fits.z_stderr, fits.photons_stderr]
    )
    assert (abs(found - wanted) < 0.05 * wanted_errors).all()
    np.testing.assert_allclose(found_errors, wanted_errors, rtol=0.02)
    assert (fits.group == 0).all()
    assert (fits.evidence > 50).all()


def test_what_is_found_is_what_is_there(psf):
    """Light of 0.3 spots per µm² overlaps for most of them."""
    rng = np.random.default_rng(5)
    scenes = [
        crowd_of_psf(psf, rng.poisson(12), rng.uniform(2000, 5000), seed=k) for k in range(50)
    ]
    fits = localize(
        np.array([image for image, _ in scenes]), model=psf, neighbours="joint", **KNOWN
    )
    assert (fits.group_size > 1).mean() > 0.5
    good, misses, off = fits[fits.good], 0, []
    for frame, (_, truth) in enumerate(scenes):
        own = good[good.frame == frame]
        rows, columns = pairs_of(truth, own)
        misses += len(truth) + len(own) - 2 * len(rows)
        errors = np.column_stack([own.y_stderr, own.x_stderr, own.z_stderr])
        found = np.column_stack([own.y, own.x, own.z])
        off.append((found[columns] - truth[rows]) / errors[columns])
    off = np.concatenate(off)
    assert misses < 0.05 * len(off)
    spread = np.median(abs(off), axis=0) / 0.6745
    assert (abs(spread - 1) < 0.15).all()
    # A spot in a wrong minimum would be off by 10 errors and more.
    assert (abs(off) > 6).any(axis=1).mean() < 0.03


def test_spots_that_stand_alone_have_the_fits_of_single_spots(psf):
    grid = np.stack(np.meshgrid([20, 60, 100], [20, 60, 100]), -1).reshape(-1, 2)
    rng = np.random.default_rng(2)
    truth = np.column_stack([grid + rng.uniform(-1, 1, (9, 2)), rng.uniform(-400, 400, 9)])
    image = poisson(10 + light_of(psf, truth, 4000.0, 120), 3)
    single, both = (
        localize(image, model=psf, neighbours=kind, **KNOWN) for kind in ("exclude", "auto")
    )
    assert len(single) == 9
    for name, column in single.columns.items():
        np.testing.assert_array_equal(both.columns[name], column, err_msg=name)


@pytest.mark.parametrize("neighbours", ["joint", "auto"])
def test_z_at_an_end_of_the_range_is_flagged(neighbours):
    psf = measured_psf()
    short = MeasuredPsf(psf.coefficients[12:-12], psf.dz, psf.plane - 12, psf.y, psf.x)
    movie, _ = simulate_movie(
        12, (128, 128), spots_per_frame=4, photons=4000, background=10, z=(-500, 500),
        optics={"zernike": PSFS["astigmatic"]}, seed=3,
    )  # fmt: skip
    single, fits = (
        localize(movie, model=short, estimator="mle", gain=1.0, offset=100.0, neighbours=one)
        for one in ("exclude", neighbours)
    )
    low, high = np.float32(short.range)
    is_at_end = (fits.z <= low) | (fits.z >= high)
    assert is_at_end.sum() > 10
    assert ((fits.flags[is_at_end] & int(Flag.Z_AT_LIMIT)) != 0).all()
    # Rings of those far out of focus are not taken for spots.
    assert neighbours == "joint" or fits.good.sum() <= single.good.sum()


@pytest.mark.parametrize("photons", [1500.0, 6000.0])
def test_no_spot_explains_the_defocus_of_another_one(photons):
    """Nor what is beyond the last plane, by a tenth of the depth on either side."""
    planes = simulate_psf(np.arange(-500, 501, 50), SIDE, zernike={"astigmatism": 0.08})
    psf = MeasuredPsf.from_planes(planes, 50.0, plane=10, pixel_size=100.0)
    z = np.linspace(-600, 600, 80)
    spots = simulate_psf(z, 2 * REACH + 1, y=0.3, x=-0.2, zernike={"astigmatism": 0.08})
    movie = poisson(10 + photons * np.pad(spots, ((0, 0), (12, 12), (12, 12))), 1)
    fits = localize(movie, model=psf, neighbours="joint", **KNOWN)
    good = fits[fits.good]
    per_frame = np.bincount(good.frame, minlength=len(z))
    assert (per_frame > 1).sum() <= 1
    assert (per_frame[abs(z) < 480] == 1).mean() > 0.95
    inside = good[abs(z[good.frame]) < 450]
    assert (abs(inside.z - z[inside.frame]) < 150).all()


def test_rows_do_not_depend_on_order_frames_or_threads(psf):
    scenes = [crowd_of_psf(psf, 30, seed=k) for k in range(3)]
    movie = np.array([image for image, _ in scenes])
    known = KNOWN | {"model": psf, "neighbours": "joint"}
    fits = localize(movie, threads=1, **known)
    again = localize(movie, threads=2, **known)
    alone = localize(movie[1], **known)
    middle = fits[fits.frame == 1]
    for name in ("y", "x", "z", "z_stderr", "photons", "evidence", "flags"):
        np.testing.assert_array_equal(fits.columns[name], again.columns[name])
        np.testing.assert_array_equal(alone.columns[name], middle.columns[name])
    places = scenes[0][1][:, :2]
    order = np.random.default_rng(1).permutation(len(places))
    first, other = (fit_at(movie[0], own, **known) for own in (places, places[order]))
    # Fits of single spots, where these begin, are others by rounding.
    for name in ("y", "x", "z", "photons"):
        off = abs(first.columns[name][order] - other.columns[name])
        assert (off <= 0.01 * other.columns[name + "_stderr"]).all(), name


def test_pixels_that_are_no_data_count_in_no_fit(psf):
    image, truth = crowd_of_psf(psf, 12, seed=4)
    image = image.astype(np.float32)
    image[20:26, 20:26], image[40, 41] = np.nan, np.inf
    fits = localize(image, model=psf, neighbours="joint", **KNOWN)
    rows, _ = pairs_of(truth, fits[fits.good])
    assert len(rows) > len(truth) / 2
    assert np.isfinite(fits.z[fits.good]).all()


def test_an_extended_blob_is_no_crowd_of_good_spots(psf):
    y, x = np.indices((64, 64))
    far = np.hypot(y - 32, x - 32)
    image = poisson(10 + 200 / (1 + np.exp(far - 12)), 1)
    fits = localize(image, model=psf, neighbours="joint", **KNOWN)
    assert fits.good.sum() <= 1


@pytest.mark.filterwarnings("ignore:the widths of")
def test_what_cannot_be_fitted_together_is_an_error(psf):
    image, _ = crowd_of_psf(psf, 5)
    with pytest.raises(ValueError, match=r"neighbours='joint' needs no bounds, and no fixed"):
        localize(image, model=psf, neighbours="joint", fixed={"z": 100.0}, **KNOWN)
    widths = (Curve("huang", (1.3, focus, 400.0, 0.0, 0.0)) for focus in (250.0, -250.0))
    lens = AstigmatismCalibration(*widths, -500.0, 500.0)
    with pytest.raises(
        ValueError, match=r"or a measured PSF, such as calibrate_psf makes of beads"
    ):
        localize(image, model=lens, neighbours="joint", **KNOWN)
    both = [localize(image, model=lens, neighbours=kind, **KNOWN) for kind in ("exclude", "auto")]
    np.testing.assert_array_equal(both[0].z, both[1].z)
