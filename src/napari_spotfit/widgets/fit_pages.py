"""The pages of *Fit spots*: for open images, for files, and where there is nothing yet."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

from qtpy.QtWidgets import QSizePolicy, QStackedWidget, QTabBar, QVBoxLayout, QWidget

from .fit_files import FilesPage
from .layers.points import is_result
from .napari_compat import is_image
from .parts.docking import Follower
from .parts.layout import explain, fill
from .start_page import StartPage

if TYPE_CHECKING:
    from napari import Viewer

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
