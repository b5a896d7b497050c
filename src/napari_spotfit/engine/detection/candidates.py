"""What detection finds, and what it must have, for both twins."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray


class Candidates(NamedTuple):
    """Pixels on which a spot was detected, ordered by frame, y and x."""

    frame: NDArray[np.int64]
    y: NDArray[np.int64]
    x: NDArray[np.int64]
    #: The normal deviate that is as rare as the height in the noise, at most the largest float32.
    score: NDArray[np.float32]
    #: Height in the wide band, in counts.
    height: NDArray[np.float32]


def nothing() -> Candidates:
    """Return no candidates."""
    none = np.empty(0, np.int64)
    zero = np.empty(0, np.float32)
    return Candidates(none, none, none, zero, zero)


def joined(parts: list[Candidates]) -> Candidates:
    """Return the candidates of several parts as one."""
    if len(parts) == 1:
        return parts[0]
    return Candidates(*(np.concatenate(column) for column in zip(*parts, strict=True)))


def masks_of(mask: Any, shape: tuple[int, ...]) -> Any:
    """Return a mask as one for each frame or one for all, (n or 1, Y, X); None stays None.

    Raises
    ------
    ValueError
        If the mask does not fit frames of the shape (n, Y, X).
    """
    if mask is None:
        return None
    if mask.shape not in (shape[1:], shape):
        raise ValueError(f"mask must have the shape {shape[1:]} or {shape}; got {mask.shape}")
    return mask.reshape(-1, *shape[1:]) if mask.size else None
