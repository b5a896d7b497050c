"""From a spot in one of the widgets to the same spot in another, which is opened if it is not."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .parts.docking import brought_up

if TYPE_CHECKING:
    from napari import Viewer
    from napari.layers import Points


def inspect_spot(viewer: Viewer, layer: Points, row: int | None = None) -> None:
    """Show a spot of a layer in *Inspect spot*: without a row, the selected or a doubtful one."""
    from .inspect_spot import InspectSpot

    brought_up(viewer, InspectSpot).go_to(layer, row)


def list_spot(viewer: Viewer, layer: Points, row: int | None = None) -> None:
    """Show a layer in *Spots*, and one of its spots."""
    from .spots import Spots

    brought_up(viewer, Spots).go_to(layer, row)
