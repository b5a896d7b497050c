"""What is the same for all fits of a kind on the CPU, as the library takes it."""

from __future__ import annotations

import ctypes
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from ...settings.settings import Settings
from ...settings.validation import ROI_MAX
from ..fit_job import make_fit_settings
from ..kernel_arguments import shape_of_roi
from .layouts import EXPRESSION_SIZES, FitSettings
from .library import Library, load

if TYPE_CHECKING:
    from ..lattice import EncodedPsf
    from .expression import Encoded

#: Rows and vectors of a block of pixels of large ROIs that the library works on, at most.
_ROWS_OF_BLOCK, _VECTORS_OF_BLOCK = 32, 32


def fit_kind(settings: Settings, roi_shape: tuple[int, ...], planes: bool) -> FitKind:
    """Return what is the same for all fits of a kind."""
    return _fit_kind(load(), settings, roi_shape, planes)


@lru_cache(maxsize=64)
def _fit_kind(
    library: Library, settings: Settings, roi_shape: tuple[int, ...], planes: bool
) -> FitKind:
    profile = _profile_number(library, settings, roi_shape)
    encoded = _encoded(library, settings, roi_shape)
    lanes = encoded.lanes if encoded else 0
    roi = shape_of_roi(roi_shape)
    return FitKind(
        library, profile, encoded, 2 * settings.estimator_kind.is_likelihood + planes,
        make_fit_settings(settings, roi_shape),
        library.functions.spotfit_fit_bytes(library.index, profile, ctypes.byref(roi), lanes),
    )  # fmt: skip


class FitKind(NamedTuple):
    """What is the same for all fits of a kind, and only read."""

    library: Library
    profile: int
    encoded: Encoded | EncodedPsf | None
    estimator: int
    numbers: FitSettings
    #: Memory that a thread needs.
    work_bytes: int


def _profile_number(library: Library, settings: Settings, roi_shape: tuple[int, ...]) -> int:
    """Return a profile's number; expressions come late, by the number of their parameters."""
    if settings.profile.lattice is not None:
        built_in: int = library.functions.spotfit_built_in_profiles()
        return built_in + len(EXPRESSION_SIZES)
    if settings.profile.expression is None:
        return settings.profile.place(settings.pixel)
    parameters = len(settings.profile.shape)
    place = next(i for i, size in enumerate(EXPRESSION_SIZES) if parameters <= size)
    built_in = library.functions.spotfit_built_in_profiles()
    return built_in + (place if max(roi_shape) <= ROI_MAX else parameters - EXPRESSION_SIZES[0])


def _encoded(
    library: Library, settings: Settings, roi_shape: tuple[int, ...]
) -> Encoded | EncodedPsf | None:
    """Return the constants of a profile, whose memory must outlast fits."""
    if settings.profile.lattice is not None:
        from .. import lattice

        lane_width = library.functions.spotfit_lane_width(library.index)
        return lattice.encode(settings.profile.lattice, roi_shape, lane_width)
    if settings.profile.expression is None:
        return None
    from .expression import encode

    if max(roi_shape) > ROI_MAX:
        vectors = -(-roi_shape[1] // library.functions.spotfit_lane_width(library.index))
        roi_shape = _ROWS_OF_BLOCK, min(vectors, _VECTORS_OF_BLOCK)
    return encode(settings.profile.expression, roi_shape)
