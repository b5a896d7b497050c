"""Everything fragile in napari: what is private, differs between versions, or is wrapped.

All other modules use its documented ways only. ``tests/widgets/test_napari_compat.py`` tries what
this module has, ``make test-napari`` with every version that is supported: where napari changes,
that test fails, and this module is to be changed. Qt is imported where it is needed: layers are
made without it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from threading import current_thread, main_thread
from typing import TYPE_CHECKING, Any, TypeGuard, TypeVar

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
    from napari import Viewer
    from napari.layers import Image, Labels, Points, Shapes
    from numpy.typing import NDArray
    from qtpy.QtWidgets import QMainWindow, QWidget

_T = TypeVar("_T")

#: A layer as readers give it to napari: its data, how it is made, and its kind.
LayerData = tuple[Any, dict[str, Any], str]


def open_viewer() -> Viewer | None:
    """Return the viewer that was in front last; None without one, and outside the main thread."""
    # Without Qt imported there is no window, and napari would import it to find out.
    if "qtpy.QtWidgets" not in sys.modules or current_thread() is not main_thread():
        return None
    from napari import current_viewer

    viewer: Viewer | None = current_viewer()
    return viewer


def itself(one: _T) -> _T:
    """Return what napari has wrapped for a widget or the console, or the thing itself.

    A widget gets a proxy of the viewer from napari's menu, and from that proxies of layers: none of
    them *is* the layer that an event names.
    """
    return getattr(one, "__wrapped__", one)


def is_image(layer: Any) -> TypeGuard[Image]:
    """Whether a layer is an Image layer; one of Labels is none."""
    from napari.layers import Image

    return isinstance(itself(layer), Image)


def is_labels(layer: Any) -> TypeGuard[Labels]:
    """Whether a layer is a Labels layer."""
    from napari.layers import Labels

    return isinstance(itself(layer), Labels)


def is_shapes(layer: Any) -> TypeGuard[Shapes]:
    """Whether a layer is a Shapes layer."""
    from napari.layers import Shapes

    return isinstance(itself(layer), Shapes)


def is_points(layer: Any) -> TypeGuard[Points]:
    """Whether a layer is a Points layer."""
    from napari.layers import Points

    return isinstance(itself(layer), Points)


def camera_of(viewer: Viewer) -> Any:
    """Return the camera, which is a part of the scene since 0.9."""
    return getattr(viewer, "scene", viewer).camera


def main_window(viewer: Viewer) -> QMainWindow | None:
    """Return the window of a viewer; a model of one has none, nor has a viewer that was closed."""
    from qtpy.QtWidgets import QMainWindow

    found = getattr(getattr(itself(viewer), "window", None), "_qt_window", None)
    try:
        return found if isinstance(found, QMainWindow) and found.isWindow() else None
    except RuntimeError:  # Qt has deleted it
        return None


def canvas_beside(widget: QWidget) -> QWidget | None:
    """Return the canvas of the window in which a widget is docked."""
    from qtpy.QtWidgets import QMainWindow, QWidget

    window: QWidget | None = widget
    while window is not None and not isinstance(window, QMainWindow):
        window = window.parentWidget()
    if window is None:
        return None
    drawn = (one for one in window.findChildren(QWidget) if one.inherits("QOpenGLWidget"))
    return next(drawn, None)


def ask_for_files(viewer: Viewer) -> None:
    """Show napari's own dialog of File ▸ Open, which knows the readers of all plugins."""
    itself(viewer).window._qt_viewer._open_files_dialog()


@cache
def draws_hidden_points() -> bool:
    """Whether what is not shown is drawn once all axes of a layer are displayed (0.9)."""
    from napari.layers import Points

    return Points([[0.0, 0.0]], shown=False).get_value((0.0, 0.0)) is not None


def colored_by(points: Points, part: str) -> str:
    """Return the feature that colours the ``"face"`` or ``"border"`` of points, or nothing."""
    if getattr(points, f"{part}_color_mode") == "direct":
        return ""
    by = getattr(points, f"_{part}").color_properties
    return "" if by is None else str(by.name)


def follow_no_feature(points: Points, *parts: str) -> None:
    """Let the ``"face"`` or ``"border"`` colours be as they are, whatever becomes of features.

    Else napari goes on to look for the feature that coloured them, and shows a warning where the
    next table does not have it.
    """
    own = itself(points)
    for part in parts:
        setattr(points, f"{part}_color_mode", "direct")
        getattr(own, f"_{part}").color_properties = None


def select_points(points: Points, rows: set[int]) -> None:
    """Select points, many of them quickly.

    By assignment napari would work out colours for points to come, a second for a million.
    """
    points.selected_data.replace_selection(rows)
    points.refresh(extent=False, thumbnail=False, data_displayed=False)


def deletes(event: Any) -> str:
    """Return whether an event of a layer's data comes before or after napari deletes points.

    Returns
    -------
    str
        ``"before"`` they go, ``"after"`` they went; nothing for all other events.
    """
    action = str(getattr(event, "action", ""))
    return {"removing": "before", "removed": "after"}.get(action, "")


def added_rows(event: Any) -> tuple[int, ...]:
    """Return the points that an event of a layer's data says were added, counted from the end."""
    added = str(getattr(event, "action", "")) == "added"
    return tuple(int(row) for row in event.data_indices) if added else ()


@contextmanager
def quiet(points: Points, *events: str) -> Iterator[None]:
    """Change points without emitting some events: the canvas is redrawn on each of them."""
    with ExitStack() as stack:
        for name in events:
            stack.enter_context(points.events[name].blocker())
        yield


@contextmanager
def refreshed_once(points: Points, *, moved: bool = True, thumbnail: bool = True) -> Iterator[None]:
    """Work out once, at the end, what a layer shows: napari does so at every change.

    Parameters
    ----------
    points : napari.layers.Points
        The layer that is changed meanwhile.
    moved : bool
        Whether points come, go, move or get another size. Where they stay, so does the layer's
        extent, which takes napari most of the time, and the thumbnail.
    thumbnail : bool
        Whether the thumbnail follows now. Each time that it does, Qt draws the whole window.
    """
    own = itself(points)
    with ExitStack() as stack:
        stack.enter_context(own._block_refresh())
        for colors in (own._face, own._border):
            for name in ("colors", "color_properties"):
                stack.enter_context(colors.events[name].blocker())
        quieted = ("face_color", "border_color", "border_width", "symbol", "highlight")
        stack.enter_context(quiet(own, *quieted))
        yield
    points.refresh(extent=moved, thumbnail=moved and thumbnail)


def show_across(viewer: Viewer, points: Points, axis: int, planes: float) -> None:
    """Draw points of a volume in the planes beside theirs, too, smaller and smaller."""
    axis += viewer.dims.ndim - points.ndim
    if hasattr(viewer.dims, "margin_left") and "rescale_linear" in _projections():
        points.projection_mode = "rescale_linear"
        step = float(viewer.dims.range[axis][2])
        for side in ("margin_left", "margin_right"):
            margins = list(getattr(viewer.dims, side))
            margins[axis] = max(margins[axis], planes * step)
            setattr(viewer.dims, side, tuple(margins))
    else:
        points.out_of_slice_display = True


@cache
def _projections() -> frozenset[str]:
    """Return the ways in which napari shows points of a thick slice."""
    try:
        from napari.layers.points._points_constants import PointsProjectionMode
    except ImportError:
        return frozenset()
    return frozenset(str(one) for one in PointsProjectionMode)


@contextmanager
def unlisted(viewer: Viewer, points: Points, *, inside: bool) -> Iterator[None]:
    """Change points, but nothing that the layer list shows of them.

    It is drawn at any event of any layer, and Qt then draws the whole window once more.

    Parameters
    ----------
    viewer : napari.Viewer
        The viewer.
    points : napari.layers.Points
        The layer that is changed meanwhile.
    inside : bool
        Whether its points stay inside another layer: then the ranges of the sliders stay, too,
        which the viewer works out again at any event of the data.
    """
    with ExitStack() as stack:
        stack.enter_context(viewer.layers.events.blocker())
        if inside:
            stack.enter_context(points.events.data.blocker(itself(viewer)._on_layers_change))
        yield


def draw_thumbnail(points: Points) -> None:
    """Draw the thumbnail of points."""
    points.refresh(extent=False, data_displayed=False, highlight=False)


def set_points(points: Points, data: NDArray[np.float64], features: pd.DataFrame) -> None:
    """Set the places and the features of points with one event of each, at the end.

    By assignment napari emits the data twice, and the viewer works out the extents of all layers
    each time; it fills up the earlier features and looks up a default for every column.
    """
    own = itself(points)
    table, features = own._feature_table, features.reset_index(drop=True)
    if len(features):
        table._values, table._defaults = features, features.iloc[-1:].reset_index(drop=True)
    with quiet(own, "features", "data"):
        own.data = data.copy()
    if len(features):
        own._update_color_manager(own._face, table, "face_color")
        own._update_color_manager(own._border, table, "border_color")
    else:
        with quiet(own, "properties", "features"):
            own.features = features
    own.text.refresh(own.features)
    rows = tuple(range(len(data)))
    own.events.data(value=own.data, action="changed", data_indices=rows, vertex_indices=((),))
    own.events.properties()
    own.events.features()
