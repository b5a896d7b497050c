"""Select channels of an image, together with their maps of bad pixels, weights and masks."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, NamedTuple

from .axes import ALL, at, axis_of_channels, one_channel
from .camera import Camera
from .files.opening import opened


class Maps(NamedTuple):
    """The per-pixel maps that :func:`~.localize.localize` accepts."""

    mask: Any = None
    weights: Any = None
    bad_pixels: Any = None
    camera: Camera | None = None


NO_MAPS = Maps()
#: One channel by number or name, "all", several, or None for an image of at most one.
Chosen = int | str | tuple[int | str, ...] | None


class Channel(NamedTuple):
    """One channel of an image, with its per-pixel maps."""

    image: Any
    maps: Maps
    #: Its index, and the axis of channels; None if the image has no such axis.
    number: int | None = None
    axis: int | None = None
    #: Whether several channels are fitted, so that fits have a column of its number.
    is_one_of_all: bool = False


def channel_of(image: Any, channel: int | str | None, maps: Maps) -> Channel:
    """Return a channel of an image.

    Raises
    ------
    TypeError, ValueError
        If there is no such channel, or there are several and not one of them is chosen.
    """
    image = opened(image)
    if channel == ALL:
        raise ValueError(f'channel="{ALL}" is not possible here: give one channel at a time')
    shape = tuple(getattr(image, "shape", ()))
    if not shape and channel is None:  # a list of lists has no names of axes
        return Channel(image, maps)
    own, chosen = one_channel(image, channel)
    if chosen is None:
        return Channel(own, maps)
    return Channel(own, _maps_at(maps, shape, *chosen), chosen[1], chosen[0])


def is_several(channel: Chosen) -> bool:
    """Whether several channels are chosen, which are fitted separately."""
    return channel == ALL or isinstance(channel, tuple)


def channels_of(image: Any, channel: Chosen, maps: Maps) -> list[Channel]:
    """Return the chosen channels of an image: one, a tuple of them, or ``"all"``.

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
    """Return the channels at some indices along an axis of any name."""
    return [
        Channel(at(image, axis, one), _maps_at(maps, image.shape, axis, one), one, axis, True)
        for one in numbers
    ]


def _maps_at(maps: Maps, shape: tuple[int, ...], axis: int, number: int) -> Maps:
    """Return the maps of one channel, by indexing those that have one map per frame."""

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
