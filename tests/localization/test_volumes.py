"""Spots in volumes from stacks to results: detection, fits, units, axes, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest
from same_fits import assert_same
from scipy.ndimage import gaussian_filter
from scipy.spatial import cKDTree

from napari_spotfit import (
    Camera,
    Fitter,
    Flag,
    NoiseModel,
    Settings,
    detect_spots,
    fit_at,
    fit_spots,
    load_fits,
    localize,
    localize_iter,
    summarize,
)
from napari_spotfit.images import frames as frames_module
from napari_spotfit.localization import tiles
from napari_spotfit.models.profiles import GAUSSIAN_3D

SIGMA, SIGMA_Z, SHAPE = 1.3, 1.5, (26, 90, 110)
KNOWN = {"model": "gaussian_3d", "sigma": SIGMA, "sigma_z": SIGMA_Z, "gain": 1.0, "variance": 0.0}
CROWDED = 40


def stacks(count=2, shape=SHAPE, amplitude=150.0, seed=1):
    """Return stacks with shot noise, and index, z, y and x of their spots."""
    rng = np.random.default_rng(seed)
    z, y, x = np.ogrid[tuple(map(slice, shape))]
    movie, truth = np.full((count, *shape), 20.0), []
    for t in range(count):
        places = rng.uniform(0, np.array(shape) - 1, (CROWDED, 3))
        for place in places:
            own = dict(zip("zyx", place, strict=True)) | {"sigma": SIGMA, "sigma_z": SIGMA_Z}
            movie[t] += amplitude * GAUSSIAN_3D.sampled(z, y, x, own)
        truth.append(np.column_stack([np.full(CROWDED, t), places]))
    return rng.poisson(movie).astype(np.uint16), np.concatenate(truth)


MOVIE, TRUTH = stacks()


def near(fits, truth, reach=1.0):
    """Return how many true spots have a good fit near them, and how many good fits there are."""
    scale = 100, 1 / SIGMA_Z, 1 / SIGMA, 1 / SIGMA
    good = fits[fits.good]
    found = np.column_stack([good.frame, good.z, good.y, good.x])
    off, _ = cKDTree(found * scale).query(truth * scale)
    return int((off < reach).sum()), len(good)


def test_spots_of_stacks_are_found_and_fitted(backend):
    fits = localize(MOVIE, backend=backend, **KNOWN)
    found, good = near(fits, TRUTH)
    assert found >= len(TRUTH) - 4
    assert good <= len(TRUTH) + 2
    assert fits.index_names == ("frame",)
    assert fits.axes == ("z", "y", "x")
    assert fits.settings.roi_size == (9, 9, 9)
    assert "plane" not in fits
    assert sorted(fits.frame) == list(fits.frame)


def test_rows_of_localize_are_those_at_its_detections(backend):
    """And those of a Fitter, stack by stack."""
    fits = localize(MOVIE, neighbours="exclude", backend=backend, **KNOWN)
    settings = fits.settings.changed(backend=backend)
    again = localize(MOVIE, settings=settings)
    assert_same(again, fits)
    places = detections_of(MOVIE, settings)
    at = fit_at(MOVIE, places, settings=settings)
    columns = {name: column for name, column in fits.columns.items() if name != "score"}
    for name, column in columns.items():
        np.testing.assert_array_equal(at.columns[name], column, name)
    with Fitter(settings=settings) as fitter:
        for t, stack in enumerate(MOVIE):
            own = fitter.fit_at(stack, places[places[:, 0] == t, 1:])
            for name in set(columns) - {"frame"}:
                np.testing.assert_array_equal(own.columns[name], at.columns[name][at.frame == t])


def detections_of(movie, settings):
    known = {name: getattr(settings, name) for name in ("sigma", "sigma_z")}
    return detect_spots(movie, settings=settings.changed(**known))


def test_parts_are_the_whole(backend, tmp_path):
    known = KNOWN | {"neighbours": "exclude", "backend": backend}
    fits = localize(MOVIE, **known)
    parts = list(localize_iter(MOVIE, **known))
    assert sum(map(len, parts)) == len(fits)
    assert_same(type(fits).concatenate(parts), fits)
    one = localize(MOVIE, frames=1, **known)
    assert_same(one, fits[fits.frame == 1])
    alone = localize(MOVIE[1], **known)
    np.testing.assert_array_equal(alone.z, one.z)


def test_lazy_stacks_give_the_same_rows():
    dask = pytest.importorskip("dask.array")
    pytest.importorskip("pyarrow")
    pytest.importorskip("dask.dataframe")
    fits = localize(MOVIE, backend="cpu", **KNOWN)
    lazy = dask.from_array(MOVIE, chunks=(1, 5, 90, 60))
    assert_same(localize(lazy, backend="cpu", **KNOWN), fits)
    table = localize(lazy, lazy=True, backend="cpu", **KNOWN).compute()
    np.testing.assert_array_equal(table["z"], fits.z)
    at = fit_at(lazy, TRUTH, backend="cpu", **KNOWN)
    assert_same(at, fit_at(MOVIE, TRUTH, backend="cpu", **KNOWN))


def test_leading_axes_are_time_and_channels():
    many = np.stack([MOVIE, MOVIE[::-1]], 1)
    fits = localize(many, backend="cpu", **KNOWN)
    assert fits.index_names == ("axis_0", "frame")
    own = (fits.axis_0 == 0) & (fits.frame == 1)
    alone = localize(MOVIE[1], backend="cpu", **KNOWN)
    np.testing.assert_array_equal(fits.z[own], alone.z)
    assert fits.points().shape == (len(fits), 5)


class Named(np.ndarray):
    """An array that names its axes."""

    dims = ("t", "z", "y", "x")


def test_named_axes_of_planes_warn_of_nothing(recwarn):
    fits = localize(MOVIE.view(Named), backend="cpu", **KNOWN)
    assert_same(fits, localize(MOVIE, backend="cpu", **KNOWN))
    assert not [one for one in recwarn if "plane" in str(one.message)]


def test_known_voxels_give_nanometres(backend, tmp_path):
    voxel = 300.0, 110.0, 110.0
    fits = fit_at(MOVIE, TRUTH, voxel_size=voxel, backend=backend, **KNOWN)
    np.testing.assert_array_equal(fits.z_nm, 300 * fits.z)
    np.testing.assert_array_equal(fits.z_nm_stderr, np.float32(300) * fits.z_stderr)
    assert fits.units["z_nm"] == fits.units["z_nm_stderr"] == "nm"
    assert fits.units["z"] == fits.units["sigma_z"] == "planes"
    fits.save(tmp_path / "one.spots.csv")
    assert_same(load_fits(tmp_path / "one.spots.csv"), fits)
    plain = fit_at(MOVIE, TRUTH, backend=backend, **KNOWN)
    assert "z_nm" not in plain
    np.testing.assert_array_equal(plain.z, fits.z)
    with Fitter(voxel_size=voxel, backend=backend, **KNOWN) as fitter:
        for t in (1, 0):
            own = fitter.fit_at(MOVIE[t], TRUTH[TRUTH[:, 0] == t, 1:])
            np.testing.assert_array_equal(own.z_nm, 300 * own.z)
    rois = MOVIE[:, :7, :9, :9]
    assert "z_nm" in fit_spots(rois, model="gaussian_3d", voxel_size=voxel)
    assert "z_nm" not in fit_spots(rois[:, 0], voxel_size=voxel)


def test_the_optics_give_the_widths_where_no_spots_do():
    optics = {"voxel_size": (165, 72, 72), "numerical_aperture": 1.4, "wavelength": 600}
    empty = np.random.default_rng(2).poisson(20, (12, 60, 60)).astype(np.uint16)
    with pytest.warns(UserWarning, match="does not show the PSF's σ and σz"):
        known = localize(empty, model="gaussian_3d", **optics).settings
    assert known.sigma == pytest.approx(93 / 72, rel=0.01)
    assert known.sigma_z == pytest.approx(254 / 165, rel=0.01)
    assert known.roi_size == (9, 9, 9)
    found = fit_at(MOVIE, TRUTH, model="gaussian_3d", noise=NoiseModel(1, 0, 0), **optics).settings
    assert found.sigma == pytest.approx(SIGMA, rel=0.03)
    assert found.sigma_z == pytest.approx(SIGMA_Z, rel=0.03)


def test_widths_are_those_of_the_image_or_else_of_the_optics():
    optics = {"voxel_size": (60, 72, 72), "numerical_aperture": 1.4, "wavelength": 600}
    known = {"model": "gaussian_3d", "noise": NoiseModel(1, 0, 0), **optics}
    fits = fit_at(MOVIE, TRUTH, **known)
    assert fits.settings.sigma == pytest.approx(SIGMA, rel=0.03)
    assert fits.settings.sigma_z == pytest.approx(SIGMA_Z, rel=0.05)
    assert fits.settings.roi_size == (9, 9, 9)
    # Two spots are not asked for their widths.
    fits = fit_at(MOVIE, TRUTH[:2], **known)
    assert fits.settings.sigma is None
    assert fits.settings.roi_size == (25, 9, 9)


@pytest.mark.parametrize("planes", [3, 4, 6, 8])
def test_thin_stacks_are_fitted_with_all_planes(planes):
    """Their ROIs have an even number of planes, too, whatever is asked for."""
    rng = np.random.default_rng(planes)
    along = np.arange(10, 90, 16.0)
    truth = np.stack(np.meshgrid([(planes - 1) / 2], along, along), -1)
    truth = truth.reshape(-1, 3) + rng.uniform(-0.4, 0.4, (25, 3))
    z, y, x = np.ogrid[:planes, :90, :90]
    image = np.full((planes, 90, 90), 20.0)
    for place in truth:
        own = dict(zip("zyx", place, strict=True)) | {"sigma": SIGMA, "sigma_z": SIGMA_Z}
        image += 400 * GAUSSIAN_3D.sampled(z, y, x, own)
    image = rng.poisson(image).astype(np.uint16)
    for size in (None, 9, (31, 9, 9)):
        fits = fit_at(image, truth, size, **KNOWN)
        assert fits.settings.roi_size == (planes, 9, 9)
        assert fits.good.all()
        scores = (fits.z - truth[:, 0]) / fits.z_stderr
        assert scores.std() == pytest.approx(1, abs=0.35)
        assert (fits.roi_z == 0).all()
        held = (fits.flags & int(Flag.SIGMA_Z_HELD)) != 0
        assert held.all()


def test_images_without_depth_are_refused():
    for image in (MOVIE[0, :1], MOVIE[:, :2]):
        with pytest.raises(ValueError, match=r"need 3 planes at least; the image .*\(…, z, y, x\)"):
            localize(image, **KNOWN)
    with pytest.raises(ValueError, match=r"the image must have axes \(…, z, y, x\)"):
        fit_at(MOVIE[0, 0], [[3, 3]], **KNOWN)
    for call in (localize, lambda image, **known: fit_at(image, [[1, 2, 3]], **known)):
        with pytest.raises(ValueError, match=r"sigma_z is of spots in volumes, .* model gaussian"):
            call(MOVIE[0], sigma_z=1.5)
    with pytest.raises(ValueError, match=r"centers must have the shape \(n, 4\)"):
        fit_at(MOVIE, TRUTH[:, 1:], **KNOWN)


def test_fits_need_no_widths():
    fits = fit_at(MOVIE, TRUTH[:2], model="gaussian_3d", gain=1.0, variance=0.0)
    assert fits.converged.all()
    assert fits.settings.roi_size == (9, 9, 9)


@pytest.mark.parametrize("of_planes", [True, False])
def test_maps_of_a_camera_are_those_of_its_planes(backend, of_planes):
    rng = np.random.default_rng(5)
    plane = rng.uniform(90, 110, SHAPE[1:])
    offset = plane if of_planes else np.broadcast_to(plane, SHAPE)
    variance = rng.uniform(0, 30, SHAPE[1:])
    noisy = MOVIE + plane + rng.normal(0, np.sqrt(variance), MOVIE.shape)
    known = {name: value for name, value in KNOWN.items() if name != "variance"}
    camera = Camera(offset=offset, variance=variance)
    fits = localize(noisy, camera=camera, backend=backend, **known)
    found, good = near(fits, TRUTH)
    assert found >= len(TRUTH) - 5
    assert good <= len(TRUTH) + 3
    bad = np.zeros(SHAPE[1:], bool)
    bad[::7, ::5] = True
    noisy[:, :, bad] = 60_000
    fits = localize(noisy, camera=camera, bad_pixels=bad, backend=backend, **known)
    assert near(fits, TRUTH)[0] >= len(TRUTH) - 8


def test_a_mask_limits_where_to_search(backend):
    mask = np.zeros(SHAPE, bool)
    mask[:13] = True
    fits = localize(MOVIE, mask=mask, backend=backend, **KNOWN)
    whole = localize(MOVIE, backend=backend, **KNOWN)
    assert 0 < len(fits) < len(whole)
    assert fits.z.max() < 14.5
    plane = np.zeros(SHAPE[1:], bool)
    plane[:, :50] = True
    fits = localize(MOVIE, mask=plane, backend=backend, **KNOWN)
    of_stack = np.broadcast_to(plane, SHAPE)
    assert_same(localize(MOVIE, mask=of_stack, backend=backend, **KNOWN), fits)
    assert 20 < len(fits) < len(whole) - 20
    assert fits.x.max() < 51


def test_settings_of_results_fit_the_same_again():
    settings = Settings(voxel_size=(300, 100, 100), **KNOWN)
    fits = localize(MOVIE, settings=settings)
    assert_same(localize(MOVIE, settings=fits.settings), fits)


def test_errors_follow_the_noise_of_stacks_that_a_filter_went_over():
    """Each plane by itself, as programs smooth stacks."""
    rng = np.random.default_rng(7)
    shape = 20, 260, 260
    along = np.arange(10, 255, 16.0)
    truth = np.stack(np.meshgrid([9.5], along, along, indexing="ij"), -1).reshape(-1, 3)
    truth += rng.uniform(-0.5, 0.5, truth.shape)
    clean = np.full(shape, 50.0)
    for place in truth:
        own = dict(zip("zyx", place, strict=True)) | {"sigma": SIGMA, "sigma_z": SIGMA_Z}
        first, last = np.maximum(place - 10, 0).astype(int), np.minimum(place + 11, shape)
        part = tuple(map(slice, first, last.astype(int)))
        clean[part] += 300 * GAUSSIAN_3D.sampled(*np.ogrid[part], own)
    image = gaussian_filter(rng.poisson(clean).astype(np.float32), (0, 0.8, 0.8))
    known = {"model": "gaussian_3d", "sigma": np.hypot(SIGMA, 0.8), "sigma_z": SIGMA_Z}
    fits = fit_at(image, truth, **known)
    assert fits.settings.noise.blur > 0.5
    assert fits.good.all()
    for axis, name in enumerate("zyx"):
        scores = (fits.columns[name] - truth[:, axis]) / fits.columns[f"{name}_stderr"]
        assert scores.std() == pytest.approx(1, abs=0.15)


@pytest.mark.parametrize("kind", ["plain", "maps", "dask"])
def test_slabs_of_large_volumes_give_the_rows_of_the_whole(monkeypatch, kind):
    """To the bit, whatever is known of the voxels, with saturated, hot and padded ones."""
    rng = np.random.default_rng(9)
    shape = 420, 40, 44
    image = np.full(shape, 30.0)
    for place in rng.uniform(0, np.array(shape) - 1, (260, 3)):
        first, last = np.maximum(place - 8, 0).astype(int), np.minimum(place + 9, shape).astype(int)
        part = tuple(map(slice, first, last))
        own = dict(zip("zyx", place, strict=True)) | {"sigma": SIGMA, "sigma_z": SIGMA_Z}
        image[part] += 200 * GAUSSIAN_3D.sampled(*np.ogrid[part], own)
    image = rng.poisson(image).astype(np.uint16)
    image[200:204, 10:13, 10:13] = image[90, 5, 30] = 65_535
    image[:, 20, 20] += 700
    image[-3:, :, :30] = 0
    known = dict(KNOWN)
    mask = np.ones(shape, bool)
    mask[:, :, :6] = False
    known["mask"] = mask
    if kind == "maps":
        del known["variance"]
        known["camera"] = Camera(offset=rng.uniform(0, 2, shape), variance=rng.uniform(1, 9, shape))
        known["bad_pixels"] = rng.random(shape) < 0.01
    whole = localize(image, backend="cpu", **known)
    places = detect_spots(image, settings=whole.settings, mask=mask)
    given = image
    if kind == "dask":
        given = pytest.importorskip("dask.array").from_array(image, chunks=(17, 40, 22))
    monkeypatch.setattr(frames_module, "LARGE_FRAME", 0)
    monkeypatch.setattr(frames_module, "TILE", 30 * 40 * 44 * 2)
    monkeypatch.setattr(tiles, "VOLUMES", 0)
    blocks, own = [], tiles.row_blocks
    monkeypatch.setattr(
        tiles, "row_blocks", lambda *given: (blocks.append(one) or one for one in own(*given))
    )
    known |= {"noise": whole.settings.noise, "roi_size": whole.settings.roi_size}
    assert_same(localize(given, backend="cpu", **known), whole)
    assert len(blocks) > 2
    np.testing.assert_array_equal(detect_spots(given, settings=whole.settings, mask=mask), places)


def test_summaries_have_full_widths_in_nanometres():
    fits = fit_at(MOVIE, TRUTH, voxel_size=(300, 110, 100), **KNOWN)
    table = summarize(fits)
    times = np.sqrt(8 * np.log(2))
    sigma, sigma_z = table.loc["sigma", "median"], table.loc["sigma_z", "median"]
    medians = {"fwhm_z": 300 * sigma_z, "fwhm_y": 110 * sigma, "fwhm_x": 100 * sigma}
    for name, median in medians.items():
        assert table.loc[name, "median"] == pytest.approx(times * median, rel=1e-6)
    other = fit_at(
        MOVIE, TRUTH, voxel_size=(300, 110, 100), **KNOWN | {"model": "gaussian_3d_elliptical"}
    )
    table = summarize(other)
    assert table.loc["fwhm_x", "median"] == pytest.approx(
        times * 100 * table.loc["sigma_x", "median"], rel=1e-6
    )
    plane = fit_at(MOVIE[0, 13], TRUTH[:5, 2:], sigma=SIGMA, voxel_size=(300, 110, 100))
    assert {"fwhm_y", "fwhm_x"} < set(summarize(plane).index)
    assert "fwhm_z" not in summarize(plane).index
    assert not [name for name in summarize(fits, ["sigma"]).index if "fwhm" in name]
    assert "fwhm_x" not in summarize(fit_at(MOVIE, TRUTH, **KNOWN)).index
