"""The garbage collector rests for a while and comes back as it was."""

from __future__ import annotations

import gc

import pytest

from napari_spotfit.widgets.parts import collector
from napari_spotfit.widgets.parts.collector import CollectorAtRest


@pytest.fixture(autouse=True)
def _leave_the_collector_as_it_was():
    yield
    gc.unfreeze()
    gc.enable()


def test_it_rests_until_the_end():
    with CollectorAtRest() as rest:
        assert not gc.isenabled()
        rest.end()
        assert gc.isenabled()


def test_it_comes_back_after_an_error():
    with pytest.raises(ValueError, match="oh"), CollectorAtRest():
        raise ValueError("oh")
    assert gc.isenabled()


def test_a_collector_that_was_off_stays_off():
    gc.disable()
    with CollectorAtRest():
        pass
    assert not gc.isenabled()


@pytest.mark.parametrize("compiled", [False, True])
def test_only_a_compilation_is_left_out_of_later_collections(monkeypatch, compiled):
    monkeypatch.setattr(collector, "_COMPILED", -1 if compiled else 1000)
    before = gc.get_freeze_count()
    with CollectorAtRest():
        pass
    assert (gc.get_freeze_count() > before) is compiled
