"""Write super-resolved images as OME-TIFF."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .writing import unfinished

#: Endings of OME-TIFF; from so many bytes on, the file is a BigTIFF.
ENDINGS = (".ome.tif", ".ome.tiff", ".tif", ".tiff")
_BIG = 1 << 31


def write_rendered(
    path: Path, image: NDArray[np.float32], *, coloured: bool, nm: Sequence[float] | None
) -> None:
    """Write an image or a volume with the size of its pixels.

    Parameters
    ----------
    path : Path
        Its name ends in .tif or .tiff.
    image : ndarray
        Axes (y, x) or (z, y, x), and the colours.
    coloured : bool
        Whether the last axis is of colours.
    nm : sequence of float, optional
        Sizes of a pixel along y and x, or z, y and x, if known.

    Raises
    ------
    ValueError
        If the name ends otherwise.
    OSError
        If the file cannot be written.
    """
    from tifffile import imwrite

    if not path.name.lower().endswith(ENDINGS):
        raise ValueError(f"the name of the image must end in .tif or .tiff; got “{path.name}”")
    axes = "ZYX"[-(image.ndim - coloured) :]
    metadata: dict[str, Any] = {"axes": f"{axes}S" if coloured else axes}
    for axis, size in zip(axes, nm or (), strict=False):
        metadata |= {f"PhysicalSize{axis}": float(size), f"PhysicalSize{axis}Unit": "nm"}
    with unfinished(path) as part:
        imwrite(
            part, image, ome=True, metadata=metadata, bigtiff=image.nbytes > _BIG,
            photometric="rgb" if coloured else "minisblack",
        )  # fmt: skip
