"""The fits of some frames of an image, wherever they are made: what a worker of Dask's does."""

from __future__ import annotations

import threading
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..images.camera import Camera
from ..images.files.image_file import ImageFile
from ..images.files.opening import opened
from ..results.joining import joined_parts
from ..settings.settings import Settings
from .plan import Maps, Plan, fitted, planned
from .stored import Store, StoredPart, StoredRun, parts_of

if TYPE_CHECKING:
    import pandas as pd


class File(NamedTuple):
    """An image file, which is opened where it is read."""

    path: Path
    #: When it was changed last: another file of the same name is another task.
    changed: int


class Part(NamedTuple):
    """What the fits of some frames are made of: nothing is left open, nothing else has a say.

    Image and maps are files, things that read themselves wherever they are, or the frames of this
    part, NumPy's, of shape (n, Y, X).
    """

    #: The shape of the whole image.
    shape: tuple[int, ...]
    numbers: NDArray[np.int64]
    #: With estimates and the kind of backend.
    settings: Settings
    image: Any
    mask: Any = None
    weights: Any = None
    bad_pixels: Any = None
    camera: Camera | None = None

    def plan(self) -> Plan:
        """Return the plan by which it is fitted here."""
        # Dask gives each of its threads a part: more of our own would be in each other's way.
        settings = self.settings.changed(threads=self.settings.threads or 1)
        image, mask, weights, bad = map(
            self._here, (self.image, self.mask, self.weights, self.bad_pixels)
        )
        return planned(image, settings, None, Maps(mask, weights, bad, self.camera))

    def _here(self, given: Any) -> Any:
        """Return an image, or a map, as it is read here."""
        if isinstance(given, File):
            return _opened(given, threading.get_ident())
        if not isinstance(given, np.ndarray) or given.ndim == 2:
            return given
        if not len(self.numbers):
            return np.broadcast_to(np.zeros((), given.dtype), self.shape)
        read = partial(_read, given, self.numbers)
        return ImageFile(Path("frames"), self.shape, given.dtype, read)


def table_of(part: Part) -> pd.DataFrame:
    """Return the fits of a part as a table."""
    parts = fitted(part.plan(), [part.numbers])
    return joined_parts((fits.to_host(), 1.0) for fits, _ in parts).to_dataframe()


def stored(part: Part, store: Store) -> StoredPart:
    """Return the part that is in a folder, where it is written first if it is not there."""
    run = StoredRun(store, part.settings, [part.numbers])
    spots = sum(len(fits) for fits, _ in parts_of(part.plan(), run))
    return StoredPart(store.path(part.numbers), spots)


@lru_cache(maxsize=16)
def _opened(file: File, thread: int) -> Any:
    """Return an open image: the next part's is the same; each thread reads one of its own."""
    return opened(file.path)


def _read(frames: NDArray[Any], numbers: NDArray[np.int64], first: int, count: int) -> NDArray[Any]:
    """Return frames from a first one on; as many as are asked for are here."""
    place = int(np.searchsorted(numbers, first))
    return frames[place : place + count]
