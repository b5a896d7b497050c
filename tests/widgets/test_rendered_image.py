"""The super-resolved image as a layer: its levels, its place on the raw image, its changes."""

from __future__ import annotations

import numpy as np
import pytest

from napari_spotfit import SpotFits, to_image_layer, to_points_layer
from napari_spotfit.analysis.render import RenderIndex
from napari_spotfit.widgets.layers.rendered_image import (
    TILE,
    Looks,
    RenderedImage,
    RenderedLayer,
    layer_arguments,
)
from napari_spotfit.widgets.napari_compat import camera_of


@pytest.fixture
def rng():
    return np.random.default_rng(3)


def localisations(rng, count=3000, side=40.0, **others):
    columns = {
        "y": rng.uniform(0, side - 1, count), "x": rng.uniform(0, side - 1, count),
        "y_stderr": rng.uniform(0.08, 0.12, count).astype(np.float32),
        "x_stderr": rng.uniform(0.08, 0.12, count).astype(np.float32),
        "frame": np.arange(count) % 50, "stop_condition": np.full(count, 2, np.uint8),
    }  # fmt: skip
    return SpotFits(columns | others, ("frame",))


def test_levels_are_the_image_per_area(rng):
    index = RenderIndex(localisations(rng), shape=(40, 56))
    image = RenderedImage(index)
    for number, level in enumerate(image.levels):
        scale = image.finest / 2**number
        expected = index.render(scale) * scale**2
        own = np.asarray(level)[: expected.shape[0], : expected.shape[1]]
        np.testing.assert_allclose(own, expected, rtol=1e-6)
        assert tuple(side << number for side in level.shape) == image.levels[0].shape
    assert max(image.levels[-1].shape) <= 512


@pytest.mark.parametrize("colour_by", [None, "frame"])
def test_levels_are_arrays_of_their_tiles(rng, colour_by):
    image = RenderedImage(RenderIndex(localisations(rng), shape=(40, 56), colour_by=colour_by))
    level = image.levels[1]
    whole = np.asarray(level)
    assert whole.shape == level.shape
    assert whole.dtype == level.dtype
    for key in (
        np.s_[100:600, 30:31], np.s_[5], np.s_[..., 1], np.s_[:, -300:], np.s_[3::7, ::-5],
        np.s_[600:500, :], np.s_[TILE - 1 : TILE + 1, TILE : 2 * TILE], np.s_[10, 20],
        (slice(0, 99999), slice(0, 9)),
    ):  # fmt: skip
        np.testing.assert_array_equal(level[key], whole[key])


def test_only_the_tiles_that_are_read_are_rendered(rng, monkeypatch):
    image = RenderedImage(RenderIndex(localisations(rng), shape=(40, 56)))
    parts = []
    part = image.index.part
    monkeypatch.setattr(image.index, "part", lambda *given: parts.append(given) or part(*given))
    level = image.levels[0]
    level[300:500, 300:700]
    assert [given[1:3] for given in parts] == [((256, 512), (256, 768))]
    level[310:490, 400:500]
    level[300:500, 500:800]
    assert [given[1:3] for given in parts[1:]] == [((256, 512), (768, 1024))]
    image.show(np.zeros(3000, bool))
    assert not level[300:500, 300:700].any()


def test_tiles_that_were_not_read_lately_are_dropped(rng, monkeypatch):
    from napari_spotfit.widgets.layers import rendered_image

    image = RenderedImage(RenderIndex(localisations(rng), shape=(40, 56)))
    before = image.levels[0][:600, :600]
    monkeypatch.setattr(rendered_image, "_MOST_BYTES", 3 * 4 * TILE**2)
    for _ in range(2):
        assert image.levels[0][700:1200, 700:1200].any()
        assert (image.levels[0][:600, :600] == before).all()
    assert len(image._tiles) <= 3


def test_the_next_finer_level_is_rendered_ahead_until_another_part_is_read(rng, qtbot):
    index = RenderIndex(localisations(rng), shape=(40, 56))
    image, plain = RenderedImage(index, ahead=True), RenderedImage(index)
    part, parts = index.part, []
    index.part = lambda *given: parts.append(given) or part(*given)
    image.levels[1][300:400, 0:200]
    # Of the finer level rows 600 to 800, in two rows of tiles.
    qtbot.waitUntil(lambda: len(parts) == 3)
    assert [given[1] for given in parts] == [(256, 512), (512, 768), (768, 1024)]
    del parts[:]
    found = image.levels[0][600:760, 0:400]
    assert not parts
    assert (found == plain.levels[0][600:760, 0:400]).all()
    del parts[:]
    image._go_ahead(image._reads - 1, 0, (0, 500), (0, 500))
    assert not parts


def test_a_tile_of_spots_that_are_hidden_meanwhile_is_not_kept(rng):
    index = RenderIndex(localisations(rng), shape=(40, 56))
    image, part = RenderedImage(index), index.part

    def hidden_meanwhile(*given):
        drawn = part(*given)
        index.part = part
        image.show(np.zeros(3000, bool))
        return drawn

    index.part = hidden_meanwhile
    assert image.levels[0][:100, :100].any()
    assert not image.levels[0][:100, :100].any()


@pytest.fixture
def raw(viewer):
    """A raw movie that is scaled, moved and rotated."""
    turn = np.deg2rad(30)
    rotate = np.eye(3)
    rotate[1:, 1:] = [[np.cos(turn), -np.sin(turn)], [np.sin(turn), np.cos(turn)]]
    return viewer.add_image(
        np.zeros((50, 40, 56), np.uint8), scale=(1, 0.1, 0.12), translate=(0, 3, -2), rotate=rotate,
        units=("pixel", "um", "um"), name="movie",
    )  # fmt: skip


@pytest.fixture
def rendered(viewer, raw, rng, qtbot):
    points = viewer.add_layer(to_points_layer(localisations(rng), raw))
    rendered = RenderedLayer(viewer, points, Looks(), viewer.window._qt_window)
    with qtbot.waitSignal(rendered.drawn):
        rendered.draw()
    yield rendered
    rendered.stop()


def world_of(layer, *position):
    return np.asarray(layer.data_to_world(position))[-2:]


def test_it_lies_on_the_raw_image(rendered, raw):
    finest = rendered.image.finest
    assert finest > 8
    for y, x in ((-0.5, -0.5), (0, 0), (17.25, 40)):
        place = (y + 0.5) * finest - 0.5, (x + 0.5) * finest - 0.5
        np.testing.assert_allclose(world_of(rendered.layer, *place), world_of(raw, 0, y, x))
    assert [str(unit) for unit in rendered.layer.units] == ["micrometer"] * 2
    raw.translate = (0, 1, 1)
    rendered.points.translate = raw.translate
    np.testing.assert_allclose(world_of(rendered.layer, -0.5, -0.5), world_of(raw, 0, -0.5, -0.5))


def spots_drawn(rendered):
    """How many localisations the finest level has."""
    level = rendered.layer.data[0]
    return float(np.asarray(level, np.float64).sum() / rendered.image.finest**2)


def test_filters_redraw_it(rendered, viewer, qtbot):
    assert spots_drawn(rendered) == pytest.approx(3000, rel=0.02)
    before, layer = rendered.layer.data[0], rendered.layer
    limits = layer.contrast_limits = (0.0, 77.0)
    rendered.points.shown = rendered.points.features["frame"] < 5
    qtbot.waitUntil(lambda: spots_drawn(rendered) < 400)
    assert spots_drawn(rendered) == pytest.approx(300, rel=0.05)
    assert rendered.layer is layer
    assert tuple(layer.contrast_limits) == limits
    assert before is rendered.layer.data[0]  # no copy
    rendered.points.shown = True
    qtbot.waitUntil(lambda: spots_drawn(rendered) > 2900)


def test_moved_spots_are_drawn_where_they_are(rendered, qtbot):
    points = rendered.points
    data, features = points.data.copy(), points.features.copy()
    for axis, name in ((1, "y"), (2, "x")):
        data[:, axis] = features[name] = 20.0 - axis
    with qtbot.waitSignal(rendered.drawn):
        points.data, points.features = data, features
    level, finest = np.asarray(rendered.layer.data[0]), rendered.image.finest
    bright = np.unravel_index(level.argmax(), level.shape)
    np.testing.assert_allclose((np.array(bright) + 0.5) / finest - 0.5, [19, 18], atol=1 / finest)


def test_it_is_left_alone_when_its_spots_go(rendered, viewer, qtbot):
    layer = rendered.layer
    viewer.layers.remove(rendered.points)
    assert layer in viewer.layers
    assert np.asarray(layer.data[-1]).any()


def test_spots_of_unknown_width_are_left_out_and_counted(viewer, raw, rng, qtbot):
    fits = localisations(rng)
    fits.y_stderr[:7] = np.nan
    points = viewer.add_layer(to_points_layer(fits, raw))
    rendered = RenderedLayer(viewer, points, Looks(), viewer.window._qt_window)
    with qtbot.waitSignal(rendered.drawn) as drawn:
        rendered.draw()
    assert drawn.args == [7]
    rendered.stop()


def test_what_is_missing_is_said(viewer, raw, rng, qtbot):
    fits = localisations(rng)
    bare = {name: one for name, one in fits.columns.items() if "stderr" not in name}
    points = viewer.add_layer(to_points_layer(SpotFits(bare, ("frame",)), raw, face="frame"))
    rendered = RenderedLayer(viewer, points, Looks(), viewer.window._qt_window)
    with qtbot.waitSignal(rendered.failed) as failed:
        rendered.draw()
    assert "y_stderr" in str(failed.args[0])
    rendered.stop()


@pytest.mark.parametrize("zoom", [4, 40, 400])
def test_on_the_canvas_it_covers_its_camera_pixel(shown_viewer, rng, zoom):
    """At every level: half a pixel more or less would show."""
    viewer = shown_viewer
    image = np.zeros((40, 56), np.float32)
    image[17, 21] = 1
    raw = viewer.add_image(image, colormap="green", interpolation2d="nearest")
    fits = localisations(rng, 1, y=np.array([17.0]), x=np.array([21.0]))
    drawn = RenderedImage(RenderIndex(fits, shape=(40, 56)))
    rendered = viewer.add_image(**layer_arguments(drawn, raw, "rendered"))
    rendered.colormap, rendered.contrast_limits = "red", (0, drawn.limit)
    camera_of(viewer).zoom, camera_of(viewer).center = zoom, (0, 17.0, 21.0)
    shot = viewer.screenshot(flash=False)[..., :2].astype(float)
    red, green = (
        [np.average(np.indices(one.shape)[axis], weights=one) for axis in (0, 1)]
        for one in np.moveaxis(shot, -1, 0)
    )
    # A fiftieth of a camera pixel, but as finely as the canvas has pixels.
    assert np.abs(np.subtract(red, green)).max() < max(0.02 * zoom, 0.5)


def test_it_is_no_image_to_fit_spots_in(widget, rendered, raw):
    """Not even where it is the topmost layer, and selected."""
    assert widget.settings.image.layer is raw
    assert rendered.layer not in widget.settings.image._images()


def test_a_script_makes_the_layer_without_points(raw, viewer, rng):
    layer = viewer.add_layer(to_image_layer(localisations(rng), raw))
    assert layer.name == "movie rendered"
    np.testing.assert_allclose(world_of(layer, -0.5, -0.5), world_of(raw, 0, -0.5, -0.5))
    assert layer.level_shapes[0][0] * 56 == layer.level_shapes[0][1] * 40
    assert to_image_layer(localisations(rng), colour_by="frame").rgb
