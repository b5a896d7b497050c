"""Parts of blocks in which crowds are fitted, each by one thread."""

import itertools

import numpy as np
import pytest

from napari_spotfit import fit_at, localize
from napari_spotfit.engine.backend import Positions
from napari_spotfit.engine.crowd_parts import parts_of_crowds
from tests.helpers.crowd_scenes import KNOWN, light_of, random_spots


def _parts(frames, threads, takes_part=None):
    positions = Positions(np.zeros((len(frames), 2)), np.asarray(frames))
    taking = np.ones(len(frames), bool) if takes_part is None else takes_part
    return parts_of_crowds(positions, taking, threads)


def test_parts_are_of_whole_frames_and_leave_nothing_out():
    frames = np.sort(np.random.default_rng(1).integers(0, 40, 9000))
    parts = _parts(frames, 3)
    assert len(parts) == 6
    assert [parts[0].start, parts[-1].stop] == [0, 9000]
    for one, after in itertools.pairwise(parts):
        assert one.stop == after.start
        assert frames[one.stop - 1] < frames[after.start]


def test_parts_have_about_as_many_spots_to_fit_together():
    frames = np.repeat(np.arange(100), 100)
    takes_part = frames >= 60
    sizes = [takes_part[part].sum() for part in _parts(frames, 2, takes_part)]
    assert sizes == [1000] * 4


@pytest.mark.parametrize(
    ("frames", "threads"),
    [
        (np.zeros(9000, int), 2),
        (np.arange(900), 2),
        (np.repeat([0, 1, 2], 3000), 2),
        (range(9000), 1),
    ],
    ids=["one frame", "few spots", "few frames", "one thread"],
)
def test_what_threads_would_not_share_evenly_stays_one_part(frames, threads):
    assert _parts(frames, threads) == [slice(0, len(frames))]


@pytest.fixture(scope="module")
def scene():
    """Return crowded frames, and then such with a spot each, and the places of all spots."""
    crowded, places = random_spots(45, 0.03, seed=4)
    rng = np.random.default_rng(5)
    alone = rng.uniform(8, 55, (20, 1, 2))
    frames = [rng.poisson(light_of(own, 1000.0, 64)) for own in alone]
    return np.concatenate([crowded, np.stack(frames).astype(np.uint16)]), [*places, *alone]


def _assert_the_same(one, other):
    assert one.columns.keys() == other.columns.keys()
    for name, column in one.columns.items():
        np.testing.assert_array_equal(column, other.columns[name], name)


@pytest.mark.parametrize("neighbours", ["auto", "joint"])
def test_rows_are_those_of_one_thread(scene, neighbours):
    movie, _ = scene
    shared, whole = (
        localize(movie, **KNOWN, neighbours=neighbours, threads=threads) for threads in (2, 1)
    )
    assert len(whole) > 4000
    assert whole.group_size.max() > 9
    _assert_the_same(shared, whole)


def test_rows_of_positions_are_those_of_one_thread(scene):
    movie, places = scene
    centers = np.concatenate([np.insert(own, 0, k, axis=1) for k, own in enumerate(places)])
    shared, whole = (
        fit_at(movie, centers, **KNOWN, neighbours="joint", threads=threads) for threads in (2, 1)
    )
    assert len(whole) == len(centers)
    _assert_the_same(shared, whole)
