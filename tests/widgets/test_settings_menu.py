"""Settings are taken from results and files, saved, and copied as Python that runs."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from event_loop import no_worker, settle
from qtpy.QtWidgets import QMessageBox
from same_fits import assert_same
from settings_cases import OWN

from napari_spotfit import Profile, Settings, load_settings, localize, save_settings
from napari_spotfit.engine.select import describe
from napari_spotfit.widgets.fit_spots import FitSpots
from napari_spotfit.widgets.fitting.settings_menu import Fit, fit_as_python
from napari_spotfit.widgets.layers.points import fits_of_features, settings_of_layer
from napari_spotfit.widgets.parts.remember import recent_fits
from napari_spotfit.widgets.results import Results

#: All that the controls can show, none of it a default.
TOLD = Settings(
    sigma=1.7, threshold=25.0, min_distance=3.0, roi_size=7, model="gaussian_elliptical",
    pixel="integrated", estimator="mle", neighbours="ignore", fixed={"sigma_x": 1.5},
    bounds={"sigma_y": (0.8, 2.5)}, errors=False, max_iterations=33, max_error=0.5,
    min_delta=1e-5, min_step=1e-3, amplitude_min=-3.0, amplitude_max=1e5, background_min=1.0,
    background_max=900.0, offset=12.0, gain=1.5, variance=4.0, emccd=True, backend="cpu",
    threads=1,
)  # fmt: skip


def entries(widget):
    """Return the menu's entries by their texts, as it opens."""
    menu = widget.settings_menu.menu()
    menu.aboutToShow.emit()
    found = {}
    for action in menu.actions():
        inner = action.menu()
        for one in [action] if inner is None else inner.actions():
            found[one.text()] = one
    return found


def copied(widget, qapp):
    qapp.clipboard().clear()
    widget.settings_menu.copy()
    return qapp.clipboard().text()


def run(text):
    """Run Python as napari's console does; return its names."""
    names: dict = {}
    exec(compile(text, "copied", "exec"), names)
    return names


def test_settings_of_a_file_are_shown_but_for_what_has_no_control(widget, tmp_path):
    save_settings(TOLD, tmp_path / "a.toml")
    widget.settings_menu.open_from(tmp_path / "a.toml")
    assert widget.settings.settings() == TOLD
    assert widget.status.text() == "The settings are those of a.toml."
    save_settings(TOLD.changed(sigma_min=0.3, roi_size=(7, 9)), tmp_path / "b.toml")
    widget.settings_menu.open_from(tmp_path / "b.toml")
    assert "without a control, or with a map: ROI size, σ at least." in widget.status.text()
    assert widget.settings.settings() == TOLD


def test_settings_of_a_gpu_are_of_use_without_one(widget, tmp_path):
    if describe(Settings(backend="cuda")).name != "no GPU":
        pytest.skip("there is a GPU")
    save_settings(TOLD.changed(backend="cuda"), tmp_path / "a.toml")
    widget.settings_menu.open_from(tmp_path / "a.toml")
    assert widget.settings.settings() == TOLD.changed(backend="auto")
    assert "without the GPU, as none is available." in widget.status.text()


def test_what_is_shown_is_saved(widget, tmp_path):
    widget.settings.controls["sigma"].value = 2.25
    widget.settings_menu.save_to(tmp_path / "a.toml")
    assert load_settings(tmp_path / "a.toml") == widget.settings.settings()
    assert "saved as" in widget.status.text()
    widget.settings_menu.save_to(tmp_path / "no folder" / "a.toml")
    assert "were not saved" in widget.status.text()


def test_a_wrong_file_changes_nothing(widget, tmp_path):
    before = widget.settings.values()
    (tmp_path / "a.toml").write_text("[settings]\nsigma = 99\n", encoding="utf-8")
    (tmp_path / "b.spots.csv").write_text("y,x\n", encoding="utf-8")
    for name in ("a.toml", "b.spots.csv", "c.toml"):
        widget.settings_menu.open_from(tmp_path / name)
        assert widget.status.text().startswith("⚠ The settings stay as they are: ")
        assert widget.settings.values() == before


def test_a_model_of_ones_own_is_shown(widget, tmp_path, qtbot):
    own = Profile.from_expression(**OWN, name="own")
    known = Settings(sigma=1.3, roi_size=9, model=own, bounds={"q": (0.4, 3)}, fixed={"s": 1.2})
    save_settings(known, tmp_path / "a.toml")
    widget.settings_menu.open_from(tmp_path / "a.toml")

    def read():
        shown = widget.settings.settings()
        assert shown.fixed == known.fixed
        assert shown.bounds == known.bounds
        assert shown.profile.expression.text == OWN["expression"]
        assert shown.profile.expression.start == ("sigma", "1.0")

    def is_read():
        try:
            return bool(widget.settings.settings())
        except ValueError:
            return False

    qtbot.waitUntil(is_read)
    read()
    qtbot.waitUntil(no_worker)


def test_the_settings_of_a_result_make_the_same_result(viewer, widget, fit, make_movie):
    viewer.add_image(make_movie(3), name="movie")
    widget.settings.controls["false_spots"].value = 3
    widget.settings.controls["roi_size"].value = 7
    fit(widget)
    layer = widget.result.layer
    layer.name = "first"
    features = layer.features.copy()
    widget.settings.reset()
    entries(widget)["Use those of “first”"].trigger()
    assert widget.settings.settings() == settings_of_layer(layer.metadata).changed(noise=None)
    fit(widget)
    again = widget.result.layer
    assert again is not layer
    pd.testing.assert_frame_equal(again.features, features, check_exact=True)


def test_recent_fits_are_remembered(viewer, widget, fit, make_movie):
    image = viewer.add_image(make_movie(2), name="a & b")
    widget.settings.controls["false_spots"].value = 2
    fit(widget)
    known = settings_of_layer(widget.result.layer.metadata)
    viewer.layers.remove(widget.result.layer)
    widget.settings.reset()
    other = FitSpots(viewer)
    viewer.window.add_dock_widget(other)
    (name,) = recent_fits()
    entries(other)[name.replace("&", "&&")].trigger()
    assert other.settings.settings() == known.changed(noise=None)
    for number in range(12):
        image.name = f"image {number}"
        fit(widget)
    assert len(recent_fits()) == 8
    assert next(iter(recent_fits())).startswith("of “image 11”")


@pytest.mark.parametrize("mode", ["all", "range", "current"])
def test_copied_python_gives_the_same_fits(viewer, widget, fit, make_movie, qapp, mode):
    image = viewer.add_image(make_movie(5), name='it\'s "a" movie\\')
    widget.settings.frames.mode = mode
    if mode == "range":
        widget.settings.frames.axes[0].last.setValue(3)
        widget.settings.frames.axes[0].first.setValue(1)
    viewer.dims.set_point(0, 2)
    fit(widget)
    layer = widget.result.layer
    assert f"Copy the fit of “{layer.name}” as Python" in entries(widget)
    names = run(copied(widget, qapp))
    made = fits_of_features(layer.features, layer.metadata)
    assert names["settings"] == made.settings
    assert_same(names["fits"][names["fits"].valid], made)
    assert viewer.layers[-1].metadata["image"] == image.unique_id
    settle()


@pytest.mark.parametrize("roles", [("offset",), ("offset", "gain", "variance"), ("variance",)])
def test_copied_python_heeds_the_layers_that_say_something_of_the_pixels(
    viewer, widget, fit, make_movie, qapp, roles
):
    image = viewer.add_image(make_movie(3), name="movie")
    bad = np.zeros(image.data.shape[-2:], np.uint8)
    bad[10, 12] = 1
    viewer.add_labels(bad, name="bad ones")
    rng = np.random.default_rng(0)
    for role, mean in (("offset", 90.0), ("gain", 2.0), ("variance", 5.0)):
        viewer.add_image(mean * rng.uniform(0.95, 1.05, bad.shape), name=role, visible=False)
    region = np.zeros(bad.shape, np.uint8)
    region[:, :25] = 1
    viewer.add_labels(region, name="left")
    widget.settings.image.layer = image
    widget.settings.camera.bad_pixels.layer = viewer.layers["bad ones"]
    for role in roles:
        widget.settings.camera.maps[role].layer = viewer.layers[role]
    widget.settings.limit.layer = viewer.layers["left"]
    fit(widget)
    layer = widget.result.layer
    text = copied(widget, qapp)
    for name in ("bad ones", *roles, "left"):
        assert f"viewer.layers['{name}']" in text
    names = run(text)
    assert_same(
        names["fits"][names["fits"].valid], fits_of_features(layer.features, layer.metadata)
    )


def test_copied_python_opens_a_sample_or_file_that_is_not_open(viewer, widget, fit, qapp, tmp_path):
    import tifffile

    from napari_spotfit.widgets.samples import smfish

    image, _ = viewer.open_sample("napari-spotfit", "smfish")
    fit(widget)
    layer = widget.result.layer
    made = fits_of_features(layer.features, layer.metadata)
    text = copied(widget, qapp)
    viewer.layers.clear()
    names = run(text)
    assert_same(names["fits"][names["fits"].valid], made)
    viewer.layers.clear()
    path = tmp_path / "dots.tif"
    tifffile.imwrite(path, smfish()[0][0])
    (image,) = viewer.open(str(path), plugin="napari")
    image.name = "renamed"
    text = fit_as_python(Fit(made.settings, image.name), image)
    viewer.layers.clear()
    names = run(text)
    assert_same(names["fits"][names["fits"].valid], made)


def test_without_a_result_what_fit_would_do_is_copied(viewer, widget, make_movie, qapp):
    assert copied(widget, qapp) == ""
    assert "there is no image" in widget.status.text()
    image = viewer.add_image(make_movie(3), name="movie")
    widget.settings.controls["roi_size"].value = 7
    assert "Copy as Python" in entries(widget)
    names = run(copied(widget, qapp))
    assert_same(names["fits"], localize(image.data, settings=widget.settings.settings()))


def test_multiscale_images_are_fitted_where_they_are_finest(viewer, widget, fit, make_movie, qapp):
    movie = make_movie(2)
    viewer.add_image([movie, movie[:, ::2, ::2]], multiscale=True, name="levels")
    fit(widget)
    layer = widget.result.layer
    names = run(copied(widget, qapp))
    assert_same(
        names["fits"][names["fits"].valid], fits_of_features(layer.features, layer.metadata)
    )


def test_a_files_words_cannot_become_python():
    odd = {"roles": "'); import os; os.abort() #"}
    text = fit_as_python(Fit(Settings(), "x'];raise SystemExit#", [[1, 2]], odd))
    compile(text, "copied", "exec")
    assert "raise SystemExit" not in text.replace(repr("x'];raise SystemExit#"), "")
    with pytest.raises((TypeError, ValueError)):
        fit_as_python(Fit(Settings(), "x", ["exit()"]))


def test_every_entry_says_what_it_does(viewer, widget, fit, make_movie):
    viewer.add_image(make_movie(2), name="movie")
    fit(widget)
    found = entries(widget)
    assert widget.settings_menu.toolTip()
    for text, action in found.items():
        assert action.isSeparator() or action.toolTip() != text, text


def test_all_keys_are_listed(open_viewer):
    viewer = open_viewer()
    widgets = [FitSpots(viewer), Results(viewer)]
    ours = {
        str(key)
        for key, action in viewer.keymap.items()
        if getattr(action, "__module__", "").startswith("napari_spotfit.")
    }
    assert len(ours) >= 7
    entries(widgets[0])["Keys and clicks…"].trigger()
    (box,) = widgets[0].settings_menu.findChildren(QMessageBox)
    listed = box.text().replace("Page ", "Page")
    assert box.isVisible()
    assert [key for key in ours if key not in listed] == []
    box.close()
    for widget in widgets:
        widget.close()
