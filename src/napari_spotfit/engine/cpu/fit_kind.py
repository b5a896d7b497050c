"""What is the same for all fits of a kind on the CPU, as the library takes it."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from ...settings.settings import Settings
from ..fit_job import make_fit_settings
from .layouts import EXPRESSION_SIZES, FitSettings
from .library import Library, load

if TYPE_CHECKING:
    from .expression import Encoded


def fit_kind(settings: Settings, roi_shape: tuple[int, ...], planes: bool) -> FitKind:
    """Return what is the same for all fits of a kind, in ROIs of up to 32 pixels a side."""
    return _fit_kind(load(), settings, roi_shape, planes)


@lru_cache(maxsize=64)
def _fit_kind(
    library: Library, settings: Settings, roi_shape: tuple[int, ...], planes: bool
) -> FitKind:
    profile, encoded = _profile(library, settings, roi_shape)
    lanes = encoded.lanes if encoded else 0
    return FitKind(
        library, profile, encoded, 2 * settings.estimator_kind.is_likelihood + planes, roi_shape,
        make_fit_settings(settings, roi_shape), settings.threads,
        library.functions.spotfit_fit_bytes(library.index, *roi_shape, lanes),
    )  # fmt: skip


class FitKind(NamedTuple):
    """What is the same for all fits of a kind, and only read."""

    library: Library
    profile: int
    encoded: Encoded | None
    estimator: int
    roi_shape: tuple[int, ...]
    numbers: FitSettings
    threads: int | None
    #: Memory that a thread needs.
    work_bytes: int


def _profile(
    library: Library, settings: Settings, roi_shape: tuple[int, ...]
) -> tuple[int, Encoded | None]:
    """Return a profile's number, and an expression's program, whose memory must outlast fits."""
    expression = settings.profile.expression
    if expression is None:
        return settings.profile.place(settings.pixel), None
    from .expression import encode

    parameters = len(settings.profile.shape)
    number = next(i for i, size in enumerate(EXPRESSION_SIZES) if parameters <= size)
    return library.functions.spotfit_built_in_profiles() + number, encode(expression, roi_shape)
