"""Things that are costly to prepare, lent to one caller after the other."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import lru_cache
from typing import Any, TypeVar

Lent = TypeVar("Lent")


def lend(make: Callable[..., Lent], *key: Hashable) -> tuple[Lent, list[Any]]:
    """Return ``make(*key)``, one that nobody else uses, and a list to append it to after use.

    It serves the next caller then; not so one that an error has left half done.
    """
    idle = _idle(make, *key)
    try:
        return idle.pop(), idle
    except IndexError:
        return make(*key), idle


@lru_cache(maxsize=16)
def _idle(*_key: Hashable) -> list[Any]:
    """Return what was made with a key and is not in use."""
    return []
