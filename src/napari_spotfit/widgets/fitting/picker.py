"""From a press of the mouse to a fitted spot in its layer."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from qtpy.QtCore import QObject, Signal

from ...engine.flags import NOT_GOOD, RULES, Flag, flags_of
from ...models.columns import GROUP_SIZE
from ...models.estimators import StopCondition
from ...results.spot_fits import SpotFits
from ..layers.appearance import Look
from ..layers.history import History
from ..layers.state import LayerState
from ..parts.work import Latest
from .pick import FrameSpots, Pick
from .picked_layer import PickedLayers, fitted

if TYPE_CHECKING:
    from napari import Viewer
    from napari.layers import Image, Points

#: Narrow space that does not break.
_SPACE = "\u202f"


class Press:
    """One press of the mouse: its position, and the layer before it."""

    def __init__(
        self, image: Image, pick: Pick, look: Look, wake: Callable[[], None], *, insist: bool
    ):
        self.image, self.pick, self.look, self.insist = image, pick, look, insist
        self._position: Any = None
        #: Where a fit is still to be made.
        self.place: NDArray[np.float64] | None = None
        self.released = False
        #: The layer in which the spot is shown, once it is, and its spots before that.
        self.layer: Points | None = None
        self.before: LayerState | None = None
        self._wake = wake

    def aim(self, position: Any) -> bool:
        """Remember a position in world coordinates if it is in the image."""
        axes = len(self.pick.frame_shape)
        place = np.asarray(self.image.world_to_data(position))[-axes:]
        inside = self.pick.contains(place)
        if inside:
            self.place, self._position = place, position
        return inside

    def move(self, position: Any) -> None:
        """Fit at another position; outside the image the last one stays."""
        if not np.array_equal(position, self._position) and self.aim(position):
            self._wake()

    def release(self) -> None:
        """Fit no further."""
        self.released = True
        self._wake()


class Picker(QObject):
    """Fits the spot under the cursor in a worker thread and shows it.

    Presses are done one after the other and none is lost. Within one, only the latest
    position counts.

    Parameters
    ----------
    viewer : napari.Viewer
        The viewer that shows the images.
    history : History
        Where the picks are recorded.
    parent : QObject
        Qt parent.
    """

    #: What a fit has found.
    said = Signal(str)
    #: Why a click has not even begun a fit.
    missed = Signal(str)
    #: The exception that a fit has raised.
    failed = Signal(object)
    #: Whether a fit is under way, or waits for its frame.
    awaited = Signal(bool)

    def __init__(self, viewer: Viewer, history: History, parent: QObject):
        super().__init__(parent)
        self._viewer, self._history = viewer, history
        self.layers = PickedLayers(viewer, history, self)
        self._latest = Latest(self, self._on_done, self._on_failed)
        self._presses: deque[Press] = deque()
        self._fitting: Press | None = None
        #: What earlier presses have found, for the next pick.
        self.spots = FrameSpots()

    def unbind(self) -> None:
        """Drop running fits and stop following the viewer."""
        self._latest.drop()
        self._presses.clear()
        self._hold()
        self._fitting = None
        self.spots = FrameSpots()
        self.awaited.emit(False)
        self.layers.unbind()

    def begin(
        self, image: Image, pick: Pick, look: Look, position: Any, *, insist: bool = False
    ) -> Press | None:
        """Begin to pick at a position in world coordinates.

        Parameters
        ----------
        image : napari.layers.Image
            The image.
        pick : Pick
            What to fit of it.
        look : Look
            How the spots of a new layer are drawn.
        position : array
            Where.
        insist : bool
            Whether a fit is shown even where it has found no spot.

        Returns
        -------
        Press or None
            The press, to follow the mouse; None outside the image.
        """
        press = Press(image, pick, look, self._next, insist=insist)
        if not press.aim(position):
            self.missed.emit(f"The click was outside “{image.name}”: nothing was fitted.")
            return None
        for earlier in self._presses:  # should the end of one have got lost
            earlier.released = True
        self._presses.append(press)
        self._hold()
        self._next()
        return press

    def remove_selected(self, image: Image) -> None:
        """Remove the selected ones of an image's picked spots."""
        if not self._presses and (layer := self.layers.layer_of(image)) is not None:
            layer.remove_selected()

    def _next(self) -> None:
        """Begin the next fit, unless one is under way."""
        while self._presses and self._fitting is None:
            press = self._presses[0]
            is_there = press.image in self._viewer.layers
            if press.place is not None and is_there:
                place, press.place = press.place, None
                self._fitting = press
                self.awaited.emit(True)
                self._latest.ask(partial(fitted, press.pick, place, press.look))
            elif press.released or not is_there:
                self._presses.popleft()
                self._hold()
            else:
                break

    def _hold(self) -> None:
        """Block undo while a pick is under way."""
        self._history.hold(self, bool(self._presses))

    def _on_done(self, done: tuple[SpotFits, dict[str, Any]]) -> None:
        press, self._fitting = self._fitting, None
        self.awaited.emit(False)
        if press is not None and press.image in self._viewer.layers:
            if press.place is not None:  # The next place is fitted while this one is shown.
                self._next()
            self._show(press, *done)
        self._next()

    def _on_failed(self, error: Exception) -> None:
        press, self._fitting = self._fitting, None
        self.awaited.emit(False)
        if press is not None and press in self._presses:
            self._presses.remove(press)
            self._hold()
        self.failed.emit(error)
        self._next()

    def _show(self, press: Press, fits: SpotFits, new: dict[str, Any]) -> None:
        nothing = why_nothing(fits)
        if not fits.valid[0] or (nothing and not press.insist):
            self.said.emit(_refused(fits, nothing, press.layer is not None))
            return
        self.said.emit(_in_words(fits, nothing))
        image, first = press.image, press.layer is None
        if first:
            self.layers.leave_other_model(image, press.pick.settings)
            press.before = self.layers.begin(image)
        press.layer = self.layers.put(image, press.before, new)
        if first:
            self._history.record(press.layer, press.before, "the fit of a spot")


def why_nothing(fits: SpotFits) -> str:
    """Return why there is no spot where a fit was made; empty if there may be one."""
    flags = flags_of(int(fits.flags[0]))
    if Flag.NEGATIVE in flags or Flag.WEAK in flags:
        return _height_in_words(fits)
    if Flag.NARROW in flags:
        return f"σ {fits.mean_sigma[0]:.2f}{_SPACE}px is less than half the PSF's"
    return ""


def _refused(fits: SpotFits, nothing: str, shown: bool) -> str:
    """Return why a fit is not shown, and how to show it in any case."""
    stays = "The last one stays" if shown else "Nothing was added"
    if not fits.valid[0]:
        return f"Nothing can be fitted here. {StopCondition.INVALID.explanation} {stays}."
    return (
        f"There is no spot here: {nothing}. {stays}; to add the fit all the same, click with Ctrl "
        "and Shift."
    )


def _in_words(fits: SpotFits, nothing: str) -> str:
    """Return what a fit has found that is shown."""
    stop = StopCondition(int(fits.stop_condition[0]))
    photons = f"{fits.photons[0]:,.0f}".replace(",", _SPACE)
    place = ", ".join(f"{axis} {fits.columns[axis][0]:.2f}" for axis in fits.axes)
    what = f"{place}: σ {fits.mean_sigma[0]:.2f}{_SPACE}px, "
    what += f"{photons} {fits.units.get('photons', 'counts')}, {stop.words}{_group_in_words(fits)}"
    if nothing:
        return f"There seems to be no spot: {nothing}. The fit, a cross, is at {what}"
    doubts = [flag for flag in flags_of(int(fits.flags[0])) if flag & NOT_GOOD]
    if doubts:
        return f"Doubtful: at {what}. {RULES[doubts[0]].sentence} {RULES[doubts[0]].advice}"
    return f"Spot at {what}"


def _group_in_words(fits: SpotFits) -> str:
    """Return how many spots a spot was fitted together with."""
    others = int(fits.columns[GROUP_SIZE][0]) - 1 if GROUP_SIZE in fits else 0
    if others < 1:
        return ""
    return f", fitted together with {others} other{'s' if others > 1 else ''}"


def _height_in_words(fits: SpotFits) -> str:
    """Return how low the amplitude of a fit is that found nothing."""
    height = float(fits.amplitude[0])
    if height > 0 and fits.photons[0] <= 0:
        return "its light is not above 0"
    if height <= 0 or "amplitude_stderr" not in fits:
        return f"the amplitude, {height:.3g} counts, is not above 0"
    error = float(fits.amplitude_stderr[0])
    if np.isnan(error):
        return "the pixels do not determine its amplitude"
    return f"the amplitude, {height:.3g} ± {error:.3g} counts, is within 3 standard errors of 0"
