"""Estimate, plot, save and subtract the drift of fiducials among a layer's spots."""

from __future__ import annotations

import warnings
import zlib
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from qtpy.QtWidgets import QHBoxLayout

from ...analysis.drift import Drift, fiducial_drift, save_drift
from ...analysis.linking import link_spots
from ...files.table import steps
from ...results.formatting import Units
from ...settings.validation import Parameter
from ..layers.points import HISTORY, fits_of_features
from ..layers.result_layers import can_be_subtracted, put_tracks, subtract
from ..parts.boxes import NumberBox
from ..parts.layout import Label, ask_to_save, button, fill, flow
from ..parts.messages import StatusLine, in_words, number
from ..parts.plots import BLUE, ORANGE, Band, Plot
from ..parts.work import Latest
from .shown_spots import Page, ShownSpots
from .z_scale import Z_SCALE_CALLED, ZScale

if TYPE_CHECKING:
    from napari.layers import Points

    from ...results.spot_fits import SpotFits

_TIP = (
    "<p>How far the sample has moved since the first frame, with a band of one standard error: "
    "y blue, x orange.</p>"
)
#: Width and height in pixels with axes, at least.
_LEAST = 140, 90


class DriftPlot(Plot):
    """Draws drift along y and x with its errors, and is hidden without one."""

    def __init__(self) -> None:
        super().__init__("frame", "drift [px]", "Drift over the frames", _TIP)
        self.curves = [Band(self, color) for color in (BLUE, ORANGE)]
        self.setMinimumSize(*_LEAST)

    def show_drift(self, drift: Drift | None, units: Units) -> None:
        """Draw a drift in some units."""
        self.setVisible(drift is not None)
        if drift is None:
            return
        factor, unit = units.factor("x"), units.unit("x") or "px"
        self.setLabel("left", f"drift [{unit}]")
        for curve, axis in zip(self.curves, "yx", strict=True):
            values, errors = (getattr(drift, one) * factor for one in (axis, f"{axis}_stderr"))
            curve.show(np.arange(float(len(values))), values, np.nan_to_num(errors))
        self.autoRange()


_DISTANCE = Parameter(
    "Farthest step", "How far a fiducial moves from one frame to the next, at most.", "run",
    unit="px", minimum=0, step=0.5,
)  # fmt: skip
_MEMORY = Parameter(
    "Missing", "For how many frames a fiducial may be missing and be the same afterwards.", "run",
    unit="frames", minimum=0,
)  # fmt: skip
_SHARE = Parameter(
    "Seen in", "In which share of the frames a spot must be seen to be a fiducial.", "run",
    unit="%", minimum=1, maximum=100, step=10,
)  # fmt: skip
#: What the controls are called where messages have the arguments of functions.
_CALLED = {
    "max_distance": _DISTANCE.label, "memory": _MEMORY.label, "least_share": _SHARE.label,
    **Z_SCALE_CALLED,
}  # fmt: skip
_NONE_SHOWN = "No spots are shown to look for fiducials in. Take filters away under Filter."
_NO_SPOTS = "This layer has no spots to look for fiducials in. Fit again, with more false spots."
_HINT = (
    "Fiducials are spots that stay: beads, for example. Select some, or filter for them; else all "
    "spots that are shown are searched."
)
_FIND_TIP = (
    "<p>Link the spots that are selected, or else all that are shown, over the frames, and average "
    "the shifts of those that stay, by their standard errors.</p>"
)
_SUBTRACT_TIP = (
    "<p>Move all spots of this layer back by the drift, also those that are hidden; of a layer "
    "with the spots of several files, those of this file. <i>Undo</i> takes it back.</p>"
)
_TRACKS_TIP = "<p>Add a Tracks layer with the fiducials, which napari draws over time.</p>"
_SAVE_TIP = "<p>Save the drift as a table (.csv), or as text that Picasso reads (.txt).</p>"
_OTHERS = "The layer has got other spots since its drift was found. Find it again."


class _Found(NamedTuple):
    """What was found among some spots of a layer."""

    linked: SpotFits
    drift: Drift
    #: Their file, where the layer has spots of several.
    file: str | None
    #: The checksum of the layer's positions then.
    positions: int
    warnings: tuple[str, ...]


class DriftPage(Page):
    """Finds the drift of the spots that are shown.

    Parameters
    ----------
    spots : ShownSpots
        The spots.
    """

    def __init__(self, spots: ShownSpots):
        super().__init__(spots)
        self.distance = NumberBox(_DISTANCE, sample="00.0 px", value=1.0)
        self.memory = NumberBox(_MEMORY, whole=True, sample="00 frames", value=5)
        self.share = NumberBox(_SHARE, whole=True, sample="100 %", value=50)
        self.z_scale, self.hint, self.plot = ZScale(), StatusLine(), DriftPlot()
        self.find_button = button("Find drift", _FIND_TIP, self.find_drift)
        self.subtract_button = button("Subtract", _SUBTRACT_TIP, self.subtract)
        self.tracks_button = button("Tracks", _TRACKS_TIP, self._add_tracks)
        self.save_button = button("Save…", _SAVE_TIP, self._ask_where)
        self.work = Latest(self, self._on_done, self._fail)
        self._found: _Found | None = None
        #: The layer that the page describes, and the checksum of its positions.
        self._of: Points | None = None
        self._positions = 0
        self._lay_out()
        self._show_nothing(_HINT)

    def unbind(self) -> None:
        """Stop working."""
        self.work.drop()

    def find_drift(self) -> None:
        """Look for fiducials among the spots that are selected, or shown."""
        layer = self._spots.layer
        if layer is None:
            return
        why = can_be_subtracted(layer)
        rows = np.flatnonzero(self._spots.shown)
        if not (why or len(rows)):
            why = _NONE_SHOWN if len(layer.data) else _NO_SPOTS
        if why:
            self._show_nothing(why, failed=True)
            return
        selected = np.array(sorted(layer.selected_data), np.int64)
        tracks = selected if len(selected) > 1 else rows
        job = partial(
            _find, layer.features, dict(layer.metadata), tracks, float(self.distance.get() or 0),
            int(self.memory.get() or 0), float(self.share.get() or 1) / 100, self.z_scale.get(),
            _positions_checksum(layer),
        )  # fmt: skip
        self.hint.say(f"Looking through {number(len(tracks))} spots…")
        self.find_button.setEnabled(False)
        self.work.ask(lambda: (layer, job()))

    def subtract(self) -> None:
        """Move the layer's spots back."""
        layer = self._spots.layer
        if self._found is None or layer is not self._of or layer is None:
            return
        file, drift = self._found.file, self._found.drift
        again = drift.step in steps(layer.metadata.get(HISTORY))
        try:
            subtract(layer, drift, self._history, file)
        except ValueError as error:
            self._fail(error)
            return
        whose = "of this layer" if file is None else f"of {file}"
        text = f"Subtracted from all spots {whose}"
        if again:
            text += ", but it was subtracted before: now they have moved by twice the drift"
        self._show_nothing(f"{text}. Undo takes it back.", failed=again)

    def save_to(self, path: Path) -> None:
        """Write the drift to a file."""
        if self._found is None:
            return
        try:
            save_drift(self._found.drift, path)
        except (OSError, ValueError) as error:
            self.failed.emit(f"{path} was not written: {error}")
            return
        self.said.emit(f"The drift of {number(len(self._found.drift))} frames saved as {path}")

    def show_table(self) -> None:
        """Forget the drift of other spots; show it in other units."""
        layer = self._spots.layer
        self.z_scale.show_for(() if layer is None else layer.features)
        if layer is not self._of:
            self.work.drop()
            self._show_nothing(_HINT)
        elif layer is not None and _positions_checksum(layer) != self._positions:
            # After a fit, its undo, or a picked spot the message is about other spots.
            self._show_nothing(_HINT if self._found is None else _OTHERS)
        elif self._found is not None:
            self._show(self._found)  # in other units

    def _on_done(self, done: tuple[Points, _Found]) -> None:
        layer, found = done
        if layer is not self._spots.layer:
            return
        if found.positions != _positions_checksum(layer):
            self._show_nothing(_OTHERS)
            return
        self._of, self._found, self._positions = layer, found, found.positions
        self._show(found)

    def _show(self, found: _Found) -> None:
        units, drift = self._spots.units, found.drift
        self.plot.show_drift(drift, units)
        text, layer = _in_words(found, units), self._spots.layer
        before = () if layer is None else steps(layer.metadata.get(HISTORY))
        if drift.step in before:
            text += ". This drift was subtracted before"
        elif any(step.name == drift.step.name for step in before):
            text += ". A drift was subtracted before: this is what is left"
        said = "".join(f". {one}" for one in found.warnings)
        self.hint.put(f"{'⚠ ' * bool(said)}{text}{said}", failed=bool(said))
        self._offer(True)

    def _fail(self, error: Exception) -> None:
        self._show_nothing(in_words(error, _CALLED), failed=True)

    def _show_nothing(self, why: str, *, failed: bool = False) -> None:
        self._found, self._of = None, self._spots.layer
        self._positions = 0 if self._of is None else _positions_checksum(self._of)
        (self.hint.fail if failed else self.hint.say)(why)
        self._offer(False)

    def _offer(self, some: bool) -> None:
        self.find_button.setEnabled(self._spots.layer is not None)
        # An empty plot would be no higher than its own numbers.
        self.plot.setVisible(some)
        for one in (self.subtract_button, self.tracks_button, self.save_button):
            one.setEnabled(some)

    def _add_tracks(self) -> None:
        layer = self._spots.layer
        if self._found is not None and layer is not None and layer is self._of:
            put_tracks(self._viewer, layer, self._found.linked)

    def _ask_where(self) -> None:
        layer = self._spots.layer
        if layer is None:
            return
        kinds = "table (*.csv);;Picasso's text (*.txt)"
        if chosen := ask_to_save(self, "Save drift", f"{layer.name}.drift", ".csv", kinds):
            self.save_to(chosen[0])

    def _lay_out(self) -> None:
        choice = flow(
            (Label(_DISTANCE.label), self.distance), (Label(_MEMORY.label), self.memory),
            (Label(_SHARE.label), self.share), (self.z_scale,), (self.find_button,),
        )  # fmt: skip
        buttons = fill(QHBoxLayout(), 1, self.subtract_button, self.tracks_button, self.save_button)
        self.fill(choice, self.hint, (self.plot, 1), 0, buttons)


def _find(
    features: Any, metadata: dict[str, Any], rows: NDArray[np.int64],
    distance: float, memory: int, share: float, z_scale: float | None, positions: int,
) -> _Found:  # fmt: skip
    """Return the drift estimated from some rows of a layer."""
    fits = fits_of_features(features, metadata, 3)  # no others can be linked here
    file, frames = None, fits
    if "file" in features and features["file"].nunique() > 1 and len(rows):
        # Rows of several of them are refused below.
        file = str(features["file"].iloc[rows[0]])
        frames = fits[(features["file"] == file).to_numpy()]
    count = int(frames.frame.max(initial=-1)) + 1
    # In a worker thread nothing else shows them.
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        linked = link_spots(fits[rows], distance, memory=memory, z_scale=z_scale)
        drift = fiducial_drift(linked, count, least_share=share)
    said = tuple(in_words(one.message, _CALLED) for one in caught)
    return _Found(linked, drift, file, positions, said)


def _positions_checksum(layer: Points) -> int:
    """Return a checksum that changes when a layer's spots move, come or go."""
    # napari moves dragged points within the array.
    return zlib.crc32(np.ascontiguousarray(layer.data).data, len(layer.data))


def _in_words(found: _Found, units: Units) -> str:
    drift, factor, unit = found.drift, units.factor("x"), units.unit("x") or "px"
    way, error = (factor * length for length in drift.extent)
    missing = int(np.count_nonzero(drift.used == 0))
    count = int(drift.used.max())
    text = (
        f"{number(count)} fiducial{'s' * (count != 1)}: {way:.3g} {unit} of drift over "
        f"{number(len(drift))} frames, ± {error:.2g} {unit} in each"
    )
    return f"{text}; {number(missing)} frames without any are interpolated" if missing else text
