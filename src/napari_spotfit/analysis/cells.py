"""Tabulate spots, light and pairs by cell and channel."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from ..models.columns import CHANNEL
from ..results.spot_fits import SpotFits
from .labels import COUNTED, per_label, table_of_labels
from .linking import measured_once, of_one_channel, split_channels
from .pairs import SpotPairs, pair_spots
from .summary import check_columns

if TYPE_CHECKING:
    import pandas as pd

#: Columns for two channels, by their names in the results of pair_spots.
_OF_PAIRS = {
    "observed": "pairs", "expected_shifted": "expected", "excess": "excess",
    "stderr": "excess_stderr",
}  # fmt: skip


def cells_by_channel(
    channels: Mapping[Any, SpotFits] | SpotFits,
    labels: Any = None,
    radius: float | None = None,
    *,
    columns: Iterable[str] = ("photons",),
    to_labels: ArrayLike | None = None,
    shape: Sequence[int] | None = None,
    z_scale: float | None = None,
) -> pd.DataFrame:
    """Return a table of one row per cell, with columns for each channel and each pair of channels.

    Parameters
    ----------
    channels : mapping of SpotFits, or SpotFits
        The fits of each channel by name, such as ``{"GFP": gfp[gfp.good], …}``, or fits with a
        column ``channel``, as returned by ``localize(image, channel="all")``.
    labels, to_labels
        The cells, as in :func:`per_label`. Without labels, all spots are in one row.
    radius : float, optional
        Largest distance of pairs in pixels; without it, no pairs are counted.
    columns : iterable of str
        Numeric columns to sum.
    shape, z_scale
        As in :func:`pair_spots`.

    Returns
    -------
    pandas.DataFrame
        ``label`` and ``pixels`` as in :func:`per_label`; for each channel, ``GFP_count``,
        ``GFP_photons_sum`` and ``GFP_photons_mean``; and for two channels, ``GFP+RFP_pairs``,
        ``GFP+RFP_expected`` by chance, ``GFP+RFP_excess`` and ``GFP+RFP_excess_stderr``. Numbered
        channels are called ``channel_0`` ….

    Raises
    ------
    ValueError
        As :func:`per_label` and :func:`pair_spots` do, and if there are no channels.

    Examples
    --------
    >>> import numpy as np
    >>> from napari_spotfit import cells_by_channel, fit_at, simulate_movie
    >>> image = simulate_movie(1, shape=(64, 64), photons=3000, seed=0)[0][0]
    >>> a, b = fit_at(image, [(12, 12), (40, 50)]), fit_at(image, [(12, 12)])
    >>> cells = np.ones((64, 64), int)
    >>> cells[:, 32:] = 2
    >>> table = cells_by_channel({"GFP": a, "RFP": b}, cells, radius=2)
    >>> table[["label", "GFP_count", "RFP_count", "GFP+RFP_pairs"]].values.tolist()
    [[1, 1, 1, 1], [2, 1, 0, 0]]
    """
    named = named_channels(channels)
    pairs = {}
    if radius is not None:
        known: dict[str, Any] = {
            "labels": labels, "to_labels": to_labels, "shape": shape, "z_scale": z_scale,
        }  # fmt: skip
        for one, other in combinations(named, 2):
            pairs[one, other] = pair_spots(named[one], named[other], radius, **known)
    return table_of_cells(named, pairs, labels, columns=columns, to_labels=to_labels)


def named_channels(channels: Mapping[Any, SpotFits] | SpotFits) -> dict[str, SpotFits]:
    """Return the fits of channels by their names in tables."""
    known = channels if isinstance(channels, Mapping) else split_channels(channels)
    if not known:
        raise ValueError("there are no channels: pass the fits of each by name")
    found = {}
    for name, fits in known.items():
        own = of_one_channel(fits)
        once = measured_once(own)
        found[name if isinstance(name, str) else f"channel_{name}"] = (
            own if once.all() else own[once]
        )
    return found


def table_of_cells(
    channels: Mapping[str, SpotFits],
    pairs: Mapping[tuple[str, str], SpotPairs],
    labels: Any = None,
    *,
    columns: Iterable[str] = ("photons",),
    to_labels: ArrayLike | None = None,
) -> pd.DataFrame:
    """Return the table of :func:`cells_by_channel` from known pairs."""
    import pandas as pd

    table: dict[str, Any] = {}
    for name, fits in channels.items():
        # The channel is in the names of columns already.
        of_spots = {one: values for one, values in fits.columns.items() if one != CHANNEL}
        fits = SpotFits(of_spots, fits.index_names, fits.settings)
        names = check_columns(fits, columns)
        if labels is None:
            everywhere = np.ones(len(fits), np.int64)
            own = table_of_labels(everywhere, {1: 0}, fits.columns, names)
        else:
            own = per_label(fits, labels, names, to_labels)
        shared = [one for one in ("label", "pixels", COUNTED) if one in own and labels is not None]
        table |= {one: own[one] for one in shared}
        of_channel = [one for one in own if one not in ("label", "pixels", COUNTED)]
        table |= {f"{name}_{one}": own[one] for one in of_channel}
    for (one, other), found in pairs.items():
        table |= {
            f"{one}+{other}_{title}": found.by_label[column] for column, title in _OF_PAIRS.items()
        }
    return pd.DataFrame(table)
