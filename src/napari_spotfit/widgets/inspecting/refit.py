"""One spot fitted again with other settings, beside its earlier fit, until one of them is kept."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from qtpy.QtCore import QObject, Signal

from ...engine.select import usable_here
from ...models.stopping import StopCondition
from ...results.spot_fits import SpotFits
from ...settings.settings import Settings
from ..layers.images import full_resolution
from ..layers.maps import maps_of
from ..layers.measured_noise import MeasuredNoise
from ..layers.result_layers import Row, put_row
from ..parts.messages import in_words
from ..parts.work import Latest
from ..picking.pick import FrameSpots, Pick
from ..picking.table import arguments
from .refit_bar import CHANGE, RefitBar
from .sample import settings_of
from .spot import Spot, spot_as

if TYPE_CHECKING:
    from napari import Viewer
    from napari.layers import Image, Points

    from ..layers.history import History

_FITTING = "Fitting…"
_SAME = "These are the settings of the fit as it is."


class Refit(QObject):
    """Fits the spot that is inspected again, by the code of clicks, whenever its bar changes.

    Parameters
    ----------
    viewer : napari.Viewer
        The viewer.
    bar : RefitBar
        The settings, and what to keep.
    history : History
        Where what is kept is recorded.
    parent : QObject
        Qt parent.
    """

    #: There is something else to show.
    changed = Signal()

    def __init__(self, viewer: Viewer, bar: RefitBar, history: History, parent: QObject):
        super().__init__(parent)
        self._viewer, self._bar, self._history = viewer, bar, history
        self._layer: Points | None = None
        self._image: Image | None = None
        self._row = 0
        self._place: NDArray[np.float64] = np.zeros(2)
        self._old: Row | None = None
        self._new: Row | None = None
        self._error = ""
        self._noise: tuple[Any, MeasuredNoise] = (None, MeasuredNoise())
        self._spots = FrameSpots()
        self._latest = Latest(self)
        self._latest.done.connect(self._on_done)
        self._latest.failed.connect(self._on_failed)
        bar.changed.connect(self._on_changed)
        bar.new_kept.connect(lambda: self._keep(self._new))
        bar.old_kept.connect(lambda: self._keep(self._old))

    def follow(self, layer: Points, row: int, image: Image, place: NDArray[np.float64]) -> None:
        """Be about a spot of a layer, whose fit began at this y and x; about no other one.

        What has been fitted again of the same spot stays.
        """
        same = layer is self._layer and image is self._image and row == self._row
        if same and self._is_there:
            self._say()
            return
        self.forget()
        self._layer, self._row, self._image = layer, row, image
        self._old, self._place = Row.of(layer, row), place
        spot = spot_as(self._old, layer, row)
        self._bar.show_settings(usable_here(settings_of(spot.values, spot.settings)))
        self._say()

    def forget(self, why: str = CHANGE) -> None:
        """Be about no spot, and say why."""
        self._latest.drop()
        self._layer = self._image = self._old = self._new = None
        self._error = ""
        self._bar.show_state(why)

    @property
    def _is_there(self) -> bool:
        """Whether the layer still has the spot where it was."""
        layer = self._layer
        known = [one for one in (self._old, self._new) if one is not None]
        return layer is not None and any(one.is_in(layer, self._row) for one in known)

    @property
    def new_is_kept(self) -> bool:
        """Whether the layer has the new fit."""
        layer, new = self._layer, self._new
        return layer is not None and new is not None and new.is_in(layer, self._row)

    def fits(self) -> tuple[Spot, Spot] | None:
        """Return the old and the new fit of the spot, if it was fitted again."""
        if self._layer is None or self._old is None or self._new is None:
            return None
        old, new = (spot_as(one, self._layer, self._row) for one in (self._old, self._new))
        return old, new

    def _on_changed(self) -> None:
        layer, image, old = self._layer, self._image, self._old
        if layer is None or image is None or old is None:
            return
        try:
            pick = self._pick(layer, image, old)
        except (TypeError, ValueError) as error:
            self._on_failed(error)
            return
        self._error = ""
        self._bar.show_state(_FITTING)
        self._latest.ask(partial(_fit, pick, self._place))

    def _pick(self, layer: Points, image: Image, old: Row) -> Pick:
        pixels = full_resolution(image)
        if self._noise[0] is not pixels:
            self._noise, self._spots = (pixels, MeasuredNoise()), FrameSpots()
        return Pick(
            pixels,
            tuple(int(i) for i in np.rint(old.point[:-2])),
            self._bar.settings(),
            maps_of(layer, image, self._viewer.layers),
            False,
            self._noise[1],
            self._spots,
        )

    def _on_done(self, done: tuple[SpotFits, dict[str, Any]]) -> None:
        fits, new = done
        layer = self._layer
        if layer is None or self._old is None or layer not in self._viewer.layers:
            return
        if not fits.valid[0]:
            self._on_failed(ValueError(StopCondition.INVALID.explanation))
            return
        self._compare_with_kept()
        self._new = self._old.refitted(new)
        self._say()
        self.changed.emit()

    def _on_failed(self, error: Exception) -> None:
        self._compare_with_kept()
        self._new, self._error = None, f"⚠ Not fitted with these settings: {in_words(error)}"
        self._say()
        self.changed.emit()

    def _compare_with_kept(self) -> None:
        """Take the new fit for the old one if the layer has it: the next is compared with it."""
        if self.new_is_kept:
            self._old = self._new

    def _keep(self, row: Row | None) -> None:
        layer = self._layer
        if layer is None or row is None or layer not in self._viewer.layers:
            return
        if not self._is_there:  # rows have come or gone
            self.forget()
            self.changed.emit()
            return
        if not row.is_in(layer, self._row):
            put_row(layer, self._row, row, self._history)
        if row is self._old:
            self._new, self._error = None, ""
            spot = spot_as(row, layer, self._row)
            self._bar.show_settings(usable_here(settings_of(spot.values, spot.settings)))
        self._say()
        self.changed.emit()

    def _say(self) -> None:
        """Say which fit the layer has."""
        layer, old, new = self._layer, self._old, self._new
        if self._latest.busy:
            return
        if self._error:
            self._bar.show_state(self._error, old=True)
        elif layer is None or old is None or new is None:
            self._bar.show_state(CHANGE)
        elif Settings(**new.settings) == Settings(**old.settings):
            self._bar.show_state(_SAME, old=True)
        else:
            self._bar.show_state("", new=not self.new_is_kept, old=True)


def _fit(pick: Pick, place: NDArray[np.float64]) -> tuple[SpotFits, dict[str, Any]]:
    """Fit a spot at the place where its fit began."""
    fits = pick.fit(place)
    return fits, arguments(fits, "", "viridis", pick.maps)
