"""Fits without pixels that are nearer to other spots: which they are, and the effect on fits."""

from __future__ import annotations

import detection_on_host
import numpy as np
import pytest
from excluding import fits_of_both, known_of, listed
from same_fits import assert_same
from scenes import light, on_grid, places

from napari_spotfit import (
    Flag,
    NoiseModel,
    Settings,
    StopCondition,
    fit_at,
    fit_spots,
    localize,
)
from napari_spotfit.engine.cpu import block_fits as cpu_block_fits
from napari_spotfit.engine.cuda import block_fits
from napari_spotfit.engine.cuda import roi_kernels as there
from napari_spotfit.models.estimators import ESTIMATORS

BOTH = ("exclude", "ignore")


def on_host(values, *where):
    """Cut out ROIs as on a GPU, with arrays of the host."""
    return there.cut_out_on(detection_on_host.HOST, values, *where)


def crowd(rng, side=120, density=0.03, photons=3000, sigma=1.3):
    """Return a crowded frame and its spots."""
    centres = rng.uniform(2, side - 3, (round(density * side**2), 2))
    return rng.poisson(light(centres, photons, sigma, (side, side)) + 20.0) + 100.0, centres


def corners_of(centres, roi_shape, shape):
    last = np.array(shape) - roi_shape
    return np.clip(np.rint(centres).astype(int) - np.array(roi_shape) // 2, 0, last)


def own_by_hand(corner, own, others, roi_shape):
    """Return which pixels of a ROI are nearest to its spot, in a loop."""
    y, x = np.indices(roi_shape).reshape(2, *roi_shape, 1) + np.reshape(corner, (2, 1, 1, 1))
    others = others[(others != own).any(axis=1)]
    to_others = (y - others[:, 0]) ** 2 + (x - others[:, 1]) ** 2
    to_own = (y - own[0]) ** 2 + (x - own[1]) ** 2
    return (to_own < to_others).all(axis=-1)


@pytest.mark.parametrize("ordered", [False, True], ids=["in any order", "row by row"])
@pytest.mark.parametrize("whole", [True, False], ids=["pixels", "anywhere"])
@pytest.mark.parametrize("roi_shape", [(9, 9), (5, 15), (41, 7)])
def test_neighbour_masks_are_those_of_a_loop(instruction_set, roi_shape, whole, ordered):
    rng = np.random.default_rng([*roi_shape, whole])
    centres = rng.uniform(-0.5, 59.5, (300, 2))
    centres = np.clip(np.rint(centres), 0, 59) if whole else centres
    centres[50:53] = centres[50]
    # Of those that lie row by row there are few in a frame.
    frame = np.sort(rng.integers(0, 60 if ordered else 6, 300))
    if ordered:
        centres = centres[np.lexsort((centres[:, 0], frame))]
    expected = np.array(
        [
            own_by_hand(corner, own, centres[frame == number], roi_shape)
            for number, corner, own in zip(
                frame, corners_of(centres, roi_shape, (60, 60)), centres, strict=True
            )
        ]
    )
    lost = ~expected.all(axis=(1, 2))
    assert lost.mean() > 0.2
    frames = np.zeros((60, 60, 60), np.float32)
    rois, weights = listed(frames, centres, frame, roi_shape)
    np.testing.assert_array_equal(rois, np.flatnonzero(lost))
    np.testing.assert_array_equal(weights, expected[lost])
    _, variances = listed(frames, centres, frame, roi_shape, "mle")
    np.testing.assert_array_equal(variances, np.where(expected[lost], 0, np.nan))


def test_nobody_keeps_what_is_halfway():
    centres = np.array([[4.0, 4.0], [4.0, 8.0], [30.0, 4.0]])
    frames = np.zeros((1, 35, 13), np.float32)
    rois, (one, other) = listed(frames, centres, np.zeros(3, np.int64), (9, 9))
    assert rois.tolist() == [0, 1]
    assert one[0].tolist() == [1] * 6 + [0] * 3
    assert other[0].tolist() == [0] * 3 + [1] * 6


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.float32, np.float64])
def test_cut_outs_are_the_pixels_of_frames(dtype):
    rng = np.random.default_rng(4)
    frames = rng.integers(0, 200, (3, 30, 40)).astype(dtype)
    corners = np.column_stack([rng.integers(0, high, 50) for high in (3, 22, 28)])
    expected = [frames[f, y : y + 8, x : x + 12] for f, y, x in corners]
    np.testing.assert_array_equal(on_host(frames, corners, (8, 12)), expected)
    one = on_host(frames[1:2], corners, (8, 12))
    np.testing.assert_array_equal(one[7], frames[1, corners[7, 1] :, corners[7, 2] :][:8, :12])


class TestPairs:
    """Two spots so near that each is in the other's ROI."""

    def pairs(self, gap, photons=20_000, seed=1):
        rng = np.random.default_rng(seed)
        middle = on_grid(rng, (330, 330), 33)
        turn = rng.uniform(0, 2 * np.pi, len(middle))
        step = gap / 2 * np.column_stack([np.sin(turn), np.cos(turn)])
        truth = np.concatenate([middle - step, middle + step])
        return rng.poisson(light(truth, photons, 1.3, (330, 330)) + 10.0), truth, step

    @pytest.mark.filterwarnings("ignore:.* good fits are POOR_FIT")  # by the other one's light
    @pytest.mark.parametrize("estimator", ["lse", "mle"])
    @pytest.mark.parametrize(("gap", "times"), [(3, 3), (4, 8), (5, 2)])
    def test_leaving_out_keeps_centres_and_widths(self, backend, estimator, gap, times):
        image, truth, step = self.pairs(gap)
        apart = step / np.linalg.norm(step, axis=1, keepdims=True)
        towards = np.concatenate([apart, -apart])
        off, wide = {}, {}
        for how in BOTH:
            fits = fit_at(
                image, truth, neighbours=how, estimator=estimator, gain=1.0, backend=backend
            )
            drawn = (places(fits) - truth)[fits.valid] * towards[fits.valid]
            off[how] = abs(np.median(drawn.sum(axis=1)))
            wide[how] = abs(np.median(fits.sigma[fits.valid]) - 1.35)
        assert off["exclude"] < off["ignore"] / times
        assert wide["exclude"] < min(0.06, wide["ignore"] / 4)

    def test_both_are_good(self):
        image, _, _ = self.pairs(4.0)
        good = {how: localize(image, neighbours=how).good.mean() for how in BOTH}
        assert good["exclude"] > 0.99
        assert good["ignore"] < 0.7
        fits = localize(image, neighbours="exclude")
        assert ((fits.flags & int(Flag.NEIGHBOUR)) != 0).mean() > 0.9

    def test_errors_are_those_of_the_pixels_that_count(self):
        image, truth, _ = self.pairs(7.0, photons=3000)
        fits = fit_at(image, truth, neighbours="exclude", gain=1.0)
        for name, along in (("y", 0), ("x", 1)):
            z = (fits.columns[name] - truth[:, along]) / fits.columns[f"{name}_stderr"]
            assert 1.4826 * np.median(abs(z)) == pytest.approx(1, abs=0.2)
        reduced = np.median(fits.reduced_chi_square)
        used = np.median(fits.chi_square / fits.reduced_chi_square) + 5
        assert 50 < used < 75
        assert reduced > 0


def test_spots_that_stand_alone_are_as_without_the_setting(backend):
    rng = np.random.default_rng(7)
    image, centres = crowd(rng)
    alone = np.array([[y, 150.0 + 14 * i] for i in range(3) for y in np.arange(8, 112, 14.0)])
    image = np.pad(image, ((0, 0), (0, 70)), constant_values=120)
    centres = np.concatenate([centres, alone])
    ours, theirs = (
        fit_at(image, centres, sigma=1.3, neighbours=how, backend=backend) for how in BOTH
    )
    last = slice(-len(alone), None)
    assert_same(ours[last], theirs[last])
    assert (ours.sigma[: -len(alone)] != theirs.sigma[: -len(alone)]).mean() > 0.9
    excluded = fit_at(image, alone, sigma=1.3, neighbours="exclude", backend=backend)
    assert_same(excluded, theirs[last][:])


@pytest.mark.parametrize("roi_size", [9, (5, 35)])
@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize("each", [False, True], ids=["shared", "each frame"])
def test_what_is_left_out_is_a_bad_pixel_of_one_fit(backend, estimator, each, roi_size):
    """With maps of the pixels, at the image's edges too, and in large ROIs."""
    rng = np.random.default_rng(3)
    size, count = (60, 70), 40
    shape = (2, *size) if each else size
    centres = np.column_stack(
        [rng.integers(0, 2, count), rng.uniform(0, np.subtract(size, 1), (count, 2))]
    )
    spots = [light(centres[centres[:, 0] == frame, 1:], 3000, 1.4, size) for frame in (0, 1)]
    movie = rng.poisson(np.array(spots) + 20.0) + 100.0
    known = known_of(rng, shape, estimator)
    options = {"roi_size": roi_size, "estimator": estimator, "errors": True, "backend": backend}
    options["neighbours"] = "exclude"
    fits = fit_at(movie, centres, **options, **known)
    roi_shape = fits.settings.roi_shape
    for fit, (frame, *place) in zip(fits, centres, strict=True):
        corner = corners_of(np.array([place]), roi_shape, size)[0]
        others = centres[centres[:, 0] == frame, 1:]
        rows, columns = (
            slice(first, first + n) for first, n in zip(corner, roi_shape, strict=True)
        )
        bad = np.broadcast_to(known["bad_pixels"], movie.shape).copy()
        bad[int(frame), rows, columns] |= ~own_by_hand(corner, np.array(place), others, roi_shape)
        options["noise"] = fits.settings.noise
        one = fit_at(movie, [[frame, *place]], **options, **known | {"bad_pixels": bad})
        for name in set(fits.columns) - {"flags"}:
            np.testing.assert_array_equal(fit.columns[name], one.columns[name], name)


def test_a_large_roi_leaves_them_out_too(backend):
    truth = np.array([[40.0, 36.0], [40.0, 58.0], [61.0, 50.0]])
    image = np.random.default_rng(2).poisson(light(truth, 4e5, 5.0, (90, 90)) + 10.0)
    ours, theirs = (fit_at(image, truth, 41, neighbours=how, backend=backend) for how in BOTH)
    off, much = (np.hypot(*(places(fits) - truth).T) for fits in (ours, theirs))
    assert (off < much).all()
    assert (abs(ours.sigma - 5.01) < 0.2 * abs(theirs.sigma - 5.01)).all()


def test_no_row_depends_on_order_threads_or_pieces(backend, monkeypatch):
    rng = np.random.default_rng(8)
    frames = [crowd(rng, 100) for _ in range(3)]
    movie = np.stack([image for image, _ in frames])
    centres = np.concatenate(
        [np.column_stack([np.full(len(those), i), those]) for i, (_, those) in enumerate(frames)]
    )
    options = {"sigma": 1.3, "neighbours": "exclude", "backend": backend}
    fits = fit_at(movie, centres, **options)
    assert (fits.frame == 1).sum() > 100
    order = rng.permutation(len(centres))
    assert_same(fit_at(movie, centres[order], **options), fits[order])
    for frame in (0, 2):
        own = centres[:, 0] == frame
        assert_same(fit_at(movie, centres[own], **options), fits[own])
    found = localize(movie, **options)
    monkeypatch.setattr(cpu_block_fits, "SMALL_SHARE", 32)
    monkeypatch.setattr(cpu_block_fits.CpuFitter, "at_once", 16)
    monkeypatch.setattr(block_fits, "_CUT_OUT_PIXELS", 1000)
    monkeypatch.setattr(block_fits, "_MARKED", 10)
    for threads in (1, 3):
        assert_same(fit_at(movie, centres, threads=threads, **options), fits)
        assert_same(localize(movie, threads=threads, **options), found)
    assert_same(localize(movie, frames=1, **options), found[found.frame == 1])


def test_equal_places_take_nothing_from_each_other(backend):
    image, centres = crowd(np.random.default_rng(5), density=0.01)
    fits, twice = (
        fit_at(image, those, neighbours="exclude", backend=backend)
        for those in (centres, np.concatenate([centres, centres[:9]]))
    )
    for name in ("y", "x", "sigma", "photons", "chi_square", "stop_condition"):
        np.testing.assert_array_equal(twice.columns[name][: len(fits)], fits.columns[name])
        np.testing.assert_array_equal(twice.columns[name][len(fits) :], fits.columns[name][:9])


def test_a_spot_that_keeps_too_few_pixels_is_invalid(backend):
    around = [(dy, dx) for dy in (-2, 0, 2) for dx in (-2, 0, 2) if dy or dx]
    image, middle = np.full((30, 30), 10.0), np.array([15.0, 15.0])
    fits = fit_at(
        image + light([middle], 5000, 1.3, image.shape),
        [middle, *(middle + around)],
        sigma=1.3,
        neighbours="exclude",
        backend=backend,
    )
    assert fits.stop_condition[0] == StopCondition.INVALID
    assert fits.flags[0] & Flag.NOT_CONVERGED


def test_cut_outs_have_no_neighbours():
    with pytest.raises(TypeError, match="neighbours has no effect in fit_spots"):
        fit_spots(np.zeros((2, 9, 9)), neighbours="ignore")
    rois = np.random.default_rng(1).poisson(10, (5, 9, 9))
    both = [fit_spots(rois, settings=Settings(neighbours=how)) for how in BOTH]
    assert_same(*both)


@pytest.mark.parametrize("roi_size", [9, (5, 35)])
@pytest.mark.parametrize("estimator", ["lse", "mle"])
@pytest.mark.parametrize("kind", ["maps", "bad frames", "none"])
def test_cut_outs_of_a_gpu_give_the_same_rows(monkeypatch, estimator, roi_size, kind):
    """There, the library cannot cut them out, nor look for pixels to exclude."""
    rng = np.random.default_rng(6)
    image, centres = crowd(rng, 90)
    movie = np.stack([image, image[::-1]]).astype(np.uint16)
    movie[0, 20, 20] = movie[1, 44, 60] = 9000
    if kind == "bad frames":
        movie[0, 60:64, 50:54] = 4095
        movie[1, :, :12] = 0
    known = known_of(rng, image.shape, estimator) if kind == "maps" else {}
    noise = NoiseModel(1.0, -100.0, 4.0)
    own = {} if kind == "maps" else {"noise": noise, "gain": 1.0}
    settings = Settings(estimator=estimator, sigma=1.3, roi_size=roi_size, threads=2, **own)
    _, calls = fits_of_both(monkeypatch, movie, centres, settings, known, 4000)
    assert {left_there for _, left_there in calls} == {roi_size == 9}
