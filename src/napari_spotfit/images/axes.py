"""Check an image's axes, and select channels: y and x come last, and channels are not frames."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .files.image_file import ImageFile

#: Value of ``channel`` that fits every channel separately.
ALL = "all"
_CHANNELS = ("c", "ch", "channel", "channels")
#: The last axis of an array is not x if it has at most this many indices, and the axes before it
#: have at least this many times more.
_FEW, _TIMES = 10, 4


def axis_names(image: Any) -> tuple[str, ...] | None:
    """Return the names of an image's axes (xarray, files, Zarr 3), or None."""
    names = getattr(image, "dims", None)
    if names is None:
        names = getattr(getattr(image, "metadata", None), "dimension_names", None)
    shape = getattr(image, "shape", ())
    if not isinstance(names, (tuple, list)) or len(names) != len(shape) or None in names:
        return None
    return tuple(map(str, names))


def channel_axis(names: Sequence[str] | None) -> int | None:
    """Return the number of the leading axis that runs over channels, or None.

    Examples
    --------
    >>> channel_axis(("t", "c", "y", "x")), channel_axis(("z", "y", "x"))
    (1, None)
    """
    leading = () if names is None else names[:-2]
    return next((axis for axis, name in enumerate(leading) if name.lower() in _CHANNELS), None)


def channel_names(image: Any, axis: int) -> list[str]:
    """Return the names of an image's channels, by default their numbers as text."""
    count = int(image.shape[axis])
    names = getattr(image, "channels", None)
    if names is None:  # xarray has coordinates instead
        along = getattr(image, "coords", {}).get(getattr(image, "dims", ())[axis : axis + 1][0])
        names = None if along is None else np.asarray(along).tolist()
    if names is None or len(names) != count:
        return [str(number) for number in range(count)]
    return [str(name) for name in names]


def axis_of_channels(image: Any) -> int:
    """Return the axis of an image's channels, or raise a ValueError if it has none."""
    names = axis_names(image)
    axis = channel_axis(names)
    if axis is None:
        known = "have no names" if names is None else f"are {', '.join(names)}"
        raise ValueError(
            f"channel is given, but the image has no axis of channels, c: its axes {known}. Leave "
            "channel out; choose a channel of an array by its index, such as image[1]"
        )
    return axis


def channel_number(image: Any, channel: int | str) -> tuple[int, int]:
    """Return the axis of channels, and the index of one channel along it.

    Raises
    ------
    TypeError, ValueError
        If the image has no axis of channels, or not this channel.
    """
    if isinstance(channel, bool) or not isinstance(channel, (int, np.integer, str)):
        raise TypeError(f'channel must be a number, a name or "{ALL}"; got {channel!r}')
    axis = axis_of_channels(image)
    found = channel_names(image, axis)
    if channel in found:
        return axis, found.index(str(channel))
    if isinstance(channel, str) and channel.isdecimal():
        channel = int(channel)
    if isinstance(channel, str) or not 0 <= channel < len(found):
        raise ValueError(f"the image has no channel {channel!r}: it has {_listed(found)}")
    return axis, int(channel)


def at(image: Any, axis: int, number: int) -> Any:
    """Index an image along one leading axis, without reading it."""
    if type(image).__module__.startswith("zarr."):
        from .files.zarr_store import image_of

        image = image_of(image)
    if isinstance(image, ImageFile):
        return image.at(axis, number)
    return image[(*(slice(None),) * axis, number)]


def one_channel(image: Any, channel: int | str | None) -> tuple[Any, tuple[int, int] | None]:
    """Return one channel of an image, and the axis and index that were chosen.

    Parameters
    ----------
    image : array, shape (…, Y, X)
        The opened image.
    channel : int, str or None
        Number or name of the channel; None if there is at most one.

    Raises
    ------
    TypeError, ValueError
        If there is no such channel, or several and none is given.

    Examples
    --------
    >>> import numpy as np
    >>> one_channel(np.zeros((5, 9, 9)), None)[1] is None
    True
    """
    if channel is not None:
        axis, number = channel_number(image, channel)
        return at(image, axis, number), (axis, number)
    check_axes(image)
    known = channel_axis(axis_names(image))
    return (image, None) if known is None else (at(image, known, 0), (known, 0))


def check_axes(image: Any) -> None:
    """Check that an image's axes are (…, y, x), with at most one channel.

    Raises
    ------
    ValueError
        If channels come last, there are several, or the last axis is too short to be x; the
        message says what to do.
    """
    names = axis_names(image)
    shape = tuple(image.shape)
    if names is None:
        _check_last(shape)
        return
    if any(name.lower() in _CHANNELS for name in names[-2:]):
        moved = sorted(names, key=lambda name: name.lower() not in _CHANNELS)
        raise ValueError(
            f"the image's axes must end in rows and columns; they are {', '.join(names)}. Move the "
            f"channels to the front: image.transpose({', '.join(map(repr, moved))}), or "
            f"numpy.moveaxis(image, {names.index(moved[0]) - len(names)}, 0)"
        )
    axis = channel_axis(names)
    if axis is not None and shape[axis] > 1:
        raise ValueError(
            f"the image has {_listed(channel_names(image, axis))} along axis {axis}, and channels "
            f'are no frames: choose one by channel=, its number or its name, or channel="{ALL}" '
            "to fit each by itself"
        )


def _check_last(shape: tuple[int, ...]) -> None:
    """Check that the last axis of an array without names can be x."""
    if len(shape) < 3 or not 1 <= shape[-1] <= _FEW:
        return
    rows, columns, last = shape[-3:]
    if min(rows, columns) >= _TIMES * last:
        front = 0 if len(shape) == 3 else -3
        raise ValueError(
            f"the image must have axes (…, y, x), and its shape is {shape}: the last axis, with "
            f"{last}, looks like one of channels or frames. Move it before rows and columns: "
            f"numpy.moveaxis(image, -1, {front}). If these are {last} columns, name the axes, as "
            'xarray.DataArray(image, dims=("t", "y", "x")) does'
        )


def _listed(names: Sequence[str]) -> str:
    """Return the number and the names of channels as text."""
    numbered = [
        str(number) if name == str(number) else f"{number} “{name}”"
        for number, name in enumerate(names)
    ]
    return f"{len(names)} channel{'' if len(names) == 1 else 's'} ({', '.join(numbered)})"
