"""Several changes of a layer that napari works out once, and a selection that costs it little."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager, nullcontext
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from napari.layers import Points


@contextmanager
def refreshed_once(layer: Points, *, moved: bool = True) -> Iterator[None]:
    """Work out once, at the end, what a layer shows: napari does so at every change.

    Parameters
    ----------
    layer : napari.layers.Points
        The layer that is changed meanwhile.
    moved : bool
        Whether points come, go, move or get another size. Where they stay, so does the layer's
        extent, which takes napari most of the time.
    """
    # None of this is public, nor to be had through the proxy that widgets get. A napari without
    # it only takes longer.
    own = getattr(layer, "__wrapped__", layer)
    with ExitStack() as stack:
        stack.enter_context(getattr(own, "_block_refresh", nullcontext)())
        for colors in (getattr(own, name, None) for name in ("_face", "_border")):
            for event in ("colors", "color_properties"):
                if colors is not None and event in colors.events.emitters:
                    stack.enter_context(colors.events[event].blocker())
        for event in ("face_color", "border_color", "border_width", "symbol"):
            stack.enter_context(own.events[event].blocker())
        yield
    layer.refresh(extent=moved, thumbnail=moved)


def select_rows(layer: Points, rows: Collection[int]) -> None:
    """Select points of a layer, and no others."""
    # Not by assignment: napari would then work out colours for points to come, which takes a
    # second with a million points.
    layer.selected_data.replace_selection(set(rows))
    layer.refresh(extent=False, thumbnail=False, data_displayed=False)
