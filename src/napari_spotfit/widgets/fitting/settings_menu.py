"""The menu "Settings": those of earlier fits and files for the next one, and as Python."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from qtpy.QtCore import Signal
from qtpy.QtWidgets import QApplication, QFileDialog, QMenu, QPushButton

from ...engine.select import usable_here
from ...files.settings_file import load_settings, save_settings
from ...models.profiles import Profile
from ...settings.settings import Settings, parameters
from ..layers.fits import settings_of_layer
from ..layers.images import image_of
from ..layers.points import is_result
from ..layers.refits import count_refits
from ..parts import remember
from ..parts.key_help import show_keys
from .fit_run import plain_frames
from .settings_panel import SettingsPanel
from .snippet import Fit, fit_as_python

if TYPE_CHECKING:
    from napari import Viewer
    from napari.layers import Points

    from ...results.spot_fits import SpotFits

_TIP = (
    "<p>Settings that travel: take those of an earlier result, of a file or of a recent fit, save "
    "these as a file, or copy the fit as Python.</p>"
)
_USE_TIP = "Set the controls to what this result was made with"
_OPEN_TIP = "Set the controls to the settings of a .toml file, or of a file of fitted spots"
_SAVE_TIP = "Save the settings shown as a .toml file, for people, scripts and other images"
_COPY_TIP = (
    "Copy Python that makes the same fits to the bit, with what was estimated, for napari's "
    "console or a script"
)
_COPIED = "Copied as Python: paste it into napari's console, or into a script."
_NOT_REFITS = " Spots that were refitted by themselves are not in it."
_KEYS_TIP = "List the keys and clicks over the image"
_OPENED = "Settings (*.toml);;Fitted spots (*.spots.parquet *.spots.csv *.parquet *.csv)"
_SAVED = "Settings (*.toml)"
#: So many fits are remembered, under this name.
_RECENT, _KEPT = "recent_fits", 8
#: What has no control, as every image tells it anew.
_ANEW = "noise"


class SettingsMenu(QPushButton):
    """A button with a menu.

    Parameters
    ----------
    viewer : napari.Viewer
        The viewer whose results have settings.
    panel : SettingsPanel
        The controls.
    result : callable
        Returns the layer of the result that is described, or None.
    """

    #: Something that the user should know, and something that went wrong.
    said, failed = Signal(str), Signal(str)

    def __init__(
        self,
        viewer: Viewer,
        panel: SettingsPanel,
        result: Callable[[], Points | None],
    ):
        super().__init__("Settings")
        self._viewer, self._panel, self._result = viewer, panel, result
        self.setToolTip(_TIP)
        menu = QMenu(self)
        menu.setToolTipsVisible(True)
        menu.aboutToShow.connect(self.fill)
        self.setMenu(menu)

    def fill(self) -> None:
        """List what there is now."""
        menu = self.menu()
        assert menu is not None
        menu.clear()
        for layer in reversed(self._viewer.layers):
            if is_result(layer) and layer.metadata.get("settings"):
                use = partial(self._use_layer, layer)
                _add(menu, f"Use those of “{layer.name}”", _USE_TIP, use)
        if recent := recent_fits():
            fits = menu.addMenu("Use those of a recent fit")
            assert fits is not None
            fits.setToolTipsVisible(True)
            for name, values in recent.items():
                _add(fits, name, _USE_TIP, partial(self._use_plain, f"the fit {name}", values))
        menu.addSeparator()
        _add(menu, "Open…", _OPEN_TIP, self._ask_open)
        _add(menu, "Save…", _SAVE_TIP, self._ask_save)
        menu.addSeparator()
        result = self._copied()
        what = "Copy as Python" if result is None else f"Copy the fit of “{result.name}” as Python"
        _add(menu, what, _COPY_TIP, self.copy)
        menu.addSeparator()
        _add(menu, "Keys and clicks…", _KEYS_TIP, partial(show_keys, self))

    def use(self, settings: Settings, whose: str) -> None:
        """Show settings in the controls, and say for which of them there is no control."""
        usable = usable_here(settings)
        if usable is not settings:
            settings, whose = usable, f"{whose}, less the GPU, of which there is none here"
        self._panel.put({**self._panel.values(), **control_values(settings)})
        try:
            shown = self._panel.settings()
        except ValueError:  # an expression is still being read
            self.said.emit(f"The settings are those of {whose}.")
            return
        other = [
            about.label
            for name, about in parameters().items()
            if name != _ANEW and getattr(shown, name) != getattr(settings, name)
        ]
        text = f"The settings are those of {whose}"
        self.said.emit(
            f"{text}, but for what has no control here, or a map: {', '.join(other)}."
            if other
            else f"{text}."
        )

    def open_from(self, path: Path) -> None:
        """Show the settings of a file."""
        try:
            settings = load_settings(path)
        except (ImportError, OSError, ValueError) as error:
            self.failed.emit(f"The settings stay as they are: {error}")
            return
        self.use(settings, path.name)

    def save_to(self, path: Path) -> None:
        """Save the settings that are shown."""
        try:
            save_settings(self._panel.settings(), path)
        except (OSError, ValueError) as error:
            self.failed.emit(f"The settings were not saved: {error}")
            return
        self.said.emit(f"The settings were saved as {path}")

    def copy(self) -> None:
        """Put Python on the clipboard: for the result described, else for what Fit would do."""
        try:
            text = self._snippet()
        except ValueError as error:
            self.failed.emit(f"Nothing was copied: {error}")
            return
        clipboard = QApplication.clipboard()
        if clipboard is not None:
            clipboard.setText(text)
            layer = self._copied()
            refitted = layer is not None and count_refits(layer.features) > 0
            self.said.emit(_COPIED + _NOT_REFITS * refitted)

    def _snippet(self) -> str:
        layer = self._copied()
        if layer is not None:
            known = layer.metadata
            image = image_of(layer, self._viewer.layers)
            settings = settings_of_layer(known)
            assert settings is not None
            name = known["image_name"] if image is None else image.name
            refits = count_refits(layer.features)
            fit = Fit(settings, name, known.get("frames"), known.get("map_names", {}), refits)
            return fit_as_python(fit, image)
        image = self._panel.image.layer
        if image is None:
            raise ValueError("there is no image to fit; open one")
        frames = plain_frames(self._panel.frames.frames(self._viewer, image))
        maps = {role: one.name for role, one in self._panel.layers().items()}
        return fit_as_python(Fit(self._panel.settings(), image.name, frames, maps), image)

    def _copied(self) -> Points | None:
        """Return the layer of the result whose fit would be copied, one that Fit has made."""
        layer = self._result()
        if layer is None or layer not in self._viewer.layers or not is_result(layer):
            return None
        known = layer.metadata
        whole = "frames" in known and "image_name" in known and known.get("settings")
        return layer if whole else None

    def _use_layer(self, layer: Points) -> None:
        self._use_plain(f"“{layer.name}”", layer.metadata["settings"])

    def _use_plain(self, whose: str, values: Mapping[str, Any]) -> None:
        try:
            settings = Settings(**values)
        except (TypeError, ValueError) as error:
            self.failed.emit(f"The settings of {whose} cannot be used: {error}")
            return
        self.use(settings, whose)

    def _ask_open(self) -> None:
        path, _ = QFileDialog.getOpenFileName(self, "Open settings", "", _OPENED)
        if path:
            self.open_from(Path(path))

    def _ask_save(self) -> None:
        path, _ = QFileDialog.getSaveFileName(self, "Save settings", "settings.toml", _SAVED)
        if path:
            place = Path(path)
            self.save_to(place if place.suffix else place.with_suffix(".toml"))


def control_values(settings: Settings) -> dict[str, Any]:
    """Return settings as the values that the panel's controls remember."""
    values = settings.to_dict()
    values["hold_sigma"] = False
    values["own"] = isinstance(settings.model, Profile)
    shape: dict[str, dict[str, Any]] = {}
    if isinstance(settings.model, Profile) and settings.model.expression is not None:
        own = settings.model.expression
        values["expression"] = own.text
        values |= {"model": Settings().model}
        for name, start, (low, high) in zip(own.names, own.start, own.bounds, strict=True):
            shape[name] = {"start": str(start), "low": low, "high": high}
    for name, held in settings.fixed.items():
        shape.setdefault(name, {})["held"] = held
    for name, (low, high) in settings.bounds.items():
        shape.setdefault(name, {}).update(low=low, high=high)
    values["shape"] = shape
    return values


def recent_fits() -> dict[str, dict[str, Any]]:
    """Return the settings of recent fits by what to call these, the latest first."""
    kept = remember.load(_RECENT).get("fits")
    return {
        str(fit["name"]): fit["settings"]
        for fit in (kept if isinstance(kept, list) else [])
        if isinstance(fit, dict) and isinstance(fit.get("settings"), dict) and "name" in fit
    }


def remember_fit(image: str, fits: SpotFits) -> None:
    """Remember what was fitted, with all that was estimated."""
    if fits.settings is None:
        return
    name = f"of “{image}”, {datetime.now():%Y-%m-%d %H:%M:%S}"
    recent = {name: fits.settings.to_dict()} | recent_fits()
    kept = [{"name": one, "settings": recent[one]} for one in list(recent)[:_KEPT]]
    remember.save(_RECENT, {"fits": kept})


def _add(menu: QMenu, text: str, tip: str, slot: Callable[[], None]) -> None:
    action = menu.addAction(text.replace("&", "&&"))
    assert action is not None
    action.setToolTip(tip)
    action.triggered.connect(lambda checked=False: slot())
