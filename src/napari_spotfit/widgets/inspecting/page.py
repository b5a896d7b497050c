"""The page "Inspect": data, model and residual of one spot, and all its numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from qtpy.QtCore import Signal

from ...analysis.group_region import sample_group
from ...analysis.spot_sample import (
    SpotSample,
    camera_settings,
    roi_of,
    sample_spot,
    settings_of,
)
from ...models.columns import GROUP_SIZE
from ...models.estimators import StopCondition
from ..layers.fitted_frames import FrameKeeper
from ..layers.images import full_resolution, image_of, pixel_size
from ..layers.maps import maps_of
from ..layers.points import is_preview, is_result
from ..layers.selection import SpotSelection, go_to, select
from ..napari_compat import canvas_beside
from ..parts.docking import Follower
from ..parts.work import delayed
from ..result_pages.shown_spots import Page, ShownSpots
from .panel import InspectPanel, doubtful_shown, following
from .refit import Refit
from .spot import (
    Spot,
    frame_words,
    group_around,
    nearest_spot,
    positions_around,
    shown_frame,
    spot_of,
)

if TYPE_CHECKING:
    from napari.layers import Image, Points

_HOW = "Click a fitted spot, or select its row, to see its data, model and residual."
_FIT_FIRST = "Fit spots first: Layers ▸ Measure ▸ Fit spots."
_GONE = (
    "The image of these spots is gone from the viewer, so data, model and residual cannot be "
    "shown. The numbers are those of the fit. If it is open again, choose it in Fit spots."
)
_NOT_OPEN = (
    "The image “{}” of these spots is not open, so data, model and residual cannot be shown. Open "
    "it; if it has another name, choose it in Fit spots. The numbers are those of the fit."
)
_NO_IMAGE = (
    "This layer does not name the image its spots were fitted in, so data, model and residual "
    "cannot be shown. The numbers are those of the fit."
)
_NO_REFIT = "Without the image nothing can be fitted again."
_PASSING = "The spots of the preview come and go: press Fit first, then each can be fitted again."
_NOT_FITTED = "This point was not fitted: it has no numbers. Click a fitted spot."
_OF_OTHERS = (
    "Another program found this spot, without the amplitude, background and width that a model is "
    "drawn from. The table has what its file says."
)
_READING = "Reading the frame…"
#: Milliseconds without the frame after which the wait is explained.
_PATIENCE = 200


class InspectPage(Page):
    """Show what was fitted, and how well, for the spot that was clicked or selected.

    Parameters
    ----------
    spots : ShownSpots
        The spots.
    selection : SpotSelection
        Which of them was selected last.
    """

    #: What is shown is up to date again.
    refreshed = Signal()

    def __init__(self, spots: ShownSpots, selection: SpotSelection):
        super().__init__(spots)
        self._selection = selection
        self._layer: Points | None = None
        #: Row in the layer; None where the frame has no spot at this place.
        self._row: int | None = None
        #: The spot that was shown last, and the layer's frame that the viewer showed then.
        self._spot: Spot | None = None
        self._frame: tuple[int, ...] | None = None
        self._bound = False
        self.panel = InspectPanel(self)
        self._keeper = FrameKeeper(self)
        self.panel.doubtful.asked.connect(self.step)
        self.refit = Refit(self._viewer, self.panel.refit, self._history, self)
        self.refit.changed.connect(self._later)
        self.panel.refit_button.toggled.connect(self._later)
        self._moved, self._watch = Follower(self._later), Follower(self._later)
        self._soon = delayed(self._refresh, 0, self)
        self._patience = delayed(lambda: self._show_without_pixels(_READING), _PATIENCE, self)
        selection.changed.connect(self._on_selection)
        spots.replaced.connect(self._on_selection)
        spots.changed.connect(self._later)
        self._keeper.ready.connect(self._refresh)
        self._keeper.failed.connect(lambda error: self._show_without_pixels(f"⚠ {error}"))

    def go_to(self, row: int | None = None) -> None:
        """Let the viewer show a spot, and show it here.

        Without a row it is the one that is selected, or else the first doubtful one.
        """
        if (layer := self._spots.layer) is None:
            return
        if row is None:
            candidates = sorted(layer.selected_data) or doubtful_shown(layer).tolist()
            row = next((one for one in candidates if one < len(layer.data)), None)
        if row is None:
            self._show_next(layer, None)
            return
        go_to(self._viewer, layer, row, canvas_beside(self))
        if row not in layer.selected_data:
            select(layer, {row})
        self._show_next(layer, row)

    def step(self, step: int) -> None:
        """Go to the next doubtful spot that is shown, 1, or to the previous one, -1."""
        layer = self._spots.layer
        rows = np.zeros(0, np.intp) if layer is None else doubtful_shown(layer)
        if layer is not None and len(rows):
            row = following(rows, self._row if layer is self._layer else None, step)
            select(layer, {row})
            self.go_to(row)

    def set_on_top(self, on_top: bool) -> None:
        """Work only while the page is seen."""
        super().set_on_top(on_top)
        self._later()

    def bind(self) -> None:
        """Follow the viewer."""
        self._bound = True
        layers, dims = self._viewer.layers.events, self._viewer.dims.events
        self._moved.follow(layers.inserted, layers.removed, dims.current_step, dims.ndisplay)
        self._on_selection()

    def unbind(self) -> None:
        """Leave no callback behind."""
        self._bound = False
        self._soon.stop()
        self._patience.stop()
        self._keeper.forget()
        self.refit.forget()
        self._watch.follow()
        self._moved.follow()
        self.panel.unbind()
        self._layer = self._row = self._spot = None

    def _on_selection(self) -> None:
        """Show the spot that was selected last, of this layer."""
        layer, row = self._spots.layer, None
        if layer is not None and layer is self._selection.layer:
            row = self._selection.row
        elif layer is not None:
            row = max((one for one in layer.selected_data if one < len(layer.data)), default=None)
        self._show_next(None if row is None else layer, row)

    def _show_next(self, layer: Points | None, row: int | None) -> None:
        self._layer, self._row, self._frame = layer, row, None
        self._later()

    def _later(self, event: Any = None) -> None:
        """Refresh once, however many things change at a time."""
        if self._bound and self._on_top:
            self._soon.start()

    def _refresh(self) -> None:
        self.panel.hold()
        layer = self._layer
        if layer is None or layer not in self._viewer.layers:
            self._layer = self._row = self._spot = None
            self._follow(None, None)
            fitted = any(is_result(one) for one in self._viewer.layers)
            self._show_message(_HOW if fitted else f"{_FIT_FIRST}\n{_HOW}")
        else:
            image = image_of(layer, self._viewer.layers)
            self._follow(layer, image)
            self._follow_frame(layer)
            self._show(layer, image)
        self.refreshed.emit()

    def _follow(self, layer: Points | None, image: Image | None) -> None:
        """Notice when what is shown changes."""
        emitters = []
        if layer is not None:
            events = layer.events
            emitters += [events.name, events.data, events.metadata, events.scale, events.units]
        if image is None:
            self._keeper.forget()
        else:
            emitters.append(image.events.data)
        self._watch.follow(*emitters)

    def _follow_frame(self, layer: Points) -> None:
        """Follow the viewer to another frame: to the spot at the same place."""
        rows, spot = len(layer.data), self._spot
        if self._row is not None and self._row >= rows:
            self._row = self._frame = None
        if self._row is not None and self._frame is None:
            spot = spot_of(layer, self._row)
        if spot is None:
            return
        frame = shown_frame(self._viewer, layer, spot.index)
        if self._frame is not None and frame != self._frame:
            selected = self._selection
            if (
                selected.layer is layer
                and selected.row is not None
                and spot_of(layer, selected.row).index == frame
            ):
                self._row = selected.row
            elif spot.fitted:
                place = np.array([spot.values["y"], spot.values["x"]])
                roi = roi_of(spot.values, spot.settings)
                self._row = nearest_spot(layer, frame, place, (roi.rows / 2, roi.columns / 2))
        self._frame = frame

    def _show(self, layer: Points, image: Image | None) -> None:
        if self._row is None:
            where = frame_words(self._frame or ())
            self._show_message(
                f"“{layer.name}” has no spot at this place in {where}. Move the slider, or click "
                "another spot."
                if where
                else _HOW
            )
            return
        spot = self._spot = spot_of(layer, self._row)
        if not spot.fitted:
            found = spot.stop == StopCondition.UNKNOWN.name
            self._show_message(_OF_OTHERS if found else _NOT_FITTED)
            return
        try:
            pixels = self._pixels(layer, image, spot)
        except ValueError as error:
            pixels = f"⚠ {error}"
        if pixels is None:
            self._patience.start()
        else:
            self._show_spot(layer, spot, pixels)

    def _pixels(self, layer: Points, image: Image | None, spot: Spot) -> SpotSample | str | None:
        """Return a spot's pixels, or why there are none; None if they are now being read."""
        if image is None:
            return _why_no_image(layer)
        maps = maps_of(layer, image, self._viewer.layers)
        camera = camera_settings(settings_of(spot.values, spot.settings), maps.ids)
        seen = self._keeper.frame(image, spot.index, camera, maps)
        if seen is None:
            return None
        if (group := group_around(layer, spot)) is not None:
            return sample_group(spot.values, spot.settings, seen, group)
        positions = positions_around(layer, spot, seen.raw.shape)
        return sample_spot(spot.values, spot.settings, seen, positions)

    def _show_spot(self, layer: Points, spot: Spot, pixels: SpotSample | str) -> None:
        """Show numbers and pixels together, so that they are always of one spot."""
        self._patience.stop()
        physical = self._spots.units.pixel is not None
        self.panel.show_spot(spot, layer.name, pixel_size(layer), physical=physical)
        self.panel.doubtful.show_place(layer, spot.row)
        if isinstance(pixels, str):
            self.refit.forget(_NO_REFIT)
            self.panel.say(pixels)
        else:
            self.panel.show_sample(pixels, spot)
            self._compare(layer, spot)

    def _compare(self, layer: Points, spot: Spot) -> None:
        """Show the spot's refit beside it, if refits are to be shown."""
        image = image_of(layer, self._viewer.layers)
        if image is None or not self.panel.refit_button.isChecked():
            self.refit.forget()
            return
        if is_preview(layer):
            self.refit.forget(_PASSING)
            return
        positions = positions_around(layer, spot, full_resolution(image).shape[len(spot.index) :])
        # Spots of a group may be less than a pixel apart.
        is_one_of_many = spot.values.get(GROUP_SIZE, 1) > 1 and not spot.moved
        place = layer.data[spot.row, -positions.shape[1] :] if is_one_of_many else positions[0]
        self.refit.follow(layer, spot.row, image, place)
        if (fits := self.refit.fits()) is None:
            return
        try:
            old, new = (self._pixels(layer, image, one) for one in fits)
        except ValueError:  # pixels that are no longer there
            return
        if isinstance(old, SpotSample) and isinstance(new, SpotSample):
            kept = self.refit.new_is_kept
            self.panel.show_refit((fits[0], old), (fits[1], new), new_is_kept=kept)

    def _show_without_pixels(self, why: str) -> None:
        if self._layer is not None and self._spot is not None:
            self._show_spot(self._layer, self._spot, why)

    def _show_message(self, text: str) -> None:
        self._patience.stop()
        self.panel.show_message(text)


def _why_no_image(layer: Points) -> str:
    if "image" in layer.metadata:
        return _GONE
    name = layer.metadata.get("image_name")
    return _NO_IMAGE if name is None else _NOT_OPEN.format(name)
