"""Measure the light at fixed positions in all frames of a movie."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..engine.flags import Flag, good
from ..estimation.psf_width import estimate_sigma
from ..images.camera import Camera
from ..images.channels import Channel, Maps, channels_of
from ..images.frames import FrameReader
from ..localization.fit_at import fit_at
from ..models.columns import CHANNEL, STDERR
from ..models.number_checks import as_numbers
from ..results.spot_fits import SpotFits
from ..settings.options import Options, takes_settings, with_roi
from ..settings.settings import Settings

if TYPE_CHECKING:
    import pandas as pd

#: Relative width of the bounds of σ, as one shape parameter must be free.
_NARROW = 1e-4
_LIGHT = ("photons", "amplitude", "background")


@takes_settings("fit", "stop", "camera", "run", also=("sigma",))
def trace(
    image: Any,
    positions: ArrayLike | SpotFits,
    roi_size: int | tuple[int, ...] | None = None,
    *,
    channel: int | str | None = None,
    weights: Any = None,
    bad_pixels: Any = None,
    camera: Camera | None = None,
    settings: Settings | None = None,
    **options: Unpack[Options],
) -> pd.DataFrame:
    """Measure the light at fixed positions in each frame of a movie, with or without a spot.

    A spot of the PSF's width is fitted at each position, with only amplitude and background free.
    So without a spot the light is 0 within its error, and may be negative.

    Parameters
    ----------
    image : array, shape (…, Y, X), or path
        As in :func:`fit_at`.
    positions : array, shape (n, 2), or SpotFits
        Positions y and x in pixels, or spots, for their centres.
    roi_size : int or tuple of int, optional
        Side of the ROI, or rows and columns; odd. By default about 6 σ, at least 9.
    channel : int or str, optional
        Number or name of the channel, if the image has several; "all" measures the positions in
        each, with its own σ.
    weights, bad_pixels, camera
        As in :func:`fit_at`.
    settings : Settings, optional
        All settings at once; ``options`` change single ones. ``sigma`` is that of the PSF, by
        default estimated from the image's spots.

    Returns
    -------
    pandas.DataFrame
        One row per position and frame, sorted by position: ``place``, the number of the position;
        ``channel`` if there are several; ``frame``, and ``axis_0`` … for more leading axes; ``y``,
        ``x``; ``photons``, ``amplitude`` and ``background`` with their standard errors; ``flags``
        and ``good``. ``attrs["units"]`` has the units.

    Raises
    ------
    TypeError, ValueError
        If positions are invalid, the model has no σ, or σ is neither given nor can be estimated.

    Examples
    --------
    >>> from napari_spotfit import simulate_movie, trace
    >>> movie, truth = simulate_movie(3, shape=(64, 64), spots_per_frame=1, photons=5000, seed=3)
    >>> table = trace(movie, truth.loc[truth.frame == 1, ["y", "x"]], sigma=1.3)
    >>> table["frame"].tolist(), (table["photons"] > 10 * table["photons_stderr"]).tolist()
    ([0, 1, 2], [False, True, False])
    """
    settings = with_roi(settings, roi_size, options, trace)
    if "sigma" not in {one.name for one in settings.profile.shape}:
        raise ValueError(
            f"the model must have one width, sigma; {settings.profile.name!r} has none: use "
            "model='gaussian'"
        )
    places = _places(positions)
    channels = channels_of(image, channel, Maps(None, weights, bad_pixels, camera))
    import pandas as pd

    tables = [_in_channel(one, places, settings) for one in channels]
    table = pd.concat(tables, ignore_index=True) if len(tables) > 1 else tables[0]
    table.attrs = tables[0].attrs
    return table.sort_values("place", kind="stable", ignore_index=True)


def _places(positions: ArrayLike | SpotFits) -> NDArray[np.float64]:
    if isinstance(positions, SpotFits):
        return np.column_stack([positions.to_host().y, positions.to_host().x])
    places = as_numbers("positions", positions)
    if places.ndim != 2 or places.shape[1] != 2:
        raise ValueError(
            f"positions must be y and x in pixels, of shape (n, 2); got shape {places.shape}"
        )
    return places


def _in_channel(channel: Channel, places: NDArray[np.float64], settings: Settings) -> pd.DataFrame:
    """Return the light at positions in all frames of a channel, sorted by position."""
    import pandas as pd

    leading = FrameReader(channel.image).leading
    sigma = settings.sigma
    if sigma is None:
        camera, bad_pixels = channel.maps.camera, channel.maps.bad_pixels
        found = estimate_sigma(
            channel.image, camera=camera, bad_pixels=bad_pixels, settings=settings
        )
        sigma = found.sigma
    settings = settings.changed(
        sigma=sigma, fixed={"y": None, "x": None}, bounds={"sigma": (sigma, sigma * (1 + _NARROW))}
    )
    index = np.indices(leading).reshape(len(leading), math.prod(leading)).T
    centers = np.column_stack(
        [np.tile(index, (len(places), 1)), np.repeat(places, len(index), axis=0)]
    )
    maps = channel.maps._asdict()
    del maps["mask"]
    fits = fit_at(channel.image, centers, settings=settings, **maps).to_host()
    # σ is at its bounds by design.
    flags = fits.flags & ~np.uint32(Flag.AT_BOUND)
    table = {"place": np.repeat(np.arange(len(places)), len(index))}
    if channel.is_one_of_all:
        table[CHANNEL] = np.full(len(fits), channel.number)
    names = [*fits.index_names, "y", "x"]
    names += [one for name in _LIGHT for one in (name, name + STDERR) if one in fits]
    table |= {name: fits.columns[name] for name in names}
    frame = pd.DataFrame(table | {"flags": flags, "good": good(flags)})
    frame.attrs["units"] = {name: unit for name, unit in fits.units.items() if name in frame}
    return frame
