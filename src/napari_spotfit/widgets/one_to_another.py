"""From a spot in one of the widgets to the same spot in another, which is opened if it is not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, runtime_checkable

from .parts.docking import brought_up

if TYPE_CHECKING:
    from napari import Viewer
    from napari.layers import Points

#: What the manifest calls the two.
INSPECT_SPOT, SPOTS = "Inspect spot", "Spots"


@runtime_checkable
class ShowsSpots(Protocol):
    """A widget that can be sent to a spot."""

    def go_to(self, layer: Points, row: int | None = None) -> None:
        """Show a layer, and one of its spots."""


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
