"""How fitted spots are drawn: rings, dots or crosses; doubtful ones larger, and always as an x.

All sizes are in σ of the spots, so that marks grow and shrink with the image. With a smallest
size on the screen, thousands of marks would be a carpet over it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..napari_compat import refreshed_once
from .colors import good_rows
from .hiding import set_sizes, sizes_when_shown

if TYPE_CHECKING:
    from collections.abc import Mapping

    from napari.layers import Points


class Mark(NamedTuple):
    """What stands for a good fit."""

    symbol: str
    #: Outer diameter in σ.
    size: float
    #: Width of the border in fractions of the diameter.
    border: float


#: What a user can choose. Through the hole of napari's ring, half as wide as the ring, the spot
#: is seen: ±1.75 σ.
MARKS = {
    "ring": Mark("ring", 7.0, 0.05),
    "dot": Mark("disc", 3.0, 0.1),
    "cross": Mark("cross", 5.0, 0.1),
}
#: What stands for a spot of the preview: a ring around that of a result, whose own is seen in it.
PREVIEW = "halo"
_ALL = {**MARKS, PREVIEW: Mark("ring", 10.0, 0.04)}
#: What stands for a doubtful fit. It is found among thousands where good fits are points of light.
_DOUBTFUL = Mark("x", 11.0, 0.18)
#: Screen pixels over which edges fade. With napari's one, the border of a small ring would fade
#: over all of its face.
ANTIALIASING = 0.2
#: Keys of the metadata: which mark, and how many pixels σ is.
MARK, SIGMA = "mark", "mark_sigma"
_USUAL_SIGMA = 1.3


def mark_metadata(widths: NDArray[Any]) -> dict[str, Any]:
    """Return what a layer's metadata say of its marks, which are rings.

    Parameters
    ----------
    widths : ndarray
        The σ of its good fits in pixels; NaN where a file of another program does not tell it.
    """
    known = widths[np.isfinite(widths)]
    return {MARK: "ring", SIGMA: float(np.median(known)) if len(known) else _USUAL_SIGMA}


def mark_arguments(good: NDArray[np.bool_], metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Return the symbols, sizes and borders of fits as napari's Points take them."""
    mark, sigma = _mark(metadata), metadata.get(SIGMA, _USUAL_SIGMA)
    kinds = (mark, _DOUBTFUL)
    values: dict[str, Any] = {
        "symbol": [kind.symbol for kind in kinds],
        "size": [round(kind.size * sigma, 2) for kind in kinds],
        "border_width": [kind.border for kind in kinds],
    }
    if not len(good) or good.all() or not good.any():
        chosen = int(len(good) > 0 and not good[0])
        return {name: both[chosen] for name, both in values.items()}
    return {name: np.where(good, *both) for name, both in values.items()}


def with_mark(arguments: dict[str, Any], mark: str) -> dict[str, Any]:
    """Return what napari's Points are made of, with another mark for good fits."""
    metadata = {**arguments["metadata"], MARK: mark}
    marks = mark_arguments(good_rows(arguments["features"]), metadata)
    return {**arguments, **marks, "metadata": metadata}


def is_marked(layer: Points) -> bool:
    """Whether a layer has the symbols and sizes given here, or else such as the user has chosen."""
    kinds = _mark(layer.metadata), _DOUBTFUL
    if not names_of(layer.symbol) <= own_symbols(layer.metadata):
        return False
    sizes = sizes_when_shown(layer.size, layer.metadata, len(layer.size))
    sigma = layer.metadata.get(SIGMA, _USUAL_SIGMA)
    ours = [sizes == round(kind.size * sigma, 2) for kind in kinds]
    return bool(np.all(ours[0] | ours[1]))


def names_of(symbols: Any) -> set[str]:
    """Return the different ones among the symbols of points."""
    # Each once: by what they are, as napari's symbols take long to compare.
    different = {id(symbol): symbol for symbol in np.atleast_1d(symbols).tolist()}
    return {str(symbol) for symbol in different.values()}


def own_symbols(metadata: Mapping[str, Any]) -> set[str]:
    """Return the symbols that a layer's metadata say its points have."""
    return {_mark(metadata).symbol, _DOUBTFUL.symbol}


def draw_marks(layer: Points) -> None:
    """Give all points of a layer of fitted spots the marks that its metadata name."""
    made = mark_arguments(good_rows(layer.features), layer.metadata)
    with refreshed_once(layer):
        layer.symbol = made["symbol"]
        layer.border_width = made["border_width"]
        set_sizes(layer, np.broadcast_to(made["size"], len(layer.data)))


def choose_mark(layer: Points, mark: str) -> None:
    """Let another mark stand for the good fits of a layer; one of :data:`MARKS`."""
    if mark not in _ALL:
        raise ValueError(f"mark must be one of {', '.join(MARKS)}; got {mark!r}")
    layer.metadata = {**layer.metadata, MARK: mark}
    draw_marks(layer)


def _mark(metadata: Mapping[str, Any]) -> Mark:
    return _ALL.get(metadata.get(MARK, "ring"), _ALL["ring"])
