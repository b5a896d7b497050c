"""Work in pieces: all of it, once, and its errors come back."""

from __future__ import annotations

import pytest

from napari_spotfit.engine import threads
from napari_spotfit.engine.cpu.sources import fingerprint


@pytest.mark.parametrize("count", [None, 1, 3])
@pytest.mark.parametrize("total", [0, 1, 10, 101])
def test_every_piece_is_worked_on_once(total, count):
    seen = []
    threads.in_pieces(lambda first, last: seen.extend(range(first, last)), total, 10, count)
    assert sorted(seen) == list(range(total))


def test_errors_reach_the_caller():
    def fail(first, last):
        if first == 20:
            raise RuntimeError("piece 20")

    with pytest.raises(RuntimeError, match="piece 20"):
        threads.in_pieces(fail, 100, 10, 4)


def test_the_fingerprint_follows_the_sources():
    assert fingerprint("fit", "lanes") == fingerprint("fit", "lanes")
    assert fingerprint("fit") != fingerprint("lanes")
