"""Summarise the groups of spots that overlap: how many there are, and how much light they have."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ..models.columns import GROUP, GROUP_SIZE
from ..results.spot_fits import SpotFits

if TYPE_CHECKING:
    import pandas as pd


def summarize_groups(fits: SpotFits) -> pd.DataFrame:
    """Return how many spots each group has, and how many times a single spot's light.

    Of spots that are nearer to each other than 0.6 σ, fits show one: the count is a lower bound.
    Their light is all there, so that photons over those of a single spot count those, too.

    Parameters
    ----------
    fits : SpotFits
        The fits that count, such as ``fits[fits.good]``, with ``neighbours="joint"`` or ``"auto"``.

    Returns
    -------
    pandas.DataFrame
        A row for each group, single spots too: its number, the index of its frame; ``y``, ``x``,
        the centre of its light; ``count``; ``photons``, their sum; and ``photons_over_single``,
        that over the median single spot's: NaN where no spot stands alone.

    Raises
    ------
    ValueError
        If the fits have no groups.

    Examples
    --------
    >>> from napari_spotfit import localize, simulate_movie, summarize_groups
    >>> movie, truth = simulate_movie(3, shape=(64, 64), spots_per_frame=20, seed=1)
    >>> fits = localize(movie, neighbours="joint")
    >>> table = summarize_groups(fits)
    >>> int(table["count"].sum()) == len(fits)
    True
    """
    import pandas as pd

    fits = fits.to_host()
    if GROUP not in fits:
        raise ValueError('the fits have no groups; fit with neighbours="joint" or "auto"')
    columns = fits.columns
    groups, first, row = np.unique(columns[GROUP], return_index=True, return_inverse=True)
    photons = columns["photons"].astype(float)
    total = np.bincount(row, photons, minlength=len(groups))
    table = {GROUP: groups} | {name: columns[name][first] for name in fits.index_names}
    with np.errstate(all="ignore"):
        for axis in fits.axes:
            table[axis] = np.bincount(row, photons * columns[axis], minlength=len(groups)) / total
    is_single = (columns[GROUP_SIZE] == 1) & np.isfinite(photons)
    single = float(np.median(photons[is_single])) if is_single.any() else np.nan
    table["count"] = np.bincount(row, minlength=len(groups))
    table |= {"photons": total, "photons_over_single": total / single}
    return pd.DataFrame(table)
