"""The fits of channels that are each fitted by itself."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ..files.parts import channel_folder
from ..images.channels import Channel
from ..models.columns import CHANNEL
from ..results.spot_fits import SpotFits
from ..settings.settings import Settings


def with_channel(fits: SpotFits, channel: Channel) -> SpotFits:
    """Return the fits of one of all channels with its number.

    Examples
    --------
    >>> from napari_spotfit import localize, simulate_movie
    >>> from napari_spotfit.images.channels import Maps
    >>> movie, truth = simulate_movie(3, shape=(64, 64), spots_per_frame=5, seed=1)
    >>> fits = with_channel(localize(movie), Channel(movie, Maps(), 2, 1, True))
    >>> fits.index_names, fits.points()[0, 1]
    (('frame', 'channel'), np.float64(2.0))
    """
    if not channel.is_one_of_all:
        return fits
    assert channel.axis is not None
    names = list(fits.index_names)
    names.insert(channel.axis, CHANNEL)
    columns = fits.columns
    number = np.full(len(fits), channel.number, np.int64)
    index = {name: number if name == CHANNEL else columns[name] for name in names}
    return SpotFits(index | columns, names, fits.settings)


def places_with_channel(places: NDArray[np.float64], channel: Channel) -> NDArray[np.float64]:
    """Return places in one of all channels as places in the image."""
    if not channel.is_one_of_all:
        return places
    assert channel.axis is not None
    assert channel.number is not None
    return np.insert(places, channel.axis, channel.number, axis=1)


def common_settings(found: Iterable[Settings | None]) -> Settings | None:
    """Return settings that hold for the fits of all channels: what differs is left open."""
    known = [one for one in found if one is not None]
    if not known:
        return None
    first = known[0]
    left_open = {
        name: getattr(Settings(), name)
        for name in ("sigma", "roi_size", "noise")
        if any(getattr(one, name) != getattr(first, name) for one in known)
    }
    return first.changed(**left_open)


def resume_in(
    folder: str | os.PathLike[str] | None, channel: Channel
) -> str | os.PathLike[str] | None:
    """Return the folder of the parts of a channel: its own if it is one of all."""
    if folder is None or not channel.is_one_of_all:
        return folder
    assert channel.number is not None
    return channel_folder(Path(folder), channel.number)


def joined_channels(parts: Iterable[SpotFits]) -> SpotFits:
    """Return the fits of all channels, those of each after those of the one before."""
    held = list(parts)
    if len(held) == 1:
        return held[0]
    joined = SpotFits.concatenate(held)
    return SpotFits(
        joined.columns, joined.index_names, common_settings(one.settings for one in held)
    )
