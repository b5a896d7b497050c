"""One spot fitted again with other settings, beside its earlier fit, until one of them is kept."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from magicgui.widgets import ComboBox
from numpy.typing import NDArray
from qtpy.QtCore import QObject, Signal
from qtpy.QtWidgets import QCheckBox, QVBoxLayout, QWidget

from ...analysis.spot_sample import settings_of
from ...engine.select import usable_here
from ...estimation.image_estimates import MeasuredNoise
from ...models.calibration import Calibration
from ...models.estimators import StopCondition
from ...models.profiles import Profile
from ...results.spot_fits import SpotFits
from ...settings.settings import Settings
from ..fitting.pick import FrameSpots, Pick
from ..fitting.picked_layer import fitted
from ..layers.appearance import Look
from ..layers.images import full_resolution
from ..layers.maps import maps_of
from ..layers.result_layers import Row, put_row
from ..parts.form import SettingsForm
from ..parts.layout import button, fill, flow, sentence, show_text
from ..parts.messages import in_words
from ..parts.work import Latest
from .spot import Spot, spot_as

if TYPE_CHECKING:
    from napari import Viewer
    from napari.layers import Image, Points

    from ..layers.history import History

_FITTING = "Fitting…"
_UNCHANGED = "These are the settings of the fit as it is."
_NAMES = ("model", "estimator", "roi_size", "neighbours")
_FIX_TIP = "<p>Do not fit σ: fix it at this value, that of the PSF.</p>"
_NEW_TIP = (
    "<p>Put the new fit in the place of the old one: all its numbers, flags, colour and mark. The "
    "layer notes which of its spots have settings of their own (the feature refit). Ctrl+Z over "
    "the image takes it back, as does Keep old.</p>"
)
_OLD_TIP = "<p>Leave the fit as it was, or put it back.</p>"
CHANGE = "Change a setting: the spot is fitted again, and nothing is replaced until you keep it."


class Refit(QObject):
    """Fits the spot that is inspected again, by the code of clicks, whenever its bar changes.

    Parameters
    ----------
    viewer : napari.Viewer
        The viewer.
    bar : RefitBar
        The settings, and what to keep.
    history : History
        Records the fit that is kept.
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
        self._latest = Latest(self, self._on_done, self._on_failed)
        bar.changed.connect(self._on_changed)
        bar.keep_new.clicked.connect(lambda: self._keep(self._new))
        bar.keep_old.clicked.connect(lambda: self._keep(self._old))

    def follow(self, layer: Points, row: int, image: Image, place: NDArray[np.float64]) -> None:
        """Take a spot whose fit began at this y and x; a refit of the same one stays."""
        same = layer is self._layer and image is self._image and row == self._row
        if same and self._is_in_layer:
            self._show_state()
            return
        self.forget()
        self._layer, self._row, self._image = layer, row, image
        self._old, self._place = Row.of(layer, row), place
        self._show_settings(self._old)
        self._show_state()

    def forget(self, why: str = CHANGE) -> None:
        """Drop the spot, and show why."""
        self._latest.drop()
        self._layer = self._image = self._old = self._new = None
        self._error = ""
        self._bar.show_state(why)

    @property
    def _is_in_layer(self) -> bool:
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
        self._latest.ask(partial(fitted, pick, self._place, Look()))

    def _pick(self, layer: Points, image: Image, old: Row) -> Pick:
        pixels = full_resolution(image)
        if self._noise[0] is not pixels:
            self._noise, self._spots = (pixels, MeasuredNoise()), FrameSpots()
        settings = self._bar.settings()
        return Pick(
            pixels,
            tuple(int(i) for i in np.rint(old.point[: -settings.dimensions])),
            settings,
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
        self._show_state()
        self.changed.emit()

    def _on_failed(self, error: Exception) -> None:
        self._compare_with_kept()
        self._new, self._error = None, f"⚠ Not fitted with these settings: {in_words(error)}"
        self._show_state()
        self.changed.emit()

    def _compare_with_kept(self) -> None:
        """Compare the next fit with the new one if the layer has that."""
        if self.new_is_kept:
            self._old = self._new

    def _keep(self, row: Row | None) -> None:
        layer = self._layer
        if layer is None or row is None or layer not in self._viewer.layers:
            return
        if not self._is_in_layer:  # rows have come or gone
            self.forget()
            self.changed.emit()
            return
        if not row.is_in(layer, self._row):
            put_row(layer, self._row, row, self._history)
        if row is self._old:
            self._new, self._error = None, ""
            self._show_settings(row)
        self._show_state()
        self.changed.emit()

    def _show_settings(self, row: Row) -> None:
        self._bar.show_settings(usable_here(settings_of(row.cells, row.settings)))

    def _show_state(self) -> None:
        """Show which fit the layer has."""
        layer, old, new = self._layer, self._old, self._new
        if self._latest.busy:
            return
        if self._error:
            self._bar.show_state(self._error, old=True)
        elif layer is None or old is None or new is None:
            self._bar.show_state(CHANGE)
        elif Settings(**new.settings) == Settings(**old.settings):
            self._bar.show_state(_UNCHANGED, old=True)
        else:
            self._bar.show_state("", new=not self.new_is_kept, old=True)


class RefitBar(QWidget):
    """The few settings of a refit, two buttons that keep a fit, and a sentence."""

    #: The user has changed a setting.
    changed = Signal()

    def __init__(self) -> None:
        super().__init__()
        self._base = Settings()
        self.controls = SettingsForm(only=_NAMES)
        self.fix = QCheckBox()
        self.keep_new, self.keep_old = button("Keep new", _NEW_TIP), button("Keep old", _OLD_TIP)
        self.text = sentence()
        self.fix.setToolTip(_FIX_TIP)
        settings = ((self.controls.row(name),) for name in _NAMES)
        controls = flow(*settings, (self.fix, self.keep_new, self.keep_old))
        fill(QVBoxLayout(self), controls, self.text, spacing=4)
        for rows in (self.controls.first, self.controls.folded):
            rows.changed.connect(lambda: self.changed.emit())
        self.fix.toggled.connect(self.changed)

    def show_settings(self, settings: Settings) -> None:
        """Show what a spot was fitted with."""
        self._base = settings
        self.blockSignals(True)
        for name, control in self.controls.controls.items():
            value = getattr(settings, name)
            control.enabled = not isinstance(value, (Profile, Calibration, tuple, list))
            if isinstance(control, ComboBox) and value not in control.choices:
                control.enabled = False  # such as a model in volumes
            if control.enabled:
                control.value = value
        value = self._fixed_value()
        self.fix.setText("Fix σ" if value is None else f"Fix σ at {value:.3g} px")
        self.fix.setEnabled(value is not None and isinstance(settings.model, str))
        self.fix.setChecked(any(name in settings.fixed for name in _widths(settings)))
        self.blockSignals(False)

    def settings(self) -> Settings:
        """Return the settings of the refit; those without a control are unchanged.

        Raises
        ------
        ValueError
            If they do not go together.
        """
        controls = self.controls.controls.items()
        chosen: dict[str, Any] = {name: one.value for name, one in controls if one.enabled}
        model = Settings(model=chosen.get("model", self._base.model))
        known, value = {shape.name for shape in model.profile.shape}, self._fixed_value()
        fixed = {name: one for name, one in self._base.fixed.items() if name in known}
        if self.fix.isEnabled():
            fixed = {name: one for name, one in fixed.items() if name not in _widths(model)}
            if self.fix.isChecked():
                fixed |= dict.fromkeys(_widths(model), value)
        bounds = {name: one for name, one in self._base.bounds.items() if name in known}
        # A fixed parameter has no bounds.
        bounds = {name: one for name, one in bounds.items() if name not in fixed}
        return self._base.changed(**chosen, fixed=fixed, bounds=bounds)

    def show_state(self, text: str, *, new: bool = False, old: bool = False) -> None:
        """Show a sentence, and which of the fits can be kept."""
        show_text(self.text, text)
        self.keep_new.setEnabled(new)
        self.keep_old.setEnabled(old)

    def _fixed_value(self) -> float | None:
        fixed = (self._base.fixed.get(name) for name in _widths(self._base))
        return next((one for one in fixed if one is not None), self._base.sigma)


def _widths(settings: Settings) -> list[str]:
    """Return the names of a model's σ."""
    if not isinstance(settings.model, str):
        return []
    # σ along z is another one than the PSF's in planes.
    return [one for one in settings.profile.widths if one.startswith("sigma") and one != "sigma_z"]
