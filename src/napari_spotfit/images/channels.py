"""Select channels of an image, one or each by itself, with the maps of their pixels."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, NamedTuple

from .axes import ALL, at, axis_of_channels, one_channel
from .camera import Camera
from .files.opening import opened


class Maps(NamedTuple):
    """Maps of the pixels of an image, as :func:`~.localize.localize` takes it."""

    mask: Any = None
    weights: Any = None
    bad_pixels: Any = None
    camera: Camera | None = None


NO_MAPS = Maps()
#: One channel by number or name, all, some, or None where an image has one at most.
Chosen = int | str | tuple[int | str, ...] | None


class Channel(NamedTuple):
    """One channel of an image, with the maps of its pixels."""

    image: Any
    maps: Maps
    #: Which one it is, and the axis of the channels; None where the image has no such axis.
    number: int | None = None
    axis: int | None = None
    #: Whether it is one of those that are all fitted, whose fits have its number.
    is_one_of_all: bool = False


def channel_of(image: Any, channel: int | str | None, maps: Maps) -> Channel:
    """Return a channel of an image.

    Raises
    ------
    TypeError, ValueError
        If there is no such channel, or there are several and none, or all, are chosen.
    """
    image = opened(image)
    if channel == ALL:
        raise ValueError(f'channel="{ALL}" is not possible here: give one channel at a time')
    shape = tuple(getattr(image, "shape", ()))
    if not shape and channel is None:  # a list of lists, whose axes have no names
        return Channel(image, maps)
    own, chosen = one_channel(image, channel)
    if chosen is None:
        return Channel(own, maps)
    return Channel(own, _maps_at(maps, shape, *chosen), chosen[1], chosen[0])


def is_several(channel: Chosen) -> bool:
    """Whether a choice is of channels that are each fitted by itself."""
    return channel == ALL or isinstance(channel, tuple)


def channels_of(image: Any, channel: Chosen, maps: Maps) -> list[Channel]:
    """Return the channel of an image that is chosen, or each with ``"all"`` or of a tuple of them.

    Raises
    ------
    TypeError, ValueError
        As :func:`channel_of` does.
    """
    image = opened(image)
    if channel != ALL and not isinstance(channel, tuple):
        return [channel_of(image, channel, maps)]
    every = channel if isinstance(channel, tuple) else range(image.shape[axis_of_channels(image)])
    return [channel_of(image, one, maps)._replace(is_one_of_all=True) for one in every]


def channels_along(image: Any, axis: int, numbers: Iterable[int], maps: Maps) -> list[Channel]:
    """Return the channels at some indices along an axis, whatever it is called."""
    return [
        Channel(at(image, axis, one), _maps_at(maps, image.shape, axis, one), one, axis, True)
        for one in numbers
    ]


def _maps_at(maps: Maps, shape: tuple[int, ...], axis: int, number: int) -> Maps:
    """Return maps of a channel's pixels: those for each frame of the image have its axis, too."""

    def own(values: Any) -> Any:
        if tuple(getattr(values, "shape", ())) != tuple(shape) or len(shape) == 2:
            return values
        return values[(*(slice(None),) * axis, number)]

    camera: Camera | None = maps.camera
    if camera is not None:
        camera = replace(
            camera, offset=own(camera.offset), gain=own(camera.gain),
            variance=own(camera.variance),
        )  # fmt: skip
    return Maps(own(maps.mask), own(maps.weights), own(maps.bad_pixels), camera)
