"""The menu "Settings": those of earlier fits and files for the next one, and a fit as Python."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from qtpy.QtCore import Qt, Signal
from qtpy.QtWidgets import QApplication, QFileDialog, QMenu, QMessageBox, QPushButton, QWidget

from ...engine.select import usable_here
from ...files.settings_file import literal, load_settings, save_settings, settings_as_python
from ...models.calibration import Calibration
from ...models.profiles import Profile
from ...settings.settings import Settings, parameters
from ..layers.images import image_of, own_pixels
from ..layers.maps import QUANTITIES
from ..layers.points import is_result, settings_of_layer
from ..layers.result_layers import count_refits
from ..parts.layout import add_action, ask_to_save
from ..parts.remember import recent_fits
from .image_fit import plain_frames
from .settings_panel import SettingsPanel

if TYPE_CHECKING:
    from napari import Viewer
    from napari.layers import Image, Points


#: Keys or clicks, and what they do.
KEYS = (
    ("Shift-click", "Fit the spot there; drag, and the fit follows the mouse."),
    ("Click", "Fit the spot there while Fit on click is pressed; else Results shows it."),
    ("Delete, Backspace", "Remove the selected spots."),
    ("Ctrl+Z, Ctrl+Shift+Z", "Take back what was done to layers of spots; do it again."),
    ("Page Up, Page Down", "Go to the doubtful spot before, to the next one (Inspect)."),
    (".", "While it is held down, show the image without any marks."),
)
#: Chosen frames as plain values; see :func:`~.image_fit.plain_frames`.
PlainFrames = list[list[int] | int | None] | None
_DEFAULTS = Settings()
_MENU_TIP = (
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
#: The setting without a control, as it is measured for each image.
_MEASURED = "noise"


class SettingsMenu(QPushButton):
    """A button with a menu.

    Parameters
    ----------
    viewer : napari.Viewer
        The viewer whose results have settings.
    panel : SettingsPanel
        The controls.
    result : callable
        Returns the layer of the result that the panel shows, or None.
    """

    #: A message, and an error message.
    said, failed = Signal(str), Signal(str)

    def __init__(self, viewer: Viewer, panel: SettingsPanel, result: Callable[[], Points | None]):
        super().__init__("Settings")
        self._viewer, self._panel, self._result = viewer, panel, result
        self.setToolTip(_MENU_TIP)
        menu = QMenu(self)
        menu.setToolTipsVisible(True)
        menu.aboutToShow.connect(self.fill)
        self.setMenu(menu)

    def fill(self) -> None:
        """Fill the menu with what can be used now."""
        menu = self.menu()
        assert menu is not None
        menu.clear()
        for layer in reversed(self._viewer.layers):
            if is_result(layer) and layer.metadata.get("settings"):
                use = partial(self._use_plain, f"“{layer.name}”", layer.metadata["settings"])
                add_action(menu, f"Use those of “{layer.name}”", use, _USE_TIP)
        if recent := recent_fits():
            fits = menu.addMenu("Use those of a recent fit")
            assert fits is not None
            fits.setToolTipsVisible(True)
            for name, values in recent.items():
                use = partial(self._use_plain, f"the fit {name}", values)
                add_action(fits, name, use, _USE_TIP)
        menu.addSeparator()
        add_action(menu, "Open…", self._ask_open, _OPEN_TIP)
        add_action(menu, "Save…", self._ask_save, _SAVE_TIP)
        menu.addSeparator()
        result = self._copied()
        what = "Copy as Python" if result is None else f"Copy the fit of “{result.name}” as Python"
        add_action(menu, what, self.copy, _COPY_TIP)
        menu.addSeparator()
        add_action(menu, "Keys and clicks…", partial(show_keys, self), _KEYS_TIP)

    def use(self, settings: Settings, whose: str) -> None:
        """Show settings in the controls, and name those without a control."""
        usable = usable_here(settings)
        if usable is not settings:
            settings, whose = usable, f"{whose}, without the GPU, as none is available"
        self._panel.put({**self._panel.values(), **control_values(settings)})
        try:
            shown = self._panel.settings()
        except ValueError:  # an expression is still being read
            self.said.emit(f"The settings are those of {whose}.")
            return
        other = [
            about.label
            for name, about in parameters().items()
            if name != _MEASURED and getattr(shown, name) != getattr(settings, name)
        ]
        if other:
            whose += f", except those without a control, or with a map: {', '.join(other)}"
        self.said.emit(f"The settings are those of {whose}.")

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
        images = self._panel.image.ticked
        if not images:
            raise ValueError("there is no image to fit; tick or open one")
        maps = {role: one.name for role, one in self._panel.layers().items()}
        settings, frames = self._panel.settings(), self._panel.frames
        return "\n".join(
            fit_as_python(
                Fit(settings, one.name, plain_frames(frames.frames(self._viewer, one)), maps), one
            )
            for one in images
        )

    def _copied(self) -> Points | None:
        """Return the layer whose fit would be copied: one that Fit has made, or None."""
        layer = self._result()
        if layer is None or layer not in self._viewer.layers or not is_result(layer):
            return None
        known = layer.metadata
        whole = "frames" in known and "image_name" in known and known.get("settings")
        return layer if whole else None

    def _use_plain(self, whose: str, values: Mapping[str, Any]) -> None:
        try:
            settings = Settings(**values)
        except (TypeError, ValueError) as error:
            self.failed.emit(f"The settings of {whose} cannot be used: {error}")
            return
        self.use(settings, whose)

    def _ask_open(self) -> None:
        if path := QFileDialog.getOpenFileName(self, "Open settings", "", _OPENED)[0]:
            self.open_from(Path(path))

    def _ask_save(self) -> None:
        if chosen := ask_to_save(self, "Save settings", "settings", ".toml", _SAVED):
            self.save_to(chosen[0])


def control_values(settings: Settings) -> dict[str, Any]:
    """Return settings as the values that the panel's controls remember."""
    values = settings.to_dict()
    values["fix_sigma"] = False
    values["own"] = isinstance(settings.model, Profile)
    shape: dict[str, dict[str, Any]] = {}
    if isinstance(settings.model, Calibration):
        values["calibration"] = values["model"]
    if not isinstance(settings.model, str):
        values["model"] = Settings().model
    if isinstance(settings.model, Profile) and settings.model.expression is not None:
        own = settings.model.expression
        values["expression"] = own.text
        for name, start, (low, high) in zip(own.names, own.start, own.bounds, strict=True):
            shape[name] = {"start": str(start), "low": low, "high": high}
    for name, fixed in settings.fixed.items():
        shape.setdefault(name, {})["fixed"] = fixed
    for name, (low, high) in settings.bounds.items():
        shape.setdefault(name, {}).update(low=low, high=high)
    values["shape"] = shape
    return values


@dataclass(frozen=True)
class Fit:
    """Everything that determines a fit.

    Parameters
    ----------
    settings : Settings
        With all that was estimated, if there is a result.
    image : str
        The name of the image's layer.
    frames : list or None
        The chosen frames.
    maps : mapping of str to str
        The names of the layers that describe the pixels, by what they describe.
    refits : int
        How many of its spots were fitted again since, with settings of their own.
    """

    settings: Settings
    image: str
    frames: PlainFrames = None
    maps: Mapping[str, str] = field(default_factory=dict)
    refits: int = 0


def fit_as_python(fit: Fit, layer: Image | None = None) -> str:
    """Return Python that fits the same spots to the bit, and shows them.

    In a script it opens the image where that came from a file or a sample; else it takes a viewer
    that has it.

    Parameters
    ----------
    fit : Fit
        What was fitted, and how.
    layer : Image, optional
        The image's layer, if it is open.
    """
    lines = ["import napari", "import napari_spotfit"]
    if fit.maps:
        lines.append("from napari_spotfit.widgets.layers.maps import layer_maps")
    # A result's settings have the mean of a map, which is not accepted beside the map.
    without = {name: getattr(_DEFAULTS, name) for name in QUANTITIES if name in fit.maps}
    lines += ["", f"settings = {settings_as_python(fit.settings.changed(**without))}"]
    lines.append("viewer = napari.current_viewer() or napari.Viewer()")
    if layer is not None and (opening := _opening(layer, fit.image)):
        lines += [f"if {fit.image!r} not in viewer.layers:", f"    {opening}"]
    lines.append(f"image = viewer.layers[{fit.image!r}]")
    arguments = [_pixels(layer), "settings=settings"]
    if fit.frames is not None:
        arguments.append(f"frames={_frames_as_python(fit.frames)}")
    if fit.maps:
        named = ", ".join(f"{role!r}: viewer.layers[{name!r}]" for role, name in fit.maps.items())
        lines.append(f"maps = layer_maps(image, {{{named}}}).read()")
        arguments.append("**maps")
    lines.append(f"fits = napari_spotfit.localize({', '.join(arguments)})")
    if fit.refits:
        lines.append(f"# Not as in the layer: {fit.refits} of its spots, which Inspect has fitted")
        lines.append("# again with other settings. Its feature refit says which.")
    lines.append("viewer.add_layer(napari_spotfit.to_points_layer(fits, image))")
    return "\n".join((*lines, ""))


def _pixels(layer: Image | None) -> str:
    pixels = "image.data[0]" if layer is not None and layer.multiscale else "image.data"
    boolean = layer is not None and own_pixels(layer).dtype == np.bool_
    return f'{pixels}.astype("uint8")' if boolean else pixels


def _opening(layer: Image, name: str) -> str:
    """Return code that opens a layer's image again; nothing if it has no source."""
    source = layer.source
    if source.sample:
        plugin, sample = source.sample
        return f"viewer.open_sample({plugin!r}, {sample!r})"
    if source.path:
        plugin = f", plugin={source.reader_plugin!r}" if source.reader_plugin else ""
        return f"viewer.open({str(source.path)!r}{plugin})[0].name = {name!r}"
    return ""


def _frames_as_python(frames: list[Any]) -> str:
    """Return chosen frames as ``localize`` takes them."""
    axes = [
        "slice(None)"
        if along is None
        else literal(int(along))
        if not isinstance(along, list)
        else f"slice({int(along[0])}, {int(along[1])})"
        for along in frames
    ]
    return axes[0] if len(axes) == 1 else f"({', '.join(axes)})"


def keys_as_html() -> str:
    """Return a table of the keys and clicks."""
    rows = (f"<tr><td><b>{key}</b>&nbsp;&nbsp;</td><td>{what}</td></tr>" for key, what in KEYS)
    return f"<p>Over the image:</p><table>{''.join(rows)}</table>"


def show_keys(parent: QWidget) -> None:
    """Show the table in a window of its own."""
    box = QMessageBox(parent)
    box.setWindowTitle("Keys and clicks")
    box.setTextFormat(Qt.TextFormat.RichText)
    box.setText(keys_as_html())
    box.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
    box.setModal(False)
    box.show()
