"""Parts of a table of fits, which need not fit in memory together."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any

import numpy as np

from .spot_fits import SpotFits


class FitParts:
    """Fits part by part: iterate as often as you like, each time the parts are made again.

    Parameters
    ----------
    source : iterable
        What the parts are made of, such as paths or other parts; no iterator, which ends.
    make : callable
        Makes the parts of it.

    Examples
    --------
    >>> import numpy as np
    >>> from napari_spotfit import SpotFits
    >>> from napari_spotfit.results.fit_parts import FitParts
    >>> parts = FitParts([1, 2], lambda counts: (SpotFits({"y": np.zeros(n)}) for n in counts))
    >>> [len(part) for part in parts], [len(part) for part in parts]
    ([1, 2], [1, 2])
    """

    def __init__(self, source: Iterable[Any], make: Callable[[Iterable[Any]], Iterator[SpotFits]]):
        refuse_iterator(source)
        self._source, self._make = source, make

    def __iter__(self) -> Iterator[SpotFits]:
        return self._make(self._source)


def refuse_iterator(parts: Iterable[Any]) -> None:
    """Raise a TypeError if parts can be read but once."""
    if not isinstance(parts, SpotFits) and iter(parts) is parts:
        raise TypeError(
            "these parts are read more than once, but an iterator ends: pass load_parts(folder), "
            "or a list of SpotFits"
        )


def refuse_parts(fits: SpotFits | Iterable[SpotFits]) -> None:
    """Raise a TypeError if fits of beads, which must be in one table, are parts."""
    if not isinstance(fits, SpotFits):
        raise TypeError(
            f"beads are linked in one table, a SpotFits; got {type(fits).__name__}: choose their "
            "fits from each part first, such as the brightest, "
            "SpotFits.concatenate([part[part.photons > 5000] for part in parts])"
        )


def gathered(fits: SpotFits | Iterable[SpotFits], names: Collection[str]) -> SpotFits:
    """Return fits, or of parts the good ones in memory, with no more columns than are needed.

    Parameters
    ----------
    fits : SpotFits, or iterable of SpotFits
        Fits, which are returned, or parts.
    names : collection of str
        The columns that are needed beside indices, as far as there are any.
    """
    if isinstance(fits, SpotFits):
        return fits.to_host()
    return SpotFits.concatenate([_few_columns(part, names) for part in fits])


def _few_columns(part: SpotFits, names: Collection[str]) -> SpotFits:
    if not isinstance(part, SpotFits):
        raise TypeError(f"parts of fits are SpotFits; got {type(part).__name__}")
    part = part.to_host()
    good = part.accepted
    kept = {
        name: values[good] for name, values in part.columns.items()
        if name in names or name in part.index_names
    }  # fmt: skip
    return part.with_columns(kept | {"flags": np.zeros(np.count_nonzero(good), np.uint32)})
