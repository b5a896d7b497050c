"""What the tests of all backends share."""

from __future__ import annotations

import pytest

from napari_spotfit.engine.cpu import detect as cpu
from napari_spotfit.engine.cuda import detect as cuda


@pytest.fixture(scope="session", params=["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def detect(request):
    """Detect spots in frames in the host's memory, on either backend."""
    if request.param == "cpu":
        return cpu.detect
    request.getfixturevalue("gpu")
    import cupy

    return lambda frames, *options: cuda.detect(cupy.asarray(frames), *options)
