"""The fit of one spot under the cursor, and the Points layers of picked spots, one per image."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary, ref

import numpy as np
from numpy.typing import ArrayLike, NDArray
from qtpy.QtCore import QObject, Signal

from ...engine.verdicts import mean_sigma
from ...estimation.image_estimates import MeasuredNoise
from ...images.frames import HeldFrame, inside
from ...localization.detect_spots import find, peak_near
from ...localization.fit_at import fit_at
from ...models.columns import GROUP, GROUP_SIZE
from ...models.estimators import STOP_NAMES
from ...results.spot_fits import SpotFits
from ...settings.settings import Settings
from ..layers import points
from ..layers.appearance import Look, color_faces, draw_marks, is_marked, show_all
from ..layers.history import History
from ..layers.maps import NO_MAPS, LayerMaps
from ..layers.result_layers import show_depth
from ..layers.state import LayerState, fit_limits
from ..napari_compat import refreshed_once, select_points, set_points, unlisted

if TYPE_CHECKING:
    import pandas as pd
    from napari import Viewer
    from napari.layers import Image, Points


#: How far away, in sides of the ROI, spots lie at most on which a row depends: those that take
#: pixels from its fit, and from another fit that ends at the same spot.
_FAR = 3
_STOP = "stop_condition"


class FrameSpots:
    """Cache of the spots of the frame that was clicked last, for the next click in it."""

    def __init__(self) -> None:
        self._kept: tuple[Settings, NDArray[Any], NDArray[np.float64]] | None = None

    def get(
        self, frame: HeldFrame, settings: Settings, search: Callable[[], NDArray[np.float64]]
    ) -> NDArray[np.float64]:
        """Return the spots of a frame, searched unless pixels and settings are unchanged."""
        if (
            self._kept is None
            or self._kept[0] != settings
            or not np.array_equal(self._kept[1], frame.pixels)
        ):
            self._kept = settings, frame.pixels.copy(), search()
        return self._kept[2]


@dataclass(frozen=True, eq=False)
class Pick:
    """The fit of a press of the mouse: one spot of a frame that is read once.

    Parameters
    ----------
    image : array, shape (…, Y, X)
        As :func:`~napari_spotfit.fit_at` takes it.
    index : tuple of int
        Indices of the frame along the image's leading axes.
    settings : Settings
        Those of the fits of the whole image.
    maps : LayerMaps
        The maps of its pixels, read when they are needed first.
    snap : bool
        Whether the spot is the brightest maximum within half a ROI of the place, as the
        detection finds it, or lies at the place itself.
    noise : MeasuredNoise
        That of the image.
    spots : FrameSpots
        What earlier presses have found.
    """

    image: Any
    index: tuple[int, ...]
    settings: Settings
    maps: LayerMaps = NO_MAPS
    snap: bool = True
    noise: MeasuredNoise = field(default_factory=MeasuredNoise)
    spots: FrameSpots = field(default_factory=FrameSpots)

    @cached_property
    def frame(self) -> HeldFrame:
        """The frame, read when it is needed first."""
        return HeldFrame(self.image, self.index, self.settings.dimensions)

    @cached_property
    def _known(self) -> dict[str, Any]:
        return {name: known for name, known in self._maps.items() if name != "mask"}

    @cached_property
    def _maps(self) -> dict[str, Any]:
        return self.maps.read()

    @cached_property
    def _estimated(self) -> Settings:
        return self.noise.put_into(self.settings, self.image, self._known)

    @cached_property
    def _spots(self) -> NDArray[np.float64]:
        """Where the frame's spots are as the detection finds them, if a fit depends on that."""
        if self.settings.neighbours == "ignore":
            return np.empty((0, self.settings.dimensions))
        maps = {name: known for name, known in self._maps.items() if name != "weights"}
        settings = self._estimated.changed(backend="cpu")

        def search() -> NDArray[np.float64]:
            places, _ = find(self.frame, settings, frames=self.index or None, **maps)
            return places[:, -settings.dimensions :]

        # Maps may have been painted in since.
        return search() if maps else self.spots.get(self.frame, settings, search)

    @property
    def frame_shape(self) -> tuple[int, ...]:
        """Rows and columns of the frame, before them its planes in volumes, without reading it."""
        return tuple(int(side) for side in self.image.shape[-self.settings.dimensions :])

    def contains(self, place: ArrayLike) -> bool:
        """Whether a place (y, x), in volumes (z, y, x), lies on the frame's pixels."""
        return bool(inside(np.asarray(place, float), self.frame_shape))

    def fit(self, place: ArrayLike) -> SpotFits:
        """Fit the spot at a place.

        Parameters
        ----------
        place : array, shape (2,) or (3,)
            y and x in pixels, in volumes with z before them.

        Returns
        -------
        SpotFits
            One row. Where the detection finds the spot, it is that of
            :func:`~napari_spotfit.localize` but for the score, which fits at given places
            have none of.
        """
        settings = self._estimated
        center: NDArray[np.float64] = np.asarray(place, float)
        if self.snap:
            known = {name: self._known.get(name) for name in ("bad_pixels", "camera")}
            center = peak_near(self.frame, center, settings, **known)
        centers = np.vstack([center, self._beside(center)])
        index = np.broadcast_to(self.index, (len(centers), len(self.index)))
        fits = fit_at(
            self.frame, np.column_stack([index, centers]), settings=settings, **self._known
        )
        return fits[:1]

    def _beside(self, center: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the other spots on which the fit of one depends."""
        side = np.array(self._estimated.roi_shape)
        away = abs(self._spots - center) / side
        beside = (away <= _FAR).all(axis=1)
        if not self.snap and beside.any():
            # The spot that is meant is fitted from here.
            nearest = np.argmin((away**2).sum(axis=1))
            beside[nearest] &= (away[nearest] ** 2).sum() > 0.25
        beside &= away.any(axis=1)
        chosen: NDArray[np.float64] = self._spots[beside]
        return chosen


class PickedLayers(QObject):
    """Keeps the picked spots of each image in a small layer of their own.

    A layer stays that of its image whatever it is renamed to, until it is deleted.
    What the user moves in it can be undone as the picks can.

    Parameters
    ----------
    viewer : napari.Viewer
        The viewer that shows the layers.
    history : History
        Where changes are recorded.
    parent : QObject
        Qt parent.
    """

    #: The layer that shows other spots now; its thumbnail is not yet drawn.
    shown = Signal(object)

    def __init__(self, viewer: Viewer, history: History, parent: QObject):
        super().__init__(parent)
        self._viewer, self._history = viewer, history
        self._made: WeakKeyDictionary[Image, ref[Points]] = WeakKeyDictionary()
        self._known: WeakKeyDictionary[Points, LayerState] = WeakKeyDictionary()
        history.shown.connect(self._on_put_back)

    def bind(self) -> None:
        """Follow the layers again that were made before."""
        self._viewer.layers.events.removed.connect(self._on_removed)
        for image in list(self._made):
            if (layer := self.layer_of(image)) is not None:
                self._follow(layer)

    def unbind(self) -> None:
        """Stop following them."""
        self._viewer.layers.events.removed.disconnect(self._on_removed)
        for layer in list(self._known):
            self._leave(layer)

    def layer_of(self, image: Image) -> Points | None:
        """Return the layer with an image's picked spots, if there is one."""
        made = self._made.get(image)
        layer = None if made is None else made()
        if layer is None or layer not in self._viewer.layers or not points.is_result(layer):
            return None
        return layer if layer.ndim == image.ndim else None

    def leave_other_model(self, image: Image, settings: Settings) -> None:
        """Let a new layer be made if the present one's spots were fitted with another model."""
        layer = self.layer_of(image)
        model = settings.to_dict()["model"]
        if layer is not None and layer.metadata.get("settings", {}).get("model") != model:
            del self._made[image]

    def begin(self, image: Image) -> LayerState | None:
        """Return an image's picked spots as a press of the mouse finds them, and select none.

        So a spot that was selected before is selected again, with an event. An active result
        loses its selection, too, which Delete would remove instead. Without a layer it is None.
        """
        layer, active = self.layer_of(image), self._viewer.layers.selection.active
        if active is not layer and points.is_result(active):
            select_points(active, set())
        if layer is None:
            return None
        before = LayerState.of(layer)
        layer.selected_data.replace_selection(set())  # drawn with the new spot
        return before

    def put(self, image: Image, before: LayerState | None, new: dict[str, Any]) -> Points:
        """Show a picked spot together with those that were there before.

        Parameters
        ----------
        image : napari.layers.Image
            The image that was fitted.
        before : LayerState or None
            From ``begin``; what the spot is added to, so that the spots on a drag's way
            do not stay.
        new : dict
            One fit, from :func:`~napari_spotfit.widgets.fitting.picked_layer.arguments`.
        """
        layer = self.layer_of(image)
        if layer is None:
            layer = self._add(image, new)
        else:
            points.align(layer, image)
            self._show(layer, *with_spot(before, new), new["metadata"], image)
        return layer

    def _add(self, image: Image, new: dict[str, Any]) -> Points:
        """Add a new layer; the selected layers stay as they were."""
        layer = points.make_points_layer(new, image, f"{image.name} (picked)")
        selected = set(self._viewer.layers.selection)
        self._viewer.add_layer(layer)
        show_depth(self._viewer, layer)
        self._viewer.layers.selection = selected
        select_points(layer, {0})
        self._made[image] = ref(layer)
        self._follow(layer)
        self.shown.emit(layer)
        return layer

    def _show(
        self,
        layer: Points,
        data: NDArray[np.float64],
        features: pd.DataFrame,
        row: int,
        made_with: dict[str, Any],
        image: Image,
    ) -> None:
        """Show other spots in a layer, one of them selected, with few events of napari."""
        low, high = image.extent.data
        both = np.vstack([layer.data, data])
        stops = features[_STOP].cat.codes.to_numpy()
        counts = np.bincount(stops, minlength=len(STOP_NAMES)).tolist()
        inside = bool(np.all((both >= low) & (both <= high)))
        with self._history.pause(), unlisted(self._viewer, layer, inside=inside):
            layer.metadata = {
                **layer.metadata,
                **{name: made_with.get(name, {}) for name in ("settings", "maps", "map_names")},
                "units": {**layer.metadata.get("units", {}), **made_with["units"]},
                "stop_counts": dict(zip(STOP_NAMES, counts, strict=True)),
            }
            was_empty = not len(layer.data)
            if len(data) < len(layer.data):
                select_points(layer, set())
            with refreshed_once(layer, thumbnail=False):
                fit_limits(layer, features)
                set_points(layer, data, features)
                show_all(layer)
                if is_marked(layer):
                    draw_marks(layer)
                select_points(layer, {row})
            face = layer.metadata.get("face", "")
            if was_empty and face in features:  # napari has forgotten what colours it
                color_faces(layer, face, limits=layer.metadata.get("face_limits"))
        self._known[layer] = LayerState.of(layer)
        self.shown.emit(layer)

    def _follow(self, layer: Points) -> None:
        self._known[layer] = LayerState.of(layer)
        layer.events.data.connect(self._on_data)
        layer.events.features.connect(self._on_features)

    def _leave(self, layer: Points) -> None:
        del self._known[layer]
        layer.events.data.disconnect(self._on_data)
        layer.events.features.disconnect(self._on_features)

    def _on_data(self, event: Any) -> None:
        """Remember what the spots were before the user moved some."""
        layer = event.source
        if self._history.paused or layer not in self._known or not points.is_result(layer):
            return
        known = self._known[layer]
        now = self._known[layer] = LayerState.of(layer)
        if len(known.data) == len(now.data) and not np.array_equal(known.data, now.data):
            self._history.record(layer, known, "the move")
            self.shown.emit(layer)

    def _on_features(self, event: Any) -> None:
        """Remember the features, unless this is a move that has not ended yet."""
        layer = event.source
        if self._history.paused or layer not in self._known or not points.is_result(layer):
            return
        if np.array_equal(self._known[layer].data, layer.data):
            self._known[layer] = LayerState.of(layer)

    def _on_put_back(self, layer: Points) -> None:
        """Remember the spots that the history has put back."""
        if layer in self._known:
            self._known[layer] = LayerState.of(layer)
        elif any(self.layer_of(image) is layer for image in list(self._made)):
            self._follow(layer)

    def _on_removed(self, event: Any) -> None:
        if event.value in self._known:
            self._leave(event.value)


def arguments(fits: SpotFits, look: Look, maps: LayerMaps) -> dict[str, Any]:
    """Return the arguments of a layer that shows one pick.

    The size of its ROI and the camera offset are features here, as picks may differ in them.

    Parameters
    ----------
    fits : SpotFits
        One fit.
    look : Look
        What colours its face.
    maps : LayerMaps
        The maps of the pixels.
    """
    made = points.points_arguments(fits, look.face, look.colormap, maps)
    # Numbers of groups are those of one result.
    if GROUP in made["features"]:
        made["features"] = made["features"].drop(columns=[GROUP, GROUP_SIZE])
    if fits.settings is not None:
        side, *others = {*fits.settings.roi_shape}
        # A ROI that is not square stands in the layer's settings.
        made["features"]["roi_size"] = np.nan if others else float(side)
        made["features"]["offset"] = float(fits.settings.offset)
        made["metadata"]["units"] |= {"roi_size": "px", "offset": "counts"}
    return made


def fitted(pick: Pick, place: NDArray[np.float64], look: Look) -> tuple[SpotFits, dict[str, Any]]:
    """Fit the spot at a place; return also the arguments of a layer that shows it."""
    fits = pick.fit(place)
    return fits, arguments(fits, look, pick.maps)


def with_spot(
    before: LayerState | None, new: dict[str, Any]
) -> tuple[NDArray[np.float64], pd.DataFrame, int]:
    """Return points and features with a new spot, which replaces its earlier fit, and its row.

    Parameters
    ----------
    before : LayerState or None
        The spots as they were, if there were any.
    new : dict
        From :func:`arguments`.
    """
    one, place = new["features"], new["data"][0]
    data, features, row = new["data"][:0], one.iloc[:0], None
    if before is not None:
        data, features = before.data.copy(), before.features.reset_index(drop=True)
        row = _same_spot(before, new)
    if row is None:
        row = len(data)
        data = np.vstack([data, place])
    else:
        data[row] = place
    return data, _with_row(features, row, one), row


def _with_row(features: pd.DataFrame, row: int, one: pd.DataFrame) -> pd.DataFrame:
    """Return features with a row replaced by that of a new fit, or with it as a further row.

    Where the new fit lacks a column, as those of the errors, the value is missing: an
    earlier fit's would be wrong.
    """
    import pandas as pd

    stops = pd.Index(STOP_NAMES)
    # Column by column: pandas takes longer to add a row than a fit does.
    old, new = (
        {
            name: pd.Categorical(column, stops).codes if name == _STOP else column.to_numpy()
            for name, column in table.items()
        }
        for table in (features, one)
    )
    columns: dict[Any, Any] = {}
    for name in dict.fromkeys([*old, *new]):
        known = old.get(name, np.full(len(features), np.nan))
        kind = np.result_type(known.dtype, np.float32)  # that of whole numbers has no NaN
        values = np.full(max(len(features), row + 1), np.nan, kind)
        values[: len(known)] = known
        values[row] = new[name][0] if name in new else np.nan
        columns[name] = values
    codes = np.nan_to_num(columns[_STOP], nan=-1).astype(np.int8)
    columns[_STOP] = pd.Categorical.from_codes(codes, stops)
    return pd.DataFrame(columns)


def _same_spot(before: LayerState, new: dict[str, Any]) -> int | None:
    """Return the row of the spot within σ, and at least a pixel, of a new one in its frame."""
    if not len(before.data):
        return None
    place, gain = new["data"][0], new["metadata"].get("settings", {}).get("gain") or 1.0
    axes = points.axes_of(points.settings_of_layer(before.metadata))
    distance = np.linalg.norm(before.data[:, -axes:] - place[-axes:], axis=1)
    distance[np.any(before.data[:, :-axes] != place[:-axes], axis=1)] = np.inf
    row = int(np.argmin(distance))
    # The lesser σ, so that a bad fit, which is often wide, replaces no good one beside it.
    old, own = mean_sigma(before.features, gain)[row], mean_sigma(new["features"], gain)[0]
    return row if distance[row] <= np.fmax(np.fmin(old, own), 1.0) else None
