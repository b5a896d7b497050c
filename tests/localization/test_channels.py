"""Channels are not frames: one is chosen, or each is fitted separately."""

import json

import numpy as np
import pytest
import tifffile
from click.testing import CliRunner

from napari_spotfit import (
    detect_spots,
    estimate_sigma,
    fit_at,
    load_fits,
    localize,
    localize_files,
    localize_iter,
    localize_to_folder,
    noise_model,
    open_image,
    per_frame,
    per_label,
    simulate_movie,
)
from napari_spotfit.command_line.main import main


class Named:
    """An array with names of axes and channels, like xarray's."""

    def __init__(self, values, dims, coords=None):
        self.values, self.dims, self.coords = values, dims, coords or {}
        self.shape, self.dtype = values.shape, values.dtype

    def __getitem__(self, index):
        return self.values[index]

    def __array__(self, dtype=None, copy=None):
        return np.asarray(self.values, dtype)


def movie_of(seed, sigma=1.3, frames=4):
    return simulate_movie(
        frames, shape=(64, 72), sigma=sigma, spots_per_frame=6, photons=3000, seed=seed
    )[0]


#: Three channels that differ in brightness, noise and width: (t, c, y, x).
MOVIE = np.stack([movie_of(1), 3 * movie_of(2) + 7, movie_of(3, 1.8)], axis=1)
NAMES = ["DAPI", "GFP", "Cy5"]


def same(one, other):
    assert len(one) == len(other) > 0
    for name in ("y", "x", "sigma", "photons", "photons_stderr"):
        np.testing.assert_array_equal(one.columns[name], other.columns[name])


@pytest.fixture(params=["ome", "imagej", "named", "zarr"])
def image(request, tmp_path):
    """An image (t, c, y, x) of several channels, as each kind of file or array."""
    if request.param == "ome":
        about = {"axes": "TCYX", "Channel": {"Name": NAMES}}
        tifffile.imwrite(tmp_path / "m.ome.tif", MOVIE.astype("u2"), metadata=about)
        return tmp_path / "m.ome.tif"
    if request.param == "imagej":
        tifffile.imwrite(
            tmp_path / "m.tif", MOVIE.astype("u2"), imagej=True, metadata={"axes": "TCYX"}
        )
        return tmp_path / "m.tif"
    if request.param == "zarr":
        zarr = pytest.importorskip("zarr")
        group = zarr.open_group(tmp_path / "m.zarr", mode="w", zarr_format=2)
        array = group.create_array("0", shape=MOVIE.shape, chunks=(2, 3, 64, 72), dtype="u2")
        array[...] = MOVIE
        axes = [{"name": name} for name in "tcyx"]
        group.attrs["multiscales"] = [{"axes": axes, "datasets": [{"path": "0"}]}]
        group.attrs["omero"] = {"channels": [{"label": name} for name in NAMES]}
        return tmp_path / "m.zarr"
    return Named(MOVIE, dims=("t", "c", "y", "x"), coords={"c": NAMES})


@pytest.mark.parametrize("function", [localize, localize_iter, detect_spots, estimate_sigma,
                                      noise_model])  # fmt: skip
def test_several_channels_are_refused_and_listed(image, function):
    with pytest.raises(
        ValueError, match=r"3 channels \(0.*1.*2.*\) along axis 1.*channel="
    ) as error:
        function(image)
    if "m.tif" not in str(image):  # ImageJ's have no names
        assert all(name in str(error.value) for name in NAMES)


def test_one_is_chosen_by_number_or_name(image):
    expected = localize(MOVIE[:, 1].astype("u2"))
    found = localize(image, channel=1)
    same(found, expected)
    assert found.index_names == ("frame",)
    assert "channel" not in found
    np.testing.assert_array_equal(found.frame, expected.frame)
    if "m.tif" not in str(image):
        same(localize(image, channel="GFP"), expected)
    same(localize(image, channel="1"), expected)
    assert estimate_sigma(image, channel=2).sigma > 1.7
    assert noise_model(image, channel=1) == noise_model(MOVIE[:, 1].astype("u2"))
    np.testing.assert_array_equal(
        detect_spots(image, channel=1), detect_spots(MOVIE[:, 1].astype("u2"))
    )
    same(fit_at(image, found.points(), channel=1, settings=found.settings),
         fit_at(MOVIE[:, 1].astype("u2"), found.points(), settings=found.settings))  # fmt: skip


def test_each_is_fitted_by_itself(image):
    found = localize(image, channel="all", neighbours="exclude")
    assert found.index_names == ("frame", "channel")
    for channel in range(3):
        expected = localize(MOVIE[:, channel].astype("u2"), neighbours="exclude")
        own = found[found.channel == channel]
        same(own, expected)
        np.testing.assert_array_equal(own.frame, expected.frame)
    # What was estimated differs from channel to channel.
    assert found.settings.sigma is None
    np.testing.assert_array_equal(detect_spots(image, channel="all")[:, 1], found.channel)
    again = fit_at(image, found.points()[::-1], channel="all", sigma=1.3, neighbours="exclude")
    np.testing.assert_array_equal(again.channel, found.channel[::-1])
    assert np.abs(again.x - found.x[::-1]).max() < 0.5
    table = per_frame(found, MOVIE.shape)
    assert len(table) == 12
    assert table["count"].sum() == len(found)


def test_what_channels_are_not(image):
    for channel in (3, -1, "mCherry", "3"):
        with pytest.raises(ValueError, match=rf"no channel {channel!r}|no channel 3: it has 3"):
            localize(image, channel=channel)
    for channel in (True, 1.0, None):
        with pytest.raises((TypeError, ValueError), match="channel"):
            localize(image, channel=channel)
    for channel in (0, "all", "GFP"):
        with pytest.raises(ValueError, match="no axis of channels"):
            localize(MOVIE[:, 0], channel=channel)


def test_an_axis_of_one_channel_is_no_axis_of_frames():
    image = Named(MOVIE[:, :1], dims=("t", "c", "y", "x"))
    found = localize(image)
    same(found, localize(MOVIE[:, 0]))
    np.testing.assert_array_equal(found.frame, localize(MOVIE[:, 0]).frame)
    assert set(localize(image, channel="all").channel) == {0}


def test_maps_of_all_channels_are_those_of_the_chosen_one():
    image = Named(MOVIE, dims=("t", "c", "y", "x"))
    mask = np.zeros(MOVIE.shape, bool)
    mask[:, 1, :, :36] = True
    found = localize(image, channel=1, mask=mask)
    same(found, localize(MOVIE[:, 1], mask=mask[:, 1]))
    assert found.x.max() < 37
    every = localize(image, channel="all", mask=mask)
    assert set(every.channel) == {1}


def test_in_parts_and_lazily(image, tmp_path):
    pytest.importorskip("pyarrow")
    pytest.importorskip("dask")
    expected = localize(image, channel="all")
    folder = tmp_path / "parts"
    for _ in range(2):
        parts = list(localize_iter(image, channel="all", resume=folder))
        np.testing.assert_array_equal(np.concatenate([part.x for part in parts]), expected.x)
    if not isinstance(image, Named):
        table = localize(image, channel="all", lazy=True).compute()
        np.testing.assert_array_equal(table["x"], expected.x)
        np.testing.assert_array_equal(table["channel"], expected.channel)
        one = localize(image, channel="2", lazy=True).compute()
        np.testing.assert_array_equal(one["x"], expected.x[expected.channel == 2])
    localize_to_folder(image, tmp_path / "one", channel=1)
    with pytest.raises(ValueError, match="parts of another run"):
        localize_to_folder(image, tmp_path / "one", channel=2)
    with pytest.raises(ValueError, match="one channel at a time"):
        localize_to_folder(image, tmp_path / "one", channel="all")


def test_a_batch(tmp_path):
    several, single = tmp_path / "several.ome.tif", tmp_path / "single.tif"
    tifffile.imwrite(
        several, MOVIE.astype("u2"), metadata={"axes": "TCYX", "Channel": {"Name": NAMES}}
    )
    tifffile.imwrite(single, MOVIE[:, 0].astype("u2"), photometric="minisblack")
    cells = np.zeros((64, 72), np.uint8)
    cells[:, 36:] = 5
    tifffile.imwrite(tmp_path / "cells.tif", cells)
    failed, done = localize_files([several, single], tmp_path / "out")
    assert (failed.state, done.state) == ("failed", "done")
    assert "1 “GFP”" in failed.error
    for channel in ("all", "GFP"):
        for state in ("done", "kept"):
            (outcome,) = localize_files(
                [several], tmp_path / "out", channel=channel, labels=tmp_path / "cells.tif"
            )
            assert outcome.state == state
        found = load_fits(outcome.output)
        expected = localize(several, channel=channel)
        np.testing.assert_array_equal(found.x, expected.x)
        table = np.genfromtxt(outcome.cells, delimiter=",", names=True)
        good = found[np.asarray(found.good) & (found.label == 5)]
        if channel == "all":
            counts = [int((good.channel == one).sum()) for one in range(3)]
            assert table["channel"].tolist() == [0, 1, 2]
            assert found.index_names == ("frame", "channel")
        else:
            counts = [len(good)]
        assert table["count"].reshape(-1).tolist() == counts
        assert min(counts) > 0
    assert not list((tmp_path / "out").glob("*.parts"))


def test_the_command(tmp_path):
    path = tmp_path / "several.ome.tif"
    about = {"axes": "TCYX", "Channel": {"Name": NAMES}}
    tifffile.imwrite(path, MOVIE.astype("u2"), metadata=about)
    table = tmp_path / "a.spots.csv"
    arguments = ["localize", str(path), "-o", str(table), "--json"]
    outcome = CliRunner().invoke(main, arguments)
    assert outcome.exit_code == 1
    assert not table.exists()
    assert "Cy5" in outcome.output
    outcome = CliRunner().invoke(main, [*arguments, "--channel", "Cy5"])
    assert outcome.exit_code == 0
    summary = json.loads(outcome.stdout[outcome.stdout.index("{") :])
    assert summary["frames"] == 4
    np.testing.assert_array_equal(load_fits(table).x, localize(path, channel=2).x)


def test_counts_per_cell_do_not_add_up_channels_nor_hide_planes():
    cells = np.zeros((64, 72), np.uint8)
    cells[:, 36:] = 5
    every = localize(Named(MOVIE, dims=("t", "c", "y", "x")), channel="all")
    table = per_label(every, cells)
    assert table["channel"].tolist() == [0, 1, 2]
    for channel, own in table.groupby("channel"):
        expected = per_label(localize(MOVIE[:, channel]), cells)
        assert own["count"].tolist() == expected["count"].tolist()
        np.testing.assert_allclose(own["photons_sum"], expected["photons_sum"])
    with pytest.warns(UserWarning, match="each plane along axis z"):
        planes = localize(Named(MOVIE[:, 0], dims=("z", "y", "x")))
    np.testing.assert_array_equal(planes.plane, planes.frame)
    assert set(per_label(planes, cells)["counted"]) == {"once per plane"}
    assert "counted" not in per_label(localize(MOVIE[:, 0]), cells)


@pytest.mark.parametrize("shape", [(64, 72, 5), (64, 72, 3), (40, 41, 10), (2, 64, 72, 4)])
def test_channels_that_come_last_are_refused(shape, tmp_path):
    image = np.random.default_rng(0).poisson(20, shape).astype(np.float32)
    np.save(tmp_path / "a.npy", image)
    front = 0 if len(shape) == 3 else -3
    for given in (image, tmp_path / "a.npy"):
        for function in (localize, detect_spots, estimate_sigma, noise_model):
            with pytest.raises(ValueError, match=rf"numpy\.moveaxis\(image, -1, {front}\)"):
                function(given)
    with pytest.raises(ValueError, match=r"numpy\.moveaxis"):
        fit_at(image, np.zeros((1, len(shape))))
    named = Named(image, dims=(*("t", "z")[4 - len(shape) :], "y", "c"))
    with pytest.raises(ValueError, match="must end in rows and columns"):
        localize(named)


@pytest.mark.parametrize("shape", [(64, 72), (9, 64, 72), (100, 30, 11), (40, 39, 10)])
def test_narrow_images_are_not(shape):
    detect_spots(np.random.default_rng(0).poisson(20, shape).astype(np.float32), sigma=1.3)
    narrow = np.random.default_rng(0).poisson(20, (60, 40, 9)).astype(np.float32)
    detect_spots(Named(narrow, dims=("t", "y", "x")), sigma=1.3)


@pytest.mark.parametrize("kind", ["separate", "contig"])
def test_colours_are_no_frames(tmp_path, kind):
    rgb = np.stack([MOVIE[0, 0].clip(0, 255)] * 3, axis=-1).astype("u1")
    pixels = np.moveaxis(rgb, -1, 0) if kind == "separate" else rgb
    tifffile.imwrite(tmp_path / "a.tif", pixels, photometric="rgb", planarconfig=kind)
    with pytest.raises(ValueError, match="Colours are no frames"):
        open_image(tmp_path / "a.tif")
