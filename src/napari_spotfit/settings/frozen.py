"""A mapping that stays as it was made."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any


class FrozenMapping(Mapping[str, Any]):
    """A mapping that nobody can change, so that settings can be shared, and keys of a cache.

    Examples
    --------
    >>> held = FrozenMapping({"sigma": 1.5})
    >>> held == {"sigma": 1.5}, held["sigma"]
    (True, 1.5)
    >>> held["sigma"] = 2.0
    Traceback (most recent call last):
    ...
    TypeError: 'FrozenMapping' object does not support item assignment
    """

    __slots__ = ("_items",)
    _items: Mapping[str, Any]

    def __init__(self, items: Mapping[str, Any] | None = None) -> None:
        object.__setattr__(self, "_items", MappingProxyType(dict(items or {})))

    def __getitem__(self, name: str) -> Any:
        return self._items[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)

    def __hash__(self) -> int:
        return hash(frozenset(self._items.items()))

    def __repr__(self) -> str:
        return repr(dict(self._items))

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"{name} cannot be set: this mapping stays as it is")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"{name} cannot be deleted: this mapping stays as it is")

    def __reduce__(self) -> tuple[type[FrozenMapping], tuple[dict[str, Any]]]:
        return FrozenMapping, (dict(self._items),)
