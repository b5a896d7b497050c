"""The pages of *Fit spots*: the form for open images, and the one for files."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from qtpy.QtWidgets import QSizePolicy, QStackedWidget, QTabBar, QVBoxLayout, QWidget

from .fit_files import FilesPage
from .parts.layout import explain, fill

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
        What fits open images.
    """

    def __init__(self, viewer: Viewer, form: QWidget):
        super().__init__()
        self._viewer, self._form, self._bound = viewer, form, False
        self.switch, self.stack = QTabBar(), QStackedWidget()
        for title in ("Open images", "Files"):
            self.switch.addTab(title)
        self.switch.setDrawBase(False)
        explain(self.switch, "Open images or files", _TIP)
        self.stack.addWidget(form)
        fill(QVBoxLayout(self), self.switch, (self.stack, 1), spacing=4)
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
        self._show()

    def unbind(self) -> None:
        """Stop all work and leave no callback behind."""
        self._bound = False
        if "files" in vars(self):
            self.files.unbind()

    def _show(self) -> None:
        """Bring up the page, which alone decides how large all must be."""
        page = self.files if self.switch.currentIndex() else self._form
        policy = QSizePolicy.Policy
        for other in (self.stack.widget(place) for place in range(self.stack.count())):
            if other is not None:
                size = policy.Preferred if other is page else policy.Ignored
                other.setSizePolicy(size, size)
        self.stack.setCurrentWidget(page)
