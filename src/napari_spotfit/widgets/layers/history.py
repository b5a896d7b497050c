"""Undo and redo of changes to layers of spots, and points that are added by hand."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import WeakKeyDictionary, WeakSet, ref

import numpy as np
from numpy.typing import NDArray
from qtpy.QtCore import QObject, Signal

from ...engine.flags import Flag
from ...models.columns import REFIT, index_of
from ...models.estimators import StopCondition
from ..napari_compat import added_rows, deletes, itself, main_window
from ..parts.docking import Follower, Keys
from .appearance import draw_marks, is_marked
from .points import axes_of, is_preview, is_result, settings_of_layer
from .state import LayerState, LayerView, put_state, put_view

if TYPE_CHECKING:
    import pandas as pd
    from napari import Viewer
    from napari.layers import Points

_STOP = "stop_condition"
#: Values of a failed fit; all other numbers are missing.
_CELLS = {"flags": float(Flag.NOT_CONVERGED), "good": 0.0, "iterations": 0.0, REFIT: 0.0}
#: How many changes can be undone at most, and how many bytes they may take.
_UNDOABLE, _MOST = 100, 2**31


class Change(NamedTuple):
    """A change that can be undone."""

    layer: Points
    #: What the layer showed before, or how; None if it was not in the viewer.
    before: LayerState | LayerView | None
    #: What was done, as in “take back …”.
    what: str
    #: Changes in a row with the same one are undone together.
    run: object = None


class History(QObject):
    """Undoes and redoes changes of the layers of fitted spots of a viewer.

    Points that napari deletes are recorded here; other code that changes a layer records it.
    A viewer has one, from :func:`history_of`, which works as long as one of our widgets is open
    or the viewer has a layer of fitted spots. Then Ctrl+Z and Ctrl+Shift+Z over the canvas are
    its keys, unless they are bound already.

    Parameters
    ----------
    viewer : napari.Viewer
        The viewer that shows the layers.
    parent : QObject, optional
        Qt parent.
    """

    #: What can be undone or redone has changed.
    changed = Signal()
    #: What was undone or redone, in a sentence.
    stepped = Signal(str)
    #: The layer whose spots have changed: points were deleted, or it was put back.
    shown = Signal(object)

    def __init__(self, viewer: Viewer, parent: QObject | None = None):
        super().__init__(parent)
        # The window has this as its child, and the viewer has the window.
        self._viewer_ref = ref(viewer)
        self._done: list[Change] = []
        self._undone: list[Change] = []
        self._followed: WeakKeyDictionary[Points, None] = WeakKeyDictionary()
        #: What a layer showed before the points went that napari is deleting now.
        self._before: LayerState | None = None
        #: Whether changes of layers are recorded by the caller.
        self.paused = False
        self._users: WeakSet[QObject] = WeakSet()
        self._busy: WeakSet[QObject] = WeakSet()
        self._keys: Keys | None = None
        self._inserted, self._removed = Follower(self._on_inserted), Follower(self._on_removed)

    @property
    def last(self) -> str:
        """What undo takes back, in words; nothing if there is nothing."""
        return self._done[-1].what if self._done else ""

    @property
    def next(self) -> str:
        """What redo does again, in words; nothing if there is nothing."""
        return self._undone[-1].what if self._undone else ""

    def join(self, user: QObject) -> None:
        """Work as long as a widget does."""
        self._users.add(user)
        self.wake()

    def leave(self, user: QObject) -> None:
        """Rest if no other widget is open and there is no layer to follow."""
        self._users.discard(user)
        self._busy.discard(user)
        self._rest_if_idle()

    def wake(self) -> None:
        """Follow the viewer's layers, and take the keys."""
        if self._keys is None:
            self._inserted.follow(self._viewer.layers.events.inserted)
            self._removed.follow(self._viewer.layers.events.removed)
            steps = {"Control-Z": self.undo, "Control-Shift-Z": self.redo}
            self._keys = Keys(self._viewer, steps)
            self._keys.bind()
            self._on_inserted()

    def record(
        self, layer: Points, before: LayerState | LayerView | None, what: str, run: object = None
    ) -> None:
        """Record a change of a layer, so that it can be undone.

        Parameters
        ----------
        layer : napari.layers.Points
            The layer.
        before : LayerState, LayerView or None
            What it showed before, or how; None if it was not in the viewer.
        what : str
            What was done, as in “take back …”.
        run : object, optional
            What it is a part of: changes in a row with the same one are undone together.
        """
        self._undone.clear()
        self._done.append(Change(layer, before, what, run))
        self._limit()
        self.changed.emit()

    def record_view(
        self, layer: Points, what: str, *, merge: bool = False, run: object = None
    ) -> None:
        """Record how a layer's spots are shown, before that is changed.

        Parameters
        ----------
        layer : napari.layers.Points
            The layer; those of a preview do not count.
        what : str
            What is done, as in “take back …”.
        merge : bool
            Whether it is one change with the last one if that was the same: a handle is dragged.
        run : object, optional
            What it is a part of, as for :meth:`record`.
        """
        if is_preview(layer) or layer not in self._followed:
            return
        last = self._done[-1] if self._done else None
        same = last is not None and last.layer is layer and last.what == what
        if not (merge and same and isinstance(last.before, LayerView)):  # type: ignore[union-attr]
            self.record(layer, LayerView.of(layer), what, run)
        elif self._undone:
            self._undone.clear()
            self.changed.emit()

    def undo(self) -> None:
        """Undo the last change, if there is one and no click is in progress."""
        if not self._busy:
            self._step(self._done, self._undone, "Taken back: {}.")

    def redo(self) -> None:
        """Redo what was undone last, if nothing else was done since."""
        if not self._busy:
            self._step(self._undone, self._done, "Done again: {}.")

    def hold(self, user: QObject, busy: bool) -> None:
        """Disable undo and redo while a user is in the middle of a change."""
        self._busy.add(user) if busy else self._busy.discard(user)

    @contextmanager
    def pause(self) -> Iterator[None]:
        """Record no changes of layers meanwhile: the caller does."""
        paused, self.paused = self.paused, True
        try:
            yield
        finally:
            self.paused = paused

    @contextmanager
    def change(self, layer: Points, what: str) -> Iterator[None]:
        """Record all changes of a layer's spots meanwhile as one."""
        before = LayerState.of(layer)
        with self.pause():
            yield
        self.record(layer, before, what)
        self.shown.emit(layer)

    def _step(self, source: list[Change], target: list[Change], words: str) -> None:
        if not source:
            return
        run, what = source[-1].run, source[-1].what
        self._move_last(source, target)
        while run is not None and source and source[-1].run is run:
            self._move_last(source, target)
        self.stepped.emit(words.format(what))
        self.changed.emit()

    def _move_last(self, source: list[Change], target: list[Change]) -> None:
        change = source.pop()
        layer, layers = change.layer, self._viewer.layers
        kind = LayerView if isinstance(change.before, LayerView) else LayerState
        now = kind.of(layer) if layer in layers else None
        with self.pause():
            if change.before is None:
                layers.remove(layer)
            elif now is None:
                selected = set(layers.selection)
                layers.append(layer)
                layers.selection = selected
            if isinstance(change.before, LayerView):
                put_view(layer, change.before, self._viewer.dims.ndisplay)
            elif change.before is not None:
                put_state(layer, change.before, self._viewer.dims.ndisplay)
        target.append(change._replace(before=now))
        if layer in layers:
            self.shown.emit(layer)

    @property
    def _viewer(self) -> Viewer:
        viewer = self._viewer_ref()
        assert viewer is not None
        return viewer

    def _rest_if_idle(self) -> None:
        """Disconnect from the viewer if nothing can be undone any more."""
        if self._keys is None or self._users or self._followed or self.paused:
            return
        if self._viewer.layers and (self._done or self._undone):
            return
        self._done, self._undone = [], []
        self._inserted.follow()
        self._removed.follow()
        self._keys.unbind()
        self._keys = None

    def _limit(self) -> None:
        """Forget the oldest changes if there are too many, but never the last one."""
        del self._done[:-_UNDOABLE]
        room = _MOST
        for number, change in enumerate(reversed(self._done)):
            room -= 0 if change.before is None else change.before.nbytes
            if room < 0 and number:
                del self._done[: len(self._done) - number]
                break

    def _on_inserted(self, event: Any = None) -> None:
        for layer in self._viewer.layers:
            if layer not in self._followed and is_result(layer):
                self._followed[layer] = None
                layer.events.data.connect(self._on_data)

    def _on_removed(self, event: Any) -> None:
        layer = event.value
        if layer in self._followed:
            self._leave(layer)
        if not self.paused:
            for changes in (self._done, self._undone):
                changes[:] = [change for change in changes if change.layer is not layer]
            self.changed.emit()
        self._rest_if_idle()

    def _leave(self, layer: Points) -> None:
        del self._followed[layer]
        layer.events.data.disconnect(self._on_data)

    def _on_data(self, event: Any) -> None:
        """Record the points that napari deletes; clear the fit values of added ones."""
        when, added = deletes(event), added_rows(event)
        layer = event.source
        if self.paused or is_preview(layer):
            return
        if added:
            clear_fit_values(layer, added)
        if when == "before":
            self._before = LayerState.of(layer)
        elif when and self._before is not None:
            before, self._before = self._before, None
            layer.metadata = {**layer.metadata, "stop_counts": _counts_left(layer, before)}
            count = len(before.data) - len(layer.data)
            self.record(layer, before, f"the deletion of {count} spot{'s' * (count != 1)}")
            self.shown.emit(layer)


def history_of(viewer: Viewer) -> History:
    """Return the history of a viewer, started; without a window a new one for each call."""
    window = main_window(viewer)
    history = None if window is None else window.findChild(History)
    if history is None:
        history = History(itself(viewer), window)
    if window is not None:
        history.wake()
    return history


def _counts_left(layer: Points, before: LayerState) -> dict[str, int]:
    """Return how many fits ended under each condition, without those that were deleted."""
    earlier = before.features["stop_condition"].value_counts()
    left = layer.features["stop_condition"].value_counts()
    known = layer.metadata.get("stop_counts") or {str(name): int(n) for name, n in earlier.items()}
    gone = {name: int(earlier.get(name, 0)) - int(left.get(name, 0)) for name in known}
    return {name: max(count - gone[name], 0) for name, count in known.items()}


def clear_fit_values(layer: Points, rows: Sequence[int]) -> None:
    """Replace the values that napari copied to added points by those of a failed fit.

    Such points are not good, and do not count as spots.

    Parameters
    ----------
    layer : napari.layers.Points
        A layer of fitted spots.
    rows : sequence of int
        Which points; from the end where they are negative.
    """
    added = np.arange(len(layer.data))[list(rows)]
    marked = is_marked(layer)
    spatial = axes_of(settings_of_layer(layer.metadata))
    layer.features = _without_fits(layer.features, layer.data, added, spatial)
    _count_unfitted(layer, len(added))
    if marked:
        draw_marks(layer)


def _without_fits(
    features: pd.DataFrame, points: NDArray[np.float64], rows: NDArray[np.intp], spatial: int
) -> pd.DataFrame:
    """Return features with the values of a failed fit in some rows, but for their frame."""
    table = features.copy()
    index = [*index_of(map(str, features), points.shape[1] - spatial)]
    for number, (name, kind) in enumerate(features.dtypes.items()):
        if name == _STOP:
            known = getattr(kind, "categories", [StopCondition.INVALID.name])
            value: Any = StopCondition.INVALID.name if StopCondition.INVALID.name in known else None
        elif name in index:
            value = np.rint(points[rows, index.index(str(name))])
        else:
            value = _CELLS.get(str(name), None if getattr(kind, "kind", "O") == "O" else np.nan)
        table.iloc[rows, number] = value
    return table


def _count_unfitted(layer: Points, added: int) -> None:
    """Count added points among the failed fits, if those are counted."""
    counts = layer.metadata.get("stop_counts")
    if counts is not None:
        invalid = StopCondition.INVALID.name
        counts = {**counts, invalid: counts.get(invalid, 0) + added}
        layer.metadata = {**layer.metadata, "stop_counts": counts}
