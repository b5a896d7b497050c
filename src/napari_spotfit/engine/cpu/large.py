"""Large ROIs on the CPU, by all threads.

Pieces of an image are the same however many threads there are, and so are all sums.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...images.pixel_calibration import Planes
from ...settings.settings import Settings
from .. import threads
from ..large import fit
from ..large.image import Array, Bins, Sums, origin_of, sums_of, to_sums
from .kinds import Kind, kind_of
from .lanes import WIDTH
from .large_pixels import add_rows, copy, fill_bins
from .tile import aligned

#: Pixels of one piece of work.
_PIECE = 1 << 16


class Source(NamedTuple):
    """Where pixels lie: a flat array, the first of them, and the way to the next row."""

    values: NDArray[Any]
    first: int
    pitch: int


def fit_rois(
    frames: NDArray[Any],
    corners: NDArray[np.int64] | None,
    roi_shape: tuple[int, int],
    settings: Settings,
    start: NDArray[np.float32] | None,
    planes: Planes | None,
) -> dict[str, NDArray[Any]]:
    """Fit large ROIs where they lie in the frames; as :func:`.fit.fit_rois` says."""
    # Here, a turned Gaussian is searched along its angle.
    kind = replace(kind_of(settings, planes), turns=0)

    def image_of(number: int) -> CpuImage | None:
        frame, top, left = (number, 0, 0) if corners is None else map(int, corners[number])
        if frame < 0:
            return None
        plane = Source(np.empty(0, np.float32), 0, 0)
        if planes is not None:
            plane = source(planes.values, frame if len(planes.values) > 1 else 0, top, left)
        pixels = source(frames, frame, top, left)
        return CpuImage(roi_shape, pixels, plane, kind, settings)

    count = len(frames) if corners is None else len(corners)
    return fit.fit_rois(image_of, count, roi_shape, settings, start)


def source(frames: NDArray[Any], frame: int, top: int, left: int) -> Source:
    """Return where a ROI of a frame lies."""
    flat = frames.reshape(-1).view()
    flat.flags.writeable = False  # Numba would compile for either kind
    _, height, width = frames.shape
    return Source(flat, (frame * height + top) * width + left, width)


class CpuImage:
    """The pixels of one ROI; see :class:`~napari_spotfit.engine.large.image.Image`."""

    def __init__(
        self, shape: tuple[int, int], pixels: Source, plane: Source, kind: Kind, settings: Settings
    ) -> None:
        self._shape, self._pixels, self._plane = shape, pixels, plane
        self._kind, self._workers, self._profile = kind, settings.threads, settings.profile
        self._stride = -(-shape[1] // WIDTH)
        self._rows = max(_PIECE // (self._stride * WIDTH), 1)

    def bins(self, top: int, left: int, cell: int, rows: int, columns: int) -> Bins:
        """Return the pixels from row ``top`` and column ``left`` on in cells of a side."""
        result = np.empty((4, rows, columns))

        def work(first: int, last: int) -> None:
            fill_bins(
                self._pixels, self._plane, self._kind.likelihood, self._shape, top, left, cell,
                first, last, result,
            )  # fmt: skip

        threads.in_pieces(work, rows, max(_PIECE // (cell * cell * columns), 1), self._workers)
        return Bins(*result)

    def set_unit(self, level: float, scale: float) -> None:
        """From now on pixels are (counts - level) · scale."""
        rows = self._shape[0] * self._stride
        self._data = aligned(rows)
        self._weights = aligned(rows if len(self._plane.values) else 0)
        self._in_pieces(
            lambda first, last: copy(
                self._pixels, self._plane, self._kind.likelihood, self._shape, self._stride,
                level, scale, first, last, self._data, self._weights,
            )
        )  # fmt: skip

    def least_squares(
        self, shape: Array, amplitude: float, background: float, weighted: bool = True
    ) -> Sums:
        """Return the sums at a shape, in the order of the kernels; the angle in radians."""
        kind = replace(self._kind, likelihood=False)
        kind = kind if weighted else replace(kind, weighted=False)
        return self._sums(kind, shape, (amplitude, background, 1.0, 0.0))

    def noise(self, shape: Array, amplitude: float, background: float, shot: float) -> Array:
        """Return Σ w² n d dᵀ with the variance n = shot · max(amplitude·f + background, 0)."""
        return self._sums(self._kind, shape, (amplitude, background, 0.0, shot)).matrix

    def likelihood(self, shape: Array, amplitude: float, background: float) -> Sums:
        """Return the sums of maximum likelihood; the variance v is in pixels' units."""
        return self._sums(self._kind, shape, (amplitude, background, 1.0, 0.0))

    def _sums(self, kind: Kind, shape: Array, light: tuple[float, ...]) -> Sums:
        count = sums_of(len(shape))
        pieces = -(-self._shape[0] // self._rows)
        totals = np.zeros((pieces, count, WIDTH))
        origin = origin_of(self._profile, shape)
        near = np.array([*(shape[:2] - origin), *shape[2:], *light])
        values = near.astype(np.float32).repeat(WIDTH)

        def work(first: int, last: int) -> None:
            add_rows(
                kind, self._data, self._weights, self._shape, self._stride, origin[0], origin[1],
                values, first, last, aligned(count), totals[first // self._rows].reshape(-1),
            )  # fmt: skip

        self._in_pieces(work)
        numbers = totals.sum(axis=(0, 2))
        if kind.likelihood:
            numbers[-1] *= 2  # half the deviance was added up
        return to_sums(numbers, len(shape))

    def _in_pieces(self, work: Callable[[int, int], None]) -> None:
        threads.in_pieces(work, self._shape[0], self._rows, self._workers)
