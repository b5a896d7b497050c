"""The columns of a layer's features: their values and units."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ...models.profiles import ShapeParameter
from ...models.stopping import StopCondition
from ...results.spot_fits import SpotFits
from ...settings.settings import Settings
from ..layers.images import PixelSize, pixel_size
from ..layers.points import AXIS, SHAPE, meaning, settings_of_layer

if TYPE_CHECKING:
    import pandas as pd
    from napari.layers import Points

#: The column with the reasons why the fits stopped.
STOP = "stop_condition"
_WHOLE = ("frame", "iterations", "roi_y", "roi_x", "flags", "good", "label")
#: From so many values the usual size of a column's numbers is seen.
_SAMPLE = 2000


@dataclass(frozen=True, eq=False)
class Column:
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
        return self.values.dtype.kind in "iub" or is_whole(self.name)

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


@dataclass(frozen=True)
class Units:
    """The units in which a layer's numbers are shown.

    Parameters
    ----------
    of : mapping of str to str
        The columns' own units.
    pixel : PixelSize, optional
        Turns pixels into a physical unit; pixels are shown without.
    """

    of: Mapping[str, str] = field(default_factory=dict)
    pixel: PixelSize | None = None

    def factor(self, name: str) -> float:
        """Return what a column is multiplied by before it is shown."""
        factor = None if self.pixel is None else self.pixel.factor(name)
        return 1.0 if factor is None else factor

    def unit(self, name: str) -> str:
        """Return the unit in which a column is shown; nothing if it has none."""
        if self.pixel is not None and self.pixel.factor(name) is not None:
            return self.pixel.unit
        unit = self.of.get(name, "")
        # Photons are counted in photons: once is enough.
        return "" if unit == name else unit

    def title(self, name: str) -> str:
        """Return a column's name with its unit, such as ``sigma [px]``."""
        unit = self.unit(name)
        return f"{name} [{unit}]" if unit else name

    def convert(self, column: Column) -> NDArray[Any]:
        """Return a column's numbers in the unit in which they are shown."""
        factor = self.factor(column.name)
        # A plain number, so that single precision stays single, with its few digits.
        return column.values if factor == 1 else column.values * float(factor)


def is_whole(name: str) -> bool:
    """Whether a feature's numbers are whole by their meaning, whatever their type."""
    return name in _WHOLE or AXIS.fullmatch(name) is not None


def read_columns(layer: Points) -> dict[str, Column]:
    """Return a layer's features as arrays, in the order in which they are looked at."""
    shape = _own_shape(layer.metadata.get("settings", {}))
    columns = {
        str(name): _column(str(name), values, meaning(str(name), shape))
        for name, values in layer.features.items()
    }
    own = {parameter.name for parameter in shape}
    return {name: columns[name] for name in sorted(columns, key=lambda name: _rank(name, own))}


def read_units(layer: Points, *, physical: bool) -> Units:
    """Return the units of a layer's features, in pixels or in the layer's physical unit."""
    units = layer.metadata.get("units", {})
    return Units(
        {str(name): str(unit) for name, unit in units.items()},
        pixel_size(layer) if physical else None,
    )


def as_fits(columns: Mapping[str, Column], layer: Points) -> SpotFits:
    """Return a layer's columns of numbers as fits, for what is worked out of fits."""
    numbers = {name: column.values for name, column in columns.items() if column.is_number}
    index = tuple(name for name in numbers if name == "frame" or AXIS.fullmatch(name))
    return SpotFits(numbers, index, settings_of_layer(layer.metadata))


def _own_shape(settings: Mapping[str, Any]) -> tuple[ShapeParameter, ...]:
    """Return the shape parameters of somebody's own model; none of ours, which are known."""
    is_own = not isinstance(settings.get("model", ""), str)
    return tuple(Settings(**settings).profile.shape) if is_own else ()


def _rank(name: str, own: Collection[str]) -> int:
    """Return what comes first: where the spot lies, its shape, light and stop condition."""
    if name == "frame" or AXIS.fullmatch(name):
        return 0
    if name in SHAPE or name in own:
        return 1
    return {"photons": 2, STOP: 3}.get(name, 4)


def _column(name: str, values: pd.Series, what: str) -> Column:
    import pandas as pd

    kind = getattr(values.dtype, "kind", "O")
    if not isinstance(values.dtype, pd.CategoricalDtype) and kind in "fiub":
        return Column(name, values.to_numpy(), meaning=what)
    categories = values.astype("category").cat
    words = tuple(str(word) for word in categories.categories)
    # A column without a word has still no numbers.
    return Column(name, categories.codes.to_numpy(), words or ("",), what)
