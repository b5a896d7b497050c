"""Results to napari layers, for scripts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..results.spot_fits import SpotFits
from .layers.points import layer_name, make_points_layer, points_arguments
from .napari_compat import open_viewer

if TYPE_CHECKING:
    from napari.layers import Image, Points


def to_points_layer(
    fits: SpotFits,
    image_layer: Image | None = None,
    *,
    name: str | None = None,
    face: str | None = None,
) -> Points:
    """Return a napari layer that shows fitted spots.

    Each spot is a ring around its centre, a doubtful one a large ×. Its face colour is the
    fitted width, its border colour the stop condition; hovering shows every other quantity.
    Invalid fits are not drawn.

    Parameters
    ----------
    fits : SpotFits
        Fits with their place in an image, from ``localize`` or ``fit_at``.
    image_layer : napari.layers.Image, optional
        The image that was fitted; the points take over its scale, translation,
        rotation, shear, affine transform, units, axis labels and name.
    name : str, optional
        Name of the layer; the default is made from the image's name.
    face : str, optional
        The column that colours the faces; by default the first of the widths, which is
        ``sigma`` for round spots.

    Returns
    -------
    napari.layers.Points
        Its ``features`` are the columns of `fits`; its ``metadata`` holds their
        ``units``, the ``settings`` they were made with, the ``stop_counts``, the number of
        ``invalid`` fits, and the ``unique_id`` of the ``image`` layer.
    """
    if not isinstance(fits, SpotFits):
        raise TypeError(f"fits must be SpotFits, such as localize returns; got {fits!r}")
    if name is None:
        name = layer_name(image_layer) if image_layer is not None else "spots"
    layer = make_points_layer(points_arguments(fits, face), image_layer, name)
    if (viewer := open_viewer()) is not None:
        from .layers.history import history_of

        # So what is done to the layer can be undone, once a script has added it.
        history_of(viewer)
    return layer
