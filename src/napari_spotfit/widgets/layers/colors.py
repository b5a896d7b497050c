"""What the colours mean: a fitted quantity on the faces, stop conditions on the borders."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ...stopping import StopCondition

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
#: Percentiles of the converged fits between which the face colours run.
_PERCENTILES = (5.0, 95.0)


def face_limits(values: NDArray[Any], converged: NDArray[np.bool_]) -> tuple[float, float]:
    """Return finite colour limits lo < hi that outliers and failed fits do not stretch.

    Parameters
    ----------
    values : ndarray, shape (n,)
        The quantity that is coloured; NaN and infinite values are left out.
    converged : ndarray of bool, shape (n,)
        The fits that count; if none of their values is finite, all do.
    """
    finite = np.isfinite(values)
    for chosen in (finite & converged, finite):
        if chosen.any():
            low, high = np.percentile(values[chosen].astype(float), _PERCENTILES)
            if low < high:
                return float(low), float(high)
            margin = 0.05 * abs(low) or 0.5
            return float(low - margin), float(high + margin)
    return 0.0, 1.0


def color_faces(layer: Points, feature: str) -> None:
    """Colour the faces of fitted spots by another feature.

    Parameters
    ----------
    layer : napari.layers.Points
        A layer made by :func:`~napari_spotfit.to_points_layer`.
    feature : str
        Name of one of its features. The colours of a number run between the limits
        of the converged fits; words get the colours of the stop conditions.
    """
    column = layer.features[feature]
    # napari cannot go from numbers to words or back but through a plain colour.
    layer.face_color = "white"
    if np.issubdtype(np.asarray(column).dtype, np.number):
        # Limits first: with a NaN and no limits napari draws no point at all.
        converged = layer.features["stop_condition"].isin(_CONVERGED)
        layer.face_contrast_limits = face_limits(np.asarray(column), converged.to_numpy())
    else:
        layer.face_color_cycle = STOP_COLORS
    if len(layer.data):
        layer.face_color = feature
    layer.metadata = {**layer.metadata, "face": feature}
