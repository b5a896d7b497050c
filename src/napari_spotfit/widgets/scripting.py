"""Functions for napari's console and for scripts: fit a layer, and show fits as a layer."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Unpack

from ..images.frames import FrameSelection
from ..models.number_checks import shown
from ..results.spot_fits import SpotFits, on_host
from ..settings.options import Options, in_dimensions, merged, takes_settings
from ..settings.settings import Settings
from .layers.points import layer_name, make_points_layer, points_arguments
from .napari_compat import is_image, itself, open_viewer

if TYPE_CHECKING:
    from napari import Viewer
    from napari.layers import Image, Layer, Points

    from .fitting.layer_fit import LayerFit


@takes_settings("detection", "fit", "stop", "bounds", "camera", "optics", "run", volumes=True)
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
    settings = merged(settings, _with_roi(options, roi_size), fit_layer)
    viewer, layer = _viewer_of(layer, viewer)
    (fit,) = _start([layer], viewer, settings, frames, maps, skip=False)
    return fit


@takes_settings("detection", "fit", "stop", "bounds", "camera", "optics", "run", volumes=True)
def fit_layers(
    layers: Iterable[Image],
    viewer: Viewer | None = None,
    *,
    roi_size: int | tuple[int, ...] | None = None,
    frames: FrameSelection = None,
    maps: Mapping[str, Layer] | None = None,
    settings: Settings | None = None,
    **options: Unpack[Options],
) -> dict[str, LayerFit]:
    """Fit several image layers, one after the other in the background, with shared settings.

    σ and noise are each image's own, where they are not given. The spots of each image are shown
    in a layer of one colour each, once all are fitted; they are undone together.

    Parameters
    ----------
    layers : iterable of napari.layers.Image
        The layers to fit, in one viewer.
    viewer : napari.Viewer, optional
        The viewer that has the layers; by default the current one.
    roi_size : int or tuple of int, optional
        Side of the ROI, or rows and columns; odd. By default about 6 σ of each, at least 9.
    frames : slice, int or indices, or a tuple of these, optional
        Which frames of each, one choice per leading axis; all by default.
    maps : mapping of str to layer, optional
        Layers that describe the pixels of all, as :func:`fit_layer` takes them.
    settings : Settings, optional
        All settings at once; ``options`` change single ones.

    Returns
    -------
    dict of str to LayerFit
        By the name of the layer, what :func:`fit_layer` returns. An image that cannot be fitted
        has the reason as the ``error`` of its fit; the others are fitted.

    Raises
    ------
    TypeError, ValueError
        If one is no image layer of the viewer, or the settings are wrong.

    Examples
    --------
    In napari's console::

        fits = napari_spotfit.fit_layers(viewer.layers.selection, sigma=1.3)
        {name: fit.wait().good.sum() for name, fit in fits.items()}
    """
    settings = merged(settings, _with_roi(options, roi_size), fit_layers)
    chosen = []
    for layer in layers:
        viewer, own = _viewer_of(layer, viewer)
        chosen.append(own)
    if viewer is None:
        raise ValueError("layers must have an image layer at least; got none")
    ordered = [layer for layer in viewer.layers if layer in chosen]
    fits = _start(ordered, viewer, settings, frames, maps, skip=True)
    return {fit.image.name: fit for fit in fits}


def _with_roi(options: Options, roi_size: int | tuple[int, ...] | None) -> dict[str, Any]:
    return {**options} if roi_size is None else {**options, "roi_size": roi_size}


def _start(
    layers: list[Image],
    viewer: Viewer,
    settings: Settings,
    frames: FrameSelection,
    maps: Mapping[str, Layer] | None,
    *,
    skip: bool,
) -> list[LayerFit]:
    """Start to fit layers; skip those that cannot be fitted, or raise what is wrong."""
    from qtpy.QtWidgets import QApplication

    from .fitting.image_fit import FitRequest
    from .fitting.layer_fit import FitRun, fits_of, request_of
    from .layers.appearance import Look
    from .layers.history import history_of
    from .layers.images import in_its_axes
    from .parts import remember

    known = {role: itself(one) for role, one in (maps or {}).items()}

    def make(layer: Image, look: Look) -> FitRequest:
        # Whether spots are in volumes, the layer says.
        in_dimensions(in_its_axes(settings, layer), None, {"sigma_z": settings.sigma_z})
        return request_of(layer, settings, known, frames, look=look)

    fits = fits_of(layers, viewer, Look.of(remember.load("fit_spots")), make, skip=skip)
    # With Qt's application as its parent it goes on although no name refers to it.
    run = FitRun(fits, QApplication.instance())
    run.shown.connect(history_of(viewer).shown)
    run.start()
    return fits


def _viewer_of(layer: Image, viewer: Viewer | None) -> tuple[Viewer, Image]:
    """Return the viewer that has a layer, and the layer, both as they are behind a proxy."""
    _check_napari()
    import napari

    layer, viewer = itself(layer), itself(viewer or napari.current_viewer())
    _check_image("layer", layer)
    if viewer is None or layer not in viewer.layers:
        raise ValueError(
            f"“{layer.name}” is not a layer of the viewer; add it, or give its own viewer with "
            "viewer=…"
        )
    return viewer, layer


def _check_image(what: str, layer: Any) -> None:
    """Raise a TypeError if something is no image layer."""
    if not is_image(layer):
        raise TypeError(f"{what} must be an Image layer of napari; got {shown(layer)}")


def _check_napari() -> None:
    """Raise an error if napari is not installed."""
    if find_spec("napari") is None:
        raise ImportError('layers need napari, which is missing: pip install "napari-spotfit[all]"')


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

    Examples
    --------
    >>> from napari_spotfit import localize, simulate_movie, to_points_layer
    >>> movie, truth = simulate_movie(2, shape=(64, 64), spots_per_frame=5, seed=1)
    >>> fits = localize(movie)
    >>> layer = to_points_layer(fits, name="spots")
    >>> layer.name, len(layer.data) == len(fits)
    ('spots', True)
    """
    fits = on_host(fits)
    _check_napari()
    if image_layer is not None:
        _check_image("image_layer", image_layer)
    if name is None:
        name = layer_name(image_layer) if image_layer is not None else "spots"
    made = points_arguments(fits, face)
    if face not in (None, made["metadata"]["face"]):
        columns = ", ".join(made["features"])
        raise ValueError(f"face must be a column of the fits, {columns}; got {shown(face)}")
    layer = make_points_layer(made, image_layer, name)
    if (viewer := open_viewer()) is not None:
        from .layers.history import history_of

        # So what is done to the layer can be undone, once a script has added it.
        history_of(viewer)
    return layer


def to_image_layer(
    fits: SpotFits,
    image_layer: Image | None = None,
    *,
    name: str | None = None,
    by: str | float = "precision",
    colour_by: str | None = None,
) -> Image:
    """Return a napari layer that shows localisations as a super-resolved image.

    It is drawn as finely as the viewer shows it, a tile at a time, so that tens of millions of
    localisations pan and zoom. Its values are localisations per camera pixel.

    Parameters
    ----------
    fits : SpotFits
        Localisations, such as ``fits[fits.good]``.
    image_layer : napari.layers.Image, optional
        The image that was fitted, on which it lies.
    name : str, optional
        Name of the layer; the default is made from the image's name.
    by, colour_by
        As in :func:`render`.

    Returns
    -------
    napari.layers.Image
        A layer with several levels of resolution.

    Raises
    ------
    ValueError
        As :func:`render`.

    Examples
    --------
    >>> from napari_spotfit import localize, simulate_movie, to_image_layer
    >>> movie, truth = simulate_movie(2, shape=(64, 64), spots_per_frame=5, seed=1)
    >>> fits = localize(movie)
    >>> to_image_layer(fits[fits.good]).name
    'rendered'
    """
    _check_napari()
    if image_layer is not None:
        _check_image("image_layer", image_layer)
    from napari.layers import Image

    from ..analysis.render import RenderIndex
    from .layers.images import full_resolution
    from .layers.rendered_image import RenderedImage, layer_arguments

    shape = None if image_layer is None else full_resolution(image_layer).shape
    index = RenderIndex(fits, shape=shape, by=by, colour_by=colour_by)
    if name is None:
        name = "rendered" if image_layer is None else f"{image_layer.name} rendered"
    return Image(**layer_arguments(RenderedImage(index, ahead=True), image_layer, name))
