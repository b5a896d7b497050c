"""Joint fits, with more or fewer rows than positions, from the image to the file."""

from __future__ import annotations

import numpy as np
import pytest
from joint_fits import CELL, PHOTONS, SIGMA, Joint, field, mark_not_settled
from same_fits import assert_same

from napari_spotfit import (
    Fitter,
    Flag,
    SpotFits,
    fit_at,
    load_fits,
    load_parts,
    localize,
    localize_iter,
    localize_to_folder,
    per_frame,
    save_fits,
    summarize,
)
from napari_spotfit.engine.backend import Load
from napari_spotfit.files import parquet
from napari_spotfit.images import frames as frames_module
from napari_spotfit.localization import fit_at as fit_at_module
from napari_spotfit.localization import fitter, plan, stored, tiles
from napari_spotfit.results.fit_parts import in_whole_groups

FRAMES, CELLS = 6, (4, 5)
#: Fits are joint where a test makes them so.
SETTINGS = {
    "sigma": SIGMA, "roi_size": 9, "gain": 1.0, "neighbours": "exclude", "backend": "cpu",
}  # fmt: skip
#: Settings of the detection, too.
FOUND = {**SETTINGS, "false_spots": 1e-3}


@pytest.fixture(scope="module")
def scene():
    return field(CELLS, seed=2, frames=FRAMES)


@pytest.fixture
def joint(monkeypatch):
    """Return a function that makes all fits joint."""

    def use(**kind):
        backend = Joint(**kind)
        for module in (plan, fit_at_module, fitter, stored):
            monkeypatch.setattr(module, "select_backend", lambda *_: backend)
        return backend

    return use


def nearest(truth, points):
    """Return how far each true spot is from the nearest found one of its frame, which is whose."""
    apart = np.hypot(*(truth[:, np.newaxis, 1:] - points[:, 1:]).transpose(2, 0, 1))
    apart[truth[:, :1] != points[:, 0]] = np.inf
    return apart.min(axis=1), apart.argmin(axis=1)


def test_rows_are_spots_whatever_the_positions(scene, joint):
    movie, truth = scene
    single = localize(movie, **FOUND)
    joint()
    fits = localize(movie, **FOUND)
    assert len(truth) == len(fits) != len(single)
    apart, row = nearest(truth, fits.points())
    assert len({*row.tolist()}) == len(fits)
    assert apart.max() < 0.5
    # Those that were added have no score, all others that of their position.
    added = np.isnan(fits.score)
    assert 0 < added.sum() < (fits.group_size == 2).sum()
    apart, row = nearest(fits[~added].points(), single.points())
    assert apart.max() < 2
    np.testing.assert_array_equal(fits.score[~added], single.score[row])


def test_groups_are_numbered_by_rows_and_frames_stay_in_order(scene, joint):
    joint()
    fits = localize(scene[0], **FOUND)
    assert (np.diff(fits.frame) >= 0).all()
    assert {0, 1} == {*np.diff(fits.group).tolist()}
    assert fits.group[0] == 0
    np.testing.assert_array_equal(fits.group_size, np.bincount(fits.group)[fits.group])
    assert {*fits.group_size.tolist()} == {1, 2}
    for group in np.unique(fits.group):
        together = fits[fits.group == group]
        assert len({*together.frame.tolist()}) == len({*together.chi_square.tolist()}) == 1


def test_flags_of_a_fit_reach_all_its_spots(scene, joint, monkeypatch):
    mark_not_settled(joint(), monkeypatch)
    fits = localize(scene[0], **FOUND)
    pairs = fits[fits.group_size == 2]
    assert (pairs.flags & Flag.NOT_CONVERGED != 0).all()
    assert not pairs.good.any()
    np.testing.assert_array_equal(pairs.flags & Flag.EDGE != 0, np.arange(len(pairs)) % 2 == 0)
    assert fits[fits.group_size == 1].good.any()


def test_rows_are_the_same_whatever_the_blocks(scene, joint):
    movie, _ = scene
    joint()
    whole = localize(movie, **FOUND)
    for load in (Load(1, movie[0].nbytes, 1), Load(1, 2 * movie[0].nbytes, 3)):
        joint().load = load
        assert_same(localize(movie, **FOUND), whole)
        assert_same(SpotFits.concatenate(list(localize_iter(movie, **FOUND))), whole)


@pytest.mark.usefixtures("short_parts_of_joint_fits")
@pytest.mark.parametrize("rows", [5, 1 << 17])
def test_a_run_goes_on_and_gives_the_same(scene, joint, tmp_path, monkeypatch, rows):
    """Parts that are read in pieces, which may end within a group."""
    pytest.importorskip("pyarrow")
    monkeypatch.setattr(parquet, "GROUP", rows)
    movie, folder = scene[0], tmp_path / "parts"
    joint()
    whole = localize(movie, **FOUND)
    begun = localize_iter(movie, resume=folder, **FOUND)
    first = [next(begun), next(begun)]
    begun.close()
    assert [int(part.group[0]) for part in first] == [0, 0]
    backend = joint()
    resumed = list(localize_iter(movie, resume=folder, **FOUND))
    assert_same(SpotFits.concatenate(resumed), whole)
    assert 1 <= len(backend.jobs) < FRAMES // 2
    backend.jobs.clear()
    again = list(localize_iter(movie, resume=folder, **FOUND))
    assert_same(SpotFits.concatenate(again), whole)
    assert not backend.jobs
    if rows == 5:
        assert len(again) > FRAMES // 2


@pytest.mark.usefixtures("short_parts_of_joint_fits")
def test_files_keep_groups_apart(scene, joint, tmp_path):
    pytest.importorskip("pyarrow")
    movie = scene[0]
    joint()
    fits = localize(movie, **FOUND)
    parts = localize_to_folder(movie, tmp_path / "parts", **FOUND)
    assert [part.spots for part in parts] == [len(part) for part in load_parts(tmp_path / "parts")]
    for ending in ("parquet", "csv"):
        paths = [tmp_path / f"{name}.spots.{ending}" for name in ("whole", "parts", "folder")]
        fits.save(paths[0])
        save_fits(localize_iter(movie, **FOUND), paths[1])
        save_fits(load_parts(tmp_path / "parts"), paths[2])
        for path in paths:
            assert_same(load_fits(path), fits)
        assert len({path.read_bytes() for path in paths}) == 1


def test_picasso_has_the_groups(scene, joint, tmp_path):
    h5py = pytest.importorskip("h5py")
    joint()
    fits = localize(scene[0], **FOUND)
    with pytest.warns(match="Picasso"):
        fits.save(tmp_path / "a_locs.hdf5")
    found = load_fits(tmp_path / "a_locs.hdf5")
    np.testing.assert_array_equal(found.group, fits.group)
    np.testing.assert_array_equal(found.group_size, fits.group_size)
    assert found.group.dtype == np.int64
    with h5py.File(tmp_path / "a_locs.hdf5") as file:
        assert file["locs"].dtype["group"] == np.int64


def in_blocks(monkeypatch, movie):
    """Process frames in blocks of rows; return the first rows of blocks."""
    begins, blocks = [], tiles.row_blocks

    def listed(*given):
        for rows in blocks(*given):
            begins.append(rows.own.start)
            yield rows

    monkeypatch.setattr(tiles, "row_blocks", listed)
    monkeypatch.setattr(frames_module, "LARGE_FRAME", 0)
    monkeypatch.setattr(frames_module, "TILE", 60 * movie.shape[-1] * movie.itemsize)
    return begins


def columns_of_spots(columns, height=2400):
    """Return an image of spots at rows, which are listed for each of some columns."""
    y, x = np.indices((height, 60 * len(columns)))
    profiles = [
        np.outer(
            sum(np.exp(-((y[:, 0] - row) ** 2) / (2 * SIGMA**2)) for row in rows),
            np.exp(-((x[0] - 60 * number - 12) ** 2) / (2 * SIGMA**2)),
        )
        for number, rows in enumerate(columns)
    ]
    light = 20 + PHOTONS / (2 * np.pi * SIGMA**2) * sum(profiles)
    return np.random.default_rng(0).poisson(light)[np.newaxis].astype(np.uint16)


def test_frames_in_tiles_have_the_rows_of_whole_frames(joint, monkeypatch, tmp_path):
    # Whatever row a block ends at, a pair is on both sides.
    pairs = [
        np.sort([*range(first, 2380, 14), *range(first + 5, 2380, 14)]) for first in (8, 13, 18)
    ]
    movie = columns_of_spots(pairs)
    joint()
    whole = localize(movie, **FOUND)
    assert (whole.group_size == 2).sum() > 1000
    begins = in_blocks(monkeypatch, movie)
    parts = list(localize_iter(movie, **FOUND))
    assert len(begins) == len(parts) > 1
    places = [whole.y[whole.group == group] for group in range(whole.group.max() + 1)]
    for begin in begins[1:]:
        assert any(one.min() < begin - 0.5 < one.max() for one in places)
    assert_same(SpotFits.concatenate(parts), whole)
    pytest.importorskip("pyarrow")
    for _ in range(2):  # made in parts of a file, then read from it
        parts = list(localize_iter(movie, resume=tmp_path, **FOUND))
        assert_same(SpotFits.concatenate(parts), whole)


@pytest.mark.filterwarnings("ignore:the image has stripes")
def test_a_chain_that_no_block_has_whole_loses_no_spot(joint, monkeypatch):
    movie = columns_of_spots(3 * [range(10, 2390, 5)])
    joint()
    whole = localize(movie, **FOUND)
    assert whole.group_size.min() > 470
    in_blocks(monkeypatch, movie)
    parts = list(localize_iter(movie, **FOUND))
    assert len(parts) > 1
    np.testing.assert_array_equal(np.sort(SpotFits.concatenate(parts).y), np.sort(whole.y))


def test_positions_of_the_caller_have_one_row_each(scene, joint):
    movie, truth = scene
    backend = joint()
    places = np.vstack([[(0, -9.0, 3.0)], truth, [(2, 3.0, np.nan)]])
    places = places[np.random.default_rng(0).permutation(len(places))]
    fits = fit_at(movie, places, **SETTINGS)
    assert len(fits) == len(places)
    assert all(job.one_row_per_position for job in backend.jobs)
    there = fits.valid
    np.testing.assert_allclose(fits.points()[there], places[there], atol=1.5)
    assert (fits.group_size[~there] == 1).all()
    np.testing.assert_array_equal(fits.group_size, np.bincount(fits.group)[fits.group])
    assert (np.diff(np.maximum.accumulate(fits.group)) <= 1).all()
    frames = [{*fits.frame[fits.group == group].tolist()} for group in range(fits.group.max())]
    assert {len(one) for one in frames} == {1}
    one = fit_at(movie[0], truth[truth[:, 0] == 0, 1:], **SETTINGS)
    with Fitter(**SETTINGS) as again:
        for _ in range(2):
            found = again.fit_at(movie[0], truth[truth[:, 0] == 0, 1:])
            np.testing.assert_array_equal(found.group, one.group)
            np.testing.assert_array_equal(found.group_size, one.group_size)


@pytest.mark.parametrize("call", ["fit_at", "Fitter"])
def test_a_backend_that_adds_rows_to_given_positions_is_refused(scene, joint, monkeypatch, call):
    backend = joint()
    fit = backend.fit

    def always(job, *given, **named):
        columns = fit(job, *given, **named)
        columns["its position"] = np.arange(len(columns["y"]))
        return columns

    monkeypatch.setattr(backend, "fit", always)
    calls = {
        "fit_at": lambda *given: fit_at(*given, **SETTINGS),
        "Fitter": Fitter(**SETTINGS).fit_at,
    }
    with pytest.raises(ValueError, match="one row for each position"):
        calls[call](scene[0][0], [(10.0, 10.0)])


def test_frames_without_spots_have_the_same_columns(scene, joint):
    movie = np.full((2, CELL, CELL), 20, np.uint16)
    joint()
    fits = localize(movie, **FOUND)
    assert len(fits) == 0
    assert list(fits.columns) == list(localize(scene[0], **FOUND).columns)
    assert fits.group.dtype == fits.group_size.dtype == np.int64


def test_slices_keep_groups_and_joining_keeps_them_apart(scene, joint):
    joint()
    fits = localize(scene[0], **FOUND)
    good = fits[fits.photons > 3000]
    np.testing.assert_array_equal(good.group_size, fits.group_size[fits.photons > 3000])
    both = SpotFits.concatenate([good, fits])
    assert not {*both.group[: len(good)].tolist()} & {*both.group[len(good) :].tolist()}
    np.testing.assert_array_equal(both.group[: len(good)], good.group)
    pieces = (fits[first : first + 3] for first in range(0, len(fits), 3))
    whole = list(in_whole_groups(pieces))
    assert_same(SpotFits.concatenate(whole), fits)
    single = {name: fits.columns[name] for name in fits.columns if "group" not in name}
    single = SpotFits(single, fits.index_names, fits.settings)
    with pytest.raises(ValueError, match="some have no group"):
        SpotFits.concatenate([fits, single])


def test_summaries_count_rows(scene, joint):
    joint()
    fits = localize(scene[0], **FOUND)
    assert (summarize(fits)["count"] <= len(fits)).all()
    assert summarize(fits).loc["photons", "count"] == len(fits)
    assert per_frame(fits, scene[0].shape)["count"].sum() == len(fits)


def test_single_fits_have_no_groups(scene):
    fits = localize(scene[0], **FOUND)
    assert "group" not in fits
    assert "group_size" not in fits
