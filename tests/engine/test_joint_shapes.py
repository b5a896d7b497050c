"""Joint fits of what is no crowd: blobs, lines, rings, granules, slopes, hot pixels."""

from __future__ import annotations

import numpy as np
import pytest
from crowd_scenes import BACKGROUND, KNOWN, SIGMA, joint_reach, light_of, random_spots
from noisy_scenes import noisy_scenes
from scipy.ndimage import gaussian_filter
from scipy.spatial import cKDTree
from scipy.special import ndtr

from napari_spotfit import Flag, localize
from napari_spotfit.engine.cpu import crowd_fits

#: Images of lines alone are warned of, which is not what is tested here.
pytestmark = [
    pytest.mark.filterwarnings("ignore:only .* fits are good, as"),
    pytest.mark.filterwarnings("ignore:.* good fits are POOR_FIT"),
    pytest.mark.filterwarnings("ignore:.* fits are wider than twice the σ"),
]


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


@pytest.mark.parametrize("blur", [0.7, 2.0])
def test_edges_of_cells_are_no_hidden_spots(blur):
    side, rng = 400, np.random.default_rng(11)
    surface = gaussian_filter(rng.normal(size=(side, side)), 25)
    cells = (surface > np.quantile(surface, 0.3)).astype(float)
    places = rng.uniform(3, side - 4, (120, 2))
    light = light_of(places, 3000.0, side) + 200 * gaussian_filter(cells, blur)
    image, false = rng.poisson(light).astype(np.uint16), {}
    for how in ("exclude", "auto"):
        fits = localize(image, neighbours=how, backend="cpu")
        good = np.column_stack([fits.y, fits.x])[fits.good]
        false[how] = (cKDTree(places).query(good)[0] > 2).sum()
        assert (cKDTree(good).query(places)[0] < 2).mean() > 0.9
    assert false["auto"] <= false["exclude"] + 2


@pytest.mark.parametrize("neighbours", ["joint", "auto"])
@pytest.mark.parametrize(("photons", "share"), [(20_000, 0.03), (50_000, 0.05)])
def test_what_a_psf_has_beyond_a_gaussian_is_no_spots(neighbours, photons, share):
    rng, count, side = np.random.default_rng(2), 92, 96
    core = light_of(rng.uniform(2, side - 3, (count, 2)), photons, side) - BACKGROUND
    light = (1 - share) * core + share * gaussian_filter(core, 2.0)
    fits = localize(rng.poisson(BACKGROUND + light).astype(np.uint16), **KNOWN,
                    neighbours=neighbours)  # fmt: skip
    assert 0.95 * count < fits.good.sum() <= len(fits) < 1.05 * count


@pytest.mark.filterwarnings("ignore:the image probably was filtered:UserWarning")
@pytest.mark.parametrize("density", [0.002, 0.01])
def test_auto_is_exclude_in_an_image_that_was_filtered(density):
    movie, _ = random_spots(1, density, 3, side=256)
    image = gaussian_filter(movie[0].astype(np.float32), 1.0)
    single, auto = (
        localize(image, sigma=np.hypot(SIGMA, 1.0), neighbours=one, backend="cpu")
        for one in ("exclude", "auto")
    )
    assert len(single) > 100
    for name, column in single.columns.items():
        np.testing.assert_array_equal(auto.columns[name], column, err_msg=name)
    assert (auto.group_size == 1).all()


def test_an_extended_blob_is_no_crowd_of_good_points():
    y, x = np.indices((64, 64))
    ring = 400 * np.exp(-((np.hypot(y - 32, x - 32) - 9) ** 2) / 8)
    blob = 600 * np.exp(-((y - 32) ** 2 + (x - 32) ** 2) / (2 * 5.0**2))
    for light in (blob, ring + blob):
        image = np.random.default_rng(10).poisson(BACKGROUND + light).astype(np.uint16)
        fits = localize(image, **KNOWN, neighbours="joint")
        assert len(fits) < 60
        assert fits.good.sum() <= localize(image, **KNOWN).good.sum() + 1


@pytest.mark.filterwarnings("ignore:only . of .* are BLOB")
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


@pytest.mark.parametrize(("width", "times"), [(2, 1), (3, 2), (4, 5)])
@pytest.mark.parametrize("neighbours", ["auto", "joint"])
def test_a_blob_within_a_crowd_is_no_good_points(width, times, neighbours):
    movie, places = random_spots(6, 0.02, 15, 72, 2000.0)
    y, x = np.indices(movie.shape[1:])
    far = np.hypot(y - 36, x - 36)
    height = times * 2000 / (2 * np.pi * SIGMA**2)
    light = height * np.exp(-(far**2) / (2 * (width * SIGMA) ** 2))
    seen = movie + np.random.default_rng(16).poisson(light, movie.shape).astype(np.uint16)
    inner = 2 * width * SIGMA
    true = sum((np.hypot(*(own - 36).T) < inner).sum() for own in places)

    def good(image):
        fits = localize(image, **KNOWN, neighbours=neighbours)
        is_within = np.hypot(fits.y - 36, fits.x - 36) < inner
        is_beside = np.hypot(fits.y - 36, fits.x - 36) > inner + 5 * SIGMA
        return (fits.good & is_within).sum(), (fits.good & is_beside).sum()

    (within, beside), (_, undisturbed) = good(seen), good(movie)
    assert within < 0.7 * true + 6
    assert beside > 0.96 * undisturbed > 100


def test_spots_come_to_rest_beside_what_leaves_no_background():
    movie, _ = random_spots(2, 0.02, 115, 72, 2000.0)
    y, x = np.indices(movie.shape[1:])
    height = 5 * 2000 / (2 * np.pi * SIGMA**2)
    light = height * np.exp(-((y - 36) ** 2 + (x - 36) ** 2) / (2 * (4 * SIGMA) ** 2))
    seen = movie + np.random.default_rng(116).poisson(light, movie.shape).astype(np.uint16)
    fits = localize(seen, **KNOWN, neighbours="joint")
    assert len(fits) > 200
    assert not (fits.flags & Flag.GROUP_NOT_SETTLED).any()


@pytest.mark.parametrize("density", [0.01, 0.02, 0.04])
def test_hot_and_dead_pixels_count_in_no_joint_fit(density):
    movie, _ = random_spots(2, density, 17, 80)
    seen, at = movie.copy(), np.random.default_rng(18).integers(2, 78, (2, 20))
    seen[:, *at[:, :14]] += 3000
    seen[:, *at[:, 14:]] = 0
    clean, fits = (localize(image, **KNOWN, neighbours="joint") for image in (movie, seen))
    assert fits.good.sum() > 0.95 * clean.good.sum() > 80
    own, other = (np.column_stack([one.frame * 1e3, one.y, one.x]) for one in (fits, clean))
    apart = np.linalg.norm(own[fits.good][:, np.newaxis] - other, axis=2).min(axis=1)
    assert (apart > 2).sum() <= 1
    for frame, y, x in zip(clean.frame, clean.y, clean.x, strict=True):
        on_hot = (abs(np.rint(y) - at[0, :14]) <= 1) & (abs(np.rint(x) - at[1, :14]) <= 1)
        here = (fits.frame == frame) & (np.hypot(fits.y - y, fits.x - x) < 0.1)
        assert not on_hot.any() or (fits.flags[here] & int(Flag.BAD_PIXELS)).all()


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


@pytest.mark.filterwarnings("ignore:only . of .* are BLOB")
def test_points_that_make_up_smooth_light_are_too_wide():
    scene = next(one for one in noisy_scenes(SIGMA, 512, 1, spots=0) if one.name == "nuclei")
    auto, fits = (
        localize(scene.frames[0], sigma=SIGMA, neighbours=one, backend="cpu")
        for one in ("auto", "joint")
    )
    is_wide = fits.flags & int(Flag.WIDE) != 0
    assert (fits.group_size > 1).sum() > 20
    assert is_wide[fits.group_size > 1].mean() > 0.8
    assert auto.good.sum() <= 5
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
