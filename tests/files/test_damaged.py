"""Damaged files are read, or end in the documented error, which names them."""

from __future__ import annotations

import damage
import pytest


@pytest.fixture(scope="module", params=damage.KINDS)
def damaged_files(request, tmp_path_factory):
    """Damaged files of a kind, and what reads them."""
    writers, read = damage.KINDS[request.param]
    return damage.Damage(tmp_path_factory.mktemp(request.param), writers), read


def test_files_that_are_whole_are_read(damaged_files):
    files, read = damaged_files
    assert {damage.outcome(path, read) for path in files.whole} == {"read"}


@pytest.mark.parametrize("block", range(20))
def test_damaged_files(damaged_files, block):
    """More of them are read by ``make damaged``."""
    files, read = damaged_files
    for seed in range(block * 20, (block + 1) * 20):
        path = files.path(seed)
        assert damage.outcome(path, read) in damage.GOOD, f"{path.name}, seed {seed}"
