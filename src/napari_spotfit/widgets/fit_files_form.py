"""The request of a batch as a magicgui form."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from magicgui.widgets import CheckBox, ComboBox, LineEdit, SpinBox
from qtpy.QtCore import QObject
from qtpy.QtWidgets import QFileDialog, QWidget

from ..batch.request import Batch, image_files, make_folder
from ..engine import threads
from ..engine.select import usable_here
from ..files.settings_file import load_settings
from ..images.files.opening import ENDINGS
from ..settings.settings import Settings
from .layers.points import is_result, settings_of_layer
from .parts.form import align_labels, explained_rows, put_beside
from .parts.layout import button

if TYPE_CHECKING:
    from napari import Viewer

#: What stands between two paths.
_BETWEEN = ";"
_DEFAULTS = "automatic"
#: What is written: the ending, and the name of one table for all images, or none.
_FORMATS = {
    "Parquet, a table of each image": (".spots.parquet", ""),
    "CSV, a table of each image": (".spots.csv", ""),
    "Parquet, one table of all": (".spots.parquet", "all.spots.parquet"),
    "CSV, one table of all": (".spots.csv", "all.spots.csv"),
}
_IMAGES_TIP = (
    f"<p>Image files, folders, or patterns such as <i>*.tif</i>, with “{_BETWEEN}” between them. "
    f"Of a folder, all images in it: {', '.join(ENDINGS)}, Zarr and NDTiff.</p>"
)
_SETTINGS_TIP = (
    "<p>How to find and fit: with the settings of a result in the layer list, or of a file, a "
    ".toml or the table of an earlier run. <i>automatic</i> estimates the width of the spots in "
    "every image. The noise is measured in each image.</p>"
)
_LABELS_TIP = (
    "<p>Where the mask of each image is, such as its cells: what comes after the image's name "
    "(<i>_cells.tif</i>), a pattern in which * stands for that name (<i>masks/*_cells.tif</i>), a "
    "folder, or one file for all. Spots get the column <i>label</i>, and a table …cells.csv counts "
    "the good ones of each cell. Empty: no masks.</p>"
)
_CHANNEL_TIP = (
    "<p>The channel of images that have several, by its number from 0 on or its name; <i>all</i> "
    "fits each by itself, with the column <i>channel</i>. Empty: such images fail, as channels are "
    "no frames.</p>"
)
_OUTPUT_TIP = "<p>The folder where the tables are written; it is made where it is missing.</p>"
_FORMAT_TIP = (
    "<p>What is written. Parquet is small and fast, CSV is for spreadsheets; both open here as "
    "layers. One table of all has the column <i>file</i>.</p>"
)
_WORKERS_TIP = (
    "<p>Number of images at a time, which share the cores: for small ones on many cores. One "
    "table of all is written one after the other.</p>"
)
_FRESH_TIP = (
    "<p>Make everything again. Otherwise complete tables are kept where image, masks and "
    "settings are the same, and the fit of an image that was stopped is resumed.</p>"
)
_FILES = f"Images (*{' *'.join(ENDINGS)});;All files (*)"
_SETTINGS = "Settings (*.toml);;Fitted spots (*.spots.parquet *.spots.csv *.parquet *.csv)"


class BatchForm(QObject):
    """The rows of the form.

    Parameters
    ----------
    viewer : napari.Viewer
        The viewer whose results have settings.
    parent : QWidget
        Whose dialogs it opens.
    """

    def __init__(self, viewer: Viewer, parent: QWidget):
        super().__init__(parent)
        self._viewer, self._parent = viewer, parent
        #: Settings that were opened, by the names of their files.
        self._opened: dict[str, Settings] = {}
        self._proposed = ""
        most = max(threads.available(), 1)
        self.images = LineEdit(label="Images", tooltip=_IMAGES_TIP)
        self.settings = ComboBox(label="Settings", choices=self._settings, tooltip=_SETTINGS_TIP)
        self.labels = LineEdit(label="Masks", tooltip=_LABELS_TIP)
        self.channel = LineEdit(label="Channel", tooltip=_CHANNEL_TIP)
        self.output = LineEdit(label="Output", tooltip=_OUTPUT_TIP)
        self.format = ComboBox(label="Format", choices=list(_FORMATS), tooltip=_FORMAT_TIP)
        self.workers = SpinBox(
            label="At a time", value=1, min=1, max=max(most, 16), tooltip=_WORKERS_TIP
        )
        self.fresh = CheckBox(text="Start over", tooltip=_FRESH_TIP)
        self.container = explained_rows((
            self.images, self.settings, self.channel, self.labels, self.output, self.format,
            self.workers, self.fresh,
        ))  # fmt: skip
        self._lay_out()
        self.images.changed.connect(self._on_images)

    def batch(self) -> Batch:
        """Return the request of the form.

        Raises
        ------
        OSError, ValueError
            If a value is missing or wrong; the message says which.
        """
        names = [one.strip() for one in self.images.value.split(_BETWEEN) if one.strip()]
        if not names:
            raise ValueError("choose images: files, a folder, or a pattern such as *.tif")
        files = image_files([str(Path(name).expanduser()) for name in names])
        if not self.output.value.strip():
            raise ValueError("choose a folder for the tables under Output")
        ending, name = _FORMATS[str(self.format.value)]
        folder = Path(self.output.value.strip()).expanduser()
        if folder.is_file():
            raise ValueError(f"Output must be a folder; “{folder}” is a file")
        make_folder(folder)
        settings = self.settings.value
        return Batch(
            files,
            folder / name if name else folder,
            settings if isinstance(settings, Settings) else Settings(),
            ending,
            channel=self.channel.value.strip() or None,
            labels=self.labels.value.strip() or None,
            workers=self.workers.value if not name else 1,
            fresh=self.fresh.value,
        )

    def values(self) -> dict[str, Any]:
        """Return the values to keep for the next session."""
        return {"labels": self.labels.value, "format": self.format.value,
                "workers": self.workers.value}  # fmt: skip

    def put(self, values: dict[str, Any]) -> None:
        """Show kept values."""
        self.labels.value = str(values.get("labels", ""))
        if values.get("format") in _FORMATS:
            self.format.value = values["format"]
        if isinstance(workers := values.get("workers"), int):
            self.workers.value = int(min(max(workers, self.workers.min), self.workers.max))

    def refresh(self, event: Any = None) -> None:
        """List the settings that there are now."""
        self.settings.reset_choices()

    def use_settings(self, path: Path) -> None:
        """Choose the settings of a file.

        Raises
        ------
        ImportError, OSError, ValueError
            If it has none; the message says why.
        """
        self._opened[f"“{path.name}”"] = load_settings(path)
        self.refresh()
        self.settings.value = self._for_all(self._opened[f"“{path.name}”"])

    def _settings(self, widget: Any = None) -> list[tuple[str, Settings]]:
        """Return the choices of settings: none, those of results, and those of files."""
        found = [(_DEFAULTS, Settings())]
        for layer in reversed(self._viewer.layers):
            if is_result(layer):
                settings = settings_of_layer(layer.metadata)
                if settings is not None:
                    found.append((f"of “{layer.name}”", self._for_all(settings)))
        found += [(f"of {name}", self._for_all(one)) for name, one in self._opened.items()]
        return found

    def _for_all(self, settings: Settings) -> Settings:
        """Return settings without the noise, which is measured in every image."""
        return usable_here(settings).changed(noise=Settings().noise)

    def _on_images(self) -> None:
        """Propose a folder beside the first image, unless the user has chosen one."""
        first = self.images.value.split(_BETWEEN)[0].strip()
        if first and self.output.value.strip() == self._proposed:
            place = Path(first).expanduser()
            self._proposed = str((place if place.is_dir() else place.parent) / "spots")
            self.output.value = self._proposed

    def _ask_files(self) -> None:
        if names := QFileDialog.getOpenFileNames(self._parent, "Images", "", _FILES)[0]:
            self.images.value = f"{_BETWEEN} ".join(names)

    def _ask_folder(self, edit: LineEdit, title: str) -> None:
        if name := QFileDialog.getExistingDirectory(self._parent, title):
            edit.value = name

    def ask_settings(self) -> None:
        """Ask for a file of settings."""
        if name := QFileDialog.getOpenFileName(self._parent, "Settings", "", _SETTINGS)[0]:
            self.use_settings(Path(name))

    def _lay_out(self) -> None:
        self.container.native.layout().setSpacing(4)
        for row in self.container:
            row.native.setObjectName(f"batch_{row.label}")
        self.labels.native.setPlaceholderText("none")
        self.channel.native.setPlaceholderText("images of one channel")
        self.images.native.setPlaceholderText("files, a folder, *.tif")
        self.output.native.setPlaceholderText("a folder")
        self.files_button = button("Files…", "Choose image files.", self._ask_files)
        ask = partial(self._ask_folder, self.images, "Folder of images")
        folder = button("Folder…", "Choose a folder of images.", ask)
        put_beside(self.images, [self.files_button, folder])
        #: Asks for a file of settings.
        self.settings_button = button("File…", "Take the settings of a file.")
        put_beside(self.settings, [self.settings_button])
        ask = partial(self._ask_folder, self.output, "Folder for the tables")
        put_beside(self.output, [button("Folder…", "Choose where to write.", ask)])
        align_labels(self.container)
