"""Use Labels layers as cells: label spots, add features to cells, colour them by counts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..napari_compat import colored_by
from .images import matrix_of, ratio_of

if TYPE_CHECKING:
    import pandas as pd
    from napari.layers import Labels, Points

#: The feature of spots with the label they lie in, and the metadata with the Labels layer's name.
LABEL, LABELS = "label", "labels"
#: The feature of Labels with the label itself, as napari wants it, and that with how many spots.
INDEX, SPOTS = "index", "spots"
COLORMAP = "viridis"
#: The colours of a layer before they showed counts, in its metadata.
_EARLIER = "colors_before_counts"


def to_labels(points: Points, labels: Labels) -> NDArray[np.float64]:
    """Return the matrix that takes a point's coordinates and a 1 to the pixels of labels.

    Raises
    ------
    ValueError
        If the labels have more axes than the points.
    """
    if labels.ndim > points.ndim:
        raise ValueError(
            f"“{labels.name}” has {labels.ndim} axes, more than “{points.name}” with "
            f"{points.ndim}; choose labels with as many axes or fewer"
        )
    pairs = zip(points.units[-labels.ndim :], labels.units, strict=True)
    units = np.diag([*(ratio_of(*pair) or 1.0 for pair in pairs), 1.0])
    world = matrix_of(points.data_to_world, points.ndim)[points.ndim - labels.ndim :]
    matrix: NDArray[np.float64] = matrix_of(labels.world_to_data, labels.ndim) @ units @ world
    return matrix[:-1]


def put_labels(points: Points, label: NDArray[np.int64], labels: Labels) -> None:
    """Give spots the feature ``label``, if it is not there yet.

    Raises
    ------
    ValueError
        If the layer has such a feature with other values from elsewhere.
    """
    features = points.features
    same = LABEL in features and np.array_equal(features[LABEL].to_numpy(), label)
    if LABEL in features and LABELS not in points.metadata and not same:
        raise ValueError(
            f"“{points.name}” has a feature “{LABEL}” that was not made here and is not that of "
            f"“{labels.name}”; choose the labels it was made with, or take the feature out"
        )
    if points.metadata.get(LABELS) != labels.name:
        points.metadata = {**points.metadata, LABELS: labels.name}
    if same:
        return
    # Numbers, not categories: napari colours numbers by a scale.
    values = label.astype(np.float64)
    if LABEL in (colored_by(points, "face"), colored_by(points, "border")):
        points.features = features.assign(**{LABEL: values})
        return
    # In place: by assignment napari maps all colours again, seconds for a million spots.
    features[LABEL] = values
    points.feature_defaults = points.feature_defaults.assign(**{LABEL: 0.0})
    points.events.features()


def with_unknown_labels(arguments: dict[str, Any], points: Points) -> dict[str, Any]:
    """Return the arguments of a layer's update; with unknown labels if its spots have labels.

    So a filter of the labels stays until they are known.
    """
    if LABEL not in points.features or LABELS not in points.metadata:
        return arguments
    return {**arguments, "features": arguments["features"].assign(**{LABEL: np.nan})}


def put_features(labels: Labels, table: pd.DataFrame) -> None:
    """Add the columns of a table to the features of labels; other features stay.

    Parameters
    ----------
    labels : Labels
        The layer.
    table : pandas.DataFrame
        A row for each label, with the columns ``index`` and others.
    """
    import pandas as pd

    known = pd.DataFrame(labels.features)
    if INDEX not in known:
        # As napari reads features: the row's number is the label.
        known = known.assign(**{INDEX: np.arange(len(known))})
    others = known[[INDEX, *(name for name in known if name not in table)]]
    merged = others.merge(table, how="outer", on=INDEX)
    if not merged.equals(pd.DataFrame(labels.features)):
        labels.features = merged


def shows_counts(labels: Labels) -> bool:
    """Whether a layer's colours show counts."""
    earlier = labels.metadata.get(_EARLIER)
    return earlier is not None and labels.colormap is earlier[1]


def color_by_counts(labels: Labels, label: NDArray[Any], counts: NDArray[Any]) -> None:
    """Colour labels by counts: from dark for 0 to bright for the most."""
    from napari.utils.colormaps import DirectLabelColormap, ensure_colormap

    most = max(int(counts.max(initial=0)), 1)
    colors = ensure_colormap(COLORMAP).map(counts / most)
    clear = np.zeros(4, np.float32)
    by_label = dict(zip(label.tolist(), colors, strict=True))
    colormap = DirectLabelColormap(color_dict={**by_label, 0: clear, None: clear})
    earlier = labels.metadata[_EARLIER][0] if shows_counts(labels) else labels.colormap
    labels.colormap = colormap
    labels.metadata = {**labels.metadata, _EARLIER: (earlier, labels.colormap)}


def restore_colors(labels: Labels) -> None:
    """Restore the colours of labels from before they showed counts."""
    if shows_counts(labels):
        labels.colormap = labels.metadata[_EARLIER][0]
    labels.metadata = {name: one for name, one in labels.metadata.items() if name != _EARLIER}
