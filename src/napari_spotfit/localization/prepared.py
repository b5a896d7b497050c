"""Fits that are prepared once, and serve one call after the other."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, TypeVar

import numpy as np

from ..engine.cpu.library import Library, load
from ..settings.settings import Settings

Fits = TypeVar("Fits")


@contextmanager
def prepared(
    made: type,
    prepare: Callable[[], Fits],
    settings: Settings,
    shape: tuple[int, ...],
    dtype: np.dtype[Any],
) -> Iterator[Fits]:
    """Lend fits that are in nobody else's use, prepared if there are none.

    They serve the next call, unless an error has left them half done.

    Parameters
    ----------
    made : type
        What is prepared.
    prepare : callable
        Prepares it.
    settings : Settings
        The fits' settings.
    shape : tuple of int
        The shape of the pixels that are fitted.
    dtype : dtype
        Their type.
    """
    idle = _idle(load(), made, settings, shape, dtype)
    try:
        fits = idle.pop()
    except IndexError:
        fits = prepare()
    yield fits
    idle.append(fits)


@lru_cache(maxsize=16)
def _idle(
    library: Library,
    made: type,
    settings: Settings,
    shape: tuple[int, ...],
    dtype: np.dtype[Any],
) -> list[Any]:
    """Return what is prepared for pixels of a kind and not in use."""
    return []
