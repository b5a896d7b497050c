"""A layer's features as columns of a table: values, words and units."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ...files.table import steps
from ...images.arrays import PLANES
from ...models.columns import CHANNEL, STOP, Column, describe, index_of
from ...models.estimators import StopCondition
from ...results.formatting import Units
from ...results.spot_fits import SpotFits
from ..layers.images import axis_names, is_number, pixel_size
from ..layers.points import HISTORY, axes_of, settings_of_layer

if TYPE_CHECKING:
    import pandas as pd
    from napari.layers import Points

#: The usual size of a column's numbers is that of a sample of this many values.
_SAMPLE = 2000
#: Names of axes whose index is called a frame.
_TIME = ("t", "time", "frame")


@dataclass(frozen=True, eq=False)
class Feature:
    """One column: numbers, or words by their codes.

    Parameters
    ----------
    name : str
        Name of the feature.
    values : ndarray, shape (n,)
        Its numbers, or the codes of its words; -1 for none.
    words : tuple of str
        The words; none for a column of numbers.
    meaning : str
        What the column holds, in words.
    """

    name: str
    values: NDArray[Any]
    words: tuple[str, ...] = ()
    meaning: str = ""

    @property
    def is_number(self) -> bool:
        """Whether the column holds numbers."""
        return not self.words

    @property
    def whole(self) -> bool:
        """Whether its numbers are whole by their meaning, such as frames."""
        return self.values.dtype.kind in "iub" or describe(self.name).is_whole

    @cached_property
    def shown_words(self) -> tuple[str, ...]:
        """The words as they are shown: of stop conditions, what they mean."""
        known = StopCondition.__members__ if self.name == STOP else {}
        return tuple(known[word].words if word in known else word for word in self.words)

    def word(self, row: int) -> str:
        """Return the word of one row; nothing if there is none."""
        return self.words[self.values[row]] if self.values[row] >= 0 else ""

    @cached_property
    def usual(self) -> float:
        """How large the column's numbers usually are, apart from their sign; 0 if unknown."""
        sample = self.values[:: max(1, len(self.values) // _SAMPLE)].astype(float)
        sample = np.abs(sample[np.isfinite(sample) & (sample != 0)])
        return float(np.median(sample)) if len(sample) else 0.0


def read_columns(layer: Points) -> dict[str, Feature]:
    """Return a layer's features as arrays, in the order of the table."""
    settings = settings_of_layer(layer.metadata)
    shape = () if settings is None else tuple(one.column for one in settings.profile.shape)
    known = {name: describe(str(name), shape) for name in layer.features}
    names = sorted(known, key=lambda name: _rank(known[name], shape))
    return {
        str(name): feature_of(str(name), layer.features[name], known[name].meaning)
        for name in names
    }


def read_units(layer: Points, *, physical: bool) -> Units:
    """Return the units of a layer's features, in pixels or in the layer's physical unit."""
    units = layer.metadata.get("units", {})
    return Units(
        {str(name): str(unit) for name, unit in units.items()},
        pixel_size(layer) if physical else None,
        _names_of_axes(layer),
    )


def _names_of_axes(layer: Points) -> dict[str, str]:
    """Return how the columns that index a layer's leading axes are called, as far as axes are."""
    settings, features = settings_of_layer(layer.metadata), [str(one) for one in layer.features]
    names: dict[str, str] = {}
    for column, label in zip(
        index_of(features, layer.ndim - axes_of(settings)), axis_names(layer), strict=False
    ):
        name = "plane" if label.lower() in PLANES else label
        known = is_number(label) or (column == "frame" and label.lower() in _TIME)
        if not known and column != CHANNEL and name not in (*features, *names.values()):
            names[column] = name
    return names


def as_fits(columns: Mapping[str, Feature], layer: Points) -> SpotFits:
    """Return a layer's columns of numbers as fits, for functions that take fits."""
    numbers = {name: column.values for name, column in columns.items() if column.is_number}
    settings = settings_of_layer(layer.metadata)
    index = index_of(numbers, layer.ndim - axes_of(settings))
    return SpotFits(numbers, index, settings, history=steps(layer.metadata.get(HISTORY)))


def _rank(column: Column, shape: Collection[Column]) -> int:
    """Return a column's rank: position first, then shape, light and stop condition."""
    if column.group == "index":
        return 0
    if column in shape or (column.group in ("position", "shape") and not column.error_of):
        return 1
    return {"photons": 2, STOP: 3}.get(column.name, 4)


def feature_of(name: str, values: pd.Series, meaning: str = "") -> Feature:
    """Return a column of a DataFrame; what is not a number is words."""
    import pandas as pd

    kind = getattr(values.dtype, "kind", "O")
    if not isinstance(values.dtype, pd.CategoricalDtype) and kind in "fiub":
        return Feature(name, values.to_numpy(), meaning=meaning)
    categories = values.astype("category").cat
    words = tuple(str(word) for word in categories.categories)
    # A column of words remains one if all its cells are empty.
    return Feature(name, categories.codes.to_numpy(), words or ("",), meaning)
