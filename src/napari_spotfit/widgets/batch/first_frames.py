"""The first frames of an image file with the spots of its table, as layers."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...batch.outcome import Outcome
from ...images.files.opening import open_image
from ...results.load import load_fits
from ...results.spot_fits import SpotFits
from ..layers.history import history_of
from ..layers.points import layer_name, make_points_layer, points_arguments
from ..parts.messages import number
from ..parts.work import Steps

if TYPE_CHECKING:
    from napari import Viewer

#: So many along the first axis are opened at most, and so many bytes.
_FRAMES, _BYTES = 100, 256 << 20


class FirstFrames(NamedTuple):
    """What layers are made of."""

    name: str
    image: NDArray[Any]
    #: How many along the first axis there are in all.
    total: int
    #: Of a layer of points; None where there are no spots.
    points: dict[str, Any] | None


def read_first_frames(outcome: Outcome) -> Steps:
    """Read what layers are made of, in a worker thread."""
    yield 0, 1
    path = Path(outcome.file)
    image = open_image(path)
    total, count = (image.shape[0] if image.ndim > 2 else 1), 1
    if image.ndim > 2:
        each = math.prod(image.shape[1:]) * image.dtype.itemsize
        count = max(min(_FRAMES, total, _BYTES // each), 1)
    pixels = np.asarray(image[:count] if image.ndim > 2 else image)
    points = None
    if outcome.output:
        fits = _of_file(load_fits(outcome.output), outcome.file)
        if image.ndim > 2:
            fits = fits[fits.columns[fits.index_names[0]] < count]
        if len(fits):
            points = points_arguments(fits)
    return FirstFrames(path.name, pixels, total, points)


def show_first_frames(viewer: Viewer, found: FirstFrames) -> str:
    """Add the layers; return what is shown."""
    layer = viewer.add_image(found.image, name=found.name)
    spots = 0
    if found.points is not None:
        history_of(viewer)  # so that what is done to it can be undone
        points = make_points_layer(found.points, layer, layer_name(layer))
        viewer.add_layer(points)
        spots = len(points.data)
    which = ""
    if found.image.ndim > 2:
        viewer.dims.set_current_step(0, 0)
        count = len(found.image)
        which = f", all {count} frames" if count == found.total else (
            f", the first {count} of {found.total} frames"
        )  # fmt: skip
    return f"“{found.name}”{which}, with {number(spots)} spots"


def _of_file(fits: SpotFits, file: str) -> SpotFits:
    """Return the spots of one file, of a table that has those of several."""
    if "file" not in fits.columns:
        return fits
    own = fits[np.asarray(fits.columns["file"]) == file]
    columns = {name: values for name, values in own.columns.items() if name != "file"}
    return SpotFits(columns, own.index_names, own.settings)
