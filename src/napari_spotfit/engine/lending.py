"""Things that are costly to prepare, lent to one caller after the other."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, TypeVar

Lent = TypeVar("Lent")


@contextmanager
def lent(make: Callable[..., Lent], *key: Hashable) -> Iterator[Lent]:
    """Lend ``make(*key)``, one that nobody else uses; it is made if there is none.

    It serves the next caller, unless an error has left it half done.
    """
    idle = _idle(make, *key)
    try:
        one = idle.pop()
    except IndexError:
        one = make(*key)
    yield one
    idle.append(one)


@lru_cache(maxsize=16)
def _idle(*_key: Hashable) -> list[Any]:
    """Return what was made with a key and is not in use."""
    return []
