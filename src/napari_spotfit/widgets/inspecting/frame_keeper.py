"""The frame of the spot that is inspected, read once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from qtpy.QtCore import QObject, Signal

from ...frames import HeldFrame
from ..layers.images import full_resolution, leading_shape
from ..parts.latest import Latest

if TYPE_CHECKING:
    from napari.layers import Image

#: An image's array and a frame of it.
Key = tuple[Any, tuple[int, ...]]


class FrameKeeper(QObject):
    """Reads frames in a worker and keeps the last one.

    Parameters
    ----------
    parent : QObject
        Qt parent.
    """

    #: A frame that was asked for is there.
    ready = Signal()
    #: It could not be read; the exception.
    failed = Signal(object)

    def __init__(self, parent: QObject):
        super().__init__(parent)
        self._latest = Latest(self)
        self._kept: tuple[Key, HeldFrame] | None = None
        self._asked: Key | None = None
        self._latest.done.connect(self._on_done)
        self._latest.failed.connect(self._on_failed)

    def frame(self, image: Image, index: tuple[int, ...]) -> HeldFrame | None:
        """Return a frame, or None if it is now being read and ``ready`` will tell.

        Raises
        ------
        ValueError
            If the image is RGB or has no such frame.
        """
        array, lengths = full_resolution(image), leading_shape(image)
        if len(lengths) != len(index) or any(
            not 0 <= i < length for i, length in zip(index, lengths, strict=False)
        ):
            raise ValueError(
                f"“{image.name}” no longer has this spot's frame: its data was replaced. Fit the "
                "image again."
            )
        key = array, index
        if self._kept is not None and _same(self._kept[0], key):
            self._asked = None
            self._latest.drop()
            return self._kept[1]
        if self._asked is None or not _same(self._asked, key):
            self._asked = key
            self._latest.ask(lambda: (key, HeldFrame(array, index)))
        return None

    def forget(self) -> None:
        """Let the frame go, and be silent about one that is being read."""
        self._kept = self._asked = None
        self._latest.drop()

    def _on_done(self, result: tuple[Key, HeldFrame]) -> None:
        if self._asked is not None and _same(result[0], self._asked):
            self._kept, self._asked = result, None
            self.ready.emit()

    def _on_failed(self, error: Exception) -> None:
        self._asked = None
        self.failed.emit(error)


def _same(one: Key, other: Key) -> bool:
    return one[0] is other[0] and one[1] == other[1]
