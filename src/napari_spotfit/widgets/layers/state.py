"""The state of a layer of spots, as a value that can be restored."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..napari_compat import follow_no_feature, set_points
from . import appearance

if TYPE_CHECKING:
    import pandas as pd
    from napari.layers import Points

#: The metadata of how the spots are shown, which the user may have changed since.
_VIEW = ("face", "face_limits", "filters", appearance.MARK)


class LayerState(NamedTuple):
    """The spots of a layer, with their features, looks and selection."""

    #: Indices along the leading axes, y and x.
    data: NDArray[np.float64]
    features: pd.DataFrame
    #: Rows of the selected spots.
    selected: frozenset[int]
    metadata: dict[str, Any]
    shown: NDArray[np.bool_]
    size: NDArray[np.float64]
    symbol: NDArray[Any]
    #: Colours of faces and borders where they follow no feature.
    face_color: NDArray[Any] | None
    border_color: NDArray[Any] | None

    @classmethod
    def of(cls, layer: Points) -> LayerState:
        """Return what a layer shows.

        Of napari's arrays only the points are copied: the others it replaces when they change.
        """
        return cls(
            layer.data.copy(),
            layer.features,
            frozenset(int(row) for row in layer.selected_data),
            dict(layer.metadata),
            np.array(layer.shown),
            appearance.sizes_when_shown(layer.size, layer.metadata, len(layer.data)),
            np.array(layer.symbol),
            layer.face_color.copy() if layer.face_color_mode == "direct" else None,
            layer.border_color.copy() if layer.border_color_mode == "direct" else None,
        )

    @property
    def nbytes(self) -> int:
        """Memory that it takes, about."""
        return self.data.nbytes + 8 * int(self.features.size) + 10 * len(self.data)


class LayerView(NamedTuple):
    """How the spots of a layer are shown."""

    #: The metadata of it.
    metadata: dict[str, Any]
    shown: NDArray[np.bool_]
    colormap: Any
    #: Colours of the faces where they follow no feature.
    face_color: NDArray[Any] | None

    @classmethod
    def of(cls, layer: Points) -> LayerView:
        """Return how a layer's spots are shown."""
        return cls(
            {name: layer.metadata[name] for name in _VIEW if name in layer.metadata},
            np.array(layer.shown),
            layer.face_colormap,
            layer.face_color.copy() if layer.face_color_mode == "direct" else None,
        )

    @property
    def nbytes(self) -> int:
        """Memory that it takes."""
        return self.shown.nbytes + (0 if self.face_color is None else self.face_color.nbytes)


def put_view(layer: Points, view: LayerView, ndisplay: int) -> None:
    """Show the spots of a layer as before."""
    now = LayerView.of(layer)
    others = {name: one for name, one in layer.metadata.items() if name not in _VIEW}
    # Without filters in the metadata, widgets would keep theirs.
    layer.metadata = {**others, "filters": {}, **view.metadata}
    face = view.metadata.get("face", "")
    if face == appearance.OWN_COLOR:
        appearance.color_faces(layer, face)
    elif view.face_color is not None and len(view.face_color) == len(layer.data):
        layer.face_color_mode = "direct"
        layer.face_color = view.face_color
    elif face in layer.features and _colors(now) != _colors(view):
        appearance.color_faces(layer, face, view.colormap, view.metadata.get("face_limits"))
    if now.metadata.get(appearance.MARK) != view.metadata.get(appearance.MARK):
        appearance.draw_marks(layer)
    if len(view.shown) == len(layer.data) and not np.array_equal(view.shown, now.shown):
        appearance.show_only(layer, view.shown, ndisplay)


def _colors(view: LayerView) -> tuple[Any, ...]:
    chosen = tuple(view.metadata.get(name) for name in ("face", "face_limits"))
    return (*chosen, view.colormap.name, view.face_color is None)


def put_state(layer: Points, state: LayerState, ndisplay: int) -> None:
    """Restore the spots of a layer.

    Where all points are as large now, and have a symbol that the user chose, so they stay; and so
    do the mark, the quantity that colours the faces and the filters.

    Parameters
    ----------
    layer : napari.layers.Points
        The layer.
    state : LayerState
        What it showed.
    ndisplay : int
        How many axes the viewer displays.
    """
    now, was_empty = layer.metadata, not len(layer.data)
    metadata = {**state.metadata, **{name: now[name] for name in _VIEW if name in now}}
    if metadata.get("face") not in (*state.features, appearance.OWN_COLOR):
        metadata |= {name: state.metadata.get(name) for name in ("face", "face_limits")}
    appearance.show_all(layer)
    marked = not was_empty and appearance.is_marked(layer)
    sizes, symbols = _alike(layer.size), _alike(layer.symbol)
    layer.metadata = {**layer.metadata, **metadata}
    if len(state.data) < len(layer.data):
        layer.selected_data = set()
    chosen = layer.face_color_mode == "direct" and not was_empty
    # Any colours first: napari would map the other features' in between.
    follow_no_feature(layer, "face")
    set_points(layer, state.data, state.features)
    if not marked:
        layer.size = state.size if sizes is None else sizes
        own = symbols is None or str(symbols) in appearance.own_symbols(layer.metadata)
        layer.symbol = state.symbol if own else symbols
    _restore_colors(layer, state, chosen=chosen, was_empty=was_empty)
    if marked:
        appearance.draw_marks(layer)
    if not state.shown.all():
        appearance.show_only(layer, state.shown, ndisplay)
    layer.selected_data = set(state.selected)


def put_points(layer: Points, data: NDArray[np.float64], features: pd.DataFrame) -> None:
    """Replace the points of a layer by as many others; its mark and the selection stay."""
    marked, selected = appearance.is_marked(layer), set(layer.selected_data)
    set_points(layer, data, features)
    if marked:
        appearance.draw_marks(layer)
    if set(layer.selected_data) != selected:
        layer.selected_data = selected


def fit_limits(layer: Points, features: pd.DataFrame) -> None:
    """Fit the colour limits to the spots, unless the user has chosen limits."""
    face, chosen = layer.metadata.get("face", ""), layer.metadata.get("face_limits")
    if layer.face_color_mode == "colormap" and face in features and chosen is None:
        limits = appearance.automatic_limits(features, face)
        if limits != layer.face_contrast_limits:
            layer.face_contrast_limits = limits


def _restore_colors(layer: Points, state: LayerState, *, chosen: bool, was_empty: bool) -> None:
    """Set the colours that follow from the features, or that the user chose."""
    face = layer.metadata.get("face", "")
    if face == appearance.OWN_COLOR:
        appearance.color_faces(layer, face)
    elif state.face_color is not None and (chosen or was_empty):
        layer.face_color = state.face_color
    elif not chosen and face in state.features:
        appearance.color_faces(layer, face, limits=layer.metadata.get("face_limits"))
    if state.border_color is not None:
        layer.border_color = state.border_color
    elif layer.border_color_mode == "direct":
        layer.border_color = "stop_condition"


def _alike(values: Any) -> Any:
    """Return what all points have; None if they differ or there are none."""
    different = {id(one): one for one in values.tolist()} if values.dtype == object else {}
    if not different:
        different = {one: one for one in np.unique(values).tolist()}
    return different.popitem()[1] if len(different) == 1 else None
