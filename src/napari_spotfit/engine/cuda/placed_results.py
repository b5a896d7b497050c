"""Results of fits on the GPU that come in parts, each row in its place.

Their twins of the host are in :mod:`napari_spotfit.engine.rois`. These come to the host once and
whole: each time costs a wait, and a pass over all columns.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...settings.settings import Settings
from ..kernel_arguments import Results, row_bytes, sizes_of_results
from .device import current_device

#: Threads of a block.
THREADS = 128


class PlacedResultsThere:
    """Results in the memory of the current device.

    All is done on CuPy's current stream, when the orders are carried out.

    Parameters
    ----------
    count : int
        How many fits there are.
    settings : Settings
        What they are made with.
    """

    def __init__(self, count: int, settings: Settings) -> None:
        self._device = current_device()
        self._count, self._settings = count, settings
        self._memory = self._device.allocate(row_bytes(settings) * count)
        self._sizes = sizes_of_results(settings)
        #: For the fits, too, and for what they are made of.
        self.orders = self._device.orders()

    def put(self, part: Mapping[str, Any], rows: NDArray[np.int64]) -> None:
        """Put results that are there then where they belong.

        Their columns follow each other, as :class:`Results` has them.
        """
        if not len(rows):
            return
        first, begins = next(iter(part.values())), np.cumsum(self._sizes) - self._sizes
        places = np.column_stack(
            [
                self._device.address(first) + len(rows) * begins,
                self._device.address(self._memory) + self._count * begins,
                self._sizes,
            ]
        )
        kernel = self._device.kernel("cuda/put_rows.cu", "put_rows", THREADS=THREADS)
        given = (
            self.orders.send(places), np.int32(len(places)),
            self.orders.send(rows), np.int64(len(rows)),
        )  # fmt: skip
        self.orders.launch(kernel, (-(-len(rows) // THREADS),), (THREADS,), given)
        self.orders.keep(part)

    def begin(self) -> None:
        """Begin what is ordered, and do not wait for it."""
        self.orders.carry_out(wait=False)

    def columns(self) -> dict[str, NDArray[Any]]:
        """Return the results of all fits in the host's memory."""
        here = self.orders.fetch(self._memory)
        self.orders.carry_out()
        results = Results.within(here, self._count, self._settings)
        return results.columns(self._settings.profile)
