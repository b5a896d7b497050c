"""Fixtures of the tests of all backends."""

from __future__ import annotations

import pytest
from scenes import estimated

from napari_spotfit.engine.cpu import backend as cpu
from napari_spotfit.engine.cpu.library import INSTRUCTION_SET, load
from napari_spotfit.engine.cuda import detect as cuda

PLACES = [*load().instruction_sets, pytest.param("cuda", marks=pytest.mark.gpu)]


@pytest.fixture(scope="session", params=PLACES)
def detect(request):
    """Return detection in frames on the host, with every instruction set and on a GPU.

    Unless the settings hold their noise, it is measured in them.
    """
    if request.param == "cuda":
        request.getfixturevalue("gpu")
        import cupy

        yield lambda frames, settings, *rest: cuda.detect(
            cupy.asarray(frames), estimated(frames, settings), *rest
        )
    else:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv(INSTRUCTION_SET, request.param)
            yield lambda frames, settings, *rest: cpu.detect(
                frames, estimated(frames, settings), *rest
            )
