"""The fits that a layer shows, as they came from the fit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ...models.columns import as_column, is_index
from ...models.stopping import StopCondition
from ...results.spot_fits import SpotFits
from ...settings.settings import Settings

if TYPE_CHECKING:
    import pandas as pd

_STOP, _GOOD = "stop_condition", "good"


def fits_of_features(features: pd.DataFrame, metadata: Mapping[str, Any]) -> SpotFits:
    """Return the fits whose columns are a layer's features.

    Whole numbers, which napari has as floating-point ones, are whole again.

    Parameters
    ----------
    features : pandas.DataFrame
        The features of a layer of fitted spots, and whatever was added to them.
    metadata : mapping
        The layer's metadata.
    """
    columns = {
        str(name): _column(str(name), values) for name, values in features.items() if name != _GOOD
    }
    index = tuple(name for name in columns if is_index(name))
    settings = settings_of_layer(metadata)
    units = metadata.get("units", {}) if settings is None else {}
    return SpotFits(columns, index, settings, units=units)


def settings_of_layer(metadata: Mapping[str, Any]) -> Settings | None:
    """Return what a layer's spots were fitted with, if it says so."""
    settings = metadata.get("settings")
    return Settings(**settings) if settings else None


def _column(name: str, values: pd.Series) -> NDArray[Any]:
    if name == _STOP:
        words = values.astype("category").cat
        # A point without a condition, the code -1, was not fitted.
        codes = [
            StopCondition.__members__.get(word, StopCondition.INVALID) for word in words.categories
        ]
        stops = np.array([*codes, StopCondition.INVALID], np.uint8)
        rows: NDArray[np.int8] = words.codes.to_numpy()
        return stops[rows]
    if getattr(values.dtype, "kind", "O") in "fiub":
        return as_column(name, values.to_numpy())
    text: NDArray[Any] = values.to_numpy(object)
    return text
