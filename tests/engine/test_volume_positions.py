"""Fits around positions in volumes: which voxels count, where ROIs lie, and what is flagged."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from excluding import fits_of_both, known_of
from same_fits import assert_same

from napari_spotfit import (
    Flag,
    NoiseModel,
    Settings,
    fit_at,
    fit_spots,
)
from napari_spotfit.engine.backend import Block, Positions
from napari_spotfit.engine.cpu import block_fits as cpu_block_fits
from napari_spotfit.engine.fit_job import FitJob
from napari_spotfit.engine.positions import excluded_pixels
from napari_spotfit.images.pixel_calibration import PixelCalibration
from napari_spotfit.models.profiles import GAUSSIAN_3D

SIGMA, SIGMA_Z = 1.3, 1.6
STACK, ROI = (24, 60, 70), (9, 9, 9)
#: What is known of the stacks here: nothing is estimated. Each spot is fitted by itself.
KNOWN = {
    "model": "gaussian_3d", "sigma": SIGMA, "sigma_z": SIGMA_Z, "roi_size": ROI,
    "neighbours": "exclude",
}  # fmt: skip
CAMERA = {"gain": 1.0, "variance": 0.0}


def light_of(centres, amplitude=200.0, shape=STACK, sigma_z=SIGMA_Z):
    """Return volumes with spots at centres, without background."""
    total = np.zeros(shape)
    z, y, x = np.ogrid[tuple(map(slice, shape))]
    for place in centres:
        own = dict(zip("zyx", place, strict=True)) | {"sigma": SIGMA, "sigma_z": sigma_z}
        total += amplitude * GAUSSIAN_3D.sampled(z, y, x, own)
    return total


def grid(rng, shape=STACK, step=(24, 14, 14), jitter=0.5):
    """Return centres that are well apart."""
    axes = [
        np.arange(one / 2, size - one / 2 + 1, one) for one, size in zip(step, shape, strict=True)
    ]
    places = np.stack(np.meshgrid(*axes, indexing="ij"), -1).reshape(-1, 3)
    return places + rng.uniform(-jitter, jitter, places.shape)


def crowd(rng, count=40, shape=STACK):
    centres = rng.uniform(0, np.array(shape) - 1, (count, 3))
    return rng.poisson(light_of(centres, shape=shape) + 20.0), centres


def corners_of(centres, roi=ROI, shape=STACK):
    """Return where ROIs begin, shifted inwards at every end."""
    first = np.rint(centres).astype(int) - np.array(roi) // 2
    return np.clip(first, 0, np.array(shape) - roi)


def own_by_hand(corner, own, others, roi=ROI, per_plane=SIGMA / SIGMA_Z):
    """Return which voxels of a ROI are nearer to its own place than to any other."""
    voxels = np.stack(np.meshgrid(*map(np.arange, roi), indexing="ij"), -1) + corner
    scale = np.array([per_plane, 1, 1])

    def square(place):
        return (((voxels - place) * scale) ** 2).sum(-1)

    return np.all([square(own) < square(one) for one in others if (one != own).any()], axis=0)


def places(fits):
    return np.column_stack([fits.z, fits.y, fits.x])


@cache
def many_spots():
    """Return spots and their image, for all backends."""
    rng = np.random.default_rng(1)
    centres = grid(rng, shape := (24, 300, 300))
    return centres, rng.poisson(light_of(centres, 120.0, shape) + 10.0).astype(np.uint16)


@pytest.mark.parametrize("estimator", ["lse", "mle"])
def test_spots_are_found_where_they_are_with_errors_that_are_right(backend, estimator):
    centres, image = many_spots()
    fits = fit_at(image, centres, estimator=estimator, backend=backend, **KNOWN, **CAMERA)
    assert fits.good.all()
    assert not fits.flags.any()
    assert list(fits.columns)[-4:] == ["roi_z", "roi_y", "roi_x", "flags"]
    roi = np.column_stack([fits.columns[f"roi_{axis}"] for axis in "zyx"])
    np.testing.assert_array_equal(roi, corners_of(centres, shape=image.shape))
    errors = np.column_stack([fits.columns[f"{axis}_stderr"] for axis in "zyx"])
    scores = (places(fits) - centres) / errors
    assert scores.std(0) == pytest.approx(1, abs=0.1)
    assert (abs(scores.mean(0)) < 0.2).all()


@pytest.mark.parametrize("given", [{}, {"estimator": "mle"}, {"neighbours": "ignore"}])
def test_rows_are_those_of_the_rois_cut_out_by_hand(backend, given):
    rng = np.random.default_rng(2)
    centres = grid(rng)
    stacks = [rng.poisson(light_of(centres) + 20.0).astype(np.uint16) for _ in range(3)]
    movie = np.stack(stacks)
    which = rng.integers(0, 3, len(centres))
    options = KNOWN | CAMERA | given
    fits = fit_at(movie, np.column_stack([which, centres]), backend=backend, **options)
    corners = corners_of(centres)
    rois = np.array(
        [movie[(t, *map(slice, c, c + ROI))] for t, c in zip(which, corners, strict=True)]
    )
    start = np.full((len(rois), 5), np.nan, np.float32)
    start[:, :3] = centres - corners
    alone = fit_spots(
        rois, model="gaussian_3d", start=start, backend=backend, **CAMERA,
        **{name: value for name, value in given.items() if name != "neighbours"},
    )  # fmt: skip
    assert fits.index_names == ("frame",)
    for name in set(alone.columns) - {"z", "y", "x"}:
        np.testing.assert_array_equal(fits.columns[name], alone.columns[name], name)
    np.testing.assert_allclose(places(fits), places(alone) + corners, atol=1e-9)


class TestNeighbours:
    def test_own_voxels_are_those_of_a_loop(self, instruction_set):
        rng = np.random.default_rng(3)
        image, centres = crowd(rng, 60)
        settings = Settings(**KNOWN, **CAMERA)
        calibration = PixelCalibration(image.shape, settings)
        job = FitJob.of(calibration, image.dtype)
        block = Block.of(calibration, np.arange(1), image[np.newaxis])
        for i, centre in enumerate(centres[:30]):
            mixed = np.roll(centres, -i, axis=0)
            found = excluded_pixels(job, block, Positions(mixed))
            assert found.corner == tuple(corners_of(centre))
            expected = own_by_hand(found.corner, centre, centres)
            np.testing.assert_array_equal(~found.neighbour, expected)

    def test_voxels_without_a_width_count_by_their_size(self):
        block = Block(*2 * (np.zeros((1, 9, 30, 30), np.float32),))
        positions = Positions(np.array([[2.0, 15.0, 15.0], [6.0, 15.0, 19.0]]))
        for voxel, per_plane in ((None, 1.0), ((300, 100, 100), 3.0)):
            settings = Settings(model="gaussian_3d", roi_size=(9, 9, 9), voxel_size=voxel)
            found = excluded_pixels(FitJob(settings, (9, 9, 9), "f4"), block, positions)
            expected = own_by_hand(
                found.corner, positions.places[0], positions.places[1:], per_plane=per_plane
            )  # fmt: skip
            np.testing.assert_array_equal(~found.neighbour, expected)

    @pytest.mark.parametrize("step", [(4.5, 0, 0), (0, 3.6, 0), (3.0, 1.5, 2.0)])
    def test_leaving_out_keeps_centres(self, backend, step):
        rng = np.random.default_rng(4)
        shape = (24, 200, 200)
        middle = grid(rng, shape, (24, 22, 22), 0.4)
        truth = np.concatenate([middle - np.array(step) / 2, middle + np.array(step) / 2])
        image = rng.poisson(light_of(truth, 800.0, shape) + 10.0)
        off = {}
        for how in ("exclude", "ignore"):
            options = KNOWN | CAMERA | {"neighbours": how}
            fits = fit_at(image, truth, backend=backend, **options)
            drawn = (places(fits) - truth) @ (np.array(step) / np.linalg.norm(step))
            drawn[len(middle) :] *= -1
            off[how] = abs(np.median(drawn[fits.valid]))
        assert off["exclude"] < off["ignore"] / 2
        assert ((fits.flags & int(Flag.NEIGHBOUR)) != 0).all()

    def test_a_neighbour_in_another_plane_is_one(self, backend):
        truth = np.array([[6.0, 30, 30], [12.0, 30, 30], [12.0, 50, 50]])
        image = light_of(truth) + 20
        fits = fit_at(image, truth, backend=backend, **KNOWN, noise=NoiseModel(1, 0, 1))
        near = (fits.flags & int(Flag.NEIGHBOUR)) != 0
        assert near.tolist() == [False, False, False]
        truth[1, 0] = 10.4
        fits = fit_at(image, truth, backend=backend, **KNOWN, noise=NoiseModel(1, 0, 1))
        assert ((fits.flags & int(Flag.NEIGHBOUR)) != 0).tolist() == [True, True, False]


@pytest.mark.parametrize("estimator", ["lse", "wlse", "mle"])
@pytest.mark.parametrize("each", ["plane", "stack", "each frame"])
def test_what_is_left_out_is_a_bad_voxel_of_one_fit(backend, estimator, each):
    """With maps of the voxels, at the stack's ends too."""
    rng = np.random.default_rng(5)
    count, shape = 30, (14, 40, 45)
    own_shape = {"plane": shape[1:], "stack": shape, "each frame": (2, *shape)}[each]
    inner = rng.uniform(0, np.subtract(shape, 1), (count, 3))
    centres = np.column_stack([rng.integers(0, 2, count), inner])
    stacks = [light_of(inner[centres[:, 0] == frame], shape=shape) for frame in (0, 1)]
    movie = rng.poisson(np.array(stacks) + 20.0) + 100.0
    known = known_of(rng, own_shape, estimator)
    options = KNOWN | {"estimator": estimator, "backend": backend, "noise": NoiseModel(1, -100, 4)}
    fits = fit_at(movie, centres, **options, **known)
    assert fits.converged.sum() > 20
    for fit, (frame, *place) in zip(fits, centres, strict=True):
        corner = corners_of(np.array(place), shape=shape)
        others = inner[centres[:, 0] == frame]
        bad = np.broadcast_to(known["bad_pixels"], movie.shape).copy()
        roi = tuple(slice(first, first + n) for first, n in zip(corner, ROI, strict=True))
        bad[(int(frame), *roi)] |= ~own_by_hand(corner, np.array(place), others)
        one = fit_at(movie, [[frame, *place]], **options, **known | {"bad_pixels": bad})
        for name in set(fits.columns) - {"flags"}:
            np.testing.assert_array_equal(fit.columns[name], one.columns[name], name)


def spoilt(rng, count=40):
    """Return a stack whose voxels are hot, saturated, or no data here and there, and centres."""
    image, centres = crowd(rng, count)
    image = image.astype(np.uint16)
    image[5, 20, 20] = image[12, 44, 60] = 9000
    image[:, 33, 41] += 900
    image[8:11, 50:54, 30:34] = 4095
    image[:, :, :6] = 0
    image[-3:] = 0
    return image, centres


@pytest.mark.parametrize("estimator", ["lse", "mle"])
@pytest.mark.parametrize("kind", ["maps", "bad voxels", "none"])
def test_fits_on_a_device_are_those_of_the_host(monkeypatch, estimator, kind):
    """There, the library cannot cut ROIs out, nor look for voxels to exclude."""
    rng = np.random.default_rng(6)
    image, centres = spoilt(rng) if kind == "bad voxels" else crowd(rng)
    movie = np.stack([image, image[:, ::-1]]).astype(np.uint16)
    known = known_of(rng, image.shape, estimator) if kind == "maps" else {}
    settings = Settings(
        estimator=estimator, threads=2, noise=NoiseModel(1.0, -100.0, 4.0), **KNOWN,
        **({} if kind == "maps" else {"gain": 1.0}),
    )  # fmt: skip
    fits, _ = fits_of_both(monkeypatch, movie, centres, settings, known, 12000)
    held = (fits["flags"] & int(Flag.SIGMA_Z_HELD)) != 0
    assert 20 < held.sum() < len(held) - 20


def test_no_row_depends_on_order_threads_or_pieces(backend, monkeypatch):
    rng = np.random.default_rng(8)
    image, centres = spoilt(rng, 120)
    movie = np.stack([image, np.roll(image, 20, 1), image[:, :, ::-1]])
    all_centres = np.concatenate([np.column_stack([np.full(120, t), centres]) for t in range(3)])
    options = KNOWN | {"noise": NoiseModel(1, 0, 1), "backend": backend}
    fits = fit_at(movie, all_centres, **options)
    order = rng.permutation(len(all_centres))
    assert_same(fit_at(movie, all_centres[order], **options), fits[order])
    one = fit_at(movie[1:2], all_centres[:120] * [0, 1, 1, 1], **options)
    one.columns["frame"][:] = 1
    assert_same(one, fits[all_centres[:, 0] == 1])
    monkeypatch.setattr(cpu_block_fits, "SMALL_SHARE", 32)
    monkeypatch.setattr(cpu_block_fits.CpuFitter, "at_once", 16)
    for threads in (1, 3):
        assert_same(fit_at(movie, all_centres, threads=threads, **options), fits)


class TestFlags:
    def fits(self, image, centres, **options):
        return fit_at(image, centres, **(KNOWN | {"noise": NoiseModel(1.0, 0.0, 4.0)} | options))

    def flagged(self, fits, flag):
        return (fits.flags & int(flag)) != 0

    @pytest.mark.parametrize("upside_down", [False, True])
    def test_a_spot_outside_of_the_stack_is_flagged(self, backend, upside_down):
        """Its light ends in the first planes: the centre belongs farther out."""
        z = np.array([-2.5, -1.2, -0.3, 0.3, 6.0])
        truth = np.column_stack([z, np.full(5, 30.0), np.arange(8, 68, 13.0)])
        begin = truth.copy()
        begin[:, 0] = np.maximum(z, 0)
        image = light_of(truth, 2000.0) + 10
        if upside_down:
            image, begin[:, 0] = image[::-1], len(image) - 1 - begin[:, 0]
        fits = self.fits(image, begin, backend=backend)
        assert self.flagged(fits, Flag.OUTSIDE_STACK).tolist() == [True, True, False, False, False]
        assert fits.good.tolist() == [False, False, True, True, True]
        truth[:, 0] = len(image) - 1 - z if upside_down else z
        np.testing.assert_allclose(places(fits)[2:], truth[2:], atol=0.02)
        assert self.flagged(fits, Flag.EDGE).tolist() == [True, True, True, True, False]
        assert not self.flagged(fits[2:], Flag.AT_BOUND).any()

    def test_few_planes_on_one_side_hold_the_width(self, backend):
        rng = np.random.default_rng(11)
        truth = grid(rng, (24, 100, 100), (4, 25, 25), 0.4)
        image = rng.poisson(light_of(truth[:16], 400.0, (24, 100, 100)) + 10.0)
        truth = truth[np.lexsort(truth.T[::-1])]
        fits = self.fits(image, truth, backend=backend, neighbours="ignore", errors=True)
        near = np.minimum(truth[:, 0], 23 - truth[:, 0]) < 2.5 * SIGMA_Z
        np.testing.assert_array_equal(self.flagged(fits, Flag.SIGMA_Z_HELD), near)
        assert (fits.sigma_z[near] == np.float32(SIGMA_Z)).all()
        assert (fits.sigma_z_stderr[near] == 0).all()
        assert (fits.sigma_z[~near] != np.float32(SIGMA_Z)).all()
        one = self.fits(
            image, truth, fixed={"sigma_z": SIGMA_Z}, backend=backend, neighbours="ignore"
        )
        assert not self.flagged(one, Flag.SIGMA_Z_HELD).any()
        for name in ("z", "y", "x", "sigma", "photons", "z_stderr", "chi_square"):
            np.testing.assert_array_equal(fits.columns[name][near], one.columns[name][near])

    def test_nothing_is_held_without_a_width(self, backend):
        image = light_of([[1.0, 30, 30]]) + 20
        fits = self.fits(image, [[1.0, 30, 30]], sigma_z=None, sigma=None, backend=backend)
        assert not fits.flags.any()
        assert fits.sigma_z[0] == pytest.approx(SIGMA_Z, abs=0.01)

    @pytest.mark.parametrize(("times", "flag"), [(2.5, Flag.WIDE), (0.45, Flag.NARROW), (1.5, 0)])
    def test_widths_along_z_are_judged(self, backend, times, flag):
        truth = np.array([[11.0, 30, 30]])
        image = light_of(truth, 900.0, sigma_z=SIGMA_Z * times) + 20
        fits = self.fits(image, truth, roi_size=(19, 9, 9), backend=backend)
        assert fits.sigma_z[0] == pytest.approx(SIGMA_Z * times, rel=0.05)
        assert fits.flags[0] & int(Flag.WIDE | Flag.NARROW) == int(flag)

    def test_a_fit_that_moves_along_z_is_flagged(self, backend):
        truth = np.array([[11.0, 30, 30], [11.0, 30, 55]])
        image = light_of(truth, 900.0) + 20
        off = truth + np.array([[2.0, 0, 0], [2.6, 0, 0]])
        fits = self.fits(image, off, backend=backend)
        np.testing.assert_allclose(places(fits), truth, atol=0.01)
        assert self.flagged(fits, Flag.MOVED).tolist() == [False, True]

    def test_two_fits_of_one_spot_are_one(self, backend):
        truth = np.array([[11.0, 30.0, 30.0]])
        image = light_of(truth, 900.0) + 20
        begin = truth + np.array([[0.0, 0, 0], [2, 0, 0], [8, 0, 0]])
        fits = self.fits(image, begin, neighbours="ignore", backend=backend)
        assert self.flagged(fits, Flag.DUPLICATE).tolist()[:2] == [False, True]

    @pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.float32])
    def test_saturated_voxels_are_left_out(self, backend, dtype):
        rng = np.random.default_rng(12)
        truth = grid(rng, STACK, (24, 20, 20))
        image = rng.poisson(light_of(truth, 900.0) + 20.0).clip(0, 255)
        fits = self.fits(image.astype(dtype), truth, backend=backend)
        assert self.flagged(fits, Flag.SATURATED).all()
        np.testing.assert_allclose(places(fits), truth, atol=0.25)
        assert np.median(fits.amplitude) == pytest.approx(900, rel=0.1)
        below = np.clip(light_of(truth, 200.0) + 20, 0, 254).astype(dtype)
        assert not self.flagged(self.fits(below, truth, backend=backend), Flag.SATURATED).any()

    def test_hot_voxels_are_left_out(self, backend):
        """Hot in all planes as a camera's pixel is, or in one."""
        rng = np.random.default_rng(13)
        truth = grid(rng, STACK, (24, 20, 20))
        clean = rng.poisson(light_of(truth, 400.0) + 20.0).astype(np.uint16)
        image = clean.copy()
        for z, y, x in np.rint(truth).astype(int)[::2]:
            image[:, y + 4, x - 3] += 600
            image[z + 1, y - 3, x + 3] += 900
        options = {"backend": backend, **CAMERA}
        fits, without = (self.fits(one, truth, **options) for one in (image, clean))
        np.testing.assert_allclose(places(fits), places(without), atol=0.03)
        np.testing.assert_allclose(fits.photons, without.photons, rtol=0.03)
        image[tuple(np.rint(truth).astype(int)[0])] += 3000
        fits = self.fits(image, truth, **options)
        assert self.flagged(fits, Flag.BAD_PIXELS).nonzero()[0].tolist() == [0]

    @pytest.mark.parametrize("what", ["planes", "columns", "both"])
    def test_padding_is_left_out(self, backend, what):
        rng = np.random.default_rng(14)
        truth = grid(rng, STACK, (12, 20, 20))
        image = rng.poisson(light_of(truth, 400.0) + 120.0).astype(np.uint16)
        if what != "columns":
            image[:3] = 0
        if what != "planes":
            image[:, :, :7] = 0
        fits = self.fits(image, truth, backend=backend, **CAMERA)
        np.testing.assert_allclose(places(fits), truth, atol=0.15)
        assert np.median(abs(fits.background - 120)) < 3
        assert fits.good.mean() > 0.9

    def test_planes_of_few_counts_are_no_padding(self, backend):
        """Where hardly any photon came, most planes of a ROI are 0."""
        rng = np.random.default_rng(15)
        truth = grid(rng, STACK, (24, 20, 20))
        image = rng.poisson(light_of(truth, 40.0) + 0.01).astype(np.uint16)
        options = {"backend": backend, "estimator": "mle", **CAMERA}
        fits = self.fits(image, truth, **options)
        assert np.median(fits.background) < 0.05
        assert np.median(abs(fits.sigma_z - SIGMA_Z)) < 0.2

    def test_what_is_bad_in_the_middle_is_flagged_in_its_plane(self, backend):
        truth = np.array([[11.0, 30.0, 30.0], [11.0, 30.0, 55.0]])
        image = light_of(truth, 900.0) + 20
        bad = np.zeros(STACK, bool)
        bad[11, 31, 31] = bad[13, 30, 55] = True
        fits = self.fits(image, truth, bad_pixels=bad, backend=backend)
        assert self.flagged(fits, Flag.BAD_PIXELS).tolist() == [True, False]
        each = np.stack([~bad & bad, bad])
        both = np.stack([image, image])
        centres = np.column_stack([[0, 1, 1], truth[[0, 0, 1]]])
        fits = self.fits(both, centres, bad_pixels=each, backend=backend)
        assert self.flagged(fits, Flag.BAD_PIXELS).tolist() == [False, True, False]
