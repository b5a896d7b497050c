"""The dialog that imports tables of other programs, whatever their names."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from magicgui.widgets import ComboBox, LineEdit
from napari.utils.notifications import show_info
from numpy.typing import NDArray
from qtpy.QtCore import Qt
from qtpy.QtWidgets import QDialog, QFileDialog, QHBoxLayout, QVBoxLayout

from ..files.exchange.delimited import titles_of
from ..files.exchange.image_info import PixelSizeNeededError, size_of_layer
from ..files.exchange.registry import EXCHANGE, HEAD, by_content
from ..files.formats import FORMATS, read
from ..files.table import UnreadableFileError
from ..results.formatting import Units
from ..results.saving import fits_of
from ..results.spot_fits import SpotFits
from ..settings.validation import Parameter
from .layers.history import history_of
from .layers.points import layer_arguments, make_points_layer, points_arguments
from .layers.selection import bring_into_sight
from .napari_compat import is_image, itself, main_window
from .parts.boxes import LayerChoice
from .parts.form import Number, explained_rows, put_beside
from .parts.layout import Label, button, explain, fill
from .parts.messages import StatusLine, number
from .parts.work import Latest
from .result_pages.tables import NumbersTable
from .saved_layers import name_of_layer, pixel_size_of_images

if TYPE_CHECKING:
    import napari

_GUESS, _CHOOSE = "by its columns", "Choose a file to see what is in it."
_SIZE = (640, 420)
_FILE_TIP = (
    "<p>A table of localisations, whatever its name: of Picasso, ThunderSTORM, SMAP, DECODE, SMLM, "
    "TrackMate, napari, big-fish, RS-FISH, or with columns x and y.</p>"
)
_FORMAT_TIP = (
    "<p>Which program's table it is, if the titles of the columns do not show it. The "
    "format decides where the first pixel's centre is, and whether frames count from 0 or 1.</p>"
)
_PIXEL_TIP = (
    "<p>Side of a pixel in nm, for tables with lengths in nm or µm. Empty: that of the image, or "
    "of the viewer's images, if they have a scale with a unit.</p>"
)
_IMAGE_TIP = (
    "<p>The image whose localisations these are: the points then lie on it, whatever its scale. "
    "<i>none</i>: they lie in pixels, or to scale where the file says how large these are.</p>"
)
_IMPORT_TIP = "<p>Add what is shown below as a layer of points.</p>"
_PIXEL = Parameter(
    "Pixel size", "", "camera", unit="nm", minimum=0, above_minimum=True, none_means="not given"
)
_FILES = "Tables (*.csv *.txt *.tsv *.hdf5 *.h5 *.smlm *.zip *.parquet *.loc);;All files (*)"


def import_localisations(viewer: napari.viewer.Viewer) -> None:
    """Open the dialog; what napari calls from its menu."""
    ImportDialog(itself(viewer)).open()


class ImportDialog(QDialog):
    """Opens tables of other programs whose names do not show what they are.

    Parameters
    ----------
    viewer : napari.Viewer
        The viewer that gets the layers.
    """

    def __init__(self, viewer: napari.Viewer):
        super().__init__(main_window(viewer))
        self._viewer = viewer
        self.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        self.setWindowTitle("Import localisations")
        self.file = LineEdit(label="File", tooltip=_FILE_TIP)
        choices = [(_GUESS, ""), *((one.title, one.name) for one in EXCHANGE.values())]
        self.format = ComboBox(label="Format", choices=choices, tooltip=_FORMAT_TIP)
        self.pixel = Number(label="Pixel size", about=_PIXEL, nullable=True, tooltip=_PIXEL_TIP)
        self.image = LayerChoice(self._viewer.layers, is_image, nothing="none", optional=True)
        self.import_button, self.status = button("Import", _IMPORT_TIP, self.add), StatusLine()
        self.rows = NumbersTable("First localisations", _ROWS_TIP)
        self.looking = Latest(self, self._on_found, self._on_failed)
        #: What is in the file, as it is shown.
        self.found: Found | None = None
        self._lay_out()
        self._connect()
        self._show(None)
        self.status.say(_CHOOSE)
        self.image.bind()
        self.finished.connect(self._on_finished)
        self.resize(*_SIZE)

    def look(self) -> None:
        """Read the file in the background, with the format and pixel size that are set."""
        self._show(None)
        path = Path(self.file.value.strip()).expanduser()
        if not self.file.value.strip():
            self.status.say(_CHOOSE)
            return
        self.status.say(f"Reading “{path.name}”…")
        self.looking.ask(partial(look_at, path, self.format.value or None, self._pixel_size()))

    def add(self) -> None:
        """Add what is shown as a layer, and close."""
        if self.found is None:
            return
        try:
            layer = self._layer(self.found)
        except (TypeError, ValueError) as error:
            self.status.fail(str(error))
            return
        history_of(self._viewer)  # so that what is done to it can be undone
        self._viewer.add_layer(layer)
        bring_into_sight(self._viewer, layer)
        if self.found.left_out:
            show_info(f"“{layer.name}” has {number(len(layer.data))} points{self.found.left_out}")
        self.accept()

    def _on_finished(self) -> None:
        self.image.unbind()
        self.looking.drop()

    def _layer(self, found: Found) -> Any:
        from napari.layers import Points

        image: Any = self.image.layer
        if image is not None:
            _check_axes(found, image)
            return make_points_layer(found.points, image, found.name)
        return Points(**found.layer_arguments())

    def _pixel_size(self) -> Any:
        """Return the size of a pixel, if it is known."""
        image: Any = self.image.layer
        if (given := self.pixel.get_value()) is not None:
            return given
        own = None if image is None else size_of_layer(image.scale, image.units)
        return own or pixel_size_of_images()

    def _on_found(self, found: Found) -> None:
        self._show(found)
        self.status.say(found.in_words())

    def _on_failed(self, error: Exception) -> None:
        self._show(None)
        text = str(error) or type(error).__name__
        if isinstance(error, PixelSizeNeededError):
            text = (
                f"“{Path(self.file.value).name}” has lengths in nm or µm: set under Pixel size how "
                "many nm a pixel has, or choose an image that has a scale with a unit"
            )
            self.pixel.box.setFocus()
        self.status.fail(text)

    def _show(self, found: Found | None) -> None:
        self.found = found
        self.rows.show_numbers({})
        if found is not None:
            table = found.fits[:_ROWS].to_dataframe().drop(columns="good", errors="ignore")
            self.rows.show_frame(table, Units(found.fits.units))
        self.import_button.setEnabled(found is not None)

    def _ask_file(self) -> None:
        name, _ = QFileDialog.getOpenFileName(self, "Localisations", "", _FILES)
        if name:
            self.file.value = name
            self.look()

    def _connect(self) -> None:
        self.file.native.editingFinished.connect(self._on_edited)
        self.format.changed.connect(lambda: self.look())
        self.pixel.changed.connect(lambda: self.look())
        self.image.changed.connect(lambda: self.look())

    def _on_edited(self) -> None:
        if self.file.native.isModified():
            self.file.native.setModified(False)
            self.look()

    def _lay_out(self) -> None:
        rows = explained_rows((self.file, self.format, self.pixel))
        rows.native.layout().setSpacing(4)
        self.file.native.setPlaceholderText("a table, whatever its name")
        tip = "Choose a table of localisations."
        self.file_button = button("File…", tip, self._ask_file, "Choose a file")
        put_beside(self.file, [self.file_button])
        explain(self.image, "Image", _IMAGE_TIP)
        put_beside(self.pixel, [Label("Image")])
        put_beside(self.pixel, [self.image], stretch=1)
        cancel_button = button("Cancel", "", self.reject)
        for one in (self.file_button, self.import_button, cancel_button):
            one.setAutoDefault(False)  # Return in a line of text means that text
        below = fill(QHBoxLayout(), (self.status, 1), self.import_button, cancel_button)
        fill(QVBoxLayout(self), rows.native, (self.rows, 1), below, margins=(10,) * 4, spacing=6)


def _check_axes(found: Found, image: Any) -> None:
    """Raise a ValueError if localisations cannot lie on an image."""
    axes = found.points["data"].shape[1]
    if image.ndim < axes:
        raise ValueError(
            f"“{found.name}” has {axes} axes, but “{image.name}” only {image.ndim}: choose an "
            "image with a time axis, or none"
        )
    if image.ndim > axes:
        raise ValueError(
            f"“{image.name}” has {image.ndim} axes, but “{found.name}” only {axes}: choose an "
            f"image with {axes} axes, or none"
        )


#: What may stand between the values of a table of text, in words.
_SEPARATORS = {"\t": "tabs", ";": "semicolons", ",": "commas"}
_OURS = "napari-spotfit"
_ROWS_TIP = (
    "<p>The first localisations as they will come: in pixels from the centre of the first one, "
    "frames from 0.</p>"
)
_ROWS = 50


@dataclass(frozen=True)
class Found:
    """The content of a file.

    Parameters
    ----------
    path : path
        The file.
    title : str
        The name of its format for users.
    fits : SpotFits
        The localisations.
    points : mapping
        The arguments of a layer of points.
    place : mapping
        The position of the layer, where the file has it.
    """

    path: Path
    title: str
    fits: SpotFits
    points: dict[str, Any]
    place: dict[str, Any]

    @property
    def name(self) -> str:
        """The name of the layer."""
        return name_of_layer(str(self.path))

    def layer_arguments(self) -> dict[str, Any]:
        """Return the arguments of a layer without an image."""
        return layer_arguments(self.points, self.name) | self.place

    def in_words(self) -> str:
        """Return what will be imported, and what will not."""
        fits, placed = self.fits, self.fits[self._placed]
        text = f"{self.title}: {number(len(fits))} localisation{'s' * (len(fits) != 1)}"
        for name in fits.index_names if len(placed) else ():
            values = placed.columns[name]
            text += f", {name} {int(values.min())} to {int(values.max())}"
        if len(placed):
            text += f", {', '.join(f'{one} {_ends(placed.columns[one])}' for one in 'yx')} px"
        return text + self.left_out

    @property
    def left_out(self) -> str:
        """Return how many rows have no place, as the end of a sentence; empty if all have one."""
        without = int(np.count_nonzero(~self._placed))
        if not without:
            return ""
        words = "has no place and is" if without == 1 else "have no place and are"
        return f"; {number(without)} {words} left out"

    @property
    def _placed(self) -> NDArray[np.bool_]:
        placed = np.asarray(np.isfinite(self.fits.points()).all(axis=1))
        placed &= self.fits.valid
        return placed


def look_at(path: Path, format: str | None, pixel_size: Any) -> Found:
    """Read a table of localisations.

    Parameters
    ----------
    path : path
        The file.
    format : str, optional
        The name of its format; by default recognised from its content.
    pixel_size : float or (float, float), optional
        Height and width of a pixel in nm.

    Raises
    ------
    ValueError
        If its format is unknown, it is damaged, or needs the size of a pixel; the message says
        which.
    OSError, ImportError
        If it cannot be read, or what reads it is missing.
    """
    if not path.is_file():
        raise FileNotFoundError(f"there is no file “{path}”")
    is_own = path.name.lower().endswith(tuple(f".spots{end}" for end in FORMATS))
    if format is None and not is_own:
        guess = by_content(path)
        if guess is not None:
            format = guess.name
        elif path.suffix.lower() not in FORMATS:
            raise UnreadableFileError(_unknown(path))
    try:
        table = read(path, format, pixel_size=pixel_size)
    except UnreadableFileError as error:
        if format is None:
            raise UnreadableFileError(_unknown(path)) from error
        raise
    fits = fits_of(table)
    title = _OURS if format is None else EXCHANGE[format].title
    place = dict(table.about.layer or {}) if format is not None else {}
    return Found(path, title, fits, points_arguments(fits), place)


def _unknown(path: Path) -> str:
    """Return the message for a file of no known format, with its columns."""
    with path.open("rb") as file:
        head = file.read(HEAD)
    if not head.strip():
        return f"“{path.name}” is empty; choose a file with localisations"
    separator = max(_SEPARATORS, key=lambda one: len(titles_of(head, one)))
    titles = titles_of(head, separator)
    known = ", ".join(one.title for one in EXCHANGE.values())
    text = f"“{path.name}” is of none of the known formats: {known}"
    if len(titles) < 2:
        return f"{text}. It is no table of text"
    return (
        f"{text}. Its columns are {', '.join(titles)}, with {_SEPARATORS[separator]} between them; "
        "a plain CSV has columns x and y, in pixels or as “x [nm]”, and frame from 0"
    )


def _ends(values: Any) -> str:
    return f"{values.min():.1f} to {values.max():.1f}"
