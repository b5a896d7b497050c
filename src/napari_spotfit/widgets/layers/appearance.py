"""The look of fitted spots: colours of faces and borders, marks, and which are hidden."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...models.estimators import StopCondition
from ...models.number_checks import one_of
from ..napari_compat import draws_hidden_points, follow_no_feature, refreshed_once

if TYPE_CHECKING:
    from napari.layers import Points

#: One fixed border colour per stop condition that is drawn: quiet for fits that
#: converged, loud for the others; after Okabe & Ito, for all kinds of colour vision.
STOP_COLORS = {
    StopCondition.MIN_DELTA.name: "#909090",
    StopCondition.MIN_STEP.name: "#56b4e9",
    StopCondition.MAX_ERROR.name: "#009e73",
    StopCondition.NO_DECREASE.name: "#cc79a7",
    StopCondition.MAX_ITERATIONS.name: "#d55e00",
    StopCondition.UNKNOWN.name: "#c7c7c7",
}
#: The stop conditions of accepted fits, where there are no flags.
_ACCEPTED = [one.name for one in StopCondition if one.converged or one is StopCondition.UNKNOWN]
FACE_COLORMAP = "viridis"
#: Maps to choose from. All but turbo rise evenly in brightness, coolwarm to its middle:
#: it is for quantities that matter on either side of one.
COLORMAPS = ("viridis", "magma", "inferno", "plasma", "cividis", "turbo", "gray", "coolwarm")
#: Percentiles of the good fits between which the face colours run.
_PERCENTILES = (5.0, 95.0)
#: In the metadata, the one colour of all faces, which distinguishes results of several images; and
#: its name among the features that colour faces.
OWN_COLOR = "own_color"
#: Those colours, in the order of the images; no stop condition has one of them.
CHANNEL_COLORS = ("#ffd500", "#00e5ff", "#ff4fd8", "#ff8c1a", "#a6ff4d", "#f5f5f5")
#: Diameters in screen pixels between which points are drawn however far one zooms. A smallest
#: one would cover the image of a whole field, and bring back points without a size.
CANVAS_SIZES = (0, 200)
#: In the metadata, the sizes of hidden points.
_SIZES = "sizes_when_shown"
#: The mark of the preview: a ring around that of a result, which is seen inside.
PREVIEW = "halo"
#: Screen pixels over which edges fade. With napari's one, the border of a small ring would fade
#: over all of its face.
ANTIALIASING = 0.2
#: Keys of the metadata: which mark, how many pixels the σ is by which it is drawn, and whether
#: doubtful fits are close together.
MARK, SIGMA, DENSE = "mark", "mark_sigma", "doubtful_are_dense"
_USUAL_SIGMA = 1.3
#: Rings in crowds are as large as this times the distance of neighbours, so that they leave the
#: image to be seen, but no smaller than this fraction of others; from which number of spots on.
_PER_DISTANCE, _SMALLEST, _CROWD = 1.5, 0.43, 20
#: Doubtful fits are close together, whose median neighbour is nearer than this, in σ.
_DENSE = 5.0


def good_rows(features: Any) -> NDArray[np.bool_]:
    """Return which rows of a table are good fits; without that column, which may be."""
    if "good" in features:
        return np.asarray(features["good"].to_numpy() > 0)
    return np.asarray(features["stop_condition"].isin(_ACCEPTED))


def face_limits(values: NDArray[Any], good: NDArray[np.bool_]) -> tuple[float, float]:
    """Return finite colour limits lo < hi that outliers and failed fits do not stretch.

    Parameters
    ----------
    values : ndarray, shape (n,)
        The quantity that is coloured; NaN and infinite values are left out.
    good : ndarray of bool, shape (n,)
        The fits that count; if none of their values is finite, all do.
    """
    finite = np.isfinite(values)
    for chosen in (finite & good, finite):
        if chosen.any():
            low, high = np.percentile(values[chosen].astype(float), _PERCENTILES)
            if low < high:
                return float(low), float(high)
            margin = 0.05 * abs(low) or 0.5
            return float(low - margin), float(high + margin)
    return 0.0, 1.0


def is_number(column: Any) -> bool:
    """Whether a column of features holds numbers, which a colour map can show."""
    return bool(np.issubdtype(np.asarray(column[:0]).dtype, np.number))


def number_names(features: Any) -> list[str]:
    """Return the names of the features that hold numbers."""
    kinds = features.dtypes.items()  # quicker than to ask every column
    return [name for name, kind in kinds if isinstance(kind, np.dtype) and kind.kind in "iufc"]


def automatic_limits(features: Any, feature: str | None) -> tuple[float, float] | None:
    """Return automatic colour limits of a feature; None if it has no numbers."""
    if feature not in features or not is_number(features[feature]):
        return None
    return face_limits(np.asarray(features[feature]), good_rows(features))


def color_faces(
    layer: Points, feature: str, colormap: Any = None, limits: tuple[float, float] | None = None
) -> None:
    """Colour the faces of fitted spots by a feature.

    Parameters
    ----------
    layer : napari.layers.Points
        A layer made by :func:`~napari_spotfit.to_points_layer`.
    feature : str
        Name of one of its features. Numbers get the colours of the map, words those of
        the stop conditions; where a number is NaN, there is no face. With :data:`OWN_COLOR` all
        faces have the colour in the metadata.
    colormap : str or Colormap, optional
        The colour map; by default the one that the layer has.
    limits : (float, float), optional
        The numbers that get the first and the last colour; by default what
        :func:`face_limits` says.

    Raises
    ------
    ValueError
        If the limits are not two numbers, the lower one first.
    """
    if feature == OWN_COLOR:
        follow_no_feature(layer, "face")
        layer.face_color = layer.metadata[OWN_COLOR]
        layer.metadata = {**layer.metadata, "face": OWN_COLOR, "face_limits": None}
        return
    numbers = is_number(layer.features[feature])
    if limits is not None and not -np.inf < limits[0] < limits[1] < np.inf:
        raise ValueError(f"limits must be two finite numbers, the lower one first; got {limits!r}")
    with refreshed_once(layer, moved=False):
        # napari cannot go from numbers to words or back but through colours of no meaning. The
        # present ones will do: nothing is then drawn in between, which takes long.
        layer.face_color_mode = "direct"
        if colormap is not None:
            layer.face_colormap = colormap
        if numbers:
            # Limits first: with a NaN and no limits napari draws no point at all.
            layer.face_contrast_limits = limits or automatic_limits(layer.features, feature)
        else:
            layer.face_color_cycle = STOP_COLORS
        if len(layer.data):
            _map_colors(layer, feature, numbers)
    chosen = {"face": feature, "face_limits": limits if numbers else None}
    layer.metadata = {**layer.metadata, **chosen}


def _map_colors(layer: Points, feature: str, numbers: bool) -> None:
    """Let napari colour the faces by a feature."""
    with warnings.catch_warnings():
        # Of integers with few values, napari warns that it takes them for words.
        warnings.simplefilter("ignore", RuntimeWarning)
        layer.face_color = feature
    if numbers and layer.face_color_mode != "colormap":
        layer.face_color_mode = "colormap"


def show_only(layer: Points, shown: NDArray[np.bool_] | bool, ndisplay: int) -> None:
    """Show some points of a layer and hide the others.

    Parameters
    ----------
    layer : napari.layers.Points
        The layer.
    shown : bool or array of bool, shape (n,)
        Which points are shown.
    ndisplay : int
        How many axes the viewer displays.
    """
    all_axes = layer.ndim <= ndisplay
    with refreshed_once(layer, moved=False):
        layer.shown = shown
        if all_axes and not np.all(shown) and draws_hidden_points():
            sizes = sizes_when_shown(layer.size, layer.metadata, len(layer.size))
            layer.metadata = {**layer.metadata, _SIZES: sizes}
            # A point without a size is not drawn, unless there is a smallest size on the canvas.
            layer.canvas_size_limits = (0, layer.canvas_size_limits[1])
            layer.size = np.where(shown, sizes, 0)
        else:
            _restore_sizes(layer)


def show_all(layer: Points) -> None:
    """Show all points of a layer, also those that were added while some were hidden."""
    if not np.all(layer.shown):
        layer.shown = True
    _restore_sizes(layer)


def hidden_arguments(arguments: dict[str, Any], shown: NDArray[np.bool_]) -> dict[str, Any]:
    """Return the arguments of a layer that hide some of its points.

    Parameters
    ----------
    arguments : dict
        Those of the layer that shows all of them.
    shown : array of bool, shape (n,)
        Which points are shown.
    """
    hiding: dict[str, Any] = {"shown": shown}
    # A layer of one frame is displayed with all its axes, unless in 3-D.
    if arguments["data"].shape[1] <= 2 and draws_hidden_points():
        sizes = np.broadcast_to(np.asarray(arguments["size"], float), shown.shape)
        hiding["size"] = np.where(shown, sizes, 0)
        hiding["metadata"] = {**arguments["metadata"], _SIZES: sizes.copy()}
    return hiding


def sizes_when_shown(size: Any, metadata: Mapping[str, Any], count: int) -> NDArray[np.float64]:
    """Return the size of every point when it is shown."""
    sizes, kept = np.array(np.broadcast_to(size, count), float), metadata.get(_SIZES)
    hidden = sizes <= 0
    if kept is not None and len(kept) == len(sizes):
        sizes[hidden] = kept[hidden]
    elif hidden.any():  # points came or went meanwhile
        known = sizes[~hidden] if kept is None or not len(kept) else kept
        sizes[hidden] = np.median(known)
    return sizes


def set_sizes(layer: Points, sizes: NDArray[np.float64]) -> None:
    """Set the size of every point, which hidden ones get when they are shown."""
    if _SIZES in layer.metadata:
        layer.metadata = {**layer.metadata, _SIZES: np.array(sizes, float)}
        sizes = np.where(layer.shown, sizes, 0)
    layer.size = sizes


def _restore_sizes(layer: Points) -> None:
    if _SIZES in layer.metadata:
        layer.size = sizes_when_shown(layer.size, layer.metadata, len(layer.size))
        layer.metadata.pop(_SIZES)


class Mark(NamedTuple):
    """A symbol for fits."""

    symbol: str
    #: Outer diameter in σ.
    size: float
    #: Width of the border in fractions of the diameter.
    border: float


#: Marks to choose from. Through the hole of napari's ring, half as wide as the ring, the spot
#: is seen: ±1.75 σ.
MARKS = {
    "ring": Mark("ring", 7.0, 0.05),
    "dot": Mark("disc", 3.0, 0.1),
    "cross": Mark("cross", 5.0, 0.1),
}


_ALL = {**MARKS, PREVIEW: Mark("ring", 10.0, 0.04)}


#: The mark of doubtful fits, found among thousands that are points of light.
_DOUBTFUL = Mark("x", 11.0, 0.18)
#: Their mark where they are many, small and thin, and its largest size in pixels.
_ONE_OF_MANY, _MOST = Mark("x", 4.0, 0.08), 8.0
#: From which number and share on they are many.
_MANY, _SHARE = 20, 0.25


def mark_metadata(
    widths: NDArray[Any], good: NDArray[np.bool_], apart: NDArray[Any] | None = None
) -> dict[str, Any]:
    """Return the metadata of a layer whose marks are rings.

    Parameters
    ----------
    widths : ndarray
        The σ of its fits in pixels; NaN where a file of another program has none.
    good : ndarray of bool
        Which of them are good.
    apart : ndarray, optional
        Their distance in pixels to the nearest other one of the frame; NaN if none is near.
    """
    known = widths[good & np.isfinite(widths)]
    sigma, dense = float(np.median(known)) if len(known) else _USUAL_SIGMA, False
    if apart is not None and len(apart) >= _CROWD:
        apart = np.where(np.isfinite(apart), apart, np.inf)
        dense = not good.all() and bool(np.median(apart[~good]) < _DENSE * sigma)
        fitting = _PER_DISTANCE * float(np.median(apart)) / (MARKS["ring"].size * sigma)
        sigma *= min(max(fitting, _SMALLEST), 1.0)
    return {MARK: "ring", SIGMA: sigma, DENSE: dense}


def mark_arguments(good: NDArray[np.bool_], metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Return the symbols, sizes and borders of fits as napari's Points take them."""
    doubtful = len(good) - int(np.count_nonzero(good))
    share = 0.0 if metadata.get(DENSE) else _SHARE
    many = doubtful >= _MANY and doubtful >= share * len(good)
    kinds = (_mark(metadata), _ONE_OF_MANY if many else _DOUBTFUL)
    values: dict[str, Any] = {
        "symbol": [kind.symbol for kind in kinds],
        "size": [_size(kind, metadata) for kind in kinds],
        "border_width": [kind.border for kind in kinds],
    }
    if not len(good) or good.all() or not good.any():
        chosen = int(len(good) > 0 and not good[0])
        return {name: both[chosen] for name, both in values.items()}
    return {name: np.where(good, *both) for name, both in values.items()}


def with_look(arguments: dict[str, Any], look: Look) -> dict[str, Any]:
    """Return the arguments of napari's Points with another mark for good fits, or one colour."""
    metadata, own = {**arguments["metadata"], MARK: look.mark}, {}
    if look.color:
        metadata |= {"face": OWN_COLOR, OWN_COLOR: look.color}
        own["face_color"] = look.color
    marks = mark_arguments(good_rows(arguments["features"]), metadata)
    return {**arguments, **marks, **own, "metadata": metadata}


def is_marked(layer: Points) -> bool:
    """Whether a layer has the symbols and sizes of marks, not others that the user chose."""
    kinds = _mark(layer.metadata), _DOUBTFUL, _ONE_OF_MANY
    if not names_of(layer.symbol) <= own_symbols(layer.metadata):
        return False
    sizes = sizes_when_shown(layer.size, layer.metadata, len(layer.size))
    return bool(np.isin(sizes, [_size(kind, layer.metadata) for kind in kinds]).all())


def _size(kind: Mark, metadata: Mapping[str, Any]) -> float:
    """Return the diameter of a mark in pixels of the image."""
    size: float = round(kind.size * metadata.get(SIGMA, _USUAL_SIGMA), 2)
    return min(size, _MOST) if kind is _ONE_OF_MANY else size


def names_of(symbols: Any) -> set[str]:
    """Return the different ones among the symbols of points."""
    # Each once: by what they are, as napari's symbols take long to compare.
    different = {id(symbol): symbol for symbol in np.atleast_1d(symbols).tolist()}
    return {str(symbol) for symbol in different.values()}


def own_symbols(metadata: Mapping[str, Any]) -> set[str]:
    """Return the symbols that a layer's metadata say its points have."""
    return {_mark(metadata).symbol, _DOUBTFUL.symbol}


def draw_marks(layer: Points) -> None:
    """Draw all points of a layer with the marks that its metadata name."""
    made = mark_arguments(good_rows(layer.features), layer.metadata)
    with refreshed_once(layer):
        layer.symbol = made["symbol"]
        layer.border_width = made["border_width"]
        set_sizes(layer, np.broadcast_to(made["size"], len(layer.data)))


def choose_mark(layer: Points, mark: str) -> None:
    """Draw the good fits of a layer with another mark; one of :data:`MARKS`."""
    one_of("mark", mark, tuple(_ALL))
    layer.metadata = {**layer.metadata, MARK: mark}
    draw_marks(layer)


def _mark(metadata: Mapping[str, Any]) -> Mark:
    return _ALL.get(metadata.get(MARK, "ring"), _ALL["ring"])


class Look(NamedTuple):
    """How the spots of a fit are drawn."""

    face: str = "sigma"
    colormap: str = FACE_COLORMAP
    mark: str = "ring"
    #: One colour for all faces instead.
    color: str = ""

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Look:
        """Return the look among remembered values; the default for what is unknown."""
        face, colormap, mark = (values.get(name) for name in ("face", "colormap", "mark"))
        return cls(
            str(face or cls().face),
            colormap if colormap in COLORMAPS else cls().colormap,
            mark if mark in MARKS else cls().mark,
        )
