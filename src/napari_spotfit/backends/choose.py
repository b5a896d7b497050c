"""Which backend runs the fits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from numpy.typing import NDArray

from ..settings import Settings


class BackendUnavailableError(RuntimeError):
    """The backend that was asked for cannot run here; the message says why."""


class Backend(NamedTuple):
    """What every backend offers, with one signature each."""

    name: str
    #: Fits ROIs where they lie in frames; returns the columns of SpotFits.
    fit_rois: Callable[..., dict[str, NDArray[Any]]]
    #: Finds spots in frames; returns their frame, y, x and score.
    detect: Callable[..., Any]
    #: How many frames keep it busy.
    frames_at_once: int


def choose(settings: Settings) -> Backend:
    """Return the backend that the settings ask for.

    Raises
    ------
    BackendUnavailableError
        If the settings ask for CUDA: this version runs on the CPU only.
    """
    if settings.backend == "cuda":
        raise BackendUnavailableError(
            "this version of napari-spotfit runs on the CPU only; choose backend='auto' or 'cpu'"
        )
    # Numba is imported here, so that importing the package stays fast.
    from .cpu import detect, fit, threads

    count = settings.threads or threads.available()
    name = f"CPU ({count} thread{'s' if count > 1 else ''})"
    return Backend(name, fit.fit_rois, detect.detect, count)


def describe(settings: Settings) -> str:
    """Return the name of what runs the fits, such as 'CPU (2 threads)'."""
    return choose(settings).name
