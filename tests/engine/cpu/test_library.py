"""The compiled library: found, checked, and asked for an instruction set."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import pytest

from napari_spotfit import fit_spots, simulate_spots
from napari_spotfit.engine.cpu import library


@pytest.fixture
def asked(monkeypatch):
    """Set what a user sets in the environment."""
    return lambda name, value: monkeypatch.setenv(name, str(value))


def test_the_best_instruction_set_is_chosen(monkeypatch):
    monkeypatch.delenv(library.INSTRUCTION_SET, raising=False)
    loaded = library.load()
    assert loaded.instruction_set == loaded.instruction_sets[-1]
    assert loaded.version in loaded.description
    assert loaded.instruction_set in loaded.description
    widths = [loaded.functions.spotfit_lane_width(i) for i in range(len(loaded.instruction_sets))]
    assert widths == sorted(widths)


def test_another_is_taken_where_it_is_asked_for(asked):
    for name in library.load().instruction_sets:
        asked(library.INSTRUCTION_SET, name)
        assert library.load().instruction_set == name


def test_an_unknown_instruction_set_lists_those_there_are(asked):
    there = ", ".join(library.load().instruction_sets)
    asked(library.INSTRUCTION_SET, "sse9")
    with pytest.raises(
        ValueError, match=f"{library.INSTRUCTION_SET}=sse9: this machine has {there}"
    ):
        fit_spots(simulate_spots(3, seed=0)[0], backend="cpu")


@pytest.mark.parametrize("content", [None, b"", b"no library"], ids=["missing", "empty", "broken"])
def test_no_library_says_how_to_build_it(asked, tmp_path, content):
    path = tmp_path / "libspotfit.so"
    if content is not None:
        path.write_bytes(content)
    asked(library.LIBRARY, path)
    with pytest.raises(ImportError, match=r"libspotfit.so.*(Build it: python|Install it anew)"):
        fit_spots(simulate_spots(3, seed=0)[0], backend="cpu")


def test_a_library_without_our_functions_is_refused(asked):
    """Python's own module of C numbers, say."""
    import _ctypes

    asked(library.LIBRARY, _ctypes.__file__)
    with pytest.raises(ImportError, match=r"spotfit_version.*(Build it|Install it anew)"):
        library.load()


OTHER_VERSION = """
import napari_spotfit.version
napari_spotfit.version.__version__ = "99.0"
from napari_spotfit.engine.cpu import library
library.load()
"""


def test_a_library_of_another_version_is_refused(tmp_path):
    path = tmp_path / "other.so"
    shutil.copy(library.load().path, path)
    done = subprocess.run(
        [sys.executable, "-c", OTHER_VERSION], capture_output=True, encoding="utf-8",
        env={**os.environ, library.LIBRARY: str(path)},
    )  # fmt: skip
    assert "is of version" in done.stderr
    assert "napari-spotfit of 99.0" in done.stderr
    assert "Build it" in done.stderr or "Install it anew" in done.stderr
