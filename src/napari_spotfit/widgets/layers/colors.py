"""What the colours mean: a fitted quantity on the faces, stop conditions on the borders."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ...models.stopping import StopCondition
from ..napari_compat import refreshed_once

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
}
_CONVERGED = [condition.name for condition in StopCondition if condition.converged]
FACE_COLORMAP = "viridis"
#: Maps to choose from. All but turbo rise evenly in brightness, coolwarm to its middle:
#: it is for quantities that are telling on either side of one.
COLORMAPS = ("viridis", "magma", "inferno", "plasma", "cividis", "turbo", "gray", "coolwarm")
#: Percentiles of the good fits between which the face colours run.
_PERCENTILES = (5.0, 95.0)


def good_rows(features: Any) -> NDArray[np.bool_]:
    """Return which rows of a table are good fits; of one without verdicts, which converged."""
    if "good" in features:
        return np.asarray(features["good"].to_numpy() > 0)
    return np.asarray(features["stop_condition"].isin(_CONVERGED))


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
    """Return a table's colour limits where nobody has chosen any; None if there are no numbers."""
    if feature not in features or not is_number(features[feature]):
        return None
    return face_limits(np.asarray(features[feature]), good_rows(features))


def color_faces(
    layer: Points,
    feature: str,
    colormap: Any = None,
    limits: tuple[float, float] | None = None,
) -> None:
    """Colour the faces of fitted spots by a feature.

    Parameters
    ----------
    layer : napari.layers.Points
        A layer made by :func:`~napari_spotfit.to_points_layer`.
    feature : str
        Name of one of its features. Numbers get the colours of the map, words those of
        the stop conditions; where a number is NaN, there is no face.
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
    column = layer.features[feature]
    numbers = is_number(column)
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
