"""Joint fits of crowds: SciPy's joint optimum, hidden spots, blobs, and independence of order."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from crowd_scenes import (
    BACKGROUND,
    KNOWN,
    SIGMA,
    joint_reach,
    light_of,
    pairs_of,
    random_spots,
    shares,
)
from same_fits import assert_same
from scipy.optimize import minimize

from napari_spotfit import (
    Fitter,
    Flag,
    Settings,
    SpotFits,
    fit_at,
    localize,
    localize_iter,
)
from napari_spotfit.engine.backend import Block, Positions
from napari_spotfit.engine.cpu import crowd_fits
from napari_spotfit.engine.cpu.backend import Cpu
from napari_spotfit.engine.fit_job import FitJob
from napari_spotfit.engine.joint import fit_crowds
from napari_spotfit.engine.single_fits import distances, singles_of
from napari_spotfit.images import frames as frames_module
from napari_spotfit.images.pixel_calibration import PixelCalibration


@pytest.mark.parametrize("seed", [0, 1])
def test_small_crowds_of_more_spots_than_move_together_come_to_rest(seed):
    rng = np.random.default_rng(seed)
    truth = 1.75 + 3.6 * np.indices((11, 11)).reshape(2, -1).T
    truth += rng.uniform(-0.3, 0.3, truth.shape)
    image = rng.poisson(light_of(truth, 20000.0, 40)).astype(np.uint16)
    begun = truth + rng.uniform(-0.5, 0.5, truth.shape)
    fits = fit_at(image, begun, **KNOWN, neighbours="joint")
    assert fits.good.all()
    assert set(fits.group_size) == {len(truth)}
    off = np.hypot((fits.y - truth[:, 0]) / fits.y_stderr, (fits.x - truth[:, 1]) / fits.x_stderr)
    assert off.max() < 4


@pytest.mark.parametrize("count", [2, 3, 4, 5])
@pytest.mark.parametrize("pixel", ["integrated", "sampled"])
def test_joint_fits_are_scipys_joint_optimum(count, pixel):
    rng, side = np.random.default_rng(count), 36
    angles = np.arange(count) * 2 * np.pi / count
    truth = 17.3 + 2.0 * np.column_stack([np.sin(angles), np.cos(angles)]) * (1 + count / 8)
    image = rng.poisson(light_of(truth, 1500.0, side, pixel)).astype(np.uint16)
    settings = Settings(**KNOWN | {"pixel": pixel}, neighbours="joint", roi_size=9,
                        max_iterations=100)  # fmt: skip
    calibration = PixelCalibration((1, side, side), settings)
    calibration = calibration.with_noise(calibration.camera_noise)
    job = FitJob.of(calibration, image.dtype)
    block, positions = Block.of(calibration, np.zeros(1, int), image[np.newaxis]), Positions(truth)
    single = Cpu(1).fit(job, block, positions)
    start = singles_of(job, positions, single, SIGMA).places
    reach = int(joint_reach()) + 0.5
    at = np.indices(image.shape).reshape(2, -1).T
    near = (((at[:, np.newaxis] - start) ** 2).sum(axis=2) <= reach**2).any(axis=1)
    data = image.ravel()[near].astype(float)

    def mean(parameters):
        own = shares(parameters[: 2 * count].reshape(-1, 2), side, pixel)
        light = np.einsum("n,ny,nx->yx", parameters[2 * count : -3] * 1000, own[:, 0], own[:, 1])
        return (light.ravel() + ground(parameters, at))[near]

    def ground(parameters, places):
        return 10 * parameters[-3] + (places - 17.5) @ parameters[-2:] / 10

    def lost(parameters):
        expected = np.maximum(mean(parameters), 0.05)
        return (expected - data * np.log(expected)).sum()

    start = np.concatenate([truth.ravel(), np.full(count, 1.5), [1.0, 0.0, 0.0]])
    best = minimize(lost, start, method="BFGS", options={"gtol": 1e-4}).x
    columns = fit_crowds(Cpu(1), job, block, positions, single)
    np.testing.assert_array_equal(columns["group"], 0)
    np.testing.assert_allclose(
        np.column_stack([columns["y"], columns["x"]]), best[: 2 * count].reshape(-1, 2), atol=2e-3
    )
    np.testing.assert_allclose(columns["photons"], 1000 * best[2 * count : -3], rtol=2e-3)
    pixels = np.rint(np.column_stack([columns["y"], columns["x"]]))
    np.testing.assert_allclose(columns["background"], ground(best, pixels), rtol=4e-3)
    # The errors are those of the Fisher information of all parameters together.
    steps = 1e-4 * np.eye(len(best))
    slopes = np.array([(mean(best + step) - mean(best - step)) / 2e-4 for step in steps])
    errors = np.sqrt(np.diag(np.linalg.inv((slopes / mean(best)) @ slopes.T)))
    np.testing.assert_allclose(columns["y_stderr"], errors[0 : 2 * count : 2], rtol=0.01)
    np.testing.assert_allclose(columns["x_stderr"], errors[1 : 2 * count : 2], rtol=0.01)
    np.testing.assert_allclose(columns["photons_stderr"], 1000 * errors[2 * count : -3], rtol=0.01)


@pytest.mark.parametrize("neighbours", ["joint", "auto"])
def test_two_spots_in_one_maximum_are_two(neighbours):
    fits = localize(pairs_of(1.5, 60, seed=1), **KNOWN, neighbours=neighbours, false_spots=1e-2)
    found = np.bincount(fits.frame, minlength=60)
    assert (found == 2).mean() > 0.95
    assert (fits.group_size == found[fits.frame]).all()
    assert fits.good.mean() > 0.95
    assert np.median(fits.evidence) > 10
    # Of points that are too near each other, the data show one.
    near = localize(pairs_of(0.4, 60, seed=2), **KNOWN, neighbours=neighbours, false_spots=1e-2)
    assert len(near) == 60


def test_crowds_are_found_as_well_as_asked():
    movie, truth = random_spots(8, 0.02, seed=3)
    fits = localize(movie, **KNOWN, neighbours="joint")
    fits, hits, square = fits[fits.good], 0, 0.0
    from scipy.optimize import linear_sum_assignment

    for frame, places in enumerate(truth):
        own = fits[fits.frame == frame]
        apart = np.hypot(places[:, :1] - own.y, places[:, 1:] - own.x)
        near = apart[linear_sum_assignment(np.where(apart < 2.5, apart, 1e3))]
        hits, square = hits + (near < 2.5).sum(), square + (near[near < 2.5] ** 2).sum()
    jaccard = hits / (sum(map(len, truth)) + len(fits) - hits)
    assert jaccard > 0.9
    assert 100 * np.sqrt(square / hits) < 24


def test_auto_is_exclude_where_no_spots_overlap():
    rng = np.random.default_rng(4)
    places = np.mgrid[12:120:14, 12:120:14].reshape(2, -1).T + rng.uniform(-2, 2, (64, 2))
    light = light_of(places, 1000.0, 128)
    movie = rng.poisson(np.stack([light] * 4)).astype(np.uint16)
    single = localize(movie, **KNOWN, neighbours="exclude")
    auto = localize(movie, **KNOWN, neighbours="auto")
    assert len(single) == len(auto) >= 250
    for name, column in single.columns.items():
        np.testing.assert_array_equal(auto.columns[name], column, err_msg=name)
    assert (auto.group_size == 1).all()


def test_auto_is_exclude_where_spots_only_might_be_two():
    # Near enough to be of one crowd, not near enough to overlap; some are wide for the PSF.
    grid = np.mgrid[8:88:7, 8:88:7].reshape(2, -1).T + 0.3
    movie = np.random.default_rng(34).poisson(light_of(grid, 1000.0, 96), (10, 96, 96))
    known, psf = KNOWN | {"sigma": SIGMA / 1.06}, SIGMA / 1.06
    single, auto = (localize(movie, **known, neighbours=one) for one in ("exclude", "auto"))
    assert (single.sigma > psf + np.hypot(3 * single.sigma_stderr, 0.04 * psf)).any()
    assert len(single) == len(auto) >= 1400
    for name, column in single.columns.items():
        np.testing.assert_array_equal(auto.columns[name], column, err_msg=name)


@pytest.mark.parametrize("sigma", [3.2, 3.4, 5.0])
def test_auto_is_exclude_for_wide_spots(sigma):
    rng, middles = np.random.default_rng(40), np.arange(24, 256, 48)
    x, light = np.arange(256), np.full((256, 256), BACKGROUND)
    for place in np.stack(np.meshgrid(middles, middles), -1).reshape(-1, 2) + 0.3:
        y_share, x_share = (np.exp(-((x - at) ** 2) / (2 * sigma**2)) for at in place)
        light += 60 * np.outer(y_share, x_share)
    image = rng.poisson(light).astype(np.uint16)
    known = KNOWN | {"sigma": sigma}
    single, auto = (localize(image, **known, neighbours=one) for one in ("exclude", "auto"))
    assert len(single) == len(auto) >= 25
    for name, column in single.columns.items():
        np.testing.assert_array_equal(auto.columns[name], column, err_msg=name)


def test_one_call_for_spots_alone_comes_to_what_fits_of_all_do():
    # A third of the spots is two, not far enough apart to be detected as two.
    rng, side = np.random.default_rng(36), 96
    grid = np.mgrid[10:90:15, 10:90:15].reshape(2, -1).T + rng.uniform(-2, 2, (24, 36, 2))
    changed = []
    for k, places in enumerate(grid):
        twins = places[: k % 3 * 6] + 1.5 * SIGMA * np.array([0.6, 0.8])
        image = rng.poisson(light_of(np.concatenate([places, twins]), 1000.0, side))
        image[[30, 60], [3, 70]] = 500  # hot, near one that may be two or not
        image = image.astype(np.uint16)
        settings = Settings(**KNOWN, neighbours="auto", roi_size=9)
        calibration = PixelCalibration((1, side, side), settings)
        calibration = calibration.with_noise(calibration.camera_noise)
        job = FitJob.of(calibration, image.dtype, one_row_per_position=False)
        block = Block.of(calibration, np.zeros(1, int), image[np.newaxis])
        positions = Positions(places[np.argsort(places[:, 0])])
        single = Cpu(1).fit(job, block, positions)
        fast = fit_crowds(Cpu(1), job, block, positions, single)
        block.bad = np.zeros((1, side, side), bool)  # none is, but they might be
        whole = fit_crowds(Cpu(1), job, block, positions, single)
        assert set(fast) == set(whole)
        for name, column in whole.items():
            np.testing.assert_array_equal(fast[name], column, err_msg=name)
        changed.append(len(whole["y"]) > len(positions.places))
    assert any(changed)
    assert not all(changed)


def test_clusters_of_many_spots_are_no_blobs():
    rng = np.random.default_rng(35)
    places = 30 + rng.normal(0, 1.5 * SIGMA, (40, 20, 2))
    movie = np.stack([rng.poisson(light_of(own, 1500.0, 60)) for own in places])
    fits = localize(movie.astype(np.uint16), **KNOWN, neighbours="joint")
    assert fits.photons[fits.good].sum() > 0.92 * 1500 * 20 * 40


@pytest.mark.filterwarnings("ignore:the image probably was filtered:UserWarning")
def test_bright_crowds_that_the_edge_cuts_come_to_rest():
    side, sigma, count, pixel = 96, 2.5, 88, np.arange(96)
    for seed in (1, 2, 7):
        rng = np.random.default_rng(seed)
        y, x = rng.uniform(-3, side + 2, (2, count))
        light = rng.uniform(3e5, 2e6, count) / (2 * np.pi * sigma**2)
        down, across = (np.exp(-(((pixel - place[:, None]) / sigma) ** 2) / 2) for place in (y, x))
        image = rng.poisson(BACKGROUND + np.einsum("n,ny,nx->yx", light, down, across))
        fits = localize(image.astype(np.float32), sigma=sigma, neighbours="joint", backend="cpu")
        assert not (fits.flags & int(Flag.GROUP_NOT_SETTLED)).any()
        assert fits.good.mean() > 0.9


def test_rows_depend_on_neither_threads_nor_blocks():
    movie, _ = random_spots(6, 0.02, seed=5)
    whole = localize(movie, **KNOWN, neighbours="auto")
    assert_same(localize(movie, **KNOWN, neighbours="auto", threads=1), whole)
    parts = [localize(movie[k : k + 1], **KNOWN, neighbours="auto", noise=whole.settings.noise)
             for k in range(len(movie))]  # fmt: skip
    for name in ("y", "x", "photons", "evidence", "group_size", "flags"):
        own = np.concatenate([part.columns[name] for part in parts])
        np.testing.assert_array_equal(own, whole.columns[name], err_msg=name)


def test_order_of_centres_does_not_matter():
    movie, truth = random_spots(1, 0.015, seed=6)
    fits = fit_at(movie[0], truth[0], **KNOWN, neighbours="joint")
    order = np.random.default_rng(0).permutation(len(truth[0]))
    other = fit_at(movie[0], truth[0][order], **KNOWN, neighbours="joint")
    assert len(fits) == len(truth[0])
    for name in ("y", "x", "photons", "background", "x_stderr", "evidence", "group_size"):
        np.testing.assert_array_equal(other.columns[name], fits.columns[name][order], err_msg=name)
    assert np.median(np.hypot(fits.y - truth[0][:, 0], fits.x - truth[0][:, 1])) < 0.15


@pytest.mark.parametrize("neighbours", ["auto", "joint"])
@pytest.mark.parametrize("off", [0.0, 0.3])
def test_positions_of_one_spot_end_there_and_one_of_them_is_good(neighbours, off):
    """Two spots at one place shared its light at random, and moved by up to 2.4 px."""
    movie, truth = random_spots(1, 0.004, seed=8)
    rng = np.random.default_rng(9)
    shift = rng.uniform(-off, off, truth[0].shape)
    twice, count = np.concatenate([truth[0], truth[0] + shift]), len(truth[0])
    order = rng.permutation(2 * count)
    fits = fit_at(movie[0], twice[order], **KNOWN, neighbours=neighbours)
    once = fit_at(movie[0], truth[0], **KNOWN, neighbours=neighbours)
    place = np.empty(2 * count, int)
    place[order] = np.arange(2 * count)
    first, second = place[:count], place[count:]
    found = np.column_stack([fits.y, fits.x])
    np.testing.assert_array_equal(found[first], found[second])
    is_double = fits.flags & int(Flag.DUPLICATE) != 0
    assert (is_double[first] != is_double[second]).all()
    assert np.hypot(*(found[first] - np.column_stack([once.y, once.x])).T).max() < 0.5
    kept = np.where(is_double[first], second, first)
    assert (fits.good[kept] == once.good).mean() > 0.95
    assert np.hypot(*(found - twice[order]).T).max() < 1


@pytest.mark.parametrize("apart", [1.1, 1.8, 2.5])
@pytest.mark.parametrize("spots", [1, 2])
def test_of_two_positions_nearby_as_many_are_good_as_there_are_spots(spots, apart):
    """A position beside that of a bright spot made both weak, and the spot was lost."""
    rng = np.random.default_rng(11)
    grid = np.stack(np.meshgrid(*[np.arange(12, 180, 24.0)] * 2, indexing="ij"), -1).reshape(-1, 2)
    places = grid + rng.uniform(-0.5, 0.5, grid.shape)
    angle = rng.uniform(0, 2 * np.pi, len(places))
    both = np.array([places, places + apart * np.column_stack([np.sin(angle), np.cos(angle)])])
    light = light_of(both[:spots].reshape(-1, 2), 1e4, 180)
    fits = fit_at(rng.poisson(light), both.reshape(-1, 2), **KNOWN, neighbours="auto")
    good = fits.good.reshape(2, -1)
    enough = 0.95 if spots == 1 or apart > 1.5 else 0.0  # 0.85 σ apart, few pairs are two
    assert (good.sum(axis=0) == spots).mean() >= enough
    assert good.any(axis=0).mean() >= 0.97
    if spots == 1:
        assert np.median(fits.photons[fits.good]) == pytest.approx(1e4, rel=0.03)
        copies = ~good & good.any(axis=0)
        doubtful = int(Flag.DUPLICATE | Flag.WEAK)
        assert (fits.flags.reshape(2, -1)[copies] & doubtful != 0).all()


@pytest.mark.parametrize("neighbours", ["auto", "joint"])
def test_a_pixel_that_is_missing_leaves_the_spots_of_its_crowd(neighbours):
    """By itself, no spot is fitted around such a pixel; its neighbours were not good, either."""
    movie, truth = random_spots(4, 0.01, seed=10)
    bad = np.zeros(movie.shape, bool)
    for own, places in zip(bad, truth, strict=True):
        y, x = np.rint(places[::6]).astype(int).T
        own[y, x + 1] = True
    missing = localize(np.where(bad, np.nan, movie), **KNOWN, neighbours=neighbours)
    masked = localize(movie, **KNOWN, neighbours=neighbours, bad_pixels=bad)
    both = [fits[fits.good & (fits.group_size > 1)] for fits in (missing, masked)]
    assert len(both[1]) > 80
    assert abs(len(both[0]) - len(both[1])) <= 0.03 * len(both[1])
    flagged = [np.count_nonzero(fits.flags & int(Flag.BAD_PIXELS)) for fits in both]
    assert flagged[0] >= 0.8 * flagged[1] > 5


def test_what_cannot_be_fitted_at_a_position_spoils_no_neighbour():
    movie, truth = random_spots(1, 0.01, seed=11)
    whole = fit_at(movie[0], truth[0], **KNOWN)
    apart = np.hypot(*(truth[0][:, None] - truth[0]).transpose(2, 0, 1)) + 100 * np.eye(
        len(truth[0])
    )
    one = int(np.flatnonzero((apart.min(axis=1) > 3) & (apart.min(axis=1) < 4) & whole.good)[0])
    frame = movie[0].astype(float)
    y, x = np.rint(truth[0][one]).astype(int)
    frame[y - 2 : y + 3, x - 2 : x + 3] = np.nan  # what is left around them is too dim
    fits = fit_at(frame, truth[0], **KNOWN)
    assert not fits.good[one]
    assert fits.flags[one] & int(Flag.BAD_PIXELS)
    lost = whole.good & ~fits.good
    near = np.hypot(*(truth[0] - truth[0][one]).T) < 4.5 + 2
    # Others whose ROI has one of these pixels have no fit of their own, either.
    assert not (lost & ~near).any()


def test_frames_in_tiles_have_the_rows_of_whole_frames(monkeypatch):
    rng = np.random.default_rng(7)
    pairs = np.repeat(np.arange(8, 2390, 17.0), 2) + np.tile([0.0, 2.6], 141)
    places = np.column_stack([pairs, np.full(len(pairs), 15.0) + rng.uniform(-1, 1, len(pairs))])
    rows, columns = shares(places, 2400)[:, 0], shares(places, 180)[:, 1]
    light = BACKGROUND + np.einsum("n,ny,nx->yx", np.full(len(pairs), 1000.0), rows, columns)
    movie = rng.poisson(light[np.newaxis]).astype(np.uint16)
    whole = localize(movie, **KNOWN, neighbours="joint")
    assert (whole.group_size == 2).sum() > 200
    monkeypatch.setattr(frames_module, "LARGE_FRAME", 0)
    monkeypatch.setattr(frames_module, "TILE", 60 * movie.shape[-1] * movie.itemsize)
    known = KNOWN | {"noise": whole.settings.noise}
    parts = list(localize_iter(movie, **known, neighbours="joint"))
    assert len(parts) > 1
    assert_same(SpotFits.concatenate(parts), whole)


def test_counts_in_other_units_give_the_same():
    movie, _ = random_spots(2, 0.015, seed=8)
    plain = localize(movie, **KNOWN, neighbours="joint", roi_size=9)
    camera = KNOWN | {"gain": 4.0}
    other = localize(100 + 4 * movie, **camera, offset=100.0, neighbours="joint", roi_size=9)
    assert len(plain) == len(other)
    for name, atol in (("y", 1e-3), ("x", 1e-3), ("photons", 1.0), ("photons_stderr", 0.1)):
        np.testing.assert_allclose(other.columns[name], plain.columns[name], atol=atol)
    np.testing.assert_allclose(other.background, 4 * plain.background, rtol=1e-3, atol=0.05)


def test_white_noise_and_no_gain():
    rng = np.random.default_rng(9)
    light = 20 * (light_of([[15, 14], [15, 17]], 1000.0) - BACKGROUND)
    image = (1000 + light + rng.normal(0, 60, light.shape)).astype(np.float32)
    stack = np.stack([image, (1000 + rng.normal(0, 60, light.shape)).astype(np.float32)])
    fits = localize(stack, sigma=SIGMA, pixel="integrated", neighbours="joint", backend="cpu")
    fits = fits[fits.good]
    assert len(fits) == 2
    np.testing.assert_allclose(np.sort(fits.x), [14, 17], atol=0.3)
    np.testing.assert_allclose(fits.photons, 20000, rtol=0.15)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"model": "gaussian_rotated", "pixel": "sampled"}, "one of the models gaussian"),
        ({"model": "gaussian_elliptical"}, "the PSF's sigma_y; it is unknown"),
        ({"bounds": {"sigma": (1.0, 2.0)}}, "no bounds"),
    ],
)
def test_what_cannot_be_fitted_together_is_an_error(options, words):
    movie, _ = random_spots(1, 0.01, seed=12)
    with pytest.raises(ValueError, match=words):
        localize(movie, **KNOWN | options, neighbours="joint")
    assert "group" not in localize(movie, **KNOWN | options, neighbours="auto")


def test_prepared_fits_are_of_single_spots():
    with pytest.raises(ValueError, match="localize and fit_at"):
        Fitter(**KNOWN, neighbours="joint")


def test_places_in_several_frames_and_outside():
    movie, truth = random_spots(3, 0.015, seed=15)
    centers = [(frame, *place) for frame, own in enumerate(truth) for place in own]
    for neighbours in ("joint", "auto"):
        fits = fit_at(movie, [*centers, (0, -50, 3)], **KNOWN, neighbours=neighbours)
        assert len(fits) == len(centers) + 1
        assert np.isnan(fits.evidence[-1])
        assert fits.group_size.max() > 1
        known = KNOWN | {"noise": fits.settings.noise, "neighbours": neighbours}
        first = fit_at(movie[0], truth[0], **known)
        np.testing.assert_array_equal(fits.x[: len(first)], first.x)


def test_memory_is_bounded(monkeypatch):
    monkeypatch.setattr(crowd_fits, "_MOST_BYTES", 1 << 10)
    with pytest.raises(ValueError, match="neighbours='exclude'"):
        localize(random_spots(1, 0.01, seed=13)[0], **KNOWN, neighbours="joint")


def test_no_spots_at_all():
    fits = localize(np.zeros((2, 32, 32), np.uint16), **KNOWN, neighbours="joint")
    some = localize(random_spots(1, 0.01, seed=13)[0], **KNOWN, neighbours="joint")
    assert len(fits) == 0
    assert [*fits.columns] == [*some.columns]


def test_nearest_neighbours():
    rng = np.random.default_rng(14)
    places, frames = rng.uniform(0, 60, (200, 2)), np.sort(rng.integers(0, 3, 200))
    apart = np.hypot(*(places[:, np.newaxis] - places).transpose(2, 0, 1))
    apart[np.eye(200, dtype=bool) | (frames[:, np.newaxis] != frames)] = np.inf
    least = np.where(apart.min(axis=1) <= 5, apart.min(axis=1), np.nan)
    np.testing.assert_allclose(distances(Positions(places, frames), 0.5), least, rtol=1e-6)


@pytest.mark.parametrize(("density", "seed"), [(0.04, 21), (0.06, 22)])
def test_the_width_of_crowds_is_that_of_their_spots(density, seed):
    movie, truth = random_spots(8, density, seed)
    known = {"pixel": "integrated", "backend": "cpu"}
    single = localize(movie, frames=0, **known, neighbours="exclude").settings.sigma
    assert single > 1.035 * SIGMA
    for neighbours in ("joint", "auto"):
        fits = localize(movie, frames=0, **known, neighbours=neighbours)
        assert abs(fits.settings.sigma / SIGMA - 1) < 0.05
    at_centres = fit_at(movie[0], truth[0], **known, neighbours="joint").settings.sigma
    assert abs(at_centres / SIGMA - 1) < 0.05


@pytest.mark.filterwarnings("ignore:σ was given")
@pytest.mark.parametrize("factor", [0.9, 1.0, 1.1])
def test_crowds_of_spots_are_as_wide_as_the_psf(factor):
    movie, _ = random_spots(2, 0.02, seed=31)
    fits = localize(movie, **KNOWN | {"sigma": factor * SIGMA}, neighbours="joint")
    assert not (fits.flags & int(Flag.WIDE | Flag.NARROW)).any()


def test_crowds_stay_as_they_are_once_their_fits_are_cancelled(monkeypatch):
    movie, _ = random_spots(1, 0.02, seed=1)
    settings, iterations, fit = Settings(neighbours="joint", **KNOWN), [], crowd_fits.fit_crowds

    def fitted(block, crowds):
        found = fit(block, crowds)
        iterations.append(found["iterations"].max())
        return found

    def stopped(work, total, piece, workers, stop):
        stop()
        in_pieces(work, total, piece, workers)

    monkeypatch.setattr(crowd_fits, "_LONG", 0)
    monkeypatch.setattr(crowd_fits, "fit_crowds", fitted)
    localize(movie, settings=settings)
    assert max(iterations) > 10
    iterations.clear()
    in_pieces = crowd_fits.threads.in_pieces
    of_crowds = SimpleNamespace(in_pieces=stopped, available=lambda: 1)
    monkeypatch.setattr(crowd_fits, "threads", of_crowds)
    localize(movie, settings=settings)
    assert max(iterations) == 0
