"""The inspector shows spots that were fitted together as one model, and sees a changed image."""

from __future__ import annotations

import numpy as np
import pytest
from inspector import docked
from psfs import crowd_of_psf, light_of, measured_psf

from napari_spotfit import localize, simulate_movie, to_points_layer
from napari_spotfit.analysis.group_region import sample_group
from napari_spotfit.analysis.spot_sample import FittedFrame
from napari_spotfit.widgets.inspecting.spot import group_around, spot_of


@pytest.fixture(scope="module")
def crowd():
    light = {"photons": 1500, "background": 10, "sigma": 1.3}
    movie, _ = simulate_movie(2, shape=(128, 128), spots_per_frame=160, seed=3, **light)
    return movie, localize(movie[0], neighbours="auto")


def test_a_group_is_shown_and_only_a_changed_image_is_told(viewer, until, crowd):
    movie, fits = crowd
    inspector = docked(viewer)
    image = viewer.add_image(movie[0], name="crowd")
    layer = viewer.add_layer(to_points_layer(fits, image))
    row = int(np.flatnonzero(fits.group_size == 3)[0])
    layer.selected_data = {row}
    panel = inspector.panel
    until(lambda: "one of a group of 3" in panel.title.text() and panel.pixels.currentIndex() == 0)
    assert panel.changed.isHidden()
    assert panel.numbers.texts()["group_size"] == "3"
    assert "no standard errors" not in panel.verdict.text.text()
    assert panel.numbers.texts()["sigma"].endswith("px (given)")
    together = fits.group_size > 1
    for pixels, limits in ((movie[0], (0.9, 1.0)), (movie[1], (0.0, 0.05))):
        image.data = pixels
        layer.selected_data = {row}
        until(lambda: inspector._pixels(layer, image, spot_of(layer, row)) is not None)
        same = []
        for one in np.flatnonzero(together & fits.good):
            spot = spot_of(layer, int(one))
            sample = inspector._pixels(layer, image, spot)
            same.append(sample.is_of(spot.values["chi_square"]))
        assert limits[0] <= np.mean(same) <= limits[1]
    until(lambda: not panel.changed.isHidden())


def volumes():
    """Return two volumes of the same crowd of spots, and the fits of the first one."""
    rng, shape = np.random.default_rng(5), (16, 64, 64)
    places = rng.uniform(2, np.array(shape) - 3, (60, 3))
    light = np.full(shape, 10.0)
    for place in places:
        away = [axis - at for axis, at in zip(np.ogrid[:16, :64, :64], place, strict=True)]
        square = sum((one / width) ** 2 for one, width in zip(away, (2, 1.4, 1.4), strict=True))
        light += 60 * np.exp(-square / 2)
    both = [rng.poisson(light).astype(np.uint16) for _ in range(2)]
    fits = localize(both[0], model="gaussian_3d", sigma=1.4, sigma_z=2.0, gain=1.0)
    return *both, fits


def of_psf():
    """Return two images of the same crowd of a measured PSF, and the fits of the first one."""
    psf = measured_psf()
    image, truth = crowd_of_psf(psf, 40, seed=3)
    again = np.random.default_rng(9).poisson(10 + light_of(psf, truth, 4000.0, 64))
    return image, again.astype(np.uint16), localize(image, model=psf, gain=1.0)


@pytest.mark.parametrize("made", [volumes, of_psf])
def test_groups_in_depth_are_explained_where_the_image_is_that_of_the_fit(made):
    image, other, fits = made()
    layer, same = to_points_layer(fits), []
    for row in np.flatnonzero((fits.group_size > 1) & fits.good):
        spot = spot_of(layer, int(np.flatnonzero(np.flatnonzero(fits.valid) == row)[0]))
        if (group := group_around(layer, spot)) is None:
            continue  # it has kept its own fit
        samples = [
            sample_group(spot.values, spot.settings, FittedFrame(one, None, one, one), group)
            for one in (image, other)
        ]
        same.append([sample.is_of(spot.values["chi_square"]) for sample in samples])
        assert len(samples[0].cuts) == (2 if image.ndim == 3 else 0)
    assert len(same) > 20
    unchanged, changed = np.mean(same, axis=0)
    assert unchanged > 0.9
    assert changed < 0.1


def test_z_of_a_measured_psf_has_its_error(viewer, until):
    image, _, fits = of_psf()
    inspector = docked(viewer)
    layer = viewer.add_layer(to_points_layer(fits, viewer.add_image(image)))
    row = int(np.flatnonzero(layer.features["group_size"] > 1)[0])
    layer.selected_data = {row}
    until(lambda: "one of a group" in inspector.panel.title.text())
    assert "±" in inspector.panel.numbers.texts()["z"]
    assert "(given)" not in inspector.panel.numbers.texts()["z"]
