"""Render the light of fitted spots as an image: what the fits explain of the data."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..caller import warn_caller
from ..engine.depth import apparent_places
from ..images.plane_light import relative_light
from ..settings.noise_model import LIGHT
from ..settings.settings import Settings, dark_of_planes, noise_of

#: How far the light of spots is drawn, in units of their width, and rounded up to pixels that are
#: a multiple of this; pixels that are made at once.
_REACH, _STEP, _AT_ONCE = 5.0, 2, 1 << 20


def light_image(
    columns: Mapping[str, NDArray[Any]],
    names: tuple[str, ...],
    settings: Settings,
    shape: tuple[int, ...],
) -> NDArray[np.float32]:
    """Return the light of all spots, without their background, as an image of a shape.

    Parameters
    ----------
    columns : mapping of str to ndarray
        Those of the fits.
    names : tuple of str
        The columns that index the image's leading axes.
    settings : Settings
        What the fits were made with.
    shape : tuple of int
        Of the image.

    Raises
    ------
    ValueError
        If the shape does not have the axes of the fits.
    """
    image = np.zeros(shape, np.float32)
    for _ in add_light(image, columns, names, settings):
        pass
    return image


def dimmed(
    light: NDArray[np.float32], settings: Settings, image: NDArray[Any] | None
) -> NDArray[np.float32]:
    """Return the light of spots in stacks as each plane shows it, where planes differ in light.

    Parameters
    ----------
    light : ndarray of float32
        The light of spots as it is in the brightest planes, to which fits refer; changed in place.
    settings : Settings
        What the fits were made with.
    image : ndarray, optional
        The image, by which planes are compared.

    Raises
    ------
    ValueError
        If the image has another shape.

    Warns
    -----
    UserWarning
        If planes differ, and there is no image.
    """
    if image is not None and image.shape != light.shape:
        raise ValueError(
            f"the image must have the shape of its model, {light.shape}; got {image.shape}"
        )
    noise = noise_of(settings)
    if settings.noise is None or settings.noise.planes != LIGHT or noise is None or not light.size:
        return light
    if image is None:
        warn_caller(
            "the planes of the stack differ in light, and the model is that of spots in the "
            "brightest planes: pass image=…, in which the light of each is measured"
        )
        return light
    planes = relative_light(image, noise, dark_of_planes(settings))
    light *= planes[..., np.newaxis, np.newaxis].astype(np.float32)
    return light


def add_light(
    image: NDArray[np.float32],
    columns: Mapping[str, NDArray[Any]],
    names: tuple[str, ...],
    settings: Settings,
) -> Iterator[tuple[int, int]]:
    """Add the light of all spots to an image, and yield now and then how many of them are done.

    The arguments are those of :func:`light_image`.

    Yields
    ------
    (int, int)
        How many spots are done, and how many there are.
    """
    profile, axes, shape = settings.profile, settings.profile.axes, image.shape
    if len(shape) != len(names) + len(axes):
        wanted = ", ".join((*names, *axes))
        raise ValueError(f"shape must have the axes ({wanted}) of the fits; got {shape}")
    own = {one.name: columns[one.column.name] for one in profile.shape}
    own |= {**apparent_places(columns, settings), "amplitude": columns["amplitude"]}
    there = np.logical_and.reduce([np.isfinite(values) for values in own.values()])
    flat, done, total = image.reshape(-1), 0, int(there.sum())
    for reach, rows in _by_reach(columns, settings, np.flatnonzero(there)):
        window = np.indices([2 * one + 1 for one in reach])
        window -= np.reshape(reach, (-1, *[1] * len(axes)))
        for part in np.array_split(rows, max(1, len(rows) * window[0].size // _AT_ONCE)):
            spread = (len(part), *[1] * len(axes))
            values: dict[str, Any] = {
                name: np.asarray(one[part], float).reshape(spread) for name, one in own.items()
            }
            index = [columns[name][part].astype(np.int64).reshape(spread) for name in names]
            places = [
                np.rint(values[axis]).astype(np.int64) + step
                for axis, step in zip(axes, window, strict=True)
            ]
            light = profile.evaluate(places, values | {"background": 0.0}, settings.pixel)
            pixels = np.broadcast_arrays(*index, *places)
            inside = np.logical_and.reduce(
                [(one >= 0) & (one < size) for one, size in zip(pixels, shape, strict=True)]
            )
            number = np.ravel_multi_index([one[inside] for one in pixels], shape)
            np.add.at(flat, number, light[inside].astype(np.float32))
            done += len(part)
            yield done, total


def _by_reach(
    columns: Mapping[str, NDArray[Any]], settings: Settings, rows: NDArray[np.intp]
) -> Iterator[tuple[tuple[int, ...], NDArray[np.intp]]]:
    """Return how many pixels from its middle light is drawn along each axis, and which spots' so.

    That is half of the ROI at least, and farther where spots are wider; of a measured PSF, as far
    as its beads have shown it.
    """
    profile, least = settings.profile, np.array([side // 2 for side in settings.roi_shape])
    if profile.lattice is not None:
        least[:] = profile.lattice.reach
    reach = np.tile(least, (len(rows), 1))
    widths = [one.column.name for one in profile.shape[len(profile.axes) :]
              if one.column.unit == "px" and profile.has_widths]  # fmt: skip
    for place, axis in enumerate(profile.axes):
        names = [name for name in widths if (name == "sigma_z") == (axis == "z")] or widths
        if names:
            widest = np.max([np.abs(columns[name][rows]) for name in names], axis=0)
            far = np.ceil(_REACH * widest / _STEP) * _STEP
            reach[:, place] = np.clip(far, least[place], 8 * least[place] + 8)
    for one in np.unique(reach, axis=0):
        yield tuple(one.tolist()), rows[(reach == one).all(axis=1)]
