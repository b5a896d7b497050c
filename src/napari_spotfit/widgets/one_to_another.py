"""From a spot in one of the widgets to the same spot in another, which is opened if it is not."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .parts.docking import Docked, brought_up

if TYPE_CHECKING:
    from napari import Viewer
    from napari.layers import Points

#: What the manifest calls the two.
INSPECT_SPOT, SPOTS = "Inspect spot", "Spots"


class ShowsSpots(Docked):
    """A widget that can be sent to a spot."""

    def go_to(self, layer: Points, row: int | None = None) -> None:
        """Show a layer, and one of its spots."""
        raise NotImplementedError


def inspect_spot(viewer: Viewer, layer: Points, row: int | None = None) -> None:
    """Show a spot of a layer in *Inspect spot*: without a row, the selected or a doubtful one."""
    _send(viewer, INSPECT_SPOT, layer, row)


def list_spot(viewer: Viewer, layer: Points, row: int | None = None) -> None:
    """Show a layer in *Spots*, and one of its spots."""
    _send(viewer, SPOTS, layer, row)


def _send(viewer: Viewer, title: str, layer: Points, row: int | None) -> None:
    widget = brought_up(viewer, title)
    assert isinstance(widget, ShowsSpots)
    widget.go_to(layer, row)
