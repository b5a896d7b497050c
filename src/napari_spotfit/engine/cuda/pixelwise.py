"""How fits that visit every pixel are laid out over a GPU's threads, and what they read.

These are all but the separable ones whose pixels count alike: ``kernels/fit_pixelwise.cu``.
"""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...models.profiles import Profile
from ...settings.settings import Settings
from .layout import PIXEL_TYPES, SHARED_BYTES, is_custom, kept_numbers, model_macros, packed

#: Where the planes are (their values, whether each frame has one), as kernels/room.cuh says.
_PLANES = struct.Struct("Qi4x")

#: Numbers of shared memory that a lane has for its own rows; more lanes share larger fits.
_NUMBERS = 128
#: How many warps share a multiprocessor at least, by how many sums and profile values a thread
#: keeps in its registers: 16 warps leave it 128 of them, 12 warps 168, 8 warps all that it can
#: have.
_WARPS = ((44, 16), (72, 12))
_FEWEST_WARPS = 8


@lru_cache(maxsize=1024)
def lanes(rows: int, columns: int, planes: bool) -> int:
    """Return how many threads share a fit; each has some rows of it.

    Examples
    --------
    >>> lanes(9, 9, planes=False), lanes(9, 9, planes=True), lanes(32, 32, planes=True)
    (1, 2, 16)
    """
    numbers = columns * (2 if planes else 1)
    shared = 1
    while shared < 16 and shared < rows and -(-rows // shared) * numbers > _NUMBERS:
        shared *= 2
    return shared


def macros(
    roi_shape: tuple[int, int], pixel: np.dtype[Any], gather: bool, planes: bool, settings: Settings
) -> dict[str, int | str]:
    """Return the compile-time numbers of ``kernels/fit_pixelwise.cu``."""
    rows, columns = roi_shape
    shared = lanes(rows, columns, planes)
    likely = settings.estimator == "mle"
    shape = len(settings.profile.shape)
    kept = kept_numbers(shape, shape + 2 if likely else shape)
    segment = -(-rows // shared) * columns | 1
    warp_bytes = 4 * 32 * (segment * (2 if planes else 1) + kept)
    warps = 2 if 2 * warp_bytes <= SHARED_BYTES else 1
    numbers = (shape + 2) * (shape + 3) // 2 + (3 * columns if settings.profile.separable else 0)
    at_once = next((warps for most, warps in _WARPS if numbers <= most), _FEWEST_WARPS)
    return model_macros(settings) | {
        "LIKELIHOOD": int(likely), "PLANES": int(planes),
        "ROWS": rows, "COLUMNS": columns, "LANES_Y": shared, "PIXEL": PIXEL_TYPES[pixel.str[1:]],
        "GATHER": int(gather), "WARPS": warps, "BLOCKS": at_once // warps,
    }  # fmt: skip


def before(profile: Profile) -> str:
    """Return the C++ of somebody's own profile, nothing for ours."""
    if not is_custom(profile):
        return ""
    from ...models.expressions import to_cuda

    return to_cuda(profile)


def planes(address: int, more: bool) -> NDArray[Any]:
    """Return the kernel's argument for planes at an address, one for all or more."""
    return packed(_PLANES, address, more)


@lru_cache(maxsize=16)
def first(profile: Profile) -> NDArray[Any]:
    """Return the kernel's argument for how start values follow from the estimated σ."""
    y, x, *widths = (parameter.start for parameter in profile.shape)
    values, multiples = zip(x, y, *widths, strict=True)
    return packed(struct.Struct(f"{2 * len(values)}f"), *values, *multiples)
