"""The pages of *Fit spots* for open images, for files, and for an empty viewer; the next steps."""

from __future__ import annotations

from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

from qtpy.QtWidgets import QHBoxLayout, QSizePolicy, QStackedWidget, QTabBar, QVBoxLayout, QWidget

from .fit_files import FilesPage
from .fitting.residual_button import ResidualButton
from .inspecting.panel import doubtful_shown
from .layers.points import fitted_layers, is_result
from .napari_compat import ask_for_files, is_image, is_labels
from .parts.docking import Follower, show_result
from .parts.layout import button, explain, fill, sentence

if TYPE_CHECKING:
    from napari import Viewer
    from napari.layers import Points

_TIP = (
    "<p>What is fitted: images that are open here, or files of a folder, one after the other, in "
    "the background, into tables.</p>"
)


class FitPages(QWidget):
    """A switch, and below it the page that it shows.

    Parameters
    ----------
    viewer : napari.Viewer
        The viewer that shows the images.
    form : QWidget
        What fits open images, and describes results.
    always : QWidget
        What stands below the switch, whichever page it shows.
    """

    def __init__(self, viewer: Viewer, form: QWidget, always: QWidget):
        super().__init__()
        self._viewer, self._form, self._bound = viewer, form, False
        self.switch, self.stack = QTabBar(), QStackedWidget()
        self.start, self._layers = StartPage(viewer), Follower(self._show)
        for title in ("Open images", "Files"):
            self.switch.addTab(title)
        self.switch.setDrawBase(False)
        explain(self.switch, "Open images or files", _TIP)
        self.stack.addWidget(form)
        self.stack.addWidget(self.start)
        fill(QVBoxLayout(self), self.switch, always, (self.stack, 1), spacing=4)
        # Else the spring that napari puts below what it docks takes half of the spare room.
        self.setSizePolicy(QSizePolicy.Policy.Preferred, QSizePolicy.Policy.Expanding)
        self.switch.currentChanged.connect(self._show)

    @cached_property
    def files(self) -> FilesPage:
        """The page of files, made when it is asked for."""
        page = FilesPage(self._viewer)
        self.stack.addWidget(page)
        if self._bound:
            page.bind()
        return page

    def bind(self) -> None:
        """Follow the viewer."""
        self._bound = True
        if "files" in vars(self):
            self.files.bind()
        events = self._viewer.layers.events
        self._layers.follow(events.inserted, events.removed)
        self._show()

    def unbind(self) -> None:
        """Stop all work and leave no callback behind."""
        self._bound = False
        self._layers.follow()
        if "files" in vars(self):
            self.files.unbind()

    def _show(self, event: Any = None) -> None:
        """Bring up the page, which alone decides how large all must be."""
        page = self.files if self.switch.currentIndex() else self._form
        if page is self._form and not any(
            is_image(one) or is_result(one) for one in self._viewer.layers
        ):
            page = self.start
        policy = QSizePolicy.Policy
        for other in (self.stack.widget(place) for place in range(self.stack.count())):
            if other is not None:
                size = policy.Preferred if other is page else policy.Ignored
                other.setSizePolicy(size, size)
        self.stack.setCurrentWidget(page)


#: The samples by their keys in the manifest: a title, and what they show.
_SAMPLES = {
    "smfish": ("Spots in cells", "An image as single-molecule FISH makes it, with its cells."),
    "molecules": ("Single molecules", "A movie in which molecules blink, with its camera's gain."),
    "beads": ("Beads", "A movie of fiducial beads, whose drift can be found and subtracted."),
}
_WORDS = "There is no image yet. Open one, or try a simulated sample:"


class StartPage(QWidget):
    """Buttons for samples, and one that opens an image.

    Parameters
    ----------
    viewer : napari.Viewer
        The viewer that gets the images.
    """

    def __init__(self, viewer: Viewer):
        super().__init__()
        self._viewer = viewer
        tip = "Choose image files, as with File ▸ Open."
        self.open_button = button("Open an image…", tip, partial(ask_for_files, viewer))
        self.samples = {
            key: button(title, tip, partial(self._open_sample, key))
            for key, (title, tip) in _SAMPLES.items()
        }
        words = sentence()
        words.setText(_WORDS)
        buttons = (*self.samples.values(), self.open_button)
        fill(QVBoxLayout(self), words, *buttons, 1, margins=(8, 16, 8, 8))
        self.setMinimumWidth(260)

    def _open_sample(self, key: str) -> None:
        opened = self._viewer.open_sample("napari-spotfit", key)
        self._viewer.layers.selection.active = next(one for one in opened if is_image(one))


#: The buttons: a text, the page that they show, and a tip.
_STEPS = (
    ("Table", "", "Show the table of these spots in Results, to filter, summarise and save them."),
    ("Count in cells", "Cells", "Count these spots in the labels of the Labels layer; those of "
     "several images beside each other, with their pairs."),
    ("Inspect the doubtful ones", "Inspect", "Go to the first doubtful spot: its data, model and "
     "residual, and what to try."),
)  # fmt: skip


class NextSteps(QWidget):
    """A button for each step that suits a result; hidden without one.

    Parameters
    ----------
    viewer : napari.Viewer
        The viewer that shows the layers.
    """

    def __init__(self, viewer: Viewer):
        super().__init__()
        self._viewer = viewer
        self._layer: Points | None = None
        self._follower = Follower(self._look)
        self.table, self.cells, self.doubtful = (
            button(text, tip, partial(self._show, page)) for text, page, tip in _STEPS
        )
        self.residual = ResidualButton(viewer)
        # On several lines: the form is narrow.
        first = fill(QHBoxLayout(), (self.table, 1), (self.residual, 1), spacing=4)
        fill(QVBoxLayout(self), first, self.cells, self.doubtful, spacing=4)
        self.hide()

    def show_layer(self, layer: Points | None) -> None:
        """Offer what suits a layer of spots, or nothing."""
        self._layer, layers = layer, self._viewer.layers.events
        own = () if layer is None else (layer.events.features, layers.inserted, layers.removed)
        self._follower.follow(*own)
        self.residual.show_layer(layer)
        self._look()

    def _look(self, event: Any = None) -> None:
        layer, layers = self._layer, self._viewer.layers
        self.setVisible(layer is not None)
        if layer is not None:
            cells = any(is_labels(one) for one in layers)
            self.cells.setText("Count in cells" if cells else "Find pairs")
            self.cells.setVisible(cells or len(fitted_layers(layers)) > 1)
            self.doubtful.setVisible(len(doubtful_shown(layer)) > 0)

    def _show(self, page: str) -> None:
        layer = self._layer
        if layer is None:
            return
        rows = doubtful_shown(layer).tolist() if page == "Inspect" else []
        if page == "Cells" and len(fitted_layers(self._viewer.layers)) > 1:
            page = "Channels"
        show_result(self._viewer, layer, page, next(iter(rows), None))
