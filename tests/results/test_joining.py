"""Joining parts of fits while others are computed."""

from __future__ import annotations

import weakref

import numpy as np
import pytest
from same_fits import assert_same

from napari_spotfit import SpotFits, localize, simulate_movie
from napari_spotfit.results import fit_parts
from napari_spotfit.results.fit_parts import joined_parts


@pytest.fixture(scope="module")
def fits():
    return localize(simulate_movie(4, shape=(64, 64), spots_per_frame=30, seed=1)[0])


@pytest.mark.parametrize(
    "ends", [[-1], [0, -1], [50, 51, -1], [5, 5, 90, -1], [100, -1], [0, 0, 7]]
)
@pytest.mark.parametrize("predicted", ["well", "too few", "too many", "nothing"])
def test_parts_are_as_if_made_at_once(fits, ends, predicted):
    ends = [len(fits) if end < 0 else end for end in ends]
    parts = [fits[first:last] for first, last in zip([0, *ends], ends, strict=False)]
    share = {"well": ends[-1], "too few": 1, "too many": 40 * len(fits), "nothing": np.inf}[
        predicted
    ]
    found = joined_parts(
        (part, min(end / share, 1.0)) for part, end in zip(parts, ends, strict=True)
    )
    expected = SpotFits.concatenate(parts)
    assert_same(found, expected)
    assert (found.index_names, found.settings) == (expected.index_names, expected.settings)
    assert all(column.flags.c_contiguous for column in found.columns.values())


def test_few_parts_are_kept_until_the_end(fits):
    held = []

    def parts():
        for _ in range(20):
            own = {name: column.copy() for name, column in fits.columns.items()}
            held.append(weakref.ref(own["x"]))
            yield SpotFits(own, fits.index_names, fits.settings), 0.05
            del own
            alive = [number for number, one in enumerate(held) if one() is not None]
            # The first one, those that are put in their places, and the last one.
            assert len(alive) <= fit_parts._AT_ONCE + 2

    found = joined_parts(parts())
    np.testing.assert_array_equal(found.x, np.tile(fits.x, 20))


def test_there_is_a_part_at_least():
    with pytest.raises(ValueError, match="no fits to join"):
        joined_parts([])
