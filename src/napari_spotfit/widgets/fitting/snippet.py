"""A fit as Python that runs in napari's console, or as a script."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from ...files.settings_file import literal, settings_as_python
from ...settings.settings import Settings
from ..layers.images import own_pixels
from .camera_form import QUANTITIES

if TYPE_CHECKING:
    from napari.layers import Image

#: Chosen frames as plain values; see :func:`~.fit_run.plain_frames`.
PlainFrames = list[list[int] | int | None] | None


_DEFAULTS = Settings()


@dataclass(frozen=True)
class Fit:
    """What makes a fit what it is.

    Parameters
    ----------
    settings : Settings
        Those of a result have all that was estimated.
    image : str
        The name of the image's layer.
    frames : list or None
        The chosen frames.
    maps : mapping of str to str
        The names of the layers that say something of the pixels, by what they say.
    refits : int
        How many of its spots were fitted again since, with settings of their own.
    """

    settings: Settings
    image: str
    frames: PlainFrames = None
    maps: Mapping[str, str] = field(default_factory=dict)
    refits: int = 0


def fit_as_python(fit: Fit, layer: Image | None = None) -> str:
    """Return Python that fits the same spots to the bit, and shows them.

    In a script it opens the image where that came from a file or a sample; else it takes a viewer
    that has it.

    Parameters
    ----------
    fit : Fit
        What was fitted, and how.
    layer : Image, optional
        The image's layer, if it is open.
    """
    lines = ["import napari", "import napari_spotfit"]
    if fit.maps:
        lines.append("from napari_spotfit.widgets.layers.maps import layer_maps")
    # Of what a map says, a result's settings have the mean: no second word on it is accepted.
    without = {name: getattr(_DEFAULTS, name) for name in QUANTITIES if name in fit.maps}
    lines += ["", f"settings = {settings_as_python(fit.settings.changed(**without))}"]
    lines.append("viewer = napari.current_viewer() or napari.Viewer()")
    if layer is not None and (opening := _opening(layer, fit.image)):
        lines += [f"if {fit.image!r} not in viewer.layers:", f"    {opening}"]
    lines.append(f"image = viewer.layers[{fit.image!r}]")
    arguments = [_pixels(layer), "settings=settings"]
    if fit.frames is not None:
        arguments.append(f"frames={_frames(fit.frames)}")
    if fit.maps:
        named = ", ".join(f"{role!r}: viewer.layers[{name!r}]" for role, name in fit.maps.items())
        lines.append(f"maps = layer_maps(image, {{{named}}}).read()")
        arguments.append("**maps")
    lines.append(f"fits = napari_spotfit.localize({', '.join(arguments)})")
    if fit.refits:
        lines.append(
            f"# Not as in the layer: {fit.refits} of its spots, which Inspect spot has fitted"
        )
        lines.append("# again with other settings. Its feature refit says which.")
    lines.append("viewer.add_layer(napari_spotfit.to_points_layer(fits, image))")
    return "\n".join((*lines, ""))


def _pixels(layer: Image | None) -> str:
    pixels = "image.data[0]" if layer is not None and layer.multiscale else "image.data"
    boolean = layer is not None and own_pixels(layer).dtype == np.bool_
    return f'{pixels}.astype("uint8")' if boolean else pixels


def _opening(layer: Image, name: str) -> str:
    """Return what opens a layer's image again; nothing if it came from nowhere."""
    source = layer.source
    if source.sample:
        plugin, sample = source.sample
        return f"viewer.open_sample({plugin!r}, {sample!r})"
    if source.path:
        plugin = f", plugin={source.reader_plugin!r}" if source.reader_plugin else ""
        return f"viewer.open({str(source.path)!r}{plugin})[0].name = {name!r}"
    return ""


def _frames(frames: list[Any]) -> str:
    """Return chosen frames as ``localize`` takes them."""
    axes = [
        "slice(None)"
        if along is None
        else literal(int(along))
        if not isinstance(along, list)
        else f"slice({int(along[0])}, {int(along[1])})"
        for along in frames
    ]
    return axes[0] if len(axes) == 1 else f"({', '.join(axes)})"
