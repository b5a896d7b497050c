"""Choose the calibration from which fits have z; those of this session are known everywhere."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from qtpy.QtCore import QObject, QSignalBlocker, Signal
from qtpy.QtWidgets import QFileDialog

from ...calibration.files import load_calibration
from ...models.calibration import Calibration
from ..parts.boxes import Choice

OPENED = "Calibrations (*.h5 *.hdf5 *.yaml *.yml *.xml *.mat)"
_NONE, _OPEN = "no calibration", "Open a file…"
TIP = (
    "<p>A calibration of the microscope on beads, from which each spot gets its z, in nm: one that "
    "<b>Calibrate PSF</b> has made, or a file. It decides the model, the estimator and the ROI's "
    "size.</p>"
)


class _Known(QObject):
    """The calibrations of this session, by name."""

    #: There is another one; and one that is to be taken now, by name.
    changed = Signal()
    offered = Signal(str)

    def __init__(self) -> None:
        super().__init__()
        self.by_name: dict[str, Calibration] = {}

    def add(self, name: str, calibration: Calibration, *, offer: bool = False) -> None:
        """Let a calibration be chosen in every form; with ``offer`` choose it."""
        if self.by_name.get(name) != calibration:
            self.by_name[name] = calibration
            self.changed.emit()
        if offer:
            self.offered.emit(name)


KNOWN = _Known()


class CalibrationChoice(Choice):
    """The calibration of fits: none, one of this session, or that of a file."""

    #: Another calibration is chosen.
    changed = Signal()
    #: Why a file cannot be opened.
    failed = Signal(str)

    def __init__(self) -> None:
        super().__init__(room=7)
        #: The one that is chosen.
        self.calibration: Calibration | None = None
        self._list()
        self.activated.connect(self._on_activated)
        KNOWN.changed.connect(self._list)
        KNOWN.offered.connect(self.choose)

    def choose(self, name: str) -> None:
        """Choose a calibration of this session by name; nothing for none."""
        chosen = KNOWN.by_name.get(name)
        if chosen != self.calibration:
            self.calibration = chosen
            self.changed.emit()
        self._list()

    def open(self, path: Path) -> None:
        """Take the calibration of a file."""
        try:
            found = load_calibration(path)
        except (ImportError, OSError, ValueError) as error:
            self.failed.emit(str(error))
            return
        KNOWN.add(path.name, found)
        self.choose(path.name)

    def put(self, values: Any) -> None:
        """Take a remembered calibration, as its plain values; none if they are not valid."""
        name = ""
        if isinstance(values, Mapping):
            try:
                found = Calibration.from_dict(values)
            except ValueError:
                return
            known = (one for one, own in KNOWN.by_name.items() if own == found)
            name = next(known, found.words)
            KNOWN.add(name, found)
        self.choose(name)

    def _list(self) -> None:
        """List what can be chosen, and show what is."""
        with QSignalBlocker(self):
            self.clear()
            self.addItem(_NONE, "")
            for name, calibration in KNOWN.by_name.items():
                self.addItem(name, name)
                self.setItemData(self.count() - 1, calibration.words, 3)  # as a tooltip
                if calibration == self.calibration:
                    self.setCurrentIndex(self.count() - 1)
            self.addItem(_OPEN)

    def _on_activated(self, index: int) -> None:
        if self.itemData(index) is not None:
            self.choose(self.itemData(index))
            return
        if path := QFileDialog.getOpenFileName(self, "Open a calibration", "", OPENED)[0]:
            self.open(Path(path))
        self._list()
