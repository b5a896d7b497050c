"""Widths and peaks that are estimated before fits."""

from __future__ import annotations

import numpy as np
import pytest
from noisy_scenes import noisy_scenes
from scenes import light, scattered

from napari_spotfit import (
    Camera,
    Settings,
    detect_spots,
    estimate_sigma,
    fit_at,
    localize,
    noise_model,
    simulate_movie,
)
from napari_spotfit.engine.detection_settings import score_for
from napari_spotfit.images.frames import HeldFrame
from napari_spotfit.localization.detect_spots import peak_heights, peak_near

da = pytest.importorskip("dask.array")


@pytest.fixture(scope="module")
def movie():
    return simulate_movie(8, shape=(120, 150), spots_per_frame=25, seed=4)[0]


@pytest.mark.parametrize("sigma", [0.8, 1.3, 2.5])
def test_a_fit_at_the_peak_is_the_fit_of_the_movie(movie, sigma):
    """Also where spots lie on the border, or close to one another."""
    settings = Settings(
        sigma=sigma, roi_size=7, offset=100.0, noise=noise_model(movie), neighbours="exclude"
    )
    frame = localize(movie, frames=3, settings=settings)
    held = HeldFrame(movie, (3,))
    spots = detect_spots(movie, frames=3, settings=settings)
    assert len(frame) > 15
    for spot in frame[frame.valid]:
        at_peak = None
        for nudge in ((0, 0), (0.9, -0.8)):
            place = np.clip((spot.y[0] + nudge[0], spot.x[0] + nudge[1]), 0, (119, 149))
            peak = peak_near(held, place, settings)
            rivals = np.hypot(frame.y - place[0], frame.x - place[1]) < 7 / 2 + 1.5
            if rivals.sum() == 1:
                others = spots[(spots[:, 1:] != peak).any(axis=1)]
                at_peak = fit_at(held, [[3, *peak], *others], settings=settings)[:1]
                for name, values in at_peak.columns.items():
                    np.testing.assert_array_equal(values, spot.columns[name], name)
        assert at_peak is not None or rivals.sum() > 1


def test_the_brightest_of_two_and_none_on_a_flat_image():
    image = light([[18.0, 15.0], [18.0, 20.0]], [1000, 2000], 1.0, (40, 40))
    settings = Settings(sigma=1.0, roi_size=11)
    held = HeldFrame(image)
    np.testing.assert_array_equal(peak_near(held, (18.2, 16.9), settings), (18, 20))
    np.testing.assert_array_equal(peak_near(held, (18, 13), settings), (18, 15))
    np.testing.assert_array_equal(peak_near(held, (5.3, 33.1), settings), (5.3, 33.1))


@pytest.mark.parametrize("shape", [(5, 5), (6, 40), (9, 9)])
def test_a_peak_in_a_small_image(shape):
    image = np.random.default_rng(0).normal(0, 1, shape) + light([[2.0, 2.0]], 500, 1.2, shape)
    peak = peak_near(HeldFrame(image), (1, 3), Settings(sigma=1.3, roi_size=5))
    np.testing.assert_array_equal(peak, (2, 2))


def test_scores_above_the_least_are_the_spots(movie):
    scores = peak_heights(movie, Settings(sigma=1.3), frames=(slice(2, 5),))
    found = detect_spots(movie, sigma=1.3, frames=slice(2, 5))
    assert (scores > score_for(10.0, 1.3)).sum() == pytest.approx(len(found), rel=0.02)
    assert len(scores) > 3 * len(found)


def test_heights_above_a_threshold_are_the_spots(movie):
    settings = Settings(sigma=1.3, threshold=30.0)
    heights = peak_heights(movie, settings, frames=(slice(2, 5),))
    found = detect_spots(movie, frames=slice(2, 5), settings=settings)
    assert (heights > 30).sum() == pytest.approx(len(found), rel=0.02)
    assert len(heights) > 10 * len(found)


@pytest.mark.parametrize("sigma", [0.9, 1.5, 2.6])
def test_the_width_is_found_from_a_wrong_guess(sigma):
    movie, _ = simulate_movie(30, sigma=sigma, photons=5000, spots_per_frame=10, seed=2)
    width = estimate_sigma(da.from_array(movie, chunks=(1, -1, -1)), sigma=1.3)
    # A sampled profile on pixels that integrate.
    assert width.sigma == pytest.approx(sigma, rel=0.02)
    assert 30 <= width.spots <= 40  # those of four frames are enough
    assert 0 < width.scatter < 0.2 * sigma


def test_no_width_without_spots():
    with pytest.raises(ValueError, match="3 good fits of spots, but found 0"):
        estimate_sigma(np.random.default_rng(0).normal(0, 1, (64, 64)), false_spots=1e-6)


def test_doubtful_fits_tell_no_width():
    """Broad humps at the upper bound of σ, brighter than the spots, do not count."""
    movie, _ = simulate_movie(6, (200, 200), sigma=1.3, photons=4000, spots_per_frame=6, seed=5)
    y, x = np.indices((200, 200))
    with_ramps = movie + 8.0 * np.clip(x - 100, 0, 60) * (y > 100)
    fits = localize(with_ramps)
    assert not fits.good.all()
    width = estimate_sigma(with_ramps)
    assert width.sigma == pytest.approx(1.35, abs=0.06)
    assert width.spots <= 36
    noise = np.random.default_rng(0).normal(0, 1, (64, 64))
    noise[::16, ::16] += 50  # single pixels are no spots
    with pytest.raises(ValueError, match="3 good fits of spots, but found 0"):
        estimate_sigma(noise)


def test_a_held_frame_is_read_once():
    reads = []

    def load(block_info=None):
        reads.append(block_info[None]["chunk-location"])
        return np.full((1, 1, 20, 30), len(reads), np.uint16)

    image = da.map_blocks(load, chunks=((1,) * 3, (1,) * 4, 20, 30), dtype=np.uint16)
    held = HeldFrame(image, (2, 1))
    for _ in range(3):
        fits = fit_at(held, [[2, 1, 10, 10]], roi_size=5)
    assert reads == [(2, 1, 0, 0)]
    assert (fits.axis_0[0], fits.frame[0]) == (2, 1)
    assert held.shape == image.shape
    assert len(localize(held, frames=(2, 1), sigma=1.3)) == 0


def test_a_held_frame_of_an_image_without_frames():
    image = simulate_movie(1, shape=(64, 64), spots_per_frame=8, seed=3)[0][0]
    one, other = localize(HeldFrame(image)), localize(image)
    for name in one.columns:
        np.testing.assert_array_equal(one.columns[name], other.columns[name])


@pytest.fixture(scope="module")
def uneven():
    rng = np.random.default_rng(11)
    offset, gain = rng.normal(100, 15, (90, 110)), rng.uniform(1.2, 2.8, (90, 110))
    movie, _ = simulate_movie(
        4, (90, 110), spots_per_frame=12, photons=3000, offset=offset, gain=gain, seed=12
    )
    bad = rng.random((90, 110)) < 0.005
    movie[:, bad] = 60_000
    return movie, {"bad_pixels": bad, "camera": Camera(offset, gain)}


class TestKnownPixels:
    """Hot pixels and a gain of each pixel's own count for widths and peaks as for localize."""

    settings = Settings(roi_size=7, threshold=6.0, neighbours="ignore")

    def test_detection_finds_what_is_fitted(self, uneven):
        movie, known = uneven
        fits = localize(movie, settings=self.settings, **known)
        places = detect_spots(movie, settings=self.settings, **known)
        assert len(places) == len(fits) > 40
        again = fit_at(movie, places, settings=self.settings, **known)
        for name in ("y", "x", "photons", "x_stderr"):
            np.testing.assert_array_equal(again.columns[name], fits.columns[name], name)
        assert len(detect_spots(movie, settings=self.settings)) > len(places)  # the hot ones

    def test_the_peak_of_a_click_is_no_hot_pixel(self, uneven):
        movie, known = uneven
        held = HeldFrame(movie, (2,))
        fits = localize(movie, frames=2, settings=self.settings, **known)
        for spot in fits[fits.valid]:
            place = spot.y[0], spot.x[0]
            rivals = np.hypot(fits.y - place[0], fits.x - place[1]) < 7 / 2 + 1.5
            if rivals.sum() == 1:
                peak = peak_near(held, place, self.settings, **known)
                again = fit_at(held, [[2, *peak]], settings=self.settings, **known)
                np.testing.assert_array_equal(again.x, spot.x)

    def test_heights_and_width(self, uneven):
        movie, known = uneven
        heights = peak_heights(movie, self.settings, **known)
        assert (heights > 6).sum() == len(localize(movie, settings=self.settings, **known))
        width = estimate_sigma(movie, settings=self.settings, **known)
        assert width.sigma == pytest.approx(1.35, abs=0.06)  # 1.3, sampled
        assert width.scatter < 0.2


def test_spots_of_few_amplified_electrons_tell_the_width():
    """Fits of a few of them are narrow: good places, but their widths must not be the most."""
    frames = next(np.array(s.frames) for s in noisy_scenes(1.3) if s.name == "EMCCD 0.05")
    assert abs(estimate_sigma(frames).sigma / 1.332 - 1) < 0.1


@pytest.mark.parametrize("name", ["Poisson 0.5", "Poisson 0.05"])
def test_dim_spots_are_as_wide_as_bright_ones(name):
    """Their fits are 5 % narrow."""
    frames = next(np.array(s.frames) for s in noisy_scenes(1.3, 384, 6) if s.name == name)
    assert estimate_sigma(frames).sigma == pytest.approx(1.332, rel=0.03)


def test_a_middle_without_noise_tells_nothing_of_the_rest():
    """As outside of a mask: the middle is looked at first."""
    corner = simulate_movie(1, shape=(96, 96), spots_per_frame=12, photons=4000, seed=4)[0][0]
    image = np.zeros((1400, 1400), np.uint16)
    image[:96, :96] = corner
    assert estimate_sigma(image).sigma == pytest.approx(estimate_sigma(corner).sigma, rel=0.03)


@pytest.mark.parametrize("shape", [(1, 1), (3, 40), (40, 4), (5, 2, 2), (9, 4, 30)])
def test_frames_in_which_no_roi_has_room_tell_no_width(shape):
    image = np.random.default_rng(1).poisson(50, shape).astype(np.uint16)
    with pytest.raises(ValueError, match=f"no ROI has room in frames of {shape[-2]}×{shape[-1]}"):
        estimate_sigma(image)
    with pytest.warns(UserWarning, match="no ROI has room"):
        detect_spots(image)


@pytest.mark.parametrize("scale", [1e-30, 1e-25, 1e-19, 1e-12, 1e-6, 1e6, 1e10, 1e16, 1e19, 1e30])
@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_images_of_any_scale_have_the_same_spots_or_a_reason(movie, scale, dtype):
    plain = localize(movie, 9, sigma=1.3)
    scaled = (movie * np.float64(scale)).astype(dtype)
    if 1e-15 < scale < 1e12:
        fits = localize(scaled, 9, sigma=1.3)
        assert len(fits) == len(plain)
        for name, power in (("y", 0), ("y_stderr", 0), ("amplitude", 1), ("amplitude_stderr", 1)):
            own = fits.columns[name] / np.float64(scale) ** power
            np.testing.assert_allclose(own, plain.columns[name], rtol=2e-3)
        return
    for ask in (localize, detect_spots, estimate_sigma, noise_model):
        with pytest.raises(ValueError, match=r"multiply it by 1e[+-]\d+, and divide"):
            ask(scaled)


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_columns_of_a_camera_are_no_crowds_of_narrow_spots():
    rng, shape = np.random.default_rng(15), (256, 256)
    level = np.full(shape, np.linspace(5, 100, 256))
    level[:, 85] += 4000
    level[:128, 128] += 300
    movie = [
        rng.poisson(level + light(scattered(rng, shape, 40), 1000, 1.3, shape)) for _ in "1234"
    ]
    movie = (2.2 * np.array(movie) + 100).astype(np.float32)
    alone, crowds = (
        estimate_sigma(movie, settings=Settings(neighbours=one, backend="cpu")).sigma
        for one in ("exclude", "auto")
    )
    assert 0.79 * alone < crowds < 1.26 * alone


@pytest.mark.parametrize("sigma", [10.5, 12.0])
def test_spots_wider_than_settings_take_are_found_and_warned_of(sigma):
    """They were an error of a σ that nobody had given."""
    rng = np.random.default_rng(1)
    places = rng.uniform(20, 236, (40, 2))
    image = rng.poisson(20 + light(places, 3e5, sigma, (256, 256)))
    with pytest.warns(UserWarning, match="wider, σ 1"):
        fits = localize(image, neighbours="auto", backend="cpu")
    assert fits.settings.sigma == 10
    assert fits.good.sum() > 10
