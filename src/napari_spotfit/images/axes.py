"""What the names of an image's axes say: whether a stack of planes would be fitted as a movie."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

_PLANES = ("z", "plane", "planes", "depth")


def plane_axis(image: Any, names: Sequence[Any] | None = None) -> str | None:
    """Return the name of a leading axis that runs over planes, if it has more than one.

    Parameters
    ----------
    image : array, shape (…, Y, X)
        The image; xarray's have names in ``dims``.
    names : sequence of str, optional
        The axes' names, where something else knows them.

    Examples
    --------
    >>> import numpy as np
    >>> plane_axis(np.zeros((5, 9, 9)), ("z", "y", "x"))
    'z'
    """
    names = getattr(image, "dims", None) if names is None else names
    shape = getattr(image, "shape", ())
    if not isinstance(names, (tuple, list)) or len(names) != len(shape):
        return None
    leading = zip(names[:-2], shape[:-2], strict=True)
    return next(
        (str(name) for name, size in leading if str(name).lower() in _PLANES and size > 1), None
    )


def fitted_by_plane(axis: str) -> str:
    """Say what becomes of a stack of planes."""
    return (
        f"each plane along axis {axis} is fitted by itself: a spot that is seen in 5 planes gives "
        "5 fits, and has no depth"
    )
