"""What the button Fit does, from napari's console or a script."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Unpack

from ..images.frames import FrameSelection
from ..settings.options import Options, takes_settings, with_roi
from ..settings.settings import Settings
from .napari_compat import is_image, itself

if TYPE_CHECKING:
    from napari import Viewer
    from napari.layers import Image, Layer

    from .fitting.layer_fit import LayerFit


@takes_settings("detection", "fit", "stop", "bounds", "camera", "run")
def fit_layer(
    layer: Image,
    roi_size: int | tuple[int, int] | None = None,
    *,
    frames: FrameSelection = None,
    maps: Mapping[str, Layer] | None = None,
    viewer: Viewer | None = None,
    settings: Settings | None = None,
    **options: Unpack[Options],
) -> LayerFit:
    """Fit an image layer in the background, as the button of *Fit spots* does.

    The spots come where those of the button come: into the layer that an earlier fit of the
    image made and nobody has changed since, else into a new one. Settings that are not given
    are the defaults, whatever *Fit spots* shows.

    Parameters
    ----------
    layer : napari.layers.Image
        The layer to fit, in a viewer.
    roi_size : int or (int, int), optional
        Side of the ROI, or rows and columns; odd. By default about 6 σ, at least 9.
    frames : slice, int or indices, or a tuple of these, optional
        Which frames, one choice per leading axis; all by default.
    maps : mapping of str to layer, optional
        Layers that say something of the pixels: ``mask``, ``bad_pixels``, ``weights``,
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

    from .fitting.fit_run import Job
    from .fitting.layer_fit import LayerFit
    from .layers import images
    from .layers.colors import COLORMAPS, FACE_COLORMAP
    from .layers.history import history_of
    from .layers.maps import layer_maps
    from .layers.marks import MARKS
    from .layers.result_layers import ResultLayers
    from .parts import remember

    settings = with_roi(settings, roi_size, options, fit_layer)
    viewer, layer = _viewer_of(layer, viewer)
    kept = remember.load("fit_spots")
    colormap, mark = kept.get("colormap"), kept.get("mark")
    job = Job(
        image=images.full_resolution(layer),
        settings=settings,
        frames=frames,
        maps=layer_maps(layer, {role: itself(one) for role, one in (maps or {}).items()}),
        face=str(kept.get("face", "sigma")),
        colormap=colormap if colormap in COLORMAPS else FACE_COLORMAP,
        mark=mark if mark in MARKS else "ring",
    )
    # With Qt's application as its parent it goes on should nobody keep the handle.
    fit = LayerFit(layer, job, ResultLayers(viewer), QApplication.instance())
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
            f"“{layer.name}” is in no viewer that is current; add it to one, or say which with "
            "viewer=…"
        )
    return viewer, layer
