"""Joint fits of crowds: SciPy's joint optimum, hidden spots, blobs, and independence of order."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from noisy_scenes import noisy_scenes
from same_fits import assert_same
from scipy.optimize import minimize
from scipy.special import erf, ndtr

from napari_spotfit import Fitter, Flag, Settings, SpotFits, fit_at, localize, localize_iter
from napari_spotfit.engine.backend import Block, Positions
from napari_spotfit.engine.cpu import crowd_fits
from napari_spotfit.engine.cpu.backend import Cpu
from napari_spotfit.engine.fit_job import FitJob
from napari_spotfit.engine.joint import fit_crowds
from napari_spotfit.engine.single_fits import distances, singles_of
from napari_spotfit.images import frames as frames_module
from napari_spotfit.images.pixel_calibration import PixelCalibration

SIGMA, BACKGROUND = 1.3, 10.0
KNOWN = {
    "sigma": SIGMA, "pixel": "integrated", "gain": 1.0, "estimator": "mle", "backend": "cpu",
}  # fmt: skip


def shares(places, side, pixel="integrated"):
    """Return the light of spots of unit light in the rows and the columns of an image."""
    places = np.asarray(places, float)[..., np.newaxis]
    if pixel == "sampled":
        apart = np.arange(side) - places
        return np.exp(-(apart**2) / (2 * SIGMA**2)) / (SIGMA * np.sqrt(2 * np.pi))
    edges = np.arange(side + 1) - 0.5
    return np.diff(0.5 * erf((edges - places) / (SIGMA * 2**0.5)), axis=2)


def light_of(places, photons, side=32, pixel="integrated"):
    """Return the mean of an image of spots."""
    own = shares(places, side, pixel)
    return BACKGROUND + np.einsum("n,ny,nx->yx", np.broadcast_to(photons, len(own)),
                                  own[:, 0], own[:, 1])  # fmt: skip


def random_spots(frames, density, seed, side=64, photons=1000.0):
    """Return a movie of spots at random places, and these by frame."""
    rng = np.random.default_rng(seed)
    places = [rng.uniform(2, side - 3, (rng.poisson(density * side**2), 2)) for _ in range(frames)]
    movie = [rng.poisson(light_of(own, photons, side)) for own in places]
    return np.stack(movie).astype(np.uint16), places


def pairs_of(apart, count, seed):
    """Return a movie with two spots in each frame, a distance in σ apart."""
    rng, movie = np.random.default_rng(seed), []
    for _ in range(count):
        angle, middle = rng.uniform(0, np.pi), rng.uniform(14, 17, 2)
        step = apart * SIGMA / 2 * np.array([np.sin(angle), np.cos(angle)])
        movie.append(rng.poisson(light_of([middle + step, middle - step], 1000.0)))
    return np.stack(movie).astype(np.uint16)


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


def joint_reach():
    """Return how far a spot's light counts, as engine/joint_fits.py has it."""
    return 4.5 * SIGMA + 1


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


def test_clusters_of_many_spots_are_no_blobs():
    rng = np.random.default_rng(35)
    places = 30 + rng.normal(0, 1.5 * SIGMA, (40, 20, 2))
    movie = np.stack([rng.poisson(light_of(own, 1500.0, 60)) for own in places])
    fits = localize(movie.astype(np.uint16), **KNOWN, neighbours="joint")
    assert fits.photons[fits.good].sum() > 0.92 * 1500 * 20 * 40


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


def test_sloping_background_is_no_spots():
    rng, x = np.random.default_rng(16), np.arange(96)
    places = [rng.uniform(2, 93, (80, 2)) for _ in range(3)]
    movie = [rng.poisson(light_of(own, 1000.0, 96) + 20 + 100 * (x / 96) ** 2) for own in places]
    fits = localize(np.stack(movie).astype(np.uint16), **KNOWN, neighbours="joint")
    fits = fits[fits.good]
    apart = [
        np.hypot(own.y[:, np.newaxis] - truth[:, 0], own.x[:, np.newaxis] - truth[:, 1]).min(axis=1)
        for own, truth in ((fits[fits.frame == k], truth) for k, truth in enumerate(places))
    ]
    assert (np.concatenate(apart) > 3).mean() < 0.01


def test_an_extended_blob_is_no_crowd_of_good_points():
    y, x = np.indices((64, 64))
    ring = 400 * np.exp(-((np.hypot(y - 32, x - 32) - 9) ** 2) / 8)
    blob = 600 * np.exp(-((y - 32) ** 2 + (x - 32) ** 2) / (2 * 5.0**2))
    for light in (blob, ring + blob):
        image = np.random.default_rng(10).poisson(BACKGROUND + light).astype(np.uint16)
        fits = localize(image, **KNOWN, neighbours="joint")
        assert len(fits) < 60
        assert fits.good.sum() <= localize(image, **KNOWN).good.sum() + 1


@pytest.mark.parametrize("width", [1.8, 2.5, 3.0])
@pytest.mark.parametrize("photons", [3000, 30_000, 200_000])
def test_blobs_are_no_good_points_and_clusters_are(width, photons):
    y, x = np.indices((40, 40))
    light = np.exp(-((y - 20.2) ** 2 + (x - 19.7) ** 2) / (2 * width**2)) / (2 * np.pi * width**2)
    blobs = np.random.default_rng(11).poisson(BACKGROUND + photons * light, (8, 40, 40))
    blobs = blobs.astype(np.uint16)
    together = localize(blobs, **KNOWN, neighbours="joint")
    assert not together.good[together.group_size > 1].any()
    single, auto = (localize(blobs, **KNOWN, neighbours=n) for n in ("exclude", "auto"))
    assert auto.good.sum() == single.good.sum()
    rng = np.random.default_rng(12)
    places = 20 + rng.normal(0, 1.5 * SIGMA, (8, 8, 2))
    movie = np.stack([rng.poisson(light_of(own, photons / 8, 40)) for own in places])
    if photons > 3000:
        found = localize(movie.astype(np.uint16), **KNOWN, neighbours="auto")
        assert np.bincount(found.frame[found.good], minlength=8).mean() > 3


@pytest.mark.parametrize("density", [0.02, 0.04])
@pytest.mark.parametrize("odd", ["hot pixels", "blob"])
def test_what_is_odd_does_not_spoil_its_crowd(density, odd):
    movie, _ = random_spots(2, density, 13, 80)
    seen = movie.copy()
    if odd == "hot pixels":
        at = np.array([[40, 40], [12, 70], [66, 15]])
        seen[0][tuple(at.T)] += 3000
    else:
        at = np.array([[40, 40]])
        y, x = np.indices(movie.shape[1:])
        light = 4000 * np.exp(-((y - 40) ** 2 + (x - 40) ** 2) / (2 * (2 * SIGMA) ** 2))
        seen[0] += np.random.default_rng(14).poisson(light).astype(np.uint16)

    def good(image):
        fits = localize(image, **KNOWN, neighbours="joint")
        places = np.column_stack([fits.y, fits.x])[:, np.newaxis]
        is_far = np.linalg.norm(places - at, axis=2).min(axis=1) > 8 * SIGMA
        return int((fits.good & is_far & (fits.frame == 0)).sum()), fits[~is_far]

    undisturbed, _ = good(movie)
    found, beside = good(seen)
    assert found > 0.95 * undisturbed > 40
    assert not beside.good[(beside.frame == 0) & (beside.photons > 3000)].any()


def test_saturated_blob_is_left_as_it_is():
    y, x = np.indices((40, 40))
    light = 3000 * np.exp(-((y - 20) ** 2 + (x - 20) ** 2) / (2 * SIGMA**2))
    image = np.minimum(np.random.default_rng(11).poisson(10 + light), 255).astype(np.uint8)
    fits = localize(image, **KNOWN, neighbours="joint")
    centre = np.hypot(fits.y - 20, fits.x - 20) < 4
    assert centre.sum() == 1
    assert (fits.flags[centre] & Flag.SATURATED).all()


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


@pytest.mark.parametrize("factor", [0.9, 1.0, 1.1])
def test_crowds_of_spots_are_as_wide_as_the_psf(factor):
    movie, _ = random_spots(2, 0.02, seed=31)
    fits = localize(movie, **KNOWN | {"sigma": factor * SIGMA}, neighbours="joint")
    assert not (fits.flags & int(Flag.WIDE | Flag.NARROW)).any()


def test_points_that_make_up_smooth_light_are_too_wide():
    scene = next(one for one in noisy_scenes(SIGMA, 512, 1, spots=0) if one.name == "nuclei")
    fits = localize(scene.frames[0], sigma=SIGMA, neighbours="auto", backend="cpu")
    is_wide = fits.flags & int(Flag.WIDE) != 0
    assert is_wide[fits.group_size > 1].mean() > 0.8
    assert fits.good.sum() <= 5


@pytest.mark.parametrize("shape", ["ring", "filament"])
def test_points_that_make_up_a_line_are_elongated(shape):
    y, x = np.mgrid[:128, :128] - 64.0
    off = np.hypot(y, x) - 12 if shape == "ring" else y - 0.3 * x
    rng = np.random.default_rng(33)
    line = 80 * np.exp(-(off**2) / (2 * SIGMA**2))
    image = rng.poisson(BACKGROUND + line).astype(np.uint16)
    fits = localize(image, **KNOWN, neighbours="auto")
    assert (fits.group_size > 1).sum() > 10
    assert (fits.flags & int(Flag.ELONGATED) != 0).mean() > 0.8
    assert fits.good.sum() <= 1


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


@pytest.mark.parametrize(("height", "times", "most"), [(150, 2, 6), (600, 1.5, 6), (150, 3, 6)])
@pytest.mark.parametrize("neighbours", ["auto", "joint"])
def test_granules_are_no_groups_of_spots(height, times, most, neighbours):
    rng = np.random.default_rng(35)
    y, x = np.mgrid[:256, :256]
    light = np.zeros((256, 256))
    for middle_y, middle_x in np.mgrid[16:256:32, 16:256:32].reshape(2, -1).T:
        angle = rng.uniform(0, np.pi)
        along = (x - middle_x) * np.cos(angle) + (y - middle_y) * np.sin(angle)
        across = (y - middle_y) * np.cos(angle) - (x - middle_x) * np.sin(angle)
        light += height * np.exp(-((along / times) ** 2 + across**2) / (2 * SIGMA**2))
    image = rng.poisson(20 + light).astype(np.uint16)
    fits = localize(image, sigma=SIGMA, neighbours=neighbours, backend="cpu")
    assert (fits.good & (fits.group_size > 1)).sum() <= most


@pytest.mark.parametrize("neighbours", ["auto", "joint"])
def test_pieces_of_dim_lines_are_no_groups_of_spots(neighbours):
    rng = np.random.default_rng(36)
    y, x = np.mgrid[:512, :512]
    off = (y + 14 * np.sin(x / 23) + 0.2 * x) % 32 - 16
    image = rng.poisson(20 + 10 * np.exp(-(off**2) / (2 * SIGMA**2))).astype(float)
    fits = localize(image, sigma=SIGMA, neighbours=neighbours, backend="cpu")
    assert fits.good.sum() <= 40


@pytest.mark.parametrize("is_closed", [False, True])
def test_ridges_are_as_likely_as_their_pixels_say(is_closed, monkeypatch):
    side, taken, fit = 40, [], crowd_fits.fit_crowds

    def fitted(block, crowds):
        taken.append((crowds.how, fit(block, crowds)))
        return taken[-1][1]

    monkeypatch.setattr(crowd_fits, "fit_crowds", fitted)
    angles = np.arange(6 if is_closed else 4) * np.pi / 3
    truth = 19.6 + 3.4 * np.column_stack([np.sin(angles), np.cos(angles)])
    image = np.random.default_rng(41).poisson(light_of(truth, 1500.0, side))
    localize(image.astype(np.uint16), **KNOWN, neighbours="joint")
    how, spots = taken[0]
    assert len(spots) == len(truth)
    places = np.column_stack([spots["y"], spots["x"]])
    at = np.indices(image.shape).reshape(2, -1).T
    apart = np.hypot(*(at[:, np.newaxis] - places).transpose(2, 0, 1))
    near = (apart <= joint_reach()).any(axis=1)

    def light(where, photons):
        return (light_of(where, photons, side) - BACKGROUND).ravel()[near]

    ground = np.column_stack([np.ones(len(at)), at])
    pixels = np.column_stack([np.ones(len(spots)), np.rint(places)])
    plane = np.linalg.lstsq(pixels, spots["background"], rcond=None)[0]
    mean = light(places, spots["light"]) + (ground @ plane)[near]
    slopes, step = [*ground[near].T.astype(float)], 1e-3
    for own, amount in zip(places, spots["light"], strict=True):
        slopes.append(light([own], 1.0))
        for by in step * np.eye(2):
            slopes.append(light([own + by], amount) - light([own - by], amount))
    # From one spot to the next one around the middle.
    around = np.argsort(np.unwrap(np.arctan2(*(places - 19.6).T) % (2 * np.pi)))
    chain, amounts = places[around], spots["light"][around]
    after = np.roll(np.arange(len(chain)), -1)[: len(chain) if is_closed else -1]
    before = np.arange(len(after))
    blunt = light((chain[before] + chain[after]) / 2, (amounts[before] + amounts[after]) / 4)
    ends = 1.5 * chain[[0, -1]] - 0.5 * chain[[1, -2]]
    whole = blunt if is_closed else blunt + light(ends, amounts[[0, -1]] / 4)
    data = image.ravel()[near] * how.scale + how.shift
    for name, ridge in (("blunt_ridge", blunt), ("ridge", whole)):
        weighted = np.array(slopes) / mean
        across = weighted @ ridge
        own = ridge @ (ridge / mean) - across @ np.linalg.solve(
            weighted @ np.transpose(slopes), across
        )
        likelier = ridge @ ((data - mean) / mean) - own / 2
        np.testing.assert_allclose(spots[name].sum(), likelier, rtol=0.05, err_msg=name)
        assert likelier < -5  # of spots that are no ridge


@pytest.mark.parametrize("radius", [4, 6, 10])
def test_rings_are_no_groups_of_spots(radius):
    y, x = np.mgrid[:64, :64] - 31.7
    light = 80 * np.exp(-((np.hypot(y, x) - radius) ** 2) / (2 * SIGMA**2))
    movie = np.random.default_rng(42).poisson(20 + light, (20, 64, 64)).astype(np.uint16)
    single, auto = (
        localize(movie, sigma=SIGMA, neighbours=one, backend="cpu") for one in ("exclude", "auto")
    )
    assert auto.good.sum() <= single.good.sum() + 8


@pytest.mark.parametrize("apart", [1.5, 2.0, 2.5])
@pytest.mark.parametrize("share", [1.0, 1 / 3])
def test_pairs_are_nothing_elongated(apart, share):
    rng = np.random.default_rng(37)
    middle = np.mgrid[16:256:32, 16:256:32].reshape(2, -1).T + rng.uniform(-0.5, 0.5, (64, 2))
    angle = rng.uniform(0, np.pi, 64)
    half = apart * SIGMA / 2 * np.column_stack([np.sin(angle), np.cos(angle)])
    edges = np.arange(257) - 0.5
    light = np.full((256, 256), float(BACKGROUND))
    for places, photons in ((middle + half, 3000.0), (middle - half, 3000 * share)):
        shares = np.diff(ndtr((edges - places[..., np.newaxis]) / SIGMA), axis=2)
        light += photons * np.einsum("ny,nx->yx", shares[:, 0], shares[:, 1])
    fits = localize(rng.poisson(light).astype(np.uint16), **KNOWN, neighbours="auto")
    assert fits.good.sum() >= 0.97 * 128
