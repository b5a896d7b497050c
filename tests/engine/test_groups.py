"""Groups of neighbouring positions, and rows of fits of several spots."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import connected_components

from napari_spotfit import Flag, Settings
from napari_spotfit.engine.backend import Positions
from napari_spotfit.engine.fit_job import FitJob
from napari_spotfit.engine.positions import POSITION, link_positions, rows_of, scores_of
from napari_spotfit.models.columns import GroupCounter, numbered


def reference(places, frames, reach, shape):
    """Compare each position with all others."""
    reach = np.broadcast_to(reach, places.shape[1])
    with np.errstate(invalid="ignore"):
        there = ((places >= -0.5) & (places <= np.array(shape) - 0.5)).all(axis=1)
        apart = (places[:, np.newaxis] - places) / reach
        near = (apart**2).sum(axis=-1) <= 1
    near &= (frames[:, np.newaxis] == frames) & there[:, np.newaxis] & there
    _, found = connected_components(coo_matrix(near), directed=False)
    first = {}
    return np.array([first.setdefault(label, len(first)) for label in found], np.int64)


#: Whole numbers make ties; the edges, and beyond them, are among these.
NUMBERS = st.one_of(
    st.integers(-2, 22).map(float), st.floats(-2, 22), st.sampled_from([np.nan, np.inf, -0.5, 19.5])
)


@given(
    hnp.arrays(float, st.tuples(st.integers(0, 60), st.integers(2, 3)), elements=NUMBERS),
    st.integers(1, 4), st.floats(0.01, 30), st.booleans(), st.data(),
)  # fmt: skip
def test_groups_are_connected_components(places, frames, reach, per_axis, data):
    count, axes = places.shape
    frame = np.sort(data.draw(hnp.arrays(np.int64, count, elements=st.integers(0, frames - 1))))
    along = reach * np.array([3.0, 1.0, 1.5][-axes:]) if per_axis else reach
    shape = (20,) * axes
    found = link_positions(Positions(places, frame), along, shape)
    np.testing.assert_array_equal(found, reference(places, frame, along, shape))
    assert found.dtype == np.int64


@pytest.mark.parametrize("reach", [0.3, 1.0, 2.5, 40.0])
@pytest.mark.parametrize("shape", [(60, 60), (4, 900), (900, 4)])
@pytest.mark.parametrize("whole", [False, True])
def test_fields_of_any_density(reach, shape, whole):
    rng = np.random.default_rng(int(10 * reach) + whole)
    places = rng.uniform(-1, shape, (700, 2))
    places = np.rint(places) if whole else places
    found = link_positions(Positions(places), reach, shape)
    np.testing.assert_array_equal(found, reference(places, np.zeros(700), reach, shape))


def test_a_distance_that_is_reached_links():
    for step in ((3.0, 4.0), (5.0, 0.0), (0.0, -5.0)):
        places = np.array(
            [[8.0, 8.0], np.add((8.0, 8.0), step), np.add((8.0, 8.0), 3 * np.array(step))]
        )
        assert link_positions(Positions(places), 5.0, (32, 32)).tolist() == [0, 0, 1]
        assert link_positions(Positions(places), np.nextafter(5.0, 0), (32, 32)).tolist() == [
            0,
            1,
            2,
        ]


@pytest.mark.parametrize("per_frame", [1, 7, 20_000])
def test_threads_share_frames(per_frame):
    rng = np.random.default_rng(3)
    positions = Positions(rng.uniform(0, 400, (50_000, 2)), np.arange(50_000) // per_frame)
    one, some = (link_positions(positions, 3.0, (400, 400), count) for count in (1, 3))
    np.testing.assert_array_equal(one, some)
    assert (np.diff(np.maximum.accumulate(one)) <= 1).all()


def test_all_at_one_place_and_a_long_chain_are_each_a_group():
    same = Positions(np.full((200_000, 2), 7.25))
    assert not link_positions(same, 1e-3, (16, 16)).any()
    chain = np.column_stack([np.full(200_000, 3.0), np.arange(200_000.0)])
    order = np.random.default_rng(0).permutation(len(chain))
    assert not link_positions(Positions(chain[order]), 1.0, (8, 200_000)).any()
    assert link_positions(Positions(chain[order]), 0.99, (8, 200_000)).max() == 199_999


@pytest.mark.parametrize("reach", [0.0, -1.0, np.nan, np.inf, (1.0, 0.0), (1.0,) * 3])
def test_a_reach_that_is_none_is_refused(reach):
    with pytest.raises(ValueError, match="reach must be a number of pixels above 0"):
        link_positions(Positions(np.zeros((2, 2))), reach, (8, 8))


def job(**kind):
    return FitJob(Settings(), (9, 9), "u2", **kind)


def test_what_a_fit_did_is_a_flag_of_all_its_rows_and_what_a_spot_is_of_its_own():
    flags = [Flag.NOT_CONVERGED, Flag.EDGE, Flag.WEAK, 0, Flag.POOR_FIT, Flag.NEGATIVE]
    columns = {
        "group": np.array([4, 4, 2, 2, 2, 9]), "flags": np.array(flags, np.uint32),
        POSITION: np.array([0, 0, 1, 4, 3, 7]),
    }  # fmt: skip
    rows = rows_of(job(one_row_per_position=False), columns)
    assert rows.tolist() == [0, 0, 1, 4, 3, 7]
    assert columns["group"].tolist() == [0, 0, 1, 1, 1, 2]
    assert columns["group_size"].tolist() == [2, 2, 3, 3, 3, 1]
    assert columns["group_size"].dtype == columns["group"].dtype == np.int64
    expected = [
        Flag.NOT_CONVERGED, Flag.NOT_CONVERGED | Flag.EDGE, Flag.WEAK, 0, Flag.POOR_FIT,
        Flag.NEGATIVE,
    ]  # fmt: skip
    assert columns["flags"].tolist() == expected
    assert columns["flags"].dtype == np.uint32
    assert POSITION not in columns
    score = np.arange(10, dtype=np.float32)
    np.testing.assert_array_equal(scores_of(rows, score), [0, np.nan, 1, 4, 3, 7])


def test_single_fits_are_left_as_they_are():
    columns = {"flags": np.array([1, 0], np.uint32)}
    before = dict(columns)
    for asked in (True, False):
        assert rows_of(job(one_row_per_position=asked), columns) == slice(None)
    assert columns == before


def test_rows_that_are_not_as_the_job_asks_are_refused():
    with pytest.raises(ValueError, match="one row for each position"):
        rows_of(job(), {POSITION: np.array([0, 0]), "flags": np.zeros(2, np.uint32)})
    columns = {"group": np.array([0, 1, 0]), "flags": np.zeros(3, np.uint32)}
    with pytest.raises(ValueError, match="must follow each other"):
        rows_of(job(one_row_per_position=False), columns)
    rows_of(job(), columns)  # spots that the caller has put in this order


@given(st.lists(st.lists(st.integers(-1, 5), max_size=8), min_size=1, max_size=5))
def test_groups_of_parts_stay_apart(parts):
    count = GroupCounter()
    found = [count({"group": np.array(part, np.int64)})["group"] for part in parts]
    seen = set()
    for part, group in zip(parts, found, strict=True):
        own = np.array(part, np.int64) >= 0
        assert (group[~own] == -1).all()
        assert not seen & set(group[own].tolist())
        seen |= set(group[own].tolist())
        np.testing.assert_array_equal(numbered(group[own]), numbered(np.array(part)[own]))


def test_groups_of_rows_without_a_number_and_of_words():
    count = GroupCounter()
    assert count({"group": np.array([0.0, 1.0])})["group"].tolist() == [0, 1]
    np.testing.assert_array_equal(count({"group": np.array([np.nan, 0.0])})["group"], [np.nan, 2])
    words = {"group": np.array(["a", "b"], object)}
    assert count(words) is words
