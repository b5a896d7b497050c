"""The few settings with which one spot is fitted again, and what to keep."""

from __future__ import annotations

from typing import Any

from qtpy.QtCore import Signal
from qtpy.QtWidgets import QCheckBox, QHBoxLayout, QPushButton, QVBoxLayout, QWidget
from superqt import QFlowLayout

from ...models.profiles import MODELS, Profile
from ...settings.settings import Settings
from ..parts.form import SettingsForm
from ..parts.layout import fill, sentence

_NAMES = ("model", "estimator", "roi_size", "neighbours")
_HOLD_TIP = "<p>Do not fit σ, but hold it at this value: that of the PSF.</p>"
_NEW_TIP = (
    "<p>Put the new fit in the place of the old one: all its numbers, flags, colour and mark. The "
    "layer notes which of its spots have settings of their own (the feature refit). Ctrl+Z over "
    "the image takes it back, as does Keep old.</p>"
)
_OLD_TIP = "<p>Leave the fit as it was, or put it back.</p>"
CHANGE = "Change a setting: the spot is fitted again, and nothing is replaced until you keep it."


class RefitBar(QWidget):
    """Controls that begin with a spot's own settings, two buttons, and a sentence."""

    #: The user has changed a setting.
    changed = Signal()
    #: The new fit is to be kept, or the old one.
    new_kept, old_kept = Signal(), Signal()

    def __init__(self) -> None:
        super().__init__()
        self._base = Settings()
        self.controls = SettingsForm(only=_NAMES)
        self.hold = QCheckBox()
        self.keep_new, self.keep_old = QPushButton("Keep new"), QPushButton("Keep old")
        self.text = sentence()
        self._lay_out()
        for rows in (self.controls.first, self.controls.folded):
            rows.changed.connect(self._on_changed)
        self.hold.toggled.connect(self.changed)
        self.keep_new.clicked.connect(self.new_kept)
        self.keep_old.clicked.connect(self.old_kept)

    def show_settings(self, settings: Settings) -> None:
        """Show what a spot was fitted with."""
        self._base = settings
        self.blockSignals(True)
        for name, control in self.controls.controls.items():
            value = getattr(settings, name)
            control.enabled = not isinstance(value, (Profile, tuple, list))
            if control.enabled:
                control.value = value
        held = self._held_value()
        self.hold.setText("Hold σ" if held is None else f"Hold σ at {held:.3g} px")
        self.hold.setEnabled(held is not None and not isinstance(settings.model, Profile))
        self.hold.setChecked(any(name in settings.fixed for name in _widths(settings)))
        self.blockSignals(False)

    def settings(self) -> Settings:
        """Return the settings of the refit; what has no control here is as it was.

        Raises
        ------
        ValueError
            If they do not go together.
        """
        controls = self.controls.controls.items()
        chosen: dict[str, Any] = {name: one.value for name, one in controls if one.enabled}
        model = Settings(model=chosen.get("model", self._base.model))
        known, held = {shape.name for shape in model.profile.shape}, self._held_value()
        fixed = {name: one for name, one in self._base.fixed.items() if name in known}
        if self.hold.isEnabled():
            fixed = {name: one for name, one in fixed.items() if name not in _widths(model)}
            if self.hold.isChecked():
                fixed |= dict.fromkeys(_widths(model), held)
        bounds = {name: one for name, one in self._base.bounds.items() if name in known}
        # A held parameter has no bounds.
        bounds = {name: one for name, one in bounds.items() if name not in fixed}
        return self._base.changed(**chosen, fixed=fixed, bounds=bounds)

    def _on_changed(self) -> None:
        self.changed.emit()

    def show_state(self, text: str, *, new: bool = False, old: bool = False) -> None:
        """Say where things stand, and which of the fits can be kept."""
        self.text.setText(text)
        self.text.setVisible(bool(text))
        self.keep_new.setEnabled(new)
        self.keep_old.setEnabled(old)

    def _held_value(self) -> float | None:
        held = (self._base.fixed.get(name) for name in _widths(self._base))
        return next((one for one in held if one is not None), self._base.sigma)

    def _lay_out(self) -> None:
        self.hold.setToolTip(_HOLD_TIP)
        self.keep_new.setToolTip(_NEW_TIP)
        self.keep_old.setToolTip(_OLD_TIP)
        controls = QFlowLayout()
        last = QWidget()
        fill(QHBoxLayout(last), self.hold, self.keep_new, self.keep_old)
        for part in (*map(self.controls.row, _NAMES), last):
            part.setContentsMargins(0, 0, 8, 0)
            controls.addWidget(part)
        fill(QVBoxLayout(self), controls, self.text, spacing=4)


def _widths(settings: Settings) -> list[str]:
    """Return what is a σ of a model."""
    if isinstance(settings.model, Profile):
        return []
    return [name for name in MODELS[settings.model].widths if name.startswith("sigma")]
