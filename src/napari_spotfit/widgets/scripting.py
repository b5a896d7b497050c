"""Functions for napari's console and for scripts: fit a layer, and show fits as a layer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Unpack

from ..images.frames import FrameSelection
from ..results.spot_fits import SpotFits
from ..settings.options import Options, takes_settings, with_roi
from ..settings.settings import Settings
from .layers.points import layer_name, make_points_layer, points_arguments
from .napari_compat import is_image, itself, open_viewer

if TYPE_CHECKING:
    from napari import Viewer
    from napari.layers import Image, Layer, Points

    from .fitting.layer_fit import LayerFit


@takes_settings("detection", "fit", "stop", "bounds", "camera", "run")
def fit_layer(
    layer: Image,
    roi_size: int | tuple[int, ...] | None = None,
    *,
    frames: FrameSelection = None,
    maps: Mapping[str, Layer] | None = None,
    viewer: Viewer | None = None,
    settings: Settings | None = None,
    **options: Unpack[Options],
) -> LayerFit:
    """Fit an image layer in the background, as the button of *Fit spots* does.

    The spots are shown as those of the button are: in the layer that an earlier fit of the image
    made, if it was not changed since, else in a new one. Settings that are not given are the
    defaults, not those of *Fit spots*.

    Parameters
    ----------
    layer : napari.layers.Image
        The layer to fit, in a viewer.
    roi_size : int or tuple of int, optional
        Side of the ROI, or rows and columns; odd. By default about 6 σ, at least 9.
    frames : slice, int or indices, or a tuple of these, optional
        Which frames, one choice per leading axis; all by default.
    maps : mapping of str to layer, optional
        Layers that describe the pixels: ``mask``, ``bad_pixels``, ``weights``,
        ``offset``, ``gain`` or ``variance``.
    viewer : napari.Viewer, optional
        The viewer that has the layer; by default the current one.
    settings : Settings, optional
        All settings at once; ``options`` change single ones.

    Returns
    -------
    LayerFit
        ``done`` says whether it has ended, ``wait(timeout)`` waits for that and returns the
        fits, ``cancel()`` stops it, ``stop()`` does so and shows what was found until then;
        ``fits`` are the :class:`~napari_spotfit.SpotFits` and ``layer`` is the Points layer. These
        raise what has ended the fit too early, if something has; then ``layer`` is that of the
        spots found before.

    Raises
    ------
    TypeError, ValueError
        If the layer is no image of one channel in the viewer, or settings or maps are wrong.

    Examples
    --------
    In napari's console::

        fit = napari_spotfit.fit_layer(viewer.layers["molecules"], sigma=1.3)
        fit.wait().good.sum()
    """
    from qtpy.QtWidgets import QApplication

    from .fitting.layer_fit import Job, LayerFit
    from .layers import images
    from .layers.appearance import Look
    from .layers.history import history_of
    from .layers.maps import layer_maps
    from .parts import remember

    settings = with_roi(settings, roi_size, options, fit_layer)
    viewer, layer = _viewer_of(layer, viewer)
    job = Job(
        image=images.full_resolution(layer),
        settings=settings,
        frames=frames,
        maps=layer_maps(layer, {role: itself(one) for role, one in (maps or {}).items()}),
        look=Look.of(remember.load("fit_spots")),
        channels=images.channels_of(layer),
    )
    # With Qt's application as its parent it goes on although no name refers to it.
    fit = LayerFit(layer, job, viewer, QApplication.instance())
    fit.shown.connect(history_of(viewer).shown)
    fit.start()
    return fit


def _viewer_of(layer: Image, viewer: Viewer | None) -> tuple[Viewer, Image]:
    """Return the viewer that has a layer, and the layer, both as they are behind a proxy."""
    import napari

    layer, viewer = itself(layer), itself(viewer or napari.current_viewer())
    if not is_image(layer):
        raise TypeError(f"layer must be an Image layer of napari; got {layer!r}")
    if viewer is None or layer not in viewer.layers:
        raise ValueError(
            f"“{layer.name}” is not a layer of the viewer; add it, or give its own viewer with "
            "viewer=…"
        )
    return viewer, layer


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
